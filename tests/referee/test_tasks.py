"""Messages of the referee's processes: what one doesn't say, and how a task is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import encode as encoded

from kerntune.base.frames import StrictMessage
from kerntune.referee import replay_processes, tasks
from kerntune.referee.case_inputs import CaseInputs, TensorInput, UserCallable
from kerntune.referee.layouts import FUNCTION
from kerntune.referee.replay_processes import parts_of
from kerntune.referee.tasks import (
    DeviceAnswer,
    ExpectAnswer,
    ExpectedSeed,
    ExpectTask,
    OperatorChain,
    RecordAnswer,
    ReplayAnswer,
    TimeAnswer,
    Variation,
)
from tests.referee.recordings import CALL, CASE, EXPECTED

SOURCE = UserCallable("a.py", "f", FUNCTION)


@pytest.mark.parametrize(
    ("message", "unsaid"),
    [
        (TensorInput("x", "float32", (), ()), ("normal", 0.0, 1.0, False, (), False, False)),
        (CaseInputs("x", (), ()), ((), {}, (), {}, (), "")), (RecordAnswer(), (None, None, None)),
        (CALL, ((), (), (), (), (), "tensor", (), ())),
        (EXPECTED, (None, None, None, {}, None, None, None, None, False, False, False, OperatorChain())),
        (OperatorChain(), (False, None, False, "")),
        (ExpectedSeed((), ()), ((), "tensor", False, "", False)), (ExpectAnswer(), ((), (), None)),
        (ExpectTask(SOURCE, CASE, ()), ((), False, False, "", 0, None, 0, 0, 0.0)),
        (Variation(), ((), (), False)), (ReplayAnswer(), ((), 0, True, None, ())),
        (TimeAnswer(), ((), (), (0.0, 0.0, 0.0, 0), (), (), (), False, "replayed", {}, 1, None)),
        (DeviceAnswer(), (None, None, 0, "")),
    ],
)  # fmt: skip
def test_what_a_message_does_not_say_is_nothing(message: Any, unsaid: tuple[Any, ...]) -> None:
    values = msgspec.structs.astuple(message)
    assert values[len(values) - len(unsaid) :] == unsaid
    assert msgspec.msgpack.decode(encoded(message), type=type(message)) == message


@pytest.mark.parametrize(("room", "parts"), [(9, 1), (8, 3), (1, 3)])
def test_a_task_with_much_content_is_cut(monkeypatch: pytest.MonkeyPatch, room: int, parts: int) -> None:
    monkeypatch.setattr(replay_processes, "MUCH", room)
    task = ExpectTask(SOURCE, CASE, (5, 6, 7), tuple((bytes([i]) * 4, bytes(4)) for i in range(3)))
    found = parts_of(task)
    assert len(found) == parts
    assert [s for one in found for s in one.seeds] == [5, 6, 7]
    assert [c for one in found for c in one.contents] == list(task.contents)
    alone = ExpectTask(SOURCE, CASE, (5, 6))
    assert parts_of(alone) == [alone], "whose contents the task's own code makes"


def test_a_user_s_folder_is_that_of_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "a.py").touch()
    (tmp_path / "a.py").symlink_to(tmp_path / "there" / "a.py")
    source = UserCallable(str(tmp_path / "a.py"), "f", FUNCTION)
    assert source.readable == (str(tmp_path.resolve() / "there"),)
    assert msgspec.structs.replace(source, modules={"utils": "/b/utils.py"}).readable[1:] == ("/b/utils.py",)


class Content(StrictMessage, frozen=True):
    """What has bytes anywhere."""

    large: Any = b""
    each: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    number: int = 0


@given(st.lists(st.integers(0, 9), max_size=6), st.booleans())
def test_large_bytes_are_pieces_of_their_own(sizes: list[int], within: bool) -> None:
    """Written one after the other they are the message's MessagePack, and none of them is a copy."""
    with mock.patch.object(tasks, "LARGE", 5):
        made = [(bytes, memoryview)[n % 2](bytes(range(n))) for n in sizes]
        message = Content(made[0] if made else None, tuple(made), {str(i): x for i, x in enumerate(made[1:])}, 7)
        asked = [message, (1, b"tiny")] if within else message
        found = tasks.pieces_of(asked)
    assert msgspec.msgpack.decode(b"".join(found)) == msgspec.msgpack.decode(msgspec.msgpack.encode(asked))
    first = [one for one in made[:1] if len(one) >= 5]
    large = [*first, *(x for x in made if len(x) >= 5), *(x for x in made[1:] if len(x) >= 5)]
    assert [id(one) for one in found[1::2]] == [id(one) for one in large]
