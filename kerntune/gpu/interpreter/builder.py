"""Triton's interpreter with corrected arithmetic: operations that were silently wrong, some in some versions only.

The memory of a launch is made of copies of its tensors' storages. They lie far apart, so that an access outside of
them is detected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton._C.libtriton import interpreter as native
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from kerntune.errors import InterpreterLimit, KernelFault
from kerntune.gpu.interpreter.narrow_types import decode, elementwise, encode, is_fp8, is_narrow, numpy_type

GUARD = 1 << 20
"""Bytes before and after each storage that no access may reach; they are never written, so they take no memory."""

SHOWN = 3
"""Addresses that a message names."""


class LaunchMemory:
    """One launch's complete storages, shared by views as in the original. Without them, an access outside of a tensor
    would crash the process or, inside another tensor, not be detected."""

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._starts = self._ends = np.zeros(0, np.uint64)

    def moved(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with their tensors' contents here."""
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            out = {name: self._moved(value) for name, value in arguments.items()}
        bounds = sorted((copy.data_ptr(), copy.data_ptr() + copy.numel()) for _, copy in self._copies.values())
        self._starts = np.array([start for start, _ in bounds], np.uint64)
        self._ends = np.array([end for _, end in bounds], np.uint64)
        return out

    def write_back(self) -> None:
        """Copy the contents back to the original tensors."""
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            for original, copy in self._copies.values():
                original.copy_(copy)

    def check(self, addresses: np.ndarray, mask: np.ndarray | None, size: int, does: str, program: Any) -> None:
        """:class:`KernelFault` if an active address, or the ``size`` bytes from it, is in none of the storages."""
        active = addresses if mask is None else np.broadcast_to(addresses, mask.shape)[mask]
        at = active.ravel().astype(np.uint64)
        if at.size == 0:
            return
        owner = np.searchsorted(self._starts, at, side="right") - 1
        inside = owner >= 0
        if self._starts.size:
            inside &= at + np.uint64(size) <= self._ends[np.maximum(owner, 0)]
        if not inside.all():
            raise KernelFault(self._message(at[~inside], size, does, program))

    def _moved(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._moved_tensor(value)
        if isinstance(value, TensorWrapper):
            return TensorWrapper(self._moved(value.base), value.dtype)
        if isinstance(value, TensorDescriptor):
            words = {name: getattr(value, name) for name in value.__dataclass_fields__}
            return type(value)(**{**words, "base": self._moved(value.base)})
        if isinstance(value, tuple):
            parts = [self._moved(item) for item in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return value

    def _moved_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._copies:
            original = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
            room = torch.empty(storage.nbytes() + 2 * GUARD, dtype=torch.uint8)
            self._copies[key] = (original, room[GUARD : GUARD + storage.nbytes()].copy_(original))
        copy = self._copies[key][1]
        offset = tensor.storage_offset() + GUARD // tensor.element_size()
        made = torch.empty(0, dtype=tensor.dtype)
        return made.set_(copy.untyped_storage(), offset, tensor.size(), tensor.stride())

    def _message(self, wrong: np.ndarray, size: int, does: str, program: Any) -> str:
        places = ", ".join(self._place(int(a)) for a in wrong[:SHOWN]) + (", ..." if wrong.size > SHOWN else "")
        return (
            f"kernel {self._kernel} {does} {wrong.size} elements of {size} bytes outside of its tensors in program "
            f"{tuple(program)}: {places}; a mask is missing or wrong, or an offset is"
        )

    def _place(self, address: int) -> str:
        """A text for the place of an address, relative to the nearest tensor's memory."""
        after = [address - int(end) for end in self._ends if address >= int(end)]
        before = [int(start) - address for start in self._starts if address < int(start)]
        if after and (not before or min(after) < min(before)):
            return f"{min(after)} bytes after the end of a tensor"
        return f"{min(before)} bytes before a tensor" if before else f"{address:#x}"


class Builder(InterpreterBuilder):  # type: ignore[misc]  # Triton has no types here
    """The builder that ``tl`` functions call while a kernel is interpreted.

    ``memory`` is the memory that the running launch may access; ``next_program`` is called before each program.
    """

    def __init__(self) -> None:
        super().__init__()
        self.memory: LaunchMemory | None = None
        self.next_program: Callable[[], None] = lambda: None

    def set_grid_idx(self, x: int, y: int, z: int) -> None:
        """Start the program at (x, y, z)."""
        self.next_program()
        super().set_grid_idx(x, y, z)

    # constants

    def get_bf16(self, value: float) -> Any:
        """A bfloat16 constant; 3.6 has none."""
        return TensorHandle(encode(np.array([value]), tl.bfloat16), tl.bfloat16)

    # arithmetic

    def binary_op(self, lhs: Any, rhs: Any, op: Callable[..., Any]) -> Any:
        """Element by element; 8-bit and brain floats by their values, one-bit integers wrapping around."""
        if is_narrow(lhs.dtype) and lhs.data.dtype.kind == "u":
            _refuse_fp8(lhs.dtype)
            out = _without_warnings(op, decode(lhs.data, lhs.dtype), decode(rhs.data, rhs.dtype))
            return _handle(out, lhs.dtype)
        if lhs.data.dtype == np.bool_ and rhs.data.dtype == np.bool_:
            out = op(lhs.data.astype(np.int8), rhs.data.astype(np.int8))
            return TensorHandle(out if out.dtype == np.bool_ else (out & 1).astype(np.bool_), lhs.dtype.scalar)
        return _without_warnings(super().binary_op, lhs, rhs, op)

    def unary_op(self, arg: Any, op: Callable[..., Any]) -> Any:
        """Element by element; brain floats by their values."""
        if is_narrow(arg.dtype) and arg.data.dtype.kind == "u":
            _refuse_fp8(arg.dtype)
            return _handle(_without_warnings(op, decode(arg.data, arg.dtype)), arg.dtype)
        return _without_warnings(super().unary_op, arg, op)

    def create_minnumf(self, lhs: Any, rhs: Any) -> Any:
        """The smaller, a number rather than NaN; 3.6 returns NaN."""
        return self.binary_op(lhs, rhs, np.fmin)

    def create_maxnumf(self, lhs: Any, rhs: Any) -> Any:
        """The larger, a number rather than NaN; 3.6 returns NaN."""
        return self.binary_op(lhs, rhs, np.fmax)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        """x * y + z, rounded once for all but float64 (and float32, twice, in 3.6)."""
        if not is_narrow(z.dtype):
            return _without_warnings(super().create_fma, x, y, z)
        _refuse_fp8(z.dtype)
        a, b, c = (decode(h.data, h.dtype).astype(np.float64) for h in (x, y, z))
        return _handle(a * b + c, z.dtype)

    def create_rsqrt(self, arg: Any) -> Any:
        """1 / sqrt."""
        return self.unary_op(arg, lambda x: 1 / np.sqrt(x))

    def create_dot(self, a: Any, b: Any, d: Any, *precision: Any) -> Any:
        """a @ b + d: products and sums in float32 (float64, int32), then rounded to the type of d."""
        if not d.dtype.scalar.is_floating():
            return super().create_dot(a, b, d, *precision)
        wide = np.float64 if d.dtype.scalar.is_fp64() else np.float32
        left, right, add = (decode(h.data, h.dtype).astype(wide) for h in (a, b, d))
        return _handle(_without_warnings(np.matmul, left, right) + add, d.dtype)

    # conversions

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        """To another type, to nearest even; from floats to integers toward zero."""
        dst = dst_type.scalar
        values = decode(src.data, src.dtype)
        data = encode(values, dst) if dst.is_floating() else _without_warnings(values.astype, numpy_type(dst))
        return TensorHandle(data, dst)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        """Between float types, with the given rounding mode."""
        toward_zero = rounding_mode is not None and "RTZ" in str(rounding_mode)
        dst = dst_type.scalar
        return TensorHandle(encode(decode(src.data, src.dtype), dst, toward_zero=toward_zero), dst)

    # memory

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *policy: Any, **words: Any) -> Any:
        """Read; :class:`KernelFault` for an address outside of the launch's tensors."""
        self._check(ptrs, mask, "reads")
        return super().create_masked_load(ptrs, mask, other, *policy, **words)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *policy: Any) -> Any:
        """Write; :class:`KernelFault` for an address outside of the launch's tensors."""
        self._check(ptrs, mask, "writes")
        return super().create_masked_store(ptrs, value, mask, *policy)

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        """Compare and swap inside the launch's tensors only."""
        self._check(ptr, None, "updates")
        return super().create_atomic_cas(ptr, cmp, val, sem, scope)

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        """Update inside the launch's tensors only; brain floats are added by their values."""
        self._check(ptr, mask, "updates")
        if not is_narrow(val.dtype):
            return super().create_atomic_rmw(rmwOp, ptr, val, mask, sem, scope)
        return TensorHandle(self._add_one_by_one(ptr, val, mask), val.dtype.scalar)

    def _add_one_by_one(self, ptr: Any, val: Any, mask: Any) -> np.ndarray:
        """Triton allows only additions here. Equal addresses in one block add up, so one element after the other."""
        old = np.zeros(ptr.data.shape, np.uint16)
        active = np.broadcast_to(mask.data, ptr.data.shape)
        values = np.broadcast_to(val.data, ptr.data.shape)
        for at in zip(*np.nonzero(active), strict=True):
            cell, always = np.array([ptr.data[at]], np.uint64), np.array([True])
            before = native.load(cell, always, np.zeros(1, np.uint16), np.dtype(np.uint16))
            term = TensorHandle(np.array([values[at]]), val.dtype)
            after = self.binary_op(TensorHandle(before, val.dtype), term, np.add)
            native.store(cell, after.data, always)
            old[at] = before[0]
        return old

    def create_int_to_ptr(self, src: Any, dst_type: Any) -> Any:
        """A pointer made of a number may point anywhere: this launch's accesses are no longer checked."""
        self.memory = None
        return super().create_int_to_ptr(src, dst_type)

    def _check(self, ptrs: Any, mask: Any, does: str) -> None:
        if self.memory is not None:
            size = max(1, ptrs.get_element_ty().primitive_bitwidth // 8)
            self.memory.check(ptrs.data, None if mask is None else mask.data, size, does, self.grid_idx)

    # operations that a CPU lacks

    def create_extern_elementwise(
        self, lib_name: str, lib_path: str, symbol: str, args: Any, ret_type: Any, is_pure: bool
    ) -> Any:
        """A function of libdevice, by numpy or torch."""
        values = [decode(a.data, a.dtype) for a in args]
        out = _without_warnings(elementwise(symbol), *values)
        return TensorHandle(np.asarray(out).astype(numpy_type(ret_type.scalar)), ret_type.scalar)

    def create_inline_asm(self, *args: Any) -> Any:
        """Raise :class:`InterpreterLimit`: assembly is for a GPU."""
        raise InterpreterLimit("the kernel has inline assembly (tl.inline_asm_elementwise), which no CPU runs")

    def __getattr__(self, name: str) -> Any:
        if not name.startswith(("create_", "get_")):
            raise AttributeError(name)
        raise InterpreterLimit(f"this Triton's interpreter has no {name.removeprefix('create_')}")


def _handle(values: np.ndarray, dtype: Any) -> Any:
    if values.dtype == np.bool_:
        return TensorHandle(values, tl.int1)
    return TensorHandle(encode(values, dtype), dtype.scalar)


def _refuse_fp8(dtype: Any) -> None:
    if is_fp8(dtype):
        raise InterpreterLimit(f"arithmetic on {dtype.scalar.name} values: convert them to a wider type first")


def _without_warnings(function: Callable[..., Any], *args: Any) -> Any:
    """Without numpy's warnings of infinities, NaN and integer overflow, which a GPU doesn't give."""
    with np.errstate(all="ignore"):
        return function(*args)
