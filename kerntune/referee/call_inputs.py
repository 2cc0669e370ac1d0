"""A call's inputs: as a callable gets them, and those that a task's own code makes, with their numbers by seed."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import random
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace

from kerntune.referee.case_inputs import (
    UNREAD,
    CallArgument,
    CaseInputs,
    Given,
    MappingArgument,
    PlainArgument,
    SequenceArgument,
    TensorAt,
    TensorInput,
    UserCallable,
)
from kerntune.referee.layouts import KERNELBENCH, MAKERS, TASK_MODULE, load
from kerntune.referee.tasks import BytesLike, ExpectTask


def arguments_of(case: CaseInputs, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The call's arguments and keywords."""
    values = [value_of(a, tensors) for a in case.arguments]
    first = len(values) - len(case.keywords)
    return values[:first], dict(zip(case.keywords, values[first:], strict=True))


def value_of(argument: CallArgument, tensors: Sequence[Any]) -> Any:
    """An argument as the callable gets it."""
    if isinstance(argument, TensorAt):
        return tensors[argument.index]
    if isinstance(argument, PlainArgument):
        return argument.value
    if isinstance(argument, MappingArgument):
        return {name: value_of(item, tensors) for name, item in argument.items.items()}
    items = [value_of(item, tensors) for item in argument.items]
    if argument.names:
        return namedtuple("Inputs", argument.names)(*items)
    return items if argument.is_list else tuple(items)


# what a task's own code makes

SEEDS = 1 << 24
"""Of GPU MODE's tasks: as many as float32 has whole numbers, since some add the seed; too many for a table."""


def seed_generators(seed: int) -> None:
    """Seed what users' code draws from: torch's, NumPy's and Python's generators, which processes else have alike."""
    torch.manual_seed(seed)
    np.random.seed(seed % (1 << 32))
    random.seed(seed)


def described(module: Any, source: UserCallable, given: Mapping[str, Given]) -> CaseInputs:
    """The inputs that a task's code makes by these keywords. Parameters that are tied are one input."""
    init: tuple[CallArgument, ...] = ()
    parameters: dict[str, int] = {}
    learned = dict[str, Any]()
    made = _made_inputs(module, source, given, 0)
    tensors: list[Any] = []
    arguments = tuple(_argument(x, tensors) for x in made)
    if source.layout == KERNELBENCH:
        init_values = list(module.get_init_inputs()) if hasattr(module, "get_init_inputs") else []
        init = tuple(_argument(x, []) for x in init_values)
        model = model_of(module, source, init_values)
        learned, tied = dict(model.named_parameters()), dict[Any, int]()
        for name, value in model.state_dict().items():
            place = (value.data_ptr(), value.shape, value.stride()) if value.numel() else name
            parameters[name] = tied.setdefault(place, len(tensors))
            if parameters[name] == len(tensors):
                tensors.append(value.contiguous())
    own = {index: name for name, index in reversed(parameters.items())}
    names = [own.get(i, str(i)) for i in range(len(tensors))]
    inputs = tuple(map(_tensor_input, names, tensors))
    trained = tuple(sorted({parameters[name] for name in learned if name in parameters}))
    return CaseInputs(label_of(source, given), inputs, arguments, (), parameters, init, dict(given), trained)


def label_of(source: UserCallable, given: Mapping[str, Given]) -> str:
    """What a reader is shown of these keywords."""
    return ", ".join(f"{k}={v}" for k, v in given.items()) or source.name


def _made_inputs(module: Any, source: UserCallable, given: Mapping[str, Given], seed: int) -> list[Any]:
    seed_generators(seed)
    name = MAKERS[source.layout]
    if not hasattr(module, name):  # a submission's, which is the reference
        module = sys.modules.get(TASK_MODULE)
    if not hasattr(module, name):
        module = load(replace(source, path=source.modules[TASK_MODULE], package=""))
    maker = getattr(module, name)
    if source.layout == KERNELBENCH:
        return list(maker())
    return [maker(**{**given, "seed": seed % SEEDS})]


def named_in(module: Any, source: UserCallable) -> Any:
    """What has the name in the file: of a ``torch.autograd.Function`` that is its ``apply``."""
    found = getattr(module, source.name)
    is_function = isinstance(found, type) and issubclass(found, torch.autograd.Function)
    return found.apply if is_function else found


def model_of(module: Any, source: UserCallable, init: Sequence[Any], seed: int = 0) -> Any:
    """A model as its task makes it."""
    seed_generators(seed)
    return getattr(module, source.name)(*init)


def _argument(value: Any, tensors: list[Any]) -> CallArgument:
    if hasattr(value, "untyped_storage"):
        tensors.append(value)
        return TensorAt(len(tensors) - 1)
    if isinstance(value, (tuple, list)):
        items, names = tuple(_argument(x, tensors) for x in value), getattr(value, "_fields", ())
        return SequenceArgument(items, isinstance(value, list), names)
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return MappingArgument({name: _argument(x, tensors) for name, x in value.items()})
    if value is None or isinstance(value, (bool, int, float, str)):
        return PlainArgument(value)
    raise TypeError(f"an input is a {type(value).__name__}, which can't be handed to another process")


def _tensor_input(name: str, tensor: Any) -> TensorInput:
    """As it lies where the task has it, if its elements are one after the other in some order of its dimensions, as a
    transposed tensor's are; else dense."""
    dtype, order = str(tensor.dtype).removeprefix("torch."), _outermost_first(tensor.stride())
    made = tensor if tensor.permute(order).is_contiguous() else tensor.contiguous()
    return TensorInput(name, dtype, tuple(made.shape), tuple(made.stride()), "author")


def _outermost_first(strides: Sequence[int]) -> list[int]:
    return sorted(range(len(strides)), key=lambda i: -strides[i])


def as_it_lies(tensor: Any, given: TensorInput) -> Any:
    """A tensor with its dimensions in the order of an input's memory."""
    return tensor.permute(_outermost_first(given.strides))


def contents_by(module: Any, task: ExpectTask, seed: int) -> tuple[bytes, ...]:
    """The bytes of each input, by a task's code that has been loaded. Those that the reference doesn't read are any."""
    tensors: list[Any] = []
    for value in _made_inputs(module, task.source, task.case.given, seed):
        _argument(value, tensors)
    if task.case.parameters:
        init = [value_of(a, ()) for a in task.case.init]
        model = model_of(module, task.source, init)
        own = hashlib.sha256(f"parameters {seed}".encode()).digest()  # inputs are drawn with the seed itself
        generator = torch.Generator().manual_seed(int.from_bytes(own[:7], "big"))
        learned = {name for name, _ in model.named_parameters()}
        state = _with_whole_of(model.state_dict(), partial(model_of, module, task.source, init, seed))
        for name, value in state.items():
            if task.case.parameters[name] < len(tensors):  # it is tied to an earlier one
                continue
            assert len(tensors) == task.case.parameters[name]
            noise = torch.rand(value.shape, generator=generator) if value.is_floating_point() else None
            if noise is not None and value.any():
                value = value * (0.75 + 0.5 * noise.to(value.dtype))
                if name in learned:  # what its maker has seen of signs, zeros and places is no help
                    value = _shuffled(value, generator)
            elif noise is not None:  # a bias that is zero when it is made must be added as any other
                value = (noise - 0.5).to(value.dtype)
            tensors.append(value)
    chance = np.random.default_rng(seed)
    found = [bytes_of(as_it_lies(t, given)) for t, given in zip(tensors, task.case.tensors, strict=True)]
    return tuple(
        chance.bytes(len(data)) if given.content == UNREAD else data
        for given, data in zip(task.case.tensors, found, strict=True)
    )


def _with_whole_of(state: Mapping[str, Any], other: Callable[[], Any]) -> Mapping[str, Any]:
    """What a model keeps, with whole numbers and flags of another one: weights of few bits are drawn, as any, tables of
    places are the same in both."""
    if all(value.is_floating_point() or value.numel() < 2 for value in state.values()):
        return state
    drawn = other().state_dict()
    if [(name, x.shape) for name, x in drawn.items()] != [(name, x.shape) for name, x in state.items()]:
        return state
    return {name: x if x.is_floating_point() or x.numel() < 2 else drawn[name] for name, x in state.items()}


def _shuffled(value: Any, generator: Any) -> Any:
    """A parameter's numbers in a random order; where they have both signs, with random ones."""
    value = value.detach().flatten()[torch.randperm(value.numel(), generator=generator)].reshape(value.shape)
    if (value < 0).any() and (value > 0).any():
        value = value * (1 - 2 * torch.randint(2, value.shape, generator=generator)).to(value.dtype)
    return value


def without_unread(case: CaseInputs, contents: Sequence[bytes], run: Callable[[Sequence[bytes]], object]) -> CaseInputs:
    """The case, with the inputs that the reference doesn't read: memory for results, as tasks of GPU MODE hand out.
    ``run`` is what it computes of contents."""

    def unread(i: int) -> bool:
        others = _others(case.tensors[i], contents[i])
        return all(run((*contents[:i], other, *contents[i + 1 :])) == first for other in others)

    first, found = run(contents), list(case.tensors)
    for i, given in enumerate(found):
        with contextlib.suppress(Exception):  # what it reads may be any error
            if unread(i):
                found[i] = replace(given, content=UNREAD)
    return replace(case, tensors=tuple(found))


def with_alike(cases: Sequence[CaseInputs], numbers: Sequence[Sequence[bool]]) -> list[CaseInputs]:
    """The cases of one task. Inputs that are one number, by ``numbers`` of each case, are :attr:`~.alike` where that
    input isn't in another case."""
    counts = {len(case.tensors) for case in cases}
    if len(counts) > 1:
        return list(cases)
    elsewhere = [not all(each) for each in zip(*numbers, strict=True)]
    found = []
    for case, own in zip(cases, numbers, strict=True):
        alike = (is_one and varies for is_one, varies in zip(own, elsewhere, strict=True))
        tensors = tuple(replace(t, alike=a) for t, a in zip(case.tensors, alike, strict=True))
        found.append(replace(case, tensors=tensors))
    return found


def _others(given: TensorInput, data: bytes) -> Iterator[bytes]:
    """Other contents of an input: small numbers, the largest, and NaN or, of whole numbers, each bit another."""
    tensor, dtype = tensor_of(given, data), getattr(torch, given.dtype)
    yield bytes_of((torch.rand(given.shape, generator=torch.Generator().manual_seed(1)) + 0.5).to(dtype))
    yield bytes_of(torch.full_like(tensor, math.nan) if dtype.is_floating_point else ~tensor)
    if dtype != torch.bool:
        limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        yield bytes_of(torch.full_like(tensor, limits.max))


def tensor_of(given: TensorInput, data: bytes) -> Any:
    """An input of these bytes, on the CPU."""
    return _lying(given, torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else _seen_in(data))


def on_device(given: TensorInput, data: bytes) -> Any:
    """The same on ``cuda``, with no copy on the way; on the CPU where a stand-in has it there."""
    here = _lying(given, _seen_in(data))
    there = here.to("cuda")
    return tensor_of(given, data).to("cuda") if there.data_ptr() == here.data_ptr() else there


def _lying(given: TensorInput, raw: Any) -> Any:
    return raw.view(getattr(torch, given.dtype)).as_strided(given.shape, given.strides)


def _seen_in(data: bytes) -> Any:
    """A tensor in the memory of these bytes, which have to outlive it. It isn't to be written: torch would warn of one
    that it knows can't be."""
    seen = np.frombuffer(data, np.uint8)
    pointer = ctypes.cast(seen.ctypes.data, ctypes.POINTER(ctypes.c_uint8))
    return torch.from_numpy(np.ctypeslib.as_array(pointer, seen.shape)) if data else torch.empty(0, dtype=torch.uint8)


def _raw(tensor: Any) -> Any:
    """A tensor's elements, dense, as bytes where it is."""
    dense = tensor.detach().contiguous()
    return dense.reshape(-1).view(torch.uint8) if dense.numel() else torch.empty(0, dtype=torch.uint8)


def bytes_of(tensor: Any) -> bytes:
    """A tensor's elements, dense."""
    return bytes(_raw(tensor.detach().cpu()).numpy().tobytes())


def large_of(tensor: Any) -> BytesLike:
    """As :func:`bytes_of`, in the memory to which a device's tensor was read."""
    here = tensor.detach().cpu()
    raw: np.ndarray = _raw(here).numpy()
    return raw.tobytes() if here.data_ptr() == tensor.data_ptr() else raw.data


def is_still(tensor: Any, data: bytes) -> bool:
    """Whether a tensor has these bytes: compared where it is, for to read it takes longer."""
    raw = _raw(tensor)
    return bool(torch.equal(raw, _seen_in(data).to(raw.device)))
