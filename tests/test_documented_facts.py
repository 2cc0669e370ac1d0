"""Sentences of README and docs that name what the code has: options, modules, constants."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from kerntune.base.policy import Policy, Verdict
from kerntune.gate.decision import DRIFT, Evidence, decide
from kerntune.gate.gpu_check import SHORT_RESTS_S
from kerntune.timing.graphs import TARGET_LAUNCHES
from kerntune.timing.paired_processes import SHOWN_LEVEL
from kerntune.tuning.race import GRAPH_NS, MOST_RUNS, SLOT_NS
from pytest_kerntune.options import OPTIONS

ROOT = Path(__file__).parents[1]


def text_of(name: str) -> str:
    """A document with its line breaks as spaces."""
    return " ".join((ROOT / name).read_text().split())


def test_each_option_has_an_ini_key_of_its_name() -> None:
    assert "each has an ini key of the same name with underscores (`kerntune = true` stands for" in text_of("README.md")
    known = {o.flag: o.ini for o in OPTIONS if o.flag and o.ini}
    assert known["--kerntune"] == "kerntune"
    assert {flag.lstrip("-").replace("-", "_") for flag in known} == set(known.values())


def imports_triton(path: Path) -> bool:
    """Anywhere in it, in functions too."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
    names += [n.module or "" for n in nodes if isinstance(n, ast.ImportFrom) and not n.level]
    return any(name.partition(".")[0] == "triton" for name in names)


def package_of(path: Path) -> str:
    """The package, and of ``kernels`` and ``tuning`` the one inside it; a module that lies beside the packages."""
    parts = path.relative_to(ROOT / "kerntune").parts
    folders = parts[:-1] if parts[0] in ("kernels", "tuning") else parts[:1]
    return "/".join(folders).removesuffix(".py") + ("/" if len(parts) > 1 else "")


def test_who_imports_triton() -> None:
    found = {package_of(p) for p in (ROOT / "kerntune").rglob("*.py") if imports_triton(p)}
    said = re.search(r"Triton is imported by ((?:`[\w/]+` ?)+)alone", text_of("docs/architecture.md"))
    assert said is not None
    assert set(re.findall(r"`([\w/]+)`", said[1])) == found


def test_who_calls_a_driver() -> None:
    files = [p for p in (ROOT / "kerntune").rglob("*") if p.suffix in (".py", ".c", ".h")]
    found = {package_of(p) for p in files if re.search(r"\bcuLaunchKernel|libcuda", p.read_text())}
    assert found == {"gpu/", "kernels/dispatch/"}
    assert "Only `gpu/` and `kernels/dispatch/` call a GPU's driver." in text_of("docs/architecture.md")


def test_slots_of_a_race() -> None:
    graph = f"a graph of up to {TARGET_LAUNCHES} launches and {GRAPH_NS / 1e6:g} ms"
    pairs = f"2 to {MOST_RUNS} event pairs, about {SLOT_NS / 1e6:g} ms"
    assert re.search(f"{graph}, where [^.;]*, or {pairs}", text_of("docs/architecture.md"))


def test_drift_is_more_than_both_limits_and_looked_at_again() -> None:
    said = text_of("docs/verdicts.md")
    assert f"by more than {DRIFT:.0%}, and by more than the case's own medians".replace("%", " %") in said
    assert (len(SHORT_RESTS_S), sum(SHORT_RESTS_S)) == (5, pytest.approx(1.5))
    assert "up to five times more, within 1.5 s" in said
    verdicts = [decide(Evidence(1, 1, identical=True, drift=d, spread=0.08), Policy()) for d in (0.07, 0.09)]
    assert verdicts == [Verdict.PASS, Verdict.DRIFTED], "7 % is beyond the first, and within what calibration saw"


def test_the_level_that_is_shown() -> None:
    said = f"The interval in a message is always the one at {SHOWN_LEVEL:.0%}".replace("%", " %")
    assert said in text_of("docs/verdicts.md")
