"""The config that a captured call launches first runs in a process of its own before it runs on the user's tensors."""

from __future__ import annotations

from dataclasses import dataclass

from kerntune.base.case_result import is_fault
from kerntune.base.recording import Recording
from kerntune.capture import Capture, Pending, Probe
from kerntune.capture.memory_plan import Plan
from kerntune.capture.recorder import make_launch
from kerntune.compiling.compiler import Compiled
from kerntune.errors import LaunchFault
from kerntune.gpu.memory import Memory, Source
from kerntune.kernels.specialize import Specialized
from kerntune.tuning.first_launches import FirstLaunches
from kerntune.tuning.isolation import Isolation
from kerntune.tuning.stored_trials import Trials


@dataclass(frozen=True)
class CapturedLaunch:
    """Called before a launch whose config was open (:attr:`kerntune.capture.Capture.before_launch`). What earlier runs
    have launched is not launched elsewhere again, and what faulted there is not launched at all."""

    isolation: Isolation
    trials: Trials

    def __call__(self, capture: Capture, pending: Pending, compiled: Compiled) -> None:
        """:class:`LaunchFault` if the launch must not be."""
        site, launch = pending.site, pending.specialized[capture.backend.targets[0]]
        assert site is not None
        assert isinstance(launch, Specialized)
        if site.chosen == site.proven:
            return
        known = self.trials.at(site).known({site.chosen: Probe(launch, pending.grid)})
        failed = known.failed.get(site.chosen)
        if failed is not None and is_fault(failed.failure):
            fault = LaunchFault(failed.failure)
            fault.remembered = True
            raise fault
        if site.chosen in known.ran or not self.isolation.wanted:
            return
        launch_elsewhere(self.isolation, capture.plan, Probe(launch, pending.grid), compiled)


def launch_elsewhere(isolation: Isolation, plan: Plan, probe: Probe, compiled: Compiled) -> str:
    """Launch it in the other process on what its tensors hold now; why that can't be, empty if it was done.
    :class:`LaunchFault`, and :class:`OutOfResourcesError`, as of a candidate."""
    recording, gpu = recording_of(plan, probe, compiled), isolation.gpu
    sources = [Source(gpu.borrow(tensor), shared=True) for tensor in plan.tensors()]
    first = FirstLaunches(isolation, probe.specialized.name, Memory(gpu, recording.storages, sources))
    try:
        first.run(recording, {compiled.binary.sha256: compiled.data}, {})
        return first.why_not
    finally:
        first.close()


def recording_of(plan: Plan, probe: Probe, compiled: Compiled) -> Recording:
    """The one launch as data, on the plan's storages."""
    made = make_launch(plan, probe.specialized, compiled, probe.grid)
    storages = plan.storages(set(made.reads), set(made.writes))
    target = probe.specialized.target
    return Recording(target, (made,), (compiled.binary,), storages, plan.views, plan.hides_pointers(made.params))
