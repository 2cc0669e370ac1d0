"""The config that a captured call launches first runs in a process of its own before it runs on the user's tensors."""

from __future__ import annotations

from dataclasses import dataclass

from kerntune.base.case_result import is_fault
from kerntune.base.recording import Recording
from kerntune.capture import Capture, Pending, Probe
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
        self._launch_elsewhere(capture, pending, launch, compiled)

    def _launch_elsewhere(self, capture: Capture, pending: Pending, launch: Specialized, compiled: Compiled) -> None:
        plan, gpu = capture.plan, self.isolation.gpu
        made = make_launch(plan, launch, compiled, pending.grid)
        storages = plan.storages(set(made.reads), set(made.writes))
        hides = plan.hides_pointers(made.params)
        recording = Recording(launch.target, (made,), (compiled.binary,), storages, plan.views, hides)
        sources = [Source(gpu.borrow(tensor), shared=True) for tensor in plan.tensors()]
        first = FirstLaunches(self.isolation, pending.kernel, Memory(gpu, storages, sources))
        try:
            first.run(recording, {compiled.binary.sha256: compiled.data}, {})
        finally:
            first.close()
