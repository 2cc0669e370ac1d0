"""The marker ``autotune``: how one test's cases are judged and what is tried for them.

The stash of a test's item has what the plugin knows of the test, however and whenever it came to be known. Tests that
can't use ``autotune`` as they are are said by name, with what to write instead. A test may have pytest-benchmark's
fixture, too. Nothing of pytest-benchmark is imported.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from traceback import walk_stack
from typing import Any

import pytest

from kerntune.base.config import COMPILE_FIELDS, Config, unique_configs
from kerntune.base.formatting import did_you_mean, nearest_word
from kerntune.base.policy import TIMERS, Missing, Policy
from kerntune.errors import ConfigError, UsageError
from pytest_kerntune.values import POLICY, SCOPES, member_of, one_of, parse_name

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

    marked: bool
    policy: Mapping[str, Any]
    candidates: Mapping[str, tuple[Config, ...]] = field(default_factory=dict)
    scope: str | None = None
    name: str | None = None
    interpret: Mapping[str, Any] = field(default_factory=dict)
    """Values of the test's parameters while kernels are interpreted."""

    def over(self, defaults: Policy) -> Policy:
        """``defaults`` with the marker's fields instead; static rules and outcomes one by one."""
        usual = {"outcomes": defaults.outcomes, "static": defaults.static}
        return defaults.but(**_over(usual, self.policy))


def read_marker(item: pytest.Item) -> Marker:
    """The markers of a test as one, the closest keyword winning; :class:`UsageError` names the test."""
    marks = list(item.iter_markers(NAME))
    values = _together(marks, item.nodeid)
    small = _of_parameters(values.get("interpret", {}), item)
    said = {name: values[name] for name in ("candidates", "scope", "name") if name in values}
    return Marker(bool(marks), _policy_fields(values), interpret=small, **said)


def policy_of_marks(marks: Sequence[pytest.Mark], nodeid: str, defaults: Policy) -> Policy:
    """``defaults`` with what these markers of a test say, the closest first."""
    return Marker(bool(marks), _policy_fields(_together(marks, nodeid))).over(defaults)


def _together(marks: Sequence[pytest.Mark], nodeid: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for mark in reversed(marks):
        values = _over(values, _values(mark, nodeid))
    return values


def _over(usual: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """What is ``said`` instead of what is ``usual``; static rules and outcomes one by one."""
    found = {**usual, **said}
    if "static" in usual and "static" in said:
        found["static"] = said["static"].over(usual["static"])
    if "outcomes" in usual and "outcomes" in said:
        found["outcomes"] = {**usual["outcomes"], **said["outcomes"]}
    return found


def _policy_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    renamed = {"floor_ns" if key == "floor" else key: value for key, value in values.items()}
    return {name: value for name, value in renamed.items() if name in Policy.__struct_fields__}


def _of_parameters(small: Mapping[str, Any], item: pytest.Item) -> Mapping[str, Any]:
    params = getattr(getattr(item, "callspec", None), "params", {})
    if unknown := sorted(set(small) - set(params)):
        known = f"they are {', '.join(params)}" if params else "it has none"
        raise UsageError(
            f"{item.nodeid}: marker autotune, interpret: the test has no parameter {', '.join(unknown)}; {known}"
        )
    return small


def _values(mark: pytest.Mark, nodeid: str) -> dict[str, Any]:
    if mark.args:
        raise UsageError(f"{nodeid}: marker autotune takes keywords only, got {', '.join(map(repr, mark.args))}")
    unknown = [k for k in mark.kwargs if k not in _PARSERS]
    if unknown:
        raise UsageError(
            f"{nodeid}: marker autotune has no keyword {', '.join(unknown)}; it knows {', '.join(_PARSERS)}"
            f"{did_you_mean(unknown[0], _PARSERS)}"
        )
    return {k: _PARSERS[k](v, f"{nodeid}: marker autotune, {k}") for k, v in mark.kwargs.items()}


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
    for name in COMPILE_FIELDS:
        number = flat.get(name)
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise UsageError(f"{where}: {name}={number!r} is no whole number above 0")
    try:
        return Config.from_mapping({k: v for k, v in flat.items() if v is not None})
    except ConfigError as exc:
        raise UsageError(f"{where}: {exc}") from None


_PARSERS: dict[str, Callable[[object, str], Any]] = {
    **POLICY,
    "missing": member_of(Missing),
    "candidates": _candidates,
    "scope": one_of(SCOPES),
    "name": parse_name,
    "interpret": _small,
    "timer": one_of(TIMERS),
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


def without_id(message: str, nodeid: str) -> str:
    """``REGRESSED: 1.0 µs -> 2.0 µs`` of ``REGRESSED test.py::test: 1.0 µs -> 2.0 µs``; a call's name stays."""
    own = re.escape(nodeid)
    return re.sub(rf"^{own}: | {own}(?=[: ])(?!::)|(?<= ){own}::(?=\S)", "", message)


def concerns(item: pytest.Item) -> bool:
    """Whether a test has the marker or uses the fixture. Either can become true while it runs: a hook or a fixture adds
    the marker, the body asks for the fixture."""
    named = NAME in getattr(item, "fixturenames", ())
    return named or item.stash.get(ASKED, False) or item.get_closest_marker(NAME) is not None


FORKED = (
    "CUDA, once initialised, does not work in a fork of its process. Leave out --forked and the marker forked for "
    "tests that use autotune; pytest -n1 (pytest-xdist) runs tests in a process of their own, and replaces it if one "
    "of them ends it"
)


def why_not_forked(item: pytest.Item) -> str:
    """Why pytest-forked must not run this test under ``--kerntune``; empty if it won't."""
    forked = getattr(item.config.option, "forked", None)
    if forked is None or not concerns(item):
        return ""
    how = "--forked" if forked else "marker forked" if item.get_closest_marker("forked") else ""
    return f"{nodeid_of(item)}: {how}: {FORKED}" if how else ""


def refuse_fork(process: int) -> None:
    """:class:`UsageError` unless this is still the process ``process``, whose id it is, that opened the session."""
    if os.getpid() != process:
        raise UsageError(f"autotune was called in a fork of pytest's process {process}. {FORKED}")


def never_called(item: pytest.Item) -> str:
    """What is wrong with a marked test that never called the fixture, and what to write."""
    write = "write autotune(fn, *args)"
    if not (NAME in getattr(item, "fixturenames", ()) or item.stash.get(ASKED, False)):
        name = getattr(item, "originalname", None) or item.name
        write = f"it has no parameter autotune: write def {name}({NAME}, ...), and autotune(fn, *args) in it"
    said = "marked autotune, but it never called the autotune fixture, so nothing was checked"
    return f"{said}; {write}, or take the marker off"


def refuse_kernel(fn: object) -> None:
    """:class:`UsageError` for a kernel without its grid, also below tuners and partial functions."""
    from kerntune.kernels.source import function_of, is_kernel

    while isinstance(fn, partial):
        fn = fn.func
    if "triton" not in sys.modules or not hasattr(type(fn), "run") or not hasattr(fn, "fn") or not is_kernel(fn):
        return
    name = function_of(fn).__name__
    raise UsageError(
        f"kernel {name} has no grid, and can't be called without one; write autotune({name}[grid], *args), or "
        f"autotune(lambda: {name}[grid](...))"
    )


def meant(error: BaseException, given: Iterable[str], options: Iterable[str]) -> str:
    """The hint for a keyword that the callable refuses and that is close to an option of autotune's; else empty."""
    text = str(error)
    if not any(sign in text for sign in REFUSES_KEYWORD):
        return ""
    near = {name: nearest_word(name, options) for name in given if re.search(rf"\b{name}\b", text)}
    hints = [f"did you mean autotune's {found}= where you wrote {name}=?" for name, found in near.items() if found]
    return hints[0] if hints else ""


REFUSES_KEYWORD = ("unexpected keyword argument", "unrecognised", "has no parameter")
"""What Python says, what Triton says of a kernel's launch, and what kerntune says of it while it captures."""


def refuse_async(fn: object) -> None:
    """:class:`UsageError` for an ``async def``: called, its body has not run, so no kernel was launched."""
    if inspect.iscoroutinefunction(fn):
        raise UsageError(_coroutine(fn))


def refuse_coroutine(value: object, fn: object) -> None:
    """The same for what returns a coroutine."""
    if inspect.iscoroutine(value):
        value.close()
        raise UsageError(_coroutine(fn))


def _coroutine(fn: object) -> str:
    return (
        f"{getattr(fn, '__qualname__', None) or repr(fn)} gives a coroutine, which launches nothing before it is "
        "awaited; hand autotune an ordinary function that launches the kernels. An async test may call autotune like "
        "any other"
    )


def refuse_argument(item: pytest.Item) -> None:
    """Fail a method of a ``unittest.TestCase`` that takes the fixture as an argument: unittest gives it none."""
    unittest, cls = sys.modules.get("unittest"), getattr(item, "cls", None)
    if unittest is None or not isinstance(cls, type) or not issubclass(cls, unittest.TestCase):
        return
    if NAME in _parameters(getattr(item, "obj", None)):
        pytest.fail(
            f"{nodeid_of(item)}: unittest calls its methods without fixtures. Give the class one that keeps autotune:\n"
            "    @pytest.fixture(autouse=True)\n"
            "    def _autotune(self, autotune):\n"
            "        self.autotune = autotune",
            pytrace=False,
        )


def _parameters(method: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(method).parameters)
    except (TypeError, ValueError):
        return ()


BENCHMARK = "benchmark"


def run_once(fixture: object) -> None:
    """Have ``benchmark`` call its function once and keep no time: where nothing launches, it would time stand-ins."""
    if hasattr(fixture, "disabled"):
        fixture.disabled = True


def refuse_inside() -> None:
    """:class:`UsageError` if pytest-benchmark's loop is what calls: each round would be a case of its own."""
    for frame, _ in walk_stack(sys._getframe()):
        runner = frame.f_globals.get("__name__") == "pytest_benchmark.fixture" and frame.f_locals.get("self")
        if getattr(runner, "disabled", True) is False:
            raise UsageError(
                "autotune is called by benchmark(), again and again: write autotune(fn, ...) and benchmark(fn, ...)"
            )
