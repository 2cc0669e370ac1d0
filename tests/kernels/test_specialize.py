"""Launches bound as Triton binds them, for any target."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import bind, scale_kernel

from kerntune.base.device import Target
from kerntune.base.recording import TensorMap
from kerntune.errors import CaptureError, CompileError, ConfigError
from kerntune.gpu.scripted import FakeBackend
from kerntune.kernels import specialize
from kerntune.kernels.compat import launcher
from kerntune.kernels.specialize import Specialized, as_launch

SM90, SM80, GFX942 = Target.parse("cuda:90"), Target.parse("cuda:80"), Target.parse("hip:gfx942")


@triton.jit
def typed_kernel(x_ptr, n, m: tl.int64, stride, FLAG: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr = 64):
    pass


@triton.jit(do_not_specialize=["n"])
def general_kernel(x_ptr, n):
    pass


@triton.jit
def helper(x):
    return x + 1


@triton.jit
def calling_kernel(x_ptr, FN: tl.constexpr):
    pass


def x_of(dtype: torch.dtype = torch.float16, n: int = 64) -> torch.Tensor:
    return torch.empty(n, device="cuda", dtype=dtype)


def test_types_constants_and_defaults(backend: FakeBackend) -> None:
    launch = bind(backend, typed_kernel, x_of(), 4096, 7, 1, True, tl.float32)
    assert dict(launch.signature) == {
        "x_ptr": "*fp16",
        "n": "i32",
        "m": "i64",
        "stride": "constexpr",
        "FLAG": "constexpr",
        "DTYPE": "constexpr",
        "BLOCK": "constexpr",
    }
    assert launch.constexpr_texts() == {"stride": "1", "FLAG": "True", "DTYPE": "fp32", "BLOCK": "64"}
    assert launch.bound["BLOCK"] == 64


def test_functions_among_constants_show_their_name(backend: FakeBackend) -> None:
    assert bind(backend, calling_kernel, x_of(), helper).constexpr_texts() == {"FN": "helper"}


def test_what_a_launch_is_compiled_for(backend: FakeBackend) -> None:
    launch = bind(backend, typed_kernel, x_of(), 4096, 7, 1, True, tl.float32, num_warps=8, num_stages=2)
    assert launch.name == "typed_kernel"
    assert launch.compiled_for() == {
        "x_ptr": "*fp16, divisible by 16", "n": "i32, divisible by 16", "m": "i64", "stride": "== 1",
        "FLAG": "constexpr True", "DTYPE": "constexpr fp32", "BLOCK": "constexpr 64", "num_warps": "8",
        "num_stages": "2", "num_ctas": "1",
    }  # fmt: skip


@pytest.mark.parametrize(("device", "host"), [(7, 7), (8, 10), (9, 8), (10, 9), (11, 11)])
def test_element_types_of_a_map_on_the_host(device: int, host: int) -> None:
    """``CU_TENSOR_MAP_DATA_TYPE_BFLOAT16`` is 9, for one."""
    assert specialize._tensor_map([8], [1], False, False, {**META, "elem_type": device}).elem_type == host


def aligned(launch: Specialized) -> set[str]:
    names = list(launch.signature)
    return {names[path[0]] for path, values in launch.attrs.items() if ["tt.divisibility", 16] in values}


def test_alignment_of_pointers_and_numbers(backend: FakeBackend) -> None:
    x = x_of()
    assert aligned(bind(backend, typed_kernel, x, 4096, 7, 3, True, 0)) == {"x_ptr", "n"}
    assert aligned(bind(backend, typed_kernel, x[1:], 4095, 16, 3, True, 0)) == {"m"}
    assert aligned(bind(backend, typed_kernel, x[8:], 0, 7, 3, True, 0)) == {"x_ptr", "n"}


def test_what_is_not_to_be_specialized(backend: FakeBackend) -> None:
    launch = bind(backend, general_kernel, x_of(), 1)
    assert launch.signature["n"] == "i32"
    assert aligned(bind(backend, general_kernel, x_of(), 16)) == {"x_ptr"}


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (2, "i32"),
        (2**31, "i64"),
        (-(2**31) - 1, "i64"),
        (2**63, "u64"),
        (2.0, "fp32"),
        (True, "u1"),
        (None, "constexpr"),
    ],
)
def test_types_of_numbers(backend: FakeBackend, value: Any, type_: str) -> None:
    assert bind(backend, general_kernel, x_of(), value).signature["n"] == type_


def test_equal_launches_have_equal_keys(backend: FakeBackend) -> None:
    keys = {bind(backend, scale_kernel, x_of(), x_of(n=128), n, 2.0 + n, BLOCK=64).key() for n in (16, 32, 4096)}
    assert len(keys) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"args": (17, 2.0)},
        {"args": (2**31 * 16, 2.0)},
        {"args": (1, 2.0)},
        {"args": (16, 2)},
        {"BLOCK": 128},
        {"num_warps": 8},
        {"num_stages": 2},
        {"enable_fp_fusion": False},
        {"target": SM80},
        {"dtype": torch.float32},
        {"offset": 1},
    ],
    ids=str,
)
def test_whatever_changes_the_binary_changes_the_key(backend: FakeBackend, other: dict[str, Any]) -> None:
    def launch(
        args: tuple[Any, ...] = (16, 2.0), dtype: torch.dtype = torch.float16, offset: int = 0, **words: Any
    ) -> Specialized:
        return bind(backend, scale_kernel, x_of(dtype)[offset:], x_of(), *args, **{"BLOCK": 64, **words})

    assert launch().key() == launch().key()
    assert launch(**other).key() != launch().key()


def test_another_kernel_has_another_key(backend: FakeBackend) -> None:
    @triton.jit
    def other(x_ptr, n):
        pass

    assert bind(backend, general_kernel, x_of(), 3).key() != bind(backend, other, x_of(), 3).key()


@triton.jit
def applying(x_ptr, F: tl.constexpr):
    pass


def adding(number: int) -> Any:
    N = tl.constexpr(number)

    @triton.jit
    def add(x):
        return x + N

    return add


@pytest.mark.parametrize("given", [lambda f: f, lambda f: (1, f)], ids=["itself", "in a tuple"])
def test_functions_of_one_name_are_told_apart(backend: FakeBackend, given: Any) -> None:
    one, two = adding(1), adding(2)
    keys = [bind(backend, applying, x_of(), F=given(function)).key() for function in (one, two, one)]
    assert keys[0] != keys[1]
    assert keys[0] == keys[2]


def test_options_are_the_backends_own(backend: FakeBackend) -> None:
    launch = bind(backend, scale_kernel, x_of(), x_of(), 64, 2.0, BLOCK=64, num_warps=8, num_stages=2, maxnreg=128)
    assert (launch.options.num_warps, launch.options.num_stages, launch.options.maxnreg) == (8, 2, 128)
    amd = bind(backend, scale_kernel, x_of(), x_of(), 64, 2.0, target=GFX942, BLOCK=64, waves_per_eu=2)
    assert (amd.options.warp_size, amd.options.waves_per_eu) == (64, 2)


def test_options_of_another_backend_are_unknown(backend: FakeBackend) -> None:
    with pytest.raises(ConfigError, match=r"scale_kernel .*no parameter waves_per_eu"):
        bind(backend, scale_kernel, x_of(), x_of(), 64, 2.0, BLOCK=64, waves_per_eu=2)


def test_options_that_a_target_refuses(backend: FakeBackend) -> None:
    with pytest.raises(CompileError, match=r"scale_kernel for cuda:80: num_ctas"):
        bind(backend, scale_kernel, x_of(), x_of(), 64, 2.0, target=SM80, BLOCK=64, num_ctas=2)
    assert bind(backend, scale_kernel, x_of(), x_of(), 64, 2.0, BLOCK=64, num_ctas=2).options.num_ctas == 2


def test_wrong_calls_name_the_kernel(backend: FakeBackend) -> None:
    for args in [(), (x_of(),) * 9]:
        with pytest.raises(ConfigError, match=r"scale_kernel \(.*fake_runs\.py\) can't be called like this"):
            bind(backend, scale_kernel, *args, BLOCK=64)


def test_a_compiled_kernel_is_launched_as_its_function_is() -> None:
    """With the launch options that it was compiled with."""
    called: list[Any] = []
    jit = SimpleNamespace(params=(), run=lambda *args, **words: called.append((args, words)))
    metadata = SimpleNamespace(num_warps=8, num_stages=2, num_ctas=None)
    launch = as_launch(SimpleNamespace(src=SimpleNamespace(fn=jit), metadata=metadata), [4, 1])
    assert launch is not None
    launch(1, 2, stream=5)
    assert called == [((1, 2), {"grid": (4, 1), "warmup": False, "num_warps": 8, "num_stages": 2})]


@pytest.mark.parametrize("compiled", [object(), SimpleNamespace(src=None), SimpleNamespace(src=SimpleNamespace(fn=1))])
def test_a_kernel_that_was_compiled_from_ir_has_no_function(compiled: Any) -> None:
    assert as_launch(compiled, (1,)) is None


META = {"swizzle": 3, "elem_size": 2, "elem_type": 6, "block_size": [64, 32], "fp4_padded": False}
DESCRIPTOR: Any = SimpleNamespace(shape=(8, 16), strides=(16, 1), base="base", padding="nan", round_f32_to_tf32=True)


def test_a_descriptor_is_a_map_its_sizes_and_its_strides() -> None:
    flat = specialize._descriptor("d", "tensordesc<fp16[64, 32]>", DESCRIPTOR, META)
    (tensor_map, base), *rest = flat
    assert (tensor_map.name, tensor_map.type, base) == ("d.map", "nvTmaDesc", "base")
    assert tensor_map.tensor_map == TensorMap(
        swizzle=3, elem_size=2, elem_type=6, block=(64, 32), shape=(8, 16),
        strides=(16, 1), fp4_padded=False, nan_padding=True, tf32=True,
    )  # fmt: skip
    assert [(p.name, p.type, p.value, tensor) for p, tensor in rest] == [
        ("d.shape[0]", "i32", 8, None), ("d.shape[1]", "i32", 16, None), ("d.strides[0]", "i64", 16, None),
        ("d.strides[1]", "i64", 1, None),
    ]  # fmt: skip


def test_without_tma_it_is_a_pointer_with_its_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_decomposed_flags", lambda: 2)
    plain: Any = SimpleNamespace(shape=(8,), strides=(1,), base="base")
    for value, flag in ((DESCRIPTOR, True), (plain, False)):
        (pointer, base), *rest = specialize._descriptor("d", "tensordesc<fp16[64]>", value, None)
        assert (pointer.name, pointer.type, base) == ("d.base", "*fp16", "base")
        own = (value.shape[0], value.strides[0])
        assert [(p.name, p.type, p.value) for p, _ in rest] == [
            ("d.shape[0]", "i64", own[0]), ("d.strides[0]", "i64", own[1]), ("d.nan_padding", "i1", flag),
            ("d.round_f32_to_tf32", "i1", flag), ("d.shape[0]", "i32", own[0]), ("d.strides[0]", "i64", own[1]),
        ]  # fmt: skip


def test_pairs_of_four_bits_count_twice_and_im2col_is_refused() -> None:
    found = specialize._tensor_map([3, 8, 16], [128, 16, 1], False, False, {**META, "fp4_padded": True})
    assert (found.shape, found.strides, found.fp4_padded, found.nan_padding, found.tf32) == (
        (3, 8, 32), (128, 16, 1), True, False, False,
    )  # fmt: skip
    with pytest.raises(CaptureError, match=r"^an im2col tensor descriptor can't be replayed yet$"):
        specialize._tensor_map([8], [1], False, False, {**META, "is_im2col": True})


@pytest.mark.parametrize(
    ("kind", "value", "scalar"),
    [("fp32", 1, 1.0), ("bf16", 0.5, 0.5), ("f64", float("inf"), "inf"), ("fp16", float("nan"), "nan"), ("i32", 7, 7),
     ("i1", True, True), ("u8", 3, 3)],
)  # fmt: skip
def test_scalars_of_a_launch(kind: str, value: Any, scalar: Any) -> None:
    found = specialize._scalar(kind, value)
    assert (found, type(found)) == (scalar, type(scalar))


class Saying(int):
    """A number whose conversions are another's."""

    def __int__(self) -> int:
        return 1000

    __index__ = __int__


class SayingFloat(float):
    def __float__(self) -> float:
        return 3.0


def test_a_number_is_what_it_holds_whatever_it_says() -> None:
    """Triton's launcher reads an object's own value."""
    assert specialize._scalar("i32", Saying(500)) == 500
    assert specialize._scalar("fp32", SayingFloat(2.0)) == 2.0
    assert specialize._scalar("fp32", SayingFloat("inf")) == "inf"
