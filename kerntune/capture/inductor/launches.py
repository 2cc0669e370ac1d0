"""Launches of Inductor's kernels, which reach none of Triton's entry points, as launches of a capture.

What Inductor launches while it compiles, and while it times candidates, is no part of the call.

What a kernel was generated for is read from the generated code. Inductor writes a comment above each kernel in the
Python module that launches it: ``Source Nodes: [add_1], Original ATen: [aten.add]``, and the part of the graph. The
module is a file, also where it comes from a cache, so nothing has to be recorded while code is generated.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from kerntune.base.grid_check import check_grid
from kerntune.capture.inductor.baseline_choices import InductorChoices
from kerntune.capture.inductor.compiled_calls import CompiledCalls, lines_before, shown, write_lines
from kerntune.capture.launch import Candidate, Pending, Probe, Site, config_of
from kerntune.compiling.compiler import Compiler
from kerntune.errors import CompileError
from kerntune.gpu.base import Backend
from kerntune.kernels.compat import inductor_parts, launch_environment, triton_compiler, versions
from kerntune.kernels.compat.torch_compiler import leaving_out_own
from kerntune.kernels.source import (
    GeneratedFrom,
    GeneratedKernel,
    kernel_name,
    kernel_place,
    mark_generated,
    name_without_number,
)
from kerntune.kernels.specialize import Specialized, pointer_arguments

COMPILING = ("compile_frame", "generate")
"""Parts in which code is made: templates are timed here, fused kernels, and choices of padding. Backward graphs are
generated when they first run, outside of a frame's compilation."""

TIMING = ("bench", "bench_gpu", "bench_gpu_own", "bench_profiling", "tune", "descend", "bench_kernels")
"""Parts that time candidates, which a compiled function's first call does as well."""

Pause = Callable[[], contextlib.AbstractContextManager[None]]


def leave_out_trials(stack: contextlib.ExitStack, pause: Pause) -> None:
    """Until ``stack`` closes, nothing that these parts launch is captured or counted; ``pause()`` holds for the thread
    that enters it."""
    for word in (*COMPILING, *TIMING):
        part = inductor_parts.INDUCTOR[word]
        if part.exists() or not part.optional:
            inductor_parts.replace_part(stack, word, _paused(part.get(), pause))


def _paused(original: Callable[..., Any], pause: Pause) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        with pause():
            return original(*args, **kwargs)

    return call


DEPTH = 12
"""Frames above a launch among which its module is looked for; multi-kernels and wrappers are between."""

_KERNEL = re.compile(r"^(\w+) = async_compile\.triton\(", re.M)
_ORIGINS = re.compile(r"Original ATen: \[([^\[\]]*)\]")
_CALLS = re.compile(r"Source Nodes: \[([^\[\]]*)\], Original ATen")
_NODE = re.compile(r"^#   %(\w+) :.*= call_function\[target=(?:torch\.ops\.)?([\w.]+)\](\(.*\))$", re.M)
_VALUE = re.compile(r"%\w+")

GRAPH_DIGITS = 16
"""Hexadecimal digits of the hash of a part of a graph."""


@dataclass(frozen=True)
class KernelComment:
    """What a generated module says of a kernel: its ATen operators, sorted, what it was made from, and
    the users' lines that it comes from."""

    origins: tuple[str, ...] = ()
    made_from: GeneratedFrom | None = None
    lines: tuple[str, ...] = ()


def comment_of_launch(tuner: Any, word: str) -> KernelComment:
    """The comment on the kernel ``word`` in the module that is launching it now; an empty one if it isn't found."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(DEPTH):
        if frame is None:
            break
        if frame.f_globals.get(word) is tuner:
            return _comments_in(frame.f_code.co_filename).get(word, KernelComment())
        frame = frame.f_back
    return KernelComment()


@lru_cache(maxsize=64)
def _comments_in(path: str) -> dict[str, KernelComment]:
    try:
        return comments_in_text(Path(path).read_text(encoding="utf-8"))
    except OSError:
        return {}


def comments_in_text(text: str) -> dict[str, KernelComment]:
    """The same from a module's text. A kernel's comment ends where the kernel begins; the last one before it counts."""
    found, begin = {}, 0
    for kernel in _KERNEL.finditer(text):
        said = [match.start() for match in _ORIGINS.finditer(text, begin, kernel.start())]
        line = text.rfind("\n", 0, said[-1]) + 1 if said else kernel.start()
        found[kernel[1]] = _comment(text[line : kernel.start()], lines_before(text[begin : kernel.start()]))
        begin = kernel.end()
    return found


def _comment(text: str, users_lines: tuple[str, ...]) -> KernelComment:
    nodes = _NODE.findall(text)
    numbers: dict[str, int] = {}
    # A value is named by its place: torch numbers values over the whole graph.
    number = partial(_VALUE.sub, lambda m: f"%{numbers.setdefault(m[0], len(numbers))}")
    lines = [target + number(f"%{name} {args}") for name, target, args in nodes]
    graph = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:GRAPH_DIGITS] if lines else ""
    calls = tuple(sorted(map(name_without_number, _names(_CALLS, text))))
    operators = tuple(sorted(".".join(target.split(".")[:2]) for _, target, _ in nodes))
    made_from = GeneratedFrom(versions.torch_version().partition("+")[0], calls, operators, graph)
    return KernelComment(tuple(sorted(_names(_ORIGINS, text))), made_from, users_lines)


def _names(pattern: re.Pattern[str], text: str) -> list[str]:
    found = pattern.search(text)
    return [name.strip() for name in found[1].split(",") if name.strip()] if found else []


class Recorder(Protocol):
    """What a launch needs of :class:`kerntune.capture.Capture`."""

    backend: Backend
    compiler: Compiler
    launches: list[Pending]
    root: Path

    def records_launch(self, kernel: str) -> bool: ...
    def paused(self) -> contextlib.AbstractContextManager[None]: ...
    def launch(self, site: Site) -> Any: ...
    def launch_other(self, probe: Callable[[], Probe], pending: Pending, run: Callable[[], Any]) -> Any: ...


@dataclass(frozen=True)
class InductorLaunch:
    """A call of a tuner of Inductor's."""

    capture: Recorder
    tuner: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    run: Callable[[], Any]
    """Makes the launch, with Inductor's config."""

    choices: InductorChoices = field(default_factory=InductorChoices)
    """Which configs the baseline has."""

    @cached_property
    def jit(self) -> Any:
        """The kernel, marked with what it was generated for."""
        jit, word = inductor_parts.loaded_kernel(self.tuner), inductor_parts.kernel_word(self.tuner)
        if not inductor_parts.is_users_kernel(self.tuner):
            said = comment_of_launch(self.tuner, word)
            lines = tuple(dict.fromkeys(shown(line, self.capture.root) for line in said.lines))
            name = name_without_number(word)
            mark_generated(jit, GeneratedKernel(name, jit.fn.__name__, said.origins, said.made_from, lines))
        return jit

    def make(self) -> Any:
        """Record it and let it run. Where nothing runs, Inductor's list of configs is open, and its first is taken."""
        if self.capture.backend.gpu is not None:
            # On a GPU: with the baseline's config, else with Inductor's. Its first launch may search on from that one,
            # by coordinate descent.
            with self.capture.paused():  # compilation, and launches of other configs that Inductor times
                inductor_parts.compile_listed(self.tuner)
                self.choices.follow(self.tuner, self.jit)
                config = inductor_parts.settled_config(self.tuner, self.args, self.kwargs)
            result = self._launch(config, None)
            final = inductor_parts.launched_config(self.tuner, config)
            if final is not config:
                self.capture.launches[-1] = self._pending(final, None)
            return result
        if len(self.tuner.configs) > 1:
            return self.capture.launch(self._site())
        return self._launch(self.tuner.configs[0], None)

    def _launch(self, config: Any, site: Site | None) -> Any:
        pending = self._pending(config, site)
        run = self.run if self.capture.backend.gpu is not None else lambda: self._tell(pending)
        return self.capture.launch_other(lambda: self._probe(config), pending, run)

    def _tell(self, pending: Pending) -> None:
        """Where nothing runs: what the launch writes holds other values from then on."""
        launch = pending.specialized
        access = lambda: self.capture.compiler.compile(launch).access  # noqa: E731 - asked only if need be
        self.capture.backend.tensors.launched(pointer_arguments(launch), access)

    def _pending(self, config: Any, site: Site | None) -> Pending:
        probe, settled = self._probe(config), None
        # A user's kernel without a tuner has no config to choose.
        if site is None and (config.kwargs or not inductor_parts.is_users_kernel(self.tuner)):
            settled = config_of(config, f"kernel {kernel_place(self.jit)}")
        return Pending(self.jit, probe.specialized, probe.grid, site, settled=settled)

    def _probe(self, config: Any) -> Probe:
        launch, place, spec = self._specialized(config), kernel_place(self.jit), self.capture.backend.spec
        _, grid = inductor_parts.inductor_grid(self.tuner, self.args, config)
        warps = launch.options.num_warps
        return Probe(launch, check_grid(grid, kernel=place, spec=spec, num_ctas=1, num_warps=warps))

    def _specialized(self, config: Any) -> Specialized:
        """What Inductor has compiled for a config. Types, alignment and constants are Inductor's: it knows more of the
        arguments than they tell at the launch, and less."""
        asked = inductor_parts.inductor_compilation(self.tuner, config)
        target = self.capture.backend.spec.target
        backend = triton_compiler.make_backend(triton_compiler.gpu_target(target))
        try:
            options = backend.parse_options(dict(asked.options))
        except Exception as exc:
            raise CompileError(f"kernel {kernel_name(self.jit)} for {target}: {exc}") from exc
        settings = launch_environment.compiler_settings(target.backend)
        bound = self._bound(config, asked.signature)
        return Specialized(self.jit, target, bound, asked.signature, asked.constants, asked.attrs, options, settings)

    def _bound(self, config: Any, signature: Mapping[str, Any]) -> dict[str, Any]:
        args, _ = inductor_parts.inductor_grid(self.tuner, self.args, config)
        passed = [p.name for p in self.jit.params if not p.is_constexpr]
        bound = {name: value for name, value in zip(passed, args, strict=False) if name in signature}
        words = {name: value for name, value in self.kwargs.items() if name in signature}
        return {**dict.fromkeys(signature), **bound, **words}

    def _site(self) -> Site:
        where = f"kernel {kernel_place(self.jit)}"

        def run(words: Mapping[str, Any], *, trial: bool = False) -> Any:
            chosen = next(i for i, c in enumerate(candidates) if c.words() == words)
            return self._launch(self.tuner.configs[chosen], site)

        candidates = tuple(Candidate(config_of(config, where)) for config in self.tuner.configs)
        site = Site(kernel_name(self.jit), self.jit, {}, candidates, run, lambda winner: None)
        return site


def install_inductor(stack: contextlib.ExitStack, capture: Recorder, calls: CompiledCalls) -> None:
    """Record the launches of Inductor's kernels until ``stack`` closes. What was compiled is forgotten first: which
    kernels a function has must not depend on the calls before, and a CUDA graph of them would hide its launches."""
    inductor_parts.inductor_part("reset")()
    if capture.backend.gpu is not None:
        calls.choices.install(stack)
    for word in ("debug_run", "run"):
        run = _recording(capture, inductor_parts.inductor_part(word), calls.choices)
        inductor_parts.replace_part(stack, word, run)
    leave_out_trials(stack, capture.paused)
    write_lines(stack)
    compile_frame = calls.noting_frames(inductor_parts.inductor_part("compile_frame"))
    if capture.backend.gpu is not None:  # without one, what installs stand-ins has more to put around it
        compile_frame = leaving_out_own(compile_frame)
    inductor_parts.replace_part(stack, "compile_frame", compile_frame)
    calls.install(stack)


def _recording(capture: Recorder, original: Callable[..., Any], choices: InductorChoices) -> Callable[..., Any]:
    def run(tuner: Any, *args: Any, stream: Any = None, benchmark_run: bool = False, **kwargs: Any) -> Any:
        def launch() -> Any:
            more = {"benchmark_run": True} if benchmark_run else {}
            return original(tuner, *args, stream=stream, **more, **kwargs)

        on_gpu = not benchmark_run and inductor_parts.runs_on_gpu(tuner)
        if on_gpu and capture.records_launch(inductor_parts.kernel_word(tuner)):
            return InductorLaunch(capture, tuner, args, kwargs, launch, choices).make()
        return launch()

    return run
