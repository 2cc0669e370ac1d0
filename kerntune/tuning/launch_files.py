"""Writes launches as folders, and compiles tuned kernels for use without Python.

``KERNTUNE_DUMP=FOLDER`` writes each tuned launch of a program as a folder of its own. A kernel can be compiled ahead of
time with one stored winner: the result has everything that a C program needs for a launch.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Union

from msgspec.structs import replace as _replace

from kerntune import capture as captures
from kerntune.base.codec import shortened
from kerntune.base.config import Config
from kerntune.base.recording import Launch, Recording
from kerntune.base.warn import warn
from kerntune.capture import Capture, Site
from kerntune.capture.launch import config_of
from kerntune.capture.launch_dump import DumpedContents, DumpedTexts, guessed, write_launch
from kerntune.capture.memory_plan import describe
from kerntune.capture.recorder import Recorded, record
from kerntune.compiling.binary.identity import STAGES, first_stage_of
from kerntune.compiling.compiler import Compiled
from kerntune.errors import KerntuneError, TuningError, UsageError
from kerntune.gpu.base import Backend, Executor, Gpu
from kerntune.gpu.probe import captures_graph
from kerntune.kernels.source import is_kernel, jit_of, source_hash, source_text
from kerntune.kernels.specialize import Specialized
from kerntune.tuning import context
from kerntune.tuning.cache import Winner, WinnerCache
from kerntune.tuning.stored_winners import candidate_of

DUMP, DUMP_CONTENT = "KERNTUNE_DUMP", "KERNTUNE_DUMP_CONTENT"

DESCRIBED, RECORDED = "described", "recorded"
"""What is kept of tensors: the distribution of floating-point numbers and small integers as they are (the default), or
all bytes, before the launch and after it."""


def dump_folder() -> Path | None:
    """The folder of ``KERNTUNE_DUMP``; None where nothing is dumped."""
    text = os.environ.get(DUMP, "")
    return Path(text).expanduser() if text else None


def keeps_content() -> bool:
    """Whether ``KERNTUNE_DUMP_CONTENT`` asks for all bytes; :class:`UsageError` for what it can't be."""
    text = os.environ.get(DUMP_CONTENT) or DESCRIBED
    if text not in (DESCRIBED, RECORDED):
        raise UsageError(f"{DUMP_CONTENT} is {text!r}; it can be {DESCRIBED} or {RECORDED}")
    return text == RECORDED


_dumped: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()
"""Of each tuner, the keys whose launch has been dumped, with their configs."""


def dumping(
    tuner: Any, key: Any, config: Any, args: Sequence[Any], kwargs: Mapping[str, Any], launch: Callable[[], Any]
) -> Any:
    """``launch()``, dumped if it is the first of this tuner with this key and config.

    A launch that can't be dumped is launched all the same, with a RuntimeWarning that says why. Nothing is read while a
    CUDA graph is captured: that would end the capture.
    """
    folder, seen = dump_folder(), _dumped.setdefault(tuner, set())
    mark = (key, str(config))
    if folder is None or mark in seen or kwargs.get("warmup") or captures_graph():
        return launch()
    seen.add(mark)
    finish = None
    with _warning(tuner):
        finish = _begin(folder, tuner, config, args, dict(kwargs))
    result = launch()
    with _warning(tuner):
        if finish is not None:
            finish()
    return result


@contextlib.contextmanager
def _warning(tuner: Any) -> Iterator[None]:
    try:
        yield
    except (KerntuneError, OSError) as exc:
        warn(f"kernel {tuner.base_fn.__name__}: its launch was not dumped: {exc}")


def _begin(
    folder: Path, tuner: Any, config: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> Callable[[], object] | None:
    """Take what the launch finds; the rest is done after it. None where nothing is compiled here."""
    backend = context.this_gpu()
    if backend is None or backend.gpu is None or not is_kernel(tuner) or captures.current() is not None:
        return None
    gpu, exact = backend.gpu, keeps_content()
    capture = context.open_capture(backend)
    recorded = staged_launch(capture, tuner, config, args, kwargs)
    recording, kept = with_content(recorded, backend)
    before = exact_contents(gpu, recorded) if exact else {}
    (pending,) = capture.launches
    texts = texts_of(recorded, 0, pending.jit)

    def finish() -> Path:
        after = written_contents(gpu, recorded.recording, capture.plan.tensors()) if exact else {}
        contents, environment = DumpedContents(before, after), gpu.environment()
        return write_launch(folder, recording, 0, kept, texts, contents=contents, environment=environment)

    return finish


def staged_launch(capture: Capture, tuner: Any, config: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Recorded:
    """What a tuner's call launches with one of its configs, as a recording; nothing is launched.

    :class:`TuningError` for a config that isn't among the call's.
    """
    site = capture.site_of(tuner, args, kwargs)
    index = _index_of(site, config)
    with capture.active():
        probe = capture.probe(site, index)
        capture.stage(site, index, probe, capture.compiler.compile(probe.specialized))
        return record(capture)


def _index_of(site: Site, config: Any) -> int:
    found = next((i for i, original in enumerate(site.originals or ()) if original is config), None)
    if found is None:
        found = candidate_of(site, config_of(config, f"kernel {site.kernel}"))
    if found is None:
        raise TuningError(f"kernel {site.kernel}: {config} is not among the configs of this call")
    return found


def with_content(recorded: Recorded, backend: Backend) -> tuple[Recording, dict[str, bytes]]:
    """The recording with its storages' contents described, and all artifacts; guessed where nothing runs."""
    if backend.gpu is None:
        return guessed(recorded.recording), dict(recorded.artifacts)
    storages, kept = describe(recorded.recording.storages, recorded.sources, backend)
    return _replace(recorded.recording, storages=storages), {**recorded.artifacts, **kept}


def exact_contents(gpu: Executor, recorded: Recorded) -> dict[int, bytes]:
    """All bytes that storages hold before the launches."""
    return {i: gpu.read(source.pristine) for i, source in enumerate(recorded.sources)}


def written_contents(gpu: Gpu, recording: Recording, tensors: Sequence[Any]) -> dict[int, bytes]:
    """All bytes of the storages that were written; ``tensors`` has one of each storage."""
    written = [i for i, storage in enumerate(recording.storages) if storage.written]
    return {i: gpu.read(gpu.borrow(tensors[i])) for i in written}


def texts_of(recorded: Recorded, index: int, jit: Any) -> DumpedTexts:
    """The kernel's source and the compiler's stages of a launch."""
    binary = recorded.recording.binary_of(recorded.recording.launches[index])
    compiled = recorded.compiled[binary.sha256, binary.ttir_sha256]
    return DumpedTexts(source_text(jit), stages_of(compiled), compiled.compiled_for)


def stages_of(compiled: Compiled) -> dict[str, str]:
    """The texts of a compilation: first stage and assembly, and what lies between where Triton's cache still has it."""
    assembly = "ptx" if compiled.binary.kind == "cubin" else "amdgcn"
    found = {**compiled.texts(), first_stage_of(compiled.ttir): compiled.ttir, assembly: compiled.asm}
    return {stage: found[stage] for stage in STAGES if stage in found}


DTYPES = {
    "fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
    "i16": "int16", "i8": "int8", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "i1": "bool",
    "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2",
}  # fmt: skip
"""Triton's names of element types as torch has them; torch's own names are taken as well."""

_TENSOR = re.compile(r"\*?(?:torch\.)?(\w+)[\[(]([\d, ]*)[\])](?:[:(]([\d, ]*)\)?)?")
"""``fp16[4096,128]``, ``fp16[64,64]:128,1`` with strides, and as stored winners have it: ``torch.float16(64,)(1,)``."""

_SCALAR = re.compile(r"""[+-]?[\w.+-]{1,40}|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
"""A number, a name such as None, or one quoted text: nothing nested, which could exhaust Python's parser."""


@dataclass(frozen=True)
class TensorLike:
    """A tensor argument: dtype (torch's name), shape, and strides in elements (contiguous if None)."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    def agrees(self, other: TensorLike) -> bool:
        """Whether both can be one tensor."""
        return (self.dtype, self.shape, self.contiguous) == (other.dtype, other.shape, other.contiguous)

    @property
    def contiguous(self) -> tuple[int, ...]:
        """The strides."""
        if self.strides is not None:
            return self.strides
        return tuple(prod(self.shape[i + 1 :]) for i in range(len(self.shape)))


ArgumentLike = Union[TensorLike, bool, int, float, str, None]


def argument_of(text: str) -> ArgumentLike:
    """An argument from its text: a tensor (``fp16[4096,128]``), a number, a quoted text, None.

    :class:`UsageError` for anything else.
    """
    tensor = _TENSOR.fullmatch(text.strip())
    if tensor is not None:
        dtype = DTYPES.get(tensor[1], tensor[1])
        strides = None if tensor[3] is None else _numbers(tensor[3])
        return TensorLike(dtype, _numbers(tensor[2]), strides)
    value: object = ...
    if _SCALAR.fullmatch(text.strip()) is not None:
        with contextlib.suppress(ValueError, SyntaxError):
            value = ast.literal_eval(text.strip())
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    how = "write a number, 'text', None, or a tensor as fp16[4096,128]"
    raise UsageError(f"{shortened(text)!r} is no argument: {how}")


def _numbers(text: str) -> tuple[int, ...]:
    numbers = [n for n in text.replace(" ", "").split(",") if n]
    if any(len(n) > MOST_DIGITS for n in numbers):
        raise UsageError(f"a tensor has no size or stride of {max(map(len, numbers))} digits")
    return tuple(map(int, numbers))


MOST_DIGITS = 20
"""Digits of a size or stride: those of a number of 64 bits."""


def arguments_of(key: str) -> dict[str, ArgumentLike]:
    """The arguments that a stored winner's key has by name, as far as they are plain."""
    found = {}
    for part in key.split("; "):
        name, equals, text = part.partition("=")
        if equals and name.isidentifier():
            with contextlib.suppress(UsageError):  # a function, a dtype: another process can't make it from its text
                found[name] = argument_of(text)
    return found


def load_kernel(name: str) -> tuple[Any, ModuleType]:
    """The kernel that ``package.module:kernel`` or ``path/file.py:kernel`` names, and its module, which is imported.

    :class:`UsageError` where there is none.
    """
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise UsageError(f"{name!r}: name a kernel as package.module:kernel or path/to/file.py:kernel")
    module = _module(place)
    try:
        found = attrgetter(attribute)(module)
    except AttributeError:
        raise UsageError(f"{place} has no {attribute}") from None
    try:
        jit_of(found)
    except KerntuneError as exc:
        raise UsageError(f"{name}: {exc}") from exc
    return found, module


def _module(place: str) -> ModuleType:
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            raise UsageError(f"{place}: is no file")
        spec = importlib.util.spec_from_file_location(path.stem, path)
    else:
        if place in sys.modules:
            return sys.modules[place]
        try:
            spec = importlib.util.find_spec(place)
        except ModuleNotFoundError:
            spec = None
        if place in sys.modules:  # its package has imported it
            return sys.modules[place]
    if spec is None or spec.loader is None:
        raise UsageError(f"there is no module {place} here")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except ImportError as exc:
        if RELATIVE not in str(exc) or not place.endswith(".py"):
            raise
        del sys.modules[spec.name]
        folder, packaged = _in_package(Path(place).resolve())
        sys.path.insert(0, str(folder))
        return _module(packaged)
    return module


RELATIVE = "relative import with no known parent package"
"""What Python says of a package's file that is imported alone."""


def _in_package(path: Path) -> tuple[Path, str]:
    """The folder in which Python finds a file's package, and the name of its module. :class:`UsageError` for a file in
    no package."""
    folder, names = path.parent, [path.stem]
    while (folder / "__init__.py").is_file():
        folder, names = folder.parent, [folder.name, *names]
    if len(names) == 1:
        why = f"imports relatively, and {folder} is no package"
        raise UsageError(f"{path}: {why}; name it as package.module:kernel")
    return folder, ".".join(names)


def stored_for(kernel: Any, given: Mapping[str, ArgumentLike], target: str | None, cache: WinnerCache) -> list[Winner]:
    """The stored winners of a kernel's present source that agree with the arguments that are given."""
    digest = source_hash(jit_of(kernel))
    mine = [w for w in cache.entries() if w.key.source == digest and target in (None, w.key.target)]
    known = [(w, arguments_of(w.key.arguments)) for w in mine]
    return [w for w, its in known if all(_same(its.get(name, value), value) for name, value in given.items())]


def _same(a: ArgumentLike, b: ArgumentLike) -> bool:
    return a.agrees(b) if isinstance(a, TensorLike) and isinstance(b, TensorLike) else a == b


def one_winner(kernel: str, found: Iterable[Winner]) -> Winner | None:
    """The winner that is meant; None if there is none. :class:`UsageError` that names what differs for several."""
    winners = list(found)
    if len({(w.key.target, w.key.arguments, str(w.config)) for w in winners}) < 2:
        return winners[0] if winners else None
    shown = "".join(f"\n  {w.key.device} ({w.key.target}): {w.key.arguments}: {w.config}" for w in winners[:10])
    count = f"{len(winners)} stored winners fit"
    raise UsageError(f"kernel {kernel}: {count}; say more by --key NAME=VALUE:{shown}")


@dataclass(frozen=True)
class AheadOfTime:
    """A launch compiled ahead of time, recorded, and how the compiler specialized it."""

    recorded: Recorded
    specialized: Specialized

    @property
    def launch(self) -> Launch:
        """The launch; its grid is of no meaning."""
        (launch,) = self.recorded.recording.launches
        return launch

    @property
    def divisible(self) -> dict[str, int]:
        """By parameter, what the compiler took for granted to divide it."""
        pairs = self._of_parameters(self.specialized.attrs)
        named = ((name, what, n) for name, attributes in pairs for what, n in attributes)
        return {name: int(n) for name, what, n in named if what == "tt.divisibility"}

    @property
    def constants(self) -> dict[str, Any]:
        """By parameter, the values that are part of the binary."""
        pairs = self._of_parameters(self.specialized.constexprs)
        return {name: getattr(value, "value", value) for name, value in pairs}

    def _of_parameters(self, found: Mapping[tuple[int, ...], Any]) -> Iterator[tuple[str, Any]]:
        """With names; without what is within a tuple."""
        names = list(self.specialized.signature)
        return ((names[path[0]], value) for path, value in found.items() if len(path) == 1)


def compiled_ahead(
    backend: Backend, kernel: Any, arguments: Mapping[str, ArgumentLike], config: Config, make_tensor: Any
) -> AheadOfTime:
    """The kernel under its tuner, compiled for ``backend``'s target with these arguments and config; nothing runs.

    Call while the backend is active. :class:`CompileError`, :class:`ConfigError` for what can't be compiled so.
    """
    below = kernel.fn if hasattr(kernel, "configs") else kernel
    words = {n: make_tensor(v) if isinstance(v, TensorLike) else v for n, v in arguments.items()}
    capture = Capture(backend, context.COMPILER)
    with capture.active():
        below[(1,)](**{**words, **config.all_kwargs()})
    (pending,) = capture.launches
    recorded = record(capture)
    if recorded.failures:
        raise recorded.failures[0]
    return AheadOfTime(recorded, pending.specialized)
