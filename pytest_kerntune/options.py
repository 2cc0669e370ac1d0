"""The options of the command line, their ini keys, and what they come to."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from kerntune.errors import KerntuneError, UsageError
from kerntune.policy import Missing, Policy, TuneMode, Update
from pytest_kerntune.static_rules import parse_static
from pytest_kerntune.values import SCOPES, parse_choice, parse_floor, parse_tolerance

if TYPE_CHECKING:
    from kerntune.check import Settings

T = TypeVar("T")

GROUP = "kerntune"
DEFAULT_BASELINES = "baselines"


@dataclass(frozen=True)
class Option:
    """One setting: its flag, its ini key and its help. ``flag`` is empty for what only the ini file sets, ``ini`` and
    ``help`` for what kerntune tells another run of itself."""

    flag: str
    ini: str
    help: str
    metavar: str = ""
    bare: str = ""
    """The value of the flag without ``=value``; empty if it always takes one."""

    @property
    def dest(self) -> str:
        """Where argparse keeps the value."""
        return self.flag.lstrip("-").replace("-", "_")

    @property
    def switch(self) -> bool:
        """Whether it is on or off."""
        return not self.metavar


OPTIONS = (
    Option(
        "--kerntune", "kerntune", "Tune the kernels of tests that use `autotune`, time them, compare with baselines."
    ),
    Option(
        "--kerntune-update",
        "kerntune_update",
        "Write baselines of the tests that run: all, only new cases, or only those that got faster. Bare: all. "
        "Baselines of other tests are not touched.",
        "all|new|improved",
        bare="all",
    ),
    Option("--kerntune-baselines", "kerntune_baselines", "Folder of the baselines (default: baselines).", "DIR"),
    Option(
        "--kerntune-tolerance", "kerntune_tolerance", "Slower by more than this fails: 0.02 or 2%% (default).", "SHARE"
    ),
    Option(
        "--kerntune-missing",
        "kerntune_missing",
        "A case without a baseline on this device: record it (default), warn, or fail (default when CI is set).",
        "record|warn|fail",
    ),
    Option("--kerntune-strict", "kerntune_strict", "INCONCLUSIVE fails the test instead of warning."),
    Option(
        "--kerntune-target",
        "kerntune_target",
        "Targets to compile for without a GPU, as cuda:90,hip:gfx942 (default: those that the baselines know).",
        "TARGET[,TARGET]",
    ),
    Option("--kerntune-json", "kerntune_json", "Write everything about this run to FILE.", "FILE"),
    Option(
        "--kerntune-tune",
        "kerntune_tune",
        "Winners come from the cache if it has them (auto, default), only from it (frozen), never from it (force).",
        "auto|frozen|force",
    ),
    Option(
        "--kerntune-benchmark-json",
        "kerntune_benchmark_json",
        "Write the times to FILE in pytest-benchmark's form, for `pytest-benchmark compare`.",
        "FILE",
    ),
    Option(
        "--kerntune-cache-dir", "kerntune_cache_dir", "Folder of the tuning cache (default: the user's cache).", "DIR"
    ),
    Option(
        "--kerntune-baselines-ref",
        "kerntune_baselines_ref",
        "Read baselines from this git commit, branch or tag, so that a change can't move its own yardstick; they are "
        "still written to the folder.",
        "REF",
    ),
    Option(
        "--kerntune-against",
        "kerntune_against",
        "Needs no baselines: check out this git commit, branch or tag aside, compile and record its tests today, and "
        "replay both sides in turn. Nothing is written.",
        "REF",
    ),
    Option(
        "--kerntune-interpret",
        "kerntune_interpret",
        "Without a GPU: run the kernels in Triton's interpreter at small shapes, and check their numbers only.",
    ),
    Option("--kerntune-export", "", "", "DIR"),
    Option("", "kerntune_floor", "A slowdown smaller than this never fails: nanoseconds, or 500ns, 0.5us, 1ms."),
    Option("", "kerntune_scope", "What is timed: kernels (default: the recorded launches) or op (the whole call)."),
    Option(
        "",
        "kerntune_static",
        "Rules of the static gate, as 'registers=0.1 spills=warn occupancy=warn:20% all': a share, fail, warn or off; "
        "all: every candidate config is compiled.",
    ),
)


@dataclass(frozen=True)
class Options:
    """What the command line and the ini file come to, checked. Paths are absolute."""

    root: Path
    baselines: Path
    update: Update
    tune: TuneMode
    policy: Policy
    scope: str
    targets: tuple[str, ...]
    cache_dir: Path | None
    json: Path | None
    benchmark_json: Path | None
    baselines_ref: str = ""
    against: str = ""
    export: Path | None = None
    """Where a base's run leaves its recordings for the run that started it."""

    @property
    def yardstick_name(self) -> str:
        """The revision that this run is held against; empty for the project's own baselines."""
        return self.baselines_ref or self.against

    def settings(self) -> Settings:
        """The part that the engine needs."""
        from kerntune.check import Settings

        return Settings(
            root=self.root,
            baselines=self.export or self.baselines,
            update=self.update,
            tune=self.tune,
            policy=self.policy,
            targets=self.targets,
            cache_dir=self.cache_dir,
            read_only=bool(self.against),
            calibrate=self.export is None,
        )


def add_options(parser: pytest.Parser) -> None:
    """Register every option with its ini key."""
    group = parser.getgroup(GROUP, "Triton kernels: tuning and speed baselines")
    for option in OPTIONS:
        ini_help = option.help.replace("%%", "%")
        if not option.ini:
            group.addoption(option.flag, default=None, metavar=option.metavar, help=argparse.SUPPRESS)
        elif not option.flag:
            parser.addini(option.ini, ini_help, type="string", default="")
        elif option.switch:
            group.addoption(option.flag, action="store_true", default=False, help=option.help)
            parser.addini(option.ini, f"Default of {option.flag}: {ini_help}", type="bool", default=False)
        else:
            bare = {"nargs": "?", "const": option.bare} if option.bare else {}
            group.addoption(option.flag, default=None, metavar=option.metavar, help=option.help, **bare)
            parser.addini(option.ini, f"Default of {option.flag}: {ini_help}", type="string", default="")


def enabled(config: pytest.Config, given: argparse.Namespace | None = None) -> bool:
    """Whether this run tunes and compares. ``given`` is what pytest has parsed so far, if it hasn't parsed all."""
    if interprets(config, given):
        return False
    return bool((config.option if given is None else given).kerntune or config.getini("kerntune"))


def interprets(config: pytest.Config, given: argparse.Namespace | None = None) -> bool:
    """Whether this run only interprets; the command line's ``--kerntune`` rules out the ini file's choice."""
    option = config.option if given is None else given
    if option.kerntune and option.kerntune_interpret:
        raise pytest.UsageError(
            "--kerntune times and compiles, --kerntune-interpret only computes, at small shapes: run pytest once with "
            "each"
        )
    return bool(option.kerntune_interpret or (config.getini("kerntune_interpret") and not option.kerntune))


ALSO_INTERPRETED = ("--kerntune-target",)
"""Options that mean something without ``--kerntune`` if kernels are interpreted."""


def refuse_without_kerntune(config: pytest.Config) -> None:
    """A usage error for an option that would silently do nothing."""
    known = ("--kerntune-interpret", *ALSO_INTERPRETED) if interprets(config) else ()
    given = [o.flag for o in OPTIONS[1:] if o.flag and config.getoption(o.dest) and o.flag not in known]
    if given:
        raise pytest.UsageError(
            f"{', '.join(given)}: does nothing without --kerntune; add --kerntune, or set "
            f"{next(o.ini for o in OPTIONS if o.flag == given[0])} in the ini file for the runs that have it"
        )


def resolve(
    config: pytest.Config, given: argparse.Namespace | None = None, environ: Mapping[str, str] = os.environ
) -> Options:
    """Read and check every option; :class:`pytest.UsageError` names the option or ini key that is wrong.

    ``given`` is what pytest has parsed so far, if it hasn't parsed all.
    """
    try:
        ci = environ.get("CI", "").lower() not in ("", "0", "false", "no")
        return _resolve(_Source(config, config.option if given is None else given), ci)
    except KerntuneError as exc:
        raise pytest.UsageError(str(exc)) from None


def _resolve(source: _Source, ci: bool) -> Options:
    export = source.path("--kerntune-export")
    update = Update.ALL if export else source.read("--kerntune-update", _choice(Update), Update.NONE)
    ref, against = ("", "") if export else _revisions(source, update)
    json, benchmark_json = source.file("--kerntune-json"), source.file("--kerntune-benchmark-json")
    if json is not None and json == benchmark_json:
        raise UsageError(f"--kerntune-json and --kerntune-benchmark-json both name {json}: give them two files")
    return Options(
        root=source.root,
        baselines=source.path("--kerntune-baselines") or source.root / DEFAULT_BASELINES,
        update=update,
        tune=source.read("--kerntune-tune", _choice(TuneMode), TuneMode.AUTO),
        policy=_policy(source, update, ci and not against),
        scope=source.read("kerntune_scope", lambda text, where: parse_choice(text, SCOPES, where), SCOPES[0]),
        targets=source.read("--kerntune-target", _targets, ()),
        cache_dir=source.path("--kerntune-cache-dir"),
        json=json,
        benchmark_json=benchmark_json,
        baselines_ref=ref,
        against=against,
        export=export,
    )


def _revisions(source: _Source, update: Update) -> tuple[str, str]:
    """The two revisions, of which the command line's rules out the ini file's."""
    flags = ("--kerntune-baselines-ref", "--kerntune-against")
    ref, against = (source.read(f, lambda text, where: text, "") for f in flags)
    if ref and against:
        given = [source.on_command_line(f) for f in flags]
        if given[0] == given[1]:
            raise UsageError(f"{flags[0]} takes baselines from {ref}, {flags[1]} does without any: drop one of them")
        ref, against = (ref, "") if given[0] else ("", against)
    if against and update is not Update.NONE:
        raise UsageError(
            f"{flags[1]} writes no baselines, --kerntune-update={update.value} asks for some: drop one of them"
        )
    return ref, against


def _policy(source: _Source, update: Update, ci: bool) -> Policy:
    plain = Policy()
    return Policy(
        tolerance=source.read("--kerntune-tolerance", parse_tolerance, plain.tolerance),
        floor_ns=source.read("kerntune_floor", parse_floor, plain.floor_ns),
        missing=_missing(source, update, ci),
        strict=source.switch("--kerntune-strict"),
        ci=ci,
        static=source.read("kerntune_static", parse_static, plain.static),
    )


def _missing(source: _Source, update: Update, ci: bool) -> Missing:
    """An update that writes new cases implies ``record``; saying otherwise in the same command contradicts it."""
    writes_new = update in (Update.ALL, Update.NEW)
    missing = source.read("--kerntune-missing", _choice(Missing), None)
    if not writes_new:
        return missing or (Missing.FAIL if ci else Missing.RECORD)
    if missing not in (None, Missing.RECORD) and source.on_command_line("--kerntune-missing"):
        raise UsageError(
            f"--kerntune-update={update.value} records cases without a baseline, "
            f"--kerntune-missing={missing.value} refuses to: drop one of them"
        )
    return Missing.RECORD


def _choice(kind: type[T]) -> Callable[[str, str], T]:
    def parse(text: str, where: str) -> T:
        if kind is Update and text not in _UPDATES:
            raise UsageError(
                f"{where}: {text!r} is none of {', '.join(_UPDATES)}; a path right after a bare --kerntune-update is "
                "taken for its value: write --kerntune-update=all, or the path first"
            )
        return kind(parse_choice(text, tuple(x.value for x in kind), where))  # type: ignore[attr-defined, call-arg]

    return parse


_UPDATES = tuple(u.value for u in Update if u is not Update.NONE)


def _targets(text: str, where: str) -> tuple[str, ...]:
    from kerntune.device import Target

    try:
        return tuple(dict.fromkeys(str(Target.parse(part)) for part in text.split(",") if part.strip()))
    except UsageError as exc:
        raise UsageError(f"{where}: {exc}") from None


class _Source:
    """Where values come from: the command line first, then the ini file."""

    def __init__(self, config: pytest.Config, given: argparse.Namespace) -> None:
        self._config = config
        self._given = given
        self.root = config.inipath.parent if config.inipath else config.rootpath

    def on_command_line(self, flag: str) -> bool:
        return bool(getattr(self._given, _OPTION[flag].dest))

    def switch(self, flag: str) -> bool:
        return self.on_command_line(flag) or bool(self._config.getini(_OPTION[flag].ini))

    def read(self, name: str, parse: Callable[[str, str], T], default: T) -> T:
        """The parsed value of a flag or ini key; an empty one is the default."""
        text, where = self._text(name)
        return parse(text.strip(), where) if text.strip() else default

    def path(self, flag: str) -> Path | None:
        """A path: from the command line relative to where pytest was called, from the ini file to its folder."""
        text, where = self._text(flag)
        base = self._config.invocation_params.dir if where == flag else self.root
        return Path(os.path.abspath(base / Path(text).expanduser())) if text.strip() else None

    def file(self, flag: str) -> Path | None:
        """A file to write; an existing folder of that name is an error before anything runs."""
        path = self.path(flag)
        if path is not None and path.is_dir():
            raise UsageError(f"{self._text(flag)[1]}: {path} is a folder; name a file")
        return path

    def _text(self, name: str) -> tuple[str, str]:
        option = _OPTION[name]
        given = getattr(self._given, option.dest) if option.flag else None
        if given is not None:
            return str(given), option.flag
        return str(self._config.getini(option.ini)) if option.ini else "", f"ini key {option.ini}"


_OPTION = {o.flag or o.ini: o for o in OPTIONS}
