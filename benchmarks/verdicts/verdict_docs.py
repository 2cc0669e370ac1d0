"""Writes what was measured on a GPU into ``docs/measured/verdicts.md``, between its two marks.

    python -m benchmarks.verdicts.verdict_docs TABLES.json [CAUSES.json] [--document docs/measured/verdicts.md]

TABLES.json is of ``verdict_tables.py``, CAUSES.json of ``verdict_causes.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness

DOCUMENT = harness.ROOT / "docs" / "measured" / "verdicts.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

CAUSES = {
    "code": "code: edits of a kernel or of its launch",
    "config": "config list: the winner removed, changed or pruned",
    "compiler": "compiler: the same source under other flags",
    "environment": "environment: other processes keep the GPU busy",
}


def percent(share: float, digits: int = 1) -> str:
    """``97.5 %``; what is not all is never shown as all, nor what is not nothing as nothing."""
    text = f"{100 * share:.{digits}f}"
    if float(text) in (0.0, 100.0) and share not in (0, 1) and digits < 4:
        return percent(share, digits + 1)
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table; all but the first column to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def spreads(found: dict[str, Any]) -> list[str]:
    """How far one process is off, by each way to measure."""
    protocol = found["protocol"]
    blocks = f"in turn, {protocol['first_look']} blocks", f"{protocol['blocks']} blocks"
    head = ["case", "µs", *blocks, "`do_bench` median", "by the host's clock"]
    rows = [
        [
            f"`{s['case']}`", f"{s['ns'] / 1e3:.3g}", percent(s["first_look"], 2), percent(s["all_blocks"], 2),
            percent(s["do_bench_median"], 1), percent(s["host_mean"], 1),
        ]
        for s in found["spread"]
    ]  # fmt: skip
    return table(head, rows)


def decisions(found: dict[str, Any]) -> list[str]:
    """The verdicts of each rule on equal and on slower code."""
    by_rule: dict[str, dict[str, dict[str, Any]]] = {}
    for r in found["together"]:
        name = r["rule"] if r["tolerance"] is None else f"kerntune at {r['tolerance']:.0%}"
        by_rule.setdefault(name, {})[r["variant"]] = r
    head = ["rule", "twin: slower or faster", "+1.5 %: found", "+3 %: found"]
    ours_first = sorted(by_rule.items(), key=lambda item: not item[0].startswith("kerntune"))
    variants = ("twin", "slow_1_5", "slow_3")
    return table(head, ([name, *(_cell(rows.get(v)) for v in variants)] for name, rows in ours_first))


def _cell(r: dict[str, Any] | None) -> str:
    if r is None:
        return ""
    hits = r["slower"] + (0 if r["variant"].startswith("slow") else r["faster"])
    word = "at least" if r["variant"].startswith("slow") else "at most"
    return f"{hits:,} of {r['decisions']:,} ({percent(r['share'])}, {word} {percent(r['bound'], 2)})"


def asked(found: dict[str, Any]) -> list[str]:
    """How many processes the rules had."""
    mine = [r["processes"] for r in found["together"] if r["rule"] == "kerntune"]
    text = (
        f"A decision of kerntune took {min(mine):g} to {max(mine):g} processes on average, each of which timed both "
        "sides in turn. The others' rules had one process a side, and in the rows that say so as many as a first "
        "look of kerntune's takes, their launches pooled."
    )
    return [text]


def turns(found: dict[str, Any]) -> list[str]:
    """What taking turns alone gives: false alarms of ``do_bench`` medians of both sides in one process."""
    counted: dict[tuple[str, str, int], dict[str, float]] = {}
    for r in found["rows"]:
        if r["limit"] == 0.02 and not r["variant"].startswith("slow"):
            counted.setdefault((r["case"], r["variant"], r["processes"]), {})[r["rule"]] = r["share"]
    head = ["case, form of side b", "processes", *(rules := ("in turn in one process", "one process a side"))]
    rows = [
        [f"`{case}`, {variant}", str(processes), *(percent(shares[rule]) for rule in rules)]
        for (case, variant, processes), shares in counted.items()
    ]
    where = found["environment"]
    missing = {r["variant"] for r in found["rows"]}.isdisjoint({"slow_3", "slow_1_5"})
    return [
        f"What taking turns alone gives ({where['date']}, at least {least_processes(found)} processes; "
        "`9ed8fc62:benchmarks/verdict_turns.py`): the share of decisions about equal code in which the medians of "
        "single executions, timed as `do_bench` does, differ by more than 2 %, both sides in turn in one process, or "
        "each in a process of its own."
        + (" The slower forms were not recorded in the time of that run." if missing else ""),
        "",
        *table(head, rows),
    ]


def least_processes(found: dict[str, Any]) -> int:
    """Of the cases and forms; they were counted when the times were recorded."""
    return int(min(found["recorded_processes"].values()))


def causes(found: dict[str, Any]) -> list[str]:
    """How many causes were named right."""
    counts = found["summary"]
    rows = [[text, str(counts[c]["planted"]), str(counts[c]["right"])] for c, text in CAUSES.items() if c in counts]
    total = counts["all"]
    return table(["planted", "cases", "named right"], [*rows, ["all", str(total["planted"]), str(total["right"])]])


def measured(tables: dict[str, Any], named: dict[str, Any] | None = None, turned: dict[str, Any] | None = None) -> str:
    """All that stands between the marks."""
    where, protocol = tables["environment"], tables["protocol"]
    days = " and ".join(dict.fromkeys(x["date"] for x in (where, *tables["sessions"])))
    count = min(s["processes"] for s in tables["spread"])
    lines = [
        f"{where['device']}, Triton {where['triton']}, {days}; {len(tables['spread'])} cases, at least "
        f"{count} fresh processes for each and for each variant of it.",
        "",
        "How much the figures of equal code scatter over fresh processes (standard deviation):",
        "",
        *spreads(tables),
        "",
        f"What the rules said, {protocol['decisions']:,} times for each case, each time of other processes drawn from "
        "those. In brackets the share and its 95 % bound, as if the draws were independent:",
        "",
        *decisions(tables),
        "",
        *asked(tables),
    ]
    if turned is not None:
        lines += ["", *turns(turned)]
    if named is not None:
        lines += [
            "",
            "Causes that were planted, and what the largest share of the attribution was:",
            "",
            *causes(named),
        ]
    return "\n".join(lines)


def main() -> None:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("tables", type=Path)
    parser.add_argument("causes", type=Path, nargs="?")
    parser.add_argument("--turns", type=Path, help="what verdict_turns.py wrote")
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    args = parser.parse_args()
    named = json.loads(args.causes.read_text()) if args.causes else None
    turned = json.loads(args.turns.read_text()) if args.turns else None
    text = measured(json.loads(args.tables.read_text()), named, turned)
    harness.put_between(args.document, BEGIN, END, text)


if __name__ == "__main__":
    main()
