"""The policy of a project: how its cases are judged where a test says nothing else."""

from __future__ import annotations

from kerntune.base.numerics import NumericsRule
from kerntune.base.policy import Missing, Outcome, Policy, StaticPrune, Update, Verdict
from kerntune.errors import UsageError
from pytest_kerntune.gating import parse_metrics, parse_outcomes
from pytest_kerntune.setting import SettingSource, choice
from pytest_kerntune.static_rules import parse_static
from pytest_kerntune.values import VERIFY, parse_choice, parse_floor, parse_names, parse_tolerance


def policy_of(source: SettingSource, update: Update, ci: bool) -> Policy:
    """What the command line and the ini file say of it."""
    plain = Policy()
    return Policy(
        tolerance=source.read("--kerntune-tolerance", parse_tolerance, plain.tolerance),
        floor_ns=source.read("kerntune_floor", parse_floor, plain.floor_ns),
        verify=source.read("kerntune_verify", lambda text, where: parse_choice(text, VERIFY, where), plain.verify),
        verify_ignore=source.read("kerntune_verify_ignore", parse_names, plain.verify_ignore),
        static_prune=source.read("kerntune_static_prune", StaticPrune.parse, plain.static_prune),
        missing=_missing(source, update, ci),
        strict=source.on_command_line("--kerntune-strict"),
        ci=ci,
        static=source.read("kerntune_static", parse_static, plain.static),
        anchor_tolerance=source.read("kerntune_anchor_tolerance", parse_tolerance, plain.anchor_tolerance),
        metrics=source.read("kerntune_metrics", parse_metrics, plain.metrics),
        outcomes=_outcomes(source),
        numerics=source.read("kerntune_numerics", NumericsRule.parse, plain.numerics),
    )


def _outcomes(source: SettingSource) -> dict[Verdict, Outcome]:
    """``--kerntune-strict`` on the command line rules out what the ini file says of INCONCLUSIVE."""
    found: dict[Verdict, Outcome] = source.read("kerntune_outcomes", parse_outcomes, {})
    if source.on_command_line("--kerntune-strict"):
        found.pop(Verdict.INCONCLUSIVE, None)
    return found


def _missing(source: SettingSource, update: Update, ci: bool) -> Missing:
    """An update that writes new cases implies ``record``; saying otherwise in the same command contradicts it."""
    writes_new = update in (Update.ALL, Update.NEW)
    missing = source.read("--kerntune-missing", choice(Missing), None)
    if not writes_new:
        return missing or (Missing.FAIL if ci else Missing.RECORD)
    if missing not in (None, Missing.RECORD) and source.on_command_line("--kerntune-missing"):
        raise UsageError(
            f"--kerntune-update={update.value} records cases without a baseline, "
            f"--kerntune-missing={missing.value} refuses to: drop one of them"
        )
    return Missing.RECORD
