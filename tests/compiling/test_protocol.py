"""Messages of the farm, its fork server and its workers survive the way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.frames import decode, encode
from kerntune.compiling.protocol import DESCRIPTORS, READY, Answer, CompileFailed, Done, ForkRequest, Hello, Job
from kerntune.errors import FrameError

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
