"""``triton.language`` while a kernel is interpreted, and kernels rewritten for it."""

from __future__ import annotations

import ast
import contextlib
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction

from kerntune.errors import InterpreterLimit
from kerntune.gpu.fake_cuda.patches import replace
from kerntune.gpu.interpreter.builder import Builder
from kerntune.gpu.interpreter.narrow_types import decode, encode, is_narrow, modules, resolve
from kerntune.kernels.source import kernel_file, kernel_name


class Language:
    """Makes the functions of ``tl`` compute values, and turns kernels into plain functions."""

    def __init__(self) -> None:
        self.builder = Builder()
        self._semantic = TritonSemantic(self.builder)
        self._functions: dict[int, tuple[Any, Callable[..., Any]]] = {}
        self._running = False

    def install(self, stack: contextlib.ExitStack) -> None:
        """Our builder and reductions in the interpreter's place, until ``stack`` closes."""
        replace(stack, interpreter, "interpreter_builder", self.builder)
        replace(stack, interpreter, "interpreter_semantic", self._semantic)
        replace(stack, interpreter, "ReduceOps", _Reduce)
        replace(stack, interpreter, "ScanOps", _Scan)
        replace(stack, JITFunction, "__call__", lambda jit, *args, **kwargs: self.call(jit, *args, **kwargs))
        for module in modules():
            for name, value in list(vars(module).items()):
                if callable(value) and (found := resolve(value, self._if_running)) is not value:
                    replace(stack, module, name, found)

    def _if_running(self) -> Any:
        return self._semantic if self._running else None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Inside of the context ``tl`` computes values; outside it builds IR as usual."""
        everything = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
        scope = interpreter._patch_lang(everything)
        for name, member in list(vars(tl.tensor).items()):
            if isinstance(member, JITFunction):
                scope.set_attr(tl.tensor, name, _method(member))
        scope.set_attr(tl.tensor, "__index__", lambda self: int(self.handle.data.item()))  # 3.6 fails on numpy 2.4
        for name, operator in _operators_of_constants():
            scope.set_attr(tl.constexpr, name, operator)
        self._running = True
        try:
            yield
        finally:
            self._running = False
            scope.restore()

    def call(self, jit: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a ``@triton.jit`` function from a kernel; RuntimeError outside of one, as in Triton."""
        if not self._running:
            raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")
        return self.function(jit)(*args, **kwargs)

    def function(self, jit: Any) -> Callable[..., Any]:
        """A kernel's body as a Python function over interpreted tensors."""
        if id(jit) not in self._functions:
            self._functions[id(jit)] = (jit, self._rewritten(jit))
        return self._functions[id(jit)][1]

    def _rewritten(self, jit: Any) -> Callable[..., Any]:
        """The function of its source, with Triton's changes to it, over a copy of the names that it uses.

        Triton changes the kernel's module itself and misses a function's local names; the copy leaves the module
        unchanged and has them.
        """
        tree = interpreter.FunctionRewriter.ast_transformer.visit(ast.parse(jit.src))
        ast.increment_lineno(ast.fix_missing_locations(tree), _lines_before(jit))
        module = compile(tree, jit.fn.__code__.co_filename, "exec")
        code = next((c for c in module.co_consts if isinstance(c, types.CodeType) and c.co_name == jit.__name__), None)
        if code is None:
            raise InterpreterLimit(f"kernel {kernel_name(jit)} ({kernel_file(jit)}): its source has no such function")
        seen = {**vars(interpreter), **jit.fn.__globals__, **inspect.getclosurevars(jit.fn).nonlocals}
        names = {name: resolve(value, self._if_running) for name, value in seen.items()}
        names["interpreter_semantic"] = self._semantic
        made = types.FunctionType(code, names, jit.__name__, jit.fn.__defaults__)
        made.__kwdefaults__ = jit.fn.__kwdefaults__
        return made


def _lines_before(jit: Any) -> int:
    """Lines of the file before the ``def``: decorators are not part of ``jit.src``."""
    raw = jit.raw_src if isinstance(jit.raw_src, list) else str(jit.raw_src).splitlines()
    decorators = next(i for i, line in enumerate(raw) if line.lstrip().startswith("def "))
    return int(jit.starting_line_number) + decorators - 1


def _method(jit: Any) -> Callable[..., Any]:
    """``x.sum()`` of a kernel: Triton's compiler passes ``x`` itself."""
    return lambda self, *args, **kwargs: jit(self, *args, **kwargs)


def _operators_of_constants() -> Iterator[tuple[str, Callable[..., Any]]]:
    """``CONST * x``: the compiler uses the tensor's reflected operator where the left side is a ``tl.constexpr``, whose
    own operators take constants only."""
    for name, reflected in REFLECTED.items():
        original = vars(tl.constexpr).get(name)
        if original is not None:
            yield name, _of_constant(original, reflected)


def _of_constant(original: Callable[..., Any], reflected: str) -> Callable[..., Any]:
    def operator(self: Any, other: Any) -> Any:
        return getattr(other, reflected)(self.value) if isinstance(other, tl.tensor) else original(self, other)

    return operator


_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
REFLECTED = {
    **{f"__{name}__": f"__r{name}__" for name in _ARITHMETIC},
    **{"__lt__": "__gt__", "__gt__": "__lt__", "__le__": "__ge__", "__ge__": "__le__"},
    **{"__eq__": "__eq__", "__ne__": "__ne__"},
}
"""An operator's name, and that of the same operator with exchanged operands."""


def _wide(tensor: Any) -> Any:
    """A tensor of narrow floats as float32."""
    handle = interpreter.TensorHandle(decode(tensor.handle.data, tensor.dtype), tl.float32)
    shape = [int(n) for n in tensor.shape]
    return tl.tensor(handle, tl.block_type(tl.float32, shape) if shape else tl.float32)


def _narrowed(result: Any, dtype: Any) -> Any:
    """Converted back to the type ``dtype``."""
    if not isinstance(result, tl.tensor) or not result.dtype.is_fp32():
        return result
    handle = interpreter.TensorHandle(encode(result.handle.data, dtype), dtype)
    shape = [int(n) for n in result.shape]
    return tl.tensor(handle, tl.block_type(dtype, shape) if shape else dtype)


def _through_float32(method: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction by a numpy function, done in float32 where numpy would reduce bit patterns."""

    def call(self: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        one = input[0] if isinstance(input, tuple) else input
        if not is_narrow(one.dtype):
            return method(self, input, *args, **kwargs)
        results = method(self, _wide(one), *args, **kwargs)
        if isinstance(results, (tuple, list)):
            return type(results)(_narrowed(r, one.dtype) for r in results)
        return _narrowed(results, one.dtype)

    return call


class _Reduce(interpreter.ReduceOps):  # type: ignore[misc]  # Triton has no types here
    sum = _through_float32(interpreter.ReduceOps.sum)
    min_max = _through_float32(interpreter.ReduceOps.min_max)


class _Scan(interpreter.ScanOps):  # type: ignore[misc]  # Triton has no types here
    cumsum = _through_float32(interpreter.ScanOps.cumsum)
    cumprod = _through_float32(interpreter.ScanOps.cumprod)
