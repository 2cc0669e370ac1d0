"""What is said of an op that was recorded and run again without a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.ops.ops_gate import judged, table


def gated(name: str, verdict: str, launches: int, end: dict[str, str] | None = None) -> dict[str, Any]:
    nodeid = f"test_ops.py::test_op[{name}]"
    result: dict[str, Any] = {"case": {"nodeid": nodeid}, "verdict": verdict, "message": f"{verdict} a | b"}
    return {**result, "launches": [{}] * launches} | ({"end": end} if end else {})


@pytest.mark.parametrize(
    ("verdict", "launches", "end", "silent"),
    [
        ("PASS", 4, None, False),
        ("PASS", 5, None, False),
        ("PASS", 3, None, True),
        ("PASS", 3, {"line": "x.item()"}, False),
        ("INCOMPLETE", 3, None, False),
    ],
)
def test_a_pass_with_fewer_launches_than_a_gpu_makes_is_silent(
    verdict: str, launches: int, end: dict[str, str] | None, silent: bool
) -> None:
    run = {"results": [gated("a", verdict, launches, end)], "failed": {}}
    found = judged(run, ["a"], {"a": {"launches": 4}})["a"]
    assert (found["silent"], found["verdict"], found["launches"]) == (silent, verdict, launches)


def test_ops_that_do_not_pass_are_listed_with_what_is_said() -> None:
    run = {"results": [gated("a", "PASS", 1), gated("b", "INCOMPLETE", 1)], "failed": {"test_ops.py::test_op[c]": "no"}}
    rows = table(judged(run, ["a", "b", "c", "d"], {})).splitlines()[2:]
    assert rows == [
        "| b | INCOMPLETE | 1 | INCOMPLETE a \\| b |",
        "| c | FAILED | 0 | no |",
        "| d | FAILED | 0 | did not run |",
    ]
