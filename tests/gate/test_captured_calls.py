"""What is known of a call once it has run: its reference, what can't be checked, which candidate is tried first."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from doubles import raising
from samples import CASE, FINGERPRINT

from kerntune.base.case_result import CaseResult, End
from kerntune.base.config import Config
from kerntune.base.operator_list import OperatorList, OperatorRow
from kerntune.base.policy import Outcome, Update, Verdict
from kerntune.errors import CacheMissError, ConfigError, ReferenceMismatch
from kerntune.gate import call_capture as module
from kerntune.gate.call import Call
from kerntune.gate.call_capture import (
    CapturedCall,
    compared_call,
    needs_values,
    nothing_judged,
    stored_first,
    uncheckable,
    winner_first,
    with_surroundings,
)
from kerntune.tuning import admission

ROOT = Path(__file__).parents[2]
THIS = Path(__file__).relative_to(ROOT).as_posix()
RESULT = CaseResult(
    CASE, FINGERPRINT, Verdict.PASS, Outcome.PASS, "PASS it", "cuda:90", warnings=("w",), remarks=("r",)
)


def call(**words: Any) -> Call:
    return Call(CASE.nodeid, CASE.call, lambda: None, **words)


def backend(gpu: Any = None) -> Any:
    reason: Any = lambda exc: "a value is asked for" if "value" in str(exc) else None  # noqa: E731
    return SimpleNamespace(gpu=gpu, end_reason=reason, tensors=SimpleNamespace(take_unanswered=list))


# references


def test_a_reference_is_asked_once() -> None:
    asked: list[int] = []

    def reference() -> torch.Tensor:
        asked.append(1)
        return torch.ones(2)

    found, remark = compared_call(backend("a GPU"), call(reference=reference), torch.ones(2))
    assert remark == ""
    assert found.reference is not None
    assert torch.equal(found.reference(), torch.ones(2))
    assert len(asked) == 1
    assert compared_call(backend(), call(), None)[0].reference is None


def test_a_result_that_disagrees_ends_the_check() -> None:
    with pytest.raises(ReferenceMismatch, match="the result disagrees with its reference"):
        compared_call(backend("a GPU"), call(reference=lambda: torch.ones(2)), torch.zeros(2))


@pytest.mark.parametrize(
    ("gpu", "text", "told"), [(None, "a value", True), (None, "other", False), ("a GPU", "a value", False)]
)
def test_a_reference_that_needs_results_is_left_out_without_a_gpu(gpu: Any, text: str, told: bool) -> None:
    def reference() -> Any:
        raise RuntimeError(text)

    error = RuntimeError(text)
    assert needs_values(backend(gpu), error) == ("a value is asked for" if told else None)
    if not told:
        with pytest.raises(RuntimeError, match=text):
            compared_call(backend(gpu), call(reference=reference), None)
        return
    found, remark = compared_call(backend(gpu), call(reference=reference), None)
    assert (found.reference, remark) == (None, "reference not computed: a value is asked for")


# candidates


@pytest.mark.parametrize(("launched", "refused"), [(["a"], True), (["a", "b"], False), ([], False)])
def test_candidates_of_a_kernel_that_is_not_launched_are_an_error(launched: list[str], refused: bool) -> None:
    capture: Any = SimpleNamespace(launches=[SimpleNamespace(kernel=name) for name in reversed(launched)])
    given = call(candidates={"b": (Config({"BLOCK": 64}),), "a": ()})
    if not refused:
        module._refuse_unmet(given, capture)
        return
    with pytest.raises(ConfigError) as caught:
        module._refuse_unmet(given, capture)
    assert str(caught.value) == (f"{CASE}: candidates are given for b, which this call doesn't launch; it launches a")


def test_values_for_a_kernel_that_is_not_launched_are_an_error() -> None:
    capture: Any = SimpleNamespace(launches=[SimpleNamespace(kernel="a")])
    with pytest.raises(ConfigError, match="values are given for b, which this call doesn't launch; it launches a"):
        module._refuse_unmet(call(values={"b": {"x": torch.ones(1)}}), capture)


def site(count: int = 3) -> Any:
    configs = [Config({"BLOCK": 64 << i}) for i in range(count)]
    return SimpleNamespace(kernel="k", candidates=[SimpleNamespace(config=c) for c in configs], proven="unset")


def test_the_stored_winner_is_tried_first() -> None:
    asked: list[str] = []
    winners: Any = SimpleNamespace(find=lambda site: 2)
    here = site()
    assert list(winner_first(winners, lambda: asked.append("unknown"))(here)) == [2, 0, 1]
    assert (here.proven, asked) == (2, [])
    winners.find = lambda site: None
    assert list(winner_first(winners, lambda: asked.append("unknown"))(here)) == [0, 1, 2]
    assert (here.proven, asked) == (None, ["unknown"])


@pytest.mark.parametrize("nothing", [True, False])
def test_a_winner_may_lack_under_frozen_only_where_nothing_is_launched(
    monkeypatch: pytest.MonkeyPatch, nothing: bool
) -> None:
    winners: Any = SimpleNamespace(find=raising(CacheMissError("frozen")))
    monkeypatch.setattr(module, "current", lambda: "a capture")
    monkeypatch.setattr(admission, "launches_nothing", lambda capture, site: nothing)
    if nothing:
        assert list(winner_first(winners)(site(2))) == [0, 1]
    else:
        with pytest.raises(CacheMissError):
            winner_first(winners)(site())
    monkeypatch.setattr(module, "current", lambda: None)
    with pytest.raises(CacheMissError):
        winner_first(winners)(site())


@pytest.mark.parametrize(
    ("stored", "renamed", "order"),
    [
        ([128], [256], [1, 0, 2]),
        ([], [256], [2, 0, 1]),
        ([512, 256], [], [2, 0, 1]),
        ([512], [256], [0, 1, 2]),
        ([], [], [0, 1, 2]),
    ],
    ids=["its own", "an earlier name's", "one that is gone", "only one that is gone", "none"],
)
def test_the_stored_config_is_tried_first(
    monkeypatch: pytest.MonkeyPatch, stored: list[int], renamed: list[int], order: list[int]
) -> None:
    def found(blocks: list[int]) -> dict[str, list[Config]]:
        return {"k": [Config({"BLOCK": n}) for n in blocks]} if blocks else {}

    def candidate_of(site: Any, config: Config) -> int | None:
        return next((i for i, c in enumerate(site.candidates) if c.config == config), None)

    monkeypatch.setattr(module, "stored_configs", lambda *key: found(stored))
    monkeypatch.setattr(module, "candidate_of", candidate_of)
    stores: Any = SimpleNamespace(reference=None, renames=SimpleNamespace(configs=lambda case, f: found(renamed)))
    target: Any = None
    assert list(stored_first(stores, call(), target, (), Update.NONE)(site())) == order


# what can't be checked, and what stands beside a result


def captured(**changes: Any) -> CapturedCall:
    compiled = SimpleNamespace(
        unseen=[], choices=SimpleNamespace(anew=()), why_no_kernel=lambda: changes.get("why", "")
    )
    compiled.unseen = changes.get("hidden", [])
    compiled.choices.anew = changes.get("anew", ())
    capture: Any = SimpleNamespace(
        compiled=compiled,
        missed=changes.get("missed", []),
        guesses=changes.get("guesses", []),
        choices=SimpleNamespace(texts=changes.get("texts", ())),
    )
    return CapturedCall(call(), capture, (), unseen=changes.get("unseen", ()))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, ""),
        ({"missed": ["f", "g", "f"], "hidden": ["h"]}, "it launches or calls f, g in a thread of its own, unrecorded "),
        ({"unseen": ["a", "b"]}, "it launches a, b, compiled without a Python source (from IR), "),
        (
            {"hidden": ["f", "g"], "guesses": ["x"]},
            "it runs f; g, so its launches can't be seen, and nothing was checked",
        ),
        ({"guesses": ["x", "y"]}, "what it launches can't be known without a GPU: x; y. Check this call on a GPU"),
    ],
)
def test_why_a_call_cant_be_checked(changes: dict[str, Any], text: str) -> None:
    found = uncheckable(captured(**changes))
    assert found.startswith(text)
    assert bool(found) is bool(text)


def test_a_result_without_surroundings_stays() -> None:
    assert with_surroundings(RESULT, captured(), ()) == RESULT
    known = msgspec.structs.replace(RESULT, elsewhere={"aten.mm": 1})
    assert with_surroundings(known, captured(), ()) == known


def test_surroundings_are_added_to_the_result() -> None:
    rows = (OperatorRow("aten.add", "", 1, 64), OperatorRow("aten.mm", "", 2, 64))
    result = msgspec.structs.replace(RESULT, operators=OperatorList("2.13.0", rows))
    found = with_surroundings(result, captured(texts=("choice",), anew=("anew",)), ["late"])
    assert found.message == "PASS it, anew"
    assert found.warnings == ("w", "late")
    assert list(found.elsewhere.items()) == [("aten.add", 1), ("aten.mm", 2)]
    assert (found.remarks[0], found.remarks[-1], len(found.remarks)) == ("r", "choice", 3)
    assert "aten.mm" in found.remarks[1]


# the run itself


class Capturing:
    """A capture that records what it is told to have launched."""

    def __init__(self, backend: Any) -> None:
        self.backend, self.root = backend, ROOT
        self.launches: list[Any] = list(backend.launched)

    def active(self) -> Any:
        return contextlib.nullcontext()

    compiled_functions = operators_watched = active


def ran(fn: Any, *, gpu: bool, launched: int = 1) -> Any:
    waited: list[int] = []
    device = SimpleNamespace(synchronize=lambda: waited.append(1)) if gpu else None
    here = backend(device)
    here.launched, here.waited = [SimpleNamespace(kernel="k")] * launched, waited
    capture: Any = Capturing(here)
    return module.run_captured(capture, Call("t", "0", fn, (1,), {"y": 2}), ()), waited


def test_a_call_runs_once_and_the_device_is_waited_for() -> None:
    found, waited = ran(lambda x, y: (x, y), gpu=True)
    assert (found.value, found.ended, found.remark, found.unseen, waited) == ((1, 2), None, "", [], [1])
    found, waited = ran(lambda x, y: (x, y), gpu=False)
    assert (found.value, waited) == ((1, 2), [])


@pytest.mark.parametrize(
    ("text", "gpu", "launched", "ends"),
    [
        ("a value", False, 1, True),
        ("a value", False, 0, False),
        ("a value", True, 1, False),
        ("other", False, 1, False),
    ],
)
def test_a_call_that_needs_results_is_judged_by_what_it_launched_before(
    text: str, gpu: bool, launched: int, ends: bool
) -> None:
    def fn(x: int, y: int) -> None:
        raise RuntimeError(text)

    if not ends:
        with pytest.raises(RuntimeError, match=text):
            ran(fn, gpu=gpu, launched=launched)
        return
    found, _ = ran(fn, gpu=gpu, launched=launched)
    assert str(found.ended) == text
    assert (found.remark, found.end) == ("", End(THIS, "fn", "raise RuntimeError(text)", "a value is asked for"))


def test_a_call_that_launched_nothing_is_incomplete() -> None:
    found = captured(why=": it ran torch alone")
    found.capture.backend = backend()
    found.capture.backend.spec = SimpleNamespace(target="cuda:90")
    result = nothing_judged(found).result
    assert (result.target, result.verdict, result.case) == ("cuda:90", Verdict.INCOMPLETE, CASE)
    assert result.message == (
        f"INCOMPLETE {CASE}: no Triton kernel was launched in this call, so nothing was checked: it ran torch alone"
    )
    hidden = captured(unseen=("k",), why=": it ran torch alone")
    hidden.capture.backend = found.capture.backend
    assert "it launches k, compiled without" in nothing_judged(hidden).result.message
    assert "torch alone" not in nothing_judged(hidden).result.message


@pytest.mark.parametrize(("unseen", "ends", "refused"), [((), False, True), (("j",), False, False), ((), True, False)])
def test_candidates_without_a_launch_are_refused_of_calls_that_are_known_whole(
    monkeypatch: pytest.MonkeyPatch, unseen: tuple[str, ...], ends: bool, refused: bool
) -> None:
    def fn(x: int, y: int) -> None:
        if ends:
            raise RuntimeError("a value")

    asked: list[Any] = []
    monkeypatch.setattr(module, "watched", lambda: contextlib.nullcontext(list(unseen)))
    monkeypatch.setattr(module, "_refuse_unmet", lambda *words: asked.append(words))
    ran(fn, gpu=False)
    assert len(asked) == refused


def test_launches_that_a_capture_leaves_alone_are_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernel:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, grid: int) -> tuple[str, int]:
            return self.name, grid

    capturing: list[str] = ["a capture"]
    original = Kernel.__getitem__
    monkeypatch.setattr(module.triton_compiler, "compiled_kernel", lambda: Kernel)
    monkeypatch.setattr(module, "current", lambda: capturing[0] if capturing else None)
    with module.watched() as seen:
        assert [Kernel(name)[i] for i, name in enumerate("bab")] == [("b", 0), ("a", 1), ("b", 2)]
        capturing.clear()
        assert Kernel("c")[3] == ("c", 3)
    assert seen == ["b", "a"]
    assert Kernel.__getitem__ is original


def test_results_of_a_call_are_what_it_returned_and_its_gradients() -> None:
    leaf, plain, value = torch.ones(2, requires_grad=True), torch.ones(2), torch.zeros(3)
    derived = leaf * 2
    derived.sum().backward()
    here: Any = SimpleNamespace(tensors=SimpleNamespace(is_tensor=torch.is_tensor))
    made: Any = SimpleNamespace(backend=here)
    found = CapturedCall(Call("t", "0", print, (leaf, derived), {"x": plain}), made, (), value, ())
    given, results = found._given_and_results()
    assert [id(x) for x in given] == [id(x) for x in (leaf, derived, plain)]
    assert [id(x) for x in results] == [id(value), id(leaf.grad)]


@pytest.mark.parametrize(
    ("arguments", "inputs"), [(("a",), ("a",)), ((), ("the store", "cuda:90", CASE, SimpleNamespace(target="cuda:90")))]
)
def test_a_closure_has_the_tensors_that_its_kernels_read(
    monkeypatch: pytest.MonkeyPatch, arguments: Any, inputs: Any
) -> None:
    """What a launch that can't be compiled would write isn't known: then nothing is said of operators."""
    recorded = SimpleNamespace(failures={0: "refused"}, recording=SimpleNamespace(target="cuda:90"))
    monkeypatch.setattr(module, "record", lambda capture: recorded)
    monkeypatch.setattr(module, "case_inputs", lambda *words: words)
    found: Any = CapturedCall(call(), "a capture", arguments, unseen=()).recorded("the store")  # type: ignore[arg-type]
    assert (found.arguments, found.recorded, found.operators) == (inputs, recorded, None)
