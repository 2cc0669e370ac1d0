"""What the referee and its sealed processes tell each other. Answers are hostile data until they are checked."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Literal, Union

import msgspec

from kerntune.base.device import DeviceSpec, Target
from kerntune.base.frames import StrictMessage
from kerntune.base.recording import Recording
from kerntune.referee.case_inputs import CaseInputs, Given, UserCallable
from kerntune.referee.torch_operators import TorchOperator

BytesLike = bytes | memoryview

LARGE = 1 << 20
"""Bytes from which on :func:`pieces_of` doesn't copy them."""


def pieces_of(message: Any) -> list[BytesLike]:
    """The MessagePack of a message, to be written one piece after the other. Large bytes in it are pieces as they are:
    to copy them takes new memory, and meanwhile no other thread of Python's runs."""
    large, mark = list[BytesLike](), secrets.token_bytes(16)

    def outlined(value: Any) -> Any:
        """The value with a mark in place of large bytes, behind their header (``bin 32``)."""
        if isinstance(value, (bytes, memoryview)):
            size = memoryview(value).nbytes
            if size < LARGE:
                return value
            large.append(value)
            return msgspec.Raw(b"\xc6" + size.to_bytes(4, "big") + mark)
        if isinstance(value, msgspec.Struct):
            each = {name: getattr(value, name) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **found) if (found := changed(each)) else value
        if isinstance(value, dict):
            return {**value, **found} if (found := changed(value)) else value
        if isinstance(value, (list, tuple)):
            found = changed(dict(enumerate(value)))
            return [found.get(i, x) for i, x in enumerate(value)] if found else value
        return value

    def changed(each: dict[Any, Any]) -> dict[Any, Any]:
        return {key: new for key, old in each.items() if (new := outlined(old)) is not old}

    head, *rest = msgspec.msgpack.encode(outlined(message)).split(mark)
    found: list[BytesLike] = [head]
    for one, text in zip(large, rest, strict=True):
        found += [one, text]
    return found


class RecordTask(StrictMessage, frozen=True):
    """Record one call of ``source`` on ``case``, for ``target``; with ``binaries``, where these are loaded later. Of an
    autotuner's configs, that of number ``config`` is tried first, and those after it next. A call of another shape may
    come ``before``. ``later`` calls are recorded as well (:attr:`RecordAnswer.again`)."""

    source: UserCallable
    case: CaseInputs
    target: Target
    binaries: bool = False
    config: int = 0
    before: CaseInputs | None = None
    later: bool = False


class Fill(StrictMessage, frozen=True):
    """A storage that held one number, of ``dtype``, before any launch."""

    storage: int
    dtype: str
    value: Union[int, float]
    before: bool = False
    """It was filled before the call, so that no execution fills it."""


class Constant(StrictMessage, frozen=True):
    """A storage that held these bytes, which were made before the call's inputs were known."""

    storage: int
    data: bytes


PRECISION = ("products' precision", "cuDNN's settings")
SETTINGS = (
    "the default dtype", "deterministic algorithms", *PRECISION, "recording of gradients", "the generator's seed",
)  # fmt: skip
"""What torch has for a whole program. A file may change it when it is imported, a call the first of these alone."""


class RecordedCall(StrictMessage, frozen=True):
    """What a candidate's process claims. ``inputs`` has a view for each input tensor that it found, ``results`` one for
    each tensor that was returned; ``operators`` are torch's that ran on the device beside the launches."""

    recording: Recording
    artifacts: dict[str, bytes]
    inputs: tuple[int | None, ...]
    results: tuple[int, ...]
    fills: tuple[Fill, ...] = ()
    constants: tuple[Constant, ...] = ()
    unknown: tuple[int, ...] = ()
    """Storages whose first content isn't known here."""

    operators: tuple[TorchOperator, ...] = ()
    unreplayed: tuple[str, ...] = ()
    """Names, and lines, of those that can't be replayed."""

    outline: str = "tensor"
    """How the tensors lie in what was returned (:func:`.candidate_recorder.outlined`)."""

    leaves: tuple[str, ...] = ()
    """Those of :data:`SETTINGS` that are others behind it than before the file was imported."""

    configs: tuple[str, ...] = ()
    """Of configs that an autotuner in it may choose from, and of another's of the same number, what is said to the
    kernel; none without one."""


class CallRefused(StrictMessage, frozen=True):
    """Why it can't be judged: a value of :class:`kerntune.referee.reasons.Reason`, and a sentence."""

    reason: str
    text: str


CALLS = 3
"""That are recorded of a candidate: one, and two more on the same other tensors, which hold other numbers each time."""


class RecordAnswer(StrictMessage, frozen=True):
    """A call, or why there is none. ``again`` has it and later ones, :data:`CALLS` in all, on other tensors; inputs and
    results are the last one's. Of its artifacts it has those that the call hasn't. None where not asked for."""

    call: RecordedCall | None = None
    refused: CallRefused | None = None
    again: RecordedCall | None = None


class DescribeTask(StrictMessage, frozen=True):
    """Run the task's own code once and say what inputs it makes."""

    source: UserCallable
    given: tuple[dict[str, Given], ...]
    gpu: bool = False


if TYPE_CHECKING:
    Large = BytesLike
else:
    Large = memoryview  # of the answer that it came in: to copy it takes longer than to compare


class ExpectTask(StrictMessage, frozen=True):
    """Compute the reference's results. ``contents`` has the bytes of each input tensor, a list a seed; where it is
    empty the task's own code makes them. On the GPU, or on the CPU. ``ties``: only if torch documents which of equal
    numbers' indices the reference returns, ``exact``: only if all its operators are, of such numbers
    (:func:`.reference_operators.exact_results`), others are open; else there are no results.
    ``closely``: of so many first seeds results are looked at once more (:attr:`ExpectedResult.moved`). ``extreme``:
    from which seed on results of few elements are, since contents are extreme; None where none are. ``draws``: of how
    many draws of roundings results have a deviation; 0 for none. ``usual``: of so many first seeds results have
    :attr:`~ExpectedResult.influences`. ``seconds``: after which no other seed is begun, so that there are fewer
    results; 0 for none."""

    source: UserCallable
    case: CaseInputs
    seeds: tuple[int, ...]
    contents: tuple[tuple[bytes, ...], ...] = ()
    gpu: bool = False
    ties: bool = False
    exact: str = ""
    closely: int = 0
    extreme: int | None = None
    draws: int = 0
    usual: int = 0
    seconds: float = 0.0


class OperatorChain(StrictMessage, frozen=True):
    """What is known of a reference all of whose operators move elements, but for some.

    ``pointwise``: the others compute each element from those at its place. ``roundings``: of one that adds or
    multiplies alone how many a sum has, beside that to its dtype; None of others. ``weights``: it is a softmax of rows.
    ``known``: where the others have known results (:data:`.reference_operators.KNOWN`); empty where they have none."""

    pointwise: bool = False
    roundings: float | None = None
    weights: bool = False
    known: str = ""


class ExpectedResult(StrictMessage, frozen=True):
    """One result: as the reference gives it, and computed in float64 where that is possible (little-endian, dense)."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    native: Large
    wide: Large | None = None
    """Empty where each number is as ``native`` has it; None where it isn't known."""

    input: int | None = None
    """The input tensor whose memory it is, where it is one's."""

    moved: Large | None = None
    """The same in float64, of inputs that are one rounding of float32 off: of a float32 result whose elements follow
    from a few numbers each, and of results of few elements at extreme contents. Where float64 isn't known, as it is, of
    inputs that are a last place off. None of others."""

    deviation: Large | None = None
    """By how much roundings of the reference's operators move each element (float64): a root mean square over
    :attr:`ExpectTask.draws`."""

    influences: dict[int, bytes] = {}
    """By input, what it adds to each of the first elements (float32): how much is another where the input is."""

    open: Large | None = None
    """Elements that may be other numbers as well (a byte each), which aren't compared (:mod:`.open_elements`)."""

    by_products: Large | None = None
    """As ``native``, where the reference's products take operands of 16 bits (:mod:`.product_operands`)."""

    others: Large | None = None
    """The least and the most that whole numbers are where the reference's operators are rounded otherwise."""

    same: int | None = None
    """The earlier result that is the same memory, if one is."""

    settled: bool = False
    """Whole numbers that are the same where all floats among the inputs are others, of extreme contents."""

    sound: bool = False
    """Such that follow from no ties, nor from what can't be cast (:func:`.reference_operators.noted_casts`)."""

    rearranged: bool = False
    """Whether a row of it has the same numbers in all orders of equal ones: the open ones change places alone."""

    chain: OperatorChain = OperatorChain()


class ExpectedSeed(StrictMessage, frozen=True):
    """The results from one seed's inputs, the inputs' bytes if the task's own code has made them, and what the
    reference left in them where it changed them (None where it did not), with float64's beside."""

    contents: tuple[bytes, ...]
    results: tuple[ExpectedResult, ...]
    changed: tuple[ExpectedResult | None, ...] = ()
    outline: str = "tensor"
    """How the results lie in what the reference returned."""

    exact: bool = False
    """All of the reference's operators are exact on numbers of few bits; known of the first seed alone."""

    undefined: str = ""
    """Why it isn't known there what is right: the reference leaves memory unwritten, or its results have any order."""

    convolves: bool = False
    """Whether the reference asks torch for a convolution."""

    @property
    def computed(self) -> tuple[ExpectedResult, ...]:
        """The results, and what the reference left in inputs that it changed."""
        return (*self.results, *filter(None, self.changed))


class ExpectAnswer(StrictMessage, frozen=True):
    """What the author's process says."""

    cases: tuple[CaseInputs, ...] = ()
    seeds: tuple[ExpectedSeed, ...] = ()
    refused: CallRefused | None = None


class ReplaySide(StrictMessage, frozen=True, tag="replayed"):
    """A checked recording and what its memory begins with: given bytes by storage, fills, else ``poison``."""

    recording: Recording
    artifacts: dict[str, bytes]
    contents: tuple[bytes | None, ...]
    fills: tuple[Fill, ...]
    poison: bytes
    operators: tuple[TorchOperator, ...] = ()


Rolls = tuple[int, ...]
"""By varied storage, how many bytes of its content's begin have moved to its end."""


class Variation(StrictMessage, frozen=True):
    """How the content of one execution differs from that of another: that of the ``storages`` is rolled. Each rolled
    distance is a multiple of ``items``, the bytes of an element.

    ``whole``: these storages are given several contents in a row, and a distance is where one begins. What the author's
    code makes may have a structure (rows that sum to one, a triangle), by which a kernel would know what is rolled."""

    storages: tuple[int, ...] = ()
    items: tuple[int, ...] = ()
    whole: bool = False


class ReplayTask(StrictMessage, frozen=True):
    """Run a recording once for each of ``rolls``, on the GPU or in the emulator. What the storages in ``wanted`` hold
    after each is the answer, ``whole`` or as SHA-256."""

    side: ReplaySide
    wanted: tuple[int, ...]
    seconds: float
    gpu: bool = False
    whole: bool = True
    variation: Variation = Variation()
    rolls: tuple[Rolls, ...] = ((),)


class ReplayAnswer(StrictMessage, frozen=True):
    """What each wanted storage holds afterwards, one execution after the other, None where it holds the bytes that it
    was given; or why not. ``outside`` counts bytes beside all storages that were changed. ``repeatable``: a second
    execution of the first content left the same."""

    contents: tuple[Large | None, ...] = ()
    outside: int = 0
    repeatable: bool = True
    refused: CallRefused | None = None
    restored: tuple[int, ...] = ()
    """Wanted storages that held something else between two launches, though they hold what they were given again. Not
    known on a GPU."""


class LiveCall(StrictMessage, frozen=True, tag="live"):
    """A reference that launches what can't be replayed, and the bytes of its inputs."""

    source: UserCallable
    case: CaseInputs
    contents: tuple[bytes, ...]


class TimeTask(StrictMessage, frozen=True):
    """Time a candidate's recording beside the reference, in turn, in one process on a GPU.

    Each execution of the candidate has rolled content: by one of the distances in ``known``, whose results the referee
    knows, or drawn. What ``keep`` executions of either kind leave in ``wanted`` is answered, whichever they were.
    """

    candidate: ReplaySide
    reference: Union[ReplaySide, LiveCall]
    wanted: tuple[int, ...]
    variation: Variation
    known: tuple[Rolls, ...]
    keep: int
    whole: bool
    blocks: int
    """At each placement."""

    seed: int
    details: bool = False
    """Launches are timed one by one as well, and with a warm cache."""


class KeptExecution(StrictMessage, frozen=True):
    """The content of one timed execution, and what it left in each wanted storage, whole or as SHA-256."""

    rolls: Rolls
    contents: tuple[Large, ...]


TimedAs = Literal["replayed", "unrolled", "unrolled beside calls", "single graphs", "single calls"]
"""How a reference is timed, and the candidate beside it: both by the engine; as unrolled graphs of which the
reference's is recorded from its live calls; or call by call, with a graph for each where that is possible; or the far
longer side call by call alone."""


class TimeAnswer(StrictMessage, frozen=True):
    """Times in ns, a block each, of the reference and the candidate, at each of the ``placements`` as many; or why not.

    ``warm_ns`` has both sides' times of executions that follow each other. ``damaged``: first contents of either side
    have changed. ``stages`` has the seconds of the process's own stages.
    """

    reference_ns: tuple[float, ...] = ()
    candidate_ns: tuple[float, ...] = ()
    foreign: tuple[float, float, float, int] = (0.0, 0.0, 0.0, 0)
    kept: tuple[KeptExecution, ...] = ()
    launch_ns: tuple[float, ...] = ()
    warm_ns: tuple[float, ...] = ()
    damaged: bool = False
    timed_as: TimedAs = "replayed"
    stages: dict[str, float] = {}
    placements: int = 1
    refused: CallRefused | None = None


class DeviceAnswer(StrictMessage, frozen=True):
    """The GPU, the bytes a second that it copies, and its free bytes; or why there is none."""

    spec: DeviceSpec | None = None
    bandwidth: float | None = None
    free: int = 0
    problem: str = ""
