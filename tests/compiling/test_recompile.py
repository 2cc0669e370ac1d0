"""Stored TTIR compiled today: the same machine code by the same compiler, and an error that names what is wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from fake_runs import active, recorded, scale, scale_kernel
from gluon_kernels import partitions, wgmma
from gluon_kernels import scale as scale_in_gluon

from kerntune.base.device import Target
from kerntune.base.recording import Recording, same_work
from kerntune.capture.recorder import Recorded
from kerntune.compiling.binary.identity import first_stage_of
from kerntune.compiling.compiler import _stored_options, binary_from, recompiled, stages_from, under_todays_flags
from kerntune.compiling.farm import Farm, NotStarted
from kerntune.compiling.frontend import Shape
from kerntune.compiling.protocol import CompileFailed
from kerntune.compiling.worker_process import Died, JobOutcome
from kerntune.errors import ReplayError
from kerntune.kernels.compat import versions


@pytest.fixture(scope="module")
def farm() -> Iterator[Farm]:
    found = Farm(workers=1)
    yield found
    found.close()


@pytest.fixture(scope="module")
def stored() -> Recorded:
    with active() as backend:
        return recorded(backend, lambda: scale(scale_kernel, BLOCK=64))


def test_the_same_compiler_makes_the_same_code(farm: Farm, stored: Recorded) -> None:
    again, data = recompiled(farm, stored.recording, stored.artifacts)
    old, new = stored.recording.binaries[0], again.binaries[0]
    assert (new.code, new.text, new.shared, new.num_warps) == (old.code, old.text, old.shared, old.num_warps)
    assert (new.arch, new.symbol, new.constexprs) == (old.arch, old.symbol, old.constexprs)
    assert data[new.sha256][:4] == b"\x7fELF"
    assert again.launches == stored.recording.launches


def test_the_options_of_a_config_make_the_whole_binary(farm: Farm, stored: Recorded) -> None:
    old = stored.recording.binaries[0]
    ttir = stored.artifacts[old.ttir_sha256]
    new, stages = binary_from(farm, stored.recording.target, ttir, {"num_warps": old.num_warps, "BLOCK": 64}, "k")
    assert msgspec.structs.replace(new, constexprs=old.constexprs, sha256=old.sha256) == old, "but for lines of source"
    assert hashlib.sha256(stages["cubin"]).hexdigest() == new.sha256
    other, _ = binary_from(farm, stored.recording.target, ttir, {"num_warps": 2 * old.num_warps}, "k")
    assert other.num_warps == 2 * old.num_warps
    assert other.code != old.code


def test_what_another_version_wrote_is_described_as_todays(farm: Farm, stored: Recorded) -> None:
    old = stored.recording.binaries[0]
    then = msgspec.structs.replace(
        old, triton="3.0.0", assembler="12.0", unreplayable="needs 3.0", options={**old.options, "gone": [1, 2]}
    )
    again, _ = recompiled(farm, msgspec.structs.replace(stored.recording, binaries=(then,)), stored.artifacts)
    (new,) = again.binaries
    assert (new.triton, new.assembler, new.unreplayable) == (old.triton, old.assembler, "")
    assert new.text == old.text


def test_flags_of_the_environment_are_todays(farm: Farm, stored: Recorded) -> None:
    """Code that was compiled under other flags than today's is recompiled under today's: it is then today's code."""
    (now,) = stored.recording.binaries
    then = msgspec.structs.replace(now, code="old", options={**now.options, "ptx_options": "--opt-level 0"})
    before = msgspec.structs.replace(stored.recording, binaries=(then,))
    under = under_todays_flags(before, stored.recording)
    assert under.binaries[0].options == now.options
    again, _ = recompiled(farm, under, stored.artifacts)
    assert same_work(again, stored.recording)

    with pytest.raises(ReplayError, match=r"scale_kernel: its stored code isn't compiled: ptx_options \(arguments"):
        recompiled(farm, before, stored.artifacts)
    kept, _ = recompiled(farm, before, stored.artifacts, before)
    assert kept.binaries[0].text != now.text, "what today's own launch says is passed on"


def test_flags_that_a_caller_gives_stay(stored: Recorded) -> None:
    """Options of today's launch aren't the environment's: the baseline keeps those of its own launch."""
    (old,) = stored.recording.binaries
    said = msgspec.structs.replace(
        old, options={**old.options, "enable_fp_fusion": not old.options["enable_fp_fusion"]}
    )
    now = msgspec.structs.replace(stored.recording, binaries=(said,))
    assert under_todays_flags(stored.recording, now) == stored.recording


def test_options_as_a_file_holds_them_are_compiled_under(farm: Farm, stored: Recorded) -> None:
    """JSON has lists for tuples, and the recorded architecture."""
    (binary,) = msgspec.json.decode(msgspec.json.encode(stored.recording), type=Recording).binaries
    ttir = stored.artifacts[binary.ttir_sha256]
    options = {**binary.options, "num_warps": binary.num_warps}
    made = stages_from(farm, stored.recording.target, ttir, options, binary.symbol)
    assert {"ttgir", "llir", "ptx"} <= set(made)


def test_a_missing_ttir_is_named(farm: Farm, stored: Recorded) -> None:
    with pytest.raises(ReplayError, match=r"scale_kernel: its TTIR [0-9a-f]{12} is not stored"):
        recompiled(farm, stored.recording, {})


def test_a_refused_ttir_is_an_error_and_not_a_crash(farm: Farm, stored: Recorded) -> None:
    artifacts = dict.fromkeys(stored.artifacts, b"module { tt.func public @scale_kernel(%x: !tt.nothing) }")
    with pytest.raises(ReplayError, match=r"scale_kernel: Triton .* refuses its TTIR"):
        recompiled(farm, stored.recording, artifacts)


def test_why_a_ttir_was_not_compiled_is_told(stored: Recorded) -> None:
    """No process, a refusal and a crash differ."""

    def told(outcome: Any) -> str:
        asked: list[Any] = []
        future: Future[Any] = Future()
        future.set_result(outcome)
        one: Any = SimpleNamespace(submit=lambda job, shape: asked.append((job, shape)) or future)
        with pytest.raises(ReplayError) as found:
            stages_from(one, stored.recording.target, b"module {}", {}, "k")
        ((job, shape),) = asked
        assert (job.ir, job.ext, job.language) == ("module {}", "ttir", "TRITON")
        assert shape == Shape(9, 1, 1)
        return str(found.value)

    version = versions.triton_version()
    assert told(NotStarted("no process")) == "kernel k: its TTIR can't be compiled: no process"
    refused = f"kernel k: Triton {version} refuses its TTIR: "
    assert told(JobOutcome(CompileFailed("its words"), "")) == f"{refused}its words"
    assert told(JobOutcome(Died("SIGSEGV"), "")) == f"{refused}the compiler died: SIGSEGV"
    assert told(JobOutcome(CompileFailed("failed"), "x.py:1: error: it says so\nnoise")).endswith(
        "failed\n  x.py:1: error: it says so"
    )


def test_a_binary_is_compiled_for_the_warps_of_its_options(stored: Recorded) -> None:
    (binary,) = stored.recording.binaries
    options = _stored_options(msgspec.structs.replace(binary, options={"num_warps": 4}, num_warps=5, num_ctas=2))
    assert options == {"num_warps": 4, "num_ctas": 2}, "5 are those of all partitions"


@pytest.mark.parametrize(
    "call", [scale_in_gluon, pytest.param(wgmma, marks=pytest.mark.slow), partitions], ids=lambda call: call.__name__
)
def test_a_gluon_kernel_is_compiled_from_its_own_first_stage(farm: Farm, call: Callable[[], None]) -> None:
    with active() as backend:
        stored = recorded(backend, call)
    again, _ = recompiled(farm, stored.recording, stored.artifacts)
    old, new = stored.recording.binaries[0], again.binaries[0]
    assert (new.code, new.text, new.shared, new.num_warps) == (old.code, old.text, old.shared, old.num_warps)
    text = stored.artifacts[old.ttir_sha256].decode()
    assert first_stage_of(text) == "glir"
    stages = stages_from(farm, stored.recording.target, text.encode(), {"num_warps": 4}, old.symbol)
    assert list(stages) == ["ttgir", "llir", "ptx", "cubin"]


@pytest.mark.slow
def test_a_gluon_kernel_that_today_refuses_is_named_with_its_stage(farm: Farm) -> None:
    with active() as backend:
        stored = recorded(backend, wgmma)
    (binary,) = stored.recording.binaries
    older = stored.artifacts[binary.ttir_sha256].decode().replace("versionMajor = 3", "versionMajor = 2")
    with pytest.raises(ReplayError, match=r"kernel wgmma_kernel: Triton \S+ refuses its GLIR: "):
        stages_from(farm, stored.recording.target, older.encode(), {}, "wgmma_kernel")


def test_flags_of_launches_of_other_kernels_stay(stored: Recorded) -> None:
    (old,) = stored.recording.binaries
    said = msgspec.structs.replace(old, options={**old.options, "ptx_options": "--opt-level 0"})
    before = msgspec.structs.replace(stored.recording, binaries=(said,))
    other = msgspec.structs.replace(stored.recording.launches[0], kernel="other")
    now = msgspec.structs.replace(stored.recording, launches=(other,))
    assert under_todays_flags(before, now) == before
    assert under_todays_flags(before, stored.recording) == stored.recording


def test_a_ttir_that_is_no_text_is_an_error(farm: Farm, stored: Recorded) -> None:
    artifacts = dict.fromkeys(stored.artifacts, b"module { \xff }")
    with pytest.raises(ReplayError, match=r"scale_kernel: its TTIR is no text in UTF-8 .* at byte 9"):
        recompiled(farm, stored.recording, artifacts)
    with pytest.raises(ReplayError, match="kernel k: its TTIR is no text"):
        stages_from(farm, stored.recording.target, b"\xff", {}, "k")


def test_a_ttir_that_may_read_files_is_not_compiled(farm: Farm) -> None:
    """LLVM's assembler, AMD's, takes ``.incbin`` from inline assembly."""
    ttir = (
        b'module { tt.func public @k() { "tt.elementwise_inline_asm"() {asm_string = ".incbin \\22/etc/passwd\\22"} } }'
    )
    with pytest.raises(ReplayError, match="kernel k: its TTIR has assembler directives"):
        stages_from(farm, Target.parse("hip:gfx942"), ttir, {}, "k")


@pytest.mark.parametrize("options", [{"num_warps": 64, "num_ctas": 16}, {"clc": True}], ids=str)
def test_options_that_do_not_fit_the_target_are_an_error(farm: Farm, options: dict[str, Any]) -> None:
    with pytest.raises(ReplayError, match="kernel k: "):
        stages_from(farm, Target.parse("cuda:80"), b"module {}", options, "k")
