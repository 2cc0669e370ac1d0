"""A candidate's recording as hostile data: what it claims is recomputed, bounded or ignored before anything uses it.

The candidate's code has run in the process that wrote the recording, so every byte may be the candidate's choice.
Nothing that is said about reads, writes, contents, hashes, configs or sources decides anything: each storage counts as
read and written, contents are the referee's, and what counts is what the launches leave in memory.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from kerntune.base.device import Target
from kerntune.base.formatting import visible
from kerntune.base.frames import StrictMessage
from kerntune.base.recording import LOWEST_ADDRESS, Launch, Param, Recording, Storage, View, Zeros
from kerntune.base.recording_check import recording_problems
from kerntune.compiling.binary.elf import text_sections
from kerntune.errors import StoreError
from kerntune.gpu.memory import used_storages
from kerntune.gpu.number_formats import FLOAT_FORMATS, INTEGER_FORMATS
from kerntune.referee.case_inputs import CaseInputs, PlainArgument
from kerntune.referee.declared_inputs import bytes_of, dense_strides
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.tasks import (
    SETTINGS,
    BytesLike,
    Constant,
    ExpectedResult,
    ExpectedSeed,
    Fill,
    RecordAnswer,
    RecordedCall,
    ReplaySide,
)
from kerntune.referee.torch_operators import TorchOperator, beside_launches, named, operator_problems, reached

KERNELS_ALONE = "of both sides, judge functions that return what the kernels leave"
"""What to do about an operator that isn't replayed."""

MOST_ITEMS, LEAST_ITEMS = 1_500_000, 20_000
"""Values in an answer: 2,048 launches with 40 arguments of five values each, and some more, three times for a call and
two calls; of a small answer the second, and one for each two bytes."""

MOST_BYTES = 1 << 28
"""Of a candidate's answer: binaries and TTIR of a call are a few MB, constants up to 64 MiB."""

MOST_LAUNCHES, MOST_STORAGES, MOST_VIEWS, MOST_PARAMS, MOST_RESULTS = 2_048, 4_096, 16_384, 256, 256
MOST_MEMORY = 1 << 32
"""Bytes of all storages together: 4 GiB, more than the emulator runs through in any budget."""

MOST_CONFIGS, MOST_CONFIG_TEXT = 1 << 12, 1 << 10
"""Of an autotuner, and letters that tell one from others."""

MOST_DEPTH = 64
"""Nesting of options in a binary's description."""

ADDRESS_AS_NUMBER = b"tt.ptr_to_int"
"""An operation of TTIR. To offset, reinterpret or follow a pointer takes none, and no number of replays shows what a
kernel does at one address in a million."""

CODED_LETTER = re.compile(rb"(?<!\\)\\(?:2E|3[0-9]|[46][1-9A-F]|5[0-9AF]|7[0-9A])", re.IGNORECASE)
"""In a string of MLIR's text a letter, digit, dot or underscore by its code, as an operation's name may be written. No
printer writes one."""

SPECIAL_REGISTER_READS = (0x919, 0x805, 0x9C3)
"""Lowest 12 bits of S2R, CS2R and S2UR in an instruction of 16 bytes (ptxas and nvdisasm, sm_80 to sm_120)."""

HARDWARE_STATE = {
    0x03: "SR_VIRTID", 0x43: "SR_VIRTUALSMID", 0x50: "SR_CLOCKLO", 0x51: "SR_CLOCKHI",
    0x52: "SR_GLOBALTIMERLO", 0x53: "SR_GLOBALTIMERHI", **{0x64 + i: f"SR_PM{i}" for i in range(8)},
}  # fmt: skip
"""Special registers that are others where or when the same program runs elsewhere, by the number in such an
instruction's tenth byte. Of 3,585 cubins of tests and public packages none reads any."""

ITEM_BYTES = {name: kind.width for name, kind in {**FLOAT_FORMATS, **INTEGER_FORMATS}.items()}

TF32_PRODUCT = re.compile(rb"inputPrecision = tf32 : tensor<[0-9x]+xf32> ")

LITTLE = 2.0**-7
"""Of a result's size: tf32 has 10 bits of mantissa, and sums may cancel."""


class CheckedCall(StrictMessage, frozen=True):
    """A recording that can be replayed, and where inputs, results and first contents lie in it.

    ``inputs`` has a storage for each input tensor, None for one that no launch reaches.
    """

    recording: Recording
    artifacts: dict[str, bytes]
    inputs: tuple[int | None, ...]
    results: tuple[View, ...]
    fills: tuple[Fill, ...]
    constants: tuple[Constant, ...]
    outline: str = "tensor"
    configs: tuple[str, ...] = ()
    operators: tuple[TorchOperator, ...] = ()
    leaves: tuple[str, ...] = ()
    """Settings of torch's that are others behind it."""

    again: CheckedCall | None = None
    """The call, and later ones behind it: inputs and results are the last one's."""

    @property
    def wanted(self) -> tuple[int, ...]:
        """The storages that results and inputs lie in."""
        return tuple(dict.fromkeys([*(v.storage for v in self.results), *(i for i in self.inputs if i is not None)]))

    def contents(self, given: Sequence[bytes]) -> tuple[bytes | None, ...]:
        """The first bytes by storage; ``given`` has those of the input tensors. None: a fill, or poison."""
        found: list[bytes | None] = [None] * len(self.recording.storages)
        for constant in self.constants:
            found[constant.storage] = constant.data
        for storage, data in zip(self.inputs, given, strict=True):
            if storage is not None:
                found[storage] = data
        return tuple(found)

    def ignored(self, case: CaseInputs) -> list[int]:
        """Numbers of the inputs of floats that neither a launch nor an operator is given."""
        used = {*used_storages(self.recording), *(i for row in self.operators for i in row.storages(self.recording))}
        inputs = enumerate(zip(self.inputs, case.tensors, strict=True))
        return [i for i, (storage, given) in inputs if storage not in used and given.dtype in FLOAT_FORMATS]

    def told_of_weights(self, case: CaseInputs) -> str:
        """What a reader should know of a wrong result where launches don't read a model's own numbers: a constructor
        may have prepared them, or kernels compute them."""
        ignored = {*self.ignored(case)}
        unread = [visible(name) for name, i in case.parameters.items() if i in ignored]
        if not unread:
            return ""
        names = ", ".join(unread[:4]) + ", ..." * (len(unread) > 4)
        return f"; no launch reads {names}: here they have other numbers than a constructor gives"

    def told_of_products(self, dtype: str, off: float) -> str:
        """The same where a result of this dtype is a little ``off``, and a product rounds float32 to tf32, which is
        what Triton's ``tl.dot`` does by itself."""
        texts = (self.artifacts.get(binary.ttir_sha256, b"") for binary in self.recording.binaries)
        if dtype != "float32" or off > LITTLE or not any(map(TF32_PRODUCT.search, texts)):
            return ""
        return "; its products round float32 to tf32: input_precision='ieee' doesn't"


def decoded(data: BytesLike) -> RecordAnswer:
    """An answer's bytes as a message; :class:`Refusal` for anything else."""
    most = min(MOST_ITEMS, LEAST_ITEMS + len(data) // 2)
    if has_more_items(data, most):
        raise Refusal(Reason.ANSWER, f"its answer has more than {most:,} values")
    try:
        return msgspec.msgpack.decode(data, type=RecordAnswer)
    except (msgspec.MsgspecError, ValueError, RecursionError, TypeError, OverflowError) as exc:
        raise Refusal(Reason.ANSWER, f"its answer can't be read ({visible(str(exc)[:200])})") from None


# Of MessagePack's types by their first byte: bytes of the item after it, or of the count that follows, and whether that
# count is of bytes (the specification's "formats").
_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4,
          0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}  # fmt: skip
_COUNTED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_CONTAINERS = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}


def has_more_items(data: BytesLike, most: int) -> bool:
    """Whether a MessagePack document has more values than ``most``, keys and containers counted: a byte of the
    document may be 140 bytes of an object."""
    at = count = 0
    while at < len(data) and count <= most:
        first, count = data[at], count + 1
        at += 1
        if first in _COUNTED:
            size = _COUNTED[first]
            at += size + int.from_bytes(data[at : at + size], "big") + (0xC7 <= first <= 0xC9)
        elif 0xA0 <= first <= 0xBF:
            at += first & 0x1F
        else:
            at += _FIXED.get(first, 0) + _CONTAINERS.get(first, 0)
    return count > most


def checked(call: RecordedCall, case: CaseInputs, target: Target, calls: int = 1) -> CheckedCall:
    """The call, or two, with all that it may claim recomputed. :class:`Refusal` for what can't be."""
    _bounded(call, calls)
    problem = next(recording_problems(call.recording), "")
    if problem:
        raise Refusal(Reason.ANSWER, f"its recording can't be: {visible(problem[:300])}")
    if call.recording.target != target:
        other = visible(str(call.recording.target)[:40])
        raise Refusal(Reason.ANSWER, f"it was recorded for {other}, not for {target}")
    for sha, data in call.artifacts.items():
        if hashlib.sha256(data).hexdigest() != sha:
            raise Refusal(Reason.ANSWER, "an artifact isn't what its checksum says")
    for binary in call.recording.binaries:
        ttir = call.artifacts.get(binary.ttir_sha256, b"")
        if ADDRESS_AS_NUMBER in ttir or CODED_LETTER.search(ttir):
            text = f"{visible(binary.symbol[:80])} makes a number of an address, by which it may do something else"
            raise Refusal(Reason.ADDRESSES, f"{text} wherever its memory lies")
    for sha, binary in {b.sha256: b for b in call.recording.binaries if target.backend == "cuda"}.items():
        if state := _hardware_state(call.artifacts.get(sha)):
            text = f"{visible(binary.symbol[:80])} reads {state}, by which it may do something else"
            raise Refusal(Reason.HARDWARE, f"{text} wherever and whenever it runs")
    if call.unreplayed:
        text = f"{named(call.unreplayed)} computes beside the kernels, and can't be replayed; {KERNELS_ALONE}"
        raise Refusal(Reason.OPERATOR, text)
    _check_addresses(call.recording, case)
    for view in call.recording.views:
        _check_view(view, call.recording.storages[view.storage])
    if problem := next(operator_problems(call.operators, call.recording, calls), ""):
        raise Refusal(Reason.ANSWER, problem)
    recording = _plain(call.recording, call.operators)
    used = set(used_storages(recording))
    if not any(0 not in x.grid for x in call.recording.launches):
        raise Refusal(Reason.NO_LAUNCH, "no launch has any block")
    if missing := sorted(used & set(call.unknown)):
        sizes = ", ".join(f"{call.recording.storages[i].nbytes:,} bytes" for i in missing[:4])
        text = f"kernels use memory that was made before the call, by what isn't known: {sizes}"
        raise Refusal(Reason.MEMORY, f"{text}; a kernel that is launched outside of the call isn't recorded")
    inputs = _inputs(call, case)
    mine = {i for i in inputs if i is not None}
    _check_contents(call, mine)
    if len(call.results) > MOST_RESULTS:
        raise Refusal(Reason.ANSWER, f"it returns {len(call.results)} tensors")
    results = tuple(call.recording.views[i] for i in call.results)
    return CheckedCall(
        recording, dict(call.artifacts), inputs, results, call.fills, call.constants, call.outline,
        tuple(text[:MOST_CONFIG_TEXT] for text in call.configs[:MOST_CONFIGS]), call.operators,
        tuple(setting for setting in SETTINGS if setting in call.leaves),
    )  # fmt: skip


def _bounded(call: RecordedCall, calls: int) -> None:
    recording = call.recording
    counts = (
        ("launches", len(recording.launches), MOST_LAUNCHES),
        ("storages", len(recording.storages), MOST_STORAGES),
        ("views", len(recording.views), MOST_VIEWS),
        ("arguments of a launch", max((len(x.params) for x in recording.launches), default=0), MOST_PARAMS),
        ("artifacts", len(call.artifacts), 2 * MOST_LAUNCHES),
        ("bytes of memory", sum(max(0, s.nbytes) for s in recording.storages), MOST_MEMORY),
        ("binaries", len(recording.binaries), MOST_LAUNCHES),
    )
    for what, count, most in counts:
        if count > most * calls:
            raise Refusal(Reason.ANSWER, f"its recording has {count} {what}, more than {most * calls}")
    if any(_depth(b.options) > MOST_DEPTH for b in recording.binaries):
        raise Refusal(Reason.ANSWER, "its recording is nested too deeply")
    indices = (*(i for i in call.inputs if i is not None), *call.results)
    if any(not 0 <= i < len(recording.views) for i in indices):
        raise Refusal(Reason.ANSWER, "its recording has no such view")
    places = (*(f.storage for f in call.fills), *(c.storage for c in call.constants), *call.unknown)
    if any(not 0 <= i < len(recording.storages) for i in places):
        raise Refusal(Reason.ANSWER, "its recording has no such storage")


def _depth(value: object) -> int:
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        one, depth = waiting.pop()
        deepest = max(deepest, depth)
        inside = one.values() if isinstance(one, dict) else one if isinstance(one, (list, tuple)) else ()
        if depth <= MOST_DEPTH:
            waiting += [(x, depth + 1) for x in inside]
    return deepest


def _hardware_state(cubin: bytes | None) -> str:
    """A register of :data:`HARDWARE_STATE` that a binary reads; empty if there is none, or no binary."""
    try:
        code = [data for _, data in text_sections(cubin)] if cubin else []
    except StoreError as exc:
        raise Refusal(Reason.ANSWER, f"a binary is damaged: {visible(str(exc))}") from None
    for text in code:
        low, high = np.frombuffer(text[: len(text) // 16 * 16], "<u8").reshape(-1, 2).T
        read = high[np.isin(low & 0xFFF, SPECIAL_REGISTER_READS)] >> 8 & 0xFF
        if (found := read[np.isin(read, [*HARDWARE_STATE])]).size:
            return HARDWARE_STATE[int(found[0])]
    return ""


def _check_addresses(recording: Recording, case: CaseInputs) -> None:
    """An integer in the range of addresses must be one of the inputs' numbers: another process has other addresses."""
    declared = {a.value for a in case.arguments if isinstance(a, PlainArgument)}
    for launch in recording.launches:
        for param in launch.params:
            if _may_be_address(param) and param.value not in declared:
                where = f"{visible(launch.kernel[:80])}.{visible(param.name[:80])}"
                raise Refusal(Reason.ADDRESSES, f"{where} is a number that may be an address")


def _may_be_address(param: Param) -> bool:
    return isinstance(param.value, int) and abs(param.value) >= LOWEST_ADDRESS


def _check_view(view: View, storage: Storage) -> None:
    item = ITEM_BYTES.get(view.dtype)
    if item is None:
        raise Refusal(Reason.ANSWER, f"memory is viewed as {visible(view.dtype[:40])}, which isn't known here")
    if 0 in view.shape:
        return
    low, high = extent(view)
    if low < 0 or high > storage.nbytes:
        raise Refusal(Reason.ANSWER, "a view reaches outside of its memory")


def extent(view: View) -> tuple[int, int]:
    """The first byte of a view in its storage, and the one after its last."""
    item = ITEM_BYTES[view.dtype]
    reach = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)]
    low = view.offset_bytes + item * sum(min(r, 0) for r in reach)
    high = view.offset_bytes + item * (sum(max(r, 0) for r in reach) + 1)
    return low, high


def _inputs(call: RecordedCall, case: CaseInputs) -> tuple[int | None, ...]:
    """The storage of each input tensor, which has exactly its layout, and no other's."""
    if len(call.inputs) != len(case.tensors):
        raise Refusal(Reason.ANSWER, f"its recording has {len(call.inputs)} inputs, {len(case.tensors)} were given")
    found: list[int | None] = []
    for index, given in zip(call.inputs, case.tensors, strict=True):
        if index is None:
            found.append(None)
            continue
        view = call.recording.views[index]
        size = math.prod(given.shape) * ITEM_BYTES[given.dtype]
        wanted = (given.dtype, given.shape, given.strides, 0)
        has = (view.dtype, view.shape, view.strides, view.offset_bytes)
        if has != wanted or call.recording.storages[view.storage].nbytes != size:
            raise Refusal(Reason.INPUT_LAYOUT, f"input {given.name} lies there as {_layout(view)}")
        if view.storage in found:
            raise Refusal(Reason.INPUT_LAYOUT, f"input {given.name} shares its memory with another input")
        found.append(view.storage)
    return tuple(found)


def _layout(view: View) -> str:
    return f"{view.dtype}{list(view.shape[:8])} with strides {list(view.strides[:8])}"


def _check_contents(call: RecordedCall, inputs: set[int]) -> None:
    places = [*(f.storage for f in call.fills), *(c.storage for c in call.constants)]
    if len(set(places)) < len(places) or inputs & {c.storage for c in call.constants}:
        raise Refusal(Reason.ANSWER, "its recording gives a storage two contents")
    for constant in call.constants:
        if len(constant.data) != call.recording.storages[constant.storage].nbytes:
            raise Refusal(Reason.ANSWER, "a constant has another size than its memory")
    for fill in call.fills:
        if fill.dtype not in ITEM_BYTES:
            raise Refusal(Reason.ANSWER, f"memory is filled as {visible(fill.dtype[:40])}, which isn't known here")


def _plain(recording: Recording, operators: Sequence[TorchOperator]) -> Recording:
    """The recording without anything that is only claimed: every storage that a launch has a pointer to, or an operator
    beside it, is read and written by it."""
    launches, beside = [], beside_launches(operators, recording)
    for number, launch in enumerate(recording.launches):
        touched = tuple(sorted(recording.pointed_at(launch) | beside.get(number, set())))
        kernel = recording.binaries[launch.binary].symbol  # what is loaded
        launches.append(Launch(kernel, "", launch.binary, launch.grid, launch.params, touched, touched))
    storages = tuple(Storage(s.nbytes, s.dtype, Zeros(), read=True, written=True) for s in recording.storages)
    binaries = tuple(replace(b, settings={}) for b in recording.binaries)
    return Recording(recording.target, tuple(launches), binaries, storages, recording.views)


def check_outlines(call: CheckedCall, expected: Sequence[ExpectedSeed]) -> None:
    """Whether the call returns what the reference does, but for the numbers in tensors. :class:`Refusal` otherwise."""
    for want in (x.outline for x in expected):
        if call.outline != want:
            text = f"it returns {visible(call.outline[:200])}, the reference {visible(want[:200])}"
            raise Refusal(Reason.RESULT_COUNT, text)


TABLES = "a table of addresses (numbers of data_ptr()) isn't followed: launches need tensors"


def check_results(call: CheckedCall, case: CaseInputs, expected: Sequence[ExpectedResult]) -> None:
    """Whether the results lie as the reference's do. :class:`Refusal` otherwise."""
    if len(call.results) != len(expected):
        raise Refusal(Reason.RESULT_COUNT, f"it returns {len(call.results)} tensors, the reference {len(expected)}")
    launched = reached(call.operators, call.recording)
    written = launched.union(*(row.storages(call.recording) for row in call.operators))
    if call.operators and call.results and not any(view.storage in launched for view in call.results):
        raise Refusal(Reason.RESULT_UNWRITTEN, f"{named(x.name for x in call.operators)} alone computes all results")
    names = dict(zip(call.inputs, (given.name for given in case.tensors), strict=True))
    empty = [want for want in expected if 0 in want.shape]  # beside others, they say nothing and need no launch
    for number, (view, want) in enumerate(zip(call.results, expected, strict=True)):
        if (view.dtype, view.shape) != (want.dtype, want.shape) or not same_strides(view, want):
            has = f"{want.dtype}{list(want.shape)} with strides {list(want.strides)}"
            alike = (view.dtype, view.shape, view.strides) == (want.dtype, want.shape, dense_strides(want.shape))
            advice = f"; if that doesn't matter, let {'the reference' if alike else 'both'} return .contiguous()"
            advice *= (view.dtype, view.shape) == (want.dtype, want.shape)
            raise Refusal(Reason.RESULT_LAYOUT, f"result {number} is {_layout(view)}, the reference's {has}{advice}")
        if 0 in view.shape and len(empty) < len(expected):
            continue
        if view.storage not in written:
            raise Refusal(Reason.RESULT_UNWRITTEN, f"no recorded launch has a pointer to result {number}; {TABLES}")
        own = None if want.input is None else call.inputs[want.input]
        if view.storage in call.inputs and view.storage != own:
            name = names[view.storage]
            meant = f"if that is meant, the reference must do so, too: return {name}.copy_(...)"
            text = f"result {number} is memory of input {name}, the reference's isn't; {meant}"
            raise Refusal(Reason.RESULT_OVERLAP, text)
        if own is not None and view.storage != own:
            meant = f"if that is meant, the reference must be called with {names[own]}.clone()"
            text = f"result {number} is not the memory of input {names[own]}, the reference's is; {meant}"
            raise Refusal(Reason.RESULT_OVERLAP, text)
    for i, a in enumerate(call.results):
        for k, b in enumerate(call.results[i + 1 :], i + 1):
            if a.storage == b.storage and a != b and _overlap(a, b):
                raise Refusal(Reason.RESULT_OVERLAP, "two results share memory")
            alike = expected[i].input is not None or expected[k].same in (i, expected[i].same or i)
            if a == b and 0 not in a.shape and not alike:  # of one input both are as the reference's
                raise Refusal(Reason.RESULT_OVERLAP, "two results are the same memory")


def _overlap(a: View, b: View) -> bool:
    if 0 in a.shape or 0 in b.shape:
        return False
    (low, high), (begin, end) = extent(a), extent(b)
    return low < end and begin < high


def same_strides(view: View, want: ExpectedResult) -> bool:
    """Whether the strides are equal wherever there is more than one element along them."""
    pairs = zip(view.shape, view.strides, want.strides, strict=True)
    return 0 in view.shape or all(a == b for n, a, b in pairs if n > 1)


def side_of(call: CheckedCall, given: Sequence[bytes], poison: bytes, binaries: bool = True) -> ReplaySide:
    """The call as it is replayed on ``given`` inputs: by its binaries, or by their TTIR."""
    names = {b.sha256 if binaries else b.ttir_sha256 for b in call.recording.binaries}
    artifacts = {sha: data for sha, data in call.artifacts.items() if sha in names}
    return ReplaySide(call.recording, artifacts, call.contents(given), call.fills, poison, call.operators)


def given_contents(side: ReplaySide) -> list[bytes | None]:
    """What each storage begins with; None where that is poison."""
    found = list(side.contents)
    for fill in side.fills:
        found[fill.storage] = filled(fill, side.recording.storages[fill.storage].nbytes)
    return found


def filled(fill: Fill, nbytes: int) -> bytes:
    """The bytes of a storage that holds one number."""
    with np.errstate(all="ignore"):
        data = bytes_of(np.asarray([fill.value]), fill.dtype)
    return (data * (nbytes // len(data) + 1))[:nbytes]
