"""Calls of compiled functions while they are captured: users' lines, Inductor's caches, unseen launches, CUDA graphs.

Inductor's graphs know the line of each node, and where graphs break. While code is generated the lines are written as a
comment beside those that Inductor itself writes, above each kernel and each call of an operator, so that they are in a
cache's file as well. The gate's captures on a GPU have a folder of their own for these caches. CUDA graphs would hide
launches.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

from kerntune.base.changed_items import changed_items
from kerntune.base.users_line import INSTALLED
from kerntune.capture.inductor.baseline_choices import InductorChoices
from kerntune.kernels.compat import inductor_parts

MARK = "kerntune lines:"
WRITERS = ("describe_kernel", "describe_template", "describe_operator")
"""Parts that say in a comment what a kernel, or an operator's call, was generated for."""

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_MARKED = re.compile(rf"{MARK} (\[.*\])$", re.M)


def write_lines(stack: contextlib.ExitStack) -> None:
    """Until ``stack`` closes, generated code says which lines it comes from, as far as this torch lets it."""
    if not inductor_parts.INDUCTOR["origins"].exists():
        return
    origins = inductor_parts.inductor_part("origins")
    for word in WRITERS:
        part = inductor_parts.INDUCTOR[word]
        if part.exists():
            inductor_parts.replace_part(stack, word, _with_lines(part.get(), origins))
    copies = inductor_parts.INDUCTOR["copy_between_devices"]
    if copies.exists():
        inductor_parts.replace_part(stack, "copy_between_devices", _commented(copies.get()))


def _commented(original: Callable[..., Any]) -> Callable[..., Any]:
    """Generation of an operator's call, below the comment that other operators have."""

    def codegen(node: Any, wrapper: Any) -> Any:
        node.codegen_comment(wrapper)
        return original(node, wrapper)

    return codegen


def _with_lines(original: Callable[..., Any], origins: Callable[[Any], Iterable[Any]]) -> Callable[..., Any]:
    def described(nodes: Any, wrapper: Any) -> Any:
        said, *rest = original(nodes, wrapper)
        traces = (node.meta.get("stack_trace") for node in origins(nodes))
        found = sorted({line for trace in traces if trace and (line := line_of_trace(trace))})
        marked = [f"{path}:{number}" for path, number in found]
        return (f"{said}\n{wrapper.comment} {MARK} {json.dumps(marked)}", *rest)

    return described


def line_of_trace(trace: str) -> tuple[str, int] | None:
    """The innermost line of a stack trace's text that no installed package has; None without any."""
    frames = [(path, int(number)) for path, number in _FRAME.findall(trace)]
    users = [frame for frame in frames if not set(INSTALLED) & set(Path(frame[0]).parts)]
    return users[-1] if users else None


def lines_before(text: str) -> tuple[str, ...]:
    """The lines of the last mark in a part of a generated module: ``/home/me/model.py:12``."""
    marks = _MARKED.findall(text)
    try:
        found = json.loads(marks[-1]) if marks else []
    except ValueError:
        return ()
    return tuple(x for x in found if isinstance(x, str)) if isinstance(found, list) else ()


@lru_cache(maxsize=1024)
def lines_of_call(path: str, number: int) -> tuple[str, ...]:
    """The lines of the comment above a line of a generated module; the nearest comment with a mark counts."""
    try:
        text = Path(path).read_text(encoding="utf-8").splitlines()[: number - 1]
    except OSError:
        return ()
    for place in range(len(text) - 1, -1, -1):
        line = text[place].strip()
        if MARK in line:
            return lines_before(line)
        if line.startswith("def "):
            break
    return ()


def shown(line: str, root: Path) -> str:
    """A line as messages have it: its file relative to ``root``, or only its name if it lies elsewhere."""
    name, _, number = line.rpartition(":")
    path = Path(name)
    return f"{path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name}:{number}"


def noted_breaks() -> Sequence[Any]:
    """Dynamo's list of the reasons for which graphs end, which grows; empty where this torch has none."""
    part = inductor_parts.INDUCTOR["graph_breaks"]
    found: Sequence[Any] = part.get() if part.exists() else ()
    return found


def break_text(found: Any, root: Path) -> str:
    """``model.py:31: Data-dependent branching`` of an entry of :func:`noted_breaks`."""
    reason = next((line.strip() for line in str(found.reason).splitlines() if line.strip()), "unknown")
    users = [x for x in found.user_stack or () if not set(INSTALLED) & set(Path(x.filename).parts)]
    return f"{shown(f'{users[-1].filename}:{users[-1].lineno}', root)}: {reason}" if users else reason


INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"
TRITON = "TRITON_CACHE_DIR"
"""Inductor sets it for the process, to a folder in its own, when it makes its first kernel."""


@contextlib.contextmanager
def gates_own_caches(folder: Path, triton: str) -> Iterator[None]:
    """Inductor reads and writes ``folder`` meanwhile, and compiles into ``triton``, Triton's cache of this process,
    where kerntune finds the same binaries.

    So what a test generates doesn't depend on what other programs of the user have left, the choices among configs last
    from run to run, and the user's cache has nothing that was compiled with CUDA graphs off. Where ``folder`` can't be
    written, Inductor's own is left to it.
    """
    there = next(place for place in (folder, *folder.parents) if place.exists())
    own = {INDUCTOR: str(folder)} if there.is_dir() and os.access(there, os.W_OK) else {}
    with changed_items(os.environ, {TRITON: triton, **own}):
        yield


@dataclass
class CompiledCalls:
    """The calls of compiled graphs while one call of the user's is captured.

    ``unseen`` has a sentence's part for each graph whose launches were made where a capture can't see them.
    """

    launches: Sequence[Any]
    """The capture's, which grow."""

    records: Callable[[], bool] = lambda: True
    """Whether what the calling thread does now is the call's."""

    unseen: list[str] = field(default_factory=list)
    root: Path = Path()
    """The project's folder, to which files are named relative."""

    graphs: int = 0
    """How many calls of compiled graphs there were."""

    breaks: list[str] = field(default_factory=list)
    """Where graphs end before their function does, and why, each once: ``model.py:31: Data-dependent branching``."""

    frames: list[CodeType] = field(default_factory=list)
    """The functions of which Dynamo was asked for graphs, each once."""

    choices: InductorChoices = field(default_factory=InductorChoices)
    """What Inductor chooses by timing for these calls, where there is a GPU."""

    def install(self, stack: contextlib.ExitStack) -> None:
        """Watch until ``stack`` closes."""
        original = inductor_parts.inductor_part("graph_call")

        def graph_call(graph: Any, inputs: Any) -> Any:
            before = len(self.launches)
            result = original(graph, inputs)
            self.graphs += self.records()
            if self.records() and len(self.launches) == before and inductor_parts.launches_kernels(graph):
                self._miss(inductor_parts.why_hidden(graph))
            return result

        cudagraphify = inductor_parts.inductor_part("cudagraphify")

        def switched(model: Any, *args: Any, **kwargs: Any) -> Any:
            """A graph that replays a CUDA graph, but not while a call is captured: then it launches its kernels."""
            graphed = lru_cache(maxsize=1)(lambda: cudagraphify(model, *args, **kwargs))

            def call(*inputs: Any, **words: Any) -> Any:
                captured = self._running and self.records()
                return (model if captured else graphed())(*inputs, **words)

            return call

        inductor_parts.replace_part(stack, "graph_call", graph_call)
        inductor_parts.replace_part(stack, "cudagraphify", switched)
        stack.callback(setattr, self, "_running", False)
        known = noted_breaks()
        stack.callback(self._note_breaks, known, len(known))
        if inductor_parts.INDUCTOR["package_call"].exists():
            package = inductor_parts.inductor_part("package_call")
            inductor_parts.replace_part(stack, "package_call", self._package(package))

    def noting_frames(self, compile_frame: Callable[..., Any]) -> Callable[..., Any]:
        """Dynamo's compilation of a frame, whose function is noted."""

        def noted(wrapper: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
            if self.records() and frame.f_code not in self.frames:
                self.frames.append(frame.f_code)
            return compile_frame(wrapper, frame, *args, **kwargs)

        return noted

    def why_no_kernel(self) -> str:
        """Why compiled functions were called, and none of Inductor's kernels was launched, as the end of a sentence,
        and what to do; empty where none was called."""
        if self.graphs:
            return ": what torch compiled calls torch's own operators alone"
        if not self.frames:
            return ""
        users = [code for code in self.frames if not set(INSTALLED) & set(Path(code.co_filename).parts)]
        if not users:
            forwards = [code for code in self.frames if code.co_name == "forward"]
            names = ", ".join(dict.fromkeys(map(_name_of, forwards)))
            return (
                f": Inductor made no graph, for Module.compile() leaves the code of installed packages alone ({names});"
                " use torch.compile(module) in its place, or call the module in a compiled function of yours"
            )
        where = shown(f"{users[0].co_filename}:{users[0].co_firstlineno}", self.root)
        broken = f" (break at {'; '.join(self.breaks)})" if self.breaks else ""
        made = f": Inductor made no graph of {_name_of(users[0])} ({where}){broken}"
        return f"{made}; TORCH_LOGS=dynamo,graph_breaks says why"

    _running: bool = True

    def _note_breaks(self, known: Sequence[Any], before: int) -> None:
        found = (break_text(x, self.root) for x in known[before:])
        self.breaks += dict.fromkeys(text for text in found if text not in self.breaks)

    def _miss(self, what: str) -> None:
        if what not in self.unseen:
            self.unseen.append(what)

    def _package(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.records():
                self._miss("a package of AOTInductor, which launches from C++")
            return original(*args, **kwargs)

        return call


def _name_of(code: CodeType) -> str:
    return str(getattr(code, "co_qualname", code.co_name))  # from Python 3.11 on
