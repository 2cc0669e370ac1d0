"""Torch's operators on the device while a candidate is recorded: they fill memory, are replayed, or are named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Union

import torch

from kerntune.base.recording import View
from kerntune.base.users_line import calling_line
from kerntune.capture.operator_traits import FILLING, traits_of
from kerntune.gpu.base import tensors_in
from kerntune.gpu.fake_cuda.static_backend import StaticBackend
from kerntune.referee.torch_operators import FORMATS, VIEWING, NotReplayed, TorchOperator, row_of

PRODUCTS = frozenset((
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "convolution", "convolution_backward", "dot", "mm", "mv",
    "vdot",
))  # fmt: skip
"""Operators whose precision settings of torch's choose. A replay has the settings that torch begins with."""

UPLOADS = ("_to_copy", "copy_")
"""Operators that copy the host's memory to the device."""


def host_bytes(source: Any, made: Any) -> bytes | None:
    """The bytes that a tensor of the host's becomes with the dtype and layout of ``made``; None of one that has no
    values."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        try:
            dense = torch.empty_strided(made.shape, made.stride(), dtype=made.dtype)
            dense.copy_(source.detach())
            raw = torch.empty(0, dtype=torch.uint8).set_(dense.untyped_storage())
            return bytes(raw.numpy().tobytes())
        except (RuntimeError, TypeError, NotImplementedError):
            return None


def _is_whole(tensor: Any) -> bool:
    """Whether it has each element of its storage once."""
    count = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != count:
            return False
        count *= size
    return bool(tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes())


FirstContent = Union[bytes, tuple[str, Union[int, float]]]
"""Bytes that the host has, or a dtype and the number that fills a storage."""


class SeenOperator(NamedTuple):
    """An operator of the call: how many launches were made before it, its row where it can be replayed, with numbers of
    noted views, and its name and users' line. ``content`` is what it gives to whole storages, where that doesn't depend
    on the device."""

    launches: int
    row: TorchOperator | None
    made: Sequence[Any]
    tensors: Sequence[Any]
    content: FirstContent | None
    named: str


class DeviceOperators:
    """Torch's operators on the device's tensors: what fills memory that nothing has used is its first content, those
    that are replayed become rows, allocations and views run nothing, and all others are named."""

    def __init__(self, backend: StaticBackend) -> None:
        self._backend = backend
        self.launches: Sequence[Any] = ()
        self.names: list[str] = []
        self._allocated: dict[int, Any] = {}
        self._contents: dict[int, tuple[FirstContent, Any]] = {}
        """By place, what a storage was filled with last; the tensor keeps its place."""

        self._called = False
        self._before = self._contents
        """Those from before the call."""

        self._seen: list[SeenOperator] = []
        self._views: list[tuple[Any, int, View]] = []
        """Tensors of rows with their places, as they lay when they were seen; a storage's number is the plan's."""

        self._made: list[tuple[Any, int]] = []
        """Tensors that the call has made of what the host knows, by operators that aren't replayed."""

        self._changed: list[tuple[str, set[int]]] = []
        """Names of operators that change what the host knew before the call, and where: a counter is read by none."""

        self._launched_on: dict[int, Any] = {}
        """Places that kernels were launched on outside of the call, which aren't recorded."""

        self._precision = precision_of_products()
        self._rowed = set[int]()
        """Places that rows of the call write."""

    def begin_call(self) -> None:
        """What is filled from here on is filled in each execution."""
        if not self._called:
            self._called, self._before = True, {**self._contents}

    def is_of_the_call(self, tensor: Any) -> bool:
        """Whether the call has filled its storage, or made it of what the host knows."""
        place = self._place(tensor)
        found = self._contents.get(place)
        filled = found is not None and found is not self._before.get(place)
        return filled or any(place == made for _, made in self._made)

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
        arguments = [args[i] if i < len(args) else kwargs.get(name) for i, name in traits.writes]
        made = [*{id(x): x for x in tensors_in((result,), arguments) if tensors.is_tensor(x)}.values()]
        if not given and not made:
            return
        own = {self._place(x) for x in given}
        fresh = [x for x in made if self._place(x) not in own]
        if traits.word.removesuffix("_") in VIEWING and not fresh:
            return
        if not traits.works:
            self._allocated.update((self._place(x), x) for x in fresh)
            return
        content = self._content_given(traits.word, args, kwargs, made)
        known = content is None and not traits.writes and all(map(self._is_constant, fresh))
        row = self._row(now, func, args, kwargs, result) if self._called and made else None
        if known and row is None:
            self._made += [(x, self._place(x)) for x in fresh] if self._called else []
            return
        line = calling_line()
        named = traits.name + (f" ({Path(line.file).name}:{line.number})" if line else "")
        if self._called and not (content is None and traits.writes and any(map(self._is_of_before, made))):
            self._allocated.update((self._place(x), x) for x in fresh)
            self._rowed.update(map(self._place, made))
            self._seen.append(SeenOperator(now, row, made, (*given, *made), content, named))
        elif content is None and self._called:
            self._changed.append((named, {*map(self._place, made)}))
        elif content is None:
            self.names.append(named)
        else:
            self._contents.update((self._place(x), (content, x)) for x in made)

    def _is_of_before(self, tensor: Any) -> bool:
        """Whether a tensor has numbers that the host knows from before the call."""
        return self._is_constant(tensor) and self._place(tensor) not in self._rowed

    def _row(
        self, now: int, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> TorchOperator | None:
        if func._schema.name.removeprefix("aten::") in PRODUCTS and precision_of_products() != self._precision:
            return None
        try:
            return row_of(now, func, args, kwargs, result, self._noted)
        except NotReplayed:
            return None

    def _noted(self, tensor: Any) -> int | None:
        """The number of a noted view; None of a tensor that no row has."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        if not self._backend.tensors.is_tensor(tensor) or dtype not in FORMATS or tensor.is_neg() or tensor.is_conj():
            return None
        place, strides = self._place(tensor), tuple(map(int, tensor.stride()))
        offset = self._backend.tensors.address(tensor) - place if tensor.numel() else 0
        view = View(0, dtype, tuple(map(int, tensor.shape)), strides, offset)
        self._views.append((tensor, place, view))
        return len(self._views) - 1

    def rows(self, launched: Sequence[Iterable[Any]], view_in: Callable[[Any, View], int]) -> list[TorchOperator]:
        """Those of the call that are replayed, and what the others are called is in :attr:`names`. ``launched`` are the
        tensors that each launch has a pointer to; ``view_in`` gives the plan's number of a view."""
        used, at, found = set[int](), 0, list[TorchOperator]()
        for seen in self._seen:
            used.update(self._place(x) for tensors in launched[at : seen.launches] for x in tensors)
            at = max(at, seen.launches)
            if seen.content is not None and used.isdisjoint(map(self._place, seen.made)):
                self._contents.update((self._place(x), (seen.content, x)) for x in seen.made)
            elif any(x.numel() for x in seen.made):
                noted = {i: self._views[i] for i in (seen.row.views if seen.row is not None else ())}
                if seen.row is None or any(self._place(x) != place for x, place, _ in noted.values()):
                    self.names.append(seen.named)
                    continue
                numbers = {i: view_in(tensor, view) for i, (tensor, _, view) in noted.items()}
                found.append(seen.row.with_views(numbers))
                used.update(map(self._place, seen.tensors))
        used.update(self._place(x) for tensors in launched[at:] for x in tensors)
        self.names += [name for name, places in self._changed if not used.isdisjoint(places)]
        return found

    @property
    def seen_names(self) -> list[str]:
        """What the call's operators are called that don't just fill memory."""
        return [x.named for x in self._seen if x.content is None]

    def _content_given(
        self, word: str, args: Sequence[Any], kwargs: Mapping[str, Any], made: Sequence[Any]
    ) -> FirstContent | None:
        """What an operator gives to whole storages; None for anything that must run on the device."""
        if not made or not all(map(_is_whole, made)):
            return None
        if word in FILLING:
            return _filling(word, args, kwargs, made[0])
        return self._uploaded(word, args, made) if word in UPLOADS else None

    def _is_constant(self, tensor: Any) -> bool:
        """Whether a tensor was made from what the host knows."""
        return self._backend.stand_ins.known_values.of(tensor) is not None

    def _uploaded(self, word: str, args: Sequence[Any], results: Sequence[Any]) -> bytes | None:
        """The host's memory that is copied; None for anything else."""
        source: Any = args[1] if word == "copy_" else args[0]
        if self._backend.tensors.is_tensor(source) or len(results) != 1 or source.shape != results[0].shape:
            return None
        return host_bytes(source, results[0])

    def forget(self, tensor: Any) -> None:
        """A tensor's first content is given from outside."""
        self._contents.pop(self._place(tensor), None)

    def launched_outside(self, arguments: Iterable[Any]) -> None:
        """What these tensors hold isn't known any more: a kernel was launched on them that isn't recorded."""
        for tensor in filter(self._backend.tensors.is_tensor, arguments):
            place = self._place(tensor)
            self._contents.pop(place, None)
            self._allocated.pop(place, None)
            self._launched_on[place] = tensor

    def content_of(self, tensor: Any) -> FirstContent | None:
        """What a storage is filled with before anything uses it; None of one that isn't."""
        if found := self._contents.get(self._place(tensor)):
            return found[0]
        if self._place(tensor) in self._launched_on:
            return None
        with torch._C.DisableTorchFunction():
            storage = self._backend.stand_ins.known_values.storage_of(tensor)
            if storage is None or self._place(tensor) in self._rowed:
                return None
            return bytes(torch.empty(0, dtype=torch.uint8).set_(storage).numpy().tobytes())

    def allocated(self, tensor: Any) -> bool:
        """Whether a storage was made without content."""
        return self._place(tensor) in self._allocated

    def _place(self, tensor: Any) -> int:
        return self._backend.tensors.storage_address(tensor)


def precision_of_products() -> list[str]:
    """How torch's products may round inside; where its older and newer settings are mixed, what it says of that."""
    matmul, found = torch.backends.cuda.matmul, list[str]()
    for owner, name in (
        *((matmul, f"allow_{kind}") for kind in ("tf32", "fp16_accumulation", "fp16_reduced_precision_reduction")),
        (matmul, "allow_bf16_reduced_precision_reduction"), (torch.backends.cudnn, "allow_tf32"),
        (matmul, "fp32_precision"),
    ):  # fmt: skip
        try:
            found.append(str(getattr(owner, name, None)))
        except RuntimeError as exc:
            found.append(str(exc))
    return found


def _filling(word: str, args: Sequence[Any], kwargs: Mapping[str, Any], made: Any) -> FirstContent | None:
    """The number that an operator fills memory with; None where that is none."""
    value: Any = 0.0 if word.startswith(("zero", "new_zero")) else 1.0
    if "full" in word or word.startswith(("fill", "scalar_tensor")):
        plain = [a for a in (*args, *kwargs.values()) if isinstance(a, (bool, int, float))]
        if not plain or word == "scalar_tensor":
            return None
        value = plain[0]
    return str(made.dtype).removeprefix("torch."), int(value) if isinstance(value, bool) else value
