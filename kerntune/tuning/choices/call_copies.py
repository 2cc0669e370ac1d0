"""Makes a call on copies of its tensors, and compares what calls have returned and written.

The user's own tensors are read, and stay as they are while the call is decided.
"""

from __future__ import annotations

import contextlib
import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import torch

from kerntune.gpu.base import Gpu
from kerntune.gpu.compare import compare_bytes, is_float
from kerntune.gpu.probe import has_stand_ins
from kerntune.tuning.verification import TOLERANCE

ALIGNED = 256
"""Bytes. An address keeps its remainder, so that kernels are compiled for the copy as for the tensor itself."""


class CallCopies:
    """The arguments of one call, by parameter, with copies in place of the tensors: of arguments, and of those in
    their tuples, lists and dicts. Tensors that share memory do so in the copy, with the same strides. What
    ``triton.reinterpret`` gives is copied, too, and isn't among ``originals`` and ``copies``.

    What other objects hold (a module's parameters) is not copied. Memory that no tensor of the call covers isn't
    either. RuntimeError of torch where there is no memory for a copy.
    """

    def __init__(self, values: Mapping[str, Any], grad: bool) -> None:
        self._pieces: list[_Piece] = []
        self._grad = grad
        tensors = [t for _, t in tensor_places(values, reinterpreted=True)]
        with torch.no_grad():
            found = {id(t): copy for piece in _pieces(tensors) for t, copy in self._copied(piece)}
        self.values = {name: _replaced(value, found) for name, value in values.items()}
        self.originals = dict(tensor_places(values))
        self.copies = dict(tensor_places(self.values))

    @property
    def leaves(self) -> list[torch.Tensor]:
        """The copies that a gradient is asked for."""
        return [t for t in self.copies.values() if t.requires_grad]

    def note_written(self) -> dict[str, torch.Tensor]:
        """After an implementation's first run: the copies that aren't what they were, by place. Memory in which one
        has written is restored from now on, no other."""
        changed = [piece for piece in self._pieces if piece.differs()]
        for piece in changed:
            piece.written = True
        copies = {id(copy) for piece in changed for _, copy in piece.views}
        return {place: copy for place, copy in self.copies.items() if id(copy) in copies}

    @property
    def counts_on(self) -> bool:
        """Whether an implementation writes integers into the arguments: positions, say, by which a further call on what
        one has left may leave its tensors."""
        written = {id(t) for piece in self._pieces if piece.written for t, _ in piece.views}
        changed = [t for t in self.originals.values() if id(t) in written]
        return not all(t.is_floating_point() or t.is_complex() for t in changed)

    def doubt(self) -> None:
        """After one that has failed: it may have written anywhere."""
        for piece in self._pieces:
            piece.written = True

    def restore(self) -> None:
        """Give the copies the content of the call's own tensors again."""
        with torch.no_grad():
            for piece in self._pieces:
                if piece.written:
                    piece.copy.copy_(piece.source)

    def _copied(self, piece: _Piece) -> list[tuple[torch.Tensor, torch.Tensor]]:
        self._pieces.append(piece)
        return [(t, copy.requires_grad_(self._grad and t.requires_grad)) for t, copy in piece.views]


@dataclass
class _Piece:
    """Memory of the user's that is copied, and the tensors that lie in it with their copies."""

    source: torch.Tensor
    copy: torch.Tensor
    views: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    written: bool = False

    def differs(self) -> bool:
        """Whether the copy isn't what it was; also where that can't be found out."""
        if not has_values(self.source):
            return True
        try:
            return not torch.equal(self.source, self.copy)
        except (RuntimeError, NotImplementedError):  # no memory for it, or a subclass of tensors
            return True


def _pieces(tensors: list[torch.Tensor]) -> Iterator[_Piece]:
    groups: dict[tuple[Any, int], list[torch.Tensor]] = defaultdict(list)
    for tensor in {id(t): t for t in tensors}.values():
        if not is_plain(tensor) or not tensor.numel():
            copy = tensor.detach().clone()
            yield _Piece(tensor.detach(), copy, [(tensor, copy)])
        else:
            groups[tensor.device, tensor.untyped_storage().data_ptr()].append(tensor)
    yield from map(_shared, groups.values())


def _shared(group: list[torch.Tensor]) -> _Piece:
    """One copy of the bytes from the first to the last that these views of one storage have."""
    storage, device = group[0].untyped_storage(), group[0].device
    first = min(t.data_ptr() for t in group)
    last = max(t.data_ptr() + _extent(t) for t in group)
    skipped = first % ALIGNED
    source = torch.empty(0, dtype=torch.uint8, device=device)
    source.set_(storage, first - storage.data_ptr(), (last - first,), (1,))
    room = torch.empty(last - first + skipped + ALIGNED, dtype=torch.uint8, device=device)
    begin = skipped + -room.data_ptr() % ALIGNED
    piece = _Piece(source, room[begin : begin + last - first])
    piece.copy.copy_(source)
    for t in group:
        at = (begin + t.data_ptr() - first) // t.itemsize
        copy = torch.empty(0, dtype=t.dtype, device=device)
        copy.set_(room.untyped_storage(), at, t.shape, t.stride())
        piece.views.append((t, copy))
    return piece


def _extent(t: torch.Tensor) -> int:
    last = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return int((last + 1) * t.itemsize)


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is torch's own and has memory with values: no stand-in, no other subclass."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    return plain and not tensor.is_meta and not (tensor.is_conj() or tensor.is_neg())


def has_values(tensor: torch.Tensor) -> bool:
    """Whether what a tensor holds can be compared: of stand-ins, it can't."""
    return not (has_stand_ins() and not is_plain(tensor))


def tensor_places(value: Any, where: str = "", *, reinterpreted: bool = False) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a value with their places: in tuples, lists and dicts of any depth; also those that are
    ``reinterpreted`` by Triton."""
    for place, one in _places(value, where):
        if isinstance(one, torch.Tensor):
            yield place, one
        elif reinterpreted and _is_reinterpreted(one):
            yield place, one.base


def _places(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _places(inner, f"{where}[{name!r}]" if where else str(name))
    elif isinstance(value, (tuple, list)):
        for i, inner in enumerate(value):
            yield from _places(inner, f"{where}[{i}]")
    else:
        yield where, value


def _is_reinterpreted(value: Any) -> bool:
    return type(value).__name__ == "TensorWrapper"


def _replaced(value: Any, found: Mapping[int, torch.Tensor]) -> Any:
    """All that :func:`tensor_places` finds is replaced, in containers of the same classes: no implementation may get a
    tensor of the user's."""
    if isinstance(value, torch.Tensor):
        return found[id(value)]
    if _is_reinterpreted(value):
        return type(value)(found[id(value.base)], value.dtype)
    if next(tensor_places(value, reinterpreted=True), None) is None:
        return value
    if isinstance(value, Mapping):
        within = {name: _replaced(inner, found) for name, inner in value.items()}
        if not isinstance(value, MutableMapping):
            return type(value)(within)  # type: ignore[call-arg]  # as MappingProxyType
        mapping = copy.copy(value)
        for name, inner in within.items():
            mapping[name] = inner
        return mapping
    inside = [_replaced(inner, found) for inner in value]
    if isinstance(value, list):
        replaced = copy.copy(value)
        replaced[:] = inside
        return replaced
    return type(value)._make(inside) if hasattr(value, "_make") else type(value)(inside)


@contextlib.contextmanager
def random_state_kept() -> Iterator[Callable[[], None]]:
    """What is given sets torch's random numbers back to where they are now, as the end does."""
    on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized() and not has_stand_ins()
    host, device = torch.get_rng_state(), torch.cuda.get_rng_state() if on_gpu else None

    def back() -> None:
        torch.set_rng_state(host)
        if device is not None:
            torch.cuda.set_rng_state(device)

    try:
        yield back
    finally:
        back()


PYTHON_FLOAT = ("float",)
"""The shape of one that is returned. It is kept in all its bits, and mostly was computed as float32."""


@dataclass(frozen=True)
class CallOutcome:
    """Copies of the tensors that a call left, by place: those that it returned, gradients, and the arguments that it
    ``changed``. ``before`` has all arguments as they were."""

    tensors: Mapping[str, torch.Tensor]
    shapes: Mapping[str, tuple[Any, ...]]
    changed: Mapping[str, torch.Tensor]
    before: Mapping[str, torch.Tensor]

    def differs(
        self, other: CallOutcome, gpu: Gpu, ignored: Callable[[str], bool], bitwise: bool = False
    ) -> str | None:
        """Where and by how much ``other`` differs; None if it agrees within the tolerance of each dtype, or to the
        bit."""
        mine, theirs = self.shapes, other.shapes
        odd = [p for p in {**mine, **theirs} if mine.get(p) != theirs.get(p)]
        if odd := [p for p in odd if not ignored(p.partition("[")[0])]:
            return f"{odd[0]} is {_shape(theirs.get(odd[0]))}, not {_shape(mine.get(odd[0]))}"
        both = [place for place in self.tensors if place in other.tensors]
        pairs = {place: (self.tensors[place], other.tensors[place]) for place in both}
        for place in {**self.changed, **other.changed}:
            was = _alone(self.before[place])
            pairs[place] = self.changed.get(place, was), other.changed.get(place, was)
        for place, (expected, actual) in pairs.items():
            if ignored(place.partition("[")[0]) or not expected.numel():
                continue
            dtype = "uint8" if bitwise else _dtype(expected)
            within = "float32" if self.shapes.get(place) == PYTHON_FLOAT else dtype
            allowed = TOLERANCE[within] if is_float(dtype) else 0.0
            if expected.is_cuda and actual.is_cuda:
                found = gpu.compare(gpu.borrow(expected), gpu.borrow(actual), dtype, allowed)
            else:
                found = compare_bytes(_bytes(expected), _bytes(actual), dtype, allowed)
            if found is not None:
                what = "bits" if bitwise else "values"
                return f"wrote other {what} into {place} ({found}, dtype {_dtype(expected)})"
        return None


def outcome_of(
    value: Any,
    changed: Mapping[str, torch.Tensor],
    gradients: Mapping[str, torch.Tensor | None],
    before: Mapping[str, torch.Tensor],
) -> CallOutcome:
    """What a call on copies has returned and left, kept apart from what the next call writes."""
    found = dict(tensor_places(value, "result"))
    found |= {f"gradient of {place}": t for place, t in gradients.items() if t is not None}
    kinds = (bool, int, float, str, type(None))
    plain = {place: v for place, v in _places(value, "result") if isinstance(v, kinds)}
    shapes: dict[str, tuple[Any, ...]] = {place: (_dtype(t), *t.shape) for place, t in found.items()}
    floats = {place: v for place, v in plain.items() if isinstance(v, float)}
    found |= {place: torch.tensor(v, dtype=torch.float64, device="cpu") for place, v in floats.items()}
    shapes |= {place: PYTHON_FLOAT if place in floats else (repr(v),) for place, v in plain.items()}
    return CallOutcome(_kept(found), shapes, _kept(changed), before)


def _kept(found: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        return {place: _alone(t) for place, t in found.items() if has_values(t)}


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _shape(found: tuple[Any, ...] | None) -> str:
    return "missing" if found is None else f"{found[0]}{tuple(found[1:]) if len(found) > 1 else ''}"


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.cpu().reshape(-1).view(torch.uint8).numpy())
