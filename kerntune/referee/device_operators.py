"""What torch's operators do to the device's memory while a candidate is recorded: they fill it, or are named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union

from kerntune.capture.operator_traits import FILLING, traits_of
from kerntune.gpu.base import tensors_in
from kerntune.gpu.fake_cuda.static_backend import StaticBackend
from kerntune.referee.tasks import OF_A_PART

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


def _is_whole(tensor: Any) -> bool:
    return bool(tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes())


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
            of_host = traits.word in UPLOADS and not all(map(tensors.is_tensor, tensors_in(args, kwargs.values())))
            in_part = (traits.word in FILLING or of_host) and not all(map(_is_whole, made))
            self.names.append(traits.name + OF_A_PART * in_part)

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
        if not _is_whole(made) or source.shape != made.shape:
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
        if not all(map(_is_whole, made)):
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
