"""Compares what ops launch without a GPU and with one, launch by launch, and names each gap's cause.

    python -m benchmarks.ops.ops_compare WITHOUT.json WITH.json OUT.json [--table docs/ops.md]

Both files are ``ops_capture.py``'s, of the same Triton. Launches are alike if kernel, grid, config, specialization,
constants, options and code identity are. Machine code that differs all the same is counted separately. Exits with 1 if
a gap has no known cause (``CAUSES``).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.ops.ops_sides import compared, other_machine_code

BEGIN, END = "<!-- ops_compare: begin -->", "<!-- ops_compare: end -->"
"""What ``--table`` replaces lies between these two lines."""

CAUSES: dict[str, str] = {
    "liger-kernel/cross_entropy_weighted": "asks a real-valued weight tensor for its sum (`.item()`): values that "
    "stand-ins don't keep; nothing is launched before",
    "liger-kernel/fused_moe": "the grid of its third kernel is computed by its second (`.item()`): what a kernel "
    "wrote is never known without running it",
}
"""Gaps that are understood, by op."""


def judged(name: str, without: dict[str, Any], with_: dict[str, Any]) -> dict[str, Any]:
    """One op: launches alike, and what kind of gap it has."""
    found = compared(without["launches"], with_["launches"])
    machine_code = other_machine_code(without["launches"], with_["launches"])
    errors = {k: x["error"] for k, x in (("without", without), ("with", with_)) if x["error"]}
    entry = {
        "launches": len(with_["launches"]),
        "forward": with_.get("forward", 0),
        "alike": found["alike"],
        "as_launched": sum(x.get("same_as_launched", False) for x in with_["launches"]),
        **({"errors": errors} if errors else {}),
        **({"gaps": found["gaps"]} if found["gaps"] else {}),
        **({"other_machine_code": machine_code} if machine_code else {}),
    }
    same_refusal = bool(errors) and without["error"] == with_["error"] and not found["gaps"]
    entry["verdict"] = _verdict(found, errors, same_refusal, len(with_["launches"]))
    if entry["verdict"] == "gap":
        entry["cause"] = CAUSES.get(name, "")
    return entry


def _verdict(found: dict[str, Any], errors: dict[str, str], same_refusal: bool, launches: int) -> str:
    if same_refusal:
        return "same refusal"
    if found["gaps"] or errors or not launches:
        return "gap"
    return "alike"


def summary(without: dict[str, Any], with_: dict[str, Any]) -> dict[str, Any]:
    """Counts first, then each op."""
    names = [n for n in with_["ops"] if n in without["ops"]]
    ops = {n: judged(n, without["ops"][n], with_["ops"][n]) for n in names}
    verdicts = [x["verdict"] for x in ops.values()]
    return {
        "without": {**without["environment"], "seconds": without["seconds"]},
        "with": {**with_["environment"], "seconds": with_["seconds"]},
        "ops": len(ops),
        "ops_alike": verdicts.count("alike"),
        "ops_alike_forward_and_backward": sum(_both_ways(x) for x in ops.values() if x["verdict"] == "alike"),
        "ops_refused_alike": verdicts.count("same refusal"),
        "ops_with_a_gap": verdicts.count("gap"),
        "launches": sum(x["launches"] for x in ops.values()),
        "launches_alike": sum(x["alike"] for x in ops.values()),
        "kernels": len({y["kernel"] for n in names for y in with_["ops"][n]["launches"]}),
        "compiled_as_triton_launched": sum(x["as_launched"] for x in ops.values()),
        "kernels_with_other_machine_code": sum(len(x.get("other_machine_code", ())) for x in ops.values()),
        "gaps_without_a_known_cause": [n for n, x in ops.items() if x["verdict"] == "gap" and not x["cause"]],
        "by_op": ops,
    }


def _both_ways(entry: dict[str, Any]) -> bool:
    return 0 < entry["forward"] < entry["launches"]


def table(result: dict[str, Any]) -> str:
    """Markdown: an op a row, worst first."""
    order = {"gap": 0, "same refusal": 1, "alike": 2}
    rows = sorted(result["by_op"].items(), key=lambda x: (order[x[1]["verdict"]], x[0]))
    lines = ["| op | launches forward + backward | alike | what is to be said |", "|---|---|---|---|"]
    for name, entry in rows:
        backward = entry["launches"] - entry["forward"]
        lines.append(f"| {name} | {entry['forward']} + {backward} | {entry['alike']} | {_remark(entry)} |")
    return "\n".join(lines)


def _remark(entry: dict[str, Any]) -> str:
    if entry["verdict"] == "alike":
        kernels = ", ".join(entry.get("other_machine_code", ()))
        return f"{kernels}: ptxas made other machine code of the same PTX" if kernels else ""
    text = entry.get("cause") or "; ".join(dict.fromkeys(entry.get("errors", {}).values())) or "differs"
    text = re.sub(r"\s+", " ", text).replace("|", r"\|")
    return f"**{entry['verdict']}**: {text}"


def main() -> int:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("without", type=Path)
    parser.add_argument("with_", metavar="WITH.json", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    result = summary(json.loads(args.without.read_text()), json.loads(args.with_.read_text()))
    harness.write(args.out, result)
    if args.table:
        harness.put_between(args.table, BEGIN, END, table(result))
    print({k: v for k, v in result.items() if k != "by_op"})
    return int(bool(result["gaps_without_a_known_cause"]))


if __name__ == "__main__":
    raise SystemExit(main())
