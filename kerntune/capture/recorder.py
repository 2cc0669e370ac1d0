"""Turns a capture into a recording: compiled and flattened."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace as _replace

from kerntune.base.recording import Binary, Launch, Param, Recording
from kerntune.base.roofline import PointerAccess
from kerntune.capture import Capture, Probe
from kerntune.capture.memory_plan import Plan
from kerntune.compiling.compiler import Compiled
from kerntune.errors import CaptureError, EnvironmentFault, KerntuneError, TrialError
from kerntune.gpu.memory import Source
from kerntune.kernels.source import GeneratedFrom, generated, lines_of, origins_of, source_hash
from kerntune.kernels.specialize import Specialized, pointer_views


@dataclass
class Recorded:
    """A recording, and the bytes of its binaries and TTIR by checksum.

    ``failures`` has, per launch that can't be compiled, the reason.
    """

    recording: Recording
    artifacts: dict[str, bytes] = field(default_factory=dict)
    asm: dict[str, str] = field(default_factory=dict)
    """Assembly text by the checksum of the binary it became."""

    compiled: dict[tuple[str, str], Compiled] = field(default_factory=dict)
    """What is known of a compilation beside its binary, by the checksums of the binary and its TTIR."""

    made_from: dict[str, GeneratedFrom] = field(default_factory=dict)
    """What generated kernels were made from, by the hash of their source."""

    failures: dict[int, TrialError] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    """Per storage its first content on the device; empty where nothing runs."""

    unsaved: str = ""
    """Why the launches can't be run again (:attr:`kerntune.capture.memory_plan.Plan.unsaved`); empty where they can."""

    lines: tuple[tuple[str, ...], ...] = ()
    """Per launch the users' lines that a generated kernel comes from."""

    writes_outside: bool = False
    """Whether some launches are known to write outside of their tensors: they run again in memory that is spaced
    (:class:`kerntune.gpu.memory.Memory`) alone."""

    @property
    def accesses(self) -> dict[int, PointerAccess]:
        """By launch, which pointers its compiled code reads and writes."""
        found: dict[int, PointerAccess] = {}
        for index, launch in enumerate(self.recording.launches):
            binary = self.recording.binary_of(launch)
            compiled = self.compiled.get((binary.sha256, binary.ttir_sha256))
            if compiled is not None:
                found[index] = (compiled.access.reads, compiled.access.writes)
        return found


def record(capture: Capture) -> Recorded:
    """The capture's launches. Compiles what isn't compiled yet.

    :class:`EnvironmentFault` where this machine doesn't let the compiler work: nothing is known of the launches then.
    """
    compiler, plan, target = capture.compiler, capture.plan, capture.backend.spec.target
    compiler.compile_all([pending.specialized for pending in capture.launches if pending.made is None])
    if capture.at_once and plan.moved():
        raise CaptureError("a tensor that a kernel was launched on has other memory since, as x.data = y and set_ do")
    launches: list[Launch] = []
    binaries: list[Binary] = []
    lines: list[tuple[str, ...]] = []
    out = Recorded(Recording(target, (), (), (), ()))
    for index, pending in enumerate(capture.launches):
        try:
            if isinstance(pending.made, KerntuneError):
                raise pending.made
            compiled = compiler.compile(pending.specialized) if pending.made is None else pending.made.compiled
        except EnvironmentFault:
            raise
        except TrialError as exc:
            out.failures[index] = exc
            continue
        if compiled.binary not in binaries:
            binaries.append(compiled.binary)
        launch = pending.specialized
        params = plan.params_of(launch, compiled) if pending.made is None else pending.made.params
        recorded = make_launch(plan, launch, compiled, pending.grid, params=params)
        launches.append(_replace(recorded, config=pending.config, binary=binaries.index(compiled.binary)))
        lines.append(lines_of(launch.jit))
        kernel = generated(launch.jit)
        if kernel is not None and kernel.made_from is not None:
            out.made_from[recorded.source] = kernel.made_from
        keep(out, compiled)
    out.recording = Recording(
        target=target,
        launches=tuple(launches),
        binaries=tuple(binaries),
        storages=plan.storages({i for x in launches for i in x.reads}, {i for x in launches for i in x.writes}),
        views=plan.views,
        hidden_pointers=plan.hides_pointers(p for x in launches for p in x.params),
        choices=capture.choices.winners,
    )
    out.lines = tuple(lines)
    if capture.backend.gpu is not None:
        out.sources, out.unsaved = plan.sources(), plan.unsaved
    return out


def make_launch(
    plan: Plan,
    launch: Specialized,
    compiled: Compiled,
    grid: tuple[int, int, int],
    source: str = "",
    params: tuple[Param, ...] | None = None,
) -> Launch:
    """One launch as data; its ``binary`` index is for the caller to set. ``source`` is the kernel's hash, and
    ``params`` are its parameters, if known."""
    params, access = plan.params_of(launch, compiled) if params is None else params, compiled.access
    views = pointer_views(params)
    beyond = plan.beyond(access) if 0 not in grid else []
    return Launch(
        kernel=launch.name,
        source=source or source_hash(launch.jit),
        binary=0,
        grid=grid,
        params=params,
        reads=tuple(sorted({*plan.touched(views, access.reads), *beyond})),
        writes=tuple(sorted({*plan.touched(views, access.writes), *beyond})),
        float_atomics=access.float_atomics,
        origins=origins_of(launch.jit),
    )


def with_candidate(
    recorded: Recorded, capture: Capture, index: int, probe: Probe, candidate: int, compiled: Compiled
) -> Recording:
    """The recording with launch ``index`` as candidate ``candidate``, compiled, would run it."""
    keep(recorded, compiled)
    pending = capture.launches[index]
    site = pending.site
    assert site is not None
    known = recorded.recording.launches[index].source if pending.jit is probe.specialized.jit else ""
    launch = make_launch(capture.plan, probe.specialized, compiled, probe.grid, known)
    launch = _replace(launch, config=site.candidates[candidate].config)
    views = capture.plan.views
    if any(p.view is not None and views[p.view].storage >= len(recorded.recording.storages) for p in launch.params):
        unknown = "it is launched on a tensor that the recorded run did not have"
        raise TrialError(f"{unknown}, so it can't be timed beside it")
    recording = _replace(recorded.recording, views=views)  # a candidate may look at the same memory in another way
    return recording.with_launch(index, launch, compiled.binary)


def keep(recorded: Recorded, compiled: Compiled) -> None:
    """Add a compiled kernel's bytes, TTIR and assembly."""
    recorded.artifacts[compiled.binary.sha256] = compiled.data
    recorded.artifacts[compiled.binary.ttir_sha256] = compiled.ttir.encode()
    recorded.asm[compiled.binary.sha256] = compiled.asm
    recorded.compiled[compiled.binary.sha256, compiled.binary.ttir_sha256] = compiled
