"""What a call has returned and written, and how that differs from what another implementation has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kerntune.gpu.base import Gpu
from kerntune.gpu.compare import Difference, compare_bytes, is_float
from kerntune.tuning.choices.call_copies import has_values, tensors_in
from kerntune.tuning.verification import TOLERANCE

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
        odd = [p for p in {**self.shapes, **other.shapes} if self.shapes.get(p) != other.shapes.get(p)]
        odd = [p for p in odd if not ignored(p.partition("[")[0])]
        if odd:
            mine, theirs = (_shape(o.shapes.get(odd[0])) for o in (self, other))
            return f"{odd[0]} is {theirs}, not {mine}"
        pairs = {place: (t, other.tensors[place]) for place, t in self.tensors.items() if place in other.tensors}
        for place in {**self.changed, **other.changed}:
            was = _alone(self.before[place])
            pairs[place] = self.changed.get(place, was), other.changed.get(place, was)
        for place, (expected, actual) in pairs.items():
            if ignored(place.partition("[")[0]):
                continue
            rounded = self.shapes.get(place) == PYTHON_FLOAT
            found = _difference(expected, actual, gpu, bitwise, TOLERANCE["float32"] if rounded else None)
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
    found = {f"result{place}": t for place, t in tensors_in(value)}
    found |= {f"gradient of {place}": t for place, t in gradients.items() if t is not None}
    plain = {f"result{place}": v for place, v in _plain_in(value)}
    shapes: dict[str, tuple[Any, ...]] = {place: (_dtype(t), *t.shape) for place, t in found.items()}
    floats = {place: v for place, v in plain.items() if isinstance(v, float)}
    found |= {place: torch.tensor(v, dtype=torch.float64, device="cpu") for place, v in floats.items()}
    shapes |= {place: PYTHON_FLOAT if place in floats else (repr(v),) for place, v in plain.items()}
    return CallOutcome(_kept(found), shapes, _kept(changed), before)


def _plain_in(value: Any, where: str = "") -> Iterator[tuple[str, bool | int | float | str | None]]:
    """Numbers, texts and None with their places, in tuples, lists and dicts of any depth."""
    if value is None or isinstance(value, (bool, int, float, str)):
        yield where, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _plain_in(inner, f"{where}[{name!r}]")
    elif isinstance(value, (tuple, list)):
        for i, inner in enumerate(value):
            yield from _plain_in(inner, f"{where}[{i}]")


def _kept(found: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        return {place: _alone(t) for place, t in found.items() if has_values(t)}


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with a storage of its own size."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _shape(found: tuple[Any, ...] | None) -> str:
    return "missing" if found is None else f"{found[0]}{tuple(found[1:]) if len(found) > 1 else ''}"


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _difference(
    expected: torch.Tensor, actual: torch.Tensor, gpu: Gpu, bitwise: bool, tolerance: float | None
) -> Difference | None:
    dtype = "uint8" if bitwise else _dtype(expected)
    allowed = 0.0 if not is_float(dtype) else TOLERANCE[dtype] if tolerance is None else tolerance
    if not expected.numel():
        return None
    if expected.is_cuda and actual.is_cuda:
        return gpu.compare(gpu.borrow(expected), gpu.borrow(actual), dtype, allowed)
    return compare_bytes(_bytes(expected), _bytes(actual), dtype, allowed)


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.cpu().reshape(-1).view(torch.uint8).numpy())
