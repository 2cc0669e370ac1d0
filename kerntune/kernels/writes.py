"""Which arguments a kernel reads and writes, and what loaded values decide: from TTIR, or a Gluon kernel's TTGIR."""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from functools import lru_cache
from typing import Any

from kerntune.base.device import Target
from kerntune.kernels import access
from kerntune.kernels.access import Access
from kerntune.kernels.compat.triton_compiler import gpu_target, make_backend

_POINTER_LIKE = re.compile(r"!tt\.ptr|tensordesc")
_WORD = re.compile(r"(?:\b|x)i64\b")  # an integer that can hold an address
_FLOAT = re.compile(r"(?:\b|x)(?:bf16|f16|f32|f64|f8E\w+)\b")  # alone, or after the shape: tensor<64xf32>

KEPT_ACCESSES = 64
"""Texts whose access is kept: configs that differ in warps or stages have the same TTIR, of some 10 KB."""


def access_of(ttir: str, target: Target | None = None, module: Any = None) -> Access:
    """What the kernel in ``ttir`` reads and writes, found by following its addresses back to its parameters.

    ``target`` adds the dialects of its backend; plain TTIR needs none. ``module`` is the text's, where it has been
    parsed already. Never raises for the content of ``ttir``: text
    that can't be parsed, impure inline assembly, an address made from an integer or loaded from memory, and an
    operation that this code has no rule for all give :meth:`Access.everything`, with the reason. Takes 3 to 5 ms for
    a new text, most of it MLIR's dialects, plus the import of Triton.
    """
    try:
        return _understood(ttir, target) if module is None else _Walk(module).access()
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        why = [f"TTIR not understood: {type(error).__name__}: {first_line}"]
        return Access.everything(_count_pointers(ttir), why, follows=True, beyond=why)


@lru_cache(maxsize=KEPT_ACCESSES)  # which keeps no failures: a process may be out of files for a moment
def _understood(ttir: str, target: Target | None) -> Access:
    context = ir_context(target and make_backend(gpu_target(target)))  # it must outlive the module
    return _Walk(parse_module(ttir, context)).access()


def ir_context(backend: Any = None) -> Any:
    """A context of MLIR with the dialects of Triton, and those of a backend."""
    from triton._C.libtriton import ir

    context = ir.context()
    ir.load_dialects(context)
    if backend is not None:
        backend.load_dialects(context)
    return context


ADDRESSES, LENGTH = "which memory it touches", "how long it runs"


def content_use(ttir: str, target: Target | None = None) -> tuple[str, ...]:
    """What loaded values decide: :data:`ADDRESSES` (an offset, a mask, a descriptor's place), :data:`LENGTH` (a loop's
    bounds, a branch), both or none. None of a text that can't be parsed."""
    context = ir_context(target and make_backend(gpu_target(target)))
    try:
        found = _ContentWalk(parse_module(ttir, context)).decided()
    except Exception:
        return ()
    return tuple(word for word in (ADDRESSES, LENGTH) if word in found)


def parse_module(text: str, context: Any) -> Any:
    """The MLIR module of a text. Triton's bindings parse files only: it is one without a name, so that a process that
    is killed leaves none on the disk."""
    from triton._C.libtriton import ir

    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.flush()
        return ir.parse_mlir_module(f"/proc/self/fd/{file.fileno()}", context)


def _count_pointers(ttir: str) -> int:
    """Pointer-like parameters of the public function by its text, for modules that can't be parsed."""
    parameters = ttir.partition("tt.func public @")[2].partition("(")[2]
    end = re.search(r"\)\s*(?:->|attributes|\{\s*$)", parameters, re.MULTILINE)
    return len(re.findall(r":\s*!(?:tt\.ptr|ttn?g?\.tensordesc)", parameters[: end.start()])) if end else 0


class _Op:
    """An operation with the ids of its values, read once because each access through the bindings is slow."""

    __slots__ = ("block_args", "handle", "name", "operands", "region", "regions", "results")

    def __init__(self, handle: Any, walk: _Walk) -> None:
        self.handle = handle
        self.name: str = handle.get_name()
        self.operands = [walk.note(handle.get_operand(i)) for i in range(handle.get_num_operands())]
        self.results = [walk.note(handle.get_result(i)) for i in range(handle.get_num_results())]
        self.regions: list[int] = [handle.get_region(i).id() for i in range(handle.get_num_regions())]
        block = handle.get_block()  # None of the module itself
        self.region: int | None = block and block.get_parent().id()
        self.block_args = [walk.note(block.get_argument(i)) for i in range(block.get_num_arguments())] if block else []


class _Walk:
    """One pass over a module: the origins of each address, and the operations on it.

    ``_sources`` maps a value to the values that its address may come from. A value without any source that is no
    parameter has an unknown origin, which makes every access through it unknown too; poison is the exception, since no
    program may access memory through it, and so is memory of the launch's own.
    """

    def __init__(self, module: Any) -> None:
        self._pointer: dict[int, bool] = {}
        self._float: dict[int, bool] = {}
        self._word: dict[int, bool] = {}
        self._sources: defaultdict[int, set[int]] = defaultdict(set)
        self._origin_unknown: dict[int, str] = {}
        self._poison: set[int] = set()
        self._scratch: set[int] = set()
        self._from_memory: list[_Op] = []
        self._unknown: list[str] = []
        self._follows = False
        self._beyond: list[str] = []
        self._outside: list[_Op] = []
        self._calls: dict[_Op, _Op] = {}
        self._by_result: dict[int, _Op] = {}
        self._returned: set[_Op] = set()
        self._between: dict[int | None, int] = {}
        handles: list[Any] = []
        module.walk(handles.append)
        self._ops = [_Op(h, self) for h in handles if h.get_name() != "builtin.module"]
        self._in_region: defaultdict[int | None, list[_Op]] = defaultdict(list)
        for op in self._ops:
            self._in_region[op.region].append(op)
        self._functions = {str(op.handle.get_str_attr("sym_name")): op for op in self._ops if op.name == "tt.func"}
        (body,) = self._functions[module.get_entry_func_name()].regions
        self._parameters = self._entry(body)

    def note(self, value: Any) -> int:
        """A value's id; records whether it is an address, and whether it holds floats."""
        key: int = value.id()
        if key not in self._pointer:
            text = str(value.get_type())
            self._pointer[key] = bool(_POINTER_LIKE.search(text))
            self._float[key] = bool(_FLOAT.search(text))
            self._word[key] = bool(_WORD.search(text))
        return key

    def access(self) -> Access:
        """The accesses of the entry function."""
        for op in self._ops:
            self._connect(op)
        for op in self._calls:
            self._return(op, frozenset())
        for op in self._from_memory:
            self._descriptor(op)
        pointers = [v for v in self._parameters if self._pointer[v]]
        number = {value: k for k, value in enumerate(pointers)}
        reads = self._reach(number, access.READERS)
        writes = self._reach(number, access.WRITERS)
        atomics = self._reach(number, access.ATOMICS)
        for op in self._outside:
            for value in filter(self._pointer.get, op.operands):
                self._roots(op, value, number)
        if self._unknown:
            return Access.everything(len(pointers), self._unknown, follows=self._follows, beyond=self._beyond)
        added = (v for op in self._ops if op.name in access.ATOMICS for v in op.operands)
        floats = any(self._float[v] and not self._pointer[v] for v in added)
        return Access(reads, writes, atomics, floats, (), len(pointers))

    # -- where addresses go ------------------------------------------------------------------------------------------

    def _connect(self, op: _Op) -> None:
        connect = {
            "scf.for": self._for,
            "scf.while": self._while,
            "scf.if": self._if,
            "tt.call": self._call,
            "ttg.warp_specialize": self._partitions,
        }.get(op.name, self._branch if op.name.startswith("cf.") else self._plain)
        if op.name != access.PARTITIONS:  # connected by the one around it
            connect(op)

    def _for(self, op: _Op) -> None:
        (body,) = op.regions
        _lower, _upper, _step, *given = op.operands
        _induction, *carried = self._entry(body)
        for values in (given, *(end.operands for end in self._ends(body))):
            self._flow(carried, values)
            self._flow(op.results, values)

    def _while(self, op: _Op) -> None:
        before, after = op.regions
        self._flow(self._entry(before), op.operands)
        for end in self._ends(before):
            _condition, *handed_on = end.operands
            self._flow(op.results, handed_on)
            self._flow(self._entry(after), handed_on)
        for end in self._ends(after):
            self._flow(self._entry(before), end.operands)

    def _if(self, op: _Op) -> None:
        for region in op.regions:
            for end in self._ends(region):
                self._flow(op.results, end.operands)

    def _partitions(self, op: _Op) -> None:
        """Regions for other warps, each with the captured values as its arguments; the first region is this warp's own,
        and yields the results. Captures are operands of this operation or of the one around the other regions."""
        own, *others = op.regions
        for end in self._ends(own):
            self._flow(op.results, end.operands)
        for inner in (inner for region in others for inner in self._in_region[region]):
            for region in inner.regions:
                self._flow(self._entry(region), [*op.operands, *inner.operands])

    def _call(self, op: _Op) -> None:
        callee = self._functions.get(str(op.handle.get_flat_symbol_ref_attr("callee")))
        if callee is None or not any(self._in_region[region] for region in callee.regions):
            self._follow("a call of a function without a body", writes=True)
            return
        (body,) = callee.regions
        self._flow(self._entry(body), op.operands)
        self._calls[op] = callee
        self._by_result.update(dict.fromkeys(op.results, op))

    def _return(self, op: _Op, above: frozenset[_Op]) -> None:
        """Results of one call come from that call's own operands, not from those of other calls of the function.

        ``above`` are the calls around this one; for a recursive function the operands of all its callers count.
        """
        if op in self._returned:
            return
        self._returned.add(op)
        (body,) = self._calls[op].regions
        given = dict(zip(self._entry(body), op.operands, strict=True))
        for end in self._in_region[body]:
            if end.name == "tt.return":
                for result, value in zip(op.results, end.operands, strict=True):
                    found = self._within(value, given, above | {op})
                    self._flow_all([result], [given.get(leaf, leaf) for leaf in found])

    def _within(self, value: int, parameters: Container[int], above: frozenset[_Op]) -> set[int]:
        """The origins of a value inside of a function, followed back to the function's parameters at most."""
        leaves: set[int] = set()
        seen: set[int] = set()
        stack = [value]
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            inner = self._by_result.get(value)
            if inner is not None and inner not in above:
                self._return(inner, above)
            if value in parameters or not self._sources[value]:
                leaves.add(value)
            else:
                stack += self._sources[value]
        return leaves

    def _branch(self, op: _Op) -> None:
        """Unstructured control flow: any operand may reach any block of the region but the first. One value, which is
        no operation's, stands between, so that many branches to many blocks take no longer than their text."""
        between = self._between.get(op.region)
        if between is None:
            between = self._between[op.region] = -1 - len(self._between)
            self._pointer[between] = True
            first = self._entry(op.region)
            for other in self._in_region[op.region]:
                if other.block_args != first:
                    self._flow_all(other.block_args, [between])
        self._flow_all([between], op.operands)

    def _plain(self, op: _Op) -> None:
        touched = any(self._pointer[v] for v in (*op.operands, *op.results))
        if op.name in access.OUTSIDE_CODE:
            name, pure = op.name.partition(".")[2], op.handle.get_bool_attr("pure")
            if not pure:
                self._unknown.append(f"impure {name}")
            elif touched:
                self._unknown.append(f"{name} takes an address")
            if touched or not pure:
                self._outside.append(op)
                self._mark(op, f"{name} makes an address")
                if any(map(self._word.get, op.operands)):
                    self._follow(f"{name} takes an integer that may be an address", writes=True)
        elif op.name == "tt.ptr_to_int":
            self._unknown.append("an address becomes an integer")
        elif op.name == "tt.int_to_ptr":
            self._mark(op, "an address is made from an integer")
        elif op.name == "ub.poison":
            self._poison.update(op.results)
        elif op.name == access.SCRATCH:
            self._scratch.update(op.results)
        elif op.name.endswith(access.FROM_MEMORY):
            self._from_memory.append(op)
        elif op.name not in access.READERS | access.WRITERS:
            if touched and op.name not in access.ADDRESS_ONLY and not op.name.startswith(access.CONTROL):
                self._unknown.append(f"{op.name} takes an address")
            elif not self._is_known(op) and any(map(self._word.get, op.operands)):
                self._follow(f"{op.name} takes an integer that may be an address", writes=True)
            self._through(op)

    @staticmethod
    def _is_known(op: _Op) -> bool:
        """Whether an operation has no way to memory but through its addresses."""
        return op.name in access.ADDRESS_ONLY | access.ON_CHIP or op.name.startswith(
            access.PURE_DIALECTS + access.CONTROL
        )

    def _descriptor(self, op: _Op) -> None:
        """A descriptor that is taken from where this kernel has made it describes what was given there."""
        places = self._leaves(op.operands[0])
        if not places <= self._scratch:
            self._mark(op, "a tensor descriptor is taken from memory")
            return
        made = [m for m in self._ops if m.name == access.TENSOR_MAP and places & self._leaves(m.operands[0])]
        self._flow_all(op.results, [m.operands[1] for m in made])

    def _leaves(self, value: int, parameters: Container[int] = ()) -> set[int]:
        return self._within(value, parameters, frozenset(self._calls))

    def _through(self, op: _Op) -> None:
        """A result, or an argument of an unknown operation's region, may be any operand or anything that a region
        yields."""
        inside = [end for region in op.regions for end in self._ends(region)]
        given = [*op.operands, *(v for end in inside for v in end.operands)]
        self._flow_all(op.results, given)
        if op.name != "tt.func":
            for region in op.regions:
                self._flow_all(self._entry(region), given)

    def _follow(self, why: str, writes: bool) -> None:
        """Record an access whose address comes from no known parameter."""
        self._unknown.append(why)
        self._follows = True
        self._beyond += [why] if writes else []

    def _mark(self, op: _Op, reason: str) -> None:
        for value in op.results:
            if self._pointer[value]:
                self._origin_unknown[value] = reason

    # -- small steps -------------------------------------------------------------------------------------------------

    def _entry(self, region: int | None) -> list[int]:
        """Arguments of the first block of a region (every block ends with an operation, so it has one)."""
        return next((op.block_args for op in self._in_region[region]), [])

    def _ends(self, region: int) -> list[_Op]:
        return [op for op in self._in_region[region] if op.name in access.ENDS]

    def _flow(self, into: Sequence[int], values: Sequence[int]) -> None:
        """Value by value; lengths that differ mean that this code misreads the operation, and raise an error."""
        for target, value in zip(into, values, strict=True):
            self._flow_all([target], [value])

    def _flow_all(self, into: Iterable[int], values: Sequence[int]) -> None:
        for target in into:
            if self._pointer[target]:
                self._sources[target].update(v for v in values if self._pointer[v])

    def _reach(self, number: dict[int, int], names: frozenset[str]) -> frozenset[int]:
        found: set[int] = set()
        for op in self._ops:
            for address in self._addresses(op) if op.name in names else ():
                found |= self._roots(op, address, number)
        return frozenset(found)

    def _addresses(self, op: _Op) -> list[int]:
        """The operands that an operation on memory takes its addresses from."""
        if op.name.startswith(access.ADDRESS_FIRST):
            return op.operands[:1]
        return [value for value in op.operands if self._pointer[value]]

    def _roots(self, op: _Op, address: int, number: dict[int, int]) -> set[int]:
        roots = self._leaves(address, number)
        for value in roots - number.keys() - self._poison - self._scratch:
            why = self._origin_unknown.get(value, "an address of unknown origin")
            self._follow(f"{op.name}: {why}", writes=op.name not in access.PURE_READERS)
        return {number[value] for value in roots & number.keys()}


class _ContentWalk(_Walk):
    """Follows all values, not addresses alone, back to what comes out of memory."""

    def decided(self) -> set[str]:
        """What loaded values decide."""
        for op in self._ops:
            self._connect(op)
        for op in self._calls:
            self._return(op, frozenset())
        loaded = {value for op in self._ops if op.name in access.LOADS for value in op.results}
        deciding = (found for op in self._ops if (found := self._deciding(op))[1])
        return {word for word, values in deciding if any(loaded & self._leaves(value) for value in values)}

    def _deciding(self, op: _Op) -> tuple[str, list[int]]:
        if op.name == "scf.for":
            return LENGTH, op.operands[:3]
        if op.name in ("scf.if", "scf.condition", "cf.cond_br"):
            return LENGTH, op.operands[:1]
        if op.name in ("tt.load", "tt.store"):  # the mask comes after the pointer, and after a store's value
            return ADDRESSES, op.operands[2:3] if op.name == "tt.store" else op.operands[1:2]
        numbers = [value for value in op.operands if not self._pointer[value] and not self._float[value]]
        return ADDRESSES, numbers if op.name.startswith(access.BY_NUMBERS) else []

    def _plain(self, op: _Op) -> None:
        if op.name not in access.LOADS:
            self._through(op)

    def _flow_all(self, into: Iterable[int], values: Sequence[int]) -> None:
        for target in into:
            self._sources[target].update(values)
