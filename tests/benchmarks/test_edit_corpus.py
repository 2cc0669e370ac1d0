"""The corpus of edits has the properties that it documents, and its tables count correctly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.edit_corpus import compiled_losses, edits_compiled, edits_planted, edits_unseen, figures, planted
from benchmarks.edit_corpus.corpus import EDITS, HELD_OUT_KERNELS, by_kernel
from benchmarks.edit_corpus.edit import Edit
from benchmarks.edit_corpus.label import ATTEMPTS, digest, label, work
from benchmarks.edit_corpus.label_process import difference
from benchmarks.edit_corpus.rule_table import DOCUMENT, FIGURES, LABELS, judged, write_page
from benchmarks.edit_corpus.tables import false_failures, joined, label_of, summary

ROOT = Path(__file__).resolve().parents[2]


def test_the_corpus_is_as_large_as_it_must_be() -> None:
    assert len(by_kernel()) >= 12
    assert len([e for e in EDITS if not e.planted]) >= 60
    assert len([e for e in EDITS if e.planted]) >= 15
    assert {e.kind for e in EDITS} >= {"tile", "warps", "stages", "unroll", "order", "loads", "dtype"}


def test_every_edit_has_a_name_of_its_own_and_changes_its_kernel() -> None:
    assert len({e.key for e in EDITS}) == len(EDITS)
    for edit in EDITS:
        assert edit.after() != edit.before()
        compile(edit.after(), edit.key, "exec")


def test_an_edit_without_a_place_is_named() -> None:
    with pytest.raises(ValueError, match=r"softmax: nowhere: kernels/softmax\.py has no 'not there'"):
        Edit("softmax", "nowhere", "tile", (("not there", ""),)).after()


@pytest.mark.parametrize(
    ("ratio", "name"), [(1.05, "slower"), (1.049, "same"), (0.96, "same"), (1 / 1.05, "faster"), (0.5, "faster")]
)
def test_five_percent_decide(ratio: float, name: str) -> None:
    assert label_of(ratio) == name


def row(edit: str, direction: str = "made", *, failed: bool = False) -> dict[str, Any]:
    verdict = "REGRESSED" if failed else "PASS"
    about = {"edit": edit, "direction": direction, "equal_code": False}
    return {**about, "verdict": verdict, "failed": failed, "findings": [], "notes": []}


ORDINARY = "vector_add: BLOCK 1024 -> 4096"
PLANTED = "softmax: maxnreg=32"


def test_the_way_back_has_the_opposite_label_and_plants_nothing() -> None:
    labels = {PLANTED: {"label": "slower", "ratio": 2.0}}
    made, undone = joined([row(PLANTED), row(PLANTED, "undone")], labels)
    assert (made["label"], made["ratio"], made["planted"]) == ("slower", 2.0, "spills")
    assert (undone["label"], undone["ratio"], undone["planted"]) == ("faster", 0.5, "")


@pytest.mark.parametrize(("ratio", "counted"), [(0.9, True), (1.0, True), (1.2, False)])
def test_a_failure_is_false_unless_slower(ratio: float, counted: bool) -> None:
    labels = {ORDINARY: {"label": label_of(ratio), "ratio": ratio}}
    rows = joined([row(ORDINARY, failed=True)], labels)
    assert bool(false_failures(rows)) is counted
    assert len(summary(rows)["false_failures"]) == counted


def test_planted_ones_that_are_missed_are_listed() -> None:
    labels = {PLANTED: {"label": "slower", "ratio": 2.0}}
    found = summary(joined([row(PLANTED)], labels))
    assert found["planted_and_missed"] == [f"{PLANTED} (made, slower 2.000): PASS"]
    assert found["made"]["planted_found"] == "0 of 1"


def test_what_cannot_be_launched_has_no_time() -> None:
    assert label({"error": "OutOfResources: out of resource: shared memory"}, {})["label"] == "not launched"
    assert label({"error": "ValueError: no"}, {})["label"] == "broken"
    assert label({"right": False, "difference": 1.0}, {})["label"] == "wrong"
    assert label({"right": True, "difference": 0.0}, {})["label"] == "untimed"


def test_a_difference_is_a_share_of_the_largest_value() -> None:
    import torch

    assert difference([torch.tensor([1.0, 4.0])], [torch.tensor([2.0, 4.0])]) == 0.25
    assert difference([torch.tensor([1.0])], [torch.tensor([float("nan")])]) == float("inf")


def test_a_broken_process_costs_one_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def ends(command: list[str], *, input: str, **options: Any) -> subprocess.CompletedProcess[str]:
        edits = json.loads(input)
        started.append(edits)
        with Path(command[4]).open("a") as file:
            file.write(json.dumps({"edit": edits[0], "error": "its process ended"}) + "\n")
        return subprocess.CompletedProcess(command, 1, stderr="broken")

    monkeypatch.setattr(subprocess, "run", ends)
    found = work(tmp_path, "check", "check", ["a", "b", "c"], until=float("inf"))
    assert started == [["a", "b", "c"], ["b", "c"], ["c"]]
    assert list(found) == ["a", "b", "c"]
    assert len(started) <= ATTEMPTS


KNOWN_FALSE = {
    ("matvec: rows by tensor cores", "undone"),  # products that were padding leave the tensor cores
    ("attention_decode: BN 64 -> 512", "made"),  # spills under Triton 3.9, not under 3.6, which was timed
}
"""Held out, and failed although faster: no rule was chosen with these in sight, and these two are wrong."""

MISSED = {
    "rotary: cos and sin computed for every head",  # sines' slow paths aren't counted as work, nor the rest of a sine
    "transpose: an element a column",  # a config's tile: as many bytes in all, by sixteen times as many programs
    "gelu_dropout: random numbers three times",  # not twice the instructions of the whole
}
"""Planted ones that no rule finds: slower, and listed in docs/measured/static-rules.md."""

SMALL = """
import json, sys, tempfile
from pathlib import Path
from benchmarks.edit_corpus.corpus import EDITS
from benchmarks.edit_corpus.gate import gate
edits = [e for e in EDITS if e.key in ("embedding: numbers checked", "embedding: output one element off")]
with tempfile.TemporaryDirectory() as folder, gate(Path(folder), "cuda:90") as found:
    for edit in edits:
        for row in found.rows(edit):
            row["launches"] = [len(side) for side in row.pop("figures")]
            print(json.dumps(row))
"""


@pytest.mark.slow
def test_both_ways_are_held_against_their_baselines() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SMALL], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r["direction"] for r in rows] == ["made", "undone"] * 2
    assert {r["verdict"] for r in rows} <= {"PASS", "REGRESSED"}
    assert [r["launches"] for r in rows] == [[1, 1]] * 4


def test_every_edit_has_a_label_of_its_present_sources() -> None:
    labels = json.loads(LABELS.read_text())["edits"]
    assert labels.keys() == {e.key for e in EDITS}
    assert [e.key for e in EDITS if labels[e.key]["sources"] != digest(e)] == []
    assert {x["label"] for x in labels.values()} <= {"faster", "same", "slower", "not launched"}


@pytest.fixture(scope="module", params=FIGURES)
def rows(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return judged(figures.read(FIGURES[request.param]), json.loads(LABELS.read_text())["edits"])


@pytest.mark.parametrize("series", FIGURES)
def test_figures_of_every_edit_are_kept(series: str) -> None:
    assert figures.read(FIGURES[series]).keys() == {e.key for e in EDITS}


@pytest.mark.slow
def test_no_edit_that_is_as_fast_or_faster_fails(rows: list[dict[str, Any]]) -> None:
    false = [r for r in false_failures(rows) if (r["edit"], r["direction"]) not in KNOWN_FALSE]
    assert [(r["edit"], r["direction"], r["findings"]) for r in false] == []


def test_what_is_known_to_fail_falsely_is_held_out(rows: list[dict[str, Any]]) -> None:
    assert {r["edit"].partition(":")[0] for r in false_failures(rows)} <= HELD_OUT_KERNELS


def test_what_was_planted_and_is_slower_fails(rows: list[dict[str, Any]]) -> None:
    planted = [r for r in rows if r["planted"] and r["label"] in ("slower", "not launched") and not r["equal_code"]]
    assert len(planted) >= 50
    assert {r["edit"] for r in planted if not r["failed"]} <= MISSED


@pytest.mark.slow
def test_the_page_has_the_tables_of_todays_rules(tmp_path: Path) -> None:
    page = tmp_path / "static-rules.md"
    page.write_text(DOCUMENT.read_text())
    write_page(page)
    assert page.read_text() == DOCUMENT.read_text(), "run python -m benchmarks.edit_corpus.rule_table"


def test_edits_that_were_labelled_by_argument_change_their_kernels() -> None:
    assert (len(edits_planted.HARMFUL), len(edits_planted.HARMLESS)) == (40, 60)
    assert len({e.key for e in edits_planted.EDITS}) == 100
    assert not {e.kernel for e in edits_planted.EDITS} & by_kernel().keys(), "no rule was made for these"
    for edit in edits_planted.EDITS:
        assert edit.after() != edit.before()
        compile(edit.after(), edit.key, "exec")
        assert edit.argument
        assert bool(edit.planted) == bool(edit.finding) == bool(edit.cause) == (edit in edits_planted.HARMFUL)


def test_a_harmful_edit_is_found_by_its_finding_and_its_cause() -> None:
    edit = next(e for e in edits_planted.HARMFUL if e.key == "syrk: masked each round")
    row = {"verdict": "REGRESSED", "failed": True, "findings": ["not in flight"], "causes": ["code changed"]}
    assert planted.found(edit, row)
    for other in ({"verdict": "PASS"}, {"findings": ["spilled"]}, {"causes": ["config of k changed"]}):
        assert not planted.found(edit, row | other)


OWN_UNSEEN = [edit for edit in edits_unseen.EDITS if edit.kernel not in edits_unseen.PUBLIC]


def test_unseen_edits_are_of_further_kernels_and_change_them() -> None:
    assert [len(x) for x in (edits_unseen.HARMFUL, edits_unseen.HARMLESS, edits_unseen.UNEARNED)] == [30, 30, 10]
    assert len({e.key for e in edits_unseen.EDITS}) == 70
    assert not {e.kernel for e in edits_unseen.EDITS} & {*by_kernel(), *(e.kernel for e in edits_planted.EDITS)}
    assert len({e.kernel for e in OWN_UNSEEN}) == 8
    for edit in OWN_UNSEEN:
        assert edit.after() != edit.before()
        compile(edit.after(), edit.key, "exec")
    for edit in edits_unseen.EDITS:
        assert edit.argument
        assert bool(edit.planted) == bool(edit.finding) == bool(edit.cause) == (edit.labelled == "harmful")


def test_a_public_kernel_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    edit = next(e for e in edits_unseen.EDITS if e.kernel == "liger_geglu")
    with pytest.raises(ValueError, match="liger_kernel isn't installed"):
        edit.before()


def test_an_unseen_edit_may_be_unsure_if_the_message_says_why() -> None:
    edit = next(e for e in edits_unseen.HARMFUL if e.key == "image_convolution: bias and ReLU by torch")
    row = {"verdict": "INCONCLUSIVE", "findings": [], "message": "torch operators", "causes": ["code changed"]}
    assert planted.found(edit, row)
    assert not planted.found(edit, row | {"message": "noise"})
    assert not planted.found(edit, row | {"verdict": "PASS"})


def test_what_is_unearned_must_not_pass_plainly() -> None:
    edit = next(e for e in edits_unseen.UNEARNED if e.key == "gluon_gelu: half of the blocks")
    row = {"verdict": "PASS", "direction": "made", "failed": False}
    row |= {"findings": [], "notes": [], "remarks": [], "warnings": []}
    assert not planted.told(edit, row)["right"]
    for name in ("notes", "remarks", "warnings"):
        assert planted.told(edit, row | {name: ["fewer programs"]})["right"]
    assert planted.told(edit, row | {"verdict": "INCOMPLETE"})["right"]


def test_both_runs_of_the_unseen_edits_are_kept() -> None:
    kept = json.loads((LABELS.parent / "edit_unseen.json").read_text())
    made = [r for r in kept["rows"] if r["direction"] == "made"]
    assert [r["edit"] for r in made] == [e.key for e in edits_unseen.EDITS]
    assert planted.summary(kept["rows"]).items() <= kept["last"].items()
    words = (ROOT / "benchmarks" / "edit_corpus" / "README.md").read_text()
    for name in ("harmful_found", "harmless_failed", "undone_failed", "unearned_that_pass_plainly"):
        assert f"| {kept['first'][name]} | {kept['last'][name]} |" in words
    assert kept["last"]["harmless_failed"] == "0 of 30"


def test_both_runs_of_the_planted_edits_are_kept() -> None:
    kept = json.loads((LABELS.parent / "edit_planted_by_argument.json").read_text())
    rows = [r for r in kept["rows"] if r["direction"] == "made"]
    assert [r["edit"] for r in rows] == [e.key for e in edits_planted.EDITS]
    first, last = ([int(n) for n in kept[run]["harmful_found"].split(" of ")] for run in ("first", "last"))
    assert first[0] < 34 <= last[0] == sum(r["right"] for r in rows if r["label"] == "harmful")
    assert kept["last"]["harmless_failed"] == "0 of 60"
    assert kept["first"]["environment"]["commit"] != kept["last"]["environment"]["commit"]
    words = (ROOT / "docs" / "static-rules.md").read_text()
    assert f"the rules before found {first[0]} of the 40" in words
    assert f"today's {last[0]}," in words


def test_figures_are_read_as_they_were_written(tmp_path: Path) -> None:
    kept = dict(list(figures.read(FIGURES["3.9"]).items())[:3])
    figures.write(tmp_path / "figures.json", {"date": "today"}, kept)
    assert figures.read(tmp_path / "figures.json") == kept


def test_edits_of_compiled_functions_change_them_and_losses_name_a_line() -> None:
    assert (len(edits_compiled.LOSSES), len(edits_compiled.HARMLESS)) == (30, 30)
    assert len({e.key for e in edits_compiled.EDITS}) == 60
    for edit in edits_compiled.EDITS:
        assert edit.after() != edit.before()
        compile(edit.after(), edit.key, "exec")
        assert bool(edit.argument) == bool(edit.operator) == bool(edit.places()) == (edit in edits_compiled.LOSSES)


def test_a_loss_is_found_by_its_operator_and_its_line() -> None:
    edit = next(e for e in edits_compiled.LOSSES if e.key == "two_functions: a sum with nothing")
    (place,) = edit.places()
    said = {"verdict": "REGRESSED", "findings": [f"aten.add at two_functions_ab{place})"]}
    assert compiled_losses.found(edit, said)
    assert not compiled_losses.found(edit, {**said, "verdict": "PASS"})
    assert not compiled_losses.found(edit, {**said, "findings": [f"aten.add at two_functions_ab{place}0)"]})
    assert not compiled_losses.found(edit, {**said, "findings": [f"aten.mm at x{place}"]})


def test_losses_of_compiled_functions_are_found() -> None:
    kept = json.loads((ROOT / "benchmarks/results/edit_compiled.json").read_text())
    assert compiled_losses.summary(kept["rows"]).items() <= kept["last"].items()
    assert sum(r["right"] for r in kept["rows"] if r["label"] == "loss") >= 26
    assert [r["edit"] for r in kept["rows"] if r["label"] == "harmless" and not r["right"]] == []
