"""What people write in options, markers and the ini file, read and checked.

It comes to values: what is gated, what verdicts do, and rules of the static gate. The command line's words are changed
where argparse reads them otherwise than people mean them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from math import isfinite
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import Any, TypeVar

import pytest

from kerntune.base.formatting import did_you_mean
from kerntune.base.numerics import NumericsRule
from kerntune.base.policy import (
    MAPPABLE,
    METRIC_TOLERANCES,
    METRICS,
    STATIC_RULES,
    TIME,
    Metrics,
    Outcome,
    StaticPolicy,
    StaticPrune,
    StaticRule,
    StaticSeverity,
    Update,
    Verdict,
)
from kerntune.errors import UsageError

E = TypeVar("E", bound=Enum)
T = TypeVar("T")

SCOPES = ("kernels", "op")
"""``kernels``: the recorded Triton launches are timed on the device. ``op``: the whole call is."""

VERIFY = ("winner", "finalists", "all", "bitwise", "off")
"""Which candidates have to write what others write; the words of :class:`kerntune.tuning.verification.Verify`."""

MAX_TOLERANCE = 1.0
"""A tolerance of 1 lets a kernel take twice its time; a larger number is a percentage without its sign."""

_NS = {"": 1.0, "ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}


def parse_tolerance(value: object, where: str) -> float:
    """``0.02``, ``"0.02"`` or ``"2%"`` as a share, above 0 and below 1; ``where`` names the place in the error."""
    share = _share(value)
    if share is None or not 0 < share < MAX_TOLERANCE:
        raise UsageError(f"{where}: {value!r} is no tolerance; write a share above 0 and below 1, as 0.02 or 2%")
    return share


def parse_share(value: object, where: str, words: Sequence[str] = ()) -> float:
    """``0.1``, ``"0.1"`` or ``"10%"`` as a share, 0 or more. ``words`` may stand in its place: the error names them."""
    share = _share(value)
    if share is None or share < 0:
        *others, last = "0.1", "10%", *words
        raise UsageError(f"{where}: {value!r} is no share; write {', '.join(others)} or {last}")
    return share


def parse_floor(value: object, where: str) -> float:
    """``500``, ``"500ns"``, ``"0.5us"`` or ``"1ms"`` as nanoseconds, 0 or more."""
    match = re.fullmatch(r"\s*([0-9.eE+-]+?)\s*(ns|us|µs|μs|ms|s|)\s*", str(value))
    number = _number(match[1]) if match and not isinstance(value, bool) else None
    if match is None or number is None or number < 0:
        raise UsageError(f"{where}: {value!r} is no time; write nanoseconds, or a unit as in 500ns, 0.5us, 1ms")
    return number * _NS[match[2]]


def parse_limit(text: str, where: str) -> float:
    """Seconds that a thread can wait; 0 for no limit."""
    seconds = _number(text)
    if seconds is None or not 0 <= seconds <= TIMEOUT_MAX:
        raise UsageError(f"{where} is {text!r}; give seconds, 0 for no limit")
    return seconds


def parse_targets(text: str, where: str) -> tuple[str, ...]:
    """Targets with commas between them, each once."""
    from kerntune.base.device import target_named

    try:
        return tuple(dict.fromkeys(str(target_named(p)) for p in text.split(",") if p.strip()))
    except UsageError as exc:
        raise UsageError(f"{where}: {exc}") from None


def parse_choice(value: object, choices: Sequence[str], where: str) -> str:
    """One of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise UsageError(f"{where}: {value!r} is none of {', '.join(choices)}{did_you_mean(str(value), choices)}")
    return value


def one_of(choices: Sequence[str]) -> Callable[[object, str], str]:
    """A parser of one of ``choices``."""
    return lambda value, where: parse_choice(value, choices, where)


def member_of(kind: type[E]) -> Callable[[object, str], E]:
    """A parser of an enum's members: themselves or their words."""
    words = [member.value for member in kind]
    return lambda value, where: kind(parse_choice(value.value if isinstance(value, kind) else value, words, where))


def parse_names(value: object, where: str) -> tuple[str, ...]:
    """Names of arguments, or ``kernel.name``: a list, or one text with commas or spaces between them."""
    names = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(n, str) and _NAMES.fullmatch(n) for n in names):
        raise UsageError(f"{where}: {value!r} is no list of arguments; write names, or kernel.name")
    return tuple(names)


_NAMES = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)?")


def parse_kernel_values(value: object, where: str) -> dict[str, dict[str, Any]]:
    """``{"kernel.argument": tensor}`` as a mapping from kernels to one from their arguments."""
    if not isinstance(value, Mapping) or not all(isinstance(k, str) and _ARGUMENT.fullmatch(k) for k in value):
        raise UsageError(
            f"{where}: {value!r} is no mapping from arguments of kernels to tensors: {{'kernel.argument': tensor}}; a "
            "keyword of your own function that is called values goes into a lambda: autotune(lambda: fn(values=...))"
        )
    found: dict[str, dict[str, Any]] = {}
    for name, tensor in value.items():
        kernel, _, argument = name.partition(".")
        if not hasattr(tensor, "untyped_storage"):
            raise UsageError(f"{where}: {name}: a {type(tensor).__name__} is no tensor; give a torch tensor on the CPU")
        found.setdefault(kernel, {})[argument] = tensor
    return found


_ARGUMENT = re.compile(r"[^\W\d]\w*\.[^\W\d]\w*")


def parse_switch(value: object, where: str) -> bool:
    """True or False, not something that is merely truthy."""
    if not isinstance(value, bool):
        raise UsageError(f"{where}: {value!r} is neither True nor False")
    return value


def parse_name(value: object, where: str) -> str:
    """The name of a call: text without line breaks or ``::``, which separates it from the test."""
    if not isinstance(value, str) or not value.strip() or "::" in value or "\n" in value:
        raise UsageError(f"{where}: {value!r} is no name; write a short text without '::' and line breaks")
    return value


def _share(value: object) -> float | None:
    text = str(value).strip()
    number = None if isinstance(value, bool) else _number(text.removesuffix("%"))
    return number / 100 if number is not None and text.endswith("%") else number


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


def parse_metrics(value: object, where: str) -> Metrics:
    """Exactly the metrics that are gated; :class:`UsageError` with ``where`` for anything else.

    ``("time", "spills")``, ``{"time": True, "registers": 0.1}`` and ``"time registers=10%"`` are all understood. A name
    alone has its default tolerance (:data:`kerntune.base.policy.METRIC_TOLERANCES`). Figures are named as the static
    gate's rules are.
    """
    named = _pairs(value)
    if not named:
        raise UsageError(f"{where}: {value!r} names no metrics; write some of {', '.join(METRICS)}")
    for name, share in named.items():
        if parse_choice(name, METRICS, where) == TIME and share is not True:
            raise UsageError(f"{where}: {TIME} is named alone or left out; its share is what tolerance= says")
    shares = {str(name): share for name, share in named.items() if name != TIME}
    static = {n: parse_share(x, f"{where}, {n}") if x is not True else METRIC_TOLERANCES[n] for n, x in shares.items()}
    return Metrics(TIME in named, static)


def parse_outcomes(value: object, where: str) -> dict[Verdict, Outcome]:
    """``{"DRIFTED": "fail"}`` or ``"drifted=fail regressed=warn"``: what verdicts do to a test."""
    named = _pairs(value)
    if not named:
        raise UsageError(f"{where}: {value!r} maps no verdict; write for example {{'DRIFTED': 'fail'}}")
    outcome = member_of(Outcome)
    wrong: list[str] = []
    verdicts = [_tried(_verdict, name, where, wrong) for name in named]
    outcomes = [_tried(outcome, found, f"{where}, {name}", wrong) for name, found in named.items()]
    if wrong:
        raise UsageError("\n".join(wrong))
    return {v: o for v, o in zip(verdicts, outcomes, strict=True) if v is not None and o is not None}


def _tried(parse: Callable[[Any, str], T], value: object, where: str, wrong: list[str]) -> T | None:
    """What ``parse`` makes of a value; None, and the error among those that are ``wrong``, if that is nothing."""
    try:
        return parse(value, where)
    except UsageError as exc:
        wrong.append(str(exc))
        return None


def _pairs(value: object) -> dict[object, object]:
    if isinstance(value, str):
        words = [word.partition("=") for word in value.replace(",", " ").split()]
        return {name: said or True for name, _, said in words}
    if isinstance(value, Mapping):
        return dict(value)
    names = value if isinstance(value, Iterable) else ()
    return {name if isinstance(name, str) else repr(name): True for name in names}


def _verdict(name: object, where: str) -> Verdict:
    text = (name.value if isinstance(name, Verdict) else str(name)).upper()
    if text == Verdict.NEW.value:
        raise UsageError(f"{where}: what NEW does is for missing= (--kerntune-missing) to say")
    known = [v.value for v in MAPPABLE]
    return Verdict(text if text in known else parse_choice(str(name), known, where))


EVERY_CONFIG = "all"
"""The word that has every candidate config of a tuned kernel looked at."""

SEVERITIES: tuple[StaticSeverity, ...] = ("fail", "warn", "off")


def parse_static(value: object, where: str) -> StaticPolicy:
    """A mapping of rules, or the same as text; :class:`UsageError` with ``where`` for anything else.

    ``{"spills": "warn", "registers": 0.1, "occupancy": ("warn", "20%"), "all": True}`` is
    ``"spills=warn registers=0.1 occupancy=warn:20% all"``. A share alone means that more than it fails; a severity
    alone (``fail``, ``warn``, ``off``) leaves the rule its share.
    """
    if isinstance(value, str):
        value = _words(value)
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: {value!r} is no rules; write for example {{'spills': 'warn', 'registers': 0.1}}")
    every = parse_switch(value[EVERY_CONFIG], f"{where}, {EVERY_CONFIG}") if EVERY_CONFIG in value else None
    named = {_name(k, where): (v, f"{where}, {k}") for k, v in value.items() if k != EVERY_CONFIG}
    rules = {name: _rule(name, *said) for name, said in named.items()}
    return StaticPolicy(rules, every)


def _words(text: str) -> dict[str, object]:
    pairs = [word.partition("=") for word in text.replace(",", " ").split()]
    return {name: True if name == EVERY_CONFIG and not value else value for name, _, value in pairs}


def _name(name: object, where: str) -> str:
    if name not in STATIC_RULES:
        near = did_you_mean(str(name), [*STATIC_RULES, EVERY_CONFIG])
        known = f"there are {', '.join(STATIC_RULES)}, and {EVERY_CONFIG}"
        raise UsageError(f"{where}: there is no rule {name!r}; {known}{near}")
    return str(name)


def _rule(name: str, value: object, where: str) -> StaticRule:
    parts = value.split(":") if isinstance(value, str) else list(value) if isinstance(value, (tuple, list)) else [value]
    default = STATIC_RULES[name]
    severities = [s for p in parts for s in SEVERITIES if p == s]
    rest = [p for p in parts if p not in SEVERITIES]
    shares = [] if default.threshold is None else [parse_share(p, where, SEVERITIES) for p in rest]
    if not parts or len(severities) > 1 or len(shares) > 1:
        raise UsageError(f"{where}: {value!r} is no rule; write one of {', '.join(SEVERITIES)}, a share, or both")
    if rest and default.threshold is None:
        raise UsageError(f"{where}: {name} has no share that may change, any change counts; write fail, warn or off")
    severity: StaticSeverity = severities[0] if severities else "fail" if shares else default.severity
    return StaticRule(severity, shares[0] if shares else default.threshold)


POLICY: dict[str, Callable[[object, str], Any]] = {
    "tolerance": parse_tolerance,
    "floor": parse_floor,
    "verify": one_of(VERIFY),
    "verify_ignore": parse_names,
    "static": parse_static,
    "metrics": parse_metrics,
    "outcomes": parse_outcomes,
    "anchor_tolerance": parse_tolerance,
    "static_prune": StaticPrune.parse,
    "numerics": NumericsRule.parse,
}
"""What the ini file and a marker both say of a policy, by the marker's keywords."""

UPDATE = "--kerntune-update"
MODES = tuple(u.value for u in Update if u is not Update.NONE)


def parse_update(text: str, where: str) -> Update:
    """What a run writes anew; none is said by leaving the flag out."""
    if text not in MODES:
        raise UsageError(
            f"{where}: {text!r} is none of {', '.join(MODES)}; the flag alone means all, a path may follow it"
            f"{did_you_mean(text, MODES)}"
        )
    return Update(text)


_WORD = re.compile(r"[A-Za-z]+")
"""What may be a misspelt mode."""


def amend(config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Give a bare ``--kerntune-update`` its value in ``args``, which pytest parses later, and in what it has parsed
    already: argparse takes the word after it, mostly a path, for its value."""
    amended = with_update(args, config.invocation_params.dir)
    if amended == args:
        return
    args[:] = amended
    parsed, given = parser.parse_known_args(amended), config.known_args_namespace
    given.kerntune_update, given.file_or_dir = parsed.kerntune_update, parsed.file_or_dir


def parted(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """``args`` before ``--``, and what is no option from there on."""
    end = args.index("--") if "--" in args else len(args)
    return list(args[:end]), list(args[end:])


def with_update(args: Sequence[str], folder: Path) -> list[str]:
    """``args`` with ``--kerntune-update=all`` for the bare flag, and ``--kerntune-update=new`` for its two words.

    A word that names no mode, and nothing in ``folder`` either, stays its value, so that a misspelt one is reported.
    """
    rest, names = parted(args)
    out: list[str] = []
    while rest:
        word = rest.pop(0)
        if word == UPDATE and rest and not rest[0].startswith("-"):
            mode = rest[0] in MODES or (_WORD.fullmatch(rest[0]) and not os.path.exists(folder / rest[0]))
            word = f"{UPDATE}={rest.pop(0)}" if mode else word
        out.append(f"{UPDATE}=all" if word == UPDATE else word)
    return [*out, *names]


_SHOWING = re.compile(r"-[qvslx]+|--(quiet|verbose|exitfirst|showlocals|no-header|no-summary)")
_SHOWING_AS = ("-n", "-r", "--tb", "--color", "--durations", "--maxfail", "--junitxml", "--junit-xml")
"""Options with a value that say how a run is shown, how far it goes, and in how many processes."""


def needed_words(args: Sequence[str], folder: Path, outputs: Iterable[str] = ()) -> list[str]:
    """What of ``args`` another run of the same tests needs: not the update, not how the run is shown, not the files
    that it writes by the flags ``outputs``, not what it turned off (``-p no:...``)."""
    out, words, valued = list[str](), iter(with_update(args, folder)), {*_SHOWING_AS, *outputs}
    for word in words:
        flag = word.partition("=")[0] if word.startswith("--") else word[:2]
        if word == "--":
            return [*out, word, *words]
        if flag in valued:
            if word == flag:
                next(words, "")  # its value
        elif flag == "-p":
            name = word[2:] or next(words, "")
            out += [] if name == "kerntune" or name.startswith("no:") else ["-p", name]
        elif flag != UPDATE and not _SHOWING.fullmatch(word):
            out.append(word)
    return out
