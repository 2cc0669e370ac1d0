"""The steps of a judgement, with answers that no process would give: what is asked, what is believed, what is said."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Barrier, Event, Lock
from time import sleep
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.msgpack import encode as encoded
from msgspec.structs import replace

from kerntune.base.device import Target
from kerntune.base.stats import Estimate
from kerntune.errors import MeasurementError, UsageError
from kerntune.referee import errors_together, judgement, reference_evidence, replay_comparer, replay_processes, verdicts
from kerntune.referee.candidate_speed import (
    Speeds,
    TimedPair,
)
from kerntune.referee.case_inputs import UserCallable
from kerntune.referee.declared_inputs import parse_line
from kerntune.referee.element_errors import ResultError
from kerntune.referee.hostile_recording import CheckedCall, checked
from kerntune.referee.judgement import Bench, CandidateJudgement, judge
from kerntune.referee.layouts import FUNCTION, GPU_MODE, KERNELBENCH
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.replay_comparer import ReplayComparer
from kerntune.referee.roles import ROLES
from kerntune.referee.sealed_process import Answered, SealedEnd
from kerntune.referee.tasks import (
    CallRefused,
    Constant,
    ExpectAnswer,
    ExpectedResult,
    ExpectedSeed,
    ExpectTask,
    RecordAnswer,
    RecordTask,
    ReplayAnswer,
    ReplayTask,
)
from kerntune.referee.timed_contents import (
    ComparedReplays,
    RightCandidate,
)
from kerntune.referee.verdicts import CandidateVerdict, ShapeResult, TimedLaunch, Word
from tests.referee.recordings import CALL, CASE, EXPECTED, TARGET, TTIR, call

CORPUS = Path(__file__).parents[2] / "benchmarks" / "judge"
ADD = f"{CORPUS}/references.py::add"
LINE = "x: f32[600]; y: f32[600]"


class Steps:
    """Both sides are recorded as ``o = x + y``; what isn't said here is computed in this process."""

    def __init__(self, **says: Any) -> None:
        self.says, self.asked, self.tasks = says, list[tuple[Any, ...]](), list[Any]()
        self.closed = self.waited = 0

    def wait(self) -> None:
        self.waited += 1

    def wait_for_ends(self) -> None:
        assert self.asked, "of those that have answered"

    def close(self) -> None:
        self.closed += 1

    def ask(
        self, role: str, task: Any, readable: tuple[str, ...], seconds: float, most: int, gpu: bool = False
    ) -> Answered:
        self.asked.append((role, readable, seconds, most, gpu))
        self.tasks.append(task)
        says = self.says.get(role, encoded(RecordAnswer(CALL)) if role == "record" else ROLES[role])
        found = says(encoded(task)) if callable(says) else says
        if isinstance(found, Answered):
            return found
        return Answered(found if isinstance(found, bytes) else encoded(found), SealedEnd(), "")


Judge = Callable[..., CandidateVerdict]


@pytest.fixture(autouse=True)
def first_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """These recorders know of no later calls."""
    monkeypatch.setattr(judgement, "with_later", lambda call, *_: call)


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A candidate that nothing imports."""
    (tmp_path / "candidate.py").write_text("def f(x, y): raise SystemExit\n")
    return f"{tmp_path}/candidate.py::f"


@pytest.fixture
def bench_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    def made(steps: Steps, speeds: Speeds | None = None) -> Bench:
        monkeypatch.setattr(judgement, "PrewarmedProcesses", lambda sealed: steps)
        monkeypatch.setattr(judgement, "landlock_version", lambda: 1)
        return Bench(speeds=speeds or Speeds())

    return made


class Measuring(Speeds):
    """Answers what it is told to."""

    origin, device = "told", "a device"

    def __init__(self, found: TimedPair | Exception | None = None, on_gpu: bool = False) -> None:
        self.found, self.on_gpu, self.started = found, on_gpu, list[Any]()

    def start(self, processes: Any) -> None:
        self.started.append(processes)

    def target(self, default: Target) -> Target:
        assert str(default) == "cuda:90"
        return TARGET

    def measure(self, right: RightCandidate) -> TimedPair | None:
        self.right = right
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


# what is asked


def test_what_each_process_is_asked(
    source: str, bench_of: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may read which folder, for how long, and how much of the answer is read."""
    count = itertools.count(1)
    for module in (judgement, replay_comparer, replay_processes):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 100.0))
    monkeypatch.setattr(replay_comparer.secrets, "randbits", lambda bits: (1 << bits) - next(count))
    steps, speeds = Steps(), Measuring()
    verdict = judge(source, ADD, LINE, bench=bench_of(steps, speeds))
    candidates, references = str(Path(source).parent), str(CORPUS)
    replay = ("replay", (), 15.0, 3 * 2400 + 3 * 64 + (1 << 20), False)
    recorded, reference, expect, *replays = steps.tasks
    finite = [np.isfinite(np.frombuffer(b"".join(c), "f4")).all() for c in expect.contents]
    kept = [c for c, demanded in zip(expect.contents, finite, strict=True) if demanded]
    assert len(kept) in (5 + 16, 5 + 17), "NaN and infinities, which stay, demand nothing"
    more = len(expect.contents) - 5
    assert more in (25, 27), "and are beside usual numbers"
    assert steps.asked == [
        ("record", (candidates,), 120.0, 1 << 28, False),
        ("record", (references,), 120.0, 1 << 28, False),
        ("expect", (references,), 300.0, 1 << 32, False),
        *[replay] * 5,
        *[("replay", (), 15.0 + 2.0 * more, *replay[3:])] * (len(kept) - 5),
    ]
    assert (recorded.source.name, reference.source.name, expect.source.name) == ("f", "add", "add")
    assert (recorded.target, recorded.binaries, expect.gpu) == (TARGET, False, False)
    assert expect.seeds == tuple(2**63 - i for i in range(6 + more, 11 + 2 * more)), "behind those of contents"
    assert [(x.side.contents[:2], x.gpu) for x in replays] == [(c, False) for c in kept]
    assert [x.seconds for x in replays] == [10.0] * 5 + [10.0 + 10.0 * more / 5] * (len(kept) - 5)
    assert len({x.side.poison for x in replays[:5]}) == 5
    right = speeds.right
    assert (right.deadline, right.repeatable, right.source.name) == (110.0, True, "add")
    assert right.patterns == [x.side.poison for x in replays[:5]]
    assert [x.contents for x in right.expected] == [*expect.contents[:5]]
    sums = [np.frombuffer(x, "f4") + np.frombuffer(y, "f4") for x, y in expect.contents[:5]]
    assert right.results == tuple((o.tobytes(), *given) for o, given in zip(sums, expect.contents[:5], strict=True))
    assert (verdict.word, verdict.speeds, verdict.device, verdict.sealed) == (Word.UNTIMED, "told", "a device", True)
    assert verdict.shapes[0].text == "right on 5 contents; there is no GPU here"
    assert verdict.shapes[0].launches == (TimedLaunch("add", (3, 1, 1)),)


@pytest.mark.parametrize(("content", "closely"), [("normal", 5), ("author", 2)])
def test_results_are_looked_at_closely_whoever_makes_the_inputs(content: str, closely: int) -> None:
    steps = Steps(expect=encoded(ExpectAnswer(refused=CallRefused("reference", "no"))))
    case = replace(CASE, tensors=tuple(replace(t, content=content) for t in CASE.tensors))
    comparer = ReplayComparer(steps, UserCallable("r.py", "f", FUNCTION), False, 9.0)  # type: ignore[arg-type]
    with pytest.raises(Refusal, match="no"):
        comparer._results(case, checked(CALL, CASE, TARGET), [()] * 5, 5, 1e9, comparer._drawn(case, [()] * 5))
    assert steps.tasks[0].closely == closely


@pytest.mark.parametrize("reference", [0.0, 7.0, 50.0])
def test_the_time_of_a_reference_is_none_of_a_replays(
    reference: float, source: str, bench_of: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a right candidate beside a slow reference would be late."""
    clock = [100.0]
    for module in (judgement, replay_comparer, replay_processes):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def expect(task: bytes) -> bytes:
        clock[0] += reference
        return ROLES["expect"](task)

    steps = Steps(expect=expect)
    judge(source, ADD, LINE, bench=bench_of(steps))
    assert [task.seconds for task in steps.tasks[3:8]] == [10.0] * 5


def test_a_replay_gets_a_second_though_the_budget_is_used(source: str, bench_of: Callable[..., Bench]) -> None:
    steps = Steps()
    judge(source, ADD, LINE, budget=1e-9, bench=bench_of(steps))
    assert {seconds for role, _, seconds, *_ in steps.asked if role == "replay"} == {6.0}


def test_on_a_gpu_results_are_its_own_and_each_replay_has_its_seed_s_contents(
    source: str, bench_of: Callable[..., Bench]
) -> None:
    """Binaries are recorded; the reference may have the GPU, a candidate's process never. Both sides compute at the
    same time."""
    begun = Event()

    def expect(task: bytes) -> Any:
        assert msgspec.msgpack.decode(task, type=ExpectTask).gpu
        assert begun.wait(10)
        return computed["expect"](task)

    def replay(task: bytes) -> Any:
        if msgspec.msgpack.decode(task, type=ReplayTask).gpu:
            begun.set()
        return computed["replay"](task)

    computed = on_a_gpu(ROLES["replay"]).says
    steps, speeds = Steps(expect=expect, replay=replay), Measuring(on_gpu=True)
    verdict = judge(source, ADD, LINE, bench=bench_of(steps, speeds))
    assert verdict.word is Word.UNTIMED
    assert [(role, gpu) for role, *_, gpu in steps.asked[:2]] == [("record", False)] * 2
    assert {(role, gpu) for role, *_, gpu in steps.asked[2:]} == {("expect", True), ("replay", True), ("replay", False)}
    assert all(task.binaries for task in steps.tasks[:2])
    kinds = ExpectTask, ReplayTask
    expects, replays = ([task for task in steps.tasks if isinstance(task, kind)] for kind in kinds)
    *alone, rows = sorted((task for task in replays if task.gpu), key=lambda task: len(task.rolls))
    (contents,) = (task.contents for task in expects)
    assert sorted(contents[:5]) == sorted(task.side.contents[:2] for task in alone)
    assert [b"".join(column) for column in zip(*contents[5:], strict=True)] == [*rows.side.contents[:2]]
    assert (len(alone), rows.rolls) == (5, tuple((2400 * k,) * 2 for k in range(len(contents) - 5)))
    assert CandidateJudgement(bench_of(steps, speeds), _named(), _named(), 1.0)._comparer._workers == 12


TEXTS = ("BLOCK=64", "BLOCK=64", "BLOCK=128", "BLOCK=256")


@pytest.mark.parametrize("wrong", [0, 2, 3])
def test_each_of_an_autotuners_other_configs_must_be_right_too(
    wrong: int, source: str, bench_of: Callable[..., Bench]
) -> None:
    """But for those that the kernel sees alike."""
    text = TTIR.replace("arith.addf", "arith.subf")
    sha = hashlib.sha256(text.encode()).hexdigest()
    binaries = (replace(CALL.recording.binaries[0], ttir_sha256=sha),)
    other = call(recording=replace(CALL.recording, binaries=binaries), artifacts={sha: text.encode()}, configs=TEXTS)

    def record(task: bytes) -> bytes:
        asked = msgspec.msgpack.decode(task, type=RecordTask)
        return encoded(RecordAnswer(other if wrong and asked.config == wrong else call(configs=TEXTS)))

    steps = Steps(record=record)
    verdict = judge(source, ADD, LINE, bench=bench_of(steps))
    assert verdict.word is (Word.WRONG if wrong else Word.UNTIMED)
    told = f"with 1 of 4 configs of an autotuner ({TEXTS[wrong]}), after a trial: "
    assert not wrong or verdict.shapes[0].text.startswith(told)
    first, *others, reference = (task for task in steps.tasks if isinstance(task, RecordTask))
    assert [(one.config, one.later) for one in (first, reference)] == [(0, True), (0, False)]
    assert sorted((one.config, one.later) for one in others) == [(2, False), (3, False)]


def _named(path: str = f"{CORPUS}/references.py") -> UserCallable:
    return UserCallable(path, "add", FUNCTION)


def test_a_bench_starts_before_it_is_used(bench_of: Callable[..., Bench]) -> None:
    steps, speeds = Steps(), Measuring()
    bench = bench_of(steps, speeds)
    bench.target = Target.parse("cuda:90")
    bench.start()
    assert (steps.waited, speeds.started, bench.target) == (1, [steps], TARGET)
    bench.close()
    assert steps.closed == 1


@pytest.mark.parametrize(("words", "sealed"), [({}, True), ({"sealed": True}, True), ({"sealed": False}, False)])
def test_who_gives_no_bench_has_one_that_is_closed(
    words: dict[str, bool], sealed: bool, source: str, bench_of: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, told = Steps(), list[bool]()
    given = bench_of(steps)
    monkeypatch.setattr(judgement, "PrewarmedProcesses", lambda sealed: (told.append(sealed), steps)[1])
    monkeypatch.setattr(judgement, "default_speeds", Measuring)
    verdict = judge(source, ADD, LINE, **words)
    assert (steps.closed, told, verdict.sealed, verdict.speeds) == (1, [sealed], sealed, "told")
    judge(source, ADD, LINE, bench=given)
    assert steps.closed == 1


def test_a_system_that_can_not_seal_judges_what_need_not_be(
    source: str, bench_of: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(Steps())
    monkeypatch.setattr(judgement, "landlock_version", lambda: 0)
    refused = judge(source, ADD, LINE, bench=bench)
    assert refused.shapes == (ShapeResult("all", Word.REFUSED, reason=Reason.UNSEALED, text=Reason.UNSEALED.told),)
    assert (refused.candidate, refused.reference, refused.device) == (source, _shown(ADD), "cuda:90")
    bench.sealed = False
    assert judge(source, ADD, LINE, bench=bench).word is Word.UNTIMED


def _shown(path: str) -> str:
    return judgement.os.path.relpath(path) if path.startswith(str(Path.cwd())) else path


def test_files_are_named_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path, shown in ((tmp_path / "a.py", "a.py"), (tmp_path / "b" / "a.py", "b/a.py"), (Path("/c/a.py"), "/c/a.py")):
        assert judgement._named(_named(str(path))) == f"{shown}::add"
        assert judgement._named(UserCallable(str(path), "custom_kernel", GPU_MODE)) == shown


# inputs


@pytest.fixture
def cases_of(tmp_path: Path, bench_of: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The labels of what is made of ``inputs``, and what the author's process was asked to make."""
    monkeypatch.chdir(tmp_path)
    Path("lines.py").write_text("INPUTS = ['x: f32[1]', 'x: f32[2]']")
    Path("none.py").write_text("OUTPUTS = ['x: f32[1]']")
    for name in ("task.yml", "task.yaml"):
        Path(name).write_text('tests:\n  - {"size": 1, "seed": 2}\n  - {"size": 3, "seed": 2}\n')
    Path("maker.py").write_text("def ref_kernel(data): pass\ndef generate_input(): pass\n")

    def made(inputs: Any, reference: UserCallable, on_gpu: bool = False) -> Any:
        steps = Steps(expect=encoded(ExpectAnswer(cases=(replace(CASE, label="described"),))))
        bench = bench_of(steps, Measuring(on_gpu=on_gpu))
        cases = CandidateJudgement(bench, _named(), reference, 1.0)._cases(inputs)
        return [c.label for c in cases], [task.given for task in steps.tasks]

    return made


NO_INPUTS = "it makes no inputs; declare them: --inputs 'x: f16[4096] normal'"
MAKER = UserCallable("maker.py", "ref_kernel", GPU_MODE)
SIZES = [({"size": 1}, {"size": 3})]


@pytest.mark.parametrize(
    ("inputs", "reference", "labels", "asked"),
    [
        (LINE, _named(), [LINE], []),
        ([LINE, "z: f32[2]"], _named(), [LINE, "z: f32[2]"], []),
        ("lines.py", _named(), ["x: f32[1]", "x: f32[2]"], []),
        ("task.yml", MAKER, ["described"], SIZES),
        (["task.yaml"], MAKER, ["described"], SIZES),
        ((), MAKER, ["described"], [({},)]),
        ("task.yml", UserCallable("lines.py", "ref_kernel", GPU_MODE, {"reference": "maker.py"}), ["described"], SIZES),
    ],
)
def test_where_inputs_come_from(
    inputs: Any, reference: UserCallable, labels: list[str], asked: Any, cases_of: Callable[..., Any]
) -> None:
    assert cases_of(inputs, reference) == (labels, asked)


def test_without_a_gpu_a_task_s_tests_are_judged(cases_of: Callable[..., Any]) -> None:
    """They are smaller than its benchmarks."""
    Path("both.yml").write_text("tests:\n  - {size: 1}\nbenchmarks:\n  - {size: 2}\n")
    for on_gpu, size in ((False, 1), (True, 2)):
        assert cases_of("both.yml", MAKER, on_gpu)[1] == [({"size": size},)]


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ("none.py", "inputs: 'none.py: it has no INPUTS' is neither `name: f16[4096,4096] normal` nor `name = 1e-5`"),
        (["lines.py", LINE], "inputs: 'lines.py' is neither `name: f16[4096,4096] normal` nor `name = 1e-5`"),
        (["task.yml", LINE], "inputs: 'task.yml' is neither `name: f16[4096,4096] normal` nor `name = 1e-5`"),
        ((), f"{CORPUS}/references.py: {NO_INPUTS}"),
    ],
)
def test_inputs_that_are_none_are_told(inputs: Any, told: str, cases_of: Callable[..., Any]) -> None:
    with pytest.raises(UsageError) as caught:
        cases_of(inputs, _named())
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("layout", "inputs", "maker"),
    [(GPU_MODE, "task.yml", "generate_input"), (GPU_MODE, (), "generate_input"), (KERNELBENCH, (), "get_inputs")],
)
def test_a_task_that_makes_no_inputs_is_told(
    layout: str, inputs: Any, maker: str, cases_of: Callable[..., Any]
) -> None:
    """As another submission, which the task isn't beside."""
    with pytest.raises(UsageError) as caught:
        cases_of(inputs, UserCallable("lines.py", "f", layout))
    assert str(caught.value) == f"lines.py: {NO_INPUTS}, or import {maker} of the task's there"


# what is believed


FAILED = Answered(None, SealedEnd(code=3), "")
LATE = Answered(None, SealedEnd(code=-9, late=True), "a word\n")


@pytest.mark.parametrize(
    ("says", "reason", "told"),
    [
        ({"record": FAILED}, Reason.CANDIDATE_DIED, "it ended with status 3 and gave no whole answer"),
        ({"record": encoded(RecordAnswer(call(inputs=(0,))))}, Reason.ANSWER,
         "its recording has 1 inputs, 2 were given"),
        ({"expect": FAILED}, Reason.REFERENCE, "it ended with status 3 and gave no whole answer"),
        ({"expect": encoded(ExpectAnswer(refused=CallRefused("any", "why not")))}, Reason.REFERENCE, "why not"),
        ({"replay": LATE}, Reason.REPLAY_LATE, "the replay: it was ended, being late: a word"),
        ({"replay": FAILED}, Reason.FAULT, "the replay: it ended with status 3 and gave no whole answer"),
        ({"replay": encoded(ReplayAnswer(refused=CallRefused("emulator", "\x1b no")))}, Reason.EMULATOR,
         "\\u001b no"),
        ({"replay": encoded(ReplayAnswer((bytes(2400), None)))}, Reason.ANSWER,
         "the replay's answer has other sizes than the recording"),
        ({"replay": encoded(ReplayAnswer((bytes(2400), None, bytes(2399))))}, Reason.ANSWER,
         "the replay's answer has other sizes than the recording"),
        ({"replay": encoded(ReplayAnswer((bytes(2400), None, None), outside=1_234))}, Reason.OUTSIDE,
         "1,234 bytes beside all tensors are written"),
    ],
)  # fmt: skip
def test_answers_that_refuse(
    says: dict[str, Any], reason: Reason, told: str, source: str, bench_of: Callable[..., Bench]
) -> None:
    (shape,) = judge(source, ADD, LINE, bench=bench_of(Steps(**says))).shapes
    ran = () if "record" in says else (TimedLaunch("add", (3, 1, 1)),)
    assert shape == ShapeResult(LINE, Word.REFUSED, reason=reason, text=told, launches=ran)


def test_a_task_whose_inputs_can_not_be_made_is_refused(source: str, bench_of: Callable[..., Bench]) -> None:
    task = f"{CORPUS}/gpu_mode/reference.py"
    verdict = judge(source, task, bench=bench_of(Steps(expect=FAILED)))
    told = "it ended with status 3 and gave no whole answer; the task's shapes and modules: "
    told += f"--inputs {CORPUS}/gpu_mode/task.yml"
    assert verdict.shapes == (ShapeResult("all", Word.REFUSED, reason=Reason.REFERENCE, text=told),)


@pytest.mark.parametrize(
    ("text", "task", "given", "named"),
    [
        ("No module named 'utils' (candidate.py:2)", True, LINE, True),
        ("No module named 'utils' (candidate.py:2)", True, "task.yml", False),
        ("No module named 'utils' (candidate.py:2)", False, LINE, False),
        ("OSError (candidate.py:2)", True, LINE, False),
    ],
)
def test_a_module_that_a_task_may_have_is_told(
    text: str, task: bool, given: str, named: bool, source: str, bench_of: Callable[..., Bench],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("maker.py").write_text("def ref_kernel(data): pass\ndef generate_input(): pass\n")
    if task:
        Path("task.yml").write_text("tests:\n  - {}\n")
    refused = encoded(RecordAnswer(refused=CallRefused("candidate failed", text)))
    steps = Steps(record=refused, expect=encoded(ExpectAnswer(cases=(CASE,))))
    (shape,) = judge(source, "maker.py", given, bench=bench_of(steps)).shapes
    told = f"; the task's shapes and modules: --inputs {tmp_path}/task.yml"
    assert (shape.reason, shape.text) == (Reason.CANDIDATE_FAILED, text + told * named)


def test_a_shape_that_can_not_be_made_refuses_itself(source: str, bench_of: Callable[..., Bench]) -> None:
    cases = replace(CASE, label="small"), replace(CASE, label="large", tensors=(), arguments=(), unmade="E: too large")
    made = encoded(ExpectAnswer(cases=cases[::-1]))
    steps = Steps(expect=lambda task: made if b"given" in task and b"seeds" not in task else ROLES["expect"](task))
    task = f"{CORPUS}/gpu_mode/task.yml"
    large, small = judge(source, ADD, task, bench=bench_of(steps)).shapes
    assert large == ShapeResult("large", Word.REFUSED, reason=Reason.REFERENCE, text="E: too large")
    assert (small.label, small.word) == ("small", Word.UNTIMED)
    assert [task.case.label for task in steps.tasks if isinstance(task, RecordTask)] == ["small", "small"]


def test_both_sides_may_read_the_modules_of_a_task(source: str, bench_of: Callable[..., Bench], tmp_path: Path) -> None:
    """The reference is any function beside the task's maker of inputs."""
    (tmp_path / "utils.py").touch()
    files = 'files:\n  - {"name": "utils.py", "source": "../utils.py"}\n'
    task = tmp_path / "task"
    task.mkdir()
    (task / "maker.py").write_text("def add(data): pass\ndef generate_input(): pass\n")
    for name in ("task.yml", "task.yaml"):
        (task / name).write_text(f"{files}tests:\n  - {{}}\n")
        steps = Steps(expect=encoded(ExpectAnswer(cases=(CASE,))))
        judge(source, f"{task}/maker.py::add", [f"{task}/{name}"], bench=bench_of(steps))
        utils = f"{tmp_path}/utils.py"
        assert {task.source.modules["utils"] for task in steps.tasks} == {utils}
        folders = {(role, readable) for role, readable, *_ in steps.asked}
        assert folders == {
            ("record", (str(tmp_path), utils)), ("record", (str(task), utils)), ("expect", (str(task), utils))
        }  # fmt: skip


def result(**parts: Any) -> ExpectedResult:
    return replace(EXPECTED, **parts)


def seeds(*results: Any) -> list[ExpectedSeed]:
    return [ExpectedSeed((), each) for each in results]


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        (seeds((result(),), (result(native=b"other", wide=b"5"),)), ""),
        (seeds((result(),), (result(shape=(300,)),)), "its results have other layouts for other numbers"),
        (seeds((result(),), (result(strides=(2,)),)), "its results have other layouts for other numbers"),
        (seeds((result(),), (result(dtype="int32"),)), "its results have other layouts for other numbers"),
        (seeds((result(),), (result(input=0),)), "its results have other layouts for other numbers"),
        (seeds((result(),), (result(), result())), "its results have other layouts for other numbers"),
        (seeds((), ()), "its results are none, which can't be judged"),
        (seeds((result(dtype="b"), result(dtype="a"))), "its results are a, b, which can't be judged"),
        ([ExpectedSeed((), (), (None, result()))], ""),
        ([ExpectedSeed((), (), (None, result(dtype="c")))], "its results are c, which can't be judged"),
        ([ExpectedSeed((), (result(),), (None, result(dtype="d")))], "its results are d, which can't be judged"),
        ([ExpectedSeed((), (), (result(),)), ExpectedSeed((), (), (None,))], ""),
        ([ExpectedSeed((b"1",), (result(native=b"1", input=0),))],
         "all results are inputs, which the reference leaves as they are"),
        ([ExpectedSeed((b"1",), (result(native=b"1", input=0), result()))], ""),
        ([ExpectedSeed((b"1",), (result(native=b"2", input=0),))], ""),
    ],
)  # fmt: skip
def test_references_that_can_be_judged(reference: list[ExpectedSeed], told: str) -> None:
    """By their results, or by inputs that they change where they return nothing."""
    if not told:
        reference_evidence.check_reference(reference)
        return
    with pytest.raises(Refusal) as caught:
        reference_evidence.check_reference(reference)
    assert (caught.value.reason is Reason.DEGENERATE) is told.startswith("all")
    assert str(caught.value) == told


def test_inputs_that_a_reference_changes_for_some_seeds_count_for_all() -> None:
    """Where its steps are less than rounding, an input stays as it was."""
    other = result(native=b"7", wide=b"w" * 8)
    found = [ExpectedSeed((b"1", b"2"), (), (None, other)), ExpectedSeed((b"3", b"4"), (), (None, None))]
    assert reference_evidence.what_counts(found) == [(other,), (replace(other, native=b"4", wide=None),)]
    assert reference_evidence.what_counts(seeds((result(),), (result(),))) == [(result(),)] * 2


# what is said


def judged_errors(found: list[ResultError], source: str, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> ShapeResult:
    """The result where these are the errors of the first seeds, compared again or not, and the others' are none."""
    errors, known = iter(found), dict[bytes, ResultError]()

    def error_of(number: int, content: bytes, *words: Any) -> ResultError:
        if content not in known:
            known[content] = next(errors, ResultError(0, "float32", size=1.0))
        return known[content]

    monkeypatch.setattr(errors_together, "error_of", error_of)
    return judge(source, ADD, LINE, bench=bench).shapes[0]


GOOD = ResultError(0, "float32", size=1.0)
UNWRITTEN = ResultError(0, "float32", wrong="nothing of it is written", unwritten=True)
OFF, INPUT = replace(GOOD, wrong="it is off"), replace(GOOD, result=-1, wrong="it changes input x")


@pytest.mark.parametrize(
    ("found", "word", "reason", "text"),
    [
        ([OFF], Word.WRONG, None, "result 0: it is off"),
        ([GOOD, replace(OFF, result=2), OFF], Word.WRONG, None, "result 2: it is off"),
        ([INPUT], Word.WRONG, None, "it changes input x"),
        ([INPUT, OFF], Word.WRONG, None, "it changes input x"),
        ([UNWRITTEN, OFF], Word.WRONG, None, "result 0: it is off"),
        ([GOOD, replace(UNWRITTEN, result=3), UNWRITTEN], Word.REFUSED, Reason.RESULT_UNWRITTEN,
         "result 3: no recorded launch writes a result"),
        ([GOOD, replace(GOOD, rms_allowed=0.25, result=4)], Word.REFUSED, Reason.DEGENERATE,
         "result 4 may be off by 25% of its size, so it says nothing"),
        ([replace(GOOD, rms_allowed=0.25, size=0.0)], Word.UNTIMED, None, "right on 5 contents; there is no GPU here"),
    ],
)  # fmt: skip
def test_what_errors_mean(
    found: list[ResultError], word: Word, reason: Reason | None, text: str, source: str,
    bench_of: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    shape = judged_errors(found, source, bench_of(Steps()), monkeypatch)
    assert (shape.word, shape.reason, shape.text) == (word, reason, text)
    assert len(shape.errors) == (0 if word is Word.REFUSED else 5)
    assert shape.launches == (TimedLaunch("add", (3, 1, 1)),)


def test_weights_that_a_constructor_prepares_are_told(
    source: str, bench_of: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheckedCall, "told_of_weights", lambda call, case: f"; {case.label}")
    assert judged_errors([OFF], source, bench_of(Steps()), monkeypatch).text == f"result 0: it is off; {LINE}"


def test_products_that_round_what_they_multiply_are_told(
    source: str, bench_of: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheckedCall, "told_of_products", lambda call, dtype, off: f"; {dtype} is off by {off}")
    told = judged_errors([replace(OFF, rms=0.5)], source, bench_of(Steps()), monkeypatch).text
    assert told == "result 0: it is off; float32 is off by 0.5"


ONES, TWOS = (np.full(600, n, "f4").tobytes() for n in (1, 2))
CHANGED = result(native=TWOS, wide=np.full(600, 2.0).tobytes(), input=0)


@pytest.mark.parametrize(
    ("inputs", "changed", "left", "told"),
    [
        ((0, 1), (), (ONES, ONES, TWOS), []),
        ((0, 1), (), (ONES, TWOS, TWOS), [(-1, "it changes input x")]),
        ((0, 1), (), (ONES, ONES, ONES), [(-1, "it changes input y")]),
        ((0, 1), (CHANGED,), (ONES, TWOS, TWOS), [(-1, "")]),
        ((0, 1), (None, replace(CHANGED, native=ONES, wide=None)), (ONES, ONES, TWOS),
         [(-1, "input y, which the reference changes: 600 of 600 elements are off by more than rounding explains, "
           "the most at [0]: 2, not 1")]),
        ((None, 1), (CHANGED,), (ONES, TWOS), [(-1, "it leaves input x as it is, which the reference changes")]),
        ((None, 1), (), (ONES, TWOS), []),
    ],
)  # fmt: skip
def test_inputs_are_looked_at_as_results_are(
    inputs: tuple[int | None, ...], changed: Any, left: tuple[bytes, ...], told: list[tuple[int, str]]
) -> None:
    """Of a result of ones from inputs of ones and of twos; ``left`` is in the result's memory and in the inputs'."""
    found = checked(call(inputs=inputs), CASE, TARGET)
    expected = ExpectedSeed((ONES, TWOS), (result(native=ONES, wide=np.ones(600).tobytes()),), changed)
    together = errors_together.together_of(CASE, [expected])
    first, *others = errors_together.errors_of(
        errors_together.ShapeComparison(CASE, found, together), expected, b"\x7f" * 8, left, ()
    )
    assert (first.result, first.wrong) == (0, "")
    assert [(e.result, e.wrong) for e in others] == told
    assert all(e.size == 1.0 and e.dtype == "float32" for e in others if e.wrong.startswith("it "))


def test_what_is_left_is_the_given_content_where_nothing_has_changed() -> None:
    found = checked(call(constants=(Constant(2, b"c" * 2400),)), CASE, TARGET)
    expected = ExpectedSeed((ONES, TWOS), ())
    assert errors_together.left_of(found, expected, ReplayAnswer((None, TWOS, None))) == (b"c" * 2400, TWOS, TWOS)
    plain = checked(CALL, CASE, TARGET)
    assert errors_together.left_of(plain, expected, ReplayAnswer((None, None, TWOS))) == (b"", ONES, TWOS)


def timed(**parts: Any) -> TimedPair:
    change = parts.pop("change", Estimate(-0.5, -0.52, -0.48, 0.99))
    return TimedPair(change, **{"reference_ns": 40_000.0, "candidate_ns": 20_000.0, **parts})


@pytest.mark.parametrize(
    ("found", "word", "reason", "text"),
    [
        (None, Word.UNTIMED, None, "right on 5 contents; there is no GPU here"),
        (Refusal(Reason.OUTSIDE, "it is seen"), Word.REFUSED, Reason.OUTSIDE, "it is seen"),
        (Refusal(Reason.OUTSIDE), Word.REFUSED, Reason.OUTSIDE, "a kernel writes outside of all tensors"),
        (MeasurementError("no\x1btime"), Word.UNTIMED, None, "right, but not timed: no\\u001btime"),
        (timed(wrong="by then it is off"), Word.WRONG, None, "by then it is off"),
        (timed(), Word.FASTER, None, ""),
        (timed(bandwidth=1e9), Word.FASTER, None, ""),
        (timed(bandwidth=2e8), Word.REFUSED, Reason.ROOFLINE,
         "20,000 ns for 4,800 bytes, at 2e+08 bytes a second at most"),
    ],
)  # fmt: skip
def test_what_times_say(
    found: Any, word: Word, reason: Reason | None, text: str, source: str, bench_of: Callable[..., Bench]
) -> None:
    (shape,) = judge(source, ADD, LINE, bench=bench_of(Steps(), Measuring(found))).shapes
    assert (shape.word, shape.reason, shape.text, len(shape.errors)) == (word, reason, text, 5)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(-0.52, -0.48, Word.UNDECIDED), (-0.005, 0.005, Word.UNDECIDED), (0.48, 0.52, Word.SLOWER)],
)
def test_who_has_not_seen_all_contents_calls_no_candidate_faster_or_the_same(
    low: float, high: float, word: Word, source: str, bench_of: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be wrong at those that the time didn't reach."""
    compare = ReplayComparer.compare
    monkeypatch.setattr(
        ReplayComparer, "compare", lambda *args: dataclasses.replace(compare(*args), cut="9 of 255 were compared")
    )
    measuring = Measuring(timed(change=Estimate((low + high) / 2, low, high, 0.99)))
    (shape,) = judge(source, ADD, LINE, bench=bench_of(Steps(), measuring)).shapes
    told = "9 of 255 were compared; a larger --budget reaches more"
    assert (shape.word, shape.text) == (word, told if word is Word.UNDECIDED else "")
    assert [x for x in shape.remarks if x.startswith("9 of")] == [told.partition(";")[0]] * (word is Word.SLOWER)


def test_a_cut_with_other_numbers_counts_as_one_of_the_own(
    bench_of: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ComparedReplays((), (), (), True, (), (), cut="9 of 255 were compared")
    monkeypatch.setattr(ReplayComparer, "compare", lambda *args: found)
    judging, cuts = CandidateJudgement(bench_of(Steps(), Measuring()), _named(), _named(), 1.0), list[str]()
    judging._deadline = 0.0
    case = parse_line(f"{LINE}; n = 3")
    assert judging._of_twin(cuts, parse_line(LINE), judgement.THESE_NUMBERS, case, checked(CALL, CASE, TARGET)) == ()
    assert cuts == [f"with {case.label}: 9 of 255 were compared"]


def on_a_gpu(emulated: Callable[[bytes], Any]) -> Steps:
    """Who replays there adds; what is emulated beside is said."""

    def expect(task: bytes) -> bytes:
        return ROLES["expect"](encoded(replace(msgspec.msgpack.decode(task, type=ExpectTask), gpu=False)))

    def replay(task: bytes) -> Any:
        asked = msgspec.msgpack.decode(task, type=ReplayTask)
        if not asked.gpu:
            return emulated(task)
        x, y = (np.frombuffer(c or b"", "f4") for c in asked.side.contents[:2])
        added = [z.tobytes() for z in np.split(x + y, len(asked.rolls))]
        return encoded(ReplayAnswer(tuple(z for one in added for z in (one, None, None))))

    return Steps(expect=expect, replay=replay)


RACE, UNKNOWN, DIED = "kernel add: a race", "kernel add: no such operation", "it ended with status 1 and gave no"


@pytest.mark.parametrize(
    ("emulated", "found", "word", "reason", "text", "remark"),
    [
        (ROLES["replay"], timed(), Word.FASTER, None, "", ""),
        (CallRefused("fault", RACE), timed(), Word.REFUSED, Reason.FAULT, f"in the emulator: {RACE}", ""),
        (CallRefused("fault", RACE), None, Word.REFUSED, Reason.FAULT, f"in the emulator: {RACE}", ""),
        (ReplayAnswer((TWOS, None, None), 9), timed(), Word.REFUSED, Reason.OUTSIDE, "in the emulator: 9 bytes", ""),
        (ReplayAnswer((TWOS, None, None)), timed(), Word.WRONG, None, "in the emulator, result 0: ", ""),
        (CallRefused("emulator", UNKNOWN), timed(), Word.FASTER, None, "", UNKNOWN),
        (CallRefused("replay late", "slow"), timed(), Word.FASTER, None, "", "slow"),
        (Answered(None, SealedEnd(1), ""), timed(), Word.FASTER, None, "", DIED),
        (CallRefused("fault", RACE), timed(wrong="off"), Word.WRONG, None, "off", ""),
        (CallRefused("emulator", UNKNOWN), timed(wrong="off"), Word.WRONG, None, "off", ""),
        (ReplayAnswer((TWOS, None, None)), timed(bandwidth=2e8), Word.REFUSED, Reason.ROOFLINE, "20,000 ns", ""),
    ],
)  # fmt: skip
def test_what_is_right_on_a_gpu_is_emulated_beside(
    emulated: Any, found: Any, word: Word, reason: Reason | None, text: str, remark: str, source: str,
    bench_of: Callable[..., Bench],
) -> None:  # fmt: skip
    """A race may be won there, and a masked lane be what the compiler makes it."""
    said = ReplayAnswer(refused=emulated) if isinstance(emulated, CallRefused) else emulated
    said = encoded(said) if isinstance(said, ReplayAnswer) else said
    steps = on_a_gpu(emulated if callable(emulated) else lambda task: said)
    speeds = Measuring(found, on_gpu=True)
    (shape,) = judge(source, ADD, LINE, bench=bench_of(steps, speeds)).shapes
    assert (shape.word, shape.reason, shape.text.startswith(text)) == (word, reason, True), shape.text
    told = [x for x in shape.remarks if x.startswith(judgement.NOT_EMULATED)]
    assert (len(told), remark in "".join(told)) == (bool(remark), True)
    beside = [task for task in steps.tasks if isinstance(task, ReplayTask) and not task.gpu]
    right = zip(speeds.right.patterns, speeds.right.expected, strict=True)
    assert {task.side.poison: task.side.contents[:2] for task in beside} == {
        poison: want.contents for poison, want in right if poison[1] in (0x7F, 0x7B, 0xFB)
    }
    assert len(beside) == 3
    assert max(task.seconds for task in beside) <= judgement.EMULATED_SECONDS
    assert {*beside[0].side.artifacts} == {CALL.recording.binaries[0].ttir_sha256}


@pytest.mark.parametrize(("said", "word", "remark"), [
    (("", "emulator", ""), Word.FASTER, True), (("", "", "fault"), Word.REFUSED, False),
    (("emulator", "", "fault"), Word.REFUSED, False), (("fault", "emulator", "emulator"), Word.REFUSED, False),
])  # fmt: skip
def test_one_of_three_kinds_of_memory_may_show_it(
    said: tuple[str, ...], word: Word, remark: bool, source: str, bench_of: Callable[..., Bench]
) -> None:
    """A maximum passes over NaN, and a race isn't lost each time."""
    answers = iter(said)

    def emulated(task: bytes) -> bytes:
        why = next(answers)
        return encoded(ReplayAnswer(refused=CallRefused(why, "no"))) if why else ROLES["replay"](task)

    (shape,) = judge(source, ADD, LINE, bench=bench_of(on_a_gpu(emulated), Measuring(timed(), on_gpu=True))).shapes
    assert (shape.word, any(x.startswith(judgement.NOT_EMULATED) for x in shape.remarks)) == (word, remark)


@pytest.mark.parametrize(("cores", "most"), [(2, 1), (4, 1), (8, 2), (16, 3)])
def test_few_are_emulated_at_a_time_where_cores_are_few(
    cores: int, most: int, source: str, bench_of: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_comparer.os, "sched_getaffinity", lambda pid: {*range(cores)})
    lock, together, running, seen = Lock(), Barrier(most), list[int](), list[int]()

    def emulated(task: bytes) -> bytes:
        with lock:
            running.append(1)
            seen.append(len(running))
            number = len(seen)
        if number <= most:
            together.wait(10)
        sleep(0.05)
        with lock:
            running.pop()
        return ROLES["replay"](task)

    judge(source, ADD, LINE, bench=bench_of(on_a_gpu(emulated), Measuring(timed(), on_gpu=True)))
    assert (len(seen), max(seen)) == (3, most)


def test_large_tensors_are_not_emulated_beside(
    source: str, bench_of: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = sum(s.nbytes for s in CALL.recording.storages)
    for most, count in ((sizes, 3), (sizes - 1, 0)):
        monkeypatch.setattr(replay_comparer, "MOST_EMULATED", most)
        steps = on_a_gpu(ROLES["replay"])
        (shape,) = judge(source, ADD, LINE, bench=bench_of(steps, Measuring(timed(), on_gpu=True))).shapes
        assert sum(isinstance(task, ReplayTask) and not task.gpu for task in steps.tasks) == count
        assert (shape.word, any("of this size" in x for x in shape.remarks)) == (Word.FASTER, not count)


def test_times_are_told_with_all_that_a_reader_should_know(source: str, bench_of: Callable[..., Bench]) -> None:
    """Constants of the candidate, remarks of the timer, and why the reference runs live."""
    answers = iter([RecordAnswer(call(constants=(Constant(2, bytes(2400)),))), RecordAnswer()])
    steps = Steps(record=lambda task: encoded(next(answers)))
    found = timed(bandwidth=1e12, warm=-0.4, launch_ns=(19_000.0,), remarks=("a remark",))
    (shape,) = judge(source, ADD, LINE, bench=bench_of(steps, Measuring(found))).shapes
    errors = shape.errors
    assert shape == ShapeResult(
        LINE, Word.FASTER, errors, change=found.change, warm=-0.4, reference_ns=40_000.0, candidate_ns=20_000.0,
        launches=(TimedLaunch("add", (3, 1, 1), 19_000.0, 1.0),), must_move=4_800, bandwidth=1e12,
        remarks=(
            "1 constants of 2.4 kB made before the launches, the largest: 2.4 kB",
            "a remark", "the reference isn't replayed: its answer is empty",
        ),
    )  # fmt: skip


def test_a_file_that_is_none_is_refused_by_its_layout(source: str, bench_of: Callable[..., Bench]) -> None:
    path = source.partition("::")[0]
    for spec, told in (
        (f"{path}::g", f"{path}: it defines no g at its top level; it has f"),
        (
            path,
            f"{path}: it has none of a candidate's ModelNew or custom_kernel; name its function as {path}::function",
        ),
    ):
        refused = ShapeResult("all", Word.REFUSED, reason=Reason.LAYOUT, text=told)
        assert judge(spec, ADD, LINE, sealed=False) == CandidateVerdict(
            Word.REFUSED, spec, _shown(ADD), (refused,), sealed=False
        )
    with pytest.raises(UsageError, match=r"none\.py::f: there is no such file"):
        judge("none.py::f", ADD, LINE)


def test_functions_instead_of_their_names_are_told_so() -> None:
    for pair in ((len, ADD), (ADD, len)):
        with pytest.raises(UsageError, match=r"<built-in function len>: name its file and function"):
            judge(*pair, LINE)  # type: ignore[arg-type]


def test_a_candidate_that_lies_in_no_way_as_the_reference_does_is_refused(
    source: str, bench_of: Callable[..., Bench]
) -> None:
    """By the layout of the first seed's results."""
    steps = Steps(record=encoded(RecordAnswer(call(results=()))))
    (shape,) = judge(source, ADD, LINE, bench=bench_of(steps)).shapes
    assert (shape.reason, shape.text) == (Reason.RESULT_COUNT, "it returns 0 tensors, the reference 1")


def test_what_must_move_is_what_launches_reach() -> None:
    found: CheckedCall = checked(call(inputs=(None, 1)), CASE, TARGET)
    assert verdicts.bytes_that_must_move(CASE, found) == 2400
    table = parse_line("x: f32[600]; y: i32[600] < 600")
    assert verdicts.bytes_that_must_move(table, checked(CALL, CASE, TARGET)) == 0


@pytest.mark.parametrize("on_gpu", [True, False])
def test_shapes_and_others_are_recorded_at_once_where_a_gpu_is(
    on_gpu: bool, source: str, bench_of: Callable[..., Bench]
) -> None:
    """Later calls are recorded of the candidate at each shape, and neither of others nor of the reference."""
    each, tasks = Barrier(4, timeout=60), list[RecordTask]()

    def record(data: bytes) -> bytes:
        tasks.append(msgspec.msgpack.decode(data, type=RecordTask))
        if on_gpu and tasks[-1].source.name == "f":
            each.wait()
        return encoded(RecordAnswer(CALL))

    judge(source, ADD, [LINE, f"{LINE}; eps = 0.5"], bench=bench_of(Steps(record=record), Measuring(on_gpu=on_gpu)))
    asked = [(t.source.name, " for 0.5" in t.case.label, t.later, bool(t.before)) for t in tasks]
    first, others = [("f", False, True, False)] * 2, [("f", True, False, True)] * 2
    assert sorted(asked) == [("add", False, False, False)] * 2 + first + others
    assert all(t.before.arguments[2].value == 0.5 for t in tasks if t.before)


@pytest.mark.parametrize("on_gpu", [True, False])
def test_others_of_a_candidate_are_compared_at_once_where_a_gpu_is(on_gpu: bool) -> None:
    """Without one, those after a wrong one aren't looked at."""
    both, seen = Barrier(2, timeout=60), list[str]()

    def said(what: str) -> str:
        seen.append(what)
        if on_gpu:
            both.wait()
        return what

    it: Any = SimpleNamespace(_bench=SimpleNamespace(speeds=SimpleNamespace(on_gpu=on_gpu)))
    assert next(iter(CandidateJudgement._each(it, [partial(said, "a"), partial(said, "b")]))) == "a"
    assert sorted(seen) == (["a", "b"] if on_gpu else ["a"])
    assert list(CandidateJudgement._each(it, [])) == []
