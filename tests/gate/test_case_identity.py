"""Which case a call is, and what it may have been called before, by baselines made by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
import triton
import triton.language as tl
from cli import made
from doubles import raising
from fake_runs import N, block, by_block, configs, scale_kernel, scaled, x_of

from gate.project import NODE, Project, Run
from kerntune.base.case_result import CaseId
from kerntune.base.codec import to_json
from kerntune.base.config import Config
from kerntune.base.device import Target
from kerntune.base.policy import Policy, Update, Verdict
from kerntune.errors import BaselineError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import Argument, Baseline, Calibration, StaticBaseline, TimeBaseline
from kerntune.gate.call import PendingBaseline
from kerntune.gate.case_identity import (
    MAX_DEPTH,
    Renames,
    case_inputs,
    kernel_hashes,
    leaves,
    make_moves,
    move_command,
    moves_of,
    nearest_difference,
    nearest_of_run,
    renamed_to,
    tensor_arguments,
)
from kerntune.gate.stores import ReferenceStore

OLD, NEW, FAR = (f"tests/test_softmax.py::{name}" for name in ("test_wide", "test_wider", "check_something_else"))


def case(nodeid: str, call: str = "0") -> CaseId:
    return CaseId(nodeid, call)


def with_changes(pending: PendingBaseline, **changes: Any) -> PendingBaseline:
    return PendingBaseline(msgspec.structs.replace(pending.baseline, **changes), pending.artifacts, write=True)


def configured(node: str, *blocks: int) -> PendingBaseline:
    """A time baseline whose launches have these configs."""
    pending = made.timed(node)
    assert isinstance(pending.baseline, TimeBaseline)
    recording = pending.baseline.recording
    launches = tuple(
        msgspec.structs.replace(recording.launches[0], config=Config({"BLOCK": n}) if n else None) for n in blocks
    )
    return with_changes(pending, recording=msgspec.structs.replace(recording, launches=launches))


FINGERPRINT = made.timed().baseline.fingerprint


def renames(*stores: BaselineStore, update: Update = Update.NONE, gone: Any = lambda nodeid: True) -> Renames:
    return Renames(stores, update, gone)


def settled(found: Renames, node: str, tmp_path: Path, like: Baseline | None = None) -> Any:
    baseline = like or made.timed().baseline
    assert isinstance(baseline, TimeBaseline)
    return found.settle(case(node), baseline.fingerprint, baseline.recording, tmp_path / "none.json")


# the tensors of a call


class Tensor:
    def __init__(self, n: int) -> None:
        self.shape, self.dtype = (n,), "torch.float32"

    def stride(self) -> tuple[int]:
        return (1,)


class dtype:
    def __str__(self) -> str:
        return "torch.float16"


class TensorDescriptor:
    def __init__(self, base: Any) -> None:
        self.base = base


BACKEND: Any = SimpleNamespace(tensors=SimpleNamespace(is_tensor=lambda value: isinstance(value, Tensor)))


def test_tensors_are_found_in_containers_partial_functions_modules_and_descriptors() -> None:
    module = SimpleNamespace(parameters=lambda: [Tensor(3)], buffers=lambda: iter([Tensor(4)]))
    other = SimpleNamespace(base=Tensor(9), buffers=lambda: [Tensor(10)])
    half = SimpleNamespace(parameters=lambda: [Tensor(11)])
    tree = (
        [Tensor(1)], {"a": Tensor(2)}, module, functools.partial(print, Tensor(5), x=Tensor(6)),
        TensorDescriptor(Tensor(7)), dtype(), other, half, 8, None,
    )  # fmt: skip
    found = tensor_arguments(BACKEND, tree)
    assert [one.shape for one in found] == [(1,), (2,), (3,), (4,), (5,), (6,), (7,), ()]
    assert found[0] == Argument("float32", (1,), (1,))
    assert found[-1] == Argument("float16", (), ())


@pytest.mark.parametrize("names", [["func"], ["func", "args"], ["func", "keywords"], ["args", "keywords"]])
def test_an_argument_that_has_some_names_of_a_partial_function_is_none(names: list[str]) -> None:
    """A wrapped function has ``func``, a parsed command ``args``: nothing of them is an argument of the call."""
    assert tensor_arguments(BACKEND, SimpleNamespace(**{name: [Tensor(1)] for name in names})) == ()


@pytest.mark.parametrize(("depth", "count"), [(0, 1), (MAX_DEPTH, 1), (MAX_DEPTH + 1, 0)])
def test_what_lies_deeper_is_not_looked_for(depth: int, count: int) -> None:
    tree: Any = Tensor(1)
    for _ in range(depth):
        tree = [tree]
    assert len(leaves(BACKEND, tree)) == count
    assert MAX_DEPTH == 6


# inputs of a closure

X, Y, Z = (Argument("float32", (n,), (1,)) for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("known", "found"),
    [
        ([], (X, Y)),
        ([(X, Y), (X, Y, Z)], (X, Y)),
        ([(X, Y, Z)], (X, Y, Z)),
        ([(X,)], (X,)),
        ([(Y, X)], (Y, X)),
        ([(X,), (Y,)], (X, Y)),
        ([(X, Z)], (X, Y)),
        ([(X, Z), (Y,)], (Y,)),
    ],
    ids=["none", "its own", "one less now", "one more now", "in another order", "ambiguous", "another", "one of two"],
)
def test_an_added_or_dropped_input_is_the_same_case(
    monkeypatch: pytest.MonkeyPatch, known: list[Any], found: Any
) -> None:
    from kerntune.gate import case_identity

    monkeypatch.setattr(case_identity, "inputs_of", lambda recording: (X, Y))
    store: Any = SimpleNamespace(known_arguments=lambda target, case: set(known))
    recording: Any = None
    assert case_inputs(store, made.CUDA90, case(OLD), recording) == found


# what a case was called before


def test_only_the_projects_own_folder_has_old_names(tmp_path: Path) -> None:
    """An anchor is moved with a case, and says nothing about names."""
    own = made.folder(tmp_path / "own", configured(OLD, 512))
    anchor = made.folder(tmp_path / "anchor", configured(FAR, 128))
    assert renames(own, anchor).configs(case(NEW), FINGERPRINT) == {"softmax_kernel": [Config({"BLOCK": 512})]}
    assert renames(made.folder(tmp_path / "empty"), anchor).configs(case(NEW), FINGERPRINT) == {}


def test_configs_of_the_most_similar_name_come_first_each_once(tmp_path: Path) -> None:
    store = made.folder(tmp_path / "own", configured(FAR, 128, 512), configured(OLD, 512, 0, 256))
    blocks = [c.kwargs["BLOCK"] for c in renames(store).configs(case(NEW), FINGERPRINT)["softmax_kernel"]]
    assert blocks == [512, 256, 128]
    blocks = [c.kwargs["BLOCK"] for c in renames(store).configs(case(FAR), FINGERPRINT)["softmax_kernel"]]
    assert blocks == [128, 512, 256]


@pytest.mark.parametrize("why", ["another shape", "a test that is there", "nobody knows what is gone"])
def test_other_cases_are_no_candidates(tmp_path: Path, why: str) -> None:
    store = made.folder(tmp_path / "own", configured(OLD, 512))
    gone = None if why == "nobody knows what is gone" else lambda nodeid: why == "another shape"
    found = Renames((store,), gone=gone)
    assert found.configs(case(NEW), "0" * 16 if why == "another shape" else FINGERPRINT) == {}
    assert found.configs(case(NEW), None) == {}


def test_a_static_baseline_has_configs_too(tmp_path: Path) -> None:
    store = made.folder(tmp_path / "own", made.static(OLD, config=Config({"BLOCK": 64})))
    assert renames(store).configs(case(NEW), FINGERPRINT) == {"softmax_kernel": [Config({"BLOCK": 64})]}


def test_the_old_time_is_that_of_the_same_device_and_the_most_similar_name(tmp_path: Path) -> None:
    elsewhere = msgspec.structs.replace(made.H200, name="NVIDIA A100")
    pending = made.timed(OLD, times=(1.0,)), made.timed(FAR, times=(2.0,)), made.static(NEW)
    store = made.folder(tmp_path / "own", *pending, with_changes(made.timed(NEW, times=(3.0,)), device=elsewhere))
    found = renames(store).timed_before(case(NEW), FINGERPRINT, made.H200)
    assert found is not None
    assert found.sample.times_ns == (1.0,)
    far = renames(store).timed_before(case(FAR), FINGERPRINT, elsewhere)
    assert far is not None
    assert far.sample.times_ns == (3.0,)
    none = msgspec.structs.replace(made.H200, name="NVIDIA L4")
    assert renames(store).timed_before(case(NEW), FINGERPRINT, none) is None


def test_the_folder_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = made.folder(tmp_path / "own", configured(OLD, 512))
    summaries, reads = store.summaries, []
    monkeypatch.setattr(store, "summaries", lambda paths: reads.append(1) or summaries(paths))
    found = renames(store)
    assert found.configs(case(NEW), FINGERPRINT) == found.configs(case(NEW), FINGERPRINT) != {}
    assert len(reads) == 1


def test_an_old_name_is_taken_once_and_told_again_for_its_case(tmp_path: Path) -> None:
    found = renames(made.folder(tmp_path / "own", made.timed(OLD), made.timed(FAR)))
    first = settled(found, NEW, tmp_path)
    second = settled(found, "tests/test_softmax.py::test_other", tmp_path)
    assert first.said.startswith(f"renamed from {OLD}? `kerntune baselines mv {OLD} {NEW}` keeps")
    assert second.said.startswith(f"renamed from {FAR}?")
    assert settled(found, NEW, tmp_path) == first
    assert settled(found, "tests/test_softmax.py::test_other", tmp_path) == second
    assert settled(found, "tests/test_softmax.py::test_third", tmp_path).said == ""
    assert (first.taken, first.remarks, settled(found, "t.py::x", tmp_path).remarks) == (False, (first.said,), ())


def test_a_case_with_a_baseline_was_not_renamed(tmp_path: Path) -> None:
    found = renames(made.folder(tmp_path / "own", made.timed(OLD)))
    (tmp_path / "none.json").write_text("{}")
    assert settled(found, NEW, tmp_path).said == ""


@pytest.mark.parametrize("update", list(Update))
def test_baselines_are_taken_over_where_that_is_asked(tmp_path: Path, update: Update) -> None:
    own, anchor = (made.folder(tmp_path / name, made.timed(OLD), made.static(OLD)) for name in ("own", "anchor"))
    result = settled(renames(own, anchor, update=update), NEW, tmp_path)
    taken = update in (Update.ALL, Update.NEW, Update.RENAMED)
    assert result.taken is taken
    if taken:
        assert result.said == f"renamed from {OLD}, whose baselines were taken over"
    for store in (own, anchor):
        assert [b.case.nodeid for _, b in store.summaries() if not isinstance(b, Exception)] == (
            [NEW if taken else OLD] * 2
        )


def test_what_another_process_has_moved_is_not_taken_over_again(tmp_path: Path) -> None:
    store = made.folder(tmp_path / "own", made.timed(OLD))
    found = renames(store, update=Update.RENAMED)
    assert found.configs(case(NEW), FINGERPRINT)
    for path in store.time_files():
        path.unlink()
    assert settled(found, NEW, tmp_path).said == ""


def test_a_folder_that_cant_be_written_leaves_old_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = made.folder(tmp_path / "own", made.timed(OLD))

    monkeypatch.setattr(store, "write", raising(BaselineError("read-only")))
    assert not settled(renames(store, update=Update.RENAMED), NEW, tmp_path).taken
    assert len(store.time_files()) == 1


# moves


def nodes(store: BaselineStore) -> list[str]:
    return sorted(b.case.nodeid for _, b in store.summaries() if not isinstance(b, Exception))


def test_names_can_be_exchanged(tmp_path: Path) -> None:
    store = made.folder(tmp_path / "own", configured(OLD, 128), configured(NEW, 512))
    moves = moves_of(store, {case(OLD): case(NEW), case(NEW): case(OLD), case(FAR): case(FAR)})
    assert [move.replaces for move in moves] == [None, None]
    make_moves(moves)
    assert nodes(store) == [OLD, NEW]
    found = store.time(made.H200, case(NEW), FINGERPRINT)
    assert found is not None
    assert found.recording.launches[0].config == Config({"BLOCK": 128})


def test_a_case_that_keeps_its_name_is_not_moved(tmp_path: Path) -> None:
    store = made.folder(tmp_path / "own", made.timed(OLD))
    assert moves_of(store, {case(OLD): case(OLD)}) == moves_of(store, {}) == []


@pytest.mark.parametrize("same", [True, False])
def test_only_a_baseline_of_other_work_is_lost(tmp_path: Path, same: bool) -> None:
    store = made.folder(tmp_path / "own", made.timed(OLD), configured(NEW, *([512] if same else [512, 128])))
    (move,) = moves_of(store, {case(OLD): case(NEW)})
    assert move.replaces is not None
    assert move.loses is (not same)
    assert move.destination == store.path_of(move.renamed) == store.time_path(made.H200, case(NEW), FINGERPRINT)
    assert move.renamed.case == case(NEW)
    make_moves([move])
    assert nodes(store) == [NEW]


def test_a_move_to_an_unused_name_loses_nothing(tmp_path: Path) -> None:
    store = made.folder(tmp_path / "own", made.static(OLD))
    (move,) = moves_of(store, {case(OLD): case(NEW)})
    assert (move.replaces, move.loses) == (None, False)
    assert move.destination == store.static_path(made.CUDA90, "3.9", case(NEW), FINGERPRINT)


def test_both_kinds_of_baselines_name_kernels_alike() -> None:
    timed, static = made.timed().baseline, made.static().baseline
    assert isinstance(static, StaticBaseline)
    assert kernel_hashes(timed) == kernel_hashes(static) == (("softmax_kernel", "5" * 64),)


# where a stale baseline's case went

LATER, EARLIER = "2026-01-02T03:04:06Z", "2026-01-02T03:04:04Z"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"recorded": LATER}, True),
        ({"recorded": EARLIER}, False),
        ({}, False),
        ({"recorded": LATER, "fingerprint": "0" * 16}, False),
        ({"recorded": LATER, "kernel": "other"}, False),
    ],
    ids=["later", "earlier", "at once", "another shape", "another kernel"],
)
def test_a_later_case_of_the_same_work_may_be_its_new_name(changes: dict[str, Any], found: bool) -> None:
    kernel = changes.pop("kernel", None)
    living = msgspec.structs.replace(made.static(NEW).baseline, **changes)
    assert isinstance(living, StaticBaseline)
    if kernel:
        living = msgspec.structs.replace(living, launches=(msgspec.structs.replace(living.launches[0], kernel=kernel),))
    text = f", renamed to {NEW}? {move_command(case(OLD), case(NEW))} keeps what is known of it"
    assert renamed_to(made.static(OLD).baseline, [living]) == (text if found else "")


def test_of_several_the_most_similar_name_is_told() -> None:
    living = [msgspec.structs.replace(made.static(n).baseline, recorded=LATER) for n in (FAR, NEW, "t.py::x")]
    assert f"renamed to {NEW}? " in renamed_to(made.static(OLD).baseline, living)


def test_a_command_for_names_with_spaces_can_be_pasted() -> None:
    assert move_command(case("t.py::a[b c]"), case("t.py::d", "add")) == (
        "`kerntune baselines mv 't.py::a[b c]' t.py::d::add`"
    )


# a case that was renamed and edited: likely, not known


def hinted(
    tmp_path: Path, node: str = NEW, kernel: str = "softmax_kernel", n: int = 4096, update: Update = Update.NONE
) -> Any:
    """What is said of a case whose kernel has another source than that of OLD's baseline."""
    old, today = made.timed(OLD), made.timed(node, n=n).baseline
    assert isinstance(today, TimeBaseline)
    launches = tuple(msgspec.structs.replace(x, kernel=kernel, source="f" * 64) for x in today.recording.launches)
    edited = msgspec.structs.replace(today.recording, launches=launches)
    found = renames(made.folder(tmp_path / "own", old), update=update)
    return found.settle(case(node), today.fingerprint, edited, tmp_path / "none.json", today.arguments)


@pytest.mark.parametrize(
    ("node", "kernel"),
    [
        pytest.param(NEW, "softmax_kernel", id="test"),
        pytest.param(NEW, "soft_kernel", id="test and kernel"),
        pytest.param("kernels/test_norms.py::test_rows", "softmax_kernel", id="another file"),
    ],
)
def test_a_renamed_and_edited_case_is_hinted_at(tmp_path: Path, node: str, kernel: str) -> None:
    found = hinted(tmp_path, node, kernel, 4096)
    assert found.said == (
        f"renamed from {OLD} and edited? `kerntune baselines mv {OLD} {node}` holds it against what is known of it, "
        "--kerntune-update=new records it as a new case"
    )
    assert (found.edited, found.taken, found.remarks) == (True, False, (found.said,))


@pytest.mark.parametrize(
    ("node", "kernel", "n"),
    [
        pytest.param("other/test_norms.py::test_rows", "add_kernel", 4096, id="only tensors"),
        pytest.param("other/test_norms.py::test_rows", "softmax_kernel", 64, id="only the kernel"),
        pytest.param(NEW, "add_kernel", 64, id="only the test"),
    ],
)
def test_one_thing_in_common_is_no_hint(tmp_path: Path, node: str, kernel: str, n: int) -> None:
    assert hinted(tmp_path, node, kernel, n).said == ""


@pytest.mark.parametrize("update", list(Update))
def test_what_may_have_been_edited_is_never_taken_over(tmp_path: Path, update: Update) -> None:
    found = hinted(tmp_path, update=update)
    assert (found.edited, found.taken) == (True, False)
    assert [b.case for _, b in BaselineStore(tmp_path / "own").readable()] == [case(OLD)]


def test_a_test_that_is_still_there_was_not_renamed(tmp_path: Path) -> None:
    today = made.timed(NEW).baseline
    assert isinstance(today, TimeBaseline)
    found = renames(made.folder(tmp_path / "own", made.timed(OLD)), gone=lambda nodeid: False)
    other = msgspec.structs.replace(today.recording.launches[0], source="f" * 64)
    edited = msgspec.structs.replace(today.recording, launches=(other,))
    assert found.settle(case(NEW), today.fingerprint, edited, tmp_path / "none.json", today.arguments).said == ""


# a call that takes no tensors itself stays the same case where an edit adds or drops what its kernels read


@triton.jit
def one_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i) * 2)


@triton.jit
def two_kernel(x_ptr, w_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i) * tl.load(w_ptr))


@triton.jit
def broken_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i).to(tl.float32) * "2")


def launching(kernel: Any, n: int = N, scalars: int = 0) -> Callable[[], torch.Tensor]:
    x, w, y = torch.randn(n, device="cuda"), torch.randn(1, device="cuda"), torch.empty(n, device="cuda")

    def call() -> torch.Tensor:
        kernel[(n // 64,)](x, *[w] * scalars, y, BLOCK=64)
        return y

    return call


def one(n: int = N) -> Callable[[], torch.Tensor]:
    return launching(one_kernel, n)


def two(n: int = N) -> Callable[[], torch.Tensor]:
    return launching(two_kernel, n, scalars=1)


@pytest.mark.parametrize(("before", "after"), [(one, two), (two, one)])
def test_an_input_more_or_less_is_no_new_case(project: Project, before: Any, after: Any) -> None:
    with project.static_run("cuda:90") as run:
        assert run.check(before()).commit().recorded
    with project.static_run("cuda:90") as run:
        result = run.check(after()).commit()
        stale = run.session.stale([result.case.nodeid], True)
    assert (result.verdict, stale) == (Verdict.PASS, [])
    with project.static_run("cuda:90", update=Update.ALL) as run:
        assert run.check(after()).commit().recorded
    assert len(project.files()) == 1
    with project.static_run("cuda:90") as run:
        assert run.check(after(2 * N)).commit().verdict is Verdict.NEW


def test_nor_on_a_gpu(project: Project) -> None:
    rule = block(64, 10_000.0)
    assert project.once(rule).judge(one()).recorded
    with project.run(rule) as run:
        assert run.judge(two()).verdict is Verdict.PASS
        assert run.judge(two(2 * N)).verdict is Verdict.NEW


def test_what_is_not_compiled_any_more_is_not_stale(project: Project) -> None:
    with project.static_run("cuda:90") as run:
        assert run.check(one()).commit().recorded
    with project.static_run("cuda:90") as run:
        result = run.check(launching(broken_kernel)).commit()
        stale = run.session.stale([result.case.nodeid], True)
    assert (result.verdict, stale) == (Verdict.REGRESSED, [])


def test_two_that_may_be_meant_are_none(project: Project) -> None:
    """x with w, and x of another length with w: a call that reads w alone is neither."""
    for n in (N, 2 * N):
        with project.static_run("cuda:90") as run:
            assert run.check(two(n)).commit().verdict is Verdict.NEW
    with project.static_run("cuda:90") as run:
        assert run.check(one(1)).commit().verdict is Verdict.NEW
        assert run.check(two(2 * N)).commit().verdict is Verdict.PASS


def test_a_yardstick_without_the_case_knows_none(project: Project) -> None:
    result = project.static_once("cuda:90").judge(one())
    own, target = BaselineStore(project.baselines, project.root), Target.parse("cuda:90")
    known = {(Argument("float32", (N,), (1,)),)}
    assert own.known_arguments(target, result.case) == known
    elsewhere = project.root / "elsewhere"
    assert ReferenceStore(elsewhere, "main").known_arguments(target, result.case) == set()
    project.files()[0].write_text("{")
    assert own.known_arguments(target, result.case) == set()


# what tells a call's tensors from those of its nearest stored case


def tensor(*shape: int, dtype: str = "float32", strides: tuple[int, ...] = (1,)) -> Argument:
    return Argument(dtype, shape, strides)


A, B, C = tensor(37), tensor(64), tensor(8, 8, strides=(8, 1))


@pytest.mark.parametrize(
    ("today", "told"),
    [
        ((A, B), ""),
        ((tensor(41), B), "tensor 0 has shape (37,) stored and (41,) today"),
        ((A, tensor(64, dtype="int8")), "tensor 1 has dtype float32 stored and int8 today"),
        ((A, tensor(64, strides=(2,))), "tensor 1 has strides (1,) stored and (2,) today"),
        (
            (A, tensor(3, dtype="int8", strides=(2,))),
            "tensor 1 has dtype float32 stored and int8 today and shape (64,) stored and (3,) today",
        ),
        ((A,), ""),
        ((A, B, C), ""),
    ],
)
def test_what_differs(today: tuple[Argument, ...], told: str) -> None:
    assert nearest_difference(today, [(A, B)]) == told


def test_the_nearest_is_the_one_with_the_fewest_tensors_that_differ() -> None:
    stored = [(B, B, B), (A, B, B), (A, A, B, C)]
    assert nearest_difference((A, A, B), stored) == "tensor 1 has shape (64,) stored and (37,) today"
    assert nearest_difference((A, A, B), []) == ""


def test_of_what_a_run_has_met_the_nearest_is_the_same_one() -> None:
    """Not the one of the shortest text: of three tensors that differ two are named."""
    far, near = (A, A, A), (B, B, tensor(*[1000000] * 4, dtype="bfloat16"))
    met = [far, near, (B, B, B), (A,)]
    assert nearest_of_run((B, B, B), met) == nearest_difference(near, [(B, B, B)])
    assert nearest_of_run((B, B, B), [(B, B, B), (A,)]) == ""


@pytest.mark.parametrize(("count", "more"), [(2, ""), (3, ", 1 more differ"), (5, ", 3 more differ")])
def test_two_are_named(count: int, more: str) -> None:
    found = nearest_difference((A,) * count, [(B,) * count])
    two = "tensor {} has shape (64,) stored and (37,) today"
    assert found == f"{two.format(0)}, {two.format(1)}{more}"


# a case whose test was renamed: it is reported, and taken over with the option


SM90, SM80 = "cuda:90", "cuda:80"
OTHER = "tests/test_scale.py::test_other"


def record(project: Project, node: str = NODE, *targets: str) -> None:
    for target in targets or (SM90,):
        assert project.static_once(target).judge(scaled, x_of(), node=node).recorded


def without(run: Run, *gone: str, **options: Any) -> Run:
    """A run that has collected none of these tests."""
    run.session.tests_gone(lambda nodeid: nodeid in gone, **options)
    return run


def stored(project: Project) -> dict[str, list[TimeBaseline | StaticBaseline]]:
    found: dict[str, list[TimeBaseline | StaticBaseline]] = {}
    for _, baseline in BaselineStore(project.baselines, project.root).summaries():
        assert isinstance(baseline, (TimeBaseline, StaticBaseline))
        found.setdefault(baseline.case.nodeid, []).append(baseline)
    return found


def test_a_new_case_says_what_it_was_called(project: Project) -> None:
    record(project)
    with project.static_run(SM90) as run:
        result = without(run, NODE).check(scaled, x_of(), node=OTHER).result
    assert result.verdict is Verdict.NEW
    assert result.message.endswith(
        f"renamed from {NODE}? `kerntune baselines mv {NODE} {OTHER}` keeps what is known of it"
    )
    assert list(stored(project)) == [NODE]
    assert result.remarks[0] in result.message  # the table shows the first remark of a case without findings
    assert result.remarks[0].startswith(f"renamed from {NODE}?")


@pytest.mark.parametrize("change", ["there", "shape", "kernel", "own"])
def test_another_case_is_no_renamed_one(project: Project, change: str) -> None:
    record(project)
    if change == "own":
        record(project, OTHER)

    def other(x: torch.Tensor) -> torch.Tensor:
        return scaled(scaled(x))

    with project.static_run(SM90) as run:
        run = without(run, *([] if change == "there" else [NODE]))
        fn = other if change == "kernel" else scaled
        result = run.check(fn, x_of(2 * N if change == "shape" else N), node=OTHER).result
    assert f"renamed from {NODE}?" not in result.message
    assert ("and edited?" in result.message) == (change == "kernel")


def test_a_renamed_and_edited_case_is_not_recorded_unless_asked(project: Project) -> None:
    """Else the edit would be accepted with the name."""

    def edited(x: torch.Tensor) -> torch.Tensor:
        return scaled(scaled(x))

    record(project)
    for update in (Update.NONE, Update.RENAMED, Update.IMPROVED, Update.REGRESSED):
        with project.static_run(SM90, update=update) as run:
            result = without(run, NODE).check(edited, x_of(), node=OTHER).commit()
        assert (result.verdict, result.recorded, list(stored(project))) == (Verdict.NEW, False, [NODE])
        assert result.remarks[0].startswith(f"renamed from {NODE} and edited? `kerntune baselines mv {NODE} {OTHER}`")
    with project.static_run(SM90, update=Update.NEW) as run:
        result = without(run, NODE).check(edited, x_of(), node=OTHER).commit()
    assert (result.recorded, sorted(stored(project))) == (True, sorted([NODE, OTHER]))


def test_a_renamed_and_edited_case_is_not_recorded_on_a_gpu_either(project: Project) -> None:
    rules = block(64, 10_000.0), block(128, 20_000.0)

    def edited(x: torch.Tensor) -> torch.Tensor:
        return scaled(scaled(x))

    assert project.once(*rules).judge(scaled, x_of()).recorded
    with project.run(*rules) as run:
        result = without(run, NODE).judge(edited, x_of(), node=OTHER)
    assert (result.verdict, result.recorded) == (Verdict.NEW, False)
    assert "and edited?" in result.message


@pytest.mark.parametrize("update", [Update.ALL, Update.NEW, Update.RENAMED])
def test_an_update_takes_all_of_it_over(project: Project, update: Update) -> None:
    record(project, NODE, SM90, SM80)
    before = stored(project)[NODE]
    anchors = project.root / "anchors"
    for path, found in BaselineStore(project.baselines, project.root).summaries():
        copied = anchors / path.relative_to(project.baselines)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_bytes(to_json(found))
    with project.static_run(SM90, update=update, policy=Policy(ci=True)) as run:
        result = without(run, NODE, anchor=anchors).check(scaled, x_of(), node=OTHER).commit()
    assert result.verdict is Verdict.PASS
    assert result.message.endswith(f"renamed from {NODE}, whose baselines were taken over")
    assert result.recorded
    after = stored(project)
    assert list(after) == [OTHER]
    assert len(after[OTHER]) == 2
    if update is not Update.ALL:
        assert [msgspec.structs.replace(b, case=None) for b in after[OTHER]] == [
            msgspec.structs.replace(b, case=None) for b in before
        ]
    assert {b.case.nodeid for _, b in BaselineStore(anchors).summaries()} == {OTHER}  # type: ignore[union-attr]


@pytest.mark.parametrize("update", [Update.NONE, Update.IMPROVED, Update.REGRESSED])
def test_nothing_is_moved_unasked(project: Project, update: Update) -> None:
    record(project)
    with project.static_run(SM90, update=update) as run:
        without(run, NODE).check(scaled, x_of(), node=OTHER)
    assert list(stored(project)) == [NODE]


def test_each_old_name_is_given_once_to_the_likest(project: Project) -> None:
    for n in (1, 2, 3):
        record(project, f"{NODE}[{n}]")
    gone = [f"{NODE}[{n}]" for n in (1, 2, 3)]
    with project.static_run(SM90, update=Update.RENAMED) as run:
        run = without(run, *gone)
        said = [run.check(scaled, x_of(), node=f"{OTHER}[{n}]").result.message for n in (3, 1, 2, 4)]
    assert [f"renamed from {NODE}[{n}]," in text for n, text in zip((3, 1, 2), said, strict=False)] == [True] * 3
    assert "renamed" not in said[3]
    assert sorted(stored(project)) == [f"{OTHER}[{n}]" for n in (1, 2, 3)]


def test_a_name_is_asked_about_once(project: Project) -> None:
    record(project)
    with project.static_run(SM90) as run:
        run = without(run, NODE)
        said = [run.check(scaled, x_of(), node=f"{OTHER}[{n}]").result.message for n in (1, 2, 1)]
    assert ["renamed from" in text for text in said] == [True, False, True]


def test_its_config_is_tried_first(project: Project) -> None:
    """Else another config than the baseline's would be compiled, and be another code."""
    tuned = triton.autotune(configs=configs(64, 128), key=[])(scale_kernel)

    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        tuned[by_block](x, y, N, 2.0)
        return y

    with project.static_run(SM90) as run:
        run.check(call, x_of()).commit()
    (found,) = stored(project)[NODE]
    assert isinstance(found, StaticBaseline)
    (launch,) = found.launches
    assert launch.config is not None
    path = next(iter(project.files()))
    other = msgspec.structs.replace(launch, config=msgspec.structs.replace(launch.config, kwargs={"BLOCK": 128}))
    path.write_bytes(to_json(msgspec.structs.replace(found, launches=(other,))))
    with project.static_run(SM90, update=Update.RENAMED) as run:
        result = without(run, NODE).check(call, x_of(), node=OTHER).result
    assert result.launches[0].config is not None
    assert result.launches[0].config.kwargs == {"BLOCK": 128}


def test_a_stale_baseline_says_where_its_work_is_now(project: Project) -> None:
    record(project)
    (path,) = project.files()
    (found,) = stored(project)[NODE]
    path.write_bytes(to_json(msgspec.structs.replace(found, recorded="2026-01-01T00:00:00Z")))
    with project.static_run(SM90) as run:
        run.check(scaled, x_of(), node=OTHER).commit()
        (stale,) = run.session.stale({OTHER}, selected_all=True)
    assert f"renamed to {OTHER}? `kerntune baselines mv {NODE} {OTHER}` keeps" in stale.message


def test_on_a_gpu_the_time_and_its_calibration_stay(project: Project) -> None:
    project.once(block(64, 10_000.0)).judge(scaled, x_of())
    (path,) = project.files("**/time/**/*.json")
    (found,) = stored(project)[NODE]
    assert isinstance(found, TimeBaseline)
    calibration = Calibration(4, 24, 0.001, 0.0, 0.002)
    path.write_bytes(to_json(msgspec.structs.replace(found, calibration=calibration, recorded="2026-01-01T00:00:00Z")))
    with project.run(block(64, 10_000.0), update=Update.RENAMED) as run:
        result = without(run, NODE).judge(scaled, x_of(), node=OTHER)
    assert result.verdict is Verdict.PASS
    assert result.message.endswith(f"renamed from {NODE}, whose baselines were taken over")
    ((now,),) = stored(project).values()
    assert isinstance(now, TimeBaseline)
    assert (now.case.nodeid, now.calibration, now.recorded) == (OTHER, calibration, "2026-01-01T00:00:00Z")
    assert now.sample == found.sample


def test_on_a_gpu_a_new_case_says_what_it_was_called(project: Project) -> None:
    project.once(block(64, 10_000.0)).judge(scaled, x_of())
    with project.run(block(64, 10_000.0)) as run:
        result = without(run, NODE).judge(scaled, x_of(), node=OTHER)
    assert result.verdict is Verdict.NEW
    assert f"renamed from {NODE}?" in result.message
    assert f"renamed from {NODE}?" in result.remarks[0]
