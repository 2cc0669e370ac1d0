"""Comparisons that pass on stand-ins, whose values nothing has: each is told, with the users' line."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_runs import N, scaled

from gate.project import Project, Run
from kerntune.base.case_result import UncheckedValue
from kerntune.base.codec import from_json
from kerntune.cli import figures
from kerntune.errors import KerntuneError
from kerntune.gate.history.places import history_run
from kerntune.gate.history.points import decoded, encoded
from kerntune.gate.report import SCHEMA, RunReport, unchecked_line, worst_first, write_run
from kerntune.gate.reporting.page import html_page
from kerntune.gate.reporting.summaries import annotation_lines, summary, write_csv

HERE = Path(__file__)


@contextlib.contextmanager
def static_run(project: Project) -> Iterator[Run]:
    """Whose project is this folder, so that places are those of this file."""
    with project.static_run("cuda:90") as run:
        run.session.settings = replace(run.session.settings, root=HERE.parent)
        yield run


def allclose(y: torch.Tensor, ref: torch.Tensor) -> None:
    assert torch.allclose(y, ref)


def not_equal(y: torch.Tensor, ref: torch.Tensor) -> None:
    assert not torch.equal(y, ref)


def reduced(y: torch.Tensor, ref: torch.Tensor) -> None:
    assert (y == 0).all()


def single(y: torch.Tensor, ref: torch.Tensor) -> None:
    assert (y - ref).abs().max() < 1e-3


def close(y: torch.Tensor, ref: torch.Tensor) -> None:
    torch.testing.assert_close(y, ref)


def in_a_loop(y: torch.Tensor, ref: torch.Tensor) -> None:
    for _ in range(3):
        assert torch.equal(y, ref)


def a_branch(y: torch.Tensor, ref: torch.Tensor) -> None:
    if torch.isnan(y).any():
        raise ValueError("nan")


@pytest.mark.parametrize(
    ("compare", "line", "asserted"),
    [
        (allclose, "assert torch.allclose(y, ref)", True),
        (not_equal, "assert not torch.equal(y, ref)", True),
        (reduced, "assert (y == 0).all()", True),
        (single, "assert (y - ref).abs().max() < 1e-3", True),
        (close, "torch.testing.assert_close(y, ref)", True),
        (in_a_loop, "assert torch.equal(y, ref)", True),
        (a_branch, "if torch.isnan(y).any():", False),
    ],
)
def test_each_is_told_once_with_its_line(
    project: Project, compare: Callable[..., None], line: str, asserted: bool
) -> None:
    with static_run(project) as run:
        x = torch.randn(8, device="cuda")
        compare(x, x + 1)
        found = run.session.take_unchecked()
        number = compare.__code__.co_firstlineno + (2 if compare is in_a_loop else 1)
        assert found == (UncheckedValue(f"{HERE.name}:{number}", line, asserted),)
        assert run.session.take_unchecked() == ()


def test_what_is_checked_is_not_told(project: Project) -> None:
    with static_run(project) as run:
        known, unknown = torch.arange(8, device="cuda"), torch.randn(8, device="cuda")
        assert torch.equal(known, torch.arange(8, device="cuda"))
        assert (known < 8).all()
        assert not torch.equal(unknown, unknown[:4])  # of another shape
        torch.testing.assert_close(known, known.clone())
        assert torch.allclose(torch.ones(3), torch.ones(3))
        assert run.session.take_unchecked() == ()


def test_with_a_gpu_there_is_none(project: Project) -> None:
    with project.run() as run:
        allclose(torch.randn(8, device="cuda"), torch.randn(8, device="cuda"))
        assert run.session.take_unchecked() == ()


def needs_values() -> torch.Tensor:
    return torch.ones(N, device="cuda") * torch.randn(4, device="cuda").sum().item()


def ends(x: torch.Tensor) -> Any:
    return scaled(x).sum().item()


@pytest.mark.parametrize(
    ("fn", "reference", "told"),
    [
        (scaled, lambda: torch.randn(N, device="cuda"), True),
        (scaled, needs_values, True),
        (scaled, None, False),
        (ends, needs_values, True),
        (ends, None, False),
    ],
    ids=["compared", "not computed", "none", "stopped before", "stopped, none"],
)
def test_a_reference_is_one_too(project: Project, fn: Callable[..., Any], reference: Any, told: bool) -> None:
    with static_run(project) as run:
        run.check(fn, torch.randn(N, device="cuda"), reference=reference)
        found = run.session.take_unchecked()
    assert [(x.place.partition(":")[0], x.asserted) for x in found] == [("project.py", True)] * told


def test_the_line_counts_kinds_and_tests() -> None:
    yes, no = UncheckedValue("a.py:1", "assert x", True), UncheckedValue("a.py:2", "if x:")
    assert unchecked_line({}) == ""
    assert unchecked_line({"a": (yes,)}) == "values not checked without a GPU: 1 assertion in 1 test"
    assert unchecked_line({"a": (no, no)}) == "values not checked without a GPU: 2 comparisons in 1 test"
    assert unchecked_line({"a": (yes, yes), "b": (yes, no)}) == (
        "values not checked without a GPU: 3 assertions and 1 other comparison in 2 tests"
    )


# each value of a run's JSON, replaced by one that no run writes: refused when it is read, or harmless ever after


RUN = Path(__file__).parents[1] / "data" / "formats" / "run-new.json"

NUMBERS = (1e308, -1, 10**25)
TEXTS = ("\x1b[2J\udc9b", "9" * 5000)


Path_ = tuple[Any, ...]


def leaves(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    if isinstance(value, (dict, list)):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(one, (*path, key))
    else:
        yield path, value


def places(run: Any) -> dict[Path_, tuple[Path_, Any]]:
    """A leaf for each place of the format: of the items of a list, the first that has it."""
    found: dict[Path_, tuple[Path_, Any]] = {}
    for path, value in leaves(run):
        found.setdefault(tuple("*" if isinstance(key, int) else key for key in path), (path, value))
    return found


def replaced(run: Any, path: Path_, value: Any) -> Any:
    if not path:
        return value
    copy = run.copy()
    copy[path[0]] = replaced(run[path[0]], path[1:], value)
    return copy


def hostile_values(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        return (*TEXTS, None)
    return (*(() if value is None or isinstance(value, bool) else NUMBERS), None)


def use(run: RunReport, folder: Path) -> None:
    """All that reads finished runs."""
    html_page([run], [], "")
    write_csv(folder / "a.csv", [run])
    summary([run])
    list(annotation_lines(worst_first([run]), lambda nodeid: (nodeid, 1)))
    write_run(folder / "run.json", run)
    figures.text_of(figures.figures_of(figures.of_run(str(folder / "run.json"), "")[0]))
    decoded(encoded(history_run(run)), "run")


@pytest.mark.slow
def test_every_value_is_refused_or_harmless(tmp_path: Path) -> None:
    run = json.loads(RUN.read_bytes())
    wrong, read = [], 0
    for path, value in places(run).values():
        for hostile in hostile_values(value):
            try:
                report = from_json(json.dumps(replaced(run, path, hostile)).encode(), RunReport, SCHEMA, where="run")
                read += 1
                use(report, tmp_path)
            except KerntuneError:
                pass
            except Exception as exc:
                where, shown = "/".join(map(str, path)), str(hostile)[:30]
                wrong.append(f"{where} = {shown!r}: {type(exc).__name__}: {str(exc)[:200]}")
    assert wrong == []
    assert read > 100
