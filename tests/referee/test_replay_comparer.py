"""What a candidate leaves on contents that are drawn: many of them where results are few."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Event
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.msgpack import encode as encoded
from msgspec.structs import replace

from kerntune.base.recording import View
from kerntune.referee import other_calls, replay_comparer, replayed_outputs
from kerntune.referee.case_inputs import UNREAD, TensorInput, UserCallable
from kerntune.referee.content_errors import OF_MEMORY
from kerntune.referee.declared_inputs import contents_of, parse_line
from kerntune.referee.element_errors import ResultError
from kerntune.referee.errors_together import ShapeComparison, errors_of, left_of, together_of, unequal_of
from kerntune.referee.further_contents import DRAWN_BYTES, affordable, drawn_anew, is_far, many_contents
from kerntune.referee.hostile_recording import checked, side_of
from kerntune.referee.later_call import with_later
from kerntune.referee.layouts import FUNCTION
from kerntune.referee.other_calls import FewReplays, LaterReplays
from kerntune.referee.other_contents import promising
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.replay_comparer import ReplayComparer, poisons_of
from kerntune.referee.sealed_process import Answered, SealedEnd
from kerntune.referee.tasks import (
    CallRefused,
    ExpectAnswer,
    ExpectedResult,
    ExpectedSeed,
    ExpectTask,
    ReplayAnswer,
    ReplayTask,
    Variation,
)
from kerntune.referee.timed_contents import in_a_row, places
from kerntune.referee.torch_operators import TorchOperator, ViewAt
from tests.referee.recordings import CALL, CASE, TARGET, one_result, twice

CHECKED = checked(CALL, CASE, TARGET)
POISON = b"\xf1\x7f" * 4
GIVEN = [np.random.default_rng(i).standard_normal((2, 600)).astype("<f4") for i in range(3)]


def result(*shape: int) -> ExpectedResult:
    return ExpectedResult("float32", shape, (1,) * len(shape), b"")


class Says:
    """A process that answers one thing."""

    def __init__(self, answer: ReplayAnswer) -> None:
        self.answer = answer

    def ask(self, *args: Any) -> Answered:
        return Answered(encoded(self.answer), SealedEnd(), "")


class ScriptedComparer(ReplayComparer):
    """Of a candidate whose own process says ``answer``."""

    def __init__(self, answer: ReplayAnswer | None = None, gpu: bool = False) -> None:
        super().__init__(Says(answer or ReplayAnswer()), UserCallable("r.py", "f", FUNCTION), gpu, 1.0)  # type: ignore[arg-type]


# replays in the emulator


def replayed(task: ReplayTask) -> list[np.ndarray]:
    answer = replayed_outputs.replayed(task)
    assert answer.refused is None
    return [np.frombuffer(c or b"", "<f4") for c in answer.contents]


def test_a_process_replays_several_contents_one_after_the_other() -> None:
    variation = Variation((0, 1), (4, 4), whole=True)
    side = side_of(CHECKED, [x.tobytes() for x in GIVEN[0]], POISON, binaries=False)
    side = in_a_row(side, CHECKED, [[x.tobytes() for x in one] for one in GIVEN], variation)
    assert [len(c or b"") for c in side.contents] == [7200, 7200, 0]
    found = replayed(ReplayTask(side, (2,), 30.0, variation=variation, rolls=places(CHECKED, variation, 3)))
    assert [list(o) for o in found] == [list(x + y) for x, y in GIVEN]


def test_a_content_may_be_rolled() -> None:
    x, y = GIVEN[0]
    side = side_of(CHECKED, [x.tobytes(), y.tobytes()], POISON, binaries=False)
    (found,) = replayed(ReplayTask(side, (2,), 30.0, variation=Variation((0,), (4,)), rolls=((400,),)))
    assert list(found) == list(np.roll(x, -100) + y)


def test_memory_behind_an_end_of_a_range_holds_nan() -> None:
    found = poisons_of([(), *[("", "tiny")] * 5, ("paired", ""), *[("", "paired")] * 4], 1)
    halves = [np.frombuffer(one, "<f2") for one in found]
    assert all(np.isnan(one).all() for one in halves[6:])
    assert sum(bool(np.isnan(one).all()) for one in halves[:6]) < 6


# how many


@pytest.mark.parametrize(
    ("line", "shapes", "count"),
    [
        ("x: f32[1000]", [(1,)], 255),
        ("x: f32[1000]", [(64,)], 0),
        ("x: f32[1000]", [(63,)], 255),
        ("x: f32[1000]", [(1000,), (3, 7)], 255),
        ("x: f32[1000]", [(0, 4)], 0),
        ("x: f32[8192]; y: f32[8192]", [(1,)], 64),
        ("x: f32[1048577]", [(1,)], 0),
        ("x: f32[1048577]; w: f32[3] zeros", [(1,)], 0),
    ],
)
def test_contents_are_many_where_results_are_few_and_inputs_small(line: str, shapes: list[Any], count: int) -> None:
    case, first = parse_line(line), ExpectedSeed((), tuple(result(*shape) for shape in shapes))
    assert many_contents(case, first) == (case, count)
    changed = replace(first, results=(), changed=(None, *first.results))
    assert many_contents(case, changed) == (case, count)


@pytest.mark.parametrize(
    ("line", "count", "kinds"),
    [
        ("i: i64[3] < 9; table: f32[10000,16]", 209, ["integers", "fixed"]),
        ("i: i32[4112] < 9; table: f16[4113]", 255, ["integers", "fixed"]),
        ("i: i64[3] < 9; table: f32[100,10]", 255, ["integers", "normal"]),
        ("i: i64[3] < 9; table: f32[60000,600]", 0, ["integers", "normal"]),
        ("i: i64[4113] < 9; table: f32[10,1000]", 74, ["integers", "normal"]),
    ],
)
def test_large_inputs_stay_where_small_ones_choose_from_them(line: str, count: int, kinds: list[str]) -> None:
    case = parse_line(line)
    found = many_contents(case, ExpectedSeed((), (result(3, 16),)))
    assert ([t.content for t in found[0].tensors], found[1]) == (kinds, count)
    if count:
        known = contents_of(case.tensors, 1, ())
        a, b = (drawn_anew(found[0], seed, known) for seed in (2, 3))
        assert [x != y for x, y in zip(a, b, strict=True)] == [kind != "fixed" for kind in kinds]
        assert [x == y for x, y in zip(a, known, strict=True)] == [kind == "fixed" for kind in kinds]


def test_the_authors_contents_are_fewer() -> None:
    case = parse_line("x: f32[1000]")
    author = replace(case, tensors=tuple(replace(t, content="author") for t in case.tensors))
    assert [c.made_by_author for c in (case, author, replace(case, given={"n": 1}))] == [False, True, True]
    assert many_contents(author, ExpectedSeed((), (result(1),))) == (author, 96)


class AuthorComparer(ScriptedComparer):
    """Of a task whose own code makes contents, of which the candidate is wrong on one."""

    def __init__(self) -> None:
        super().__init__()

    def _authors(self, task: Any) -> ExpectAnswer:
        assert task.contents == ()
        made = (np.array([number, number + 1], "<f4").tobytes() for number in range(len(task.seeds)))
        return ExpectAnswer(seeds=tuple(ExpectedSeed((x,), (ExpectedResult("float32", (2,), (1,), x),)) for x in made))

    def _in_a_row(self, case: Any, call: Any, contents: Any, poison: bytes, end: float) -> list[ReplayAnswer]:
        """As far as the time reaches."""
        return [ReplayAnswer((x if i != 7 else bytes(8), None)) for i, (x,) in enumerate(contents[:9])]


def test_of_few_results_the_author_makes_further_contents() -> None:
    case, view = parse_line("x: f32[2]"), View(1, "float32", (2,), (1,))
    case = replace(case, tensors=tuple(replace(t, content="author") for t in case.tensors))
    call: Any = SimpleNamespace(wanted=(1, 0), results=(view,), inputs=(0,), contents=lambda given: (*given, None))
    comparer = AuthorComparer()
    (first,) = comparer._authors(ExpectTask(UserCallable("r.py", "f", FUNCTION), case, (1,))).seeds
    of = ShapeComparison(case, call, together_of(case, [first]))
    for count, told in ((9, []), (20, ["9 of 20 further contents were compared, as far as the time reaches"])):
        once = list[str]()
        assert [e.wrong.partition(" ")[0] for e in comparer._of_many(of, [first], count, once)] == ["2"]
        assert once == told


class NormComparer(AuthorComparer):
    """Of a reference whose second result, of few elements, follows from its input alone, or from its weights too."""

    def __init__(self, weighted: bool) -> None:
        super().__init__()
        self.weighted, self.asked = weighted, list[ExpectTask]()

    def _authors(self, task: Any) -> ExpectAnswer:
        self.asked.append(task)
        return ExpectAnswer(seeds=tuple(map(self.of, task.contents)))

    def of(self, contents: Any) -> ExpectedSeed:
        x, w = (np.frombuffer(content, "<f4") for content in contents)
        total = np.array([x.sum(), x.mean()]) * (w.sum() if self.weighted else 1)
        each = [ExpectedResult("float32", (len(r),), (1,), r.astype("<f4").tobytes()) for r in (x * w[0], total)]
        return ExpectedSeed(tuple(contents), tuple(each))


@pytest.mark.parametrize(
    ("size", "weighted", "kinds", "count"),
    [
        (5000, True, ["fixed", "normal"], 255),
        (5000, False, ["normal", "normal"], 207),
        (1 << 20, False, ["normal", "normal"], 0),
        (1000, False, ["normal", "normal"], 255),
    ],
)
def test_large_inputs_vary_where_a_result_of_few_elements_follows_from_them_alone(
    size: int, weighted: bool, kinds: list[str], count: int
) -> None:
    """Such as the means of a layer norm, beside its weights."""
    case, comparer = parse_line(f"x: f32[{size}]; w: f32[50]"), NormComparer(weighted)
    usual = [comparer.of(contents_of(case.tensors, seed, ())) for seed in range(2)]
    few, most = comparer._reached(case, *many_contents(case, usual[0]), usual)
    assert ([t.content for t in few.tensors], most) == (kinds, count)
    assert [len(task.seeds) for task in comparer.asked] == [2] * (size > 1000)
    if not count:
        with pytest.raises(Refusal, match="result 0 is the same for all inputs"):
            comparer._reached(case, *many_contents(case, usual[0]), [usual[0], usual[0]])


# answers


RIGHT = (bytes(2400),) * 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ReplayAnswer(RIGHT), None),
        (ReplayAnswer((None, *RIGHT[1:])), None),
        (ReplayAnswer(RIGHT[1:]), Reason.ANSWER),
        (ReplayAnswer((bytes(2401), *RIGHT[1:])), Reason.ANSWER),
        (ReplayAnswer(RIGHT, outside=1), Reason.OUTSIDE),
        (ReplayAnswer(refused=CallRefused("fault", "no")), Reason.FAULT),
    ],
)
def test_an_answer_that_is_none_is_refused(answer: ReplayAnswer, reason: Reason | None) -> None:
    comparer = ScriptedComparer(answer)
    given = [x.tobytes() for x in GIVEN[0]]
    if reason is None:
        found = comparer._replayed(CHECKED, given, POISON, 0.0)
        assert found == msgspec.msgpack.decode(encoded(answer), type=ReplayAnswer)
        return
    with pytest.raises(Refusal) as caught:
        comparer._replayed(CHECKED, given, POISON, 0.0)
    assert caught.value.reason is reason


def test_the_emulator_begins_no_execution_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many contents those that are done count."""
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr(replayed_outputs, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    variation = Variation((0, 1), (4, 4), whole=True)
    inputs = [[x.tobytes() for x in one] for one in GIVEN]
    side = in_a_row(side_of(CHECKED, inputs[0], POISON, binaries=False), CHECKED, inputs, variation)
    for seconds, done in ((4.0, 1), (12.0, 2), (1000.0, 3)):
        clock = iter(range(0, 1000, 3))
        task = ReplayTask(side, (2,), seconds, variation=variation, rolls=places(CHECKED, variation, 3))
        assert len(replayed(task)) == done


@pytest.mark.parametrize("contents", [(), (b"",)])
def test_a_call_may_leave_nothing_that_is_looked_at(contents: tuple[bytes, ...]) -> None:
    """Its launches reach neither a result nor an input."""
    call = replace(CHECKED, inputs=(None, None), results=())
    assert call.wanted == ()
    comparer = ScriptedComparer(ReplayAnswer(contents))
    given = [x.tobytes() for x in GIVEN[0]]
    if not contents:
        assert comparer._replayed(call, given, POISON, 0.0).contents == ()
        return
    with pytest.raises(Refusal, match="other sizes"):
        comparer._replayed(call, given, POISON, 0.0)


@pytest.mark.parametrize("parts", [0, 1, 2, 3])
def test_many_contents_may_be_answered_in_part(parts: int) -> None:
    comparer = ScriptedComparer(ReplayAnswer(RIGHT * parts))
    side = side_of(CHECKED, [x.tobytes() for x in GIVEN[0]], POISON)
    if parts in (1, 2):
        assert len(comparer._answer(side, CHECKED, 0.0, Variation(), ((), ())).contents) == 3 * parts
        return
    with pytest.raises(Refusal, match="other sizes"):
        comparer._answer(side, CHECKED, 0.0, Variation(), ((), ()))


class LossComparer(ScriptedComparer):
    """Of a task whose author takes a sum of squares, and a candidate that leaves the last numbers out."""

    def __init__(self, left_out: int, takes: bool = True) -> None:
        super().__init__()
        self.left_out, self.takes, self.asked = left_out, takes, list[Any]()

    def _authors(self, task: Any) -> ExpectAnswer:
        self.asked += task.contents
        if not self.takes:
            raise Refusal(Reason.REFERENCE, "no such numbers")
        exact = [np.square(np.frombuffer(x, "<f4").astype(float)).sum() for x, *_ in task.contents]
        each = [ExpectedResult("float32", (1,), (1,), np.float32(x).tobytes(), x.tobytes()) for x in exact]
        return ExpectAnswer(seeds=tuple(ExpectedSeed((), (one,)) for one in each))

    def _replayed(self, call: Any, given: Any, poison: bytes, end: float) -> ReplayAnswer:
        x = np.frombuffer(given[0], "<f4").astype(float)
        return ReplayAnswer((np.float32(np.square(x[: x.size - self.left_out]).sum()).tobytes(),))


@pytest.mark.parametrize(
    ("left_out", "takes", "author", "wrong"),
    [(2, True, True, True), (0, True, True, False), (2, False, True, False), (2, True, False, False)],
)
def test_of_many_numbers_that_a_task_makes_the_last_count(
    left_out: int, takes: bool, author: bool, wrong: bool
) -> None:
    case = parse_line("x: f32[262146]; i: i32[3] < 9; s: f32[1]")
    if author:
        case = replace(case, tensors=tuple(replace(t, content="author") for t in case.tensors))
    drawn = np.random.default_rng(1).uniform(-1, 1, 262146).astype("<f4")
    given = (drawn.tobytes(), np.arange(3, dtype="<i4").tobytes(), np.float32(0.5).tobytes())
    usual = [ExpectedSeed(given, (ExpectedResult("float32", (1,), (1,), bytes(4), bytes(8)),))] * 5
    comparer, of = LossComparer(left_out, takes), one_result("x: f32[3]; i: i32[3] < 9; s: f32[1]", "float32", 1)
    found = comparer._of_sparse(ShapeComparison(case, of.call, together_of(case, usual)), usual)
    assert ["x is nearly constant but for a few elements" in e.wrong for e in found] == [True] * wrong
    assert len(comparer.asked) == 2 * author
    for x, i, s in comparer.asked:
        assert (i, s) == given[1:], "whole numbers and single ones stay"
        numbers = np.frombuffer(x, "<f4")
        assert numbers[0] == numbers[-1] == drawn.max()
        assert np.isin(numbers[1:-1], [drawn[1:-1], drawn[1:-1] * np.float32(2.0**-10)]).all()
        assert np.count_nonzero(numbers == drawn) < len(drawn) / 20


ALIKE = [np.array(x, "<i4") for x in ([1, 2, 0], [1, 0, 2])]


class AlikeComparer(ScriptedComparer):
    """Of a task that makes indices, and a list of these, alike each time. ``follow``: the inputs that the author's
    results, and the candidate's, follow from."""

    def __init__(self, author: tuple[int, ...], candidate: tuple[int, ...]) -> None:
        super().__init__()
        self.author, self.candidate = author, candidate

    @staticmethod
    def chosen(contents: Any, follow: tuple[int, ...]) -> bytes:
        x, *lists = (np.frombuffer(c, t) for c, t in zip(contents, ("<f4", "<i4", "<i4"), strict=True))
        first, second = (own if k in follow else one for k, own, one in zip((1, 2), lists, ALIKE, strict=True))
        return bytes((x[first] + 9 * x[second]).tobytes())

    def _authors(self, task: Any) -> ExpectAnswer:
        made = [ExpectedResult("float32", (3,), (1,), self.chosen(c, self.author), b"") for c in task.contents]
        return ExpectAnswer(seeds=tuple(ExpectedSeed((), (one,)) for one in made))

    def _replayed(self, call: Any, given: Any, poison: bytes, end: float) -> ReplayAnswer:
        return ReplayAnswer((self.chosen(given, self.candidate),))


@pytest.mark.parametrize(
    ("author", "candidate", "wrong"),
    [
        ((1,), (), True), ((1,), (1,), False), ((1,), (2,), False), ((), (), False), ((), (1,), False),
        ((1, 2), (1,), False), ((1, 2), (1, 2), False), ((2,), (), True),
    ],
)  # fmt: skip
def test_what_a_task_makes_alike_each_time_must_be_read(
    author: tuple[int, ...], candidate: tuple[int, ...], wrong: bool
) -> None:
    """Unless it may follow from another such input: lengths and a mask belong together."""
    line = "x: f32[3]; i: i32[3] < 3; j: i32[3] < 3"
    case, of = parse_line(line), one_result(line, "float32", 3)
    made = replace(case, tensors=tuple(replace(t, content="author") for t in case.tensors))
    given = [(x[0, :3].tobytes(), *(one.tobytes() for one in ALIKE)) for x in GIVEN]
    results = [ExpectedResult("float32", (3,), (1,), AlikeComparer.chosen(c, author), b"") for c in given]
    usual = [ExpectedSeed(c, (one,)) for c, one in zip(given, results, strict=True)]
    for again in (of.call, None):
        call: Any = SimpleNamespace(**{**vars(of.call), "again": again})
        each = ShapeComparison(made, call, together_of(made, usual))
        found = AlikeComparer(author, candidate)._of_alike(each, usual)
        assert ["in another order" in e.wrong for e in found] == [True] * (wrong and again is not None)
    call = SimpleNamespace(**{**vars(of.call), "again": of.call})
    assert AlikeComparer(author, candidate)._of_alike(ShapeComparison(case, call, {}), usual) == ()


# indices of equal numbers, and further contents


class TiesComparer(ScriptedComparer):
    """Whose author promises the first of equal numbers, or can't say, and whose candidate takes some."""

    def __init__(self, promised: bool, last: bool, fails: bool = False) -> None:
        super().__init__()
        self.promised, self.last, self.fails = promised, last, fails
        self.asked: list[ExpectTask] = []

    def _authors(self, task: Any) -> ExpectAnswer:
        self.asked.append(task)
        if self.fails:
            raise Refusal(Reason.REFERENCE, "no")
        if task.exact:
            return ExpectAnswer()
        x = np.frombuffer(task.contents[0][0], "<f4").reshape(20, 300)
        assert len({*x.flat}) == 3
        want = ExpectedResult("int64", (20,), (1,), x.argmax(1).tobytes())
        return ExpectAnswer(seeds=(ExpectedSeed((), (want,)),) if self.promised else ())

    def _replayed(self, call: Any, given: Any, poison: bytes, end: float) -> ReplayAnswer:
        x = np.frombuffer(given[0], "<f4").reshape(20, 300)
        return ReplayAnswer(((299 - x[:, ::-1].argmax(1) if self.last else x.argmax(1)).tobytes(),))


@pytest.mark.parametrize(
    ("promised", "last", "fails", "wrong"),
    [
        (True, True, False, True), (True, False, False, False), (False, True, False, False), (True, True, True, False)
    ],
)  # fmt: skip
def test_an_index_of_equal_numbers_is_the_promised_one(promised: bool, last: bool, fails: bool, wrong: bool) -> None:
    first = ExpectedSeed((), (ExpectedResult("int64", (20,), (1,), bytes(160)),), exact=True)
    comparer = TiesComparer(promised, last, fails)
    found = comparer._of_ties(one_result("x: f32[20,300]", "int64", 20, seeds=[first]), first)
    assert [bool("x has three different numbers" in e.wrong) for e in found] == [True] * wrong
    assert [(task.ties, task.exact) for task in comparer.asked] == [(True, ""), (False, "grid")][: 2 - wrong]


@pytest.mark.parametrize(
    ("line", "dtype", "asked"),
    [("x: f32[20,300]", "float32", ["grid"]), ("i: i32[20,300] < 9", "int64", []), ("x: f32[3]", "bool", [])],
)
def test_ties_are_drawn_for_indices_among_floats_alone(line: str, dtype: str, asked: list[str]) -> None:
    comparer = TiesComparer(True, last=True)
    first = ExpectedSeed((), (ExpectedResult(dtype, (20,), (1,), bytes(160)),), exact=dtype != "bool")
    assert comparer._of_ties(ShapeComparison(parse_line(line), CHECKED, {}), first) == ()
    assert [task.exact for task in comparer.asked] == asked


class UnreadComparer(ReplayComparer):
    """Of a reference that adds a small share of an input, which no launch is given."""

    def __init__(self, share: float) -> None:
        self.share, self.asked = share, list[Any]()
        self._reference, self._on_gpu = UserCallable("r.py", "f", FUNCTION), False

    def _authors(self, task: Any) -> ExpectAnswer:
        self.asked += task.contents
        return ExpectAnswer(seeds=tuple(self.computed(contents) for contents in task.contents))

    def computed(self, contents: Any) -> ExpectedSeed:
        x, y = (np.frombuffer(data, "<f4").astype("<f8") for data in contents)
        exact = x + self.share * y
        wide = exact.astype("<f8").tobytes()
        return ExpectedSeed(contents, (ExpectedResult("float32", (600,), (1,), exact.astype("<f4").tobytes(), wide),))


@pytest.mark.parametrize(
    ("share", "ignored", "content", "told"),
    [
        (1e-6, [1], "normal", "y"), (0.0, [1], "normal", ""), (1e-6, [], "normal", ""), (1e-6, [1], "fixed", ""),
        (0.0, [0], "normal", "x"),
    ],
)  # fmt: skip
def test_an_input_from_which_a_result_follows_is_read(
    share: float, ignored: list[int], content: str, told: str
) -> None:
    """However little it adds, unless its numbers were known."""
    comparer = UnreadComparer(share)
    tensors = tuple(replace(t, content=content) for t in CASE.tensors)
    call: Any = SimpleNamespace(ignored=lambda case: ignored)
    usual = [comparer.computed(tuple(x.tobytes() for x in one)) for one in GIVEN]
    found = comparer._of_unread(ShapeComparison(replace(CASE, tensors=tensors), call, {}), usual)
    assert [e.wrong for e in found] == [f"no launch reads input {told}, from which it follows"] * bool(told)
    assert len(comparer.asked) == (len(ignored) if content == "normal" else 0)


@pytest.mark.parametrize(
    ("line", "dtype", "asked"),
    [
        ("x: f32[600]", "bool", 1), ("x: f32[600]", "float32", 0), ("x: bf16[600]", "bool", 0),
        ("x: f32[600] normal(0, 1)", "bool", 0),
    ],
)  # fmt: skip
def test_whole_results_are_looked_at_farther_from_zero(line: str, dtype: str, asked: int) -> None:
    comparer = UnreadComparer(0.0)
    first = ExpectedSeed((), (ExpectedResult(dtype, (600,), (1,), b""),))
    found: list[Any] = []
    comparer._of_contents = lambda of, task, forms: found.append((task.extreme, forms)) or (True, ("wrong",))  # type: ignore
    assert comparer._of_far(ShapeComparison(parse_line(line), CHECKED, {}), first) == ("wrong",) * asked
    assert found == [(0, [("far",)])] * asked


class SignComparer(TiesComparer):
    """Of a reference that asks for what isn't below zero, of some dtype, and a candidate that leaves out zeros, or of
    odd numbers answers otherwise."""

    def __init__(self, promised: bool, last: bool, dtype: str = "bool", odd: bool = False, late: bool = False) -> None:
        super().__init__(promised, last)
        self.kind = {"bool": "?", "float32": "<f4"}[dtype]
        self.dtype, self.odd, self.late = dtype, odd, late

    def _authors(self, task: Any) -> ExpectAnswer:
        self.asked.append(task)
        each = [np.frombuffer(content, "<f4") for (content,) in task.contents]
        wants = [ExpectedResult(self.dtype, (600,), (1,), (x >= 0).astype(self.kind).tobytes()) for x in each]
        return ExpectAnswer(seeds=tuple(ExpectedSeed((), (want,)) for want in wants) if self.promised else ())

    def _replayed(self, call: Any, given: Any, poison: bytes, end: float) -> ReplayAnswer:
        if self.late:
            raise Refusal(Reason.REPLAY_LATE, "no")
        x = np.frombuffer(given[0], "<f4")
        found = ~(x < 0) if self.odd else x > 0 if self.last else x >= 0
        return ReplayAnswer((found.astype(self.kind).tobytes(),))


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("dtype", ["bool", "float32"])
@pytest.mark.parametrize(
    ("promised", "last", "odd", "told"),
    [
        (True, True, False, "x has multiples of 1 to 1/256"), (True, False, False, ""), (False, True, False, ""),
        (True, False, True, "x has NaN"),
    ],
)  # fmt: skip
def test_zeros_and_nan_count_where_all_that_the_reference_does_is_exact(
    promised: bool, last: bool, odd: bool, told: str, dtype: str, on_gpu: bool
) -> None:
    """NaN in whole results, and in floats that are kept. Beside a GPU all are looked at together."""
    first = ExpectedSeed((), (ExpectedResult(dtype, (600,), (1,), bytes(600)),), exact=True)
    comparer = SignComparer(promised, last, dtype, odd)
    comparer._on_gpu = on_gpu
    found = comparer._of_ties(one_result("x: f32[600]", dtype, 600, seeds=[first]), first)
    assert [told in e.wrong and "of 600 elements differ" in e.wrong for e in found] == [True] * bool(told)
    odd_kind = "nan" if dtype == "bool" else "kept"
    every = [(False, "grid", 3), (False, "decided", 2), (False, "sized", 1), (False, odd_kind, 2)]
    count = 1 if (not promised or (told and not odd)) and not on_gpu else len(every)
    asked = [(task.ties, task.exact, len(task.contents)) for task in comparer.asked]
    assert len(promising(parse_line("x: f32[600]"), first)) == len(every)
    assert (sorted(asked) if on_gpu else asked) == (sorted(every) if on_gpu else every[:count])


def test_elements_equal_a_number_of_the_call() -> None:
    """A threshold belongs to one side, where a reference is exact, and among extreme contents."""
    first = ExpectedSeed((), (ExpectedResult("bool", (600,), (1,), bytes(600)),), exact=True)
    comparer, line = SignComparer(True, False), "x: f32[600]; t = 0.3"
    assert comparer._of_ties(one_result(line, "bool", 600, seeds=[first]), first) == ()
    (sized,) = (task for task in comparer.asked if task.exact == "sized")
    for (content,) in (*sized.contents, *comparer._drawn(parse_line(line), [("round",)])):
        assert np.count_nonzero(np.frombuffer(content, "<f4") == np.float32(0.3)) > 30


def test_of_large_inputs_the_first_and_another_kind_are_looked_at() -> None:
    first = ExpectedSeed((bytes(DRAWN_BYTES + 4),), (ExpectedResult("bool", (600,), (1,), bytes(600)),), exact=True)
    asked = set()
    for _ in range(60):
        comparer = SignComparer(True, False)
        assert comparer._of_ties(one_result("x: f32[600]", "bool", 600, seeds=[first]), first) == ()
        asked.add(tuple(task.exact for task in comparer.asked))
    assert asked == {("grid", other) for other in ("decided", "sized", "nan")}


def test_exact_results_that_are_not_replayed_in_time_are_not_right() -> None:
    first = ExpectedSeed((), (ExpectedResult("bool", (600,), (1,), bytes(600)),), exact=True)
    comparer = SignComparer(True, False, late=True)
    with pytest.raises(Refusal, match="no"):
        comparer._of_ties(one_result("x: f32[600]", "bool", 600), first)


def test_of_exact_results_also_inputs_that_are_changed_must_be_equal() -> None:
    case, view = parse_line("x: f32[2]; y: f32[2]"), View(0, "float32", (2,), (1,))
    call: Any = SimpleNamespace(wanted=(0, 1), results=(view,), inputs=(1, None))

    def found(result: list[float], changed: list[float]) -> list[tuple[int, str]]:
        want = ExpectedResult("float32", (2,), (1,), np.array([0.0, np.nan], "<f4").tobytes())
        expected = ExpectedSeed((), (want,), (want, want))
        left = [np.array(x, "<f4").tobytes() for x in (result, changed)]
        return [
            (e.result, e.wrong.partition(";")[0])
            for e in unequal_of(ShapeComparison(case, call, {}), expected, left, ("grid", ""))
        ]

    assert found([-0.0, np.nan], [0.0, np.nan]) == []
    assert found([2.0**-149, np.nan], [0.0, 1.0]) == [
        (0, "1 of 2 elements differ, the first at [0]: 1.4013e-45, not 0"),
        (-1, "1 of 2 elements differ, the first at [1]: 1, not nan"),
    ]


# memory from before the call, and inputs that are one number


class TwiceComparer(ScriptedComparer):
    """Of a candidate whose second call adds right, or returns what the first has computed."""

    def __init__(self, stale: bool, fails: Reason | None = None) -> None:
        super().__init__()
        self.stale, self.fails = stale, fails

    def _in_a_row(self, case: Any, call: Any, contents: Any, poison: bytes, end: float) -> list[ReplayAnswer]:
        if self.fails is not None:
            raise Refusal(self.fails, "too long")
        found = []
        for given in contents:
            x, y = (np.frombuffer(call.contents(given)[i - 3 * self.stale], "<f4") for i in (3, 4))
            after = {3: None, 4: None, 5: (x + y).tobytes()}
            found.append(ReplayAnswer(tuple(after[i] for i in call.wanted)))
        return found


SUMS = [ExpectedResult("float32", (600,), (1,), (x + y).tobytes()) for x, y in GIVEN]
TWO_SEEDS = [ExpectedSeed(tuple(x.tobytes() for x in one), (s,)) for one, s in zip(GIVEN, SUMS, strict=True)]


def compared(seeds: Any = TWO_SEEDS) -> list[Any]:
    return [(one, b"", (), ()) for one in seeds]


@pytest.mark.parametrize("stale", [False, True])
def test_a_second_call_comes_after_one_on_other_numbers(stale: bool) -> None:
    call = with_later(CHECKED, twice(), CASE, TARGET)
    of = ShapeComparison(CASE, call, together_of(CASE, TWO_SEEDS))
    found = TwiceComparer(stale)._of_later_call(of, compared(), 2, once := [])
    told = "in a later call, which finds what those before have left: "
    assert (bool(found), all(e.wrong.startswith(told) for e in found)) == (stale, True)
    assert once == []


@pytest.mark.parametrize("stale", [False, True])
def test_a_second_call_may_be_replayed_before_the_reference_has_results(stale: bool) -> None:
    """It has none of the last content."""
    call, comparer = with_later(CHECKED, twice(), CASE, TARGET), TwiceComparer(stale)
    of = ShapeComparison(CASE, call, together_of(CASE, TWO_SEEDS))
    contents = [*(one.contents for one in TWO_SEEDS), tuple(bytes(len(x)) for x in TWO_SEEDS[0].contents)]
    replays = comparer._replay_later(CASE, call, contents, 2)
    assert isinstance(replays.few, FewReplays)
    assert {*replays.few.which} == {*range(1, len(contents))}
    assert len(replays.few.answers) == len(replays.few.which) + len(replays.near)
    assert bool(comparer._of_later_call(of, compared(), 2, [], lambda: replays)) is stale


def test_contents_near_those_of_the_call_before_are_looked_at_as_closely_as_usual_ones() -> None:
    """A steep function moves a rounding of its argument by as much there."""
    asked, comparer = list[ExpectTask](), TwiceComparer(stale=False)
    comparer._authors = lambda task: (asked.append(task), ExpectAnswer())[1]  # type: ignore[assignment, method-assign]
    call = with_later(CHECKED, twice(), CASE, TARGET)
    comparer._replay_later(CASE, call, [one.contents for one in TWO_SEEDS], 2)
    assert [(len(task.contents), task.closely) for task in asked] == [(3, 3)]


@pytest.mark.parametrize(("large", "near", "few"), [(False, 3, 6), (True, 1, 2)])
def test_a_second_call_has_few_contents_and_of_large_inputs_fewer(
    large: bool, near: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(other_calls, "MOST_EMULATED", 4800)
    call, (one, two, _) = with_later(CHECKED, twice(), CASE, TARGET), (x.contents for x in TWO_SEEDS)
    replays = TwiceComparer(stale=False)._replay_later(CASE, call, [one, two, *[one] * 8], 2)
    assert isinstance(replays.few, FewReplays)
    assert (len(replays.near), len(replays.few.which), replays.few.which[0]) == (near, few, 1)


class SlowComparer(TwiceComparer):
    """Of a candidate of whose later call the time reaches two contents."""

    def _in_a_row(self, case: Any, call: Any, contents: Any, poison: bytes, end: float) -> list[ReplayAnswer]:
        assert len(contents) > 2
        return super()._in_a_row(case, call, contents[:2], poison, end)


def test_it_is_said_how_many_contents_of_a_later_call_the_time_reaches() -> None:
    call = with_later(CHECKED, twice(), CASE, TARGET)
    of = ShapeComparison(CASE, call, together_of(CASE, TWO_SEEDS))
    assert SlowComparer(stale=False)._of_later_call(of, compared(), 2, once := []) == ()
    assert [text.partition(" contents")[0] for text in once] == ["of a later call 2 of 5"]


class FaultyComparer(TwiceComparer):
    """Of a candidate that has a fault where the reference, which takes its inputs together, fails."""

    def _in_a_row(self, case: Any, call: Any, contents: Any, poison: bytes, end: float) -> list[ReplayAnswer]:
        if {*map(tuple, contents)} - {one.contents for one in TWO_SEEDS}:
            raise Refusal(Reason.FAULT, "outside of a row")
        return super()._in_a_row(case, call, contents, poison, end)


@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize("early", [None, Reason.FAULT, Reason.REPLAY_LATE])
def test_a_second_call_that_fails_beside_the_first_or_where_the_reference_does_is_replayed_again(
    stale: bool, early: Reason | None
) -> None:
    call, comparer, once = with_later(CHECKED, twice(), CASE, TARGET), FaultyComparer(stale), list[str]()
    of = ShapeComparison(CASE, call, together_of(CASE, TWO_SEEDS))
    replays = None if early is None else lambda: LaterReplays(Refusal(early, "no room"), ())
    assert bool(comparer._of_later_call(of, compared(), 2, once, replays)) is stale
    assert once == []


class EarlyComparer(ScriptedComparer):
    """Notes what happens while the first call's results are computed, and what is known of the later one then."""

    def __init__(self, gpu: bool, drawn: bool, early: bool) -> None:
        super().__init__(gpu=gpu)
        self.seconds = 10 if early else 0.1
        self.contents = tuple(one.contents for one in TWO_SEEDS) if drawn else ()
        self.begun, self.looked, self.seen = Event(), Event(), list[Any]()

    def _drawn(self, case: Any, forms: Any) -> Any:
        return self.contents

    def _replay_later(self, case: Any, call: Any, contents: Any, usual: int) -> LaterReplays:
        assert (contents, usual) == (self.contents, len(TWO_SEEDS))
        self.begun.set()
        assert self.looked.wait(10), "neither results nor their errors wait for it"
        return LaterReplays(Refusal(Reason.FAULT, "no"), ())

    def _results(self, *args: Any) -> Any:
        self.seen.append(self.begun.wait(self.seconds))
        answers = [ReplayAnswer((None, None, None)) for _ in TWO_SEEDS]
        return tuple(TWO_SEEDS), [POISON] * len(TWO_SEEDS), answers, [()] * len(TWO_SEEDS), 0

    def _of_later_call(self, of: Any, given: Any, usual: int, once: Any, replayed: Any = None) -> Any:
        self.seen.append(replayed and replayed())
        return ()

    def _first_errors(self, of: Any, given: Any) -> Any:
        self.looked.set()
        raise Refusal(Reason.DEGENERATE, "enough")


@pytest.mark.parametrize(
    ("gpu", "drawn", "later"), [(True, True, True), (False, True, True), (True, False, True), (True, True, False)]
)
def test_a_second_call_is_replayed_beside_the_first_one_on_a_gpu(gpu: bool, drawn: bool, later: bool) -> None:
    """Unless the task's own code makes the contents: then nothing is known of these before."""
    call = with_later(CHECKED, twice(), CASE, TARGET) if later else CHECKED
    early = gpu and drawn and later
    comparer = EarlyComparer(gpu, drawn, early)
    with pytest.raises(Refusal, match="enough"):
        comparer.compare(CASE, call, [()] * len(TWO_SEEDS), 1e9)
    assert comparer.seen[0] is early
    if gpu:
        assert bool(comparer.seen[1]) is early


def test_what_fails_beside_others_is_computed_again_when_these_have_ended() -> None:
    """They have memory of the device, of which there may have been too little."""
    comparer, steps, failed = ScriptedComparer(), list[str](), Future[ExpectAnswer]()
    comparer._processes = SimpleNamespace(wait_for_ends=lambda: steps.append("ends"))  # type: ignore[assignment]
    comparer._authors = lambda task: (steps.append("asked"), ExpectAnswer(seeds=(TWO_SEEDS[0],)))[1]  # type: ignore[method-assign]
    failed.set_exception(Refusal(Reason.REFERENCE, "no room"))
    task = ExpectTask(UserCallable("r.py", "f", FUNCTION), CASE, (1,), (TWO_SEEDS[0].contents,))
    assert comparer._expected([failed], task, 1) == (TWO_SEEDS[0],)
    assert steps == ["ends", "asked"]


class MemoComparer(ScriptedComparer):
    """Of a candidate that knows the call before again by most of its elements."""

    def _authors(self, task: Any) -> ExpectAnswer:
        each = [[np.frombuffer(x, "<f4") for x in content] for content in task.contents]
        wants = [replace(SUMS[0], native=(x + y).tobytes()) for x, y in each]
        return ExpectAnswer(seeds=tuple(ExpectedSeed((), (want,)) for want in wants))

    def _in_a_row(self, case: Any, call: Any, contents: Any, poison: bytes, end: float) -> list[ReplayAnswer]:
        found = []
        for given in contents:
            held = call.contents(given)
            *first, x, y = (np.frombuffer(held[i], "<f4") for i in (0, 1, 3, 4))
            x, y = first if min(np.mean(first[0] == x), np.mean(first[1] == y)) > 0.8 else (x, y)
            found.append(ReplayAnswer(tuple((x + y).tobytes() if i == 5 else None for i in call.wanted)))
        return found


def test_a_second_call_may_nearly_have_the_numbers_of_the_first() -> None:
    call = with_later(CHECKED, twice(), CASE, TARGET)
    of = ShapeComparison(CASE, call, together_of(CASE, TWO_SEEDS))
    assert MemoComparer()._of_later_call(of, compared(), 2, [])


def test_a_second_call_that_can_not_be_replayed_is_told() -> None:
    call = with_later(CHECKED, twice(), CASE, TARGET)
    of, once = ShapeComparison(CASE, call, together_of(CASE, TWO_SEEDS)), list[str]()
    assert TwiceComparer(False, Reason.REPLAY_LATE)._of_later_call(of, compared(), 2, once) == ()
    assert once == ["judged by its first call alone: a later one can't be replayed: too long"]
    for fault in (Reason.FAULT, Reason.OUTSIDE):
        with pytest.raises(Refusal, match=r"^in a later call: too long$") as raised:
            TwiceComparer(False, fault)._of_later_call(of, compared(), 2, [])
        assert raised.value.reason is fault


def test_a_second_call_counts_no_content_twice() -> None:
    call = with_later(CHECKED, twice(), CASE, TARGET)
    of = ShapeComparison(CASE, call, together_of(CASE, TWO_SEEDS))
    before = repr(of.together)
    TwiceComparer(stale=False)._of_later_call(of, compared(), 2, [])
    assert repr(of.together) == before


def test_a_second_call_of_a_reference_that_changes_its_own_numbers_counts_too() -> None:
    """As running means of a model do: it has its own numbers of that content."""
    call = with_later(CHECKED, twice(), CASE, TARGET)
    case = replace(CASE, parameters={"x": 0})
    for changed in ((), (None, SUMS[0]), (SUMS[0], None)):
        seeds = [replace(x, changed=changed) for x in TWO_SEEDS]
        of = ShapeComparison(case, call, together_of(case, seeds))
        found = TwiceComparer(stale=True)._of_later_call(of, compared(seeds), 2, once := [])
        assert found
        assert once == []


class NarrowComparer(ScriptedComparer):
    """Of a candidate whose convolution is right in float32 alone."""

    def _in_a_row(self, case: Any, call: Any, contents: Any, poison: bytes, end: float) -> list[ReplayAnswer]:
        narrow = [row.narrow for row in call.operators]
        sums = [sum(np.frombuffer(x, "<f4") for x in given) * (1 + 2**-11 * any(narrow)) for given in contents]
        return [ReplayAnswer(tuple(x.tobytes() if i == 2 else None for i in call.wanted)) for x in sums]


@pytest.mark.parametrize(
    ("name", "convolves", "gpu", "wrong"),
    [("convolution.out", False, False, True), ("convolution.out", True, False, False),
     ("convolution.out", False, True, False), ("mm.out", False, False, False)],
)  # fmt: skip
def test_convolutions_of_float32_have_tf32_unless_the_reference_has_some(
    name: str, convolves: bool, gpu: bool, wrong: bool
) -> None:
    call = replace(CHECKED, operators=(TorchOperator(0, name, (ViewAt(0), ViewAt(1)), {"out": ViewAt(2)}),))
    seeds = [replace(x, convolves=convolves) for x in TWO_SEEDS]
    of = ShapeComparison(CASE, call, together_of(CASE, seeds))
    found = NarrowComparer(gpu=gpu)._of_convolutions(of, compared(seeds), 2)
    assert ["torch's convolutions of float32 have tf32 on a GPU" in e.wrong for e in found] == [True] * wrong


class AddingComparer(ScriptedComparer):
    """Of a reference that adds to its input of zeros, or fills it."""

    def __init__(self, adds: bool) -> None:
        super().__init__()
        self.adds = adds

    def _authors(self, task: Any) -> ExpectAnswer:
        (contents,) = task.contents
        return ExpectAnswer(seeds=(self.of(*contents),))

    def of(self, out: bytes, x: bytes) -> ExpectedSeed:
        after = np.frombuffer(x, "<f4") + np.frombuffer(out, "<f4") * self.adds
        return ExpectedSeed((out, x), (), (ExpectedResult("float32", (600,), (1,), after.tobytes()), None))


@pytest.mark.parametrize(("line", "adds", "told"), [("zeros", True, True), ("zeros", False, False), ("", True, False)])
def test_what_is_added_to_must_not_be_one_number(line: str, adds: bool, told: bool) -> None:
    case, comparer = parse_line(f"out: f32[600] {line}; x: f32[600]"), AddingComparer(adds)
    usual = [comparer.of(*contents_of(case.tensors, seed, ())) for seed in range(3)]
    assert bool(comparer._added_to(case, usual)) == told


class CancellingComparer(ScriptedComparer):
    """Of a result that is off where its terms cancel, by more than sums explain, and a reference that tells by how much
    roundings inside of it move that."""

    def __init__(self, deviation: float, told: bool = True) -> None:
        super().__init__(gpu=True)
        self.deviation, self.told, self.asked = deviation, told, list[ExpectTask]()

    def seed(self, k: int, deviation: float | None = None) -> ExpectedSeed:
        exact = np.array([1.0 + k])
        of = None if deviation is None else np.array([deviation]).tobytes()
        return ExpectedSeed(
            (bytes([k]),),
            (ExpectedResult("float32", (1,), (1,), exact.astype("f4").tobytes(), exact.tobytes(), deviation=of),),
        )

    def _authors(self, task: Any) -> ExpectAnswer:
        self.asked.append(task)
        if not self.told:
            raise Refusal(Reason.REFERENCE, "no")
        return ExpectAnswer(seeds=tuple(self.seed(given[0], self.deviation) for (given,) in task.contents))


class KernelComparer(CancellingComparer):
    """Of a reference that has no float64 on a GPU, and whose own float32 is off."""

    def seed(self, k: int, deviation: float | None = None) -> ExpectedSeed:
        seed, known = super().seed(k), deviation is not None
        (result,) = seed.results
        off = np.array([1.0 + k + 1e-4], "f4").tobytes()
        return replace(seed, results=(replace(result, native=off, wide=result.wide if known else None),))


@pytest.mark.parametrize(("on_gpu", "told", "wrong", "asked"), [
    (None, True, [], 3), (None, False, [1, 3], 2), (False, True, [], 2),
])  # fmt: skip
def test_what_a_gpu_s_kernels_round_is_known_of_the_interpreter(
    on_gpu: bool | None, told: bool, wrong: list[int], asked: int
) -> None:
    """Of one content; if that is right, of all others at once. Also of what is emulated beside a GPU, which is asked
    nothing then."""
    comparer = KernelComparer(0.0, told)
    wants = [comparer.seed(k) for k in range(4)]
    left = [(np.array([1 + k + (0 if k % 2 else 1e-4)], "f4").tobytes(),) for k in range(4)]
    given = [(want, POISON, found, ()) for want, found in zip(wants, left, strict=True)]
    found = comparer._errors(one_result("x: f32[8]", "float32", 1, seeds=wants), given, on_gpu)
    assert [k for k, (error,) in enumerate(found) if error.wrong] == wrong
    assert len(comparer.asked) == asked
    kinds = [(True, True)] * (on_gpu is None) + [(False, False)] * 2
    assert [(task.gpu, task.draws > 0) for task in comparer.asked] == kinds[:asked]


@pytest.mark.parametrize(("deviation", "told", "wrong"), [(1e-4, True, 0), (1e-5, True, 2), (1e-4, False, 2)])
@pytest.mark.parametrize("on_gpu", [None, False])
def test_what_cancels_is_held_against_roundings_of_the_reference(
    deviation: float, told: bool, wrong: int, on_gpu: bool | None
) -> None:
    """Those contents alone whose results are wrong without, all in one question."""
    comparer = CancellingComparer(deviation, told)
    wants = [comparer.seed(k) for k in range(4)]
    left = [(np.array([1 + k + 2e-4 * (k % 2)], "f4").tobytes(),) for k in range(4)]
    of = one_result("x: f32[8]", "float32", 1, seeds=wants)
    given = [(want, POISON, found, ()) for want, found in zip(wants, left, strict=True)]
    plain = [next(errors_of(of, *one)).wrong for one in given]
    assert [bool(text) for text in plain] == [False, True, False, True]
    found = comparer._errors(replace(of, together=together_of(of.case, wants)), given, on_gpu)
    assert sum(bool(one[0].wrong) for one in found) == wrong
    (task,) = comparer.asked
    assert task.contents == ((b"\x01",), (b"\x03",))
    assert task.gpu == (on_gpu is None)
    assert task.draws >= 16
    assert not any(e.wrong for (e,) in comparer._errors(of, given[:1]))
    assert len(comparer.asked) == 1, "nothing is asked where nothing is wrong"
    comparer._errors(of, [(*given[1][:3], ("lone",))])
    large = msgspec.structs.replace(wants[1], contents=(bytes((1 << 22) + 1),))
    comparer._errors(of, [(large, *given[1][1:])])
    assert len(comparer.asked) == 1, "nor where few numbers are large, or many numbers are there"


def test_each_replay_counts_once_for_all_contents_together() -> None:
    """Also one that is compared again beside roundings of the reference."""
    comparer = CancellingComparer(1e-4)
    of = one_result("x: f32[8]", "float32", 1, seeds=[comparer.seed(1)])
    comparer._errors(of, [(comparer.seed(1), POISON, (np.array([2.0002], "f4").tobytes(),), ())])
    assert len(comparer.asked) == 1
    assert len(of.together[0]._few) == 1


class HalfComparer(ScriptedComparer):
    """Whose candidate's float16 results are too small by what contents have in common, or by nothing."""

    def __init__(self, units: float) -> None:
        super().__init__()
        self.units, self.counts = units, list[int]()

    def replayed(self, count: int) -> tuple[list[ExpectedSeed], list[bytes]]:
        seeds, found = [], []
        for k in range(count):
            exact = np.random.default_rng(k).standard_normal(4096)
            off = exact - self.units * (k % 5) / 4 * np.ldexp(2.0**-11, np.frexp(exact)[1] - 1)
            want = ExpectedResult("float16", (4096,), (1,), exact.astype("f2").tobytes(), exact.tobytes())
            seeds.append(ExpectedSeed((b"",), (want,)))
            found.append(off.astype("f2").tobytes())
        return seeds, found

    def _results(self, case: Any, call: Any, forms: Any, usual: int, deadline: float, contents: Any) -> Any:
        seeds, found = self.replayed(5)
        return tuple(seeds), [POISON] * 5, [ReplayAnswer((one,)) for one in found], [()] * 5, 0

    def _of_many(self, of: Any, usual: Any, count: int, cut: Any) -> tuple[ResultError, ...]:
        self.counts.append(count)
        cut += [f"9 of {count}"] * (count > 0)
        for seed, found in zip(*self.replayed(count), strict=True):
            assert not any(e.wrong for e in errors_of(of, seed, POISON, [found], ()))
        return ()


@pytest.mark.parametrize(("units", "counts", "wrong"), [(0.6, [0, 48], True), (0.1, [0], False)])
def test_further_contents_tell_a_bias_from_chance(
    units: float, counts: list[int], wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, comparer, known = one_result("x: f16[4096]", "float16", 4096), HalfComparer(units), list[tuple[int, int]]()
    monkeypatch.setattr(replay_comparer, "promising", lambda case, first: [("grid", ())] * 3)
    found = comparer.compare(of.case, of.call, [()] * 5, 0.0, lambda n: known.append((len(comparer.counts), n)))
    assert comparer.counts == counts
    assert found.cut == "; ".join(f"9 of {count}" for count in counts if count)
    assert known == [(0, 3)], "once, before anything is compared, with how many are asked further"
    assert [e.wrong[:27] for e in found.wrong] == ["its elements are smaller by"] * wrong


def test_contents_are_as_many_as_their_size_allows() -> None:
    assert [affordable(parse_line(f"x: f16[{n}]"), 48) for n in (1, 1 << 15, 1 << 20, 1 << 21)] == [48, 32, 1, 0]


class FlagComparer(ScriptedComparer):
    """Of a reference whose one flag is true for the first five contents, and a candidate that launches reach or not."""

    def __init__(self, flags: list[bool], found: bool) -> None:
        super().__init__()
        self.flags, self.found = flags, found

    def seeds(self, flags: list[bool]) -> tuple[ExpectedSeed, ...]:
        return tuple(ExpectedSeed((bytes(4),), (ExpectedResult("bool", (1,), (1,), bytes([f])),)) for f in flags)

    def _authors(self, task: Any) -> ExpectAnswer:
        return ExpectAnswer(seeds=self.seeds(self.flags[-len(task.seeds) :]))

    def _replayed(self, call: Any, given: Any, poison: bytes, end: float) -> ReplayAnswer:
        return ReplayAnswer((bytes([self.found]),))


@pytest.mark.parametrize(("later", "wrong"), [([True, False] * 127 + [True], 127), ([True] * 255, None)])
def test_a_flag_may_be_the_same_for_a_few_contents(later: list[bool], wrong: int | None) -> None:
    """A guess that no input reaches is held against all of them; a flag that never varies is no evidence."""
    comparer = FlagComparer(later, found=True)
    (first,) = comparer.seeds([True])
    of = one_result("x: f32[1]", "bool", 1, seeds=[first])
    if wrong is None:
        with pytest.raises(Refusal, match="result 0 is the same for all inputs") as raised:
            comparer._of_many(of, [first], 255, [])
        assert raised.value.reason is Reason.DEGENERATE
    else:
        assert len(comparer._of_many(of, [first], 255, [])) == wrong


@pytest.mark.parametrize("done", [1, 3])
def test_extreme_contents_that_are_not_all_replayed_in_time_are_refused(done: int) -> None:
    comparer = ScriptedComparer(ReplayAnswer(RIGHT * done), gpu=True)
    inputs = [[x.tobytes() for x in one] for one in GIVEN]
    each = [(given, POISON, 0.0) for given in inputs]
    if done == 3:
        assert [one.contents for one in comparer._replayed_in_a_row(CASE, CHECKED, each)] == [RIGHT] * 3
        return
    with pytest.raises(Refusal, match="2 of 3 extreme contents were not replayed") as caught:
        comparer._replayed_in_a_row(CASE, CHECKED, each)
    assert caught.value.reason is Reason.REPLAY_LATE


# what is told of memory that nothing has written


class RepeatingComparer(ScriptedComparer):
    """Each second replay leaves what is told, another one what the first has left unless orders count; and what
    unwritten memory began with is known. After ``ends`` replays all leave what the first has."""

    def __init__(self, left: np.ndarray | None, ordered: bool = False, ends: int = 9) -> None:
        super().__init__()
        self.left, self.ordered, self.ends, self.poisons = left, ordered, ends, list[bytes]()

    def _replayed(self, call: Any, given: Any, poison: bytes, end: float) -> ReplayAnswer:
        self.poisons.append(poison)
        if self.left is None:
            raise Refusal(Reason.REPLAY_LATE)
        same = len(self.poisons) > self.ends or (len(self.poisons) % 2 == 0 and not self.ordered)
        left = LEFT if same else self.left
        return ReplayAnswer(tuple(left.tobytes() if i == 2 else None for i in CHECKED.wanted))


LEFT = GIVEN[0].sum(0)
WRONG_ERROR = ResultError(0, "float32", wrong="wrong")


@pytest.mark.parametrize(
    ("error", "poison", "left", "told", "poisons"),
    [
        (WRONG_ERROR, POISON, LEFT + np.eye(1, 600, 7, "f4")[0], True, [bytes(8), POISON] * 2),
        (WRONG_ERROR, bytes(8), LEFT * np.float32(np.nan), True, [b"\xff" * 8, bytes(8)] * 2),
        (WRONG_ERROR, POISON, LEFT, False, [bytes(8)]),
        (WRONG_ERROR, POISON, LEFT * np.float32(1 + 2**-23), False, [bytes(8)]),
        (WRONG_ERROR, POISON, None, False, [bytes(8)]),
        (replace(WRONG_ERROR, unwritten=True), POISON, -LEFT, False, []),
        (replace(WRONG_ERROR, wrong=""), POISON, -LEFT, False, []),
    ],
)
def test_what_follows_from_unwritten_memory_is_told(
    error: ResultError, poison: bytes, left: np.ndarray | None, told: bool, poisons: list[bytes]
) -> None:
    """A sum of atomics whose buffer isn't zeroed, rows that are left out: another poison shows them."""
    comparer, right = RepeatingComparer(left), ResultError(0, "float32")
    want = ExpectedSeed(tuple(x.tobytes() for x in GIVEN[0]), (result(600),))
    after = left_of(CHECKED, want, RepeatingComparer(LEFT)._replayed(None, None, b"", 0.0))
    given = [(want, POISON, (), ()), (want, poison, after, ())]
    (first,), (other,) = comparer._with_memory_told(ShapeComparison(CASE, CHECKED, {}), [[right], [error]], given)
    assert (first, other.wrong.removeprefix(error.wrong)) == (right, OF_MEMORY if told else "")
    assert comparer.poisons == poisons


@pytest.mark.parametrize(
    ("comparer", "replays"), [({"ordered": True}, 2), ({"ends": 1}, 3)], ids=["each time", "once by chance"]
)
def test_what_follows_from_an_order_of_sums_is_not_told_of_memory(comparer: Any, replays: int) -> None:
    comparer = RepeatingComparer(LEFT + np.eye(1, 600, 7, "f4")[0], **comparer)
    want = ExpectedSeed(tuple(x.tobytes() for x in GIVEN[0]), (result(600),))
    after = left_of(CHECKED, want, RepeatingComparer(LEFT)._replayed(None, None, b"", 0.0))
    found = [[WRONG_ERROR]]
    assert comparer._with_memory_told(ShapeComparison(CASE, CHECKED, {}), found, [(want, POISON, after, ())]) == found
    assert comparer.poisons == ([bytes(8), POISON] * 2)[:replays]


class SummingComparer(RepeatingComparer):
    """What is replayed adds its first two inputs to its third, which is memory for results."""

    def _replayed(self, call: Any, given: Any, poison: bytes, end: float) -> ReplayAnswer:
        total = np.sum([np.frombuffer(x, "f4") for x in given], 0, dtype="f4")
        return ReplayAnswer(tuple(total.tobytes() if i == 2 else None for i in call.wanted))


@pytest.mark.parametrize(("content", "returned", "told"), [(UNREAD, 2, True), ("", 2, False), (UNREAD, 0, False)])
def test_what_follows_from_memory_for_results_is_told(content: str, returned: int, told: bool) -> None:
    """A sum of atomics into what the task hands out. What isn't a result may be as it is."""
    more = TensorInput("out", "float32", (600,), (1,), content)
    case, comparer = replace(CASE, tensors=(*CASE.tensors, more)), SummingComparer(None)
    found = replace(CHECKED, inputs=(0, 1, 2), results=(replace(CHECKED.results[0], storage=returned),))
    want = ExpectedSeed((*(x.tobytes() for x in GIVEN[0]), LEFT.tobytes()), (result(600),))
    after = left_of(found, want, comparer._replayed(found, want.contents, b"", 0.0))
    ((error,),) = comparer._with_memory_told(
        ShapeComparison(case, found, {}), [[WRONG_ERROR]], [(want, POISON, after, ())]
    )
    assert error.wrong.endswith(OF_MEMORY) == told


@pytest.mark.parametrize(("late", "told"), [(True, "s for all contents: declare smaller shapes"), (False, "status 3")])
def test_a_reference_without_an_answer_is_told_what_to_do(late: bool, told: str) -> None:
    """A kernel's reference takes long without a GPU."""
    processes = SimpleNamespace(ask=lambda *_: Answered(None, SealedEnd(code=3, late=late), ""))
    comparer = ReplayComparer(processes, UserCallable("r.py", "r", FUNCTION), False, 1.0)  # type: ignore[arg-type]
    with pytest.raises(Refusal, match=told) as refused:
        comparer.described(({},))
    assert (refused.value.reason, "declare" in str(refused.value)) == (Reason.REFERENCE, late)


@pytest.mark.parametrize(
    ("forms", "far"),
    [((), False), (("tiny", "up"), True), (("up", "round"), False), (("", "deep"), True), (("paired",), False)],
)
def test_where_numbers_are_far_from_zero_a_rounding_of_them_counts(forms: tuple[str, ...], far: bool) -> None:
    assert is_far(forms) == far


@pytest.mark.parametrize(("form", "gpu", "right", "kept"), [
    ("vast", True, True, False), ("vast", True, False, True), ("huge", True, True, True), ("vast", False, True, True),
])  # fmt: skip
def test_vast_numbers_on_a_gpu_are_judged_by_the_code_as_it_is_written(
    form: str, gpu: bool, right: bool, kept: bool
) -> None:
    """A compiler rounds a product with its sum, and an exponential of what is off is infinite."""
    inputs, wide = (bytes(2400), bytes(2400)), np.ones(600)
    want = ExpectedResult("float32", (600,), (1,), wide.astype("<f4").tobytes())
    seed, asked = ExpectedSeed(inputs, (want,)), []

    class Emulating(ScriptedComparer):
        def _authors(self, task: Any) -> Any:
            raise Refusal(Reason.REFERENCE, "not asked here")

        def _answer(self, side: Any, call: Any, end: float, *rest: Any, on_gpu: Any = None) -> ReplayAnswer:
            asked.append(on_gpu)
            left = {CHECKED.results[0].storage: (wide if right else wide * np.inf).astype("<f4").tobytes()}
            return ReplayAnswer(tuple(left.get(i) for i in CHECKED.wanted))

    of = ShapeComparison(CASE, CHECKED, together_of(CASE, [seed]))
    found = [[replace(next(iter(errors_of(of, seed, POISON, (bytes(2400), *inputs), ()))), wrong="infinite")]]
    after = Emulating(gpu=gpu)._as_written(of, [(seed, POISON, (), (form, ""))], found)
    assert any(e.wrong for e in after[0]) == kept
    assert asked == [False] * (gpu and form == "vast")
