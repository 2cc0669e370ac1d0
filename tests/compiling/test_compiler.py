"""What is compiled here is what Triton's own path compiles, for any target, and each thing once."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import os
import runpy
import warnings
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gluon_kernels
import pytest
import torch
import triton
import triton.language as tl
from fake_runs import COMPILER, N, bind, increment_kernel, scale, scale_kernel, sum_kernel
from hypothesis import given
from hypothesis import strategies as st
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

import kerntune.compiling.compiler
from kerntune.base.device import Target, typical_device
from kerntune.base.recording import Scratch
from kerntune.capture import Capture
from kerntune.compiling.binary.identity import bare_text, first_stage_of, identity_of, strip_locations, text_identity
from kerntune.compiling.compiler import Compiled, Compiler, _option_values, arch_of, code_fields, describe, launch_needs
from kerntune.compiling.farm import Farm
from kerntune.errors import CompileError, TrialError
from kerntune.gpu.fake_cuda.driver import DeviceNumbers, StandInDriver
from kerntune.gpu.scripted import FakeBackend
from kerntune.kernels.compat import launch_environment, triton_compiler

from . import kernels
from .test_triton_cache import plain

ORIGINAL_RUN = JITFunction.run
"""Triton's own, from before any stand-in."""

SM90, SM80, GFX942 = Target.parse("cuda:90"), Target.parse("cuda:80"), Target.parse("hip:gfx942")


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, stride, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + column, mask=column < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * stride + column, e / tl.sum(e, 0), mask=column < columns)


@triton.jit
def asserting_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK % 48 == 0, "BLOCK must be a multiple of 48")
    tl.store(x_ptr, BLOCK)


def x_of(n: int = N) -> torch.Tensor:
    return torch.randn(n, device="cuda")


def tritons_own(backend: FakeBackend, kernel: Any, *args: Any, target: Target = SM90, **kwargs: Any) -> Any:
    """What ``JITFunction.run(warmup=True)`` compiles for a target, the driver answering for it."""
    driver = triton.runtime.driver
    before, driver._active = driver._active, StandInDriver(DeviceNumbers((typical_device(target),)))
    triton.knobs.compilation.always_compile = True  # else it takes from its cache what we have put there
    kernel.device_caches.clear()
    try:
        with backend.tensors.specializing():
            return ORIGINAL_RUN(kernel, *args, grid=(1,), warmup=True, **kwargs)
    finally:
        driver._active = before
        kernel.device_caches.clear()


def cases() -> dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    x = x_of()
    return {
        "scale": (scale_kernel, (x, x, N, 2.0), {"BLOCK": 64}),
        "odd size, other warps": (scale_kernel, (x[1:], x, 1001, 2), {"BLOCK": 64, "num_warps": 2}),
        "in place": (increment_kernel, (x, 1), {"BLOCK": 64, "num_stages": 2}),
        "atomics": (sum_kernel, (x, x, N), {"BLOCK": 128, "maxnreg": 64}),
        "softmax": (softmax_kernel, (x, x, 100, 1), {"BLOCK": 128}),
    }


@pytest.mark.parametrize("target", [SM90, SM80], ids=str)
@pytest.mark.parametrize("case", ["scale", "odd size, other warps", "in place", "atomics", "softmax"])
def test_code_is_tritons_own(backend: FakeBackend, case: str, target: Target) -> None:
    kernel, args, words = cases()[case]
    ours = COMPILER.compile(bind(backend, kernel, *args, target=target, **words))
    theirs = tritons_own(backend, kernel, *args, target=target, **words)
    assert ours.asm == theirs.asm["ptx"]
    assert ours.data == theirs.asm["cubin"]
    assert ours.binary.symbol == theirs.metadata.name
    assert (ours.binary.num_warps, ours.binary.shared) == (theirs.metadata.num_warps, theirs.metadata.shared)


def test_amd_code_is_tritons_own(backend: FakeBackend) -> None:
    kernel, args, words = cases()["scale"]
    ours = COMPILER.compile(bind(backend, kernel, *args, target=GFX942, **words))
    theirs = tritons_own(backend, kernel, *args, target=GFX942, **words)
    assert ours.asm == theirs.asm["amdgcn"]
    assert ours.data == theirs.asm["hsaco"]
    assert (ours.binary.kind, ours.binary.arch, ours.binary.warp_size) == ("hsaco", "gfx942", 64)


@pytest.mark.parametrize("target", [SM90, GFX942], ids=str)
def test_gluon_code_is_tritons_own(backend: FakeBackend, target: Target) -> None:
    """From the module before Gluon's passes, which Triton's own way hands on in memory."""
    x, lanes = x_of(), target.warp_size
    args, words = (x, x, N), {"factor": 2.0, "BLOCK": 512, "WIDTH": 4, "LANES": lanes}
    ours = COMPILER.compile(bind(backend, gluon_kernels.scale_kernel, *args, target=target, **words))
    theirs = tritons_own(backend, gluon_kernels.scale_kernel, *args, target=target, **words)
    assert ours.data == theirs.asm["cubin" if target is SM90 else "hsaco"]
    assert first_stage_of(ours.ttir) == "glir"
    assert ours.ttir == strip_locations(theirs.asm["source"])
    assert [stage for stage in ours.stages if stage != "glir"] == [
        "ttgir",
        "llir",
        "ptx" if target is SM90 else "amdgcn",
    ]
    assert (ours.access.reads, ours.access.writes, ours.access.unknown) == ({0}, {1}, ())


def test_a_gluon_kernel_of_tritons_cache_has_the_same_facts(backend: FakeBackend) -> None:
    """Before Triton 3.9 its first stage is there as the source alone."""
    x = x_of()
    launch = bind(backend, gluon_kernels.scale_kernel, x, x, N, factor=3.0, BLOCK=256, WIDTH=2, LANES=32)
    ours, again = COMPILER.compile(launch), Compiler().compile(launch)
    assert again.seconds is None, "Triton's cache had it"
    assert (again.ttir, again.asm, again.access) == (ours.ttir, ours.asm, ours.access)


@triton.jit
def specialized_kernel(a_ptr, b_ptr, c_ptr, k_size, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a = a_ptr + i[:, None] * k_size + i[None, :]
    b = b_ptr + i[:, None] * SIZE + i[None, :]
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for _ in tl.range(0, k_size, SIZE, warp_specialize=True):
        total = tl.dot(tl.load(a), tl.load(b), total)
        a += SIZE
        b += SIZE * SIZE
    tl.store(c_ptr + i[:, None] * SIZE + i[None, :], total)


def test_the_pass_that_can_not_specialize_warps_is_named(backend: FakeBackend) -> None:
    x = torch.empty(128 * 512, device="cuda", dtype=torch.float16)
    with pytest.raises(CompileError, match=r"kernel specialized_kernel .*for cuda:90: .*failed\n") as caught:
        COMPILER.compile(bind(backend, specialized_kernel, x, x, x.float(), 512, SIZE=128))
    assert str(caught.value).endswith("\n  failing pass: NVGPUWarpSpecialization")


def test_a_binary_says_what_it_is(backend: FakeBackend) -> None:
    compiled = COMPILER.compile(bind(backend, softmax_kernel, x_of(), x_of(), 100, 128, BLOCK=128))
    binary = compiled.binary
    assert (binary.kind, binary.symbol, binary.num_warps, binary.warp_size) == ("cubin", "softmax_kernel", 4, 32)
    assert binary.arch in ("sm_90", "sm_90a")
    assert binary.sha256 == hashlib.sha256(compiled.data).hexdigest()
    assert binary.ttir_sha256 == hashlib.sha256(compiled.ttir.encode()).hexdigest()
    assert binary.constexprs == {"BLOCK": "128"}
    assert binary.shared > 0
    assert binary.triton == triton.__version__
    assert binary.assembler
    assert binary.options["num_stages"] == 3
    assert (set(compiled.access.reads), set(compiled.access.writes)) == ({0}, {1})


def test_stored_code_holds_no_path(backend: FakeBackend) -> None:
    compiled = COMPILER.compile(bind(backend, scale_kernel, x_of(), x_of(), N, 2.0, BLOCK=64))
    assert "loc(" not in compiled.ttir
    assert "fake_runs" not in compiled.ttir
    assert not any("/" in str(v) for v in compiled.binary.options.values())


def test_stored_ttir_parses_and_compiles_to_the_same_code(backend: FakeBackend, tmp_path: Any) -> None:
    compiled = COMPILER.compile(bind(backend, scale_kernel, x_of(), x_of(), N, 2.0, BLOCK=64))
    path = tmp_path / "scale.ttir"
    path.write_text(compiled.ttir)
    again = triton.compile(str(path), target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    strip = [line for line in again.asm["ptx"].splitlines() if not line.lstrip().startswith((".loc", ".file", "//"))]
    assert "st.global" in "\n".join(strip)
    assert again.metadata.name == "scale_kernel"


MOVING = """
import triton
import triton.language as tl

@triton.jit
def moving_kernel(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i) * 3)
"""


def moving_kernel(path: Path, text: str) -> Any:
    path.parent.mkdir()
    path.write_text(text)
    return runpy.run_path(str(path))["moving_kernel"]


@pytest.mark.slow
def test_a_moved_kernel_is_the_same_code_and_without_line_info_the_same_binary(
    backend: FakeBackend, tmp_path: Path
) -> None:
    here = moving_kernel(tmp_path / "here" / "kernels.py", MOVING)
    there = moving_kernel(tmp_path / "there" / "moved.py", "# moved\n" * 30 + MOVING)
    launches = [bind(backend, kernel, x_of(), BLOCK=64) for kernel in (here, there)]
    with_lines = [Compiler().compile(x) for x in launches]
    with triton_compiler.without_line_info():
        without = [Compiler().compile(x) for x in launches]
    assert with_lines[0].data != with_lines[1].data
    assert without[0].data == without[1].data
    assert len({c.binary.code for c in (*with_lines, *without)}) == 1
    assert len({c.binary.text for c in (*with_lines, *without)}) == 1
    assert with_lines[0].ttir == with_lines[1].ttir
    assert without[0].ttir == without[1].ttir


@pytest.mark.parametrize("said", [None, "0", "1"])
def test_without_line_info_leaves_no_setting_behind(monkeypatch: pytest.MonkeyPatch, said: str | None) -> None:
    """Neither in Triton nor in the environment, where Triton writes what is set for subprocesses."""
    name = "TRITON_DISABLE_LINE_INFO"
    monkeypatch.setenv(name, said) if said else monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(vars(triton.knobs.compilation), "disable_line_info", raising=False)
    before = dict(vars(triton.knobs.compilation))
    with pytest.raises(RuntimeError), triton_compiler.without_line_info():  # noqa: PT012 - both halves matter
        assert triton.knobs.compilation.disable_line_info is True
        raise RuntimeError
    assert vars(triton.knobs.compilation) == before
    assert os.environ.get(name) == said
    assert triton.knobs.compilation.disable_line_info is (said == "1")


# the compiler compiles once


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of kernels as they come out of the compiler, here or in the farm."""
    calls: list[str] = []
    original = kerntune.compiling.compiler.describe

    def describe(launch: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(launch.name)
        return original(launch, *args, **kwargs)

    monkeypatch.setattr(kerntune.compiling.compiler, "describe", describe)
    return calls


@pytest.mark.slow
def test_each_specialization_is_compiled_once(backend: FakeBackend, counted: list[str]) -> None:
    compiler = Compiler()
    first = [compiler.compile(bind(backend, scale_kernel, x_of(), x_of(), n, 2.0, BLOCK=64)) for n in (16, 32, 4096)]
    assert first[0] is first[1] is first[2]
    assert len(counted) == 1
    compiler.compile(bind(backend, scale_kernel, x_of(), x_of(), 17, 2.0, BLOCK=64))
    assert len(counted) == 2


@pytest.mark.slow
def test_no_argument_is_kept(backend: FakeBackend) -> None:
    compiler, x = Compiler(), x_of()
    compiler.compile(bind(backend, scale_kernel, x, x_of(), 4096, 2.0, BLOCK=64))
    seen = weakref.ref(x)
    del x
    gc.collect()
    assert seen() is None


def test_failures_are_remembered(backend: FakeBackend) -> None:
    compiler, errors = Compiler(), []
    for _ in range(2):
        with pytest.raises(CompileError) as caught:
            compiler.compile(bind(backend, asserting_kernel, x_of(), BLOCK=64))
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1])
    assert errors[0] is not errors[1]  # a raised error holds its frames, and these the user's tensors
    assert isinstance(errors[0], TrialError)
    text = str(errors[0])
    assert "asserting_kernel" in text
    assert "test_compiler.py" in text
    assert "cuda:90" in text
    assert "BLOCK must be a multiple of 48" in text


def test_compiling_ahead_keeps_failures_for_later(backend: FakeBackend, counted: list[str]) -> None:
    compiler = Compiler()
    good = [bind(backend, scale_kernel, x_of(), x_of(), N, 2.0, BLOCK=b) for b in (32, 64, 64)]
    bad = bind(backend, asserting_kernel, x_of(), BLOCK=64)
    compiler.compile_all([*good, bad])
    assert len(counted) == 2, "the bad one fails in the front end, before any compilation"
    assert compiler.compile(good[2]).binary.constexprs == {"BLOCK": "64"}
    with pytest.raises(CompileError):
        compiler.compile(bad)
    assert len(counted) == 2


def test_several_targets_at_once(backend: FakeBackend) -> None:
    compiler = Compiler()
    launches = [bind(backend, scale_kernel, x_of(), x_of(), N, 2.0, BLOCK=64, target=t) for t in (SM80, SM90, GFX942)]
    compiler.compile_all(launches)
    assert [compiler.compile(x).binary.arch.rstrip("a") for x in launches] == ["sm_80", "sm_90", "gfx942"]


def test_captures_compile_what_they_launch_once(backend: FakeBackend, counted: list[str]) -> None:
    compiler = Compiler()
    for _ in range(2):
        with Capture(backend, compiler).active():
            scale(scale_kernel, BLOCK=64)
    assert counted == ["scale_kernel"]


# locations


@pytest.mark.parametrize(
    ("line", "stripped"),
    [
        ("%0 = tt.get_program_id x : i32 loc(#loc2)", "%0 = tt.get_program_id x : i32"),
        ('tt.func @k(%a: i32 loc("a"(#loc)), %b: i32 loc("b"(#loc))) {', "tt.func @k(%a: i32, %b: i32) {"),
        ('} loc(callsite("f(x)\\")"("a.py":1:2) at #loc3))', "}"),
        ("%1 = arith.addi %a, %alloc(%b) : i32", "%1 = arith.addi %a, %alloc(%b) : i32"),
    ],
)
def test_locations_are_taken_out(line: str, stripped: str) -> None:
    assert strip_locations(line + "\n#loc = loc(unknown)\n") == stripped + "\n"


words = st.sampled_from(["%0 = arith.addi", "(", ")", '"', "location", "tt.func", ":", "i32", "#x", "alloc(", "}"])


@given(st.lists(words, max_size=12).map(" ".join))
def test_text_without_locations_is_left_alone(line: str) -> None:
    assert strip_locations(line) == line + "\n"


def test_no_warning_is_left_behind(backend: FakeBackend) -> None:
    triton_compiler.take_announcements()  # Triton's own, once a process
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Compiler().compile(bind(backend, scale_kernel, x_of(), x_of(), N, 3.0, BLOCK=64))


# parts of a description


def test_code_is_told_by_its_assembly_and_what_the_assembler_is_told(backend: FakeBackend) -> None:
    compiled = COMPILER.compile(bind(backend, scale_kernel, x_of(), x_of(), N, 2.0, BLOCK=64))
    bare = bare_text(compiled.asm, "ptx")
    words = {"kind": "ptx", "options": compiled.binary.options, "assembler": compiled.binary.assembler}
    assert compiled.binary.code == identity_of(bare, **words)
    seen = next(iter(launch_environment.ASSEMBLER_ONLY))
    fields = code_fields(
        Target.parse("cuda:90"), compiled.asm, bare, compiled.data, compiled.metadata, compiled.binary.options,
        {seen: "1", "OTHER": "2"},
    )  # fmt: skip
    assert fields["code"] == identity_of(bare, **words, settings={seen: "1"})
    assert fields["settings"] == {seen: "1", "OTHER": "2"}
    assert fields["text"] == text_identity(compiled.data)
    assert fields["sha256"] == hashlib.sha256(compiled.data).hexdigest()


def test_what_a_launch_needs_is_read_off_the_metadata() -> None:
    least = {"num_warps": 4, "shared": 512}
    assert launch_needs(least) == {
        "num_warps": 4, "num_ctas": 1, "shared": 512, "tmem": 0, "cooperative": False, "pdl": False,
        "global_scratch": Scratch(0, 1), "profile_scratch": Scratch(0, 1),
    }  # fmt: skip
    more = {
        "num_ctas": 2, "tmem_size": 64, "launch_cooperative_grid": True, "launch_pdl": True, "global_scratch_size": 128,
        "global_scratch_align": 16, "profile_scratch_size": 8, "profile_scratch_align": 4,
    }  # fmt: skip
    assert launch_needs({**least, **more}) == {
        "num_warps": 4, "num_ctas": 2, "shared": 512, "tmem": 64, "cooperative": True, "pdl": True,
        "global_scratch": Scratch(128, 16), "profile_scratch": Scratch(8, 4),
    }  # fmt: skip


def test_options_are_plain_and_without_paths() -> None:
    options = SimpleNamespace(
        num_warps=4, fast=None, deps=("a", 1), extern_libs=(("x", "/lib"),), backend_name="cuda", arch=Path("sm"), f=0.5
    )
    assert list(_option_values(vars(options)).items()) == [
        ("arch", "sm"), ("deps", ["a", "1"]), ("f", 0.5), ("fast", None), ("num_warps", 4),
    ]  # fmt: skip


def test_an_architecture_is_the_text_s_or_else_the_target_s() -> None:
    target = Target.parse("cuda:90")
    assert arch_of(target, "//\n.version 8.5\n.target sm_90a, debug\n") == "sm_90a"
    assert arch_of(target, "nothing") == target.arch


def test_stages_that_are_gone_are_none(backend: FakeBackend, tmp_path: Path) -> None:
    compiled = COMPILER.compile(bind(backend, scale_kernel, x_of(), x_of(), N, 2.0, BLOCK=64))
    assert list(compiled.stages) == ["ttir", "ttgir", "llir", "ptx"]
    assert compiled.seconds is None or compiled.seconds > 0
    gone = dataclasses.replace(compiled, files=lambda: {"k.ttir": str(tmp_path / "gone")})
    assert gone.stages == {}
    assert dataclasses.replace(compiled, files=dict).files() == {}


def test_what_is_missing_is_counted_once_a_key(backend: FakeBackend) -> None:
    compiler = Compiler()
    launches = [bind(backend, scale_kernel, x_of(), x_of(), N, 2.0, BLOCK=size) for size in (64, 64, 128)]
    assert compiler.missing(launches) == 2
    compiler._done[launches[0].key()] = CompileError("x")
    assert compiler.missing(launches) == 1
    with pytest.raises(CompileError, match="x") as first:
        compiler.compile(launches[1])
    with pytest.raises(CompileError, match="x") as second:
        compiler.compile(launches[0])
    assert first.value is not second.value


def test_where_its_files_are_is_no_part_of_what_a_kernel_is() -> None:
    """Neither of how it compares nor of how it is shown."""
    nothing: Any = None
    one = Compiled(nothing, b"code", "", "", nothing, {}, {})
    other = dataclasses.replace(one, files=lambda: {"k.ttir": "/k.ttir"})
    assert one == other
    assert repr(one) == repr(other)


# the farm and this process compile the same, bit by bit


@pytest.fixture(scope="module")
def compiler():
    one = Compiler(Farm(workers=2))
    yield one
    one.close()


@pytest.mark.slow
@pytest.mark.parametrize("target", kernels.TARGETS, ids=str)
def test_code_and_metadata_are_those_of_a_plain_compilation(compiler, monkeypatch, tmp_path, target):
    launches = kernels.gallery(target)
    from_farm = {launch.key(): found for launch, found in compiler.compile_stream(launches)}
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "plain"))
    assert len(from_farm) == len(launches) >= 15
    for launch in launches:
        here, there = describe(launch, plain(launch)), from_farm[launch.key()]
        assert here.asm == there.asm, launch.name
        assert here.data == there.data, launch.name
        assert here == dataclasses.replace(there, seconds=None), launch.name
        assert here.stages == there.stages, launch.name
        assert here.stages, launch.name
