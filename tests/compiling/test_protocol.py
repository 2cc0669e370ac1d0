"""Frames survive the way, in any pieces."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.compiling.protocol import MAX_FRAME, CompileFailed, Done, Hello, Job, answer_in, frame, read_job

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


@given(ANSWERS, st.data())
def test_an_answer_is_read_when_it_is_whole_and_not_before(answer, data):
    whole = frame(answer)
    assert answer_in(whole) == answer
    assert answer_in(whole + b"next") == answer
    assert answer_in(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


def test_a_job_is_read_from_a_stream_and_its_end_is_none():
    stream = io.BytesIO(frame(JOB) + frame(JOB)[:-1])
    job = read_job(stream)
    assert job is not None
    assert (job.ir, job.arch, job.options["libs"]) == ("module {}", "gfx942", [["a", "b"]])
    assert read_job(stream) is None
    assert read_job(stream) is None


@pytest.mark.parametrize(
    "damage", [(MAX_FRAME + 1).to_bytes(4, "little"), b"\x01\0\0\0\xc1", frame(JOB)], ids=["length", "body", "kind"]
)
def test_damage_is_a_value_error(damage):
    with pytest.raises(ValueError, match=r"\w"):
        answer_in(damage)


def test_an_option_that_is_no_plain_data_is_refused():
    with pytest.raises(TypeError):
        frame(Job("", "", "", "", 0, 0, {"x": object()}, "", b""))
