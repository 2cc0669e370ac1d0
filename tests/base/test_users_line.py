"""The line of users' code that an error or a call comes from."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.base.users_line import UsersLine, calling_line, chain, line_of_error, users_frame

ROOT = Path("/home/me/project")


@pytest.mark.parametrize(
    ("file", "module", "place"),
    [
        ("/home/me/project/ops/add.py", "ops.add", "ops/add.py"),
        ("/home/me/project/.venv/lib/site-packages/fla/x.py", "fla.x", "fla.x"),
        ("/home/me/project/dist-packages/fla/x.py", "fla.x", "fla.x"),
        ("/opt/fla/x.py", "fla.x", "fla.x"),
        ("/opt/fla/x.py", "", "x.py"),
    ],
)
def test_a_files_place_is_the_same_on_every_machine(file: str, module: str, place: str) -> None:
    assert UsersLine(file, module, "f", 1, "").place(ROOT) == place


def run(text: str, module: str, file: str, **names: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": module, **names}
    exec(compile(text, file, "exec"), found)
    return found


def test_the_innermost_users_line_of_an_error() -> None:
    torch = run("def mm(x):\n    raise ValueError(x)\n", "torch.nn", "/lib/torch/nn.py")
    user = run("def f():\n    return mm(3)\n", "ops", "/home/me/ops.py", mm=torch["mm"])
    with pytest.raises(ValueError, match="3") as caught:
        user["f"]()
    assert line_of_error(caught.value) == UsersLine("/home/me/ops.py", "ops", "f", 2, "")
    assert line_of_error(ValueError()) is None


def test_the_line_that_a_call_comes_from() -> None:
    triton = run("def launch():\n    return calling_line()\n", "triton.runtime", "/lib/t.py", calling_line=calling_line)
    made = triton["launch"]()  # the line that is asked for
    assert made == UsersLine(
        __file__, __name__, "test_the_line_that_a_call_comes_from", made.number,
        'made = triton["launch"]()  # the line that is asked for',
    )  # fmt: skip
    assert users_frame(sys._getframe())


@pytest.mark.parametrize(
    ("module", "file", "users"),
    [
        ("ops", "/home/me/ops.py", True), ("torchvision", "/home/me/a.py", True), ("torch", "/home/me/a.py", False),
        ("kerntune.base", "/home/me/a.py", False), ("_pytest.python", "/home/me/a.py", False),
        ("ops", "<string>", False), ("json", f"{Path(json_file := __import__('json').__file__)}", False),
        ("fla", f"{Path(json_file).parents[1]}/site-packages/fla.py", True),
        ("fla", f"{Path(json_file).parents[1]}/dist-packages/fla.py", True),
    ],
)  # fmt: skip
def test_which_frames_are_users(module: str, file: str, users: bool) -> None:
    frame: Any = SimpleNamespace(f_globals={"__name__": module}, f_code=SimpleNamespace(co_filename=file))
    assert users_frame(frame) is users


def test_a_long_line_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text(f"def f(raised):\n    raise raised  # {'x' * 300}\n")
    error = ValueError("here")
    with pytest.raises(ValueError, match="here"):
        run(path.read_text(), "ops", str(path))["f"](error)
    found = line_of_error(error)
    assert found is not None
    assert found.text == f"raise raised  # {'x' * 300}"[:200]


def test_errors_that_one_was_raised_from() -> None:
    first, second, third = ValueError(1), ValueError(2), ValueError(3)
    third.__cause__, second.__context__ = second, first
    assert list(chain(third)) == [third, second, first]
    second.__suppress_context__ = True
    assert list(chain(third)) == [third, second]
    second.__cause__ = third
    assert list(chain(third)) == [third, second], "a circle"
    assert list(chain(None)) == []
