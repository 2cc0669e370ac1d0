"""Which arguments a Gluon kernel reads and writes, from the TTGIR that each of its targets makes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import gluon_kernels as kernels
import pytest
import torch
from gluon_kernels import CASES, GluonCase, floats, gl, gluon, mbarrier, tiles, tma, tma_load
from triton.experimental.gluon.language.amd import cdna3
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from kerntune.base.device import Target
from kerntune.compiling.frontend import lower, request_of
from kerntune.gpu.fake_cuda.launches import run_first
from kerntune.kernels import access as operations
from kerntune.kernels import writes
from kerntune.kernels.access import Access
from kerntune.kernels.compat import triton_compiler
from kerntune.kernels.specialize import Specialized, specialize
from kerntune.kernels.writes import access_of

Lower = Callable[..., str]


@pytest.fixture
def ttgir(monkeypatch: pytest.MonkeyPatch) -> Lower:
    """``ttgir(call, target, **edit)``: that of the kernel that ``call`` launches, on tensors that nobody reads."""
    found: list[tuple[Any, Any, Any]] = []

    def run(jit: Any, /, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        found.append((jit, args, kwargs))

    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *a, **k: zeros(*a, **{**k, "device": "cpu"}))
    monkeypatch.setattr(JITFunction, "run", run)
    monkeypatch.setattr(Autotuner, "run", run_first)

    def lowered(call: Callable[..., None], where: str = "cuda:90", **edit: Any) -> str:
        call(**edit)
        jit, args, kwargs = found.pop()
        return ttgir_of(specialize(jit, args, kwargs, Target.parse(where)))

    return lowered


def ttgir_of(launch: Specialized) -> str:
    from triton._C.libtriton import ir

    request = request_of(launch)
    job = lower(request).job
    context = ir.context()
    ir.load_dialects(context)
    request.backend.load_dialects(context)
    module = writes.parse_module(job.ir, context)
    module.context = context
    stages: dict[str, Any] = {}
    request.backend.add_stages(stages, request.options, request.source.language)
    name, stage = triton_compiler.stages_after(stages, job.ext)[0]
    assert name == "ttgir"
    return str(stage(module, {}))


def access(text: str, where: str = "cuda:90") -> Access:
    return access_of(text, Target.parse(where))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_kernel_reads_and_writes_what_it_says(case: GluonCase, ttgir: Lower) -> None:
    for where in case.targets:
        found = access(ttgir(case.call, where, **case.needs(where)), where)
        assert (found.reads, found.writes, found.atomics, found.unknown) == (case.reads, case.writes, case.atomics, ())
        assert found.float_atomics is bool(case.atomics)


# what loaded values decide


@gluon.jit
def buffer_gather_kernel(x_ptr, y_ptr, BLOCK: gl.constexpr, READS: gl.constexpr, WRITES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [64], [gl.num_warps()], [0])
    i = gl.arange(0, BLOCK, layout=layout)
    at = cdna3.buffer_load(x_ptr, i)
    if READS:
        at = cdna3.buffer_load(x_ptr, at)
    cdna3.buffer_store(at.to(gl.float32), y_ptr, at if WRITES else i)


def buffer_gather(**edit: Any) -> None:
    words = {"READS": False, "WRITES": False, **edit}
    buffer_gather_kernel[(1,)](torch.zeros(1024, dtype=torch.int32), floats(1024), 1024, **words)


@gluon.jit
def shared_gather_kernel(x_ptr, y_ptr, BLOCK: gl.constexpr):
    """By way of shared memory."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    i = gl.arange(0, BLOCK, layout=layout)
    buffer = gl.allocate_shared_memory(gl.int32, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]), gl.load(x_ptr + i))
    gl.store(y_ptr + buffer.load(layout), 1.0)


def shared_gather() -> None:
    shared_gather_kernel[(1,)](torch.zeros(1024, dtype=torch.int32), floats(1024), 1024)


@pytest.mark.parametrize(
    ("call", "where", "edit", "decided"),
    [
        (buffer_gather, "hip:gfx942", {}, ()),
        (buffer_gather, "hip:gfx942", {"READS": True}, (writes.ADDRESSES,)),
        (buffer_gather, "hip:gfx942", {"WRITES": True}, (writes.ADDRESSES,)),
        (shared_gather, "cuda:90", {}, (writes.ADDRESSES,)),
        *((case.call, "cuda:90", case.needs("cuda:90"), ()) for case in CASES if "cuda:90" in case.targets),
    ],
)
def test_what_loaded_values_decide(
    ttgir: Lower, call: Callable[..., None], where: str, edit: dict[str, Any], decided: tuple[str, ...]
) -> None:
    assert writes.content_use(ttgir(call, where, **edit), Target.parse(where)) == decided


# what only some kernels do


@gluon.jit
def own_map_kernel(x_ptr, y_ptr, rows, columns, SIZE: gl.constexpr):
    """Descriptors that the kernel itself makes, in scratch memory."""
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([SIZE, SIZE], gl.float16)
    x = tma.make_tensor_descriptor(x_ptr, [rows, columns], [columns, 1], [SIZE, SIZE], layout)
    y = tma.make_tensor_descriptor(y_ptr, [rows, columns], [columns, 1], [SIZE, SIZE], layout)
    buffer = gl.allocate_shared_memory(gl.float16, [SIZE, SIZE], layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, SIZE * SIZE * 2)
    tma_load(x, [0, 0], bar, buffer)
    mbarrier.wait(bar, phase=0)
    kernels.tma_store(y, [0, 0], buffer)
    tma.store_wait(pendings=0)


def own_map() -> None:
    own_map_kernel[(1,)](floats(64, 64, dtype=torch.float16), floats(64, 64, dtype=torch.float16), 64, 64, 64)


@gluon.jit
def reduce_kernel(x_desc, SIZE: gl.constexpr):
    buffer = gl.allocate_shared_memory(x_desc.dtype, [SIZE, SIZE], x_desc.layout)
    tma.async_atomic_add(x_desc, [0, 0], buffer)
    tma.store_wait(pendings=0)


def reduce() -> None:
    reduce_kernel[(1,)](tiles(64, 64), 64)


@gluon.jit
def buffer_add_kernel(x_ptr, y_ptr, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [64], [gl.num_warps()], [0])
    i = gl.arange(0, BLOCK, layout=layout)
    cdna3.buffer_atomic_add(y_ptr, i, cdna3.buffer_load(x_ptr, i))


def buffer_add() -> None:
    buffer_add_kernel[(1,)](floats(1024), floats(1024), 1024)


@pytest.mark.parametrize(
    ("call", "where", "reads", "writes", "atomics"),
    [
        pytest.param(own_map, "cuda:90", {0}, {1}, (), id="maps that the kernel makes"),
        pytest.param(kernels.partitions, "cuda:90", {0, 2}, {1, 2}, {2}, id="partitions of warps"),
        pytest.param(buffer_add, "hip:gfx942", {0, 1}, {1}, {1}, id="atomic operations on AMD's buffers"),
        pytest.param(
            reduce, "cuda:90", {0}, {0}, {0}, id="reductions by TMA",
            marks=pytest.mark.skipif(not hasattr(tma, "async_atomic_add"), reason="later than this Triton"),
        ),
    ],
)  # fmt: skip
def test_memory_is_found_through(
    call: Callable[[], None], where: str, reads: set[int], writes: set[int], atomics: Any, ttgir: Lower
) -> None:
    found = access(ttgir(call, where), where)
    assert (found.reads, found.writes, found.atomics, found.unknown) == (reads, writes, frozenset(atomics), ())
    assert found.float_atomics is (call in (reduce, buffer_add))


@gluon.jit
def asm_kernel(x_ptr, y_ptr, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    i = gl.arange(0, BLOCK, layout=layout)
    x = gl.load(x_ptr + i)
    gl.inline_asm("st.global.f32 [$0], $1;", "l,f", [y_ptr + i, x])


@pytest.mark.skipif(not hasattr(gl, "inline_asm"), reason="later than this Triton")
def test_assembly_that_takes_an_address_may_write_everywhere(ttgir: Lower) -> None:
    found = access(ttgir(lambda: asm_kernel[(1,)](floats(128), floats(128), 128)))
    assert found.writes == {0, 1}
    assert "impure inline_asm" in found.unknown


# operations that a later Triton may have


@pytest.fixture
def unknown_operation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes an operation one that no table holds."""

    def forget(name: str) -> None:
        for table in ("READERS", "WRITERS", "PURE_READERS", "ON_CHIP", "ADDRESS_ONLY"):
            monkeypatch.setattr(operations, table, getattr(operations, table) - {name})
        writes._understood.cache_clear()

    yield forget
    writes._understood.cache_clear()


@pytest.mark.parametrize(
    ("name", "unknown", "beyond"),
    [
        ("ttng.async_tma_copy_local_to_global", "takes an address", None),
        ("ttng.async_tma_copy_global_to_local", "takes an address", None),
        ("ttng.init_barrier", None, "takes an integer that may be an address"),
    ],
)
def test_an_unknown_operation_counts_as_writing_what_it_takes_and_may_write_where_an_integer_says(
    name: str, unknown: str | None, beyond: str | None, ttgir: Lower, unknown_operation: Callable[[str], None]
) -> None:
    text = ttgir(kernels.tma_copy)
    unknown_operation(name)
    found = access(text)
    assert found.writes == {0, 1}
    assert unknown is None or found.unknown == (f"{name} {unknown}",)
    assert beyond is None or found.beyond == (f"{name} {beyond}",)


def test_a_map_in_a_parameters_memory_has_no_known_address(ttgir: Lower) -> None:
    """Another launch may have made it there."""
    text = ttgir(own_map)
    first = re.search(r"tt\.func public @\w+\((%[\w.]+): !tt\.ptr<f16>", text)
    handed = re.sub(r"= ttg\.global_scratch_alloc \{[^}]*\}", f"= tt.bitcast {first[1]} : !tt.ptr<f16> ->", text)
    found = access(handed.replace("-> : !tt", "-> !tt"))
    assert found.unknown == tuple(
        f"{name}: a tensor descriptor is taken from memory"
        for name in ("ttng.async_tma_copy_global_to_local", "ttng.async_tma_copy_local_to_global")
    )
    assert found.beyond, "it may be any memory"
