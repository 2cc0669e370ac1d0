"""The options of the command line, their ini keys, and what they come to."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kerntune.base.policy import Policy, TuneMode, Update
from kerntune.errors import KerntuneError, UsageError
from pytest_kerntune.concurrency import TurnTaking
from pytest_kerntune.setting import Option, SettingSource, ini_switch, policy_of
from pytest_kerntune.values import SCOPES, member_of, one_of, parse_limit, parse_targets, parse_update

if TYPE_CHECKING:
    from kerntune.gate.api import Settings
    from pytest_kerntune.reference_settings import ReferenceSettings

GROUP = "kerntune"

FLAGS = (
    Option(
        "--kerntune", "kerntune", "Tune the kernels of tests that use `autotune`, time them, compare with baselines."
    ),
    Option(
        "--kerntune-update",
        "",
        "Write baselines of the tests that run: all, only new cases, only those that got faster or slower, or only "
        "move those of renamed tests. Bare: all. Baselines of other tests are not touched.",
        "all|new|improved|regressed|renamed",
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
    Option("--kerntune-strict", "", "INCONCLUSIVE fails the test instead of warning."),
    Option(
        "--kerntune-target",
        "kerntune_target",
        "Targets to compile for without a GPU, as cuda:90,hip:gfx942 (default: those that the baselines know).",
        "TARGET[,TARGET]",
    ),
    Option("--kerntune-json", "", "Write everything about this run to FILE.", "FILE", output=True),
    Option(
        "--kerntune-profile",
        "",
        "Run each timed case once more under torch's profiler, and write a Chrome trace of it to FOLDER.",
        "FOLDER",
        output=True,
    ),
    Option(
        "--kerntune-html",
        "",
        "Write a report of this run to FILE: one HTML file that opens offline. Needs kerntune[report].",
        "FILE",
        output=True,
    ),
    Option(
        "--kerntune-summary",
        "",
        "Append a summary of this run to FILE in Markdown, the worst first, as for $GITHUB_STEP_SUMMARY; in GitHub "
        "Actions the worst cases are annotated too.",
        "FILE",
        output=True,
    ),
    Option(
        "--kerntune-history",
        "kerntune_history",
        "Add this run to a history: a folder, git:BRANCH, or a URL (s3://...). `kerntune history show` reads it.",
        "PLACE",
        output=True,
    ),
    Option(
        "--kerntune-tune",
        "kerntune_tune",
        "Winners come from the cache if it has them (auto, default), only from it (frozen), never from it (force), or "
        "from it and else from the nearest call that has one, with nothing tuned (nearest).",
        "auto|frozen|force|nearest",
    ),
    Option(
        "--kerntune-cache-dir", "kerntune_cache_dir", "Folder of the tuning cache (default: the user's cache).", "DIR"
    ),
    Option(
        "--kerntune-baselines-ref",
        "",
        "Read baselines from this git commit, branch or tag, so that a change can't move its own yardstick; they are "
        "still written to the folder.",
        "REF",
    ),
    Option(
        "--kerntune-sealed",
        "",
        "Tests run in a sealed process that decides nothing: settings and baselines are those of "
        "--kerntune-baselines-ref, static figures are made anew from what tests launch. Nothing is timed or written.",
    ),
    Option(
        "--kerntune-against",
        "",
        "Needs no baselines: check out this git commit, branch or tag aside, compile and record its tests today, and "
        "replay both sides in turn. Nothing is written.",
        "REF",
    ),
    Option(
        "--kerntune-anchor",
        "kerntune_anchor",
        "Hold cases against an older recording too, so that small steps can't add up: a folder (default: anchors, "
        "beside the baselines, if it is there; `kerntune anchor` makes it), a git commit, branch or tag whose "
        "baselines are meant, or off.",
        "DIR|REF|off",
    ),
    Option(
        "--kerntune-interpret",
        "",
        "Without a GPU: run the kernels on the CPU at small shapes, and check their numbers only.",
    ),
    Option("--kerntune-export", "", "", "DIR"),
)

INI_KEYS = {
    "kerntune_interpret_limit": "Under --kerntune-interpret: seconds of one launch after which its test fails "
    "(default: 60; 0: no limit).",
    "kerntune_spread": "Under pytest-xdist: give each worker another GPU of this host as its first (on, default), or "
    "leave the mapping to the project (off).",
    "kerntune_turns": "Under pytest-xdist, where workers share a GPU: which tests wait while another worker measures "
    "there: all (default), marked (those with autotune, or marked gpu or cuda), or off.",
    "kerntune_floor": "A slowdown smaller than this never fails: nanoseconds, or 500ns, 0.5us, 1ms.",
    "kerntune_verify": "Which candidates have to write what others write: winner (default), finalists, all, bitwise "
    "(all, to the bit) or off.",
    "kerntune_verify_ignore": "Arguments that are not compared for it, as 'partials kernel.counts': their content "
    "depends on the config.",
    "kerntune_static_prune": "Candidates that aren't run, by what they compile to: any of spills, occupancy, model "
    "and a share to keep, as 'spills 50%%' (default: none).",
    "kerntune_scope": "What is timed: kernels (default: the recorded launches) or op (the whole call).",
    "kerntune_static": "Rules of the static gate, as 'registers=0.1 spills=warn occupancy=warn:20% all': a share, "
    "fail, warn or off; all: every candidate config is compiled.",
    "kerntune_numerics": "Which change of results, against those of the baseline's code on the same memory, fails: "
    "none (report, default), any (bitwise), one of more than so many representable numbers (ulp:2) or of more than "
    "this share (rtol:1e-5). off compares nothing.",
    "kerntune_anchor_tolerance": "Slower by more than this since the anchor fails: 0.05 or 5% (default).",
    "kerntune_metrics": "Exactly what is gated on a GPU, as 'time registers=10% spills': of time (default), "
    "registers, spills, shared_memory, binary_size, instructions, with the growth that is allowed.",
    "kerntune_outcomes": "What verdicts do to a test: pass, warn or fail, as 'drifted=fail regressed=warn'.",
}
"""How cases are judged: keys of the ini file without a flag, and their help."""

OPTIONS = (*FLAGS, *(Option("", key, text) for key, text in INI_KEYS.items()))

PART_OF_ANOTHER = "pytest_kerntune.unattended"
"""The plugin of a run whose results another run reports."""

ON_OFF = ("on", "off")

INTERPRET_LIMIT = 60.0
"""As :data:`kerntune.gpu.interpreter.launches.NEVER_ENDS_SECONDS`, which only the interpreter's own imports can
reach."""


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
    baselines_ref: str = ""
    against: str = ""
    anchor: str = ""
    """The folder or git revision of the anchor; empty for none."""

    interpret_limit: float = INTERPRET_LIMIT
    """Seconds of wall time that an interpreted launch may take; 0 for no limit."""

    history: str = ""
    """Where runs are collected: a folder, ``git:BRANCH`` or a URL; empty for nowhere."""

    spread: bool = True
    """Whether each of xdist's workers begins with another GPU."""

    turns: TurnTaking = TurnTaking.ALL
    """Which tests wait while another of xdist's workers measures on their GPU."""

    profile: Path | None = None
    """The folder of Chrome traces."""

    html: Path | None = None
    """Where the HTML report is written."""

    summary: Path | None = None
    """Where the Markdown summary is appended."""

    export: Path | None = None
    """Where a base's run leaves its recordings for the run that started it."""

    reference: ReferenceSettings | None = None
    """What the revision says that this run is held against."""

    reference_baselines: Path = Path()
    """The folder of the baselines in that revision."""

    @property
    def reference_name(self) -> str:
        """The revision that this run is held against; empty for the project's own baselines."""
        return self.baselines_ref or self.against

    @property
    def anchor_name(self) -> str:
        """How the anchor is called in the header."""
        inside = Path(self.anchor).is_relative_to(self.root)
        return str(Path(self.anchor).relative_to(self.root)) if inside else self.anchor

    def settings(self) -> Settings:
        """The part that the engine needs."""
        from kerntune.gate.api import Settings

        return Settings(
            root=self.root,
            baselines=self.export or self.baselines,
            update=self.update,
            tune=self.tune,
            policy=self.policy,
            targets=self.targets,
            cache_dir=self.cache_dir,
            yardstick_targets=self.reference.targets(self.reference_baselines) if self.reference else (),
            read_only=bool(self.against),
            calibrate=self.export is None,
            profile=self.profile,
            code_changes=self.export is None and bool(self.html or self.json),
        )


def add_options(parser: pytest.Parser) -> None:
    """Register every option: its flag, its ini key, or both."""
    group = parser.getgroup(GROUP, "Triton kernels: tuning and speed baselines")
    for option in OPTIONS:
        option.register(parser, group)


def enabled(config: pytest.Config, given: Namespace | None = None) -> bool:
    """Whether this run tunes and compares. ``given`` is what pytest has parsed so far, if it hasn't parsed all."""
    if interprets(config, given):
        return False
    return bool((config.option if given is None else given).kerntune or ini_switch(config, "kerntune"))


def interprets(config: pytest.Config, given: Namespace | None = None) -> bool:
    """Whether this run only interprets; :class:`pytest.UsageError` beside ``--kerntune``."""
    option = config.option if given is None else given
    if option.kerntune and option.kerntune_interpret:
        raise pytest.UsageError(
            "--kerntune times and compiles, --kerntune-interpret only computes, at small shapes: run pytest once with "
            "each"
        )
    return bool(option.kerntune_interpret)


ALSO_INTERPRETED = ("--kerntune-target",)
"""Options that mean something without ``--kerntune`` if kernels are interpreted."""


def refuse_without_kerntune(config: pytest.Config) -> None:
    """A usage error for an option that would silently do nothing."""
    known = ("--kerntune-interpret", *ALSO_INTERPRETED) if interprets(config) else ()
    flags = [o for o in OPTIONS[1:] if o.flag and o.flag not in known]
    given = [o.flag for o in flags if config.getoption(o.dest) not in (None, False)]
    if given:
        ini = next(o.ini for o in OPTIONS if o.flag == given[0])
        or_ini = f", or set {ini} in the ini file for the runs that have it" if ini else ""
        raise pytest.UsageError(f"{', '.join(given)}: does nothing without --kerntune; add --kerntune{or_ini}")


@contextmanager
def usage_errors() -> Iterator[None]:
    """Errors of kerntune's are pytest's errors of usage inside of it."""
    try:
        yield
    except KerntuneError as exc:
        raise pytest.UsageError(str(exc)) from None


def resolve(config: pytest.Config, given: Namespace | None = None, environ: Mapping[str, str] = os.environ) -> Options:
    """Read and check every option; :class:`pytest.UsageError` names the option or ini key that is wrong.

    ``given`` is what pytest has parsed so far, if it hasn't parsed all.
    """
    ci = environ.get("CI", "").lower() not in ("", "0", "false", "no")
    given = config.option if given is None else given
    reported = bool(given.kerntune_export) or config.pluginmanager.hasplugin(PART_OF_ANOTHER)
    with usage_errors():
        return _resolve(SettingSource(config, given, OPTIONS, reported_elsewhere=reported), ci)


def _resolve(source: SettingSource, ci: bool) -> Options:
    from kerntune.gate.project import DEFAULT_BASELINES  # reads ini files of many kinds; a run without kerntune doesn't

    export = source.path("--kerntune-export")
    update = Update.ALL if export else source.read("--kerntune-update", parse_update, Update.NONE)
    ref, against = ("", "") if export else _revisions(source, update)
    files = {flag: source.file(flag) for flag in ("--kerntune-json", "--kerntune-html", "--kerntune-summary")}
    first: dict[Path, str] = {}
    for flag, path in files.items():
        if path is not None and first.setdefault(path, flag) != flag:  # the second would replace the first
            raise UsageError(f"{first[path]} and {flag} both name {path}: give them two files")
    baselines = source.folder("--kerntune-baselines") or source.root / DEFAULT_BASELINES
    reference = None
    if ref or against:
        from pytest_kerntune.reference_settings import reference_settings  # few have a revision

        reference = source.of_revision(reference_settings, ref or against)
    named = reference is None or source.by_caller("--kerntune-baselines")
    return Options(
        root=source.root,
        baselines=baselines,
        update=update,
        tune=source.read("--kerntune-tune", member_of(TuneMode), TuneMode.AUTO),
        policy=policy_of(source, update, ci and not against),
        scope=source.read("kerntune_scope", one_of(SCOPES), SCOPES[0]),
        targets=source.read("--kerntune-target", parse_targets, ()),
        cache_dir=source.folder("--kerntune-cache-dir"),
        json=files["--kerntune-json"],
        html=files["--kerntune-html"],
        summary=files["--kerntune-summary"],
        baselines_ref=ref,
        against=against,
        reference=reference,
        reference_baselines=baselines if reference is None or named else reference.baselines,
        anchor="" if export else _anchor(source, baselines, reference),
        interpret_limit=source.read("kerntune_interpret_limit", parse_limit, INTERPRET_LIMIT),
        profile=source.folder("--kerntune-profile"),
        export=export,
        history=_history(source),
        spread=source.read("kerntune_spread", one_of(ON_OFF), "on") == "on",
        turns=source.read("kerntune_turns", member_of(TurnTaking), TurnTaking.ALL),
    )


def _history(source: SettingSource) -> str:
    """A folder as an absolute path; what doesn't name a place is an error before anything runs."""
    text = source.text("--kerntune-history")
    if not text:
        return ""
    from kerntune.gate.history.places import Folder, place_of

    place = place_of(text, source.root)
    return str(source.path("--kerntune-history")) if isinstance(place, Folder) else text


def _revisions(source: SettingSource, update: Update) -> tuple[str, str]:
    """The revision of ``--kerntune-baselines-ref`` and that of ``--kerntune-against``; empty for none."""
    flags = ("--kerntune-baselines-ref", "--kerntune-against")
    ref, against = map(source.text, flags)
    if ref and against:
        raise UsageError(f"{flags[0]} takes baselines from {ref}, {flags[1]} does without any: drop one of them")
    if against and update is not Update.NONE:
        raise UsageError(
            f"{flags[1]} writes no baselines, --kerntune-update={update.value} asks for some: drop one of them"
        )
    return ref, against


def _anchor(source: SettingSource, baselines: Path, reference: ReferenceSettings | None) -> str:
    """The folder of the anchor, else the git revision that the text is; by default the folder beside the baselines.

    Held against a revision, its own ini file and folders count, unless the command line names the anchor.
    """
    from kerntune.gate.project import DEFAULT_ANCHOR, NO_ANCHOR

    text = source.text("--kerntune-anchor")
    folder = source.path("--kerntune-anchor") if text else baselines.parent / DEFAULT_ANCHOR
    if reference is not None and not source.by_caller("--kerntune-anchor"):
        text = reference.text("kerntune_anchor")
        folder = reference.folder("kerntune_anchor") or reference.baselines.parent / DEFAULT_ANCHOR
    if text == NO_ANCHOR or folder is None:
        return ""
    there = folder.is_dir() if reference is None else reference.has_folder(folder)
    return str(folder) if there else text
