"""Sentences of README and docs that name what the code has: options, modules, constants."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from cli.command import subcommands

import kerntune
from kerntune.base.case_result import CaseResult
from kerntune.base.policy import METRICS, TIMERS, Policy, Verdict
from kerntune.cli.command import build_parser
from kerntune.gate.decision import DRIFT, Evidence, decide
from kerntune.gate.gpu_check import SHORT_RESTS_S
from kerntune.gate.report import RunReport
from kerntune.kernels.compat.launcher import _DIRECT_CALLS
from kerntune.kernels.compat.versions import PYTHON_RUN, TORCH_RUN, TRITON_RUN
from kerntune.timing.paired_processes import SHOWN_LEVEL
from kerntune.timing.timers import TARGET_LAUNCHES
from kerntune.tuning.race import GRAPH_NS, MOST_RUNS, SLOT_NS
from kerntune.tuning.tune_options import VARIABLES
from pytest_kerntune.marker import _PARSERS, SIGNATURE
from pytest_kerntune.options import OPTIONS

ROOT = Path(__file__).parents[1]


def text_of(name: str) -> str:
    """A document with its line breaks as spaces."""
    return " ".join((ROOT / name).read_text().split())


def test_each_flag_has_an_ini_key_of_its_name_or_none() -> None:
    known = {o.flag: o.ini for o in OPTIONS if o.flag and o.ini}
    assert known["--kerntune"] == "kerntune"
    assert {flag.lstrip("-").replace("-", "_") for flag in known} == set(known.values())


def test_the_reference_is_made_of_the_code(reference: ModuleType) -> None:
    """Each page is as ``make fix`` writes it, and none is left of what is made no more."""
    folder = ROOT / "docs/reference"
    assert {page.stem for page in folder.iterdir()} == set(reference.PAGES)
    for name, made in reference.PAGES.items():
        assert (folder / f"{name}.md").read_text() == made(), "run `make fix`"


@pytest.mark.slow
def test_the_reference_has_each_word_that_users_can_say(reference: ModuleType) -> None:
    flags, keys = ({getattr(o, name) for o in OPTIONS if o.help} - {""} for name in ("flag", "ini"))
    assert {word for word in flags | keys if f"`{word}" not in reference.options()} == set()
    assert {word for word in _PARSERS if f"| `{word}` |" not in reference.marker()} == set()
    named = {name for name, variable in VARIABLES.items() if variable.help}
    assert named == set(re.findall(r"^\| `(\w+)` \|", reference.environment(), re.M))
    assert {v.value for v in Verdict} == set(re.findall(r"^\| ([A-Z]+) \|", reference.verdicts(), re.M))
    assert (
        "| NEW | There is no baseline on this kind of device. It is recorded. | passes | fails |"
        in reference.verdicts()
    )
    fields = {f"| `{f.encode_name}` |" for kind in (RunReport, CaseResult) for f in msgspec.structs.fields(kind)}
    assert {text for text in fields if text not in reference.run_json()} == set()
    assert {name for name in kerntune.__all__ if f"::: kerntune.{name}\n" not in reference.library()} == set()


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_pages", ROOT / "docs/reference_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def imports_triton(path: Path) -> bool:
    """Anywhere in it, in functions too."""
    text = path.read_text()
    if not re.search(r"\b(from|import)\b.*\btriton\b", text):  # to parse all modules takes a second
        return False
    nodes = list(ast.walk(ast.parse(text)))
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
    assert re.search(f"{graph}, where [^.;]*, or {pairs}", text_of("docs/tuning.md"))


def test_drift_is_more_than_both_limits_and_looked_at_again() -> None:
    said = text_of("docs/verdicts.md")
    assert f"by more than {DRIFT:.0%}, and by more than the case's own medians".replace("%", " %") in said
    assert (len(SHORT_RESTS_S), sum(SHORT_RESTS_S)) == (5, pytest.approx(1.5))
    assert "up to five times more, within 1.5 s" in said
    verdicts = [decide(Evidence(1, 1, identical=True, drift=d, state_range=0.08), Policy()) for d in (0.07, 0.09)]
    assert verdicts == [Verdict.PASS, Verdict.DRIFTED], "7 % is beyond the first, and within what calibration saw"


def test_the_level_that_is_shown() -> None:
    said = f"The interval in a message is always the one at {SHOWN_LEVEL:.0%}".replace("%", " %")
    assert said in text_of("docs/verdicts.md")


def test_each_subcommand_is_documented(reference: ModuleType) -> None:
    found = {" ".join(("kerntune", *words)) for words in subcommands(build_parser())}
    assert "kerntune init" in found
    assert found <= set(re.findall("^## (.*)", reference.commands(), re.M))


@pytest.mark.parametrize("document", ["docs/library.md", "docs/heuristics.md"])
def test_each_heuristic_is_documented(document: str) -> None:
    """Decorators that propose configs: each lazy name of the package but those that take a list or propose nothing."""
    others = {"autotune", "bandwidth", "descend", "fingerprint", "grid_barrier", "install", "template", "tune_many"}
    others |= {"tuning_job", "choice", "judge"}
    families, told = {n for n in kerntune.__all__ if n.islower()} - others, text_of(document)
    assert len(families) >= 5
    assert {n for n in families if f"`{n}`" not in told and f"kerntune.{n}(" not in told} == set()


def test_versions_of_triton_and_torch_agree() -> None:
    """pyproject, the Makefile's matrix, the README and the launchers that are known name the series that were run; pip
    may bring one more, of which each run says that it was not."""
    project = (ROOT / "pyproject.toml").read_text()
    assert list(_DIRECT_CALLS) == list(TRITON_RUN)
    for name, run in (("triton", TRITON_RUN), ("torch", TORCH_RUN)):
        major, newest = run[-1].split(".")
        assert f'"{name}>={run[0]},<{major}.{int(newest) + 2}"' in project
        assert [f"{major}.{n}" for n in range(int(run[0].split(".")[1]), int(newest) + 1)] == list(run)
    makefile = (ROOT / "Makefile").read_text()
    assert re.findall(r"^MATRIX := (.*)$", makefile, re.M) == [" ".join(TRITON_RUN[1:-1])]
    spans = ", ".join(f"{name} {run[0]} to {run[-1]}" for name, run in (("Triton", TRITON_RUN), ("torch", TORCH_RUN)))
    for document in ("README.md", "docs/limits.md"):
        assert f"{spans}, Python {PYTHON_RUN[0]} to {PYTHON_RUN[-1]}" in text_of(document)
    assert f"triton=={TRITON_RUN[-1]}." in (ROOT / "constraints.txt").read_text()
    assert f'requires-python = ">={PYTHON_RUN[0]}"' in project


def test_what_is_said_of_the_matrix_is_what_was_run() -> None:
    """The limits name the series and Pythons in the last results of ``make torch-matrix``, with their date. The newest
    is among them, and nothing failed in any."""
    runs = json.loads((ROOT / "benchmarks/results/torch_matrix.json").read_text())["runs"]
    pythons: dict[str, list[str]] = {}
    for run in runs:
        torch, python, triton = (".".join(run[name].split(".")[:2]) for name in ("torch", "python", "triton"))
        pythons.setdefault(torch, []).append(python)
        assert (torch in TORCH_RUN, python in PYTHON_RUN, triton in TRITON_RUN) == (True, True, True)
        assert (run["tests"]["exit"], run["tests"]["failures"], run["demo"]["exit"]) == (0, [], 0)
        assert {"tests/gpu/fake_cuda", "tests/capture", "tests/tuning/torch_compile"} <= set(run["tests"]["paths"])
        assert run["tests"]["passed"] > 500
        assert set(run["demo"]) <= {"exit", "PASS", "NEW"}
        assert run["first_hour"]
        assert all(step["ok"] for step in run["first_hour"])
    assert TORCH_RUN[-1] in pythons
    said = ", ".join(f"{torch} (Python {', '.join(found)})" for torch, found in sorted(pythons.items()))
    latest = max(run["date"] for run in runs)
    assert f"it has run torch {said} ([results](../benchmarks/results/torch_matrix.json), {latest})" in text_of(
        "docs/limits.md"
    )


def test_the_markers_help_names_its_keywords() -> None:
    """What `pytest --markers` prints, with the metrics and timers that can be named."""
    (keywords,) = re.findall(r"^autotune\(([\w, ]+)\):", SIGNATURE)
    assert set(keywords.split(", ")) == set(_PARSERS)
    assert {name for name in METRICS if not re.search(rf"metrics=.*\b{name}\b", SIGNATURE)} == set()
    assert {name for name in TIMERS if f"'{name}'" not in SIGNATURE} == set()
    (ini,) = [o.help for o in OPTIONS if o.ini == "kerntune_metrics"]
    assert {name for name in METRICS if not re.search(rf"\b{name}\b", ini)} == set()


def test_each_dependency_has_its_reason() -> None:
    """A row of docs/dependencies.md names each runtime dependency of pyproject.toml, and each extra's."""
    (listed,) = re.findall(r"^dependencies = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.M | re.S)
    named = re.findall(r'"([\w-]+)', listed)
    assert len(named) > 5
    rows = re.findall(r"^\| ([\w, -]+) \| .+ \| .+ \|$", (ROOT / "docs/dependencies.md").read_text(), re.M)
    assert set(named) - {n for row in rows for n in row.split(", ")} == set()


@pytest.mark.parametrize(("page", "heading"), [("static-rules", "fail of"), ("verdicts", "rule | equal code")])
def test_a_summary_has_the_figures_of_the_measured_page(page: str, heading: str) -> None:
    """Each ``0 of 155`` of the table on the page of explanation is in the row of that name that a script has made."""
    text, made = (ROOT / f"docs/{name}.md" for name in (page, f"measured/{page}"))
    table = re.search(rf"^\| {re.escape(heading)}.*\n\|[-|]+\|\n((?:\|.*\n)+)", text.read_text(), re.M)
    assert table is not None
    for row in table[1].splitlines():
        name, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        (measured,) = (line for line in made.read_text().splitlines() if line.startswith(f"| {name} |"))
        assert any(cells)
        assert [cell for cell in cells if cell not in measured] == []


# how much there is to read


def test_the_readme_is_a_page() -> None:
    text = (ROOT / "README.md").read_text()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    assert len(text.splitlines()) <= 110
    assert len(prose.split()) <= 900
    assert [s for s in sentences(prose) if len(re.findall(r"\w[\w'.-]*", s)) > 20] == []


def sentences(prose: str) -> list[str]:
    """Of paragraphs, items of lists and cells of tables; code counts as a word, and a link as its text."""
    plain = re.sub(r"<[^>]+>", "", re.sub(r"`[^`]+`", "code", re.sub(r"\]\([^)]*\)", "]", prose)))
    parts = re.split(r"\n\n|\n(?=[*#|])| \| ", plain)
    return [s for part in parts for s in re.split(r"(?<=[.?!])\s+", " ".join(part.replace("**", "").split()))]


@pytest.mark.parametrize(("prose", "count"), [("One. Two [a\nb](c.md).\n* Three `x. y`", 3), ("| a | b |\n| c |", 3)])
def test_sentences_are_told_apart(prose: str, count: int) -> None:
    assert len([s for s in sentences(prose) if re.search(r"\w", s)]) == count


def test_words_that_are_written_by_hand() -> None:
    """As ``wc -w`` counts, without what scripts make: each page of the site is read once, and must be worth it."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    made = {"docs/packages.md", "docs/figures.md"}
    words = {
        name: len(page.read_text().split())
        for page in pages
        if (name := page.relative_to(ROOT).as_posix()) not in made
        and not name.startswith(("docs/reference/", "docs/measured/"))
    }
    assert len(words) > 50
    assert sum(words.values()) <= 50_000
