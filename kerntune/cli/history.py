"""``kerntune history`` and ``kerntune report``: what many runs say together, and what single runs found.

A report is an HTML page, a Markdown summary, CSV or Parquet. Its page draws the history too.
"""

from __future__ import annotations

import os
import shlex
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from kerntune.cli.stored import case_argument
from kerntune.errors import KerntuneError, StoreError, UsageError
from kerntune.gate.console import FINDINGS, OK, complain, counted, fail_with, say, say_found
from kerntune.gate.history.index import DIRTY, Index
from kerntune.gate.history.places import COMMIT_DIGITS, Place, add_run, history_run, place_of
from kerntune.gate.history.summary import CaseCurve, curves_of, steps_of, text_of
from kerntune.gate.project import find_project
from kerntune.gate.report import RunReport, read_run
from kerntune.gate.reporting.page import plotly_script, require_plotly, write_page
from kerntune.gate.reporting.summaries import append_summary, write_csv, write_parquet
from kerntune.tuning.cache.entries import default_folder

INI_KEY = "kerntune_history"


def show_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune history show`` takes."""
    case_argument(parser)
    parser.add_argument("place", nargs="?", default="", help=SUPPRESS)
    parser.add_argument(
        "--branch", metavar="NAME", default="", help="the branch that is shown (default: that with most runs)"
    )
    parser.add_argument(
        "--false-rate",
        metavar="P",
        type=float,
        default=0.01,
        help="probability of any false step in all that is shown (default: 0.01)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="for a comment on a pull request, or a job summary")
    form.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if a case got slower")
    _history_argument(parser)


def show(args: Namespace) -> int:
    """Print the steps; 1 if a file of the history can't be read, or with ``--exit-code`` if there is a slowdown."""
    if not 0 < args.false_rate < 1:
        raise UsageError(f"--false-rate {args.false_rate}: give a probability between 0 and 1, as 0.01")
    if args.place:
        raise UsageError(f"name the history by its option: kerntune history show --history={shlex.quote(args.place)}")
    place = _named(history_to_read(args.history))
    index = Index(place, default_folder() / "history")
    found = steps_of(index, case=args.case, branch=args.branch, false_rate=args.false_rate)
    say_found(found, args.json, lambda: text_of(found, markdown=args.markdown))
    if not found.runs:
        complain(f"{place.name}: {no_run(index, args.branch)}")
    elif not found.cases:
        complain(f"{place.name}: no case with {args.case!r} in its name")
    slower = args.exit_code and any(step.size > 0 for step in found.steps)
    return max(fail_with(found.unread), FINDINGS if slower else OK)


def _history_argument(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--history", metavar="PLACE", help="a folder, git:BRANCH, or a URL (default: the ini file's kerntune_history)"
    )


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune history add`` takes."""
    parser.add_argument("runs", metavar="RUN.json", nargs="+", help="what --kerntune-json wrote")
    _history_argument(parser)


def add(args: Namespace) -> int:
    """Add runs that ``--kerntune-json`` has written."""
    place = _named(history_place(args.history))
    for file in map(Path, args.runs):
        name = add_run(place, history_run(_read(file)))
        say(f"{file}: added as {name}" if name else f"{file}: holds no case that was timed; nothing added")
    return OK


def forget_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune history forget`` takes."""
    parser.add_argument("runs", metavar="RUN", nargs="+", help="the file that `add` named, or the run's commit")
    _history_argument(parser)


def forget(args: Namespace) -> int:
    """Remove runs: the files that ``add`` named, or those of a commit. All are looked up before one is removed."""
    place = _named(history_to_read(args.history))
    names = place.names()
    for name in [name for text in args.runs for name in _runs_named(place, names, text)]:
        place.remove(name)
        say(f"{place.name}: {name} is forgotten")
    return OK


def _runs_named(place: Place, names: Sequence[str], text: str) -> list[str]:
    exact = [n for n in names if text in (n, PurePosixPath(n).name, PurePosixPath(n).stem)]
    if exact:
        return exact
    commit = text.removesuffix(DIRTY)[:COMMIT_DIGITS]
    found = [name for name in names if len(commit) == COMMIT_DIGITS and f"-{commit}-" in PurePosixPath(name).name]
    if len(found) == 1:
        return found
    several = "\n".join([f"{place.name}: {len(found)} runs are of commit {text}; name one:", *found])
    raise UsageError(several if found else f"{place.name}: has no run {text}; name a file of it, or a commit")


def _named(place: Place | None) -> Place:
    if place is None:
        raise UsageError(f"name the history: --history=FOLDER|git:BRANCH|URL, or set {INI_KEY} in the ini file")
    return place


def history_to_read(given: str | None) -> Place | None:
    """As :func:`history_place`; :class:`UsageError` if ``--history`` names one to which nothing was ever added. That of
    the ini file has nothing in it until the first run."""
    place = history_place(given)
    why = place.absent() if place is not None and given is not None else ""
    if why:
        raise UsageError(f"--history={given}: {why}; the first run with --kerntune-history={given} makes it")
    return place


def no_run(index: Index, branch: str) -> str:
    """What to say of a history that has no run, or none of a branch that is named."""
    if not branch or not index.runs():
        return "no run was added there yet"
    return f"no run of branch {branch}; most are of {index.main_branch() or 'no branch'}"


def history_place(given: str | None) -> Place | None:
    """That of ``--history``, else of the ini key, relative to the ini file; None if neither names one."""
    if given is not None:
        return place_of(given, Path.cwd())
    project = find_project(Path.cwd())
    text = project.text(INI_KEY)
    return place_of(text, project.root) if text else None


DEFAULT_TITLE = "kerntune"
"""Of comments."""


def report_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune report`` takes."""
    parser.add_argument("runs", metavar="RUN.json", nargs="+", help="what --kerntune-json wrote")
    parser.add_argument("-o", "--output", metavar="FILE", help="one HTML file that opens offline")
    parser.add_argument(
        "--title",
        metavar="TEXT",
        default=DEFAULT_TITLE,
        help="its heading (default: the project's name), and what tells comments of several jobs apart",
    )
    parser.add_argument(
        "--history",
        metavar="PLACE",
        help="a folder, git:BRANCH, or a URL, drawn in the page (default: the ini file's kerntune_history)",
    )
    parser.add_argument(
        "--branch", metavar="NAME", default="", help="the branch of the history (default: that with most runs)"
    )
    parser.add_argument("--summary", metavar="FILE", help="append Markdown, as for $GITHUB_STEP_SUMMARY")
    parser.add_argument(
        "--comment",
        choices=["wrong", "always"],
        help="in a job of GitHub Actions: the same as one comment on its pull request, edited by later runs; wrong: "
        "written only where a test fails. A token is read from GITHUB_TOKEN",
    )
    parser.add_argument("--csv", metavar="FILE", help="a table of all figures")
    parser.add_argument("--parquet", metavar="FILE", help="the same; needs pip install kerntune[parquet]")


def report(args: Namespace) -> int:
    """Write each form that was asked for; :class:`UsageError` if none was, or if a library for it is missing."""
    if not (args.output or args.csv or args.parquet or args.summary or args.comment):
        raise UsageError("say what to write: -o report.html, --csv FILE, --parquet FILE, --summary FILE or --comment")
    if args.history and not args.output:
        raise UsageError("--history is drawn in the HTML report: add -o report.html")
    if args.output:
        require_plotly(f"-o {args.output}")
    runs = [_read(Path(name)) for name in args.runs]
    if args.output:
        title = "" if args.title == DEFAULT_TITLE else args.title
        write_page(Path(args.output), runs, _curves(args, runs), plotly_script(), title)
        _say(args.output, runs)
    for table, write in ((args.csv, write_csv), (args.parquet, write_parquet)):
        if table:
            write(Path(table), runs)
            _say(table, runs)
    if args.summary:
        append_summary(Path(args.summary), runs)
    if args.comment:
        _comment(args, runs)
    return OK


def _comment(args: Namespace, runs: Sequence[RunReport]) -> None:
    """The job's result doesn't depend on a comment: what prevents one is printed."""
    from kerntune.gate.reporting.pull_request import comment, pull_request_of  # http.client takes 50 ms

    place = pull_request_of(os.environ)
    if isinstance(place, str):
        say(f"no comment: {place}")
        return
    try:
        say(comment(place, runs, args.title, args.comment == "always"))
    except StoreError as exc:
        complain(f"no comment: {exc}")


def _read(path: Path) -> RunReport:
    if not path.is_file():
        raise UsageError(f"{path}: no such file; name what --kerntune-json wrote")
    return read_run(path)


def _curves(args: Namespace, runs: Sequence[RunReport]) -> Sequence[CaseCurve]:
    """Those of the history that is named; one that only the ini file names fails no report if it can't be reached."""
    try:
        place = history_to_read(args.history)
        if place is None:
            return ()
        index = Index(place, default_folder() / "history")
        curves = curves_of(index, branch=args.branch)
    except KerntuneError as exc:
        if args.history is not None:
            raise
        complain(f"the history of the ini file is left out: {exc}")
        return ()
    if not _is_drawn(curves, runs):
        none = "no measured change of these cases" if index.runs(args.branch) else no_run(index, args.branch)
        complain(f"{place.name}: {none}; the report has no history")
    return curves


def _is_drawn(curves: Sequence[CaseCurve], runs: Sequence[RunReport]) -> bool:
    shown = {(str(r.case), r.target, r.device) for run in runs for r in run.results}
    return any(c.points and (c.case, c.target, c.device) in shown for c in curves)


def _say(path: str, runs: Sequence[RunReport]) -> None:
    say(f"{path}: {counted(sum(len(r.results) for r in runs), 'case')} of {counted(len(runs), 'run')}")
