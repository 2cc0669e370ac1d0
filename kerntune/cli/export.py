"""``kerntune export``: a tuned kernel as cubin, C header and C launcher, for programs without Python."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kerntune.base.codec import write_atomic
from kerntune.base.config import Config
from kerntune.base.device import Target, target_named
from kerntune.cli.cache import cache_dir_argument, open_cache
from kerntune.errors import ConfigError, GridError, UsageError
from kerntune.gate.console import OK, say
from kerntune.gpu.c_launcher import CKernel, c_names, header, source
from kerntune.grids import FixedGrid, Grid
from kerntune.grids.grid import grid_of_text, traced
from kerntune.kernels.compat import stored_options, triton_compiler
from kerntune.kernels.source import jit_of, kernel_name
from kerntune.tuning.launch_files import (
    AheadOfTime,
    ArgumentLike,
    TensorLike,
    argument_of,
    arguments_of,
    compiled_ahead,
    load_kernel,
    one_winner,
    stored_for,
)

if TYPE_CHECKING:
    from kerntune.gpu.fake_cuda.static_backend import StaticBackend


def run_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune export`` takes."""
    parser.add_argument("kernel", metavar="KERNEL", help="package.module:kernel or path/to/file.py:kernel")
    parser.add_argument(
        "--key",
        metavar="NAME=VALUE",
        action="append",
        help="an argument of the call: n=4096, x_ptr=fp16[4096,128]; those that aren't given are the stored winner's",
    )
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="folder of the files")
    parser.add_argument(
        "--grid",
        metavar="GRID",
        help="cdiv(n, BLOCK), or a grid or grid function of the kernel's module (default: three arguments)",
    )
    parser.add_argument(
        "--config", metavar="NAME=VALUE,...", help="instead of the stored winner's: BLOCK=128,num_warps=4"
    )
    parser.add_argument("--name", metavar="NAME", help="of files and C functions (default: the kernel's)")
    parser.add_argument("--target", metavar="TARGET", help="what to compile for (default: the stored winner's)")
    parser.add_argument("--cpp", action="store_true", help="a launcher in C++11 instead of C99")
    cache_dir_argument(parser)


def run(args: Namespace) -> int:
    """Write the files, and print their paths."""
    triton_compiler.take_announcements()
    with _importable(args.kernel):
        for path in _exported(args):
            say(str(path))
    return OK


@contextmanager
def _importable(kernel: str) -> Iterator[None]:
    """Python looks in the kernel's folder first, as it does for a script: of a file, else the working folder."""
    place = kernel.rpartition(":")[0]
    folder = Path(place).resolve().parent if place.endswith(".py") else Path.cwd()
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = before


def _exported(args: Namespace) -> list[Path]:
    from kerntune.gpu.fake_cuda.static_backend import StaticBackend  # imports torch, which other commands do without

    given = dict(map(_key, args.key or []))
    cache = open_cache(args.cache_dir)
    first = target_named(args.target or "cuda:90")
    with StaticBackend(first).activate():
        kernel, module = load_kernel(args.kernel)
        name = kernel_name(jit_of(kernel))
        names = jit_of(kernel).arg_names
        if unknown := [word for word in given if word not in names]:
            raise UsageError(f"--key {unknown[0]}: kernel {name} has no such argument; it has {', '.join(names)}")
        winner = one_winner(name, stored_for(kernel, given, args.target, cache))
    target = Target.parse(winner.key.target) if winner is not None and args.target is None else first
    if winner is None and args.target is None:
        raise UsageError(f"kernel {name}: no stored winner fits, so say what to compile for: --target cuda:90")
    stored = winner.config if winner is not None else None
    config = _config(args.config, kernel, name, stored, target)
    known = {} if winner is None else arguments_of(winner.key.arguments)
    arguments = {**{n: v for n, v in known.items() if n in names}, **given}
    backend = StaticBackend(target)
    with backend.activate():
        made = _compiled(backend, kernel, arguments, config)
        grid = _grid(args.grid, module, made, config, arguments)
    notes = [f"Config: {config}.", *_before_launch(kernel)]
    return _written(args, name, made, grid, notes)


def _compiled(
    backend: StaticBackend, kernel: Any, arguments: Mapping[str, ArgumentLike], config: Config
) -> AheadOfTime:
    from kerntune.gpu.fake_cuda.static_backend import empty_tensor

    def make(like: TensorLike) -> Any:
        return empty_tensor(like.dtype, like.shape, like.contiguous)

    try:
        return compiled_ahead(backend, kernel, arguments, config, make)
    except ConfigError as exc:
        raise UsageError(f"{exc}; say arguments by --key NAME=VALUE, constants by --config NAME=VALUE,...") from exc


def _key(text: str) -> tuple[str, ArgumentLike]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise UsageError(f"--key {text!r}: write NAME=VALUE, as n=4096 or x_ptr=fp16[4096,128]")
    return name.strip(), _argument(f"--key {text!r}", value)


def _argument(option: str, text: str) -> ArgumentLike:
    """An argument of an option's text, whose error names the option."""
    try:
        return argument_of(text)
    except UsageError as exc:
        raise UsageError(f"{option}: {exc}") from exc


def _config(text: str | None, kernel: Any, name: str, stored: Config | None, target: Target) -> Config:
    if text is not None:
        pairs = [part.partition("=") for part in text.split(",") if part.strip()]
        option = f"--config {text!r} (write NAME=VALUE,NAME=VALUE, with commas)"
        return Config.from_mapping({n.strip(): _argument(option, value) for n, _, value in pairs})
    if stored is not None:
        names = jit_of(kernel).arg_names
        options = {n: v for n, v in stored.all_kwargs().items() if n not in names}
        _, problems = stored_options.checked_options(target.backend, options, dict.fromkeys(options, ...))
        if problems:  # a shared store's winner would pass the compiler what no file may
            told = f"the stored winner can't be compiled: {'; '.join(problems)}; give --config"
            raise UsageError(f"kernel {name}: {told}")
        return stored
    configs = getattr(kernel, "configs", None)
    if configs is None:
        return Config()
    if len(configs) == 1:
        from kerntune.capture.launch import config_of

        return config_of(configs[0], f"kernel {name}")
    raise UsageError(
        f"kernel {name}: no stored winner fits these arguments; tune it (call it once), or say --config BLOCK=128,..."
    )


def _grid(
    text: str | None, module: ModuleType, made: AheadOfTime, config: Config, arguments: Mapping[str, ArgumentLike]
) -> Grid:
    constants = {**config.all_kwargs(), **made.constants}
    if text is None:
        return FixedGrid.from_arguments()
    numbers = {n for p in made.launch.params if (n := p.name) not in constants and p.view is None}
    if text.isidentifier() and hasattr(module, text):
        tensors = [n for n, v in arguments.items() if isinstance(v, TensorLike)]
        found = traced(getattr(module, text), constants, numbers, tensors)
    else:
        found = grid_of_text(text)
    values = {n: v for n, v in constants.items() if isinstance(v, int) and n in found.names}
    try:
        return found.bind(values)
    except GridError as exc:
        raise UsageError(f"--grid {text}: {exc}") from exc


def _before_launch(kernel: Any) -> list[str]:
    """What the tuner does before each launch, and a caller in C has to do itself."""
    reset = list(getattr(kernel, "reset_to_zero", None) or [])
    hooked = getattr(kernel, "user_defined_pre_hook", False) or any(
        c.pre_hook is not None for c in getattr(kernel, "configs", [])
    )
    told = [f"Before each launch, fill {', '.join(reset)} with zeros."] if reset else []
    hook = "Before each launch, do what the kernel's pre_hook does in Python."
    return [*told, hook] if hooked else told


def _written(args: Namespace, name: str, made: AheadOfTime, grid: Grid, notes: list[str]) -> list[Path]:
    binary = made.recorded.recording.binary_of(made.launch)
    data = made.recorded.artifacts[binary.sha256]
    constants = {n: str(v) for n, v in made.constants.items()}
    out, called = Path(args.output), args.name or c_names([name])[0]
    kernel = CKernel(called, made.launch, binary, data, grid, made.divisible, constants, notes, args.cpp)
    files = {
        f"{called}.cubin": data,
        f"{called}.h": header(kernel).encode(),
        f"{called}.{'cpp' if args.cpp else 'c'}": source(kernel).encode(),
    }
    out.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        write_atomic(out / file, content)
    return [out / file for file in files]
