"""A run over many cases: one backend, one baseline folder, one cache."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.policy import Update, Verdict
from kerntune.capture import Capture, Site, current
from kerntune.compiling.compiler import Compiler
from kerntune.errors import CacheMissError, ConfigError, StoreError, UsageError
from kerntune.gate.baselines import Argument, BaselineStore, StaticBaseline, TimeBaseline, fingerprint_of
from kerntune.gate.call import Call, Checked, Settings
from kerntune.gate.damage import Damage
from kerntune.gate.decision import Evidence, decide
from kerntune.gate.fingerprint import tensor_arguments
from kerntune.gate.gpu_check import TimedCheck
from kerntune.gate.precompiled import unseen_text, watched
from kerntune.gate.reference import compare_reference
from kerntune.gate.reference_baselines import Yardstick
from kerntune.gate.renamed import Renames, renamed_to
from kerntune.gate.static_check import check_static, stored_configs
from kerntune.gpu.base import Backend, Gpu
from kerntune.gpu.cuda import CudaGpu
from kerntune.gpu.probe import find_backend
from kerntune.kernels import compat
from kerntune.static.metrics import DISASSEMBLER
from kerntune.timing.worker.pool import LocalPairs, Pairs, WorkerPool
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.cache.listings import ListingCache
from kerntune.tuning.captured_launch import CapturedLaunch
from kerntune.tuning.isolation import Isolate, Isolation
from kerntune.tuning.stored_trials import Trials
from kerntune.tuning.stored_winners import Winners, candidate_of
from kerntune.tuning.tune_options import options_of_policy
from kerntune.tuning.untuned import launches_nothing

NO_LAUNCH = "no Triton kernel was launched in this call, so nothing was checked"


def open_session(settings: Settings, backend: Backend | None = None) -> Session:
    """A session on ``backend``, or on what this machine has. UsageError where nothing can be done."""
    store = BaselineStore(settings.baselines, settings.root)
    return Session(settings, backend or find_backend(settings.targets, store.targets()), store)


class Session:
    """Checks calls. :meth:`start` before users' modules are imported, :meth:`close` at the end."""

    def __init__(self, settings: Settings, backend: Backend, store: BaselineStore) -> None:
        self.settings, self.backend, self.store = settings, backend, store
        self._compiler = Compiler()
        self._cache = WinnerCache(settings.cache_dir)
        self._stack = contextlib.ExitStack()
        self._seen: dict[CaseId, set[str]] = {}
        self._damage = Damage()
        self._pairs = pairs_for(backend)
        self._isolations: dict[Isolate, Isolation] = {}
        self._decisions = itertools.count(1)
        self.yard = store
        self.anchor: BaselineStore | None = None
        self.renames = Renames((), settings.update)
        if settings.anchor is not None:
            self.anchor_at(settings.anchor)
        if settings.yardstick is not None:
            self.hold_against(settings.yardstick, settings.yardstick_name)

    def hold_against(self, folder: Path, name: str) -> None:
        """Take the baselines of ``folder``, called ``name``, for the measure; they are still written to the store's."""
        self.settings = replace(self.settings, yardstick=folder, yardstick_name=name)
        self.yard = Yardstick(folder, self.store, self.settings.read_only, name)

    def tests_gone(self, gone: Callable[[str], bool], anchor: Path | None = None) -> None:
        """Look for old names of cases among the tests that ``gone`` says are no more, by node id. Where baselines are
        another revision's, nothing is moved; else those of ``anchor`` (a folder of the project's) are as well."""
        fixed = self.settings.yardstick is not None or self.settings.read_only
        stores = (self.store, *([BaselineStore(anchor)] if anchor is not None else []))
        self.renames = Renames(stores, Update.NONE if fixed else self.settings.update, gone)

    def anchor_at(self, folder: Path, name: str = "") -> None:
        """Hold every case against the baselines of ``folder``, called ``name``, too."""
        self.anchor, self._anchor_name = BaselineStore(folder), name or self.store.shown(folder)

    @property
    def device(self) -> str:
        """What users' tests create tensors on."""
        return self.backend.torch_device

    @property
    def static(self) -> bool:
        """Whether nothing can run here: tests run on stand-ins."""
        return self.backend.gpu is None

    @property
    def compiled_for(self) -> tuple[str, ...]:
        """The targets that kernels are compiled for where nothing can run; empty with a GPU."""
        return tuple(map(str, self.backend.targets)) if self.static else ()

    def share(self, index: int, count: int) -> None:
        """This process is number ``index`` of ``count`` that share a run: every ``count``-th decision is its own, so
        that all together spend the run's error once."""
        self._decisions = itertools.count(index + 1, count)

    def narrow(self) -> tuple[str, ...]:
        """Answer for the first target alone from now on; the others, which a process of their own answers for."""
        from kerntune.gpu.compile_only import StaticBackend  # brings torch along, which commands do without

        others = self.compiled_for[1:]
        if isinstance(self.backend, StaticBackend):
            self.backend.targets = self.backend.targets[:1]
        return others

    def header(self) -> list[str]:
        """Where this run takes place, for pytest's header."""
        if self.static:
            place = f"no GPU: compiling for {', '.join(map(str, self.backend.targets))}"
        else:
            place = f"{self.backend.spec.name} ({self.backend.spec.target})"
        versions = f"Triton {compat.triton_version()}, torch {compat.torch_version()}"
        anchored = [] if self.anchor is None else [f"anchor {self._anchor_name}"]
        return [f"{place}, {versions}", self._measure(), *anchored]

    def _measure(self) -> str:
        """What this run is held against."""
        name = self.settings.yardstick_name
        if self.settings.read_only:
            return f"held against {name}, compiled and replayed today"
        return f"baselines {self.store.folder}" + (f" as of {name}" if name else "")

    def start(self) -> None:
        """Install stand-ins where there is no GPU."""
        compat.take_announcements()
        self._stack.enter_context(compat.without_line_info())
        self._stack.enter_context(DISASSEMBLER.remembering(ListingCache(self.settings.cache_dir)))
        self._stack.enter_context(self.backend.activate())

    def close(self) -> None:
        """Undo :meth:`start` and end all processes."""
        self._pairs.close()
        for isolation in self._isolations.values():
            isolation.close()
        self._compiler.close()
        self._stack.close()

    def static_end(self, error: BaseException) -> str | None:
        """Why a test body could not go on with stand-ins; None for a genuine failure."""
        return self.backend.end_reason(error)

    def check(self, call: Call, progress: Callable[[str], None] = lambda text: None) -> Checked:
        """Run the call once, compare it with its reference, tune, time and judge what it launched."""
        if call.scope not in ("kernels", "op"):
            raise UsageError(f"{call.case}: scope is {call.scope!r}; it can be 'kernels' or 'op'")
        arguments = tensor_arguments(self.backend, (call.fn, call.args, call.kwargs))
        with self._lock():
            capture, value, unseen, ended = self._capture(call, arguments)
            call, remark = self._compared(call, value) if ended is None else (call, self._cut_short(ended))
            if unseen:
                return self._incomplete(call, value, unseen_text(unseen))
            _refuse_unmet(call, capture)
            if not capture.launches:
                return self._incomplete(call, value, NO_LAUNCH)
            if self.backend.gpu is None:
                checked = self._check_static(call, capture, arguments, value, remark)
                return replace(checked, ended=ended)
            winners = self._winners(call, self.backend.gpu)
            timed = TimedCheck(
                self.backend,
                self.store,
                winners,
                self._pairs,
                call,
                capture,
                arguments,
                self.settings,
                progress,
                yard=self.yard,
                anchor=self.anchor,
                next_decision=lambda: next(self._decisions),
                renames=self.renames,
                isolation=self._isolation_for(call),
            )
            self._note(call, timed.fingerprint)
            return timed.run(value)

    def stale(self, ran: Collection[str], selected_all: bool) -> list[CaseResult]:
        """Baselines of this device (or of these targets) whose case ran but is no more, or whose test is gone.

        ``ran`` are the node ids that ran; ``selected_all`` tells that the run was not narrowed.
        """
        if self.settings.read_only:
            return []
        out: list[CaseResult] = []
        mine = self._mine()
        living = [b for _, b in mine if not isinstance(b, StoreError) and b.case.nodeid in ran]
        for path, baseline in mine:
            if isinstance(baseline, StoreError):
                continue  # who knows of what
            case = baseline.case
            gone = case.nodeid in ran and baseline.fingerprint not in self._seen.get(case, set())
            if gone or (selected_all and case.nodeid not in ran):
                why = "its test ran, but not with this call, shape, dtype or stride" if gone else "its test is gone"
                why += "" if gone else renamed_to(baseline, living)
                out.append(self._stale(baseline, self.store.shown(path), why))
        return out

    def unreadable(self) -> dict[Path, str]:
        """Why some baselines of this device (or of these targets) can't be read, by path."""
        return {path: str(found) for path, found in self._mine() if isinstance(found, StoreError)}

    # steps of a check

    def _lock(self) -> contextlib.AbstractContextManager[None]:
        return self.backend.gpu.lock() if self.backend.gpu is not None else contextlib.nullcontext()

    def _capture(self, call: Call, arguments: tuple[Argument, ...]) -> tuple[Capture, Any, list[str], Exception | None]:
        """What the call launched, what it returned, the kernels that it launched unseen, and why it came to no end
        after its launches where there is no GPU."""
        prefer, before = self._preference(call, arguments), self._before_launch(call)
        capture = Capture(self.backend, self._compiler, call.candidates, prefer, before_launch=before)
        value, ended = None, None
        with watched() as unseen, capture.active():
            try:
                value = call.fn(*call.args, **call.kwargs)
            except Exception as exc:
                if not capture.launches or self._needs_values(exc) is None:
                    raise
                ended = exc
        if self.backend.gpu is not None:
            self.backend.gpu.synchronize()
        return capture, value, unseen, ended

    def _needs_values(self, error: BaseException) -> str | None:
        """Why an error says only that there is no GPU here; None for all others, and for all where there is one."""
        return self.static_end(error) if self.static else None

    def _cut_short(self, error: BaseException) -> str:
        reason = self._needs_values(error)
        return f"the function stopped where it needs results of a GPU ({reason}); what it launches after isn't judged"

    def _winners(self, call: Call, gpu: Gpu) -> Winners:
        return Winners(self._cache, self.settings.tune, gpu, options_of_policy(call.policy).verification.lax)

    def _isolation_for(self, call: Call) -> Isolation | None:
        """Where the configs of a call's launches run first; one process for the whole run."""
        if self.backend.gpu is None:
            return None
        mode = options_of_policy(call.policy).isolate
        if mode not in self._isolations:
            self._isolations[mode] = Isolation(self.backend.gpu, mode)
        return self._isolations[mode]

    def _before_launch(self, call: Call) -> CapturedLaunch | None:
        isolation = self._isolation_for(call)
        if isolation is None or not isolation.wanted or self.backend.gpu is None:
            return None
        return CapturedLaunch(isolation, Trials(self._winners(call, self.backend.gpu)))

    def _preference(self, call: Call, arguments: tuple[Argument, ...]) -> Callable[[Site], Sequence[int]]:
        if self.backend.gpu is not None:
            winners, isolation = self._winners(call, self.backend.gpu), self._isolation_for(call)
            assert isolation is not None

            def known_first(site: Site) -> Sequence[int]:
                site.proven = _known(winners, site)
                if site.proven is None:
                    isolation.begin()  # it will be wanted once the first is compiled
                return _first(site.proven, len(site.candidates))

            return known_first
        target = self.backend.targets[0]
        fingerprint = fingerprint_of(arguments) if arguments else None
        stored = stored_configs(self.yard, call, target, fingerprint, self.settings.update)

        def prefer(site: Site) -> Sequence[int]:
            configs = stored.get(site.kernel) or self.renames.configs(call.case, fingerprint).get(site.kernel, [])
            known = (candidate_of(site, config) for config in configs)
            return _first(next((i for i in known if i is not None), None), len(site.candidates))

        return prefer

    def _compared(self, call: Call, value: Any) -> tuple[Call, str]:
        """The call, whose reference is asked once: what it is computed from may have changed later. A remark if it
        can't be computed without a GPU."""
        if call.reference is None:
            return call, ""
        try:
            expected = call.reference()
            compare_reference(value, expected, rtol=call.rtol, atol=call.atol, case=str(call.case))
        except Exception as exc:
            reason = self._needs_values(exc)
            if reason is None:
                raise
            return replace(call, reference=None), f"reference not computed: {reason}"
        return replace(call, reference=lambda: expected), ""

    def _check_static(
        self, call: Call, capture: Capture, arguments: tuple[Argument, ...], value: Any, remark: str
    ) -> Checked:
        found = [
            check_static(
                self.yard,
                call,
                capture,
                target,
                arguments,
                self.settings.update,
                self._damage,
                self.renames,
                self.anchor,
            )
            for target in self.backend.targets
        ]
        for result, _ in found:
            self._note(call, result.fingerprint)
        pending = tuple(replace(p, write=p.write and not self.settings.read_only) for _, p in found)
        remarks = (remark,) if remark else ()
        results = tuple(msgspec.structs.replace(r, warnings=(*r.warnings, *remarks)) for r, _ in found)
        return Checked(value, results, pending, self.store)

    def _incomplete(self, call: Call, value: Any, why: str) -> Checked:
        verdict = decide(Evidence(launched=0), call.policy)
        result = CaseResult(
            case=call.case,
            fingerprint="",
            verdict=verdict,
            outcome=call.policy.outcome(verdict),
            message=f"{verdict.value} {call.case}: {why}",
            target=str(self.backend.targets[0]),
        )
        return Checked(value, (result,))

    # stale baselines

    def _note(self, call: Call, fingerprint: str) -> None:
        self._seen.setdefault(call.case, set()).add(fingerprint)

    def _mine(self) -> list[tuple[Path, TimeBaseline | StaticBaseline | StoreError]]:
        """The baselines that this run could have met, or why one can't be read."""
        found: list[tuple[Path, TimeBaseline | StaticBaseline | StoreError]] = []
        for path, read in self._files():
            try:
                baseline = read(path)
            except StoreError as exc:
                found.append((path, exc))
            else:
                found += [(path, baseline)] if baseline is not None else []
        return found

    def _files(self) -> list[tuple[Path, Callable[[Path], TimeBaseline | StaticBaseline | None]]]:
        spec, series = self.backend.spec, compat.triton_series()
        if not self.static:
            return [(p, self.store.read_time) for p in self.store.time_files(spec.slug, spec.target.slug)]
        targets = [t.slug for t in self.backend.targets]
        return [(p, self.store.read_static) for slug in targets for p in self.store.static_files(slug, series)]

    def _stale(self, baseline: TimeBaseline | StaticBaseline, path: str, why: str) -> CaseResult:
        target = baseline.target if isinstance(baseline, StaticBaseline) else baseline.device.target
        return CaseResult(
            case=baseline.case,
            fingerprint=baseline.fingerprint,
            verdict=Verdict.STALE,
            outcome=self.settings.policy.outcome(Verdict.STALE),
            message=f"STALE {baseline.case}: {why}; `kerntune baselines prune` removes {path}",
            target=str(target),
            baseline_path=path,
        )


def _refuse_unmet(call: Call, capture: Capture) -> None:
    launched = sorted({p.kernel for p in capture.launches})
    unmet = sorted(set(call.candidates) - set(launched))
    if unmet and launched:
        raise ConfigError(
            f"{call.case}: candidates are given for {', '.join(unmet)}, which this call doesn't launch; "
            f"it launches {', '.join(launched)}"
        )


def pairs_for(backend: Backend) -> Pairs:
    """Fresh processes on a real device; a scripted one answers itself."""
    if isinstance(backend.gpu, CudaGpu):
        return WorkerPool(backend.gpu.ordinal)
    return LocalPairs(backend.gpu)


def _known(winners: Winners, site: Site) -> int | None:
    """The stored winner; a call that launches nothing needs none even under ``frozen``, for it never gets one."""
    try:
        return winners.find(site)
    except CacheMissError:
        capture = current()
        if capture is None or not launches_nothing(capture, site):
            raise
        return None


def _first(index: int | None, count: int) -> list[int]:
    rest = [i for i in range(count) if i != index]
    return rest if index is None else [index, *rest]
