"""How launches of two sides are compared, and the report of an op."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def entry(kernel: str = "add", **changes: Any) -> dict[str, Any]:
    plain = {
        "kernel": kernel,
        "grid": [4, 1, 1],
        "config": None,
        "specialization": {"x": "*fp32, divisible by 16", "n": "i32"},
        "constants": {"BLOCK": "constexpr 64"},
        "options": {"num_warps": "4"},
        "code": "c",
        "text": "t",
    }
    return plain | changes


def op(*launches: dict[str, Any], error: str = "", forward: int = 1) -> dict[str, Any]:
    return {"launches": list(launches), "error": error, "forward": forward}


def judged(name: str, without: dict[str, Any], with_: dict[str, Any]) -> dict[str, Any]:
    from benchmarks.ops.ops_compare import judged

    return judged(name, without, with_)


def test_the_same_launches_are_alike() -> None:
    found = judged("liger-kernel/x", op(entry(), entry("sub")), op(entry(), entry("sub")))
    assert found["verdict"] == "alike"
    assert (found["launches"], found["alike"], found["forward"]) == (2, 2, 1)


@pytest.mark.parametrize(
    "change",
    [{"grid": [5, 1, 1]}, {"code": "d"}, {"config": "BLOCK=8"}, {"constants": {}}, {"failure": "CompileError"}],
)
def test_whatever_differs_is_named_with_both_values(change: dict[str, Any]) -> None:
    found = judged("liger-kernel/x", op(entry()), op(entry(**change)))
    assert found["verdict"] == "gap"
    assert found["cause"] == ""
    (gap,) = found["gaps"]
    assert gap["differs"] == list(change)
    assert gap["with"] != gap["without"]


def test_of_a_specialization_only_what_differs_is_shown() -> None:
    other = entry(specialization={"x": "*fp32, divisible by 16", "n": "i32, divisible by 16"})
    (gap,) = judged("liger-kernel/x", op(entry()), op(other))["gaps"]
    assert gap["without"] == {"specialization": {"n": "i32"}}
    assert gap["with"] == {"specialization": {"n": "i32, divisible by 16"}}


def test_other_machine_code_of_the_same_code_is_no_gap_but_told() -> None:
    found = judged("liger-kernel/x", op(entry()), op(entry(text="u")))
    assert found["verdict"] == "alike"
    assert found["other_machine_code"] == ["add"]


def test_a_launch_that_one_side_lacks_is_a_gap_and_the_others_are_paired() -> None:
    found = judged("liger-kernel/fused_moe", op(entry("b")), op(entry("a"), entry("b")))
    assert found["alike"] == 1
    assert [g["differs"] for g in found["gaps"]] == [["launched only with a GPU"]]
    assert found["cause"], "this op's gap is understood"


def test_the_same_refusal_on_both_sides_is_none_of_ours() -> None:
    refusal = op(entry(), error="RuntimeError: not on Hopper")
    assert judged("liger-kernel/x", refusal, refusal)["verdict"] == "same refusal"
    assert judged("liger-kernel/x", refusal, op(entry()))["verdict"] == "gap"


def test_nothing_launched_is_never_alike() -> None:
    assert judged("liger-kernel/x", op(forward=0), op(forward=0))["verdict"] == "gap"


def test_a_table_has_gaps_first_and_replaces_only_its_place(tmp_path: Path) -> None:
    from benchmarks.harness import put_between
    from benchmarks.ops.ops_compare import BEGIN, END, summary, table

    sides = [
        {
            "ops": {"liger-kernel/a": op(entry(), entry()), "liger-kernel/b": op(entry(code=code))},
            "environment": {},
            "seconds": 1.0,
        }
        for code in "cd"
    ]
    result = summary(*sides)
    assert (result["ops_alike"], result["ops_with_a_gap"], result["launches_alike"]) == (1, 1, 2)
    assert result["gaps_without_a_known_cause"] == ["liger-kernel/b"]
    document = tmp_path / "ops.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    put_between(document, BEGIN, END, table(result))
    lines = document.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert "old" not in lines
    assert lines[4].startswith("| liger-kernel/b |")
    assert lines[5].startswith("| liger-kernel/a | 1 + 1 | 2 |")


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
    from benchmarks.ops.ops_gate import judged

    run = {"results": [gated("a", verdict, launches, end)], "failed": {}}
    found = judged(run, ["a"], {"a": {"launches": 4}})["a"]
    assert (found["silent"], found["verdict"], found["launches"]) == (silent, verdict, launches)


def test_ops_that_do_not_pass_are_listed_with_what_is_said() -> None:
    from benchmarks.ops.ops_gate import judged, table

    run = {"results": [gated("a", "PASS", 1), gated("b", "INCOMPLETE", 1)], "failed": {"test_ops.py::test_op[c]": "no"}}
    rows = table(judged(run, ["a", "b", "c", "d"], {})).splitlines()[2:]
    assert rows == [
        "| b | INCOMPLETE | 1 | INCOMPLETE a \\| b |",
        "| c | FAILED | 0 | no |",
        "| d | FAILED | 0 | did not run |",
    ]
