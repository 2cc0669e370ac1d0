"""A run over many cases: one backend, one baseline folder, one cache."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kerntune.base.case_result import CaseResult, UncheckedValue
from kerntune.base.device import TYPICAL_DEVICES, Target
from kerntune.base.folders import file_in_the_way
from kerntune.base.policy import Policy, Update, Verdict
from kerntune.base.users_line import UsersLine, calling_line
from kerntune.capture import Capture
from kerntune.capture.inductor.compiled_calls import gates_own_caches
from kerntune.compiling.compiler import Compiler
from kerntune.errors import UsageError
from kerntune.gate import device_faults
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import Argument, Baseline
from kerntune.gate.call import Call, Checked, Settings, dumps_asked
from kerntune.gate.call_capture import (
    CapturedCall,
    RecordedCase,
    end_of,
    nothing_judged,
    run_captured,
    stored_first,
    uncheckable,
    with_surroundings,
)
from kerntune.gate.case_identity import Renames, nearest_difference, tensor_arguments
from kerntune.gate.gpu_capture import (
    CaptureShare,
    GpuCapture,
    GpuRun,
    MeasuredGpus,
    call_bytes,
    decision_numbers,
    naming,
)
from kerntune.gate.stores import ReferenceStore, RunBaselines, Stores
from kerntune.gpu.base import Backend
from kerntune.gpu.probe import compiled_targets, devices_used, find_backend
from kerntune.kernels.compat import triton_compiler, versions
from kerntune.kernels.compat.tuners import triton_folder
from kerntune.static.metrics import DISASSEMBLER
from kerntune.tuning.cache.entries import ListingCache, default_folder
from kerntune.tuning.cache.shared_store import open_winners
from kerntune.tuning.choices.choice_place import choices_at, decide_choice
from kerntune.tuning.isolation import unsaid
from kerntune.tuning.stored_winners import Winners
from kerntune.tuning.tune_options import check_variables

if TYPE_CHECKING:
    from kerntune.gate.stopped_tests import StoppedTest


def open_session(settings: Settings, backend: Backend | None = None, *, every_target: bool = False) -> Session:
    """A session on ``backend``, or on what this machine has. UsageError where nothing can be done.

    ``every_target``: where nothing can run, header and baselines are those of all targets that were asked for. Calls
    are checked for the first alone.
    """
    check_variables()  # what only tuning would read of them, too
    folder = settings.cache_dir or default_folder()
    if (file := file_in_the_way(folder)) is not None:
        raise UsageError(f"the cache folder {folder}: {file} is a file; let KERNTUNE_CACHE_DIR name another one")
    store = BaselineStore(settings.baselines, settings.root)
    if backend is not None:
        return Session(settings, backend, store)
    asked = compiled_targets(settings.targets, settings.known_targets(store), store.shown(store.folder))
    mine = asked if every_target else asked[:1]
    return Session(settings, find_backend(asked), store, mine, asked[len(mine) :])


class Session:
    """Checks calls. :meth:`start` before users' modules are imported, :meth:`close` at the end.

    ``targets`` are those whose baselines it has where nothing can run, ``others`` what the run was asked for beside
    them: processes of their own check these.
    """

    def __init__(
        self,
        settings: Settings,
        backend: Backend,
        store: BaselineStore,
        targets: tuple[Target, ...] = (),
        others: tuple[Target, ...] = (),
    ) -> None:
        self.settings, self.backend, self.store = settings, backend, store
        self.targets, self.others = targets or (backend.spec.target,), tuple(map(str, others))
        self._compiler = Compiler()
        self._cache = open_winners(settings.cache_dir)
        self._stack = ExitStack()
        self._baselines = RunBaselines(store, backend, self.targets)
        self._gpus = MeasuredGpus()
        self._crowded = False
        """Whether other processes of this run measure on the same GPU: none of ours may be starting there by then."""

        self._fault = device_faults.Fault(backend.gpu)
        self._not_compared: list[UsersLine] = []
        """Where calls were made whose reference nothing could be held against."""

        self._decisions: Iterator[int] = itertools.count(1)
        self.stores, self._anchor_name = Stores(store, store), ""

    def hold_against(self, folder: Path, name: str) -> None:
        """Compare cases with the baselines of ``folder``, called ``name``; baselines are still written to the store."""
        self.stores = replace(self.stores, reference=ReferenceStore(folder, name, self.settings.read_only))

    def tests_gone(self, gone: Callable[[str], bool], anchor: Path | None = None) -> None:
        """Look for old names of cases among the tests that ``gone`` says, by node id, don't exist any more. Where
        baselines are another revision's, nothing is moved; else those of ``anchor`` (a folder of the project's) are
        as well."""
        fixed = isinstance(self.stores.reference, ReferenceStore)
        stores = (self.stores.reference, *([BaselineStore(anchor)] if anchor is not None else []))
        renames = Renames(stores, Update.NONE if fixed else self.settings.update, gone)
        self.stores = replace(self.stores, renames=renames)

    def anchor_at(self, folder: Path, name: str) -> None:
        """Compare every case with the baselines of ``folder``, called ``name``, too."""
        self.stores, self._anchor_name = replace(self.stores, anchor=BaselineStore(folder)), name

    @property
    def device(self) -> str:
        """What users' tests create tensors on."""
        return self.backend.torch_device

    @property
    def gpus(self) -> int:
        """How many GPUs this process sees; 0 without any."""
        return 0 if self.static else self.backend.count

    @property
    def static(self) -> bool:
        """Whether nothing can run here: tests run on stand-ins."""
        return self.backend.gpu is None

    @property
    def compiled_for(self) -> tuple[str, ...]:
        """The targets that kernels are compiled for where nothing can run; empty with a GPU."""
        return tuple(map(str, self.targets)) if self.static else ()

    def share(self, index: int, count: int, claims: Path | None = None) -> None:
        """This process is number ``index`` of ``count`` that share a run: every ``count``-th decision is its own, so
        that all together spend the run's error once. One that took the place of another has a higher number than
        ``count``; in the folder ``claims`` each number is taken by one process."""
        self._decisions = decision_numbers(index, count, claims)

    def header(self) -> list[str]:
        """Where this run takes place, for pytest's header."""
        if self.static:
            typical = {str(target): TYPICAL_DEVICES.get(str(target)) for target in self.targets}
            figures = {name: f" (figures of {spec.name})" if spec else "" for name, spec in typical.items()}
            named = [f"{name}{of}" for name, of in figures.items()]
            place = f"no GPU: compiling for {', '.join(named)}"
        else:
            place = f"{self.backend.spec.name} ({self.backend.spec.target})"
        installed = f"Triton {versions.triton_version()}, torch {versions.torch_version()}"
        anchored = [] if self.stores.anchor is None else [f"anchor {self._anchor_name}"]
        gpu = self.backend.gpu
        said = [] if gpu is None else [f"not protected: {text}" for text in unsaid(gpu)]  # and no case says it again
        return [f"{place}, {installed}", self._measure(), *anchored, *said]

    def _measure(self) -> str:
        reference = self.stores.reference
        if not isinstance(reference, ReferenceStore):
            return f"baselines {self.store.folder}"
        if reference.alone:
            return f"held against {reference.name}, compiled and replayed today"
        return f"baselines {self.store.folder} as of {reference.name}"

    def start(self) -> None:
        """Install stand-ins where there is no GPU."""
        triton_compiler.take_announcements()
        self._stack.enter_context(triton_compiler.without_line_info())
        self._stack.enter_context(triton_compiler.same_assembler())
        self._stack.enter_context(DISASSEMBLER.remembering(ListingCache(self.settings.cache_dir)))
        if self.static and hasattr(self.backend, "stand_ins"):  # a compiler's crash isn't ours
            self.backend.stand_ins.launches.access_of = lambda launch: self._compiler.compile(launch).access
        self._stack.enter_context(self.backend.activate())

    def close(self) -> None:
        """Undo :meth:`start` and end all processes."""
        self._gpus.close()
        self._compiler.close()
        self._stack.close()

    def static_end(self, error: BaseException) -> str | None:
        """Why a test body could not go on with stand-ins; None for a genuine failure."""
        return self.backend.end_reason(error)

    def stopped(self, nodeid: str, error: BaseException, checks: Sequence[Checked], policy: Policy) -> StoppedTest:
        """What follows for a test whose body stopped by an error of which :meth:`static_end` gives the reason, after
        the calls ``checks``."""
        from kerntune.gate.stopped_tests import stopped_test  # as static_check: not loaded by runs on a GPU

        end = end_of(self.backend, error, self.settings.root)
        assert end is not None
        target = self.backend.spec.target
        return stopped_test(nodeid, end, checks, self.stores, target, self.settings.update, policy)

    def take_unchecked(self) -> tuple[UncheckedValue, ...]:
        """What users' code has compared since the last call of this and what passed unseen, since nothing runs."""
        from kerntune.gpu.fake_cuda.static_backend import StaticBackend  # imports torch, which commands do without

        if not isinstance(self.backend, StaticBackend):
            return ()
        lines = {**self.backend.stand_ins.comparisons.take_unchecked(), **dict.fromkeys(self._not_compared, True)}
        self._not_compared.clear()
        root = self.settings.root
        return tuple(UncheckedValue(f"{x.place(root)}:{x.number}", x.text, asserts) for x, asserts in lines.items())

    def lost(self, *, ask: bool = True) -> str:
        """Why the GPU runs nothing any more in this process; empty while it does, and where there is none. Asking the
        device waits for what it was given; without, this is what is known."""
        return self._fault.known(ask)

    @contextmanager
    def in_turn(self, crowded: bool = True) -> Iterator[None]:
        """Held by whatever runs while no other process measures on the GPUs that this one uses: on its first one, if
        others begin with that as well (``crowded``), and on any other on which it has made tensors. :meth:`check` may
        be called inside of it. :class:`MeasurementError` if others don't end."""
        gpu = self.backend.gpu
        self._crowded = crowded and gpu is not None
        with ExitStack() as stack:
            for number in sorted({*([self.backend.ordinal] if crowded else []), *self._others_used()}):
                if (used := self.backend.on(number).gpu) is not None:
                    stack.enter_context(used.lock_suspendable())
            yield

    def _others_used(self) -> set[int]:
        """The numbers of GPUs other than this process's first on which it has made tensors: whose they are, another
        worker's most likely, isn't known."""
        return set() if self.gpus < 2 else {i for i in devices_used() if i < self.gpus} - {self.backend.ordinal}

    def check(self, call: Call, progress: Callable[[str], None] = lambda text: None) -> Checked:
        """Run the call once, compare it with its reference, tune, time and judge what it launched.

        :class:`DeviceFault` if the GPU runs nothing any more after that.
        """
        with self._fault.named(call.case), self._compiler.telling(progress):
            return self._check(call, progress)

    def _check(self, call: Call, progress: Callable[[str], None]) -> Checked:
        if call.scope not in ("kernels", "op"):
            raise UsageError(f"{call.case}: scope is {call.scope!r}; it can be 'kernels' or 'op'")
        arguments = tensor_arguments(self.backend, (call.fn, call.args, call.kwargs))
        if self.static:
            return self._checked(call, arguments, progress)
        with choices_at(self._run.choice_place(call, arguments, self.backend.on(self.backend.current()))):
            return self._checked(call, arguments, progress)

    def _checked(self, call: Call, arguments: tuple[Argument, ...], progress: Callable[[str], None]) -> Checked:
        progress("running the call")
        captured = self._captured(call, arguments)
        if uncheckable(captured) or not captured.capture.launches:
            return nothing_judged(captured)
        gpu = captured.capture.backend.gpu
        if gpu is None:
            return self._check_static(captured, progress)
        from kerntune.gate.call_tuning import tuning_turns  # with a GPU alone, as gpu_check

        said = progress if self.backend.count == 1 else naming(gpu, progress)
        winners = self._run.winners(call, gpu)
        with gpu.entered(), tuning_turns(winners, captured.capture, gpu) as turns, gpu.lock():
            checked = self._check_timed(captured, winners, said, turns.close)
            if self._crowded:
                self._gpus.of(captured.capture.backend).pairs.settle()
            return checked

    def stale(self, ran: Collection[str], selected_all: bool) -> list[CaseResult]:
        """Baselines of this device (or of these targets) whose case's test ran without it, or whose test is gone.

        ``ran`` are the node ids that ran; ``selected_all`` tells that the run was not narrowed.
        """
        if self.settings.read_only:
            return []
        return self._baselines.stale(ran, self.settings.policy, selected_all=selected_all)

    def unreadable(self) -> dict[Path, str]:
        """Why some baselines of this device (or of these targets) can't be read, by path."""
        return self._baselines.unreadable()

    # steps of a check

    def _captured(self, call: Call, arguments: tuple[Argument, ...]) -> CapturedCall:
        """The call, run once, on the GPU that it launches on, while no process measures there."""
        if self.backend.gpu is None:
            prefer = stored_first(self.stores, call, self.backend.spec.target, arguments, self.settings.update)
            given, root = call.candidates, self.settings.root
            capture = Capture(self.backend, self._compiler, given, prefer=prefer, values=call.values, root=root)
            return run_captured(capture, call, arguments)
        decide_choice(call.fn, call.args, call.kwargs)
        with CaptureShare(call_bytes(self.backend, (call.fn, call.args, call.kwargs))) as share:
            here = self.backend.on(self.backend.current())
            own = GpuCapture(self._run, call, arguments, share, self.backend)
            own.move(here)
            place = self._run.choice_place(call, arguments, here, own.apart)
            folder = (self.settings.cache_dir or default_folder()) / "inductor"
            with gates_own_caches(folder, triton_folder()), choices_at(place):
                return run_captured(own.capture(self._compiler), own.call(), arguments)

    @property
    def _run(self) -> GpuRun:
        decisions = partial(next, self._decisions)
        return GpuRun(self.stores, self.settings, self._cache, self._gpus, self._fault.watch, decisions)

    def _check_static(self, captured: CapturedCall, progress: Callable[[str], None]) -> Checked:
        from kerntune.gate.static_check import check_static  # not loaded by runs on a GPU

        remarks = [captured.remark] if captured.remark else []
        progress(f"reading the code of what it launched ({len(captured.capture.launches)})")
        unheld = captured.remark or (captured.ended is not None and captured.call.reference is not None)
        if unheld and (line := calling_line()) is not None:
            self._not_compared.append(line)
        if dumps_asked():
            from kerntune.gate.case_output import dumped

            remarks += dumped(captured.recorded(self.stores.reference))
        result, pending = check_static(self.stores, captured, self.settings.update, code=self.settings.code_changes)
        self._baselines.note(captured.call.case, result.fingerprint, pending.baseline.arguments)
        pending = pending._replace(write=pending.write and not self.settings.read_only)
        result = with_surroundings(self._beside_stored(result, pending.baseline), captured, remarks)
        return Checked(captured.value, result, pending, self.store, ended=captured.ended)

    def _check_timed(
        self, captured: CapturedCall, winners: Winners, progress: Callable[[str], None], tuned: Callable[[], None]
    ) -> Checked:
        from kerntune.gate.gpu_check import TimedCheck  # not loaded by runs without a GPU

        timed = TimedCheck(self._run, captured, winners, progress, tuned)
        self._baselines.note(captured.call.case, timed.case.fingerprint, timed.case.arguments)
        checked = timed.run()
        case = timed.case
        said: list[str] = []
        if dumps_asked() or self.settings.profile is not None:
            from kerntune.gate.case_output import dumped, profiled  # most runs ask for neither

            said = [*dumped(case), *profiled(case, self.settings.profile)]
        result = self._beside_stored(checked.result, case)
        return checked._replace(result=with_surroundings(result, captured, said))

    def _beside_stored(self, result: CaseResult, today: Baseline | RecordedCase) -> CaseResult:
        """A NEW case with what tells it from the nearest stored one of its name: shapes that differ from run to run
        make a new case of each."""
        if result.verdict is not Verdict.NEW:
            return result
        target = Target.parse(result.target)
        stored = self.stores.reference.known_arguments(target, result.case)
        told = nearest_difference(today.arguments, stored)
        if not told:
            return result
        remark = f"near a stored case of this call: {told}"
        message, remarks = f"{result.message}, {remark}", (*result.remarks, remark)
        return result.but(message=message, remarks=remarks)
