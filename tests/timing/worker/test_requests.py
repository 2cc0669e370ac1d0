"""Messages as an earlier or a terse peer sends them: what they leave out, and what none of them can hold."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import msgspec
import pytest
from samples import recording

from kerntune.gpu.foreign_work import NONE_SEEN
from kerntune.timing.worker.requests import (
    ChangedGuard,
    FirstLaunchesRequest,
    FirstLaunchFailed,
    FirstLaunchMessage,
    FirstLaunchReply,
    FirstLaunchRequest,
    ForgetRequest,
    Message,
    PairReply,
    PairRequest,
    Ready,
    RequestFailed,
    Staged,
    StageRequest,
)

WORK = recording()


def read(kind: Any, tag: str, **fields: Any) -> Any:
    """The message of a frame that has these fields alone."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode({"type": tag, **fields}), type=kind)


def test_what_a_pair_s_request_leaves_out() -> None:
    found = read(Message, "pair", a=WORK, b=WORK, storages=WORK.storages, artifacts={})
    assert isinstance(found, PairRequest)
    assert (found.blocks, found.seed, found.timer, found.spaced, found.results) == (0, 0, "auto", False, False)


def test_a_reply_without_further_words_has_seen_no_other_s_work() -> None:
    found = read(Message, "paired", a_ns=(1.0,), b_ns=(2.0,))
    assert found == PairReply((1.0,), (2.0,), astuple(NONE_SEEN), None)
    assert found.foreign == (0.0, 0.0, 0.0, 0)


@pytest.mark.parametrize(
    ("kind", "tag", "fields", "whole"),
    [
        (Message, "failed", {"message": "no"}, RequestFailed("no", True)),
        (FirstLaunchMessage, "looked", {"ns": 2.0}, FirstLaunchReply(2.0, ())),
        (FirstLaunchMessage, "look failed", {"reason": "no"}, FirstLaunchFailed("no", True, False, 0, False)),
        (Message, "ready", {"device": "a GPU"}, Ready("a GPU")),
        (FirstLaunchMessage, "forget", {}, ForgetRequest()),
        (FirstLaunchMessage, "staged", {}, Staged()),
        (FirstLaunchMessage, "looks", {"requests": ()}, FirstLaunchesRequest(())),
    ],
)
def test_what_other_messages_leave_out(kind: Any, tag: str, fields: dict[str, Any], whole: object) -> None:
    assert read(kind, tag, **fields) == whole


@pytest.mark.parametrize(
    "message",
    [
        FirstLaunchRequest(WORK, {"a" * 64: b"code"}),
        StageRequest("host", b"handle", {3: (64, 16)}, ()),
        FirstLaunchReply(1.5, (ChangedGuard(1, 2, 3, 4, 5),)),
        FirstLaunchFailed("no", False, True, 2, True),
    ],
)
def test_a_message_is_read_as_it_was_sent(message: Any) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=FirstLaunchMessage) == message


@pytest.mark.parametrize(("kind", "tag"), [(Message, "stage"), (FirstLaunchMessage, "pair"), (Message, "looked")])
def test_a_process_has_the_messages_of_its_work_alone(kind: Any, tag: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=f"Invalid value '{tag}'"):
        read(kind, tag, ns=1.0)
