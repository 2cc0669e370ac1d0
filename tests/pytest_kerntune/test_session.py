"""The hooks of a run under ``--kerntune``, one by one: what they ask of the engine, and what follows for a test."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from doubles import Item, raising, through

from kerntune.base.case_result import CaseId, CaseResult, UncheckedValue
from kerntune.base.policy import Outcome, Policy, Update, Verdict
from kerntune.errors import KerntuneError
from kerntune.gate import api
from kerntune.kernels.compat import versions
from pytest_kerntune import marker, session
from pytest_kerntune.conclude import FOUND_GPU, NO_GPU_LEFT
from pytest_kerntune.concurrency import CROWDED, TurnTaking
from pytest_kerntune.fixture import GatedAutotune, Record
from pytest_kerntune.other_runs import ExtraTargets
from pytest_kerntune.payload import UNCHECKED, payload_of
from pytest_kerntune.run_lifetime import SESSION
from pytest_kerntune.session import ERROR, RECORD, Gate

NODE = "t.py::test_a"


class NeedsGpu(RuntimeError):
    pass


class Engine:
    """A session that notes what is asked of it."""

    device = "cuda"
    compiled_for = ("cuda:90",)

    def __init__(self, static: bool = False, gpus: int = 1, others: tuple[str, ...] = ()) -> None:
        self.static, self.gpus, self.others = static, gpus, others
        self.did: list[Any] = []
        self.stores = None

    def __getattr__(self, name: str) -> Any:
        return lambda *words, **named: self.did.append((name, *words, *named.items()))

    def close(self) -> None:
        self.did.append("close")

    def header(self) -> tuple[str, ...]:
        return ("device",)

    def static_end(self, error: BaseException) -> str | None:
        return str(error) if isinstance(error, NeedsGpu) else None

    def stopped(self, nodeid: str, error: BaseException, checks: Any, policy: Policy) -> Any:
        self.did.append(("stopped", nodeid, list(checks)))
        return SimpleNamespace(end=str(error), results=(), checks=())

    def lost(self, *, ask: bool) -> str:
        self.did.append(("lost", ask))
        return "no answer" if isinstance(ask, bool) and "gone" in self.__dict__ else ""

    def take_unchecked(self) -> tuple[UncheckedValue, ...]:
        return (UncheckedValue("t.py:3", "assert x == 1"),)


class Config(SimpleNamespace):
    """pytest's, as far as a gate asks it; a worker's has ``workerinput``."""

    def __init__(self, controller: bool = False, backend: object = None, verbosity: int = 0, **more: Any) -> None:
        plugins = {"dsession"} if controller else set()
        super().__init__(
            rootpath=Path("/project"),
            invocation_params=SimpleNamespace(dir=Path("/project"), args=()),
            option=SimpleNamespace(collectonly=False, fulltrace=False, keyword="", markexpr=""),
            pluginmanager=SimpleNamespace(hasplugin=plugins.__contains__, getplugin=lambda name: None),
            hook=SimpleNamespace(pytest_kerntune_backend=lambda config: backend),
            stash={}, cleanups=[], get_verbosity=lambda: verbosity, getoption=lambda name: None, **more,
        )  # fmt: skip
        self.add_cleanup = self.cleanups.append


def settings(**more: Any) -> Any:
    given = dict.fromkeys(("html", "json", "reference"))
    return SimpleNamespace(**{
        **given, "settings": lambda: "settings", "spread": True, "policy": Policy(), "scope": "kernels", "anchor": "",
        "reference_name": "", "anchor_name": "the anchor", "targets": (), "turns": TurnTaking.ALL,
        "update": Update.NONE, **more,
    })  # fmt: skip


def gate_of(engine: Engine | None = None, options: Any = None, **more: Any) -> Any:
    made: Any = Gate(Config(**more), options or settings())
    made.progress = SimpleNamespace(
        begin=lambda: made.config.cleanups.append("shown"), of=lambda nodeid: f"progress of {nodeid}"
    )
    made._engine = engine
    return made


def a_test(marked: bool = True, **marks: Any) -> Any:
    """With ``marked`` it is kerntune's business."""
    return Item(marks if marked else None, config=Config(), user_properties=[("kerntune_x", 1), ("mine", 2)])


def result(outcome: Outcome = Outcome.FAIL, verdict: Verdict = Verdict.REGRESSED, **more: Any) -> CaseResult:
    made = CaseResult(CaseId(NODE, "0"), "f", verdict, outcome, "slower", "cuda:90")
    return msgspec.structs.replace(made, **more)


def raised(hook: Generator[Any, Any, Any], value: object = None) -> tuple[type[BaseException], str]:
    """What a wrapper raises, and the first line of that. A skip that nobody expects would skip the test here."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - the caller looks at it
        through(hook, value)
    return type(caught.value), str(caught.value).partition("\n")[0]


# the run


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What opening comes to, outside of the gate."""
    did: list[Any] = []
    monkeypatch.setattr(api, "open_session", lambda *words: did.append(words) or Engine())
    monkeypatch.setattr(session, "end_in_order", lambda config: did.append("SIGTERM"))
    monkeypatch.setattr(session, "require_plotly", lambda flag: did.append(flag))
    monkeypatch.setattr(session, "unseen_gpu", lambda: "a GPU is not seen")
    monkeypatch.setattr(versions, "newer_versions", lambda: ["newer torch"])
    return did


@pytest.mark.parametrize("process", ["alone", "controller", "worker"])
def test_each_process_opens_a_session_and_one_that_runs_tests_starts_it(opened: list[Any], process: str) -> None:
    worker = {"workerinput": {"workerid": "gw1", "workercount": 3, session.DECISIONS: "/claims"}}
    gate = gate_of(
        None, settings(html="r.html"), controller=process == "controller", **worker if process == "worker" else {}
    )
    gate._folders = SimpleNamespace(place=(1, 3), folder=lambda name, make: f"the folder {name}")
    with pytest.raises(pytest.UsageError, match="not open yet"):
        gate.engine  # noqa: B018
    assert through(gate.pytest_sessionstart(), "began") == "began"
    claims = None if process == "alone" else "the folder kerntune_decisions"
    starts = [] if process == "controller" else [("start",)]
    assert gate.engine.did == [*starts, ("share", 1, 3, claims)]
    assert opened == [*([] if process == "worker" else ["--kerntune-html"]), ("settings", None),
                      *([] if process == "worker" else ["SIGTERM"])]  # fmt: skip
    assert gate.config.cleanups == ["shown", gate.engine.close]
    assert gate.end.pytest_report_header() == ["kerntune: device", "kerntune: newer torch"]
    assert (gate.end._engine, gate.end._header, gate.end.notes) == (gate.engine, ("device", "newer torch"), [])


def test_a_session_on_stand_ins_gives_way_to_a_conftests_backend(opened: list[Any]) -> None:
    for backend, taken in ((None, True), ("a backend", False)):
        started, gate = Engine(static=True), gate_of(None, backend=backend)
        gate.config.stash[SESSION] = started
        gate._open()
        assert (gate.engine is started) is taken
        assert ("close" in started.did) is not taken
        assert opened == (["SIGTERM"] if taken else [("settings", "a backend"), "SIGTERM"])
        assert gate.config.stash == {}
        opened.clear()


@pytest.mark.parametrize(
    ("static", "targets", "verbosity", "notes", "header"),
    [
        (False, (), 0, [], ("device", "newer torch")),
        (True, (), 0, ["a GPU is not seen"], ("device", "newer torch", "a GPU is not seen")),
        (True, ("cuda:90",), 0, [], ("device", "newer torch")),
        (True, (), -1, ["a GPU is not seen", "newer torch"], ("device", "newer torch", "a GPU is not seen")),
    ],
)  # fmt: skip
def test_what_a_run_says_of_itself(
    opened: list[Any], static: bool, targets: tuple[str, ...], verbosity: int, notes: list[str], header: tuple[str, ...]
) -> None:
    """Under ``-q`` the header isn't shown."""
    gate = gate_of(None, settings(targets=targets), verbosity=verbosity)
    gate.config.stash[SESSION] = Engine(static)
    gate._open()
    assert (gate.end.notes, gate.end._header) == (notes, header)


@pytest.mark.parametrize(
    ("found", "static", "why"), [(True, True, NO_GPU_LEFT), (True, False, ""), (False, True, ""), (None, True, "")]
)
def test_a_worker_without_the_gpu_that_its_controller_has_found(
    opened: list[Any], monkeypatch: pytest.MonkeyPatch, found: bool | None, static: bool, why: str
) -> None:
    monkeypatch.setattr(api, "open_session", lambda *words: Engine(static))
    given = {"workerid": "gw0", "workercount": 1, session.DECISIONS: "/c"}
    gate = gate_of(None, workerinput=given if found is None else {**given, FOUND_GPU: found})
    gate._open()
    assert gate._loss.text == why


def test_other_targets_run_before_a_runs_own_tests(opened: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order: the reference, the anchor, then the runs for other targets, each in a folder of its own."""
    engine, remark = Engine(static=True, others=("cuda:80", "hip:gfx942")), ["only some"]
    extra = ExtraTargets()
    monkeypatch.setattr(
        session,
        "reference_folder",
        lambda config, options, into, targets: SimpleNamespace(folder=f"{into} of {targets}", remark=remark[0]),
    )
    monkeypatch.setattr(session, "anchor_folder", lambda options, into: f"{into} anchor")
    monkeypatch.setattr(session, "run_extra_targets", lambda config, others, into: engine.did.append(others) or "extra")
    monkeypatch.setattr(session, "read_extra_targets", lambda others, folder: engine.did.append(folder) or extra)
    gate = gate_of(None, settings(reference_name="main", anchor="a", targets=("cuda:90",)))
    gate._folders = SimpleNamespace(place=(0, 1), folder=lambda name, make: make(name))
    gate.config.stash[SESSION] = engine
    gate._open()
    assert engine.did == [
        ("share", 0, 1, None), ("hold_against", "kerntune_reference of ('cuda:90',)", "main"),
        ("anchor_at", "kerntune_anchor anchor", "the anchor"), ("cuda:80", "hip:gfx942"), "extra",
    ]  # fmt: skip
    told = "in runs of their own: cuda:80, hip:gfx942"
    assert gate.end._header == ("device", "newer torch", told, "only some")
    assert gate.end._extra is gate._extra is extra
    remark[0] = ""
    gate._made_reference("into", ())
    assert gate._remarks == ()


def test_what_can_not_be_opened_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = gate_of()
    monkeypatch.setattr(gate, "_open", raising(KerntuneError("no such revision")))
    with pytest.raises(pytest.UsageError, match=r"^no such revision$"):
        next(gate.pytest_sessionstart())


def test_workers_are_told_what_the_controller_knows() -> None:
    gate, node = gate_of(Engine(gpus=2)), SimpleNamespace(workerinput={"mine": 1})
    turned: list[Any] = []
    gate._spread = SimpleNamespace(turn=lambda *words: turned.append(words), input_of=lambda node: {CROWDED: True})
    gate._folders.made["a"] = "folder"
    gate.pytest_xdist_setupnodes(["a spec"])
    gate.pytest_configure_node(node)
    assert (turned, node.workerinput) == (
        [(["a spec"], 2)], {"mine": 1, "a": "folder", FOUND_GPU: True, CROWDED: True},
    )  # fmt: skip


@pytest.mark.parametrize(("tests", "anchor", "cases"), [(3, "", 3), (3, "a", 6), (0, "", 1)])
def test_a_runs_error_is_shared_by_all_of_its_decisions(tests: int, anchor: str, cases: int) -> None:
    gate = gate_of(Engine(), settings(anchor=anchor))
    gate.options = as_dataclass(gate.options)
    with_outcomes = [a_test(outcomes={"STALE": "fail"}) for _ in range(tests - 1)]
    items = [a_test(), a_test(marked=False), *with_outcomes] if tests else []
    gate.pytest_collection_finish(SimpleNamespace(items=items))
    assert gate.options.policy.cases == cases
    assert gate.end.stale_outcomes == ({NODE: "fail"} if tests else {})
    ((name, gone, own),) = gate.engine.did
    assert (name, own, gone("none.py::test_x")) == ("tests_gone", None, True)


@pytest.mark.parametrize(
    ("named", "reference", "own"), [("here", "", True), ("here", "main", False), ("v1", "", False)]
)
def test_an_anchor_that_is_a_folder_of_its_own_loses_what_is_gone(
    tmp_path: Path, named: str, reference: str, own: bool
) -> None:
    (tmp_path / "here").mkdir()
    gate = gate_of(Engine(), as_dataclass(settings(anchor=str(tmp_path / named), reference_name=reference)))
    gate.pytest_collection_finish(SimpleNamespace(items=[]))
    assert gate.engine.did[0][2] == (tmp_path / "here" if own else None)


@pytest.mark.parametrize(
    ("test", "option", "met", "gone"),
    [
        ("none.py::test_a", "lf", False, True), ("unread.py::test_a", "", True, True),
        ("unread.py::test_a", "", False, False), ("broken.py::test_a", "", False, False),
        *((f"t.py::{test}", "", False, False) for test in ("test_a", "test_b[x::y]", "A::test_c", "B::test_d")),
        *((f"t.py::{test}", "", False, True) for test in ("test_z", "test_b[z::y]", "A::test_z", "Z::test_c")),
        *(("t.py::test_z", name, True, True) for name in ("keyword", "markexpr", "deselect")),
        *(("t.py::test_z", name, True, False) for name in ("lf", "stepwise", "ignore", "shard_id")),
        ("t.py::test_a", "keyword", True, False),
    ],
)  # fmt: skip
def test_a_test_is_gone_without_its_file_or_where_that_was_read_without_it(
    tmp_path: Path, test: str, option: str, met: bool, gone: bool
) -> None:
    for name in ("t.py", "unread.py", "broken.py"):
        (tmp_path / name).touch()
    gate = gate_of()
    gate.config.rootpath, gate.end.narrowed, gate.end.would_meet = tmp_path, True, lambda nodeid: met
    for name in ("keyword", "markexpr", "deselect", "lf", "stepwise", "ignore", "shard_id"):
        setattr(gate.config.option, name, "word" if name == option else "")
    for nodeid, passed, names in (
        ("", True, ["t.py", "unread.py", "broken.py"]), ("broken.py", False, None),
        ("t.py", True, ["t.py::test_a", "t.py::test_b[x::y]", "t.py::A", "t.py::B"]),
        ("t.py::A", True, ["t.py::A::test_c"]),  # and B was not read
    ):  # fmt: skip
        result = names and [SimpleNamespace(nodeid=name) for name in names]
        report = SimpleNamespace(nodeid=nodeid, passed=passed, result=result)
        assert through(gate.pytest_make_collect_report(), report) is report
    assert gate._gone(test) is gone


def as_dataclass(found: Any) -> Any:
    """The options as a dataclass, which a gate replaces."""
    return dataclasses.make_dataclass("Settings", vars(found))(**vars(found))


@pytest.mark.parametrize(
    ("given", "crowded", "gpus", "turns"),
    [(None, False, 2, False), ({CROWDED: True}, True, 1, True), ({CROWDED: False}, False, 1, False),
     ({}, False, 2, True)],
)  # fmt: skip
def test_workers_that_share_gpus_take_turns(
    monkeypatch: pytest.MonkeyPatch, given: Any, crowded: bool, gpus: int, turns: bool
) -> None:
    took: list[Any] = []

    def in_turn(engine: Engine, item: Any, which: TurnTaking, crowded: bool) -> Any:
        took.append((which, crowded))
        return contextlib.nullcontext()

    monkeypatch.setattr(session, "in_turn", in_turn)
    gate = gate_of(Engine(gpus=gpus), **{"workerinput": given} if given is not None else {})
    assert through(gate.pytest_runtest_protocol(a_test()), "ran") == "ran"
    assert took == ([(TurnTaking.ALL, crowded)] if turns else [])


# one test


def test_the_fixture_of_a_test() -> None:
    gate, item = gate_of(Engine(), settings(scope="op")), a_test()
    found = gate.fixture(item)
    assert isinstance(found, GatedAutotune)
    assert (found.device, found._scope, found._record, found._progress, found._process) == (
        "cuda", "op", item.stash[RECORD], f"progress of {NODE}", os.getpid(),
    )  # fmt: skip


def test_a_test_begins_anew_and_its_regressions_stand() -> None:
    """Of an earlier attempt in this run (pytest-rerunfailures)."""
    gate, item = gate_of(Engine()), a_test()
    item.stash |= {RECORD: Record(results=[result()]), ERROR: ValueError()}
    assert through(gate.pytest_runtest_setup(item), "set up") == "set up"
    assert [r.verdict for r in item.stash[RECORD].standing] == [Verdict.REGRESSED]
    assert (item.stash[RECORD].results, item.stash[ERROR], item.user_properties) == ([], None, [("mine", 2)])
    assert raised(gate.pytest_runtest_setup(item), pytest.skip.Exception("not today")) == (
        pytest.fail.Exception, "slower; a rerun of the test does not undo this",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("error", "marked", "lost", "ends", "says"),
    [
        (ValueError("mine"), True, False, ValueError, "mine"),
        (ValueError("mine"), True, True, ValueError, "mine"),
        (RuntimeError("CUDA error: x"), True, True, pytest.skip.Exception, "gone"),
        (RuntimeError("CUDA error: x"), True, False, RuntimeError, "CUDA error: x"),
        (NeedsGpu("reads"), False, False, pytest.skip.Exception, "only a GPU gives, in its setup: reads"),
        (NeedsGpu("reads"), True, False, pytest.skip.Exception, "only a GPU gives, in its setup: reads"),
    ],
)  # fmt: skip
def test_a_setup_that_raises(error: Exception, marked: bool, lost: bool, ends: Any, says: str) -> None:
    gate, item = gate_of(Engine()), a_test(marked)
    if lost:
        gate._loss.note("", "gone")
    found, text = raised(gate.pytest_runtest_setup(item), error)
    assert (found, text.endswith(says), item.stash[ERROR]) == (ends, True, error)
    assert [r.verdict for r in item.stash[RECORD].results] == (
        [Verdict.INCOMPLETE] if says.endswith("reads") and marked else []
    )


@pytest.mark.parametrize(
    ("error", "marked", "lost", "ends", "says"),
    [
        (ValueError("mine"), False, False, ValueError, "mine"),
        (ValueError("mine"), True, False, ValueError, "mine"),
        (NeedsGpu("reads"), False, False, pytest.skip.Exception, "needs results that only a GPU gives: reads"),
        (RuntimeError("CUDA error: x"), False, True, pytest.skip.Exception, "gone"),
        (RuntimeError("CUDA error: x"), False, False, RuntimeError, "CUDA error"),
        (KeyboardInterrupt("now"), False, True, KeyboardInterrupt, "now"),
        (NeedsGpu("reads"), True, False, pytest.fail.Exception, "ended before its first autotune call"),
    ],
)  # fmt: skip
def test_a_body_that_raises(error: BaseException, marked: bool, lost: bool, ends: Any, says: str) -> None:
    gate, item = gate_of(Engine(), settings(policy=Policy(ci=True))), a_test(marked)
    if lost:
        gate._loss.note("", "gone")
    found, text = raised(gate.pytest_runtest_call(item), error)
    assert (found, says in text, item.stash[ERROR]) == (ends, True, error)


def test_a_body_that_ends_well_is_judged_where_it_is_kerntunes_business() -> None:
    gate, item = gate_of(Engine()), a_test()
    item.stash[RECORD] = Record(results=[result()])
    with pytest.raises(pytest.fail.Exception, match="slower"):
        through(gate.pytest_runtest_call(item), "value")
    other = a_test(marked=False)
    other.stash[RECORD] = Record(results=[result()])
    assert through(gate.pytest_runtest_call(other), "value") == "value"
    passing = a_test()
    passing.stash[RECORD] = Record(results=[result(Outcome.PASS, findings=("more registers",))])
    for update, warned in ((Update.NONE, 1), (Update.ALL, 0)):
        passing.warned.clear()
        passing.stash[RECORD].concluded = 0
        gate.options.update = update
        assert through(gate.pytest_runtest_call(passing), "value") == "value"
        assert len(passing.warned) == warned, "what an update accepts"


def test_what_other_targets_say_of_a_test_is_its_own() -> None:
    gate, item = gate_of(Engine()), a_test()
    gate._extra = SimpleNamespace(results=lambda nodeid: [result()] if nodeid == NODE else [])
    item.stash[RECORD] = Record(results=[result(Outcome.PASS)])
    with pytest.raises(pytest.fail.Exception, match="slower"):
        through(gate.pytest_runtest_call(item), None)


def test_a_unittest_keeps_its_error_for_pytest() -> None:
    for marked in (True, False):
        item: Any = a_test(marked)
        item._excinfo = [SimpleNamespace(value=ValueError("first")), SimpleNamespace(value=ValueError("second"))]
        hook = gate_of(Engine()).pytest_runtest_call(item)
        if marked:
            assert raised(hook) == (ValueError, "first")
        else:
            through(hook)
        assert len(item._excinfo) == (0 if marked else 2)


@pytest.mark.parametrize(
    ("marked", "static", "lost", "error", "asked"),
    [
        (True, False, False, None, [("lost", True)]), (True, True, False, None, []), (False, False, False, None, []),
        (True, False, True, None, []), (False, False, False, ValueError("x"), []),
        (False, False, False, RuntimeError("CUDA error: x"), [("lost", True)]),
        (True, False, False, KeyboardInterrupt(), [("lost", False)]),
    ],
)  # fmt: skip
def test_whether_the_gpu_is_asked_at_a_tests_end(
    marked: bool, static: bool, lost: bool, error: Any, asked: list[Any]
) -> None:
    """Not after one that was interrupted: the GPU may be busy without end."""
    gate, item = gate_of(Engine(static)), a_test(marked)
    if lost:
        gate._loss.note("", "gone")
    item.stash[ERROR] = error
    assert through(gate.pytest_runtest_teardown(item), "torn down") == "torn down"
    assert (gate.engine.did, item.stash[ERROR]) == (asked, None)


@pytest.mark.parametrize("error", [None, ValueError("x")])
def test_a_test_after_which_the_gpu_is_gone_fails(error: Exception | None) -> None:
    gate, item = gate_of(Engine()), a_test()
    gate.engine.gone = True
    item.stash[ERROR] = error
    if error is None:
        with pytest.raises(pytest.fail.Exception) as caught:
            through(gate.pytest_runtest_teardown(item))
        assert str(caught.value) == f"{NODE}: the GPU runs nothing any more after this test: no answer"
        assert not caught.value.pytrace
    else:
        through(gate.pytest_runtest_teardown(item))
    assert (gate._loss.culprit, item.stash[RECORD].lost_device) == (NODE, "no answer")


def test_calls_of_fixtures_after_the_body_are_judged_at_its_end() -> None:
    gate, item = gate_of(Engine(static=True)), a_test()
    item.stash[RECORD] = Record(results=[result()], finished=True)
    with pytest.raises(pytest.fail.Exception, match="slower"):
        through(gate.pytest_runtest_teardown(item))
    item.stash[RECORD] = Record(results=[result(Outcome.PASS, findings=("more registers",))], finished=True)
    for update, warned in ((Update.ALL, 0), (Update.NONE, 1)):
        gate.options.update, item.stash[RECORD].concluded = update, 0
        through(gate.pytest_runtest_teardown(item))
        assert len(item.warned) == warned, "what an update accepts"
    through(gate.pytest_runtest_teardown(a_test()))


@pytest.mark.parametrize(
    ("marked", "when", "subtest", "written", "attached"),
    [
        (True, "setup", False, False, False), (True, "call", False, True, False), (True, "teardown", False, True, True),
        (True, "call", True, False, False), (False, "teardown", False, False, False),
    ],
)  # fmt: skip
def test_what_a_report_makes_of_a_test(
    monkeypatch: pytest.MonkeyPatch, marked: bool, when: str, subtest: bool, written: bool, attached: bool
) -> None:
    gate, item, wrote = gate_of(Engine(), settings(json=Path("run.json"))), a_test(marked), []
    record = item.stash[RECORD] = Record(results=[result()])
    monkeypatch.setattr(session, "write_baselines", lambda *words: wrote.append((*words[:2], record.failed)))
    monkeypatch.setattr("pytest_kerntune.payload.carried", lambda record: {"b": msgspec.Raw(b"1")})
    report: Any = SimpleNamespace(nodeid=NODE, when=when)
    if subtest:
        gate.end.failed[NODE] = "a subtest"
    assert through(gate.pytest_runtest_makereport(item, SimpleNamespace(when=when)), report) is report
    assert wrote == ([(NODE, record, subtest)] if marked and when != "setup" else [])
    assert '"assert x == 1"' in getattr(report, UNCHECKED), "of any test, in any of its phases"
    payload = payload_of(report)
    assert (payload is not None and payload.baselines) == ({"b": msgspec.Raw(b"1")} if attached else False)


def test_a_lost_gpu_refuses_tests_and_ends_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[Any] = []
    monkeypatch.setattr(session, "end_worker", ended.append)
    monkeypatch.setattr(session, "settle_crash", ended.append)
    strict = Policy(outcomes={Verdict.INCONCLUSIVE: Outcome.FAIL})
    gate, item = gate_of(Engine(), settings(policy=strict)), a_test()
    gate.refuse_lost(item)
    gate._loss.note("", "gone")
    gate.refuse_lost(a_test(marked=False))
    with pytest.raises(pytest.fail.Exception, match="not run: gone"):
        gate.refuse_lost(item)
    gate.end.ended["t.py::lost"] = "gone"
    for nodeid in ("t.py::lost", NODE):
        gate.pytest_runtest_logfinish(nodeid)
        assert ended == []
        through(gate.pytest_handlecrashitem(nodeid, "a report"))
        assert ended == (["a report"] if nodeid != NODE else [])
        ended.clear()
    gate.config.workerinput = {}
    gate.pytest_runtest_logfinish(NODE)
    assert ended == []
    gate.pytest_runtest_logfinish("t.py::lost")
    assert len(ended) == 1


def test_a_marker_that_became_wrong_fails_its_test() -> None:
    item = a_test(tolerance="much")
    with pytest.raises(pytest.fail.Exception, match="tolerance") as caught:
        gate_of()._marker(item)
    assert not caught.value.pytrace


@pytest.mark.parametrize(
    ("name", "static", "marked", "once"),
    [("benchmark", True, True, True), ("benchmark", False, True, False), ("benchmark", True, False, False),
     ("other", True, True, False)],
)  # fmt: skip
def test_a_benchmark_without_a_gpu_calls_once(
    monkeypatch: pytest.MonkeyPatch, name: str, static: bool, marked: bool, once: bool
) -> None:
    told: list[object] = []
    monkeypatch.setattr(marker, "run_once", told.append)
    gate: Any = gate_of(Engine(static))
    hook = gate.pytest_fixture_setup(SimpleNamespace(argname=name), SimpleNamespace(node=a_test(marked)))
    assert through(hook, "fixture") == "fixture"
    assert told == (["fixture"] if once else [])


def test_ctrl_c_shows_its_last_frames_unless_all_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[object] = []
    monkeypatch.setattr(session, "collect_less", lambda config: did.append("less"))
    monkeypatch.setattr(session, "only_where", did.append)
    gate = gate_of()
    gate.pytest_keyboard_interrupt("interrupt")
    gate.config.option.fulltrace = True
    gate.pytest_keyboard_interrupt("interrupt")
    assert did == ["less", "interrupt", "less"]
