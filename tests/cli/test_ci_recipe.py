"""The commands and options in docs/ci.md exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kerntune.base.policy import STATIC_RULES
from kerntune.cli.command import build_parser
from pytest_kerntune.options import OPTIONS
from pytest_kerntune.values import parse_static

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "ci.md").read_text(encoding="utf-8")
PAGES = [TEXT, *(page.read_text(encoding="utf-8") for page in sorted((DOCS / "how-to").glob("*.md")))]
COMMANDS = re.findall(r"(?:run: |^\s+|`|\$ )(kerntune (?:diff|upgrade) [^`\n>#]*)", "\n".join(PAGES), re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse(command: str) -> None:
    args = build_parser().parse_args(shlex.split(command)[1:])
    assert args.names if " diff " in command else args.python


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 4


def test_options_exist() -> None:
    known = {o.flag for o in OPTIONS}
    used = set(re.findall(r"--kerntune[\w-]*", TEXT))
    assert used
    assert used <= known


def test_every_rule_is_in_the_table_with_its_default() -> None:
    rows = [line.split("|")[1:4] for line in TEXT.splitlines() if line.startswith("| `")]
    shown = {name: default.strip() for names, _, default in rows for name in re.findall(r"`(\w+)`", names)}
    assert shown.keys() == STATIC_RULES.keys()
    for name, rule in STATIC_RULES.items():
        share = "" if rule.threshold is None else f", {rule.threshold * 100:.0f} %"
        assert shown[name].startswith(f"{rule.severity}{share}"), name


def test_the_rules_that_are_shown_can_be_read() -> None:
    (ini,) = re.findall(r"^kerntune_static = (.*)$", TEXT, re.MULTILINE)
    assert parse_static(ini, "here").rule("occupancy").severity == "warn"
