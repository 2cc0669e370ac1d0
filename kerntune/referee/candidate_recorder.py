"""Records one call of a candidate, in a sealed process: what it launches, on which memory, made how.

All that this says may be false: the candidate's code runs in the same process. ``hostile_recording`` checks it.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec.structs import replace

from kerntune.base.formatting import ends_of, format_bytes
from kerntune.base.recording import Recording
from kerntune.base.users_line import line_of_error
from kerntune.capture import Capture
from kerntune.capture.launch import Pending, Site
from kerntune.capture.recorder import record
from kerntune.compiling.compile_worker import answer_to
from kerntune.compiling.compiler import Compiler
from kerntune.compiling.farm import Farm, FarmAnswer
from kerntune.compiling.frontend import Shape
from kerntune.compiling.protocol import Hello, Job
from kerntune.compiling.worker_process import Died, JobOutcome
from kerntune.errors import CaptureError, CompileError, KerntuneError
from kerntune.gpu.base import Backend
from kerntune.gpu.fake_cuda.static_backend import StaticBackend, empty_tensor
from kerntune.kernels.access import Access
from kerntune.kernels.compat.launch_environment import has_allocator
from kerntune.referee.call_inputs import arguments_of, named_in, seed_generators, value_of
from kerntune.referee.case_inputs import CaseInputs, TensorInput
from kerntune.referee.device_operators import DeviceOperators
from kerntune.referee.later_call import IN_IT
from kerntune.referee.layouts import KERNELBENCH, load
from kerntune.referee.process_state import (
    DECLARE_NUMBERS,
    calls_noted,
    seen_by_the_caller,
    settings_of_torch,
    what_runs_behind,
)
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.tasks import (
    CALLS,
    PRECISION,
    SETTINGS,
    CallRefused,
    Constant,
    Fill,
    RecordAnswer,
    RecordedCall,
    RecordTask,
)
from kerntune.referee.torch_operators import TorchOperator
from kerntune.tuning.admission import misfit

MOST_UPLOADED = 4 << 10
"""Bytes that a call may copy from the host: sizes and offsets, but no table of what the device would compute."""

MOST_CONSTANT = 64 << 20
"""Bytes of all constants of a call together."""

MAY_READ = "a sealed process may read its file's folder or package, and installed packages"


class OwnProcessFarm(Farm):
    """Compiles in this process, which is sealed and will end: a compiler that crashes costs the candidate alone."""

    def like(self) -> Farm:
        """Another one."""
        return OwnProcessFarm()

    def warm(self, jobs: int) -> None:
        """There is nothing to start."""

    def submit(self, job: Job, shape: Shape) -> Future[FarmAnswer]:
        """At once."""
        future: Future[FarmAnswer] = Future()
        answer = answer_to(job)
        future.set_result(JobOutcome(Died("it says hello") if isinstance(answer, Hello) else answer, ""))
        return future


def answer(task: bytes) -> RecordAnswer:
    """Record the call of a :class:`RecordTask`."""
    asked = msgspec.msgpack.decode(task, type=RecordTask)
    try:
        return _recorded(asked)
    except Refusal as exc:
        return RecordAnswer(refused=CallRefused(exc.reason.value, str(exc)))


def _recorded(task: RecordTask) -> RecordAnswer:
    """The call, and a later one behind it and another if asked for: what these have left may not matter. The two have
    the same tensors, which hold other numbers in between."""
    backend = StaticBackend(task.target)
    behind, settings = what_runs_behind(), settings_of_torch()
    with backend.activate(), calls_noted() as noted:
        watch = DeviceOperators(backend)
        with backend.tensors.watching(watch), _users_code(backend), _launches_noted(backend, watch):
            function = _candidate(task, backend)
        inputs = [_made(x) for x in task.case.tensors]
        with _users_code(backend):
            _give_parameters(function, task.case, inputs, watch)
        with contextlib.closing(Compiler(OwnProcessFarm())) as compiler:
            tuned = dict[tuple[str, ...], None]()

            def in_turn(site: Site) -> Sequence[int]:
                count = len(site.candidates)
                tuned[tuple(", ".join(f"{k}={v}" for k, v in x.config.kwargs.items()) for x in site.candidates)] = None
                first = task.config % count
                return [*range(first, count), *range(first)]

            capture = Capture(backend, compiler, prefer=in_turn, at_once=True)
            watch.launches = capture.launches

            def run(case: CaseInputs, tensors: Sequence[Any]) -> Any:
                args, words = arguments_of(case, tensors)
                given, found = seen_by_the_caller((args, words)), settings_of_torch()
                with contextlib.ExitStack() as stack:
                    stack.enter_context(_users_code(backend))
                    stack.enter_context(capture.active())
                    stack.enter_context(capture.compiled_functions())
                    stack.enter_context(backend.tensors.watching(watch))
                    watch.begin_call()
                    value = function(*args, **words)
                _refuse_noted(backend, noted)
                if seen_by_the_caller((args, words)) != given:
                    raise Refusal(Reason.INPUT_LAYOUT, "it leaves what it is called with otherwise than it was given")
                if left := [x for x in _changed_since(found) if x not in PRECISION]:
                    told = f"a call leaves {', '.join(left)} of torch otherwise for the whole program"
                    raise Refusal(Reason.LEFT_OTHERWISE, told)
                if what_runs_behind() != behind:
                    raise Refusal(Reason.UNSEEN, "a thread or a signal's handler of its own is there behind the call")
                if capture.missed or capture.compiled.unseen:
                    raise Refusal(Reason.UNSEEN, "; ".join([*capture.missed, *capture.compiled.unseen]))
                return value

            if task.before is not None:
                with backend.tensors.watching(watch):
                    first = [_full(x) for x in task.before.tensors]
                run(task.before, first)
            value = run(task.case, inputs)
            leaves = tuple(x for x in _changed_since(settings) if x != SETTINGS[-1])  # a file may set a seed of its own
            call = _claims(task, capture, watch, inputs, (), value)
            call = replace(call, configs=_texts_of(tuned), leaves=leaves)
            if not task.later:
                return RecordAnswer(call)
            own, others = {*task.case.parameters.values()}, [_made(x) for x in task.case.tensors]
            given = [inputs[i] if i in own else x for i, x in enumerate(others)]  # a model's own stay where they are
            drawn = [i for i, x in enumerate(task.case.tensors) if x.content != "fixed" and others[i].numel()]
            drawn, own = [i for i in drawn if i not in own], {i for i in own if others[i].numel()}
            try:
                with backend.tensors.watching(watch):
                    kept = [others[i].clone() for i in drawn]
                    for i in drawn:
                        others[i].data.copy_(inputs[i])
                run(task.case, given)
                with backend.tensors.watching(watch), torch.no_grad():
                    for i, first in zip(drawn, kept, strict=True):
                        others[i].data.copy_(first)  # as a kernel would, which leaves a tensor its version
                    for i in own:
                        given[i].copy_(others[i])
                value = run(task.case, given)
                with backend.tensors.watching(watch), torch.no_grad():
                    for i in own:
                        others[i].copy_(given[i])  # what the call has left there is what is looked at
                again = _claims(task, capture, watch, others, inputs, value)
            except Refusal as exc:
                raise Refusal(exc.reason, f"{IN_IT}{exc}") from None
            others_code = {sha: data for sha, data in again.artifacts.items() if sha not in call.artifacts}
            return RecordAnswer(call, again=replace(again, artifacts=others_code))


def _changed_since(settings: Mapping[str, Any]) -> list[str]:
    """The names of torch's settings that are others now."""
    return [name for name, now in settings_of_torch().items() if now != settings[name]]


@contextlib.contextmanager
def _launches_noted(backend: StaticBackend, watch: DeviceOperators) -> Iterator[None]:
    """While the file is imported and a model is made: what kernels are launched on there is noted, nothing else."""
    known = backend.stand_ins.known_values
    original = known.launched

    def launched(pointers: Sequence[Any], access: Callable[[], Access]) -> None:
        original(pointers, access)
        watch.launched_outside(pointers)

    setattr(known, "launched", launched)  # noqa: B010
    try:
        yield
    finally:
        setattr(known, "launched", original)  # noqa: B010


def _texts_of(tuned: Collection[tuple[str, ...]]) -> tuple[str, ...]:
    """Of autotuners' configs, those of one number together, as they are tried together, what they say to kernels."""
    count = max(map(len, tuned), default=0)
    return tuple(" ".join(texts[i % len(texts)] for texts in tuned) for i in range(count))


@contextlib.contextmanager
def _users_code(backend: Backend) -> Iterator[None]:
    """What users' code raises becomes a reason."""
    try:
        yield
    except CaptureError as exc:
        raise Refusal(Reason.UNSEEN, str(exc)) from None
    except CompileError as exc:
        raise Refusal(Reason.COMPILE, str(exc)) from None
    except (Exception, SystemExit) as exc:
        needs, line = backend.end_reason(exc) if isinstance(exc, Exception) else None, line_of_error(exc)
        place = f" ({Path(line.file).name[:100]}:{line.number})" if line else ""
        if needs is not None:
            raise Refusal(Reason.VALUES, needs + place + DECLARE_NUMBERS * ("value" in needs)) from None
        print("".join(traceback.format_exception(exc))[-4000:], file=sys.stderr)
        text = ": ".join(filter(None, (type(exc).__name__, ends_of(str(exc), 500))))
        place += f"; {MAY_READ}" * isinstance(exc, PermissionError)
        raise Refusal(Reason.CANDIDATE_FAILED, text + place) from None


def _refuse_noted(backend: StaticBackend, noted: Sequence[tuple[Reason, str]]) -> None:
    """:class:`Refusal` for what was called beside launches and operators, and where values were asked for that aren't
    known, whatever the code has made of the answer."""
    for reason, text in noted:
        raise Refusal(reason, text)
    asked = [*backend.stand_ins.comparisons.take_unchecked(), *(x for x, _ in backend.stand_ins.take_unanswered())]
    if asked:
        where = f"{Path(asked[0].file).name[:100]}:{asked[0].number}"
        raise Refusal(Reason.VALUES, f"a condition needs values of a tensor ({where}){DECLARE_NUMBERS}")


def _candidate(task: RecordTask, backend: Backend) -> Any:
    loaded = load(task.source)
    if task.source.layout != KERNELBENCH:
        return named_in(loaded, task.source)
    made = getattr(loaded, task.source.name)
    seed_generators(0)
    model = made(*(value_of(a, ()) for a in task.case.init))
    if not isinstance(model, torch.nn.Module):
        return model
    names = dict[int, list[str]]()
    for name, own in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(own), []).append(name)
    model = model.to(backend.torch_device)
    for first, *others in names.values():  # a GPU's are tied as before, stand-ins of them aren't
        for name in others:
            module, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(module), leaf, model.get_parameter(first))
    return model


def _made(given: TensorInput) -> Any:
    """An input on the device. Its numbers are known if they are fixed."""
    if given.content == "fixed":
        return torch.tensor(given.values, dtype=getattr(torch, given.dtype)).reshape(given.shape).to("cuda")
    return empty_tensor(given.dtype, given.shape, given.strides)


def _full(given: TensorInput) -> Any:
    """An input of a call that isn't judged: it holds numbers that are allowed."""
    if given.content == "fixed":
        return _made(given)
    number = 1.0 if getattr(torch, given.dtype).is_floating_point else int(given.low)
    return torch.full(given.shape, number, dtype=getattr(torch, given.dtype), device="cuda")


def _give_parameters(function: Any, case: CaseInputs, inputs: list[Any], watch: DeviceOperators) -> None:
    """A model's own parameters and buffers stand for the inputs of their names. Those of other names stand for the
    others in their order, if all are alike: both models are made with one seed."""
    known = dict(function.state_dict(keep_vars=True)) if hasattr(function, "state_dict") else {}
    found = [(known[name], index) for name, index in case.parameters.items() if name in known]
    others = [*dict.fromkeys(i for i in case.parameters.values() if all(i != index for _, index in found))]
    renamed = [*{id(own): own for name, own in known.items() if name not in case.parameters}.values()]
    if len(renamed) == len(others) and all(map(_lies_as, renamed, (case.tensors[i] for i in others))):
        found += zip(renamed, others, strict=True)
    for own, index in found:
        if _lies_as(own, case.tensors[index]):
            inputs[index] = own
            watch.forget(own)


def _lies_as(own: Any, given: TensorInput) -> bool:
    return tuple(own.shape) == given.shape and str(own.dtype) == f"torch.{given.dtype}"


def _claims(
    task: RecordTask, capture: Capture, watch: DeviceOperators, inputs: Sequence[Any], earlier: Sequence[Any],
    value: Any,
) -> RecordedCall:  # fmt: skip
    """All that has run, which an earlier call on other inputs may have begun."""
    backend, plan = capture.backend, capture.plan
    if not capture.launches:
        names = [*watch.names, *watch.seen_names]
        raise Refusal(Reason.OPERATOR if names else Reason.NO_LAUNCH, _named(names))
    try:
        tensors, outline = outlined(value)
    except TypeError as exc:
        raise Refusal(Reason.RESULT_COUNT, f"the candidate: {exc}") from None
    returned = [x for x in tensors if backend.tensors.is_tensor(x)]
    if any(x.is_neg() or x.is_conj() for x in returned):
        raise Refusal(Reason.RESULT_LAYOUT, "a result is negated or conjugated when it is read, which no launch does")
    try:
        recorded = record(capture)
        given, before = (tuple(plan.view_of(x) for x in tensors) for tensors in (inputs, earlier))
        results = tuple(plan.view_of(x, "a result") for x in returned)
    except KerntuneError as exc:
        raise Refusal(Reason.UNSEEN, str(exc)) from None
    if recorded.failures:
        raise Refusal(Reason.COMPILE, str(next(iter(recorded.failures.values()))))
    each = [(b, recorded.artifacts.get(b.sha256, b"")) for b in recorded.recording.binaries]
    if told := next(filter(None, (misfit(b, data, backend.spec) for b, data in each)), ""):
        raise Refusal(Reason.COMPILE, told)
    operators = _operators(capture, watch, recorded.recording)
    if elsewhere := {str(x.device) for x in (*plan.tensors(), *returned)} - {"cuda", f"cuda:{backend.ordinal}"}:
        raise Refusal(
            Reason.RESULT_LAYOUT, f"memory of the call is on {min(elsewhere)}, its inputs are on cuda:{backend.ordinal}"
        )
    if any(b.global_scratch.size for b in recorded.recording.binaries) and not has_allocator():
        raise Refusal(
            Reason.CANDIDATE_FAILED, "a kernel needs memory of Triton's, and triton.set_allocator isn't called"
        )
    recording = replace(recorded.recording, views=plan.views, storages=plan.storages(set(), set()))
    mine = {plan.storage_of_view(v) for v in (*given, *before)}
    fills, constants, unknown, uploaded = [], [], [], 0
    for index, tensor in enumerate(plan.tensors()):
        if index in mine and not watch.is_of_the_call(tensor):
            continue
        if found := watch.content_of(tensor):
            if isinstance(found, bytes):
                constants.append(Constant(index, found))
                uploaded += len(found) * watch.is_of_the_call(tensor)
            else:
                fills.append(Fill(index, *found, before=not watch.is_of_the_call(tensor)))
        elif not watch.allocated(tensor):
            unknown.append(index)
    if uploaded > MOST_UPLOADED * (CALLS if earlier else 2 if task.before else 1):
        text = f"the call makes {format_bytes(uploaded)} of what the host knows, which takes time that isn't measured"
        raise Refusal(Reason.OPERATOR, f"{text}; {format_bytes(MOST_UPLOADED)} may be")
    if sum(len(c.data) for c in constants) > MOST_CONSTANT:
        raise Refusal(Reason.MEMORY, f"constants have more than {MOST_CONSTANT >> 20} MiB")
    if task.config:
        times = [_times(pending) for pending in capture.launches]
        launches = [x for x, n in zip(recording.launches, times, strict=True) for _ in range(n)]
        recording = replace(recording, launches=tuple(launches))
        operators = [replace(x, before=sum(times[: x.before])) for x in operators]
    return RecordedCall(
        recording, _needed(recorded.artifacts, task.binaries), given, results, tuple(fills),
        tuple(constants), tuple(unknown), tuple(operators), tuple(dict.fromkeys(watch.names)), outline,
    )  # fmt: skip


def _operators(capture: Capture, watch: DeviceOperators, recording: Recording) -> list[TorchOperator]:
    """Torch's operators that are replayed between the launches."""
    plan, storages = capture.plan, capture.plan.tensors()
    launched = [[storages[i] for i in recording.pointed_at(launch)] for launch in recording.launches]
    try:
        return watch.rows(launched, plan.view_in)
    except KerntuneError as exc:
        raise Refusal(Reason.UNSEEN, str(exc)) from None


def _times(pending: Pending) -> int:
    """How often a launch is made where an autotuner of Triton's has to choose, which tries configs on the call's own
    arguments. Unless it has to reset or to restore these, a launch finds there what a trial has left."""
    site = pending.site
    tuner = site.tuner if site is not None and not any(c.hook for c in site.candidates) else None
    hooked = getattr(tuner, "user_defined_pre_hook", False) or getattr(tuner, "user_defined_post_hook", False)
    told = hooked or getattr(tuner, "reset_to_zero", None) or getattr(tuner, "restore_value", None)
    return 2 if type(tuner).__module__.startswith("triton.") and not told else 1


def _needed(artifacts: Mapping[str, bytes], binaries: bool) -> dict[str, bytes]:
    """TTIR alone where nothing loads binaries."""
    return {k: v for k, v in artifacts.items() if binaries or v[:4] != b"\x7fELF"}


MOST_NESTED = 16
"""Sequences and mappings in each other that a call may return."""

PLAIN = (type(None), bool, int, float, str)
"""Types whose text says what a value is: that of a class of its own may say anything."""


def outlined(value: Any, depth: int = 0) -> tuple[list[Any], str]:
    """The tensors in what a call returned, and a text of how they lie in it: ``({'sum': tensor}, 3, None)``. Lists are
    as tuples, keys are in order. :class:`TypeError` for what can't be compared."""
    if hasattr(value, "untyped_storage"):
        return [value], "tensor"
    if type(value) in PLAIN:
        return [], repr(value)
    if not isinstance(value, (tuple, list, dict)) or depth == MOST_NESTED:
        what = "deeply nested values" if depth == MOST_NESTED else f"a {type(value).__name__}"
        raise TypeError(f"it returns {what}: tensors, numbers, sequences and mappings can be compared")
    items = sorted(value.items(), key=lambda item: repr(item[0])) if isinstance(value, dict) else enumerate(value)
    tensors, parts = list[Any](), list[str]()
    for key, item in items:
        if type(key) not in PLAIN:
            raise TypeError(f"it returns a key of type {type(key).__name__}")
        found, text = outlined(item, depth + 1)
        tensors += found
        parts.append(f"{key!r}: {text}" if isinstance(value, dict) else text)
    inside = ", ".join(parts)
    return tensors, f"{{{inside}}}" if isinstance(value, dict) else f"({inside})"


def _named(names: Sequence[str]) -> str:
    return f"torch's {', '.join(dict.fromkeys(names))} compute instead" if names else "the call launches nothing"
