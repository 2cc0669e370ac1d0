"""Messages of the farm, its fork server and its workers survive the way; what settings they are started under."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.device import Target
from kerntune.base.frames import decode, encode
from kerntune.compiling import protocol
from kerntune.compiling.protocol import (
    READY,
    Answer,
    CompileFailed,
    CompilerEnvironment,
    Done,
    ForkRequest,
    Hello,
    Job,
    _matters,
    _set_by_hand,
    current_environment,
    facts_of,
)
from kerntune.errors import FrameError
from kerntune.kernels.access import Access

DESCRIPTORS = 4
EVERYTHING = Access.everything(1, ["unknown"], follows=False)


ANSWERS = st.one_of(
    st.builds(Hello, st.text(), st.text()),
    st.builds(CompileFailed, st.text(), st.booleans()),
    st.builds(
        Done,
        st.dictionaries(st.text(), st.binary()),
        st.binary(),
        st.lists(st.tuples(st.text(), st.integers(0, 2**40))),
        st.integers(0, 2**50),
    ),
)
JOB = Job("module {}", "ttir", "TRITON", "hip", "gfx942", 64, {"num_warps": 4, "libs": (("a", "b"),)}, "h", b"{}")


@given(ANSWERS)
def test_an_answer_is_what_was_sent(answer):
    assert decode(encode(answer), Answer) == answer


def test_sequences_of_a_job_come_as_lists():
    job = decode(encode(JOB), Job)
    assert (job.ir, job.arch, job.options["libs"]) == ("module {}", "gfx942", [["a", "b"]])


@given(st.integers(0, 2**63), st.text(), st.text())
def test_a_request_of_a_worker_is_what_was_sent(memory, knobs, folder):
    request = ForkRequest(memory, knobs, folder)
    assert decode(encode(request), ForkRequest) == request


def test_another_message_is_no_answer():
    with pytest.raises(FrameError):
        decode(encode(JOB), Answer)


def test_an_option_that_is_no_plain_data_is_refused():
    with pytest.raises(TypeError):
        encode(Job("", "", "", "", 0, 0, {"x": object()}, "", b""))


def test_answers_say_nothing_more_than_they_were_given():
    done = Done({}, b"{}", [("ttgir", 1_500_000), ("llir", 250_000)])
    assert (done.address_space, done.facts, done.seconds) == (0, None, 1.75)
    failed = CompileFailed("x")
    assert (failed.refused, failed.passing) == (False, False)
    assert (DESCRIPTORS, READY) == (4, "ready")


# what of a process's settings a compiling process is started under


@pytest.mark.parametrize(
    ("variable", "matters"),
    [
        ("TRITON_PTXAS_PATH", True),
        ("LLVM_IR_ENABLE_DUMP", True),
        ("PATH", True),
        ("USE_IR_LOC", True),
        ("A_KNOB_S_OWN", True),
        ("TRITON_CACHE_DIR", False),
        ("TRITON_HOME", False),
        ("CUDA_VISIBLE_DEVICES", False),
        ("CUDA_HOME", True),
        ("HOME", False),
        ("PATHS", False),
    ],
)
def test_variables_that_a_compiler_reads(variable: str, matters: bool) -> None:
    assert _matters(variable, {"A_KNOB_S_OWN", "TRITON_HOME"}) is matters


def test_knobs_that_were_set_by_hand_are_told_in_order() -> None:
    group = SimpleNamespace(b=True, a="x", path=object(), none=None, count=3)
    assert _set_by_hand("compilation", group) == [
        ("compilation", "a", "x"),
        ("compilation", "b", True),
        ("compilation", "count", 3),
        ("compilation", "none", None),
    ]


def test_the_moment_s_settings_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import knobs

    monkeypatch.setenv("LLVM_B", "2")
    monkeypatch.setenv("LLVM_A", "1")
    with knobs.compilation.scope():
        knobs.compilation.always_compile = True
        found = current_environment()
    assert [item for item in found.env if item[0] in ("LLVM_A", "LLVM_B")] == [("LLVM_A", "1"), ("LLVM_B", "2")]
    assert ["compilation", "always_compile", True] in json.loads(found.knobs)
    assert found != current_environment()
    assert CompilerEnvironment(found.env, found.knobs) == found


@pytest.mark.parametrize(
    ("stages", "searched"),
    [
        ({"ttir": "first", "ttgir": "second", "ptx": "text"}, "first"),
        ({"ttir": b"first", "ttgir": b"second", "ptx": b"text"}, "first"),
        ({"source": "first", "ttgir": "second", "ptx": "text"}, "second"),
    ],
)
def test_a_kernel_s_accesses_are_found_in_its_ttir_or_a_gluon_kernel_s_in_its_ttgir(monkeypatch, stages, searched):
    asked = []
    monkeypatch.setattr(protocol, "access_of", lambda text, target: asked.append((text.strip(), target)) or EVERYTHING)
    target = Target.parse("cuda:90")
    found = facts_of(target, stages)
    assert (found.access, asked) == (EVERYTHING, [(searched, target)])
    assert (found.ttir.strip(), found.bare.strip()) == ("first", "text")
    known = Access.everything(2, (), follows=False)
    assert facts_of(target, stages, known).access is known
    assert len(asked) == 1


def test_the_first_text_is_of_the_earliest_stage_that_there_is():
    stages = {"ptx": "5", "source": "3", "ttgir": "2", "ttir": "1"}
    assert protocol.first_text(stages) == "1"
    assert protocol.first_text({"source": "3", "ptx": "5"}) == "3"
