"""A message without the test's node id, where pytest has that already."""

from __future__ import annotations

import re

import pytest


def shorten(report: pytest.TestReport, nodeid: str) -> None:
    """Leave the test's node id, beside which pytest's summary and JUnit have it, out of the line for both."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message.removeprefix("Failed: ") if crash is not None else ""
    short = without_id(text, nodeid)
    if crash is not None and short != text:
        crash.message = short


def without_id(message: str, nodeid: str) -> str:
    """``REGRESSED: 1.0 µs -> 2.0 µs`` of ``REGRESSED test.py::test: 1.0 µs -> 2.0 µs``; a call's name stays."""
    own = re.escape(nodeid)
    return re.sub(rf"^{own}: | {own}(?=[: ])(?!::)|(?<= ){own}::(?=\S)", "", message)
