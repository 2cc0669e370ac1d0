"""``docs/measured/verdicts.md`` is made from results, and is there to be made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness import between

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def docs() -> Any:
    from benchmarks.verdicts import verdict_docs

    return verdict_docs


def written(docs: Any, document: str, text: str) -> str:
    return between(document, docs.BEGIN, docs.END, text)


def row(rule: str, variant: str, tolerance: float | None, slower: int, total: int) -> dict[str, Any]:
    return {
        "rule": rule, "variant": variant, "tolerance": tolerance, "slower": slower, "faster": 1, "decisions": total,
        "share": slower / total, "bound": 0.5, "processes": 3.0,
    }  # fmt: skip


TABLES = {
    "environment": {"device": "NVIDIA H200", "triton": "3.6.0", "date": "2026-11-20"},
    "sessions": [{"date": "2026-11-20"}, {"date": "2026-11-21"}],
    "protocol": {"decisions": 500, "blocks": 36, "first_look": 24},
    "spread": [
        {"case": "add", "ns": 2012.0, "processes": 24, "first_look": 0.0011, "all_blocks": 0.0007,
         "do_bench_median": 0.05, "host_mean": 0.1},
    ],
    "together": [
        row("a rank test", "twin", None, 300, 500), row("kerntune", "twin", 0.02, 0, 500),
        row("kerntune", "slow_3", 0.02, 499, 500),
    ],
}  # fmt: skip


def test_tables_stand_between_the_marks(docs: Any) -> None:
    named = {"summary": {"code": {"planted": 13, "right": 12}, "all": {"planted": 13, "right": 12, "share": 0.92}}}
    text = written(docs, f"before\n{docs.BEGIN}\nold\n{docs.END}\nafter\n", docs.measured(TABLES, named))
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "2026-11-20 and 2026-11-21; 1 case" in text
    assert "| in turn, 24 blocks | 36 blocks |" in text
    assert "| `add` | 2.01 | 0.11 % | 0.07 % | 5 % | 10 % |" in text
    assert "| kerntune at 2% | 1 of 500 (0 %, at most 50 %) |  | 499 of 500 (99.8 %, at least 50 %) |" in text
    assert text.index("kerntune at") < text.index("a rank test")
    assert "| all | 13 | 12 |" in text


def test_the_document_has_what_the_results_say(docs: Any) -> None:
    names = ("tables", "causes", "turns_h200")
    found = [json.loads((BENCHMARKS / "results" / f"verdict_{n}.json").read_text()) for n in names]
    text = docs.DOCUMENT.read_text()
    assert written(docs, text, docs.measured(*found)) == text, "run benchmarks/verdicts/verdict_docs.py"


def test_what_turns_alone_give_stands_beside_one_process_a_side(docs: Any) -> None:
    def row(rule: str, variant: str, limit: float, share: float) -> dict[str, Any]:
        return {"case": "add", "variant": variant, "processes": 1, "rule": rule, "limit": limit, "share": share}

    rules = ("in turn in one process", "one process a side")
    shares = dict(zip(rules, (0.3, 0.2), strict=True))
    rows = [row(r, v, m, shares[r]) for v in ("same", "slow_3") for m in (0.02, 0.05) for r in rules]
    turned = {"environment": {"date": "2026-11-22"}, "recorded_processes": {"add same": 12, "add slow_3": 11}}
    text = docs.measured(TABLES, None, {**turned, "rows": rows})
    assert "| `add`, same | 1 | 30 % | 20 % |" in text
    assert "slow_3 |" not in text
    assert "at least 11 processes" in text
    assert "not recorded" not in text
    assert "were not recorded" in docs.measured(TABLES, None, {**turned, "rows": rows[:4]})


def test_without_marks_nothing_is_written(docs: Any) -> None:
    with pytest.raises(SystemExit, match="measured: begin"):
        written(docs, "no marks", "text")


def test_the_document_has_its_marks(docs: Any) -> None:
    assert "new" in written(docs, docs.DOCUMENT.read_text(), "new")


@given(st.floats(0, 1))
def test_nearly_all_is_not_all(share: float) -> None:
    from benchmarks.verdicts.verdict_docs import percent

    text = percent(share)
    if 0.00001 < share < 0.99999:
        assert text not in ("0 %", "100 %")
    assert float(text.removesuffix(" %")) == pytest.approx(100 * share, abs=0.05001)
