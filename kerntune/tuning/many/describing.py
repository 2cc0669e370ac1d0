"""A call of a tuned kernel, described: sizes, strides, types and places of its tensors, never what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kerntune.base.config import Config
from kerntune.base.tuning_job import (
    ALIGNED,
    SCHEMA,
    ArgumentText,
    ConstantText,
    DescriptorText,
    DtypeText,
    FunctionText,
    GridText,
    NamedArgument,
    SequenceText,
    TensorText,
    TuningJob,
    meta_text,
    scalar_text,
)
from kerntune.capture import LAUNCH_WORDS
from kerntune.errors import KerntuneError, UsageError
from kerntune.kernels import compat
from kerntune.kernels.source import function_of
from kerntune.kernels.value_text import DTYPES, layout_of
from kerntune.tuning.many.named_kernel import name_of


def describe(tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any], configs: Sequence[Config] = ()) -> TuningJob:
    """A call ``tuner.run(*args, **kwargs)`` (``grid`` among the keywords) as a job. Nothing is launched.

    What can't be described is said in :attr:`TuningJob.unknown`, with what to do. ``configs`` are the candidates of a
    kernel without a tuner.
    """
    function, names = function_of(tuner), tuner.arg_names
    given = {**dict(zip(names, args, strict=False)), **{k: v for k, v in kwargs.items() if k not in LAUNCH_WORDS}}
    module, name, unknown = function.__module__, function.__qualname__, ""
    arguments: tuple[NamedArgument, ...] = ()
    grid = GridText()
    try:
        module, name = name_of(tuner)
        blocks = _Blocks(given.values())
        arguments = tuple(NamedArgument(k, _described(k, v, blocks)) for k, v in given.items())
        grid = grid_of(tuner, args, kwargs, configs)
    except KerntuneError as exc:
        unknown = str(exc)
    return TuningJob(
        SCHEMA, module, name, arguments, grid, min(len(args), len(names)), tuple(configs), _key(tuner, args, kwargs),
        rounded=hasattr(tuner, "tuning_key"), file=function.__code__.co_filename, unknown=unknown,
    )  # fmt: skip


def _key(tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    if not hasattr(tuner, "keys"):
        return ""
    return str(compat.autotuner_key(tuner, dict(zip(tuner.arg_names, args, strict=False)), kwargs))


def _described(name: str, value: Any, blocks: _Blocks) -> ArgumentText:
    """One argument; :class:`UsageError` for an object that has no description."""
    if (scalar := scalar_text(value)) is not None:
        return scalar
    if is_tensor(value):
        return blocks.tensor(value)
    if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
        return SequenceText(type(value).__name__, tuple(_described(name, item, blocks) for item in value))
    if hasattr(value, "block_shape") and hasattr(value, "base") and not layout_of(value):
        sizes = (tuple(map(int, getattr(value, part))) for part in ("shape", "strides", "block_shape"))
        return DescriptorText(blocks.tensor(value.base), *sizes)
    kind = type(value)
    if kind.__module__.partition(".")[0] in ("torch", "triton") and kind.__name__ in DTYPES:
        library = kind.__module__.partition(".")[0]
        return DtypeText(library, str(value).removeprefix("torch."))
    if kind.__name__ == "constexpr":
        return ConstantText(_described(name, value.value, blocks))
    if hasattr(value, "fn") and hasattr(kind, "run"):
        return FunctionText(*name_of(value))
    raise UsageError(
        f"argument {name} is a {kind.__module__}.{kind.__qualname__}, which can't be described as data; tune this call "
        "by calling it once"
    )


def is_tensor(value: Any) -> bool:
    """Whether a value has a layout, as torch's tensors have."""
    return all(hasattr(value, name) for name in ("stride", "dtype", "shape", "data_ptr", "element_size"))


class _Blocks:
    """The pieces of memory that a call's tensors lie in: those that overlap are one."""

    def __init__(self, values: Any) -> None:
        self._spans: list[tuple[int, int]] = []
        for begin, end in sorted(_span(t) for t in _tensors(values) if _address(t)):
            if self._spans and begin < self._spans[-1][1]:
                self._spans[-1] = self._spans[-1][0], max(end, self._spans[-1][1])
            else:
                self._spans.append((begin, end))
        self._without = 0

    def tensor(self, value: Any) -> TensorText:
        """A tensor in its place. One without an address (on torch's meta device) has memory of its own."""
        layout = str(value.dtype).removeprefix("torch."), tuple(map(int, value.shape)), tuple(map(int, value.stride()))
        host = value.device.type == "cpu"
        address, (begin, end) = _address(value), _span(value)
        if not address:
            self._without += 1
            return TensorText(*layout, len(self._spans) + self._without - 1, end - begin, host=host)
        block = next(i for i, (low, high) in enumerate(self._spans) if low <= begin and end <= high)
        low, high = self._spans[block]
        return TensorText(*layout, block, high - low, begin - low, low % ALIGNED, host)


def _tensors(values: Any) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, (tuple, list)):
            found += _tensors(value)
        elif is_tensor(value):
            found.append(value)
        elif hasattr(value, "block_shape") and hasattr(value, "base"):
            found.append(value.base)
    return found


def _address(tensor: Any) -> int:
    return int(tensor.data_ptr()) if tensor.device.type != "meta" else 0


def _span(tensor: Any) -> tuple[int, int]:
    """From the first byte of a tensor to the end of its last element; strides aren't negative in torch."""
    begin = _address(tensor)
    if 0 in tensor.shape:
        return begin, begin
    last = sum((int(n) - 1) * int(s) for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * int(tensor.element_size())


def grid_of(tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any], configs: Sequence[Config] = ()) -> GridText:
    """The call's grid for each of its configs. A function of the call's is asked, as Triton does before a launch."""
    grid = kwargs.get("grid")
    if grid is None:
        return GridText()
    if not callable(grid):
        return GridText(_sizes(grid))
    words = _words_of_configs(tuner, args, kwargs, configs)
    names = tuple(dict.fromkeys(name for one in words for name in one))
    meta = {**_defaults(tuner), **dict(zip(tuner.arg_names, args, strict=False)), **kwargs}
    meta = {name: value for name, value in meta.items() if name not in LAUNCH_WORDS}
    layers, _ = compat.heuristic_layers(tuner.fn)
    found: dict[str, tuple[int, ...]] = {}
    for one in words:
        whole = {**meta, **one}
        try:
            for _, values in layers:
                for name, value in values.items():
                    whole[name] = value(whole)
            found[meta_text(names, one)] = _sizes(grid(whole))
        except Exception:  # a user's own: such a config can't be launched there either
            continue
    if not found:
        raise UsageError("its grid can't be computed for any of its configs; tune this call by calling it once")
    return GridText(by_meta=found, names=names)


def _sizes(grid: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in grid) if isinstance(grid, (tuple, list)) else (int(grid),)


def _words_of_configs(
    tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any], configs: Sequence[Config]
) -> list[dict[str, Any]]:
    if configs:
        return [dict(config.kwargs) for config in configs]
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    try:
        return [dict(config.kwargs) for config in compat.prune_configs(tuner, dict(kwargs))]
    finally:
        tuner.nargs = None


def _defaults(tuner: Any) -> dict[str, Any]:
    import inspect

    parameters = inspect.signature(function_of(tuner)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
