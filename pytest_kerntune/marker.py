"""The marker ``autotune``: how one test's cases are judged and what is tried for them.

The stash of a test's item has what the plugin knows of the test, however and whenever it came to be known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from kerntune.base.config import COMPILE_FIELDS, Config, unique_configs
from kerntune.base.formatting import did_you_mean
from kerntune.base.numerics import NumericsRule
from kerntune.base.policy import TIMERS, Missing, Policy, StaticPrune
from kerntune.errors import ConfigError, UsageError
from pytest_kerntune.values import (
    SCOPES,
    VERIFY,
    member_of,
    one_of,
    parse_floor,
    parse_metrics,
    parse_name,
    parse_names,
    parse_outcomes,
    parse_static,
    parse_tolerance,
)

NAME = "autotune"

SIGNATURE = (
    "autotune(tolerance, floor, missing, candidates, verify, scope, name, static, metrics, outcomes, "
    "anchor_tolerance, timer, interpret, static_prune, verify_ignore, numerics): tune and compare this test's kernels "
    "under --kerntune. tolerance=0.02 or '2%': slower by more fails. floor=500 (nanoseconds) or '0.5us': a smaller "
    "slowdown never fails. missing='record'|'warn'|'fail': without a baseline. "
    "candidates={'kernel': [{'BLOCK': 128, 'num_warps': 4}, ...]}: configs to try. "
    "verify='winner'|'finalists'|'all'|'bitwise'|'off': which of them have to write what others write, bitwise: the "
    "very bits. "
    "verify_ignore=['partials']: arguments that are not compared for it. "
    "scope='kernels'|'op': what is timed. name='forward': name of the test's one call. static={'registers': 0.1, "
    "'spills': 'warn', 'all': True}: rules of the static gate, each a share, fail, warn or off, and whether every "
    "candidate config is compiled. metrics={'time': True, 'registers': 0.1}: what is gated, of time, registers, "
    "spills, shared_memory, binary_size, instructions. outcomes={'DRIFTED': 'fail'}: what a verdict does, pass, warn "
    "or fail. "
    "anchor_tolerance=0.05: slower by more since the anchor fails. timer='auto'|'graph'|'events'|'profiler': how "
    "times are taken. static_prune='spills model': candidates that aren't run by what they compile to, of spills, "
    "occupancy, model and a share to keep. numerics='report'|'bitwise'|'ulp:2'|'rtol:1e-5'|'off': which change of "
    "results, against those of the baseline's code on the same memory, fails. "
    "interpret={'rows': 64}: the test's parameters under --kerntune-interpret. "
    "A marker closer to the test overrides."
)


@dataclass(frozen=True)
class Marker:
    """What the markers on one test say. ``policy`` holds only the fields that they set."""

    marked: bool = False
    policy: Mapping[str, Any] = field(default_factory=dict)
    candidates: Mapping[str, tuple[Config, ...]] = field(default_factory=dict)
    scope: str | None = None
    name: str | None = None
    interpret: Mapping[str, Any] = field(default_factory=dict)
    """Values of the test's parameters while kernels are interpreted."""

    def over(self, defaults: Policy) -> Policy:
        """``defaults`` with the marker's fields instead; static rules and outcomes one by one."""
        fields = dict(self.policy)
        if "outcomes" in fields:
            fields["outcomes"] = {**defaults.outcomes, **fields["outcomes"]}
        if "static" in fields:
            fields["static"] = fields["static"].over(defaults.static)
        return msgspec.structs.replace(defaults, **fields)


def read_marker(item: pytest.Item) -> Marker:
    """The markers of a test as one, the closest keyword winning; :class:`UsageError` names the test."""
    marks = list(item.iter_markers(NAME))
    values = _together(marks, item.nodeid)
    policy = _policy_fields(values)
    return Marker(
        bool(marks),
        policy,
        values.get("candidates", {}),
        values.get("scope"),
        values.get("name"),
        _of_parameters(values.get("interpret", {}), item),
    )


def policy_of_marks(marks: Sequence[pytest.Mark], nodeid: str, defaults: Policy) -> Policy:
    """``defaults`` with what these markers of a test say, the closest first."""
    return Marker(bool(marks), _policy_fields(_together(marks, nodeid))).over(defaults)


def _together(marks: Sequence[pytest.Mark], nodeid: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for mark in reversed(marks):
        said = _values(mark, nodeid)
        if "static" in said and "static" in values:
            said["static"] = said["static"].over(values["static"])
        if "outcomes" in said:
            said["outcomes"] = {**values.get("outcomes", {}), **said["outcomes"]}
        values.update(said)
    return values


def _policy_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    renamed = {"floor_ns" if key == "floor" else key: value for key, value in values.items()}
    return {name: value for name, value in renamed.items() if name in Policy.__struct_fields__}


def _of_parameters(small: Mapping[str, Any], item: pytest.Item) -> Mapping[str, Any]:
    """Small values, each of a parameter that the test has; :class:`UsageError` for another name."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    if unknown := sorted(set(small) - set(params)):
        known = f"they are {', '.join(params)}" if params else "it has none"
        raise UsageError(
            f"{item.nodeid}: marker autotune, interpret: the test has no parameter {', '.join(unknown)}; {known}"
        )
    return small


def _values(mark: pytest.Mark, nodeid: str) -> dict[str, Any]:
    if mark.args:
        raise UsageError(f"{nodeid}: marker autotune takes keywords only, got {_shown(mark.args)}")
    unknown = [k for k in mark.kwargs if k not in _PARSERS]
    if unknown:
        raise UsageError(
            f"{nodeid}: marker autotune has no keyword {', '.join(unknown)}; it knows {', '.join(_PARSERS)}"
            f"{did_you_mean(unknown[0], _PARSERS)}"
        )
    return {k: _PARSERS[k](v, f"{nodeid}: marker autotune, {k}") for k, v in mark.kwargs.items()}


def _shown(args: Sequence[object]) -> str:
    return ", ".join(repr(a) for a in args)


def _small(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
        raise UsageError(f"{where}: {value!r} is no mapping from the test's parameters to small values: {{'rows': 64}}")
    return dict(value)


def _candidates(value: object, where: str) -> dict[str, tuple[Config, ...]]:
    if not isinstance(value, Mapping) or not value:
        raise UsageError(f"{where}: {value!r} is no mapping from a kernel's name to its configs")
    return {_kernel(k, where): _configs(v, f"{where}, kernel {k}") for k, v in value.items()}


def _kernel(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where}: {value!r} is no kernel's name; write the name of the @triton.jit function as text")
    return value


def _configs(value: object, where: str) -> tuple[Config, ...]:
    if isinstance(value, (str, Mapping)) or not isinstance(value, Sequence):
        raise UsageError(f"{where}: {value!r} is no list of configs")
    if not value:
        raise UsageError(f"{where}: the list of configs is empty; give one at least, or leave the kernel out")
    return unique_configs(_config(v, where) for v in value)


def _config(value: object, where: str) -> Config:
    if isinstance(value, Config):
        return value
    if getattr(value, "pre_hook", None) is not None:
        raise UsageError(f"{where}: {value} has a pre_hook; a marker's configs are data, put the hook on the kernel")
    flat = value.all_kwargs() if hasattr(value, "all_kwargs") else value  # a triton.Config, without importing Triton
    if not isinstance(flat, Mapping):
        raise UsageError(f"{where}: {value!r} is no config; write a mapping such as {{'BLOCK': 128, 'num_warps': 4}}")
    return _from_mapping(flat, where)


def _from_mapping(values: Mapping[str, Any], where: str) -> Config:
    for name in COMPILE_FIELDS:
        number = values.get(name)
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise UsageError(f"{where}: {name}={number!r} is no whole number above 0")
    try:
        return Config.from_mapping({k: v for k, v in values.items() if v is not None})
    except ConfigError as exc:
        raise UsageError(f"{where}: {exc}") from None


_PARSERS: dict[str, Callable[[object, str], Any]] = {
    "tolerance": parse_tolerance,
    "floor": parse_floor,
    "missing": member_of(Missing),
    "candidates": _candidates,
    "verify": one_of(VERIFY),
    "verify_ignore": parse_names,
    "scope": one_of(SCOPES),
    "name": parse_name,
    "static": parse_static,
    "metrics": parse_metrics,
    "outcomes": parse_outcomes,
    "anchor_tolerance": parse_tolerance,
    "interpret": _small,
    "timer": one_of(TIMERS),
    "static_prune": StaticPrune.parse,
    "numerics": NumericsRule.parse,
}


NODEID = pytest.StashKey[str]()
"""On every collected test: the node id as collected. xdist's ``--dist=loadgroup`` appends ``@group`` to it later."""

ASKED = pytest.StashKey[bool]()
"""On a test that has been given the fixture, ``request.getfixturevalue("autotune")`` included."""

HEADLINE = "kerntune_headline"
"""On the exception that fails a test: its line in pytest's summary."""


def nodeid_of(item: pytest.Item) -> str:
    """The test's node id, of which its baselines' names are made."""
    return item.stash.get(NODEID, item.nodeid)


def concerns(item: pytest.Item) -> bool:
    """Whether a test has the marker or uses the fixture. Either can become true while it runs: a hook or a fixture adds
    the marker, the body asks for the fixture."""
    named = NAME in getattr(item, "fixturenames", ())
    return named or item.stash.get(ASKED, False) or item.get_closest_marker(NAME) is not None
