"""Opcodes of compiled kernels, many in one run of the disassembler, and which of them are in loops.

An instruction is in a loop if control can return to it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from threading import Lock
from typing import Protocol

import msgspec

from kerntune.base.orphans import bound_command
from kerntune.errors import BackendError, StoreError

WAIT_BYTES = 8 * 16
"""A loop of up to eight instructions polls a barrier: it waits, and doesn't repeat work."""


class Jump(msgspec.Struct, frozen=True):
    """An instruction that may jump. ``target`` is None for an exit; ``falls`` is whether the next instruction may
    follow too."""

    at: int
    target: int | None
    falls: bool


def loops(jumps: Sequence[Jump], begin: int, end: int, step: int) -> list[tuple[int, int]]:
    """Address ranges (the end is not included) of code in loops, of instructions from ``begin`` to ``end``.

    Blocks of one strongly connected component of the control flow are in one loop, or in one within
    another. Code out of line, such as a wait for a barrier, so counts to the loop that it belongs to.
    """
    starts = sorted({begin, *(j.at + step for j in jumps), *(j.target for j in jumps if j.target is not None)})
    starts = [s for s in starts if begin <= s < end]
    ends = [*starts[1:], end]
    number, last = {start: i for i, start in enumerate(starts)}, {j.at: j for j in jumps}
    edges: dict[int, list[int]] = {}
    for block, stop in enumerate(ends):
        jump = last.get(stop - step)
        following = [stop] if jump is None or jump.falls else []
        following += [jump.target] if jump is not None and jump.target is not None else []
        edges[block] = [number[x] for x in following if x in number]
    back: dict[int, list[int]] = {block: [] for block in edges}
    for block, following in edges.items():
        for other in following:
            back[other].append(block)
    blocks: set[int] = set()
    for head in (other for block in edges for other in edges[block] if other <= block):  # each loop jumps back
        loop = set() if head in blocks else _reached(head, edges) & _reached(head, back)
        if sum(ends[b] - starts[b] for b in loop) > WAIT_BYTES:
            blocks |= loop
    return [(starts[b], ends[b]) for b in sorted(blocks)]


def inside(address: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether an address is in one of the sorted ranges."""
    at = bisect_right(ranges, (address, float("inf"))) - 1
    return at >= 0 and address < ranges[at][1]


def _reached(root: int, edges: Mapping[int, Iterable[int]]) -> set[int]:
    """The blocks that control comes to from one; this one is among them if it is in a loop."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        new = [other for other in edges[waiting.pop()] if other not in seen]
        seen.update(new)
        waiting += new
    return seen


_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*(?:\.\w+)*)([^;&?]*)")
"""Address, predicate, opcode and operands of a line of nvdisasm's. For sm_120, that of CUDA 12.8, which Triton 3.6 has,
prints behind them how the instruction is scheduled: ``&wr=0x2 ?trans1``."""

_JUMP = re.compile(r"(?:BRA|JMP)\b")
_ENDS = re.compile(r"(?:EXIT|RET|KILL)\b")
_TARGET = re.compile(r"\b0x[0-9a-f]+$")

_PRINTED = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s*([^;&?]*)")

_ON_STACK = re.compile(r"\[R1(?:\+(0x[0-9a-f]+))?\]")  # R1 is the stack pointer (CUDA's ABI)
_USES_STACK_POINTER = re.compile(r"(?!R1\b)[^,]*,.*\bR1\b")  # as a source of something else than R1

_OLDER_NAME = {"sm_103": "sm_100", "sm_121": "sm_120"}
"""Architectures that Triton 3.6's nvdisasm (CUDA 12.8) doesn't know, and one of the same family, by whose name it reads
their code: with the same opcodes and operands as that of CUDA 13.1 by the real name, in 52 kernels."""

_INSTRUCTION_BYTES = 16  # every instruction since sm_70
_TIMEOUT_SECONDS = 120  # a kernel takes a few ms, the longest one thousands of them
_CACHE_SIZE = 4096  # kernels; some hundred bytes each


def find_tool(name: str) -> Path:
    """The path of one of NVIDIA's tools that Triton's wheel contains (``nvdisasm``, ``cuobjdump``, ``ptxas``).

    Reads ``TRITON_<NAME>_PATH`` as Triton does, then into the wheel, then along ``PATH``. Triton isn't imported.
    Raises :class:`BackendError`, which names the variable to set.
    """
    variable = f"TRITON_{name.upper().replace('-', '_')}_PATH"
    if given := os.environ.get(variable):
        if Path(given).is_file():
            return Path(given)
        raise BackendError(f"{variable} is {given}, which is no file: correct it or unset it")
    wheel = importlib.util.find_spec("triton")
    if wheel is not None and wheel.origin is not None:
        carried = Path(wheel.origin).parent / "backends" / "nvidia" / "bin" / name
        if carried.is_file():
            return carried
    if along_path := shutil.which(name):
        return Path(along_path)
    raise BackendError(
        f"{name} was found neither in Triton's package nor on PATH: install Triton from its Linux wheel, which carries "
        f"it, or set {variable} to the one of a CUDA toolkit"
    )


class Listing(msgspec.Struct, frozen=True):
    """The counts of one kernel's machine code.

    ``opcodes`` counts by opcode with its modifiers; ``stack`` the loads and stores at a fixed place of the stack frame,
    by opcode and offset in bytes; ``stack_address_taken`` is whether the frame is also used in another way, as for a
    kernel's own local arrays. ``repeated_stack`` is the part of ``stack`` in loops; all of it if the kernel has no
    loop.
    """

    opcodes: Mapping[str, int]
    stack: Mapping[tuple[str, int], int]
    stack_address_taken: bool
    repeated_stack: Mapping[tuple[str, int], int]


class Code(msgspec.Struct, frozen=True):
    """A piece of machine code, by its hash, and the nvdisasm for it, by its size in bytes, which differs between
    builds."""

    arch: str
    sha256: str
    instructions: int
    tool: str


class ListingStore(Protocol):
    """Listings that earlier processes have stored."""

    def complete(self, codes: Sequence[Code], make: Callable[[list[Code]], dict[Code, Listing]]) -> dict[Code, Listing]:
        """The stored listings of these, and those that ``make`` gives for the others, which are stored too."""


class Disassembler:
    """Lists machine code, and caches listings by the code's hash. Safe to share among threads.

    ``memory``, if there is one, is searched before nvdisasm is started, and receives new listings.
    """

    def __init__(self, cache_size: int = _CACHE_SIZE, memory: ListingStore | None = None) -> None:
        self._known: OrderedDict[Code, Listing] = OrderedDict()
        self._cache_size = cache_size
        self._lock = Lock()
        self._memory = memory

    @contextmanager
    def remembering(self, memory: ListingStore) -> Iterator[None]:
        """Use this store until the context closes."""
        before, self._memory = self._memory, memory
        try:
            yield
        finally:
            self._memory = before

    def listings(self, texts: Sequence[bytes], arch: str) -> list[Listing]:
        """The listing of each of ``texts``, machine code for ``arch`` (``sm_90a``).

        One run of nvdisasm for all that aren't cached: 0.2 s for its start, a few ms a kernel. Raises
        :class:`BackendError` if the tool is missing or doesn't support the architecture, :class:`StoreError` for bytes
        that can't be machine code.
        """
        tool = _tool_size()
        hashes = [hashlib.sha256(text).hexdigest() for text in texts]
        keys = [Code(arch, sha, len(x) // _INSTRUCTION_BYTES, tool) for sha, x in zip(hashes, texts, strict=True)]
        with self._lock:
            unknown = {k: text for k, text in zip(keys, texts, strict=True) if k not in self._known}
            self._known.update(self._listed(unknown, arch))
            for key in keys:
                self._known.move_to_end(key)
            found = [self._known[key] for key in keys]
            while len(self._known) > self._cache_size:
                self._known.popitem(last=False)
        return found

    def _listed(self, unknown: Mapping[Code, bytes], arch: str) -> dict[Code, Listing]:
        def make(codes: list[Code]) -> dict[Code, Listing]:
            return dict(zip(codes, _disassemble([unknown[c] for c in codes], arch), strict=True))

        return make(list(unknown)) if self._memory is None else self._memory.complete(list(unknown), make)


_ARCH = re.compile(r"sm_[0-9]{2,3}[a-z]?")


def _tool_size() -> str:
    """The size of nvdisasm; empty if there is none, which is an error only where it is needed."""
    try:
        return str(find_tool("nvdisasm").stat().st_size)
    except (BackendError, OSError):
        return ""


def _disassemble(texts: Sequence[bytes], arch: str) -> list[Listing]:
    if not texts:
        return []
    for text in texts:
        if len(text) % _INSTRUCTION_BYTES:
            raise StoreError(
                f"{len(text)} bytes are no machine code for {arch}: not a multiple of {_INSTRUCTION_BYTES}"
            )
    return _split(_listing(b"".join(texts), arch), [len(text) for text in texts])


def _listing(code: bytes, arch: str) -> str:
    """The output of nvdisasm for raw code, which it reads from memory: a process that is killed leaves no file. It does
    no control flow analysis, which takes most of its time and which counts don't need."""
    if not _ARCH.fullmatch(arch):  # a file's text, which would be a word of the command
        raise BackendError(f"nvdisasm knows no architecture {arch[:80]!r}")
    tool = find_tool("nvdisasm")
    done = _run_nvdisasm(tool, code, arch)
    older = _OLDER_NAME.get(arch.rstrip("af"))
    if done.returncode and older and "is not defined for option" in done.stderr:
        done = _run_nvdisasm(tool, code, arch.replace(arch.rstrip("af"), older))
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise BackendError(f"{tool} can't disassemble {arch}: {said[-1] if said else f'exit {done.returncode}'}")
    return done.stdout


def _run_nvdisasm(tool: Path, code: bytes, arch: str) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryFile() as file:
        file.write(code)
        file.flush()
        command = [str(tool), "-ndf", "--binary", arch.replace("sm_", "SM"), f"/proc/self/fd/{file.fileno()}"]
        try:
            return subprocess.run(
                bound_command(command), capture_output=True, text=True, timeout=_TIMEOUT_SECONDS,
                pass_fds=(file.fileno(),),
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BackendError(f"{tool} could not be run: {error}") from None


def code_lines(text: bytes, arch: str) -> list[str]:
    """The instructions of machine code for ``arch`` as nvdisasm prints them, without addresses and the ``NOP``
    that fill its end; errors as :meth:`Disassembler.listings`."""
    found = (_PRINTED.match(line) for line in _listing(text, arch).splitlines())
    lines = [" ".join([*match[1].split(), ";"]) for match in found if match]
    return [line for line in lines if not line.startswith("NOP")]


def _split(listing: str, lengths: Sequence[int]) -> list[Listing]:
    """One listing for each of the pieces of code that were concatenated, separated by address."""
    pieces = [_ListingBuilder(*place) for place in pairwise(accumulate(lengths, initial=0))]
    following = iter(pieces)
    piece = next(following)
    for line in listing.splitlines():
        if found := _INSTRUCTION.match(line):
            address = int(found[1], 16)
            while address >= piece.end:
                piece = next(following)
            piece.add(address, found[3], found[4].strip(), predicated=bool(found[2]))
    return [piece.listing() for piece in pieces]


class _ListingBuilder:
    """A listing that is still being counted, of the instructions from ``begin`` to ``end``."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end = begin, end
        self.opcodes: Counter[str] = Counter()
        self.stack: list[tuple[int, str, int]] = []
        self.stack_address_taken = False
        self.jumps: list[Jump] = []

    def add(self, address: int, opcode: str, operands: str, *, predicated: bool) -> None:
        self.opcodes[opcode] += 1
        if opcode.startswith(("LDL", "STL")):
            if found := _ON_STACK.search(operands):
                self.stack.append((address, opcode, int(found[1] or "0", 16)))
        elif _USES_STACK_POINTER.match(operands):
            self.stack_address_taken = True
        if _ENDS.match(opcode):
            self.jumps.append(Jump(address, None, predicated))
        elif _JUMP.match(opcode) and (target := _TARGET.search(operands)):
            always = not predicated and operands == target[0]
            self.jumps.append(Jump(address, int(target[0], 16), not always))

    def listing(self) -> Listing:
        """The listing, once all instructions were added; :class:`StoreError` if some are missing."""
        count, expected = self.opcodes.total(), (self.end - self.begin) // _INSTRUCTION_BYTES
        if count != expected:
            raise StoreError(f"of {expected} instructions only {count} are machine code")
        ranges = loops(self.jumps, self.begin, self.end, _INSTRUCTION_BYTES) if self.stack else []
        repeated = [(op, place) for at, op, place in self.stack if not ranges or inside(at, ranges)]
        stack = Counter((op, place) for _, op, place in self.stack)
        return Listing(self.opcodes, stack, self.stack_address_taken, Counter(repeated))
