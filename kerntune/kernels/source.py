"""The kernel under decorators and wrappers, a hash of its source, and texts of the values that it is called with.

The name of a kernel that a compiler wrote holds a number, which says nothing of what it computes. The text of a value
has the properties that matter to a kernel, and is equal in every process.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from kerntune.errors import CaptureError, CompileError
from kerntune.kernels.compat.triton_compiler import is_gluon, parsed
from kerntune.kernels.used_globals import Syntax, described, is_constant, is_jit, named, scope_of, syntax_of, unshadowed

_NUMBER = re.compile(r"_\d+$")

_MARK = "_kerntune_generated"
"""The attribute of a ``JITFunction`` that a compiler generated."""

CANONICAL = "triton_"
"""The name that stands for a generated kernel's own in its source: what Inductor itself uses where it gives none."""


class GeneratedFrom(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What torch's compiler made a kernel from: a part of a graph.

    ``calls`` are the calls in the user's function (``softmax``), ``operators`` what the graph has after decomposition
    (``aten.exp``); both sorted, each as often as it occurs. ``graph`` is a hash of these operators in their order with
    their arguments, empty where the generated module doesn't say.
    """

    torch: str
    calls: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    graph: str = ""

    def remade(self, after: GeneratedFrom) -> bool:
        """Whether another torch alone can have made ``after`` otherwise: of the same part of a graph, or of the same
        calls, which it decomposes into other operators."""
        if self.torch == after.torch:
            return False
        if self.graph and self.graph == after.graph:
            return True
        return bool(self.calls) and self.calls == after.calls and self.operators != after.operators


@dataclass(frozen=True)
class GeneratedKernel:
    """What is known of a generated kernel beside its code.

    ``name`` is its name without the number that it has in its graph (``triton_poi_fused_add_gelu``), ``word`` the name
    in its source, ``origins`` the ATen operators that it was generated for, sorted, each as often as it occurs, and
    ``lines`` the users' lines that these come from (``model.py:12``).
    """

    name: str
    word: str
    origins: tuple[str, ...] = ()
    made_from: GeneratedFrom | None = None
    lines: tuple[str, ...] = ()


def name_without_number(name: str) -> str:
    """``triton_poi_fused_add_gelu_12`` without ``_12``: other kernels of the graph decide it."""
    return _NUMBER.sub("", name)


def mark_generated(jit: Any, kernel: GeneratedKernel) -> None:
    """Note on a ``JITFunction`` what it was generated for."""
    setattr(jit, _MARK, kernel)


def generated(jit: Any) -> GeneratedKernel | None:
    """What :func:`mark_generated` has noted; None for a kernel that a person wrote."""
    found: GeneratedKernel | None = getattr(jit, _MARK, None)
    return found


def origins_of(jit: Any) -> tuple[str, ...]:
    """The ATen operators that a kernel was generated for; none for a kernel that a person wrote."""
    return (generated(jit) or _BY_A_PERSON).origins


def lines_of(jit: Any) -> tuple[str, ...]:
    """The users' lines that a kernel was generated for; none for a kernel that a person wrote."""
    return (generated(jit) or _BY_A_PERSON).lines


_BY_A_PERSON = GeneratedKernel("", "")


def without_name(source: str, kernel: GeneratedKernel) -> str:
    """A generated kernel's source with one name for all: equal for kernels that compute the same."""
    return re.sub(rf"\b{re.escape(kernel.word)}\b", CANONICAL, source)


MAX_WRAPPERS = 32
"""Decorators on one kernel; more than this is a loop of ``.fn``."""


def wrappers(kernel: Any) -> Iterator[Any]:
    """The kernel and what it wraps through ``.fn``, outermost first, ending with the ``JITFunction``.

    :class:`CaptureError` for a kernel that wraps itself.
    """
    from triton.runtime.jit import JITFunction

    layer = kernel
    for _ in range(MAX_WRAPPERS):
        yield layer
        if isinstance(layer, JITFunction) or not hasattr(layer, "fn"):
            return
        layer = layer.fn
    raise CaptureError(f"{kernel!r} wraps itself: following .fn never ends at a @triton.jit function")


def jit_of(kernel: Any) -> Any:
    """The ``JITFunction`` under a kernel; :class:`CaptureError` if there is none."""
    from triton.runtime.jit import JITFunction

    last = list(wrappers(kernel))[-1]
    if not isinstance(last, JITFunction):
        raise CaptureError(f"{kernel!r} is not a Triton kernel: there is no @triton.jit function under it")
    return last


def is_kernel(kernel: Any) -> bool:
    """Whether there is a ``JITFunction`` under it: some tuners tune objects that only have its methods."""
    from triton.runtime.jit import JITFunction

    return any(isinstance(layer, JITFunction) for layer in wrappers(kernel))


def function_of(kernel: Any) -> Any:
    """The Python function under a kernel, which Triton compiles or, under ``TRITON_INTERPRET=1``, interprets."""
    while not inspect.isfunction(kernel):
        kernel = kernel.fn
    return kernel


def kernel_name(jit: Any) -> str:
    """The kernel's Python name; a generated one's is without its number (:mod:`kerntune.kernels.source`)."""
    kernel = generated(jit)
    return str(jit.fn.__name__) if kernel is None else kernel.name


def kernel_file(jit: Any) -> str:
    """The file that defines the kernel; empty if it isn't known."""
    try:
        return inspect.getsourcefile(jit.fn) or ""
    except TypeError:
        return ""


def kernel_place(jit: Any) -> str:
    """``add_kernel (model.py)``: name and file, for messages."""
    return f"{kernel_name(jit)} ({kernel_file(jit)})"


def named_arguments(kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call of a kernel, or of a tuner of one, by name; launch words are among them."""
    return {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}


def defaults_of(kernel: Any) -> dict[str, Any]:
    """The defaults of a kernel's parameters by name."""
    parameters = inspect.signature(function_of(kernel)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def source_hash(jit: Any) -> str:
    """SHA-256 over the kernel's syntax and that of every ``@triton.jit`` function and constant it names.

    Comments, blank lines, docstrings and the place in the file don't change it (Triton's own ``cache_key`` holds the
    line number, and so retunes a kernel that only moved), nor does a generated kernel's name. What
    else counts: :func:`kerntune.kernels.used_globals.described`.
    """
    return _digest(part.text for part in _parts(jit, set()))


def source_text(jit: Any) -> str:
    """The kernel as a Python file: every ``@triton.jit`` function and plain constant that it names, before itself.

    For readers: values that no text gives back (dtypes, classes) are left to their names.
    """
    return "\n\n".join([_style(jit).imports, *_definitions(jit, set())]) + "\n"


class SourceStyle(NamedTuple):
    """How a kernel's file begins, and what stands before the kernel and its constants."""

    imports: str
    decorator: str
    constexpr: str


_TRITON = SourceStyle("import triton\nimport triton.language as tl", "@triton.jit", "tl.constexpr")
_GLUON = SourceStyle(
    "from triton.experimental import gluon\nfrom triton.experimental.gluon import language as gl",
    "@gluon.jit",
    "gl.constexpr",
)


def _style(jit: Any) -> SourceStyle:
    return _GLUON if is_gluon(jit) else _TRITON


def _definitions(jit: Any, seen: set[int]) -> Iterator[str]:
    if id(jit) in seen:
        return
    seen.add(id(jit))
    style = _style(jit)
    for name, value in sorted(named(_syntax(jit.src), scope_of(jit.fn)).items()):
        if is_jit(value):
            yield from _definitions(value, seen)
        elif is_constant(value):
            inner = getattr(value, "value", value)
            shown = f"{style.constexpr}({inner!r})" if inner is not value else repr(value)
            yield f"{name} = {shown}"
    yield f"{style.decorator}\n{textwrap.dedent(jit.src).rstrip()}"


def salt(jit: Any) -> None:
    """Make Triton's cache distinguish what its own key doesn't: the values of global dtypes, aliases of builtins,
    tuples, attributes of classes. Kernels that name none of these keep Triton's key.

    :class:`CompileError` for a kernel that Triton can't compute a key of, because it names something that no kernel can
    use.
    """
    known: Salted | None = getattr(jit, SALTED, None)
    if known is None or known.code is not jit.src or known.key not in (None, jit.hash):
        known = _salted(jit)
        setattr(jit, SALTED, known)
    if known.error:
        raise CompileError(f"kernel {kernel_name(jit)}: {known.error}")


def _salted(jit: Any) -> Salted:
    hidden = [part.text for part in _parts(jit, set()) if part.hidden]
    if not hidden:
        return Salted(jit.src)
    try:
        jit.hash = _digest([jit.cache_key, *hidden])
    except Exception as exc:  # stored, because Triton leaves half a key behind and would use it the next time
        return Salted(jit.src, error=str(exc))
    return Salted(jit.src, jit.hash)


SALTED = "_kerntune_salted"
"""The attribute of a kernel that holds the result of :func:`salt`."""


class Salted(NamedTuple):
    """The code that was analysed, and the key with salt; None if Triton's own key is sufficient, or if there is no key
    because of ``error``."""

    code: str
    key: str | None = None
    error: str = ""


class SourcePart(NamedTuple):
    """One part of a hash; ``hidden`` if Triton's own key doesn't contain it."""

    text: str
    hidden: bool = False


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _parts(jit: Any, seen: set[int]) -> Iterator[SourcePart]:
    if id(jit) in seen:
        return
    seen.add(id(jit))
    kernel = generated(jit)
    syntax = _syntax(jit.src if kernel is None else without_name(jit.src, kernel))
    yield SourcePart(syntax.dump)
    flags = [(p.do_not_specialize, p.do_not_specialize_on_alignment) for p in jit.params]
    yield SourcePart(repr((jit.noinline, flags)))
    scope = scope_of(jit.fn)
    for name, value in sorted(named(syntax, scope).items()):
        if is_jit(value):
            yield SourcePart(name)
            yield from _parts(value, seen)
        elif is_constant(value):
            yield SourcePart(f"{name}={value!r}")
    for name, value in sorted(unshadowed(syntax, scope).items()):
        for found in described(name, value, seen):  # also kernels that are methods of an aggregate
            texts = [found] if isinstance(found, str) else (part.text for part in _parts(found, seen))
            yield from (SourcePart(text, hidden=True) for text in texts)


@lru_cache(maxsize=256)
def _syntax(source: str) -> Syntax:
    tree = parsed(textwrap.dedent(source))
    function = tree.body[0]
    if isinstance(function, ast.FunctionDef):
        function.decorator_list = []
        first = function.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            function.body = function.body[1:] or [ast.Pass()]
    return syntax_of(tree)


def text_of(value: Any) -> str:
    """A text of what matters to a kernel's speed, equal in every process: layouts, scalars, code, no addresses."""
    if hasattr(value, "stride") and hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}{tuple(value.shape)}{tuple(value.stride())}"
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(text_of, value))})"
    if hasattr(value, "block_shape") and hasattr(value, "base"):
        sizes = (tuple(map(int, getattr(value, name))) for name in ("shape", "strides", "block_shape"))
        own = [f"{name}={item!r}" for name, item in layout_of(value).items()]
        return f"descriptor({', '.join([text_of(value.base), *map(repr, sizes), *own])})"
    if is_jit(value):
        return f"function({source_hash(value)[:16]})"
    if type(value).__module__.partition(".")[0] in ("torch", "triton") and type(value).__name__ in DTYPES:
        return str(value)
    if type(value).__name__ == "constexpr":
        return f"constexpr({text_of(value.value)})"
    if hasattr(value, "data_ptr"):
        return f"{type(value).__name__}({getattr(value, 'dtype', '')})"
    if hasattr(value, "src"):  # a constexpr_function
        return f"function({hashlib.sha256(str(value.src).encode()).hexdigest()[:16]})"
    if inspect.isroutine(value):
        return f"{value.__module__}.{value.__qualname__}"
    text = repr(value)
    return type(value).__name__ if ADDRESS in text else text


def layout_of(descriptor: Any) -> dict[str, Any]:
    """What a Gluon kernel's descriptor says besides a Triton kernel's: its layout in shared memory, and what im2col
    needs."""
    return {name: item for name, item in getattr(descriptor, "__dict__", {}).items() if name not in DESCRIPTOR_FIELDS}


DESCRIPTORS = ("TensorDescriptor", "TensorDescriptorIm2Col")
"""Names of the classes of host-side descriptors, of Triton's and of Gluon's for each kind of GPU."""

DESCRIPTOR_FIELDS = frozenset({"base", "shape", "strides", "block_shape", "padding", "round_f32_to_tf32"})
"""Fields of a Triton kernel's host-side descriptor; a class with further fields may compile differently because of
them."""

ADDRESS = " at 0x"
"""Part of Python's default ``repr`` of an object, which differs in each process."""

DTYPES = frozenset({"dtype", "block_type", "pointer_type"})
"""Classes of torch's and Triton's element types; their texts are complete."""
