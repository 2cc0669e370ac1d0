"""Compiled functions: users' lines in their code, unseen launches, and folders that are the gate's own."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch_warnings import ignore_torchs_own

from kerntune.capture.inductor import compiled_calls
from kerntune.capture.inductor.compiled_calls import (
    INDUCTOR,
    MARK,
    TRITON,
    CompiledCalls,
    break_text,
    gates_own_caches,
    line_of_trace,
    lines_before,
    lines_of_call,
    shown,
    write_lines,
)
from kerntune.capture.inductor.launches import comments_in_text
from kerntune.kernels.compat import inductor_parts

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
    words = (*compiled_calls.WRITERS, "origins", "copy_between_devices")
    parts: dict[str, Any] = {word: Part() for word in words}
    replaced: dict[str, Any] = {}
    monkeypatch.setattr(compiled_calls.inductor_parts, "INDUCTOR", parts)
    monkeypatch.setattr(compiled_calls.inductor_parts, "inductor_part", lambda word: lambda asked: asked)
    monkeypatch.setattr(
        compiled_calls.inductor_parts, "replace_part", lambda stack, word, new: replaced.update({word: new})
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


pytestmark = ignore_torchs_own


@pytest.mark.parametrize("records", [True, False])
def test_a_package_is_missed_where_the_call_itself_runs_it(records: bool) -> None:
    """Not where an implementation of a choice does, while that is decided."""
    calls = CompiledCalls([], lambda: records)
    package = calls._package(lambda x: x + 1)
    assert package(1) == 2
    assert bool(calls.unseen) is records


@pytest.mark.parametrize("records", [True, False])
def test_a_graph_is_missed_where_the_call_itself_runs_it(records: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another thread of the program runs meanwhile is not the call's."""
    pytest.importorskip("torch")
    from torch._inductor.output_code import CompiledFxGraph

    monkeypatch.setattr(CompiledFxGraph, "__call__", lambda graph, inputs: inputs)
    calls, graph = CompiledCalls([], lambda: records), SimpleNamespace(source_code="async_compile.triton(...)")
    with contextlib.ExitStack() as stack:
        calls.install(stack)
        run: Any = CompiledFxGraph.__call__
        assert run(graph, [1]) == [1]
    assert bool(calls.unseen) is records


class Parts:
    """Inductor's parts that a capture replaces, as functions that tell what they are called with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, package: bool = True) -> None:
        self.replaced: dict[str, Any] = {}
        part = SimpleNamespace(exists=lambda: package)
        monkeypatch.setattr(inductor_parts, "INDUCTOR", {"package_call": part})
        monkeypatch.setattr(inductor_parts, "inductor_part", lambda word: lambda *words, **named: (word, words, named))
        monkeypatch.setattr(inductor_parts, "replace_part", lambda stack, word, new: self.replaced.update({word: new}))
        monkeypatch.setattr(compiled_calls, "noted_breaks", lambda: ["before", "after"])
        monkeypatch.setattr(compiled_calls, "break_text", lambda found, root: f"break {found}")


@pytest.mark.parametrize("package", [True, False])
def test_a_package_of_aotinductor_is_watched_where_torch_has_them(
    monkeypatch: pytest.MonkeyPatch, package: bool
) -> None:
    parts, calls = Parts(monkeypatch, package), CompiledCalls([], lambda: True)
    with contextlib.ExitStack() as stack:
        calls.install(stack)
    assert list(parts.replaced) == ["graph_call", "cudagraphify", *(["package_call"] if package else [])]
    if package:
        assert parts.replaced["package_call"](1, a=2) == ("package_call", (1,), {"a": 2})
        assert calls.unseen == ["a package of AOTInductor, which launches from C++"]


def test_a_cuda_graph_is_not_replayed_while_its_launches_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """And made once, when it is first replayed."""
    parts, made, records = Parts(monkeypatch), list[object](), [True]
    graphed = lambda model, *args, **words: made.append((args, words)) or (lambda x: x * 100)  # noqa: E731
    monkeypatch.setattr(inductor_parts, "inductor_part", lambda word: graphed)
    calls = CompiledCalls([], lambda: records[0])
    with contextlib.ExitStack() as stack:
        calls.install(stack)
        graph = parts.replaced["cudagraphify"](lambda x: x + 1, "inputs", static=3)
        assert (graph(1), made) == (2, [])
        records[0] = False
        assert [graph(1), graph(2)] == [100, 200]
        records[0] = True
        assert graph(1) == 2
    assert graph(1) == 100, "the capture is over"
    assert made == [(("inputs",), {"static": 3})]


def test_breaks_and_frames_of_a_call_are_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    Parts(monkeypatch)
    records, breaks = [True], ["old"]
    monkeypatch.setattr(compiled_calls, "noted_breaks", lambda: breaks)
    calls = CompiledCalls([], lambda: records[0])
    for new in (["x"], ["x", "y"]):
        with contextlib.ExitStack() as stack:
            calls.install(stack)
            breaks += new
    assert calls.breaks == ["break x", "break y"]
    noted = calls.noting_frames(lambda wrapper, frame, *args, **words: (wrapper, args, words))
    frame = SimpleNamespace(f_code=len.__call__)
    for recording in (False, True, True):
        records[0] = recording
        assert noted("wrapper", frame, 1, a=2) == ("wrapper", (1,), {"a": 2})
        assert len(calls.frames) == recording


@pytest.mark.parametrize(
    ("graphs", "files", "breaks", "said"),
    [
        (1, ["/p/model.py"], [], ": what torch compiled calls torch's own operators alone"),
        (0, [], [], ""),
        (0, ["/p/model.py", "/p/other.py"], ["a.py:3"],
         ": Inductor made no graph of named (model.py:7) (break at a.py:3); TORCH_LOGS=dynamo,graph_breaks says why"),
        (0, ["/v/site-packages/net.py", "/p/model.py"], [],
         ": Inductor made no graph of named (model.py:7); TORCH_LOGS=dynamo,graph_breaks says why"),
        (0, ["/v/site-packages/net.py", "/v/site-packages/net.py"], [],
         ": Inductor made no graph, for Module.compile() leaves the code of installed packages alone (forward); use "
         "torch.compile(module) in its place, or call the module in a compiled function of yours"),
    ],
)  # fmt: skip
def test_why_no_kernel_was_launched(graphs: int, files: list[str], breaks: list[str], said: str) -> None:
    calls: Any = CompiledCalls([], lambda: True)
    calls.graphs, calls.breaks, calls.root = graphs, breaks, Path("/p")
    calls.frames = [
        SimpleNamespace(
            co_filename=file, co_firstlineno=7, co_name="forward", co_qualname="forward" if "/v/" in file else "named"
        )
        for file in files
    ]
    assert calls.why_no_kernel() == said


# the folders of a capture on a GPU


def test_folders_are_the_gates_for_a_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INDUCTOR, "the user's")
    monkeypatch.delenv(TRITON, raising=False)
    with gates_own_caches(tmp_path, "triton's"):
        assert (os.environ[INDUCTOR], os.environ[TRITON]) == (str(tmp_path), "triton's")
    assert os.environ[INDUCTOR] == "the user's"
    assert TRITON not in os.environ


def test_what_inductor_sets_meanwhile_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INDUCTOR, raising=False)
    monkeypatch.setenv(TRITON, "mine")
    with gates_own_caches(tmp_path, "triton's"):
        os.environ[TRITON] = "its own"
    assert INDUCTOR not in os.environ
    assert os.environ[TRITON] == "mine"


def test_a_folder_that_can_not_be_written_is_not_inductors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor would raise where it makes its first file."""
    monkeypatch.setenv(INDUCTOR, "the user's")
    (tmp_path / "file").touch()
    with gates_own_caches(tmp_path / "file" / "inductor", "triton's"):
        assert (os.environ[INDUCTOR], os.environ[TRITON]) == ("the user's", "triton's")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # a read-only file system, for root as well
    with gates_own_caches(tmp_path / "inductor", "triton's"):
        assert os.environ[INDUCTOR] == "the user's"
    assert not (tmp_path / "inductor").exists()
