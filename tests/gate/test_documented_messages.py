"""Messages that the documents quote are such as the code prints: the same words in the same order, other figures."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import N, by_block

from gate.project import Project
from kerntune.base.case_result import Attribution, Share
from kerntune.base.policy import Update, Verdict
from kerntune.gate.messages import NAMES, shares_text
from kerntune.gpu.script import Rule

ROOT = Path(__file__).parents[2]
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
VERDICTS = "|".join(v.value for v in Verdict)
QUOTED = re.compile(rf"^`?((?:{VERDICTS}) [^\s|`]+\.py::[^`\n]*)`?", re.M)
NODE = "tests/test_softmax.py::test_softmax[65536]"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def edited_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor + 1, mask=i < n)


@triton.jit
def again_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor + 2, mask=i < n)


RULES = (
    Rule("softmax_kernel", {"BLOCK": 64}, time_ns=128_000.0),
    Rule("softmax_kernel", {"BLOCK": 128}, time_ns=135_300.0),
    Rule("edited_kernel", {"BLOCK": 64}, time_ns=141_000.0),
    Rule("edited_kernel", {"BLOCK": 128}, time_ns=142_300.0),
    Rule("again_kernel", time_ns=142_300.0),
)


def shape(message: str) -> str:
    """The words of a message: times, changes, dates, ids and paths are its own, the level of an interval is not."""
    text = re.sub(r"^(\w+) \S+\.py::\S+:", r"\1 CASE:", message)
    text = re.sub(r"[+-]?\d+(\.\d+)? (µs|ms|ns)", "TIME", text)
    text = re.sub(r"[+-]\d+\.\d+\.\.[+-]\d+\.\d+", "ENDS", text)
    text = re.sub(r"[+-]\d+\.\d+ %", "CHANGE", text)
    text = re.sub(r"\d{4}-\d\d-\d\d", "DAY", text)
    text = re.sub(r", kernel \w+ -> \w+(, grid \w+ -> \w+)?", "", text)  # edits here are kernels of other names
    text = re.sub(r"launch \d+ \(\w+\)", "LAUNCH", text)
    text = re.sub(r"\d[\d,]* of \d[\d,]* elements", "SHARE elements", text)
    text = re.sub(r"at most \d[\d,]* ulp and [\d.e-]+ relative, at \d[\d,]*: [\d.e-]+ -> [\d.e-]+", "SIZE", text)
    text = re.sub(r"first at \d[\d,]*", "FIRST", text)
    return re.sub(r"(launch options of) \w+: .*?(?=$|, launch \d)", r"\1 KERNEL: SETTINGS", text)


def call(kernel: Any, **meta: Any) -> Any:
    return lambda x: kernel[by_block](x, torch.empty_like(x), N, 2.0, **meta)


def judged(project: Project, fn: Any, *rules: Rule, **options: Any) -> str:
    with project.run(*(rules or RULES), **options) as run:
        return run.judge(fn, torch.randn(N, device="cuda"), node=NODE).message


def printed(project: Project) -> list[str]:
    """What is printed for an edited kernel; where its results differ and its time doesn't; of an edited launch; of
    steps that each were accepted; of a write outside of tensors."""
    judged(project, call(softmax_kernel, BLOCK=64))
    there = project.root / "anchors"
    shutil.copytree(project.baselines, there)
    code = judged(project, call(edited_kernel, BLOCK=64))
    flipped = Rule("edited_kernel", {"BLOCK": 64}, time_ns=128_000.0, flips=((0, 1), (64, 2)))
    results = judged(project, call(edited_kernel, BLOCK=64), flipped, RULES[0])
    launch = judged(project, call(softmax_kernel, BLOCK=128))
    both = judged(project, call(edited_kernel, BLOCK=128))
    judged(project, call(edited_kernel, BLOCK=64), update=Update.ALL)
    steps = judged(project, call(again_kernel, BLOCK=64), anchor=there)
    outside = judged(project, call(softmax_kernel, BLOCK=256), Rule(beside=(0, 4)), isolated=True, update=Update.ALL)
    return [code, results, launch, both, steps, outside]


def quoted() -> list[tuple[str, str]]:
    return [(path.name, line) for path in DOCUMENTS for line in QUOTED.findall(path.read_text())]


def test_the_documents_quote_messages() -> None:
    assert {name for name, _ in quoted()} >= {"verdicts.md", "one-case.md", "numerics.md"}


@pytest.mark.slow
def test_documented_messages_can_be_printed(project: Project) -> None:
    known = printed(project)
    for name, line in quoted():
        assert shape(line) in map(shape, known), f"{name}: {line}\n" + "\n".join(known)


@pytest.mark.parametrize("level", ["99.9 %", "99.9978 %"])
def test_another_level_is_no_quotation(level: str) -> None:
    told = f"REGRESSED t.py::test_a: 128 µs -> 141 µs (+9.9 %, {level} CI +9.7..+10.1), code changed"
    assert shape(told) != shape(told.replace(level, "99 %"))


def test_documented_shares_can_be_printed() -> None:
    """Their names, their order and their form."""
    printed = []
    documented = [line for one in DOCUMENTS for line in re.findall(r"`(attributed: [^`…]*)`", one.read_text())]
    for line in documented:
        fields = dict.fromkeys(NAMES, Share(0.0))
        for cause, change in re.findall(r"([a-z ]+) ([+-][\d.]+) %", line.removeprefix("attributed: ")):
            field = next((f for f, name in NAMES.items() if name == cause.strip()), "launch")
            fields[field] = Share(float(change) / 100, cause=cause.strip() if field == "launch" else "")
        printed.append(shares_text(Attribution(**fields)))
    assert printed == documented
