"""A call of a test, run once: what it launched and returned, and the case that it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kerntune.base.case_result import CaseId, CaseResult, CodeChange, End, incomplete_result
from kerntune.base.device import Target
from kerntune.base.operator_list import MAX_PLACES, OperatorList
from kerntune.base.policy import Update, Verdict
from kerntune.base.recording import Recording
from kerntune.base.roofline import bytes_moved, matmul_dtype
from kerntune.base.users_line import UsersLine, chain, line_of_error
from kerntune.capture import Capture, Site, current
from kerntune.capture.recorder import Recorded, record
from kerntune.errors import CacheMissError, ConfigError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import Argument, fingerprint_of
from kerntune.gate.call import Call, Checked, compare_call
from kerntune.gate.case_identity import case_inputs, tensor_leaves
from kerntune.gate.static_figures import LaunchStatics
from kerntune.gate.stores import Stores, stored_configs
from kerntune.gpu.base import Backend, Gpu
from kerntune.kernels.compat import triton_compiler
from kerntune.kernels.compat.inductor_parts import GATE_OFF
from kerntune.tuning.stored_winners import Winners, candidate_of

Preference = Callable[[Site], Sequence[int]]
"""The order in which a site's candidates are tried while a call is captured."""


class CapturedCall(NamedTuple):
    """A call that has run once, with ``arguments`` as its tensors, and the ``value`` that it returned.

    ``unseen`` are the names of kernels that it launched unrecorded. ``ended`` is what it raised after its launches
    because it needs a GPU's results where there is none, and ``end`` where (or where it asked for one and caught the
    error); ``remark`` says what else could not be done for want of them.
    """

    call: Call
    capture: Capture
    arguments: tuple[Argument, ...]
    value: Any = None
    unseen: Sequence[str] = ()
    ended: Exception | None = None
    end: End | None = None
    remark: str = ""

    def recorded(self, store: BaselineStore) -> RecordedCase:
        """The case. A closure's, which takes no tensors itself, has those that its kernels read; ``store`` has what is
        known of it."""
        recorded = record(self.capture)
        target = recorded.recording.target
        arguments = self.arguments or case_inputs(store, target, self.call.case, recorded.recording)
        if recorded.failures:  # what these launches would write isn't known
            return RecordedCase(self.call, self.capture, recorded, arguments)
        given, results = self._given_and_results()
        operators = self.capture.operators
        plan, recording = self.capture.plan.tensors(), recorded.recording
        listed = operators.summary(recording, recorded.accesses, plan, given, results)
        compiled = self.capture.compiled
        listed = listed.but(graphs=compiled.graphs, breaks=tuple(compiled.breaks[:MAX_PLACES]))
        names = operators.arguments_of(results, recording, plan)
        return RecordedCase(self.call, self.capture, recorded, arguments, listed, names)

    def _given_and_results(self) -> tuple[list[Any], list[Any]]:
        backend, call = self.capture.backend, self.call
        given = tensor_leaves(backend, (call.fn, call.args, call.kwargs))
        gradients = [x.grad for x in given if x.is_leaf and x.grad is not None]
        return given, [*tensor_leaves(backend, self.value), *gradients]


class RecordedCase(NamedTuple):
    """A captured call. ``recorded`` changes while the call is tuned: it has what the winners launch."""

    call: Call
    capture: Capture
    recorded: Recorded
    arguments: tuple[Argument, ...]
    operators: OperatorList | None = None
    result_arguments: frozenset[str] = frozenset()
    """Arguments of launches that hold what the call returned, and gradients."""

    @property
    def id(self) -> CaseId:
        """The case's identity, without its fingerprint."""
        return self.call.case

    @property
    def fingerprint(self) -> str:
        """What tells the case from others of the same call."""
        return fingerprint_of(self.arguments)

    @property
    def recording(self) -> Recording:
        """What the call launches, as far as it is tuned by now."""
        return self.recorded.recording

    def code_changes(
        self, store: BaselineStore, before: LaunchStatics, today: LaunchStatics, recording: Recording | None = None
    ) -> tuple[CodeChange, ...]:
        """The hunks of code by which ``today``'s launches differ from those of a baseline in ``store``, whose
        ``recording`` is that of a device, where there is one."""
        from kerntune.gate.code_changes import Side, code_changes  # few runs write reports

        binaries = () if recording is None else recording.binaries
        stored = Side("baseline", store.artifacts(self.recording.target), binaries)
        return code_changes(before, stored, today, self.recorded, self.capture.compiler.farm)

    def rates_in(self, result: CaseResult, gpu: Gpu, cache: Path) -> CaseResult:
        """A result with what the call moves and computes, and what ``gpu`` reaches of both; ``cache`` is the folder in
        which the latter is stored."""
        from kerntune.tuning.device_figures import device_bandwidth, device_matmul  # with a GPU

        call, dtype = self.call, matmul_dtype(self.recording) if self.call.flops else ""
        moved = call.bytes if call.bytes is not None else bytes_moved(self.recording, self.recorded.accesses)
        return result.but(
            flops=call.flops,
            bytes_moved=moved,
            bandwidth=device_bandwidth(gpu, cache),
            matmul_dtype=dtype,
            matmul_peak=device_matmul(gpu, cache, dtype),
        )


def run_captured(capture: Capture, call: Call, arguments: tuple[Argument, ...]) -> CapturedCall:
    """Run the call and compare its result with its reference.

    :class:`ConfigError` where it was given candidates, or values, for kernels that it doesn't launch.
    """
    backend, root = capture.backend, capture.root
    value, ended = None, None
    if backend.gpu is None:
        backend.tensors.take_unanswered()
    with watched() as unseen, capture.active(), capture.compiled_functions(), capture.operators_watched():
        try:
            value = call.fn(*call.args, **call.kwargs)
        except Exception as exc:
            if not capture.launches or needs_values(backend, exc) is None:
                raise
            ended = exc
    if backend.gpu is not None:
        backend.gpu.synchronize()
    unanswered = backend.tensors.take_unanswered() if backend.gpu is None else []
    call, remark = compared_call(backend, call, value) if ended is None else (call, "")
    end = None if ended is None else end_of(backend, ended, root)
    if unanswered and ended is None:  # on a GPU it may launch something else after that
        line, reason = unanswered[0]
        end = _end_at(line, f"{reason}{CAUGHT}", root)
    if not unseen and ended is None:
        _refuse_unmet(call, capture)
    return CapturedCall(call, capture, arguments, value, unseen, ended, end, remark)


def needs_values(backend: Backend, error: BaseException) -> str | None:
    """Why an error says only that there is no GPU here; None for all others, and for all where there is one."""
    return backend.end_reason(error) if backend.gpu is None else None


def end_of(backend: Backend, error: BaseException, root: Path) -> End | None:
    """Where users' code asked for what only a GPU has; None for errors that say something else. Files of the project
    are named relative to ``root``."""
    asked = [(x, reason) for x in chain(error) if (reason := needs_values(backend, x)) is not None]
    if not asked:
        return None
    link, reason = asked[-1]  # the first question that had no answer
    line = line_of_error(link) or line_of_error(error)
    return End("", "", "", reason) if line is None else _end_at(line, reason, root)


def _end_at(line: UsersLine, reason: str, root: Path) -> End:
    return End(line.place(root), line.function, line.text, reason)


CAUGHT = "; the call caught this error and went on"


def compared_call(backend: Backend, call: Call, value: Any) -> tuple[Call, str]:
    """The call, whose reference is asked once: what it is computed from may have changed later. A remark if it
    can't be computed without a GPU."""
    if call.reference is None:
        return call, ""
    try:
        expected = call.reference()
        compare_call(call, value, expected)
    except Exception as exc:
        reason = needs_values(backend, exc)
        if reason is None:
            raise
        return replace(call, reference=None), f"reference not computed: {reason}"
    return replace(call, reference=lambda: expected), ""


def _refuse_unmet(call: Call, capture: Capture) -> None:
    launched = sorted({p.kernel for p in capture.launches})
    for what, kernels in (("candidates", call.candidates), ("values", call.values)):
        unmet = sorted(kernels.keys() - set(launched))
        if unmet and launched:
            raise ConfigError(
                f"{call.case}: {what} are given for {', '.join(unmet)}, which this call doesn't launch; "
                f"it launches {', '.join(launched)}"
            )


# which candidate a call is captured with


def winner_first(winners: Winners, unknown: Callable[[], None] = lambda: None) -> Preference:
    """The stored winner before all others; ``unknown`` is called where there is none."""

    def prefer(site: Site) -> Sequence[int]:
        site.proven = _known(winners, site)
        if site.proven is None:
            unknown()
        return _first(site.proven, len(site.candidates))

    return prefer


def stored_first(
    stores: Stores, call: Call, target: Target, arguments: tuple[Argument, ...], update: Update
) -> Preference:
    """The config that the case's baselines have before all others, or those of what may be its earlier name."""
    fingerprint = fingerprint_of(arguments) if arguments else None
    stored = stored_configs(stores.reference, target, call.case, fingerprint, update)

    def prefer(site: Site) -> Sequence[int]:
        configs = stored.get(site.kernel) or stores.renames.configs(call.case, fingerprint).get(site.kernel, [])
        known = (candidate_of(site, config) for config in configs)
        return _first(next((i for i in known if i is not None), None), len(site.candidates))

    return prefer


def _known(winners: Winners, site: Site) -> int | None:
    """The stored winner; a call that launches nothing needs none even under ``frozen``, for it never gets one."""
    try:
        return winners.find(site)
    except CacheMissError:
        from kerntune.tuning.admission import launches_nothing  # most runs need it never

        capture = current()
        if capture is None or not launches_nothing(capture, site):
            raise
        return None


def _first(index: int | None, count: int) -> list[int]:
    rest = [i for i in range(count) if i != index]
    return rest if index is None else [index, *rest]


# launches that a capture can't see: of compiled kernels that have no Python source to bind arguments by


@contextmanager
def watched() -> Iterator[list[str]]:
    """The names of kernels whose launches a capture leaves alone meanwhile, in order, each once; they launch as usual.

    Enter it before the capture, which passes on launches that it can't record (``kernels.specialize``).
    """
    seen: list[str] = []
    kind = triton_compiler.compiled_kernel()
    original = kind.__getitem__

    def getitem(kernel: Any, grid: Any) -> Any:
        name = str(kernel.name)
        if current() is not None and name not in seen:
            seen.append(name)
        return original(kernel, grid)

    kind.__getitem__ = getitem
    try:
        yield seen
    finally:
        kind.__getitem__ = original


def uncheckable(captured: CapturedCall) -> str:
    """Why nothing can be said of a call's launches, since some aren't known; empty if all are."""
    if captured.unseen:
        return (
            f"it launches {', '.join(captured.unseen)}, compiled without a Python source (from IR), which can't be "
            "recorded, so nothing was checked; launch kernel[grid](...) of a @triton.jit function in this test"
        )
    hidden, guesses = captured.capture.compiled.unseen, captured.capture.guesses
    if missed := captured.capture.missed:
        return (
            f"it launches or calls {', '.join(dict.fromkeys(missed))} in a thread of its own, unrecorded while another "
            "thread decided a choice, so nothing was checked; run it again, or call the choice before"
        )
    if hidden:
        return (
            f"it runs {'; '.join(hidden)}, so its launches can't be seen, and nothing was checked; compile without "
            "cpp_wrapper, and let this call make the launches"
        )
    if off := [text for text in guesses if GATE_OFF in text]:
        return f"it runs functions compiled by torch, of which nothing was checked: {'; '.join(off)}"
    if guesses:
        return (
            f"what it launches can't be known without a GPU: {'; '.join(guesses)}. Check this call on a GPU, or "
            "compile it with other options"
        )
    return ""


NO_LAUNCH = "no Triton kernel was launched in this call, so nothing was checked"


def nothing_judged(captured: CapturedCall) -> Checked:
    """The result of a call that launched nothing, or whose launches aren't known."""
    call = captured.call
    why = uncheckable(captured) or NO_LAUNCH + captured.capture.compiled.why_no_kernel()
    outcome, target = call.policy.outcome(Verdict.INCOMPLETE), captured.capture.backend.spec.target
    return Checked(captured.value, incomplete_result(call.case, f": {why}", outcome, str(target)))


def with_surroundings(result: CaseResult, captured: CapturedCall, warnings: Sequence[str]) -> CaseResult:
    """The result of a call with what it runs besides Triton kernels, what Inductor has chosen otherwise than for the
    baseline, how the call's choices were decided, and further ``warnings``."""
    choices = captured.capture.choices.texts
    anew = captured.capture.compiled.choices.anew
    text = result.operators.text() if result.operators is not None else ""
    beside = (f"{text}, not timed; scope='op' times the whole call on a GPU",) if text else ()
    return result.but(
        message=", ".join([result.message, *anew]),
        warnings=(*result.warnings, *warnings),
        elsewhere=result.operators.by_name if result.operators is not None else result.elsewhere,
        remarks=(*result.remarks, *beside, *choices),
    )
