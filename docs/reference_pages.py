"""Writes docs/reference/ from the code: options, marker, variables, commands, verdicts, the run's JSON, the library.

    python docs/reference_pages.py            # write them (`make fix` does)

mkdocs calls it as well (``hooks`` in mkdocs.yml): the site's first page is the README.
"""

from __future__ import annotations

import argparse
import os
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import fields

import kerntune
from kerntune.base.case_result import CaseResult
from kerntune.base.policy import Missing, Policy, Verdict
from kerntune.cli.command import GROUPS, build_parser
from kerntune.gate.report import RunReport
from kerntune.referee.reasons import Reason
from kerntune.tuning.tune_options import VARIABLES
from pytest_kerntune.marker import SIGNATURE
from pytest_kerntune.options import OPTIONS

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
MADE = "This page is made from the code by `docs/reference_pages.py` (`make fix`): don't edit it."

MEANINGS: Mapping[Verdict, str] = {
    Verdict.PASS: "The code is the baseline's, or a replay side by side is within the tolerance. Without a GPU also "
    "other code that no static rule fails: its row says `code changed; speed is judged on a GPU`.",
    Verdict.IMPROVED: "Faster than the baseline by more than the tolerance. Refresh the baseline to keep it.",
    Verdict.REGRESSED: "Slower by more than the tolerance, as the whole interval says, since the baseline or since the "
    "anchor. Or a static rule failed, a gated metric grew, gated results changed, or a launch wrote outside of its "
    "tensors. Without a baseline the table calls it FAILS.",
    Verdict.DRIFTED: "The code is cleared, but the baseline's own binary runs at another speed than stored: driver, "
    "clocks or host changed.",
    Verdict.INCONCLUSIVE: "Too noisy to tell, other work ran on the GPU, or the baseline can't be replayed here. "
    "Without a GPU: compiled under other settings of the environment.",
    Verdict.NEW: "There is no baseline on this kind of device. It is recorded.",
    Verdict.STALE: "A baseline whose test, call or shape is no more. It is listed with the command that removes it.",
    Verdict.INCOMPLETE: "No kernel was launched, or fewer than the baseline has. Without a GPU: the call or its test "
    "stopped where a value is asked for.",
}


def options() -> str:
    """Flags and ini keys."""
    rows = [
        [_code(o.flag + (f"={o.metavar}" if o.metavar and not o.bare else "")) if o.flag else "", _code(o.ini), o.help]
        for o in OPTIONS if o.help
    ]  # fmt: skip
    return _page(
        "Options",
        "A flag says what one run does. An ini key says how a project's cases are judged; `-o KEY=VALUE` sets one for "
        "a single run. `pytest --help` prints the same under *Triton kernels*.",
        _table(["flag", "ini key", "what it does"], rows),
    )


def marker() -> str:
    """Keywords of the marker."""
    head, _, said = SIGNATURE.partition("): ")
    keywords = head.partition("(")[2].split(", ")
    rest = "|".join(map(re.escape, keywords))
    parts = re.split(rf"(?<=\. )(?=(?:{rest})=)", said)
    rows = [[_code(text.partition("=")[0]), text.strip()] for text in parts[1:]]
    return _page(
        "The marker",
        "`@pytest.mark.autotune(...)` says how one test is judged. A marker closer to the test overrides, keyword by "
        "keyword. `pytest --markers` prints the same.",
        _table(["keyword", "meaning"], rows),
    )


def environment() -> str:
    """Variables."""
    rows = [[_code(name), variable.help] for name, variable in VARIABLES.items() if variable.help]
    return _page(
        "Environment variables",
        "`kerntune doctor` names a variable that is set and that nothing reads.",
        _table(["variable", "what it does"], rows),
    )


def commands() -> str:
    """Each command with its arguments."""
    return _page(
        "Commands", "Exit codes: 0 in order, 1 something was found, 2 wrong usage.", *_commands(build_parser())
    )


def _commands(parser: argparse.ArgumentParser, before: str = "kerntune") -> Iterator[str]:
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        for name, inner in action.choices.items():
            if name in GROUPS:
                yield from _commands(inner, f"{before} {name}")
                continue
            yield f"## {before} {name}"
            yield inner.description or ""
            rows = [_argument(a) for a in inner._actions if a.dest != "help" and a.help != argparse.SUPPRESS]
            if rows:
                yield _table(["argument", "meaning"], rows)


def _argument(action: argparse.Action) -> list[str]:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    words = "|".join(map(str, action.choices)) if action.choices else metavar
    said = (action.help or "") % {"default": action.default, "prog": "kerntune"} if action.help else ""
    if not action.option_strings:
        return [_code(words), said]
    return [_code(", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {words}")), said]


def verdicts() -> str:
    """What each verdict means and does."""
    usual, ci, strict = Policy(), Policy(ci=True, missing=Missing.FAIL), Policy(strict=True)
    rows = [
        [v.value, MEANINGS[v], *(_outcome(policy, v) for policy in (usual, ci, strict))]
        for v in Verdict
    ]  # fmt: skip
    return _page(
        "Verdicts",
        "What a verdict does to its test, by default, where `CI` is set, and under `--kerntune-strict`. `outcomes=` "
        "and `kerntune_outcomes` set it. [How a verdict is reached](../verdicts.md).",
        _table(["verdict", "means", "the test", "in CI", "strict"], rows),
    )


def _outcome(policy: Policy, verdict: Verdict) -> str:
    return {"pass": "passes", "warn": "warns", "fail": "fails"}[policy.outcome(verdict).value]


def run_json() -> str:
    """Fields of ``kerntune.run/1``."""
    kinds: list[type] = []
    _collect(RunReport, kinds)
    parts = [
        f"## {kind.__name__}\n\n{_plain(kind.__doc__ or '')}\n\n"
        + _table(
            ["field", "type"], [[_code(f.encode_name), _code(_type(f.type))] for f in msgspec.structs.fields(kind)]
        )
        for kind in sorted(kinds, key=lambda k: (k is not RunReport, k is not CaseResult, k.__name__))
    ]
    return _page(
        "The run's JSON",
        "`--kerntune-json=FILE` writes `kerntune.run/1`: one `RunReport`. Fields without a value are left out. Times "
        "are in nanoseconds, sizes in bytes.",
        *parts,
    )


def _collect(kind: Any, found: list[type]) -> None:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind not in found:
            found.append(kind)
            for field in fields(kind):
                _collect(field.type, found)
        return
    for inner in typing.get_args(kind):
        _collect(inner, found)


def _type(kind: Any) -> str:
    args = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " | ".join(_type(a) for a in args if a is not msgspec.UnsetType)
    if typing.get_origin(kind) is typing.Literal:
        return " | ".join(map(repr, args))
    if typing.get_origin(kind) is tuple:
        return f"list of {_type(args[0])}" if args[-1:] == (...,) else f"[{', '.join(map(_type, args))}]"
    if typing.get_origin(kind) is dict:
        return f"object of {_type(args[1])}"
    return str(getattr(kind, "__name__", kind))


def library() -> str:
    """What ``import kerntune`` gives."""
    parts = [f"::: kerntune.{name}" for name in sorted(kerntune.__all__)]
    return _page("The library", "What `import kerntune` gives. [Examples](../library.md).", *parts)


def judge() -> str:
    """Why ``kerntune judge`` refuses."""
    rows = [[_code(reason.value), reason.told] for reason in Reason]
    return _page(
        "Reasons for REFUSED",
        "The closed list of reasons for which `kerntune judge` gives no other verdict ([the judge](../judge.md)).",
        _table(["reason", "means"], rows),
    )


PAGES: Mapping[str, Callable[[], str]] = {
    "judge": judge,
    "options": options,
    "marker": marker,
    "environment": environment,
    "commands": commands,
    "verdicts": verdicts,
    "json": run_json,
    "library": library,
}
"""What makes a page, by its name."""


def _page(title: str, intro: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", intro, *parts, MADE]) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _plain(text: str) -> str:
    """reST roles and double backticks as Markdown."""
    text = re.sub(r":(?:mod|class|func|meth|data|attr):`~?([^`]+)`", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`")


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [
        heads,
        ["---"] * len(heads),
        *([_plain(cell).replace("|", "\\|").replace("%%", "%") for cell in r] for r in rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def home() -> str:
    """README, with links that are right within ``docs/``."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.replace("](docs/", "](").replace('"docs/', '"').replace("](CONTRIBUTING.md", "](../CONTRIBUTING.md")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Called by mkdocs: a link to a file of the repository that isn't of the site becomes its path."""
    here = Path(page.file.src_uri).parent

    def told(match: re.Match[str]) -> str:
        path = os.path.normpath(here / match[2])
        if not path.startswith("../"):
            return match[0]
        return f"`{path[3:]}`" if path.endswith(match[1]) else f"{match[1]} (`{path[3:]}`)"

    return OUTSIDE.sub(told, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Called by mkdocs: Python-Markdown leaves the backslash of an escaped bar in a table's code, GitHub does not."""
    return re.sub(r"<code>[^<]*</code>", lambda code: code[0].replace("\\|", "|"), html)


OUTSIDE = re.compile(r"\[([^\]\n]+)\]\((\.\./[^)#\s]+)(?:#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs: the README joins the pages of ``docs/``."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "index.md", content=home()))
    return files


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, made in PAGES.items():
        (FOLDER / f"{name}.md").write_text(made(), encoding="utf-8")


if __name__ == "__main__":
    main()
