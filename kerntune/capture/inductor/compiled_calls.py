"""Calls of compiled functions while they are captured: Inductor's caches, unseen launches, CUDA graphs.

The gate's captures on a GPU have a folder of their own for these caches. CUDA graphs would hide launches.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

from kerntune.base.users_line import INSTALLED
from kerntune.capture.inductor.baseline_choices import InductorChoices
from kerntune.capture.inductor.users_lines import break_text, noted_breaks, shown
from kerntune.kernels.compat import inductor_parts

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
    before = {name: os.environ.get(name) for name in (INDUCTOR, TRITON)}
    os.environ.update({TRITON: triton, **({INDUCTOR: str(folder)} if _can_be_written(folder) else {})})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _can_be_written(folder: Path) -> bool:
    """Whether files can be made in a folder, which need not be there yet."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return there.is_dir() and os.access(there, os.W_OK)


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
            return _Switch(model, lambda: cudagraphify(model, *args, **kwargs), self._live)

        inductor_parts.replace_part(stack, "graph_call", graph_call)
        inductor_parts.replace_part(stack, "cudagraphify", switched)
        stack.callback(self._end)
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
            names = ", ".join(dict.fromkeys(_name_of(code) for code in self.frames if code.co_name == "forward"))
            return (
                f": Inductor made no graph, for Module.compile() leaves the code of installed packages alone ({names});"
                " use torch.compile(module) in its place, or call the module in a compiled function of yours"
            )
        where = shown(f"{users[0].co_filename}:{users[0].co_firstlineno}", self.root)
        broken = f" (break at {'; '.join(self.breaks)})" if self.breaks else ""
        made = f": Inductor made no graph of {_name_of(users[0])} ({where}){broken}"
        return f"{made}; TORCH_LOGS=dynamo,graph_breaks says why"

    _running: bool = True

    def _live(self) -> bool:
        return self._running and self.records()

    def _end(self) -> None:
        self._running = False

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


class _Switch:
    """A compiled graph that replays a CUDA graph, but not while a call is captured: then it launches its kernels."""

    def __init__(self, model: Callable[..., Any], make: Callable[[], Any], captured: Callable[[], bool]) -> None:
        self._model, self._make, self._captured = model, make, captured
        self._graphed: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._captured():
            return self._model(*args, **kwargs)
        if self._graphed is None:
            self._graphed = self._make()
        return self._graphed(*args, **kwargs)
