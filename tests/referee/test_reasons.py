"""The closed list of reasons is the table of docs/judge.md, and every reason can be given."""

from __future__ import annotations

from pathlib import Path

from kerntune.referee.reasons import TOLD, Reason

ROOT = Path(__file__).parents[2]


def test_the_documents_table_has_every_reason() -> None:
    rows = [f"| `{reason.value}` | {text} |" for reason, text in TOLD.items()]
    assert "\n".join(["| reason | means |", "|---|---|", *rows]) in (ROOT / "docs" / "judge.md").read_text()


def test_every_reason_is_given_somewhere() -> None:
    sources = [p for p in (ROOT / "kerntune" / "referee").glob("*.py") if p.name != "reasons.py"]
    text = "".join(p.read_text() for p in sources)
    assert [reason for reason in Reason if f"Reason.{reason.name}" not in text] == []
