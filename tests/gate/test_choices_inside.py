"""Choices that a test's function meets inside: each is decided there, apart from the capture, before it is called."""

from __future__ import annotations

import shutil
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import triton
from fake_runs import N, increment_kernel, scale_kernel

import kerntune
from gate.doubling import Doubling, add_kernel, checked
from gate.project import Project
from kerntune.capture import entry_points
from kerntune.errors import MeasurementError
from kerntune.gpu.script import Rule
from kerntune.tuning import context
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.choices import deciding

RULES = (Rule("scale_kernel", time_ns=1000.0), Rule("add_kernel", time_ns=3000.0))


@pytest.fixture
def doubling() -> Doubling:
    """Of which the second one wins: it isn't what an undecided call goes to."""
    found = Doubling()
    found.ns = {"scaled": 3e5, "added": 1e5}
    return found


@pytest.fixture(autouse=True)
def undecided_is_an_error(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(deciding, "_said", set())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*called undecided")
        yield


def hows(choice: Any) -> list[str]:
    return [f"{d.winner.rpartition('.')[2]} {d.how}" for d in choice.operation.decisions]


def kernels(result: Any) -> list[str]:
    return [launch.kernel for launch in result.launches]


@pytest.mark.slow
def test_it_is_decided_and_the_winner_alone_is_captured(tmp_path: Path, doubling: Doubling) -> None:
    calls: list[int] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return doubling.double(x)

    result = checked(Project(tmp_path), doubling, call)
    assert hows(doubling.double) == ["added raced"]
    assert kernels(result) == ["add_kernel"]
    assert calls == [1]
    (line,) = [text for text in result.remarks if text.startswith("choice ")]
    assert "added 100 µs" in line
    assert "scaled 300 µs" in line


@pytest.mark.slow
def test_launches_before_and_after_it_are_the_calls(tmp_path: Path, doubling: Doubling) -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        scale_kernel[(N // 128,)](x, y, N, 3.0, BLOCK=128)
        z = doubling.double(y)
        scale_kernel[(N // 128,)](z, y, N, 3.0, BLOCK=128)
        return y

    assert kernels(checked(Project(tmp_path), doubling, call)) == ["scale_kernel", "add_kernel", "scale_kernel"]


def test_a_module_whose_forward_calls_one(tmp_path: Path, doubling: Doubling) -> None:
    class Layer(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return doubling.double(x)

    result = checked(Project(tmp_path), doubling, torch.nn.Sequential(Layer(), Layer()))
    assert hows(doubling.double) == ["added raced"]
    assert kernels(result) == ["add_kernel", "add_kernel"]


def test_a_later_run_reads_it(tmp_path: Path, doubling: Doubling) -> None:
    project = Project(tmp_path)
    checked(project, doubling, lambda x: doubling.double(x))
    doubling.forget()
    second = checked(project, doubling, lambda x: doubling.double(x))
    assert hows(doubling.double) == ["added raced", "added stored"]
    assert second.verdict.value == "PASS"


def test_what_it_writes_is_written_once(tmp_path: Path, doubling: Doubling) -> None:
    """The tensor is the function's own, and holds what was computed before."""
    total, scale = torch.ones(4), doubling.double.operation.implementations[0].fn

    def one(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        total.add_(2)
        return scale(x)

    def other(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        total += 2
        return doubling.double(x)

    both = kerntune.choice([one, other], key=["total"])(lambda x, total: None)
    seen: list[list[float]] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        seen.append(total.mul_(5).tolist())
        y = both(x, total)
        seen.append(total.tolist())
        return y

    checked(Project(tmp_path), doubling, call)
    assert seen == [[5.0] * 4, [7.0] * 4]


def test_a_choice_of_choices(tmp_path: Path, doubling: Doubling) -> None:
    scaled = doubling.double.operation.implementations[0].fn

    def through(x: torch.Tensor) -> torch.Tensor:
        return doubling.double(x)

    outer = kerntune.choice([scaled, through], key=["x"])(lambda x: None)
    result = checked(Project(tmp_path), doubling, lambda x: outer(x))
    assert (hows(outer), hows(doubling.double)) == (["through raced"], ["added raced"])
    assert kernels(result) == ["add_kernel"]
    assert len([text for text in result.remarks if text.startswith("choice ")]) == 2


def test_in_a_backward_that_runs_in_another_thread(tmp_path: Path, doubling: Doubling) -> None:
    """As torch runs those of a GPU's tensors, while the calling thread waits."""
    found: list[Any] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=lambda: found.append(doubling.double(x)), daemon=True)
        thread.start()
        thread.join(60.0)
        assert not thread.is_alive()
        return found[0]  # type: ignore[no-any-return]

    result = checked(Project(tmp_path), doubling, call)
    assert hows(doubling.double) == ["added raced"]
    assert kernels(result) == ["add_kernel"]


@pytest.mark.slow
def test_what_other_threads_of_the_function_launch_meanwhile_waits(tmp_path: Path, doubling: Doubling) -> None:
    """Both meet a choice; the second one comes while the first one's is being decided, and launches before."""
    scaled, added = (one.fn for one in doubling.double.operation.implementations)
    deciding = threading.Event()

    def at_last(x: torch.Tensor) -> torch.Tensor:
        deciding.set()
        return scaled(x)  # type: ignore[no-any-return]

    first = kerntune.choice([at_last, added], key=["x"])(lambda x: None)
    found: list[Any] = []

    def other(x: torch.Tensor) -> None:
        assert deciding.wait(60.0)
        y = torch.empty_like(x)
        increment_kernel[(N // 128,)](y, N, BLOCK=128)
        found.append(doubling.double(y))

    def call(x: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=other, args=(x,), daemon=True)
        thread.start()
        y = first(x)
        thread.join(60.0)
        assert not thread.is_alive()
        return y  # type: ignore[no-any-return]

    result = checked(Project(tmp_path), doubling, call)
    assert (hows(first), hows(doubling.double)) == (["added raced"], ["added raced"])
    assert sorted(kernels(result)) == ["add_kernel", "add_kernel", "increment_kernel"]
    assert len([text for text in result.remarks if text.startswith("choice ")]) == 2


def test_a_decision_that_waits_for_a_thread_that_was_there_before(
    tmp_path: Path, doubling: Doubling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither waits for ever, and what can't be told from the function's own launches is no silent loss."""
    monkeypatch.setattr(entry_points, "PATIENCE_S", 0.2)
    scaled, added = (one.fn for one in doubling.double.operation.implementations)

    def call(x: torch.Tensor) -> torch.Tensor:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(int).result()

            def pooled(x: torch.Tensor) -> torch.Tensor:
                return pool.submit(scaled, x).result()

            return kerntune.choice([pooled, added], key=["x"])(lambda x: None)(x)  # type: ignore[no-any-return]

    result = checked(Project(tmp_path), doubling, call)
    assert result.verdict.value == "INCOMPLETE"
    assert "scale_kernel in a thread of its own, unrecorded while another thread decided a choice" in result.message
    assert "run it again, or call the choice before" in result.message


def test_in_a_backward_function(tmp_path: Path, doubling: Doubling) -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, host: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            ctx.x = x
            return host * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
            doubling.double(ctx.x)
            return gradient * 2, None

    host = torch.ones(3, requires_grad=True)
    result = checked(Project(tmp_path), doubling, lambda x: Twice.apply(host, x).sum().backward())
    assert hows(doubling.double) == ["added raced"]
    assert kernels(result) == ["add_kernel"]
    assert host.grad is not None
    assert host.grad.tolist() == [2.0] * 3


def test_each_key_of_a_call_is_named(tmp_path: Path, doubling: Doubling) -> None:
    scaled, added = (one.fn for one in doubling.double.operation.implementations)

    def small(x: torch.Tensor, rows: int) -> torch.Tensor:
        doubling.run.gpu._clock += 10.0 if rows < 8 else 1e6
        return scaled(x)  # type: ignore[no-any-return]

    def large(x: torch.Tensor, rows: int) -> torch.Tensor:
        return added(x)  # type: ignore[no-any-return]

    double = kerntune.choice([small, large], key=["rows"])(lambda x, rows: None)
    doubling.ns = {"scaled": 1e5, "added": 3e5}
    project = Project(tmp_path)
    result = checked(project, doubling, lambda x: double(double(x, 2), 64))
    assert [h.partition(" ")[0] for h in hows(double)] == ["small", "large"]
    assert kernels(result) == ["scale_kernel", "add_kernel"]
    (baseline,) = project.files("**/*.json")
    stored = msgspec.json.decode(baseline.read_bytes())["recording"]["choices"]
    assert sorted(v.rpartition(".")[2] for v in stored.values()) == ["large", "small"]
    assert all("rows=" in name for name in stored)


@pytest.mark.slow
def test_a_kernel_that_an_implementation_tunes_first_inside(
    tmp_path: Path, doubling: Doubling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tuned while the choice is decided, so the capture launches its winner."""
    scaled = doubling.double.operation.implementations[0].fn
    double = kerntune.choice([scaled, doubling.tuned_inside()], key=["x"])(lambda x: None)
    project = Project(tmp_path)
    slow = Rule("add_kernel", {"BLOCK": 64}, time_ns=9000.0)
    with project.run(slow, *RULES) as run:
        monkeypatch.setattr(context, "this_gpu", lambda: run.session.backend)
        doubling.run = run
        result = run.judge(lambda x: double(x), torch.empty(N, device="cuda"))
    (decision,) = double.operation.decisions
    assert not decision.left_out
    assert [(x.kernel, x.config.kwargs) for x in result.launches] == [("add_kernel", {"BLOCK": 128})]


def test_the_device_is_not_shared_while_it_is_decided(
    tmp_path: Path, doubling: Doubling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that shares a device may not ask for it alone, as a race does. Then the capture shares it again."""
    with Project(tmp_path).run(*RULES) as run:
        gpu: Any = run.session.backend.gpu
        gpu.spec = msgspec.structs.replace(gpu.spec, uuid=f"choices-{tmp_path.name}")
        doubling.run = run

        def call(x: torch.Tensor) -> torch.Tensor:
            with pytest.raises(MeasurementError, match="this thread shares a GPU"), gpu.lock(0.1):
                pass
            y = doubling.double(x)
            with pytest.raises(MeasurementError, match="this thread shares a GPU"), gpu.lock(0.1):
                pass
            return y  # type: ignore[no-any-return]

        run.judge(call, torch.empty(N, device="cuda"))
    assert hows(doubling.double) == ["added raced"]


@pytest.mark.parametrize("what", ["choice", "tuned kernel"])
def test_a_reference_may_need_the_device_alone(
    tmp_path: Path, doubling: Doubling, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It is computed after the capture, and not while that holds its side of the device."""
    tuned = kerntune.autotune([triton.Config({"BLOCK": b}) for b in (64, 128)], key=["n"])(add_kernel)

    with Project(tmp_path).run(*RULES) as run:
        monkeypatch.setattr(context, "this_gpu", lambda: run.session.backend)
        gpu: Any = run.session.backend.gpu
        gpu.spec = msgspec.structs.replace(gpu.spec, uuid=f"reference-{tmp_path.name}")
        doubling.run = run
        x = torch.empty(N, device="cuda")

        def reference() -> torch.Tensor:
            if what == "choice":
                doubling.double(x)
            else:
                tuned[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](x, torch.empty_like(x), N)
            return x

        result = run.judge(doubling.double.operation.implementations[0].fn, x, reference=reference)
    assert kernels(result) == ["scale_kernel"]


def test_one_that_all_refuse_is_raised_and_the_next_test_is_captured(tmp_path: Path, doubling: Doubling) -> None:
    def refuses(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("only multiples of 8")

    def refuses_too(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("only multiples of 9")

    none = kerntune.choice([refuses, refuses_too], key=["x"])(lambda x: None)
    project = Project(tmp_path)
    with pytest.raises(ValueError, match="only multiples of 8"):
        checked(project, doubling, lambda x: none(x))
    assert kernels(checked(project, doubling, lambda x: doubling.double(x))) == ["add_kernel"]


def test_the_tests_own_verification_counts(tmp_path: Path, doubling: Doubling) -> None:
    scaled, added = (one.fn for one in doubling.double.operation.implementations)

    def near(x: torch.Tensor, host: torch.Tensor) -> torch.Tensor:
        added(x)
        return host * (1 + 2**-23)

    def exact(x: torch.Tensor, host: torch.Tensor) -> torch.Tensor:
        scaled(x)
        return host.clone()

    same = kerntune.choice([exact, near], key=["x"])(lambda x, host: None)
    host = torch.ones(3)
    project = Project(tmp_path)
    assert kernels(checked(project, doubling, lambda x: same(x, host))) == ["add_kernel"]
    with project.run(*RULES) as run:
        doubling.run = run
        policy = msgspec.structs.replace(run.session.settings.policy, verify="bitwise")
        with pytest.warns(RuntimeWarning, match="near is left out.*other bits"):
            result = run.judge(lambda x: same(x, host), torch.empty(N, device="cuda"), policy=policy)
    assert kernels(result) == ["scale_kernel"]


@pytest.mark.parametrize("call", ["direct", "inside"])
@pytest.mark.parametrize(("scaled_ns", "winner"), [(1e5, "added"), (2e5, "scaled")])
def test_ties_go_to_the_baselines_implementation_with_an_empty_cache(
    tmp_path: Path, doubling: Doubling, call: str, scaled_ns: float, winner: str
) -> None:
    """As on another runner of the same kind: what can't be told apart by time is no change."""
    fn = doubling.double if call == "direct" else lambda x: doubling.double(x)
    project = Project(tmp_path)
    checked(project, doubling, fn)
    shutil.rmtree(tmp_path / "cache")
    doubling.forget()
    doubling.ns = {"scaled": scaled_ns, "added": 1e5 if winner == "added" else 4e5}
    result = checked(project, doubling, fn)
    assert hows(doubling.double) == ["added raced", f"{winner} raced"]
    assert (result.verdict.value == "PASS") is (winner == "added")


# kept apart from what the program decides


def plain(doubling: Doubling, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A call of a program, or of a test outside of autotune(...)."""
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "users"))
    with Project(tmp_path / "other").run(*RULES) as run:
        monkeypatch.setattr(context, "this_gpu", lambda: run.session.backend)
        doubling.run = run
        doubling.double(torch.empty(N, device="cuda"))


@pytest.mark.parametrize("call", ["direct", "inside"])
def test_a_plain_call_before_does_not_decide_for_the_gate(
    tmp_path: Path, doubling: Doubling, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    doubling.ns = {"scaled": 1e5, "added": 3e5}
    plain(doubling, monkeypatch, tmp_path)
    doubling.ns = {"scaled": 3e5, "added": 1e5}
    fn = doubling.double if call == "direct" else lambda x: doubling.double(x)
    result = checked(Project(tmp_path / "gated"), doubling, fn)
    assert hows(doubling.double) == ["scaled raced", "added raced"]
    assert kernels(result) == ["add_kernel"]
    assert len(WinnerCache().entries()) == 1


def test_the_gate_does_not_decide_for_a_plain_call_after(
    tmp_path: Path, doubling: Doubling, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kerntune.fingerprint()
    checked(Project(tmp_path / "gated"), doubling, doubling.double)
    assert kerntune.fingerprint() == before
    doubling.ns = {"scaled": 1e5, "added": 3e5}
    plain(doubling, monkeypatch, tmp_path)
    assert hows(doubling.double) == ["added raced", "scaled raced"]


def test_a_whole_operation_is_timed_with_what_was_decided_for_it(
    tmp_path: Path, doubling: Doubling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "users"))
    with Project(tmp_path).run(*RULES) as run:
        monkeypatch.setattr(context, "this_gpu", lambda: run.session.backend)
        doubling.run = run
        run.judge(lambda x: doubling.double(x), torch.empty(N, device="cuda"), scope="op")
    assert hows(doubling.double) == ["added raced"]
