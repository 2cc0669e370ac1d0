"""Records one call of a candidate, in a sealed process: what it launches, on which memory, made how.

All that this says may be false: the candidate's code runs in the same process. ``hostile_recording`` checks it.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Union

import msgspec

from kerntune.base.formatting import format_bytes
from kerntune.base.users_line import line_of_error
from kerntune.capture import Capture
from kerntune.capture.launch import Site
from kerntune.capture.operator_traits import FILLING, traits_of
from kerntune.capture.recorder import record
from kerntune.compiling.compile_worker import answer_to
from kerntune.compiling.compiler import Compiler
from kerntune.compiling.farm import Farm, FarmAnswer
from kerntune.compiling.frontend import Shape
from kerntune.compiling.protocol import Hello, Job
from kerntune.compiling.worker_process import Died, JobOutcome
from kerntune.errors import CaptureError, CompileError, KerntuneError
from kerntune.gpu.base import Backend, tensors_in
from kerntune.gpu.fake_cuda.static_backend import StaticBackend, empty_tensor
from kerntune.referee.call_inputs import arguments_of, seed_generators, value_of
from kerntune.referee.layouts import KERNELBENCH, load
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.tasks import (
    CallRefused,
    CaseInputs,
    Constant,
    Fill,
    RecordAnswer,
    RecordedCall,
    RecordTask,
    TensorInput,
    encoded,
)

MOST_UPLOADED = 4 << 10
"""Bytes that a call may copy from the host: sizes and offsets, but no table of what the device would compute."""

MOST_CONSTANT = 64 << 20
"""Bytes of all constants of a call together."""


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


def answer(task: bytes) -> bytes:
    """Record the call of a :class:`RecordTask`; the bytes of a :class:`RecordAnswer`."""
    asked = msgspec.msgpack.decode(task, type=RecordTask)
    try:
        return encoded(RecordAnswer(call=_recorded(asked)))
    except Refusal as exc:
        return encoded(RecordAnswer(refused=CallRefused(exc.reason.value, str(exc))))


def _recorded(task: RecordTask) -> RecordedCall:
    backend = StaticBackend(task.target)
    with backend.activate():
        watch = DeviceOperators(backend)
        with backend.tensors.watching(watch), _users_code(backend):
            function = _candidate(task, backend)
        inputs = [_made(x, backend) for x in task.case.tensors]
        _give_parameters(function, task.case, inputs, watch)
        args, words = arguments_of(task.case, inputs)
        with contextlib.closing(Compiler(OwnProcessFarm())) as compiler:
            configs = [0]

            def in_turn(site: Site) -> Sequence[int]:
                configs.append(count := len(site.candidates))
                first = task.config % count
                return [*range(first, count), *range(first)]

            capture = Capture(backend, compiler, prefer=in_turn)
            watch.launches = capture.launches
            with contextlib.ExitStack() as stack:
                streams = stack.enter_context(streams_noted())
                stack.enter_context(_users_code(backend))
                stack.enter_context(capture.active())
                stack.enter_context(capture.compiled_functions())
                stack.enter_context(backend.tensors.watching(watch))
                watch.begin_call()
                value = function(*args, **words)
            if streams:
                raise Refusal(Reason.STREAMS, f"it calls {', '.join(streams)}")
            if capture.missed or capture.compiled.unseen:
                raise Refusal(Reason.UNSEEN, "; ".join([*capture.missed, *capture.compiled.unseen]))
            return msgspec.structs.replace(_claims(task, capture, watch, inputs, value), configs=max(configs))


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
        needs = backend.end_reason(exc) if isinstance(exc, Exception) else None
        if needs is not None:
            raise Refusal(Reason.VALUES, needs) from None
        print("".join(traceback.format_exception(exc))[-4000:], file=sys.stderr)
        text, line = ": ".join(filter(None, (type(exc).__name__, str(exc)[:500]))), line_of_error(exc)
        place = f" ({Path(line.file).name[:100]}:{line.number})" if line else ""
        raise Refusal(Reason.CANDIDATE_FAILED, text + place) from None


def _candidate(task: RecordTask, backend: Backend) -> Any:
    import torch

    made = getattr(load(task.source), task.source.name)
    if task.source.layout != KERNELBENCH:
        return made
    seed_generators(0)
    model = made(*(value_of(a, ()) for a in task.case.init))
    return model.to(backend.torch_device) if isinstance(model, torch.nn.Module) else model


def _made(given: Any, backend: Backend) -> Any:
    """An input on the device. Its numbers are known if they are fixed."""
    import torch

    if given.content == "fixed":
        return torch.tensor(given.values, dtype=getattr(torch, given.dtype)).reshape(given.shape).to("cuda")
    return empty_tensor(given.dtype, given.shape, given.strides)


def _give_parameters(function: Any, case: CaseInputs, inputs: list[Any], watch: DeviceOperators) -> None:
    """A model's own parameters and buffers stand for the inputs of their names. Those of other names stand for the
    others in their order, if all are alike: both models are made with one seed."""
    known = dict(function.state_dict(keep_vars=True)) if hasattr(function, "state_dict") else {}
    found = [(known[name], index) for name, index in case.parameters.items() if name in known]
    others = [index for name, index in case.parameters.items() if name not in known]
    renamed = [own for name, own in known.items() if name not in case.parameters]
    if len(renamed) == len(others) and all(map(_lies_as, renamed, (case.tensors[i] for i in others))):
        found += zip(renamed, others, strict=True)
    for own, index in found:
        if _lies_as(own, case.tensors[index]):
            inputs[index] = own
            watch.forget(own)


def _lies_as(own: Any, given: TensorInput) -> bool:
    return tuple(own.shape) == given.shape and str(own.dtype) == f"torch.{given.dtype}"


@contextlib.contextmanager
def streams_noted() -> Iterator[list[str]]:
    """The names of torch's functions by which work goes to another stream, if they are called meanwhile."""
    import torch

    found: list[str] = []
    kept = {name: getattr(torch.cuda, name) for name in ("stream", "set_stream")}

    def noting(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            found.append(f"torch.cuda.{name}")
            return kept[name](*args, **kwargs)

        return call

    for name in kept:
        setattr(torch.cuda, name, noting(name))
    try:
        yield found
    finally:
        for name, original in kept.items():
            setattr(torch.cuda, name, original)


UPLOADS = ("_to_copy", "copy_")
"""Operators that copy the host's memory to the device."""


def host_bytes(source: Any, made: Any) -> bytes | None:
    """The bytes that a tensor of the host's becomes with the dtype and layout of ``made``; None of one that has no
    values."""
    import torch

    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        try:
            dense = torch.empty_strided(made.shape, made.stride(), dtype=made.dtype)
            dense.copy_(source.detach())
            raw = torch.empty(0, dtype=torch.uint8).set_(dense.untyped_storage())
            return bytes(raw.numpy().tobytes())
        except (RuntimeError, TypeError, NotImplementedError):
            return None


FirstContent = Union[bytes, tuple[str, Union[int, float]]]
"""Bytes that the host has, or a dtype and the number that fills a storage."""


class DeviceOperators:
    """Torch's operators on the device's tensors: what fills memory is replayed, allocations and views run nothing, and
    all others are named."""

    def __init__(self, backend: StaticBackend) -> None:
        self._backend = backend
        self.launches: Sequence[Any] = ()
        self.names: list[str] = []
        self._allocated: dict[int, Any] = {}
        self._contents: dict[int, tuple[int, FirstContent, Any]] = {}
        """By place, what a storage was filled with last, after how many launches; the tensor keeps its place."""

        self._before, self._made = self._contents, set[int]()
        """Those from before the call, and storages without content that were made then."""

    def begin_call(self) -> None:
        """What is filled from here on is filled in each execution."""
        self._before, self._made = {**self._contents}, {*self._allocated}

    def is_of_the_call(self, tensor: Any) -> bool:
        """Whether the call has filled its storage, or copied the host's memory to it."""
        found = self._contents.get(self._place(tensor))
        return found is not None and found is not self._before.get(self._place(tensor))

    def begin(self) -> int:
        """How many launches there are before an operator runs."""
        return len(self.launches)

    def observe(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
        begun: int | None,
        alike: object | None = None,
    ) -> None:
        """Note an operator that has run."""
        traits, now = traits_of(func), len(self.launches)
        tensors = self._backend.tensors
        if traits is None or begun not in (None, now):
            return
        given = [x for x in tensors_in(args, kwargs.values()) if tensors.is_tensor(x)]
        made = [x for x in tensors_in((result,)) if tensors.is_tensor(x)]
        if not given and not made:
            return
        own = {self._place(x) for x in given}
        fresh = [x for x in made if self._place(x) not in own]
        if not traits.works:
            self._allocated.update((self._place(x), x) for x in fresh)
        elif not self._noted(traits.word, args, kwargs, made, now) and (
            traits.writes or not all(map(self._is_constant, fresh))
        ):
            self.names.append(traits.name)

    def _noted(
        self, word: str, args: Sequence[Any], kwargs: Mapping[str, Any], made: Sequence[Any], begun: int
    ) -> bool:
        """Whether an operator gives whole storages a content that can be given again."""
        if word in FILLING:
            return self._filled(word, args, kwargs, made, begun)
        return word in UPLOADS and self._uploaded(word, args, made, begun)

    def _is_constant(self, tensor: Any) -> bool:
        """Whether a tensor was made from what the host knows."""
        return self._backend.stand_ins.known_values.of(tensor) is not None

    def _uploaded(self, word: str, args: Sequence[Any], results: Sequence[Any], begun: int) -> bool:
        """Note a copy of the host's memory over a whole storage; False for anything else."""
        source: Any = args[1] if word == "copy_" else args[0]
        if self._backend.tensors.is_tensor(source) or len(results) != 1:
            return False
        made = results[0]
        if made.numel() * made.element_size() != made.untyped_storage().nbytes() or source.shape != made.shape:
            return False
        data = host_bytes(source, made)
        if data is not None:
            self._contents[self._place(made)] = (begun, data, made)
        return data is not None

    def _filled(
        self, word: str, args: Sequence[Any], kwargs: Mapping[str, Any], made: Sequence[Any], begun: int
    ) -> bool:
        """Note a fill of whole storages; False if it is of a part, or by a number that isn't one."""
        value: Any = 0.0 if word.startswith(("zero", "new_zero")) else 1.0
        if "full" in word or word.startswith(("fill", "scalar_tensor")):
            plain = [a for a in (*args, *kwargs.values()) if isinstance(a, (bool, int, float))]
            if not plain or word == "scalar_tensor":
                return False
            value = plain[0]
        for tensor in made:
            if tensor.numel() * tensor.element_size() != tensor.untyped_storage().nbytes():
                return False
        for tensor in made:
            dtype = str(tensor.dtype).removeprefix("torch.")
            self._contents[self._place(tensor)] = (begun, (dtype, value + 0), tensor)
        return True

    def forget(self, tensor: Any) -> None:
        """A tensor's first content is given from outside."""
        self._contents.pop(self._place(tensor), None)

    def content_of(self, tensor: Any) -> tuple[int, FirstContent] | None:
        """After how many launches a storage was filled last, and what with; None of one that wasn't."""
        import torch

        if found := self._contents.get(self._place(tensor)):
            return found[:2]
        with torch._C.DisableTorchFunction():
            storage = self._backend.stand_ins.known_values.storage_of(tensor)
            if storage is None:
                return None
            return 0, bytes(torch.empty(0, dtype=torch.uint8).set_(storage).numpy().tobytes())

    def allocated(self, tensor: Any) -> bool:
        """Whether a storage was made without content."""
        return self._place(tensor) in self._allocated

    def is_kept(self, tensor: Any) -> bool:
        """Whether the next call finds the storage as this one leaves it: it was made before the call, and the call
        gives it no content."""
        place = self._place(tensor)
        return (place in self._before or place in self._made) and not self.is_of_the_call(tensor)

    def _place(self, tensor: Any) -> int:
        return self._backend.tensors.storage_address(tensor)


def _claims(
    task: RecordTask, capture: Capture, watch: DeviceOperators, inputs: Sequence[Any], value: Any
) -> RecordedCall:
    backend, plan = capture.backend, capture.plan
    if not capture.launches:
        raise Refusal(Reason.OPERATOR if watch.names else Reason.NO_LAUNCH, _named(watch.names))
    try:
        tensors, outline = outlined(value)
    except TypeError as exc:
        raise Refusal(Reason.RESULT_COUNT, f"the candidate: {exc}") from None
    returned = [x for x in tensors if backend.tensors.is_tensor(x)]
    if any(x.is_neg() or x.is_conj() for x in returned):
        raise Refusal(Reason.RESULT_LAYOUT, "a result is negated or conjugated when it is read, which no launch does")
    try:
        recorded = record(capture)
        given = tuple(plan.view_of(x) for x in inputs)
        results = tuple(plan.view_of(x, "a result") for x in returned)
    except KerntuneError as exc:
        raise Refusal(Reason.UNSEEN, str(exc)) from None
    if recorded.failures:
        raise Refusal(Reason.COMPILE, str(next(iter(recorded.failures.values()))))
    recording = msgspec.structs.replace(recorded.recording, views=plan.views, storages=plan.storages(set(), set()))
    mine = {plan.storage_of_view(v) for v in given}
    fills, constants, unknown, kept, uploaded = [], [], [], [], 0
    for index, tensor in enumerate(plan.tensors()):
        if index in mine:
            continue
        kept += [index] * watch.is_kept(tensor)
        if found := watch.content_of(tensor):
            after, content = found
            _refuse_late_fill(recording, index, after)
            if isinstance(content, bytes):
                constants.append(Constant(index, content))
                uploaded += len(content) * watch.is_of_the_call(tensor)
            else:
                fills.append(Fill(index, *content, before=not watch.is_of_the_call(tensor)))
        elif not watch.allocated(tensor):
            unknown.append(index)
    if uploaded > MOST_UPLOADED:
        text = f"the call copies {format_bytes(uploaded)} from the host, which takes time that isn't measured"
        raise Refusal(Reason.OPERATOR, f"{text}; {format_bytes(MOST_UPLOADED)} may be")
    if sum(len(c.data) for c in constants) > MOST_CONSTANT:
        raise Refusal(Reason.MEMORY, f"constants have more than {MOST_CONSTANT >> 20} MiB")
    return RecordedCall(
        recording, _needed(recorded.artifacts, task.binaries), given, results, tuple(fills),
        tuple(constants), tuple(unknown), tuple(dict.fromkeys(watch.names)), outline,
        kept=tuple(kept),
    )  # fmt: skip


def _needed(artifacts: Mapping[str, bytes], binaries: bool) -> dict[str, bytes]:
    """TTIR alone where nothing loads binaries."""
    return {k: v for k, v in artifacts.items() if binaries or v[:4] != b"\x7fELF"}


def _refuse_late_fill(recording: Any, storage: int, after: int) -> None:
    """A fill between launches that use the memory before and after can't be replayed as first content."""
    for launch in recording.launches[:after]:
        if any(p.view is not None and recording.views[p.view].storage == storage for p in launch.params):
            raise Refusal(Reason.OPERATOR, "memory that a kernel has used is filled by torch")


MOST_NESTED = 16
"""Sequences and mappings in each other that a call may return."""


def outlined(value: Any, depth: int = 0) -> tuple[list[Any], str]:
    """The tensors in what a call returned, and a text of how they lie in it: ``({'sum': tensor}, 3, None)``. Lists are
    as tuples, keys are in order. :class:`TypeError` for what can't be compared."""
    if hasattr(value, "untyped_storage"):
        return [value], "tensor"
    if value is None or isinstance(value, (bool, int, float, str)):
        return [], repr(value)
    if not isinstance(value, (tuple, list, dict)) or depth == MOST_NESTED:
        what = "deeply nested values" if depth == MOST_NESTED else f"a {type(value).__name__}"
        raise TypeError(f"it returns {what}: tensors, numbers, sequences and mappings can be compared")
    items = sorted(value.items(), key=lambda item: repr(item[0])) if isinstance(value, dict) else enumerate(value)
    tensors, parts = list[Any](), list[str]()
    for key, item in items:
        found, text = outlined(item, depth + 1)
        tensors += found
        parts.append(f"{key!r}: {text}" if isinstance(value, dict) else text)
    inside = ", ".join(parts)
    return tensors, f"{{{inside}}}" if isinstance(value, dict) else f"({inside})"


def _named(names: Sequence[str]) -> str:
    return f"torch's {', '.join(dict.fromkeys(names))} compute instead" if names else "the call launches nothing"
