"""Calls that are recorded: inputs made on the CPU from a seed, a function that launches, a reference in plain torch."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from common import HERE, WORK

Tensors = dict[str, torch.Tensor]
ROWS, HIDDEN = 512, 2048


@dataclass
class Case:
    """``inputs(seed)`` gives CPU tensors; ``prepare(on_gpu)`` what is called; it returns the outputs."""

    inputs: Callable[[], Tensors]
    prepare: Callable[[Tensors], Callable[[], list[torch.Tensor]]]
    reference: Callable[[Tensors], list[torch.Tensor]] | None = None
    tolerance: float = 2e-2


CASES: dict[str, Callable[[], Case]] = {}


def case(function: Callable[[], Case]) -> Callable[[], Case]:
    CASES[function.__name__] = function
    return function


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float32).to(dtype)


def outputs(value: Any) -> list[torch.Tensor]:
    return [v for v in value if isinstance(v, torch.Tensor)] if isinstance(value, (tuple, list)) else [value]


# Question 4: addresses in parameters, structures, tables and descriptors.


@case
def cublas_gemm() -> Case:
    return Case(
        lambda: {"a": normal(1024, 768), "b": normal(768, 1280)},
        lambda t: lambda: [t["a"] @ t["b"]],
        lambda t: [t["a"].double() @ t["b"].double()],
    )


@case
def cublas_gemm_split() -> Case:
    """A long sum: cuBLAS splits it and adds the parts in its workspace."""
    return Case(
        lambda: {"a": normal(64, 16384), "b": normal(16384, 64)},
        lambda t: lambda: [t["a"] @ t["b"]],
        lambda t: [t["a"].double() @ t["b"].double()],
    )


@case
def foreach_add() -> Case:
    def call(t: Tensors) -> Callable[[], list[torch.Tensor]]:
        mine, others = ([t[f"{kind}{i}"] for i in range(40)] for kind in "ab")

        def run() -> list[torch.Tensor]:
            torch._foreach_add_(mine, others, alpha=0.5)
            return mine

        return run

    def made() -> Tensors:
        return {f"{k}{i}": normal(1000 + 37 * i, dtype=torch.float32) for k in "ab" for i in range(40)}

    return Case(made, call, lambda t: [t[f"a{i}"].double() + 0.5 * t[f"b{i}"].double() for i in range(40)])


@case
def grouped_by_pointers() -> Case:
    """A grouped matrix product whose kernel reads its operands' addresses from a table in memory."""

    def call(t: Tensors) -> Callable[[], list[torch.Tensor]]:
        from triton_kernels import grouped

        ones, twos = ([t[f"{k}{i}"] for i in range(4)] for k in "ab")
        outs = [torch.zeros(o.shape[0], w.shape[1], device="cuda") for o, w in zip(ones, twos, strict=True)]
        rows = [[x.data_ptr() for x in kind] for kind in (ones, twos, outs)]
        table = torch.tensor(rows, dtype=torch.int64).cuda()
        sizes = torch.tensor(
            [[o.shape[0], w.shape[1], o.shape[1]] for o, w in zip(ones, twos, strict=True)], dtype=torch.int32
        ).cuda()

        def run() -> list[torch.Tensor]:
            grouped[(4, 16)](table, sizes, 4, BLOCK=64)
            return outs

        return run

    def made() -> Tensors:
        rows = {f"a{i}": normal(128 + 64 * i, 256) for i in range(4)}
        return {**rows, **{f"b{i}": normal(256, 128) for i in range(4)}}

    return Case(made, call, lambda t: [t[f"a{i}"].double() @ t[f"b{i}"].double() for i in range(4)])


@case
def grouped_mm() -> Case:
    """torch's grouped product: a kernel writes addresses and descriptors that the next one reads."""
    return Case(
        lambda: {
            "a": normal(1024, 256),
            "b": normal(4, 256, 512),
            "ends": torch.tensor([256, 512, 640, 1024], dtype=torch.int32),
        },
        lambda t: (
            lambda: [torch._grouped_mm(t["a"], t["b"].transpose(1, 2).contiguous().transpose(1, 2), offs=t["ends"])]
        ),
    )


@case
def decode() -> Case:
    """One query a sequence over a paged cache, split in parts that a second kernel puts together."""

    def call(t: Tensors) -> Callable[[], list[torch.Tensor]]:
        from triton_kernels import decode_attention

        return lambda: [decode_attention(t["q"], t["k"], t["v"], t["pages"], t["lengths"])]

    def made() -> Tensors:
        pages = torch.randperm(8 * 16).to(torch.int32).view(8, 16)
        lengths = torch.randint(100, 16 * 32, (8,), dtype=torch.int32)
        return {
            "q": normal(8, 16, 64),
            "k": normal(128, 32, 64),
            "v": normal(128, 32, 64),
            "pages": pages,
            "lengths": lengths,
        }

    def right(t: Tensors) -> list[torch.Tensor]:
        rows = []
        for i in range(8):
            n = int(t["lengths"][i])
            k, v = (t[x][t["pages"][i].long()].reshape(-1, 64)[:n].double() for x in "kv")
            rows.append(torch.softmax(t["q"][i].double() @ k.T / 8.0, dim=-1) @ v)
        return [torch.stack(rows)]

    return Case(made, call, right)


@case
def attention() -> Case:
    return Case(
        lambda: {k: normal(2, 8, 512, 64) for k in "qkv"},
        lambda t: lambda: [F.scaled_dot_product_attention(t["q"], t["k"], t["v"], is_causal=True)],
        lambda t: [F.scaled_dot_product_attention(t["q"].double(), t["k"].double(), t["v"].double(), is_causal=True)],
    )


@case
def cute_tma() -> Case:
    """CuTe DSL: its host code makes the descriptor and launches by itself."""

    def call(t: Tensors) -> Callable[[], list[torch.Tensor]]:
        from cute_kernel import doubled

        out = torch.zeros_like(t["x"])
        run = doubled(t["x"], out)

        def launch() -> list[torch.Tensor]:
            run()
            return [out]

        return launch

    made = lambda: {"x": normal(512, 512, dtype=torch.float32)}  # noqa: E731
    return Case(made, call, lambda t: [t["x"].double() * 2])


class TensorMap(ctypes.Structure):
    """The driver wants its 128 bytes at a multiple of 64."""

    _fields_ = [("words", ctypes.c_uint64 * 16)]


def tensor_map(driver: ctypes.CDLL, tensor: torch.Tensor, box: tuple[int, int]) -> Any:
    raw = (ctypes.c_uint8 * 256)()
    at = (ctypes.addressof(raw) + 63) // 64 * 64
    made = TensorMap.from_address(at)
    made.keep = raw
    rows, columns = tensor.shape
    u64, u32 = ctypes.c_uint64, ctypes.c_uint32
    code = driver.cuTensorMapEncodeTiled(
        ctypes.c_void_p(at), 7, 2, ctypes.c_void_p(tensor.data_ptr()), (u64 * 2)(columns, rows),
        (u64 * 1)(columns * 4), (u32 * 2)(box[1], box[0]), (u32 * 2)(1, 1), 0, 0, 0, 0,
    )  # fmt: skip
    if code:
        raise RuntimeError(f"cuTensorMapEncodeTiled gave {code}")
    return made


@case
def cuda_tma() -> Case:
    """CUDA C++ by nvcc: a descriptor as grid constant, launched through the driver."""

    def call(t: Tensors) -> Callable[[], list[torch.Tensor]]:
        import os

        cubin = WORK / f"tma_{os.getpid()}.cubin"
        source = HERE / "native" / "tma.cu"
        subprocess.run(
            ["nvcc", "-arch=sm_90", "-cubin", "-o", str(cubin), str(source)], check=True, capture_output=True
        )
        driver = ctypes.CDLL("libcuda.so.1")
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        for code in (
            driver.cuModuleLoadData(ctypes.byref(module), cubin.read_bytes()),
            driver.cuModuleGetFunction(ctypes.byref(function), module, b"doubled"),
        ):
            if code:
                raise RuntimeError(f"the driver gave {code}")
        out = torch.zeros_like(t["x"])
        described = tensor_map(driver, t["x"], (32, 32))
        pointer, width = ctypes.c_uint64(out.data_ptr()), ctypes.c_int(out.shape[1])
        addresses = [ctypes.addressof(x) for x in (described, pointer, width)]
        params = (ctypes.c_void_p * 3)(*addresses)
        rows, columns = (n // 32 for n in out.shape)

        def launch() -> list[torch.Tensor]:
            keep = (described, pointer, width)
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            code = driver.cuLaunchKernel(function, columns, rows, 1, 32, 1, 1, 0, stream, params, None)
            if code or not keep:
                raise RuntimeError(f"cuLaunchKernel gave {code}")
            return [out]

        return launch

    made = lambda: {"x": normal(512, 512, dtype=torch.float32)}  # noqa: E731
    return Case(made, call, lambda t: [t["x"].double() * 2])


@case
def nvrtc() -> Case:
    """A kernel of CuPy, compiled by NVRTC while the process runs."""

    def call(t: Tensors) -> Callable[[], list[torch.Tensor]]:
        import cupy

        source = """extern "C" __global__ void scaled(const float *x, float *y, float by, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * by; }"""
        kernel, out = cupy.RawKernel(source, "scaled"), torch.zeros_like(t["x"])
        n = out.numel()

        def run() -> list[torch.Tensor]:
            with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
                kernel(((n + 255) // 256,), (256,), (cupy.asarray(t["x"]), cupy.asarray(out), cupy.float32(3), n))
            return [out]

        return run

    made = lambda: {"x": normal(100_000, dtype=torch.float32)}  # noqa: E731
    return Case(made, call, lambda t: [t["x"].double() * 3])


# Judging: a replay with other contents. Twelve kernels of Liger-Kernel.


def liger(name: str, made: Callable[[], Tensors], more: tuple[Any, ...], reference: Any, loose: float = 2e-2) -> None:
    def build() -> Case:
        def call(t: Tensors) -> Callable[[], list[torch.Tensor]]:
            import liger_kernel.ops as ops

            function = getattr(ops, f"Liger{name}Function")
            given = list(t.values())
            return lambda: outputs(function.apply(*given, *more))

        return Case(made, call, lambda t: outputs(reference(*t.values())), loose)

    CASES[f"liger_{name}"] = build


def named(*tensors: Callable[[], torch.Tensor]) -> Callable[[], Tensors]:
    return lambda: {f"x{i}": t() for i, t in enumerate(tensors)}


def rows(width: int = HIDDEN, dtype: torch.dtype = torch.bfloat16) -> Callable[[], torch.Tensor]:
    return lambda: normal(ROWS, width, dtype=dtype)


def one(width: int = HIDDEN, dtype: torch.dtype = torch.bfloat16) -> Callable[[], torch.Tensor]:
    return lambda: normal(width, dtype=dtype)


def logs() -> torch.Tensor:
    return torch.log_softmax(torch.randn(ROWS, 4096), dim=-1)


def shares() -> torch.Tensor:
    return torch.softmax(torch.randn(ROWS, 4096), dim=-1)


def labels() -> torch.Tensor:
    return torch.randint(0, 8192, (ROWS,))


def rms(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x = x.double()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w.double()


def jsd(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    p, q = p.double(), q.double()
    m = torch.log((p.exp() + q.exp()) / 2)
    return (
        (F.kl_div(m, p, reduction="sum", log_target=True) + F.kl_div(m, q, reduction="sum", log_target=True)) / 2 / ROWS
    )


def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> list[torch.Tensor]:
    def turned(x: torch.Tensor) -> torch.Tensor:
        x = x.double()
        half = torch.cat([-x[..., 32:], x[..., :32]], -1)
        return x * cos.double()[:, None] + half * sin.double()[:, None]

    return [turned(q), turned(k)]


def angles() -> torch.Tensor:
    return torch.rand(1, 256, 32).repeat(1, 1, 2).to(torch.bfloat16)


def group(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x.double().view(4, 64, 1024), 8, w.double(), b.double(), 1e-6)


F32 = torch.float32
liger("RMSNorm", named(rows(), one()), (1e-6, 0.0, "llama", False), rms)
liger(
    "LayerNorm", named(rows(), one(), one()), (1e-6,),
    lambda x, w, b: F.layer_norm(x.double(), (HIDDEN,), w.double(), b.double(), 1e-6),
)  # fmt: skip
liger("SiLUMul", named(rows(), rows()), (), lambda a, b: F.silu(a.double()) * b.double())
liger("GELUMul", named(rows(), rows()), (), lambda a, b: F.gelu(a.double(), approximate="tanh") * b.double())
liger("Softmax", named(rows(4096)), (), lambda x: torch.softmax(x.double(), -1))
liger("CrossEntropy", named(rows(8192, F32), labels), (None,), lambda x, y: F.cross_entropy(x.double(), y))
liger("KLDivLoss", named(logs, shares), (), lambda p, q: F.kl_div(p.double(), q.double(), reduction="batchmean"))
liger("JSD", named(logs, logs), (None, 0.5, -100, "triton"), jsd)  # the CuTe one wants a further package
liger("TVDLoss", named(shares, shares), (), lambda p, q: (p.double() - q.double()).abs().sum() / 2 / ROWS)
liger(
    "GroupNorm",
    named(lambda: normal(4, 64, 1024, dtype=F32), one(64, F32), one(64, F32)), (64, 8, 1e-6), group,
)  # fmt: skip
liger(
    "DyT", named(rows(), one(1), one(), one()), (),
    lambda x, a, g, b: torch.tanh(a.double() * x.double()) * g.double() + b.double(),
)  # fmt: skip
liger("Rope", named(lambda: normal(2, 8, 256, 64), lambda: normal(2, 2, 256, 64), angles, angles), (), rope)


@case
def planted_cache() -> Case:
    """A cheat: the first call computes, later ones return what it gave. It has nothing to replay."""

    def call(t: Tensors) -> Callable[[], list[torch.Tensor]]:
        kept: list[torch.Tensor] = []

        def run() -> list[torch.Tensor]:
            if not kept:
                kept.append(t["x"] * 2)
            return kept

        return run

    return Case(lambda: {"x": normal(4096, dtype=F32)}, call, lambda t: [t["x"].double() * 2])


@case
def planted_branch() -> Case:
    """The host reads the contents and launches accordingly: a recording has one of the branches."""

    def call(t: Tensors) -> Callable[[], list[torch.Tensor]]:
        def run() -> list[torch.Tensor]:
            out = torch.full_like(t["x"], -1.0)
            positive = t["x"].nonzero_static(size=int((t["x"] > 0).sum())).flatten()
            out[: len(positive)] = 1.0
            return [out]

        return run

    def right(t: Tensors) -> list[torch.Tensor]:
        out = torch.full_like(t["x"], -1.0, dtype=torch.float64)
        out[: int((t["x"] > 0).sum())] = 1.0
        return [out]

    return Case(lambda: {"x": normal(4096, dtype=F32)}, call, right)


# Question 5: one kernel of about 5, 10 and 50 µs with a cold cache.


def timed(name: str, megabytes: float) -> None:
    """``out = a * b`` in float32; ``megabytes`` are read and written together."""
    n = int(megabytes * 1e6 / 12) // 1024 * 1024

    def build() -> Case:
        def call(t: Tensors) -> Callable[[], list[torch.Tensor]]:
            out = torch.empty_like(t["a"])
            return lambda: [torch.mul(t["a"], t["b"], out=out)]

        return Case(lambda: {k: torch.randn(n) for k in "ab"}, call)

    CASES[name] = build


TIMED = {"timed_5": 6.5, "timed_10": 20.0, "timed_50": 130.0}
for _name, _megabytes in TIMED.items():
    timed(_name, _megabytes)
