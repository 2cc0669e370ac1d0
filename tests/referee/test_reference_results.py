"""What the task author's process says, in this process: inputs that the code makes, and results that count."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from msgspec.msgpack import encode as encoded

from kerntune.referee import influences, reference_results, reference_runs
from kerntune.referee.case_inputs import PlainArgument, TensorAt, UserCallable
from kerntune.referee.declared_inputs import parse_line
from kerntune.referee.layouts import FUNCTION, GPU_MODE, KERNELBENCH, reference_source
from kerntune.referee.open_elements import FAILS
from kerntune.referee.reasons import Reason
from kerntune.referee.replay_processes import MUCH, author_count, parts_of
from kerntune.referee.result_numbers import numbers_of
from kerntune.referee.tasks import DescribeTask, ExpectAnswer, ExpectTask

TASK = f"{Path(__file__).parents[2]}/benchmarks/judge/kernelbench_task.py"


@pytest.fixture(autouse=True)
def path_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in ("reference_under_test", "kernelbench_task"):
        sys.modules.pop(name, None)


def answered(task: Any) -> ExpectAnswer:
    """As the referee gets it."""
    return msgspec.msgpack.decode(encoded(reference_results.answer(encoded(task))), type=ExpectAnswer)


def expected(tmp_path: Path, body: str, line: str, *contents: np.ndarray, **asked: Any) -> ExpectAnswer:
    path = tmp_path / "reference_under_test.py"
    path.write_text(f"import torch\ndef r({', '.join(part.split(':')[0] for part in line.split('; '))}):\n    {body}\n")
    given = tuple(c.tobytes() for c in contents)
    return answered(ExpectTask(reference_source(f"{path}::r"), parse_line(line), (1,), (given,), **asked))


X, Y = np.linspace(-1, 1, 6, dtype="f4"), np.linspace(1e-8, 1, 6, dtype="f4")


def test_results_are_computed_twice(tmp_path: Path) -> None:
    """In their own dtype and in double precision."""
    (seed,) = expected(tmp_path, "return x + y", "x: f32[6]; y: f32[6]", X, Y).seeds
    (result,) = seed.results
    assert (result.dtype, result.shape, result.strides, result.input) == ("float32", (6,), (1,), None)
    assert result.native == (X + Y).tobytes()
    assert result.wide == (X.astype("f8") + Y.astype("f8")).tobytes()
    assert (seed.contents, seed.changed) == ((), (None, None)), "who asks has the contents"


@pytest.mark.parametrize(("seconds", "looked_at"), [(0.0, True), (0.4, True), (0.6, False)])
def test_without_a_gpu_what_inputs_add_is_looked_at_though_the_reference_takes_longer(
    seconds: float, looked_at: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loaded machine may take four times as long as a quiet one."""
    monkeypatch.setattr(influences, "MOST_BYTES", 1)
    clock = iter(float(i) for i in range(1_000))
    monkeypatch.setattr(reference_results.time, "monotonic", lambda: next(clock) * seconds)
    x = np.linspace(-1, 1, 4096, dtype="f4")
    (result,) = expected(tmp_path, "return x * 2 + 1", "x: f32[4096]", x, usual=1).seeds[0].results
    assert bool(result.influences) == looked_at


def test_what_a_task_makes_may_be_no_message(tmp_path: Path) -> None:
    """Nothing holds more than 64 bits; why it isn't judged is told."""
    path = tmp_path / "kernelbench_task.py"
    path.write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self, n):\n        super().__init__()\n"
        "    def forward(self, x):\n        return x\ndef get_inputs():\n    return [torch.rand(4)]\n"
        "def get_init_inputs():\n    return [2**70]\n"
    )
    answer = answered(DescribeTask(reference_source(str(path)), ({},)))
    assert answer.refused is not None
    assert answer.refused.text.startswith("OverflowError: ")


@pytest.mark.parametrize(
    ("nbytes", "contents", "parts"),
    [
        (MUCH, 9, [3, 3, 3]), (MUCH, 7, [3, 3, 1]), (MUCH, 2, [1, 1]), (MUCH, 1, [1]), (MUCH - 1, 9, [9]),
        (2 * MUCH, 16, [4] * 4), (2 * MUCH, 12, [4] * 3), (2 * MUCH, 13, [4, 4, 4, 1]), (4 * MUCH, 17, [5, 5, 5, 2]),
    ],
)  # fmt: skip
def test_large_inputs_are_divided_among_processes(nbytes: int, contents: int, parts: list[int]) -> None:
    each = tuple((bytes([i]) * (nbytes - 5), bytes(5)) for i in range(contents))
    source, case = reference_source(f"{TASK}::Model"), parse_line("x: u8[9] < 5")
    task = ExpectTask(source, case, tuple(range(7, 7 + contents)), each, True)
    found = parts_of(task)
    assert [len(one.seeds) for one in found] == parts
    assert tuple(seed for one in found for seed in one.seeds) == task.seeds
    assert tuple(c for one in found for c in one.contents) == each
    assert all(
        msgspec.structs.replace(one, seeds=(), contents=()) == msgspec.structs.replace(task, seeds=(), contents=())
        for one in found
    )


@pytest.mark.parametrize(("mb", "count"), [(8, 3), (64, 4), (128, 4), (256, 4), (512, 2), (1024, 1), (5000, 1)])
def test_processes_with_large_inputs_are_as_many_as_there_is_room_for(mb: int, count: int) -> None:
    assert author_count(mb << 20, 7) == count


def test_of_large_inputs_the_first_content_alone_is_looked_at_closely() -> None:
    contents = ((bytes(MUCH),),) * 3
    task = ExpectTask(reference_source(f"{TASK}::Model"), parse_line("x: u8[9] < 5"), (7, 8, 9), contents, closely=3)
    assert [one.closely for one in parts_of(task)] == [1, 0, 0]
    assert [one.closely for one in parts_of(msgspec.structs.replace(task, closely=0))] == [0, 0, 0]
    assert [one.closely for one in parts_of(msgspec.structs.replace(task, contents=((b"",),) * 3))] == [3]


@pytest.mark.parametrize(("extreme", "parts"), [(None, [None] * 3), (0, [0, 0, 0]), (4, [4, 1, 0]), (7, [7, 4, 1])])
def test_each_part_knows_from_which_content_on_they_are_extreme(extreme: int | None, parts: list[Any]) -> None:
    contents = ((bytes(MUCH),),) * 9
    task = ExpectTask(reference_source(f"{TASK}::Model"), parse_line("x: u8[9] < 5"), tuple(range(9)), contents,
                      closely=5, extreme=extreme, usual=5)  # fmt: skip
    assert [len(one.seeds) for one in parts_of(task)] == [3, 3, 3]
    assert [one.extreme for one in parts_of(task)] == parts
    assert [one.closely for one in parts_of(task)] == [1, 0, 0]
    assert [one.usual for one in parts_of(task)] == [5, 2, 0]


def test_whole_results_that_stay_where_floats_are_others_are_settled(tmp_path: Path) -> None:
    i, x = np.arange(60, dtype="i4") % 7, np.linspace(-3, 5, 60, dtype="f4")
    body = "return torch.bincount(i), (i * x).argsort(), i * x, x > -9"
    (seed,) = expected(tmp_path, body, "i: i32[60] < 7; x: f32[60]", i, x, extreme=0).seeds
    assert [one.settled for one in seed.results] == [True, False, False, True]
    for body, line, given in (
        ("return torch.bincount(i)", "i: i32[60] < 7", (i,)), ("return x > -9", "x: f32[60]", (x,)),
    ):  # fmt: skip
        (seed,) = expected(tmp_path, body, line, *given, extreme=0).seeds
        assert not seed.results[0].settled
    (seed,) = expected(tmp_path, "return torch.bincount(i)", "i: i32[60] < 7; x: f32[60]", i, x).seeds
    assert not seed.results[0].settled


@pytest.mark.parametrize(
    ("body", "exact"), [("return x.relu()", True), ("return x.exp()", False), ("return torch.rand_like(x)", None)]
)
def test_of_the_first_content_it_is_told_whether_operators_are_exact(
    tmp_path: Path, body: str, exact: bool | None
) -> None:
    x = np.arange(120, dtype="f4")
    assert [one.exact for one in expected(tmp_path, body, "x: f32[120]", x, closely=1).seeds] == [exact] * (
        exact is not None
    )
    assert not any(one.exact for one in expected(tmp_path, body, "x: f32[120]", x).seeds)


@pytest.mark.parametrize(
    ("body", "convolves"),
    [("return torch.nn.functional.conv1d(x[:1], x[:, None, :5])", True), ("return x @ x.t()", False)],
)
def test_whether_a_reference_convolves_is_told(tmp_path: Path, body: str, convolves: bool) -> None:
    x = np.random.default_rng(3).standard_normal((1, 40)).astype("f4").repeat(3, 0)
    (seed,) = expected(tmp_path, body, "x: f32[3,40]", x).seeds
    assert seed.convolves == convolves


@pytest.mark.parametrize(
    ("body", "promised"),
    [
        ("return x.argmax(-1)", True), ("return x.view(40, 3).argmin(-1)", True), ("return x.max(-1)", True),
        ("return x.min(0)", True), ("return x.relu_().argmax()", True),
        ("return (x * 3).argmax(-1)", False), ("return x.topk(2)", False), ("return x.sort(-1)", False),
        ("return x.argmax(-1), x.median(-1)", False), ("return (x @ x.t()).argmax(-1), x.argmax(-1)", False),
        ("return x > 0", False),
    ],
)  # fmt: skip
def test_of_ties_torch_promises_some_indices(tmp_path: Path, body: str, promised: bool) -> None:
    """Where the numbers are the inputs' own: products may be rounded otherwise."""
    x = np.tile(np.array([1, 2, 2], "f4"), 40)
    found = expected(tmp_path, body, "x: f32[3,40]", x, ties=True)
    assert found.refused is None
    assert len(found.seeds) == promised
    assert len(expected(tmp_path, body, "x: f32[3,40]", x).seeds) == 1


@pytest.mark.parametrize(("need", "known", "calls"), [("x", False, 1 + 3 + 2), ("x.float()", True, 1 + 3 + 2 * 3)])
def test_a_reference_that_has_no_float64_is_not_asked_for_it_again(
    tmp_path: Path, need: str, known: bool, calls: int
) -> None:
    """Of further contents. Where only its casts can't be widened, each content is computed without."""
    path = tmp_path / "reference_under_test.py"
    body = f"    calls.append(1)\n    assert {need}.dtype == torch.float32\n    return x.exp() + x[0]\n"
    path.write_text(f"import torch\ncalls = []\ndef r(x):\n{body}")
    contents = ((bytes(32),),) * 3
    task = ExpectTask(reference_source(f"{path}::r"), parse_line("x: f32[8]"), (1, 2, 3), contents)
    assert [seed.results[0].wide is not None for seed in answered(task).seeds] == [known] * 3
    assert len(sys.modules["reference_under_test"].calls) == calls


MOVED = np.random.default_rng(5).standard_normal((20, 40)).astype("f4")


@pytest.mark.parametrize(
    ("body", "moved"),
    [
        ("return x * 3 + y", True), ("return torch.exp(8 * x)", True), ("return x.relu()", True),
        ("return torch.stack([x, y], -1)", True), ("return (x.roll(1) - x) * y", True),
        ("return x.softmax(-1)", False), ("return x.cumsum(-1)", False), ("return x.sum(-1).relu()", False),
        ("return x - x.mean()", False), ("return x[0] * y[0]", False), ("return x.half()", False),
        ("return x * 3, x.argmax(-1)", True),
        ("return x * 0", False),
    ],
)  # fmt: skip
def test_what_a_rounding_of_few_inputs_moves(tmp_path: Path, body: str, moved: bool) -> None:
    contents = MOVED, MOVED[::-1].copy()
    (seed,) = expected(tmp_path, body, "x: f32[20,40]; y: f32[20,40]", *contents, closely=1).seeds
    assert [r.moved is not None for r in seed.results] == [moved, False][: len(seed.results)]
    (seed,) = expected(tmp_path, body, "x: f32[20,40]; y: f32[20,40]", *contents).seeds
    assert {r.moved for r in seed.results} == {None}


def test_inputs_are_moved_by_a_rounding_up_or_down(tmp_path: Path) -> None:
    body = "assert i.dtype == torch.int32; return x * i"
    whole = np.full((20, 40), 2, "i4")
    (seed,) = expected(tmp_path, body, "x: f32[20,40]; i: i32[20,40] < 9", MOVED, whole, closely=1).seeds
    off = np.frombuffer(seed.results[0].moved or b"", "f8").reshape(20, 40) / (2.0 * MOVED) - 1
    assert {*np.round(off * 2.0**24, 6).flat} == {-1.0, 1.0}
    assert 300 < np.count_nonzero(off > 0) < 500


@pytest.mark.parametrize(("dtype", "kind"), [("f4", "f32"), ("f8", "f64"), ("f2", "f16")])
def test_results_of_few_elements_are_moved_at_extreme_contents(tmp_path: Path, dtype: str, kind: str) -> None:
    """As far as any of two draws: by chance a sum hardly moves. What isn't finite has no such size."""
    x = np.random.default_rng(3).standard_normal(4000).astype(dtype)
    body = "return x.sum(), x[:3968].view(64, 62).sum(-1), x[:6].relu(), x.argmax(), x[:0], x[:2].abs().sqrt() / 0"
    (seed,) = expected(tmp_path, body, f"x: {kind}[4000]", x, extreme=0).seeds
    assert [r.moved is not None for r in seed.results] == [True, False, True, False, False, False]
    total, _, relu, *_ = seed.results
    (off,) = np.frombuffer(total.moved or b"", "f8") - numbers_of(total)
    assert 0.1 < abs(off) * 2.0**24 / np.sqrt(np.square(x.astype("f8")).sum()) < 4
    few = np.abs(np.frombuffer(relu.moved or b"", "f8") - x[:6].astype("f8").clip(0))
    assert np.allclose(few, x[:6].astype("f8").clip(0) * 2.0**-24, rtol=1e-5)
    for extreme in (None, 1):
        (seed,) = expected(tmp_path, body, f"x: {kind}[4000]", x, extreme=extreme).seeds
        assert {r.moved for r in seed.results} == {None}


CANCELS = "t = torch.tanh(x); y.add_((1 - t * t).sum()); return (x * (1 - t * t)).sum(), t, x[:6].relu()"


def test_roundings_inside_of_a_reference_move_its_results(tmp_path: Path) -> None:
    """A sum by the size of its terms, not by its own, and as its partial sums are; what no operator rounds stays."""
    x = np.linspace(-6, 6, 4000, dtype="f4") + 2
    (seed,) = expected(tmp_path, CANCELS, "x: f32[4000]; y: f32[1]", x, x[:1], draws=64).seeds
    total, many, exact = seed.results
    tanh = np.tanh(x.astype("f8"))
    roundings = 3 * np.square(x * tanh**2).sum() + (2 + 32**2) * np.square(x * (1 - tanh**2)).sum()
    size = 2.0**-24 / 3**0.5 * np.sqrt(roundings)
    (off,) = np.frombuffer(total.deviation or b"", "f8")
    assert 0.7 * size < off < 1.4 * size
    relative = np.frombuffer(many.deviation or b"", "f8") * 2.0**24
    assert 0.5 < np.median(relative[tanh > 0.9]) < 0.65
    assert not any(exact.deviation or b"\x01")
    assert seed.changed[0] is None
    assert seed.changed[1] is not None
    assert seed.changed[1].deviation is not None
    (seed,) = expected(tmp_path, CANCELS, "x: f32[4000]; y: f32[1]", x, x[:1]).seeds
    assert {r.deviation for r in seed.results} == {None}


@pytest.mark.parametrize(
    ("body", "sound"),
    [
        ("return (x / 3).round().clamp(-128, 127).to(torch.int8)", True), ("return (x * 300).to(torch.int8)", False),
        ("return (x / 0).to(torch.int32)", False), ("return (x * x).argmax().view(1)", False),
        ("return x > 0.3", True), ("return (0 * x / 0) > 0", True), ("return x * 3", False),
    ],
)  # fmt: skip
def test_whole_numbers_are_sound_but_for_ties_and_what_can_not_be_cast(tmp_path: Path, body: str, sound: bool) -> None:
    x = np.linspace(-2, 2, 60, dtype="f4")
    assert [seed.results[0].sound for seed in expected(tmp_path, body, "x: f32[60]", x, extreme=0).seeds] == [sound]
    assert not expected(tmp_path, body, "x: f32[60]", x).seeds[0].results[0].sound


def test_an_extreme_content_at_which_a_reference_fails_leaves_the_others(tmp_path: Path) -> None:
    body = "assert x.abs().max() < 9; return x * 2"
    path = tmp_path / "reference_under_test.py"
    path.write_text(f"import torch\ndef r(x):\n    {body}\n")
    contents = tuple((np.full(6, at, "f4").tobytes(),) for at in (1, 2, 99, 3))
    task = ExpectTask(reference_source(f"{path}::r"), parse_line("x: f32[6]"), (1, 2, 3, 4), contents, extreme=2)
    found = answered(task).seeds
    assert [one.undefined for one in found] == ["", "", FAILS, ""]
    assert found[3].results[0].native == np.full(6, 6, "f4").tobytes()
    assert answered(msgspec.structs.replace(task, extreme=3)).refused is not None


@pytest.mark.parametrize(
    ("body", "where", "closed"),
    [
        ("return x.log()", "ends", 3),
        ("return x.exp()", "ends", 5),
        ("return torch.logaddexp(x, x)", "ends", 2),
        ("return torch.log1p(x)", "specks", 4),
        ("return x.log() * 1", "ends", None),
        ("return x // 3", "multiples", 6),
    ],
)
def test_functions_have_known_results_at_zeros_and_infinities(
    tmp_path: Path, body: str, where: str, closed: int | None
) -> None:
    """Where these are zeros, ones, infinities or powers of two."""
    x = np.array([0.0, np.inf, -np.inf, 2.0**-100, 0.0, 3.0], "f4")
    seeds = expected(tmp_path, body, "x: f32[6]", x, exact=where).seeds
    assert [6 - sum(seed.results[0].open or b"") for seed in seeds] == [closed] * (closed is not None)


def test_results_that_follow_from_operators_that_round_are_open_where_others_are_exact(tmp_path: Path) -> None:
    x = np.linspace(-2, 2, 60, dtype="f4")
    (seed,) = expected(tmp_path, "y = x * 0.3; return y, x > 0, y > 0", "x: f32[60]", x, exact="nan").seeds
    assert [one.open and {*one.open} for one in seed.results] == [{1}, None, {1}]
    assert not expected(tmp_path, "return (x * 0.3) > 0", "x: f32[60]", x, exact="nan").seeds


@pytest.mark.parametrize(("kind", "unit"), [("f4", 2.0**-24), ("f8", 2.0**-53)])
def test_roundings_are_as_narrow_as_the_inputs(tmp_path: Path, kind: str, unit: float) -> None:
    x = np.linspace(1, 2, 4000).astype(kind)
    (seed,) = expected(tmp_path, "return x.exp()", f"x: f{8 * x.itemsize}[4000]", x, draws=16).seeds
    relative = np.frombuffer(seed.results[0].deviation or b"", "f8") / np.exp(x.astype("f8"))
    assert 0.2 < np.median(relative) / unit < 2


@pytest.mark.parametrize(("kind", "size"), [("f4", 100 * 2.0**-24 / 3**0.5), ("f8", 0.0)])
def test_far_from_zero_a_rounding_of_the_inputs_moves_results(tmp_path: Path, kind: str, size: float) -> None:
    """exp(x - lse(x)), whose largest number is subtracted first in the reference alone. Nothing is looked at anew."""
    x = (np.arange(4000) % 7 - 103).astype(kind)
    line = f"x: f{8 * x.itemsize}[4000]"
    for extreme in (None, 0):
        (seed,) = expected(tmp_path, "return x, x[:9] * 1", line, x, draws=64, extreme=extreme).seeds
        off = np.frombuffer(seed.results[0].deviation or b"", "f8")
        assert np.median(off) == pytest.approx(0 if extreme is None else size, rel=0.1)
        assert seed.results[1].moved is None


@pytest.mark.parametrize(
    "body", ["assert x.dtype == torch.float32; return x.sum()", "return x.float().sum().item() * x[0]"]
)
def test_what_can_not_be_computed_with_roundings_has_no_deviation(tmp_path: Path, body: str) -> None:
    (seed,) = expected(tmp_path, body, "x: f32[800]", MOVED, draws=2).seeds
    assert (seed.results[0].deviation is None) == ("assert" in body)


@pytest.mark.parametrize(("content", "moved"), [("= {}", True), ("< 201", False)])
def test_fixed_whole_numbers_stay_where_inputs_are_moved(tmp_path: Path, content: str, moved: bool) -> None:
    """On a GPU an index that can't be ends all that the process does. What is drawn has no order."""
    body = "assert o[-1] == len(x), 'in order'; return torch.stack([x[a:b].sum() for a, b in zip(o, o[1:])])"
    offsets = np.arange(0, 201, 2, dtype="i4")
    line = f"x: f32[200]; o: i32[{len(offsets)}] {content.format(offsets.tolist())}"
    (seed,) = expected(tmp_path, body, line, MOVED.ravel()[:200], offsets, closely=1).seeds
    assert (seed.results[0].moved is not None) == moved


def test_a_reference_that_takes_its_own_numbers_alone_is_not_moved(tmp_path: Path) -> None:
    body = "assert x[0] in (1.0, 2.0); return x.sum()"
    (seed,) = expected(tmp_path, body, "x: f32[6]", np.ones(6, "f4"), extreme=0).seeds
    assert (seed.results[0].wide is None, seed.results[0].moved) == (False, None)


@pytest.mark.parametrize("body", [
    "return x.float().exp()", "return x.to(torch.float32).exp()", "return x.to('cpu', dtype=torch.float32).exp()",
    "return x.type(torch.float32).exp()", "return x.half().float().exp().bfloat16()",
    "return (torch.zeros(6, dtype=torch.float32) + x).exp()",
    "y = x.float().exp(); y.view(torch.int32); return y if y.dtype == torch.float64 else y.float()",
])  # fmt: skip
def test_exact_numbers_have_no_rounding_of_the_reference_s_own_casts(tmp_path: Path, body: str) -> None:
    x = np.linspace(-1, 1, 6, dtype="f2")
    (seed,) = expected(tmp_path, body, "x: f16[6]", x).seeds
    assert seed.results[0].wide is not None
    assert np.allclose(np.frombuffer(seed.results[0].wide, "f8"), np.exp(x.astype("f8")), rtol=1e-15, atol=0)


def test_what_torch_makes_without_a_dtype_is_wide(tmp_path: Path) -> None:
    """A product of float64 and float32 fails."""
    (seed,) = expected(tmp_path, "return x.view(2, 3) @ torch.full((3, 2), 0.1)", "x: f32[6]", X).seeds
    assert numbers_of(seed.results[0])[0] == pytest.approx(0.1 * X[:3].astype("f8").sum(), rel=1e-15)
    assert torch.get_default_dtype() == torch.float32


def test_whole_numbers_that_become_floats_are_exact_in_float64(tmp_path: Path) -> None:
    body = "return x.float() / 3"
    (seed,) = expected(tmp_path, body, "x: i32[6] < 9", np.arange(6, dtype="i4")).seeds
    assert seed.results[0].wide == (np.arange(6) / 3).tobytes()


@pytest.mark.parametrize(("body", "wide"), [
    ("return x.to(torch.float8_e4m3fn).float()", [0.3125, -1.125]),  # to round so is what it is about
    ("return (x.float().view(torch.int32) & -65536).view(torch.float32)", [0.298828125, -1.09375]),
    ("return (x.float().contiguous().view(torch.int32) ^ 0).view(torch.float32) + torch.zeros(2)", [0.3, -1.1]),
])  # fmt: skip
def test_what_is_about_narrow_numbers_or_bits_stays(tmp_path: Path, body: str, wide: list[float]) -> None:
    (seed,) = expected(tmp_path, body, "x: f32[2]", np.array([0.3, -1.1], "f4")).seeds
    assert seed.results[0].wide is not None
    assert numbers_of(seed.results[0]).astype("f4").tolist() == np.array(wide, "f4").tolist()


def test_whole_numbers_are_not_computed_wider(tmp_path: Path) -> None:
    whole = np.arange(6, dtype="i4")
    (seed,) = expected(tmp_path, "return (i * 2, i > 2)", "i: i32[6] < 9", whole).seeds
    assert [(r.dtype, r.wide) for r in seed.results] == [("int32", None), ("bool", None)]
    assert seed.results[0].native == (whole * 2).tobytes()


def test_inputs_that_change_are_told(tmp_path: Path) -> None:
    """And results that are inputs by their place."""
    (seed,) = expected(tmp_path, "y.mul_(2); return [y, x.clone(), x]", "x: f32[6]; y: f32[6]", X, Y).seeds
    assert [r.input for r in seed.results] == [1, None, 0]
    unchanged, changed = seed.changed
    assert unchanged is None
    assert changed is not None
    assert (changed.native, changed.wide, changed.input) == ((Y * 2).tobytes(), b"", 1)
    assert numbers_of(changed).tolist() == (Y.astype("f8") * 2).tolist()


@pytest.mark.parametrize(("body", "exact"), [
    ("return x * 2", True), ("return x / 3", False), ("return x.half()", False), ("return x * float('nan')", False),
])  # fmt: skip
def test_exact_numbers_are_not_answered_twice(tmp_path: Path, body: str, exact: bool) -> None:
    """What others are in float64 is left in the answer as it came."""
    (result,) = expected(tmp_path, body, "x: f32[6]", X).seeds[0].results
    assert isinstance(result.wide, memoryview)
    assert len(result.wide) == (0 if exact else 48)


def test_what_can_not_be_computed_in_double_precision_has_one_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "assert x.dtype == torch.float32, 'it is wide'; return x"
    (seed,) = expected(tmp_path, body, "x: f32[6]", X).seeds
    assert (seed.results[0].native, seed.results[0].wide) == (X.tobytes(), None)
    assert capsys.readouterr().err == "no float64: it is wide\n"


def test_how_results_lie_in_what_is_returned(tmp_path: Path) -> None:
    """By keys in order; numbers as they are, views that negate as their values."""
    (seed,) = expected(tmp_path, "return {'b': x, 'a': (torch._neg_view(x), 3)}", "x: f32[6]", X).seeds
    assert seed.outline == "{'a': (tensor, 3), 'b': tensor}"
    assert [r.native for r in seed.results] == [(-X).tobytes(), X.tobytes()]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise KeyError('k')", "KeyError: 'k'"),
        ("raise SystemExit(2)", "SystemExit: 2"),
        ("return x + torch.rand(6)", "ValueError: it draws random numbers of torch's: which ones, its inputs must say"),
        (
            "return x, object()",
            "TypeError: it returns a object: tensors, numbers, sequences and mappings can be compared",
        ),
    ],
)
def test_a_reference_that_fails_says_why(tmp_path: Path, body: str, told: str) -> None:
    refused = expected(tmp_path, body, "x: f32[6]", X).refused
    assert refused is not None
    assert (refused.reason, refused.text) == (Reason.REFERENCE.value, told)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("w = torch.nn.Linear(6, 6); w.weight = torch.nn.Parameter(y.view(1, 6)); return w.weight @ x", None),
        ("w = torch.nn.Linear(6, 6); return w.weight @ x", "it draws random numbers of torch's"),
        ("x.mul_(torch.rand(6)); return y", "it draws random numbers of torch's"),
    ],
)
def test_what_a_reference_draws_must_not_show(tmp_path: Path, body: str, told: str | None) -> None:
    """A layer draws weights before they are replaced."""
    refused = expected(tmp_path, body, "x: f32[6]; y: f32[6]", X, Y).refused
    assert (refused is None) == (told is None)
    assert refused is None or (told or "") in refused.text


def test_a_model_s_parameters_are_inputs_of_their_names() -> None:
    (case,) = answered(DescribeTask(reference_source(TASK), ({},))).cases
    assert [(t.shape, t.dtype, t.content) for t in case.tensors] == [
        ((16, 128), "float32", "author"), ((128,), "float32", "author"), ((128,), "float32", "author")
    ]  # fmt: skip
    assert case.parameters == {"weight": 1, "bias": 2}
    assert case.arguments == (TensorAt(0),)
    assert case.init == (PlainArgument(128), PlainArgument(1e-5))
    assert case.label == "Model"


def test_parameters_are_drawn_about_what_they_are_made_with() -> None:
    """A weight within a quarter of itself; a bias that is zero when it is made within a half."""
    source = reference_source(TASK)
    (case,) = answered(DescribeTask(source, ({},))).cases
    seeds = answered(ExpectTask(source, case, (1, 2))).seeds
    assert seeds[0].contents[1] != seeds[1].contents[1]
    for seed in seeds:
        x, weight, bias = (np.frombuffer(data, "f4") for data in seed.contents)
        assert 0.75 <= weight.min() < 0.8 < 1.2 < weight.max() <= 1.25
        assert -0.5 <= bias.min() < -0.4 < 0.4 < bias.max() <= 0.5
        x = x.reshape(16, 128).astype("f8")
        wide = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight + bias
        assert np.frombuffer(seed.results[0].wide or b"", "f8").reshape(16, 128) == pytest.approx(wide, rel=1e-12)


MODEL = """
import random, numpy, torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(4))

    def forward(self, x):
        self.mean.mul_(2)
        return x + self.mean

def get_inputs():
    return [torch.tensor([random.random(), numpy.random.rand(), float(torch.rand(())), 1.0])]
"""


def test_what_a_model_changes_of_its_buffers_is_told(tmp_path: Path) -> None:
    """It has copies of what it was given. Python's and NumPy's generators give each seed numbers of its own."""
    path = tmp_path / "reference_under_test.py"
    path.write_text(MODEL)
    source = reference_source(str(path))
    (case,) = answered(DescribeTask(source, ({},))).cases
    one, other, again = answered(ExpectTask(source, case, (1, 1 << 40, 1))).seeds
    before, changed = np.frombuffer(one.contents[1], "f4"), one.changed[1]
    assert changed is not None
    assert np.frombuffer(changed.native, "f4") == pytest.approx(before * 2)
    assert one.changed[0] is None
    assert one.contents == again.contents
    same = np.frombuffer(one.contents[0], "f4") == np.frombuffer(other.contents[0], "f4")
    assert same.tolist() == [False, False, False, True]


BITS = """
import torch

class Model(torch.nn.Module):
    def __init__(self, most):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (64,), dtype=torch.int8))
        self.register_buffer("some", torch.rand(64) > 0.5)
        self.register_buffer("places", torch.arange(64).roll(3))
        self.register_buffer("scale", torch.rand(1))
        self.register_buffer("left", torch.zeros(int(torch.randint(1, most, ()))))

    def forward(self, x):
        return (x * self.weight * self.some)[self.places] + self.left.sum()

def get_inputs():
    return [torch.rand(64)]

def get_init_inputs():
    return [MOST]
"""


@pytest.mark.parametrize(("most", "others"), [("2", [True, True, False, True]), ("1000", [False, False, False, True])])
def test_whole_numbers_of_a_model_are_others_where_they_are_drawn(
    tmp_path: Path, most: str, others: list[bool]
) -> None:
    """By a model that is made with another seed; its tables are the same. Unless that has other sizes."""
    path = tmp_path / "reference_under_test.py"
    path.write_text(BITS.replace("MOST", most))
    source = reference_source(str(path))
    (case,) = answered(DescribeTask(source, ({},))).cases
    one, other = answered(ExpectTask(source, case, (1, 2))).seeds
    found = [one.contents[case.parameters[name]] != other.contents[case.parameters[name]]
             for name in ("weight", "some", "places", "scale")]  # fmt: skip
    assert found == others
    weight, some = (np.frombuffer(one.contents[case.parameters[name]], "i1") for name in ("weight", "some"))
    assert len({*weight}) > 30
    assert {*some} == {0, 1}


KEEPING = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.kept, self.calls = torch.zeros(8), 0

    def forward(self, x):
        BODY

def get_inputs():
    return [torch.rand(8)]
"""


@pytest.mark.parametrize(
    ("body", "keeps"),
    [
        ("self.kept = self.kept + x; return self.kept", True), ("self.calls += 1; return x * self.calls", True),
        ("self.mean += x; return self.mean * 2", False), ("self.calls += 1; return x * 2", False),
        ("return (x > 0.5), x.sqrt()", False), ("x += 1; return x * 2", False),
        ("self.calls += 1; return (x > 0.5) ^ (self.calls > 1)", True),
    ],
)  # fmt: skip
def test_what_a_model_keeps_in_an_attribute_is_told(tmp_path: Path, body: str, keeps: bool) -> None:
    """Its own buffers, and its inputs, are as they were before a second call."""
    path = tmp_path / "reference_under_test.py"
    path.write_text(KEEPING.replace("BODY", body))
    source = reference_source(str(path))
    (case,) = answered(DescribeTask(source, ({},))).cases
    seeds = answered(ExpectTask(source, case, (1, 2), usual=2)).seeds
    assert ["keeps something in an attribute" in seed.undefined for seed in seeds] == [keeps, False]


TIED = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Embedding(5, 4), torch.nn.Linear(4, 5)
        self.outer.weight = self.inner.weight
        self.register_buffer("first", torch.empty(0))
        self.register_buffer("second", torch.empty(0))

    def forward(self, x):
        return self.outer(self.inner(x))

def get_inputs():
    return [torch.tensor([1, 4, 2])]
"""


def test_parameters_that_are_tied_are_one_input(tmp_path: Path) -> None:
    """Of new numbers both would else have other ones, of which a model has the last. What is empty ties nothing."""
    path = tmp_path / "reference_under_test.py"
    path.write_text(TIED)
    source = reference_source(str(path))
    (case,) = answered(DescribeTask(source, ({},))).cases
    assert case.parameters == {"first": 1, "second": 2, "inner.weight": 3, "outer.weight": 3, "outer.bias": 4}
    assert [t.name for t in case.tensors] == ["0", "first", "second", "inner.weight", "outer.bias"]
    (seed,) = answered(ExpectTask(source, case, (1,))).seeds
    x, _, _, weight, bias = (np.frombuffer(d, "i8" if i == 0 else "f4") for i, d in enumerate(seed.contents))
    weight = weight.reshape(5, 4).astype("f8")
    wide = weight[x] @ weight.T + bias
    assert np.frombuffer(seed.results[0].wide or b"", "f8").reshape(3, 5) == pytest.approx(wide, rel=1e-12)


DROPPING = """
import torch

class Model(torch.nn.Module):
    def __init__(self, p):
        super().__init__()
        self.linear, self.dropout = torch.nn.Linear(64, 64), torch.nn.Dropout(p)

    def forward(self, x):
        return self.dropout(self.linear(x))

def get_inputs():
    return [torch.rand(4, 64)]

def get_init_inputs():
    return [PART]
"""


@pytest.mark.parametrize(("part", "told"), [("0.0", None), ("0.5", "it draws random numbers of torch's")])
def test_what_a_model_drops_must_not_show(tmp_path: Path, part: str, told: str | None) -> None:
    """Each model is made after the generators are seeded alike: its own draws would be the same ones again."""
    path = tmp_path / "reference_under_test.py"
    path.write_text(DROPPING.replace("PART", part))
    source = reference_source(str(path))
    (case,) = answered(DescribeTask(source, ({},))).cases
    refused = answered(ExpectTask(source, case, (1,))).refused
    assert (refused is None) == (told is None)
    assert refused is None or (told or "") in refused.text


def test_generators_of_the_gpu_are_looked_at_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: torch.tensor([1, 2], dtype=torch.uint8))
    own = bytes(torch.get_rng_state().numpy())
    assert reference_runs._generators(False) == [own]
    assert reference_runs._generators(True) == [own, b"\1\2"]


def test_inputs_of_gpu_mode_are_told_by_their_sizes() -> None:
    source = UserCallable(f"{Path(TASK).parent}/gpu_mode/reference.py", "ref_kernel", GPU_MODE)
    given = {"size": 64, "seed": 1}
    (case,) = answered(DescribeTask(source, (given,))).cases
    sys.modules.pop("reference", None)
    assert (case.label, case.given, case.init, case.parameters) == ("size=64, seed=1", given, (), {})


TURNED = """
import torch

def generate_input(seed):
    return torch.arange(6.0).reshape(2, 3).t(), torch.arange(6.0).reshape(2, 3).t()

def ref_kernel(data):
    x, y = data
    assert x.stride() == y.stride() == (1, 3)
    return y.add_(1)[:, 0] + x[:, 1]
"""


def test_inputs_lie_as_the_task_has_them(tmp_path: Path) -> None:
    """Contents are in the order of memory, and results in that of their dimensions."""
    path = tmp_path / "reference_under_test.py"
    path.write_text(TURNED)
    source = reference_source(str(path))
    (case,) = answered(DescribeTask(source, ({},))).cases
    assert [x.strides for x in case.tensors] == [(1, 3), (1, 3)]
    (seed,) = answered(ExpectTask(source, case, (1,))).seeds
    assert [np.frombuffer(x, "f4").tolist() for x in seed.contents] == [[0, 1, 2, 3, 4, 5]] * 2
    unchanged, changed = seed.changed
    assert unchanged is None
    assert changed is not None
    assert np.frombuffer(changed.native, "f4").tolist() == [1, 4, 2, 5, 3, 6]
    assert np.frombuffer(seed.results[0].native, "f4").tolist() == [4, 6, 8]


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [("float16", "float64"), ("bfloat16", "float64"), ("float32", "float64"), ("float64", "float64"),
     ("float8_e4m3fn", "float64"), ("float8_e5m2", "float64"), ("int32", "int32"), ("bool", "bool")],
)  # fmt: skip
def test_what_is_computed_in_double_precision(dtype: str, wide: str) -> None:
    assert reference_runs.widened(torch.ones(2).to(getattr(torch, dtype))).dtype is getattr(torch, wide)


def test_tensors_are_found_by_the_numbers_of_their_places() -> None:
    x, y = torch.ones(1), torch.zeros(1)
    assert list(reference_runs._paired([1, (0, "a"), 7, {"c": 2}], [x, [y, "b"], 7, {"c": x}])) == [
        (1, x), (0, y), (2, x)
    ]  # fmt: skip


def test_where_a_reference_fails_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = expected(tmp_path, "raise ValueError('y' * 5000)", "x: f32[6]", X).refused
    assert refused is not None
    assert refused.text == f"ValueError: {'y' * 165} [...] {'y' * 328}"
    assert capsys.readouterr().err == "y" * 3999 + "\n\n"


class Model:
    """What a module's model was told."""

    def __init__(self, *init: Any) -> None:
        self.told: list[Any] = [init]

    def double(self) -> Any:
        self.told.append("double")
        return self

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.told.append(state)

    def to(self, device: str) -> Any:
        self.told.append(device)
        return self


@pytest.mark.parametrize(("words", "wide"), [({}, []), ({"wide": False}, []), ({"wide": True}, ["double"])])
def test_a_model_has_its_parameters_on_the_device(words: dict[str, bool], wide: list[str]) -> None:
    """In double precision where that is asked for; a function is called as it is."""
    case = msgspec.structs.replace(parse_line("x: f32[1]; w: f32[1]"), parameters={"w": 1}, init=(PlainArgument(7),))
    source = UserCallable("r.py", "Model", KERNELBENCH)
    found: Any = reference_runs.reference_function(sys.modules[__name__], source, case, ["X", "W"], **words)
    assert found.told == [(7,), *wide, {"w": "W"}, "cuda"]
    plain = msgspec.structs.replace(source, layout=FUNCTION)
    assert reference_runs.reference_function(sys.modules[__name__], plain, case, [], **words) is Model


KERNEL = """
import triton, triton.language as tl

@triton.jit
def weights_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0)).to(tl.float16).to(tl.float32)
    tl.store(o + at, e / tl.sum(e, 0), mask=at < n)

def weights(x):
    o = torch.empty(x.numel())
    weights_kernel[(1,)](x, o, x.numel(), BLOCK=128)
    return o
"""


INDEX_KERNEL = """
import triton, triton.language as tl

@triton.jit
def index_kernel(x, o, n, LEFT: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=float("-inf"))
    if LEFT is None:
        v *= 3
    tl.store(o + row, tl.argmax(v, 0, tie_break_left=LEFT is not False))

def index(x, left):
    o = torch.empty(x.shape[0], dtype=torch.int32)
    index_kernel[(x.shape[0],)](x, o, x.shape[1], LEFT=left, BLOCK=64)
    return o
"""


@pytest.mark.parametrize(
    ("body", "promised"),
    [
        ("return index(x, True)", True), ("return index(x, False)", False), ("return index(x, None)", False),
        ("return index(x * 3, True)", False), ("return index(x, True), torch.empty(5)", False),
    ],
)  # fmt: skip
def test_of_ties_a_kernel_promises_what_it_has_in_any_order(tmp_path: Path, body: str, promised: bool) -> None:
    """One that compares and moves numbers alone."""
    x = np.tile(np.array([1, 2, 2], "f4"), 40)
    assert len(expected(tmp_path, f"{body}\n{INDEX_KERNEL}", "x: f32[3,40]", x, ties=True).seeds) == promised


def test_what_a_kernel_rounds_inside_is_known_from_float64(tmp_path: Path) -> None:
    """The kernel's own casts are widened, and memory that has torch's default type."""
    x = np.random.default_rng(1).standard_normal(100).astype("f2")
    (seed,) = expected(tmp_path, f"return weights(x)\n{KERNEL}", "x: f16[100]", x).seeds
    native, wide = (
        np.frombuffer(data or b"", kind)
        for data, kind in zip((seed.results[0].native, seed.results[0].wide), ("<f4", "<f8"), strict=True)
    )
    exact = np.exp(x.astype("f8")) / np.exp(x.astype("f8")).sum()
    assert np.abs(wide / exact - 1).max() < 1e-14 < 1e-5 < np.abs(native / exact - 1).max()
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(("kind", "places", "known"), [("f2", 10, True), ("f4", 23, True), ("f8", 0, False)])
def test_without_float64_it_is_known_what_last_places_move(tmp_path: Path, kind: str, places: int, known: bool) -> None:
    """One number in four is a place off, or two."""
    x = np.random.default_rng(2).uniform(1, 2, 4000).astype(kind)
    body = "y = x.double().no_such_word if x.dtype == torch.float64 else x * 1; return y, (x > 1.5).int()"
    if kind == "f8":
        body = "return x * 1, (x > 1.5).int()"
    (seed,) = expected(tmp_path, body, f"x: f{8 * x.itemsize}[4000]", x, draws=1).seeds
    one, whole = seed.results
    assert whole.moved is None
    assert (one.moved is not None) is known
    if known:
        assert one.wide is None
        off = np.abs(np.frombuffer(one.moved or b"", "<f8") - x) * 2.0**places
        assert {*off} == {0, 1, 2}
        assert 0.2 < np.count_nonzero(off) / 4000 < 0.3
