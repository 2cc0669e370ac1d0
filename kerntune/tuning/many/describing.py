"""Describes a call of a tuned kernel as data: sizes, strides, types and places of its tensors, never their contents.

A kernel has a name by which another process finds its tuner.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
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
from kerntune.kernels.compat import tuners
from kerntune.kernels.source import DTYPES, defaults_of, function_of, layout_of, named_arguments, wrappers


def describe(tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any], configs: Sequence[Config] = ()) -> TuningJob:
    """A call ``tuner.run(*args, **kwargs)`` (``grid`` among the keywords) as a job. Nothing is launched.

    What can't be described is said in :attr:`TuningJob.unknown`, with what to do. ``configs`` are the candidates of a
    kernel without a tuner.
    """
    function, names = function_of(tuner), tuner.arg_names
    given = named_arguments(tuner, args, {k: v for k, v in kwargs.items() if k not in LAUNCH_WORDS})
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


def tuner_among_layers(kernel: Any) -> Any:
    """The tuner of a kernel, below other decorators or not; None if it has none."""
    tuners_over = (x for x in wrappers(kernel) if hasattr(x, "configs") and hasattr(x, "keys"))
    return next(tuners_over, None)


def _key(tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    if not hasattr(tuner, "keys"):
        return ""
    return str(tuners.autotuner_key(tuner, named_arguments(tuner, args, {}), kwargs))


def _described(name: str, value: Any, blocks: _Blocks) -> ArgumentText:
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
    words = [dict(one.kwargs) for one in configs or tuners.prune_configs(tuner, args, dict(kwargs))]
    names = tuple(dict.fromkeys(name for one in words for name in one))
    meta = {**defaults_of(tuner), **named_arguments(tuner, args, kwargs)}
    meta = {name: value for name, value in meta.items() if name not in LAUNCH_WORDS}
    layers, _ = tuners.heuristic_layers(tuner.fn)
    found: dict[str, tuple[int, ...]] = {}
    for one in words:
        try:
            found[meta_text(names, one)] = _sizes(grid(tuners.heuristic_values(layers, {**meta, **one})))
        except Exception:  # a user's own: such a config can't be launched there either
            continue
    if not found:
        raise UsageError("its grid can't be computed for any of its configs; tune this call by calling it once")
    return GridText(by_meta=found, names=names)


def _sizes(grid: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in grid) if isinstance(grid, (tuple, list)) else (int(grid),)


MAIN = "__main__"
NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def name_of(kernel: Any) -> tuple[str, str]:
    """Module and qualified name of a tuner, or of a kernel without one, as another process can import it.

    :class:`UsageError` says why there is none: it was made inside of a function, in a notebook, or is no module's.
    """
    function = function_of(kernel)
    module, name = function.__module__, function.__qualname__
    loaded = sys.modules.get(module)
    names = [name, *(() if loaded is None else vars(loaded))]
    found = next((n for n in names if _reaches(_attribute(loaded, n), kernel)), "")
    if found:
        return _importable(module, function), found
    for other, held in list(sys.modules.items()):
        if other != MAIN and inspect.ismodule(held):
            for attribute, value in list(vars(held).items()):
                if value is kernel:
                    return other, attribute
    raise UsageError(
        f"kernel {name} ({function.__code__.co_filename}): no module has its tuner as an attribute, so another process "
        "can't find it; assign it to a name at the top level of a module"
    )


def _reaches(value: Any, kernel: Any) -> bool:
    """Whether a module's attribute is the kernel, or something around it (``@triton.heuristics``, a wrapper)."""
    if value is kernel:
        return True
    if not hasattr(type(value), "run") or not hasattr(value, "fn"):
        return False
    return any(layer is kernel for layer in wrappers(value))


def _importable(module: str, function: Any) -> str:
    """A module's name for another process: a script's is what it is called as a module."""
    if module != MAIN:
        return str(module)
    spec = getattr(sys.modules[MAIN], "__spec__", None)
    if spec is not None and spec.name:
        return str(spec.name).removesuffix(f".{MAIN}")
    script = Path(function.__code__.co_filename)
    if script.suffix == ".py" and NAME.fullmatch(script.stem):
        return script.stem
    raise UsageError(
        f"kernel {function.__qualname__} ({script}): it is defined in a program that can't be imported; put the kernel "
        "into a module"
    )


def tuner_of(module: str, name: str, modules: tuple[str, ...] = ()) -> Any:
    """The kernel with this name, imported; with ``modules`` only from one of these or from within one.

    A module is imported as any ``import`` statement does, and attributes are looked up; nothing is called.
    :class:`UsageError` says what is missing, and what to do.
    """
    if not (NAME.fullmatch(module) and NAME.fullmatch(name)):
        raise UsageError(f"{module[:80]!r} and {name[:80]!r} are no names of a module and a kernel")
    if modules and not any(module == one or module.startswith(f"{one}.") for one in modules):
        why = f"only {', '.join(modules)} may be imported"
        raise UsageError(f"kernel {module}.{name}: {why}; add --module {module}")
    kernel = _attribute(_imported(module, name), name)
    if kernel is None or not hasattr(type(kernel), "run") or not hasattr(kernel, "fn"):
        file = getattr(sys.modules.get(module), "__file__", None) or module
        raise UsageError(
            f"kernel {module}.{name}: {file} has no kernel of that name; it was renamed, or is made only "
            "when the program runs. Record the shapes anew"
        )
    return kernel


def _imported(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as exc:  # a user's module may raise anything
        if isinstance(exc, ModuleNotFoundError) and exc.name and (module == exc.name or module.startswith(exc.name)):
            raise UsageError(
                f"kernel {module}.{name}: there is no module {exc.name} here; install it, or give its folder with "
                f"--path (looked in the working folder {os.getcwd()} and where Python looks)"
            ) from exc
        why = f"{type(exc).__name__}: {exc}"
        raise UsageError(f"kernel {module}.{name}: importing {module} failed: {why}") from exc


def _attribute(holder: Any, name: str) -> Any:
    for part in name.split("."):
        holder = None if holder is None else inspect.getattr_static(holder, part, None)
        if isinstance(holder, staticmethod):
            holder = holder.__func__
    return holder
