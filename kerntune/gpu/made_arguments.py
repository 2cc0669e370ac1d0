"""Arguments made from a description of a call: memory of the described sizes and places, with contents of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kerntune.base.tuning_job import (
    ALIGNED,
    ArgumentText,
    ConstantText,
    DescriptorText,
    FunctionText,
    GridText,
    ScalarText,
    SequenceText,
    TensorText,
    TuningJob,
    meta_text,
    scalar_of,
)
from kerntune.errors import GridError, UsageError

AT_ONCE = 1 << 24
"""Elements that are made at a time: random numbers are float32 first, and need not double a call's memory."""

FindFunction = Callable[[FunctionText], Any]


def make_arguments(job: TuningJob, find: FindFunction) -> tuple[list[Any], dict[str, Any]]:
    """Positional arguments and keywords, ``grid`` too, of a call like the described one, on torch's current GPU.

    Floats are normally distributed; integers lie between 0 and the least size of any tensor, so that they are in range
    as indices of whatever they index; bools are random. Tensors that overlapped overlap again. ``find`` gives the
    function for a name. :class:`UsageError` for a description of nothing, and for memory that the device lacks.
    """
    blocks = _Memory(job)
    named = {a.name: _value(a.value, blocks, find) for a in job.arguments}
    names = list(named)
    args = [named[name] for name in names[: job.positional]]
    words = {name: named[name] for name in names[job.positional :]}
    return args, {**words, "grid": grid_of(job)}


def grid_of(job: TuningJob) -> Any:
    """The call's grid: a tuple, or a function of the meta-parameters that knows those of the described configs."""
    text: GridText = job.grid
    if not text.by_meta:
        return text.fixed

    def grid(meta: dict[str, Any]) -> tuple[int, ...]:
        asked = meta_text(text.names, meta)
        if asked not in text.by_meta:
            raise GridError(
                f"{job}: its grid is not known for {asked}; the configs have changed, record the shapes anew"
            )
        return text.by_meta[asked]

    return grid


class _Memory:
    """The blocks of memory that a job's tensors lie in, each made when it is first needed."""

    def __init__(self, job: TuningJob) -> None:
        self._job = job
        self._made: dict[tuple[int, bool], Any] = {}
        sizes = [n for text in tensors_of(job) for n in text.shape if n > 0]
        self._below = min(sizes, default=1)

    def tensor(self, text: TensorText) -> Any:
        """A tensor in its block."""
        dtype = _dtype(text.dtype)
        item = dtype.itemsize
        key = text.block, text.host
        if key not in self._made:
            self._made[key] = self._block(text, dtype)
        memory, begin = self._made[key]
        begin += text.offset
        if begin % item:
            raise UsageError(f"{self._job}: a tensor of {text.dtype} lies at byte {begin}, which it can't")
        whole = memory[begin % item : (memory.numel() - begin % item) // item * item].view(dtype)
        return whole.as_strided(text.shape, text.strides, begin // item)

    def _block(self, text: TensorText, dtype: Any) -> tuple[Any, int]:
        """A block's bytes, and where in them it begins."""
        import torch

        begin = text.misaligned
        size = -(-(begin + text.nbytes) // ALIGNED) * ALIGNED + ALIGNED
        device = "cpu" if text.host else "cuda"
        try:
            memory = torch.empty(size, dtype=torch.uint8, device=device)
        except torch.cuda.OutOfMemoryError as exc:
            raise UsageError(
                f"{self._job}: its tensors don't fit into this GPU's memory ({size / 2**30:.1f} GiB wanted); tune it "
                "on a larger one"
            ) from exc
        for part in memory.view(dtype).split(AT_ONCE):
            if dtype.is_floating_point or dtype.is_complex:
                part.copy_(torch.randn(part.shape, device=device))
            else:
                high = 2 if dtype is torch.bool else min(self._below, torch.iinfo(dtype).max)
                part.copy_(torch.randint(0, high, part.shape, device=device))
        return memory, begin


def tensors_of(job: TuningJob) -> Iterator[TensorText]:
    """All tensors of a job."""
    waiting: list[ArgumentText] = [a.value for a in job.arguments]
    while waiting:
        one = waiting.pop()
        if isinstance(one, TensorText):
            yield one
        elif isinstance(one, SequenceText):
            waiting += one.items
        elif isinstance(one, DescriptorText):
            yield one.base


def _value(text: ArgumentText, blocks: _Memory, find: FindFunction) -> Any:
    if isinstance(text, TensorText):
        return blocks.tensor(text)
    if isinstance(text, ScalarText):
        return scalar_of(text)
    if isinstance(text, SequenceText):
        items = (_value(item, blocks, find) for item in text.items)
        return list(items) if text.kind == "list" else tuple(items)
    if isinstance(text, FunctionText):
        return find(text)
    if isinstance(text, DescriptorText):
        from triton.tools.tensor_descriptor import TensorDescriptor

        shape, strides, block = (list(x) for x in (text.shape, text.strides, text.block_shape))
        return TensorDescriptor(blocks.tensor(text.base), shape, strides, block)
    if isinstance(text, ConstantText):
        import triton.language as tl

        return tl.constexpr(_value(text.value, blocks, find))
    if text.library == "torch":
        return _dtype(text.name)
    import triton.language as tl

    try:
        return tl.dtype(text.name)
    except (AssertionError, ValueError):
        raise UsageError(f"Triton has no type {text.name[:80]!r}; record the shapes anew") from None


def _dtype(name: str) -> Any:
    """torch's type by its name alone: nothing else of torch is looked up."""
    import torch

    found = getattr(torch, name, None) if name.isidentifier() else None
    if not isinstance(found, torch.dtype):
        raise UsageError(f"torch has no type {name[:80]!r}; record the shapes anew, or use the torch that they are of")
    return found
