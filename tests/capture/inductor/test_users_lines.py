"""Lines of the model in generated code, and where graphs break."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.capture.inductor import users_lines
from kerntune.capture.inductor.launches import comments_in_text
from kerntune.capture.inductor.users_lines import (
    MARK,
    break_text,
    line_of_trace,
    lines_before,
    lines_of_call,
    shown,
    write_lines,
)

TRACE = """  File "/home/me/model.py", line 7, in forward
    return act(x)
  File "/usr/lib/python3/dist-packages/torch/nn/functional.py", line 2, in silu
    return torch._C._nn.silu(x)
"""

MODULE = f'''
# Original ATen: [aten.mul]
# {MARK} ["/home/me/model.py:7", "/home/me/model.py:9"]
triton_poi_0 = async_compile.triton("""""")

# Original ATen: [aten.sum]
triton_per_1 = async_compile.triton("""""")

def call(args):
    first(args)
    # Original ATen: [aten.mm]
# {MARK} ["/home/me/model.py:12"]
    extern_kernels.mm(args)
'''


def test_the_innermost_line_of_the_users_is_named() -> None:
    assert line_of_trace(TRACE) == ("/home/me/model.py", 7)
    assert line_of_trace("no trace") is None


def test_kernels_have_the_lines_above_them() -> None:
    found = comments_in_text(MODULE)
    assert found["triton_poi_0"].lines == ("/home/me/model.py:7", "/home/me/model.py:9")
    assert found["triton_per_1"].lines == (), "another kernel's are none of its own"


def test_operators_have_the_lines_above_their_call(tmp_path: Path) -> None:
    path = tmp_path / "generated.py"
    path.write_text(MODULE)
    called = {text.strip(): number for number, text in enumerate(MODULE.splitlines(), 1)}
    assert lines_of_call(str(path), called["extern_kernels.mm(args)"]) == ("/home/me/model.py:12",)
    assert lines_of_call(str(path), called["first(args)"]) == (), "those above the function are of kernels"
    assert lines_of_call(str(tmp_path / "gone.py"), 3) == ()


@pytest.mark.parametrize("said", ["[", "{}", '["a", 1]'])
def test_a_damaged_comment_names_nothing_else(said: str) -> None:
    assert lines_before(f"# {MARK} {said}") in ((), ("a",))


def test_files_are_named_relative_to_the_project() -> None:
    assert shown("/home/me/src/model.py:7", Path("/home/me")) == "src/model.py:7"
    assert shown("/elsewhere/model.py:7", Path("/home/me")) == "model.py:7"


def test_a_break_has_its_line_and_the_first_line_of_its_reason() -> None:
    frames = [SimpleNamespace(filename="/home/me/model.py", lineno=31)]
    found: Any = SimpleNamespace(reason="\nData-dependent branching\n  Hint: ...", user_stack=frames)
    assert break_text(found, Path("/home/me")) == "model.py:31: Data-dependent branching"
    assert break_text(SimpleNamespace(reason="", user_stack=[]), Path()) == "unknown"


def test_torchs_comment_gets_the_lines_of_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each node once, in the order of files and lines; what torch itself says stays."""

    class Part:
        said: Any = staticmethod(lambda nodes, wrapper: ("# Source Nodes: [y]", "# detailed"))

        def exists(self) -> bool:
            return True

        def get(self) -> Any:
            return self.said

    nodes = [SimpleNamespace(meta={"stack_trace": TRACE}), SimpleNamespace(meta={"stack_trace": TRACE})]
    words = (*users_lines.WRITERS, "origins", "copy_between_devices")
    parts: dict[str, Any] = {word: Part() for word in words}
    replaced: dict[str, Any] = {}
    monkeypatch.setattr(users_lines.inductor_parts, "INDUCTOR", parts)
    monkeypatch.setattr(users_lines.inductor_parts, "inductor_part", lambda word: lambda asked: asked)
    monkeypatch.setattr(
        users_lines.inductor_parts, "replace_part", lambda stack, word, new: replaced.update({word: new})
    )
    with contextlib.ExitStack() as stack:
        write_lines(stack)
    assert set(replaced) == {*words} - {"origins"}
    said, detailed = replaced["describe_kernel"](nodes, SimpleNamespace(comment="#"))
    assert said == f"# Source Nodes: [y]\n# {MARK} {json.dumps(['/home/me/model.py:7'])}"
    assert detailed == "# detailed"
    order: list[str] = []
    node = SimpleNamespace(codegen_comment=lambda wrapper: order.append("comment"))
    Part.said = staticmethod(lambda node, wrapper: order.append("copy"))
    with contextlib.ExitStack() as stack:
        write_lines(stack)
    replaced["copy_between_devices"](node, SimpleNamespace())
    assert order == ["comment", "copy"]
