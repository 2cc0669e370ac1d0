"""The command ``kerntune``: its commands, usage errors and exit codes.

The module of a command declares its arguments. It is imported when its command is asked for, so that help comes at
once.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence

from kerntune.errors import KerntuneError, UsageError
from kerntune.gate.console import FINDINGS, OK, USAGE, complain, error_text, speak_anything

EPILOG = "Exit codes: 0 in order, 1 something was found, 2 wrong usage. refresh: pytest's."

REFRESH = ("baselines", "refresh")

Subcommand = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code. Errors that kerntune or the system raises are printed as one message."""
    words = list(sys.argv[1:] if argv is None else argv)
    speak_anything()
    return _checked_by_git(words) if words[:1] == ["bisect"] and "--check" in words else _told(words)


def _checked_by_git(words: list[str]) -> int:
    """``git bisect run`` takes the code of wrong usage for a slow commit, and only those from 128 on for an error."""
    from kerntune.cli.bisect.entry import STOP

    try:
        code = _told(words)
    except SystemExit as exc:  # argparse's
        code = USAGE if exc.code == USAGE else OK
    return STOP if code == USAGE else code


def _told(words: list[str]) -> int:
    try:
        return _dispatch(words)
    except UsageError as exc:
        complain(f"error: {exc}")
        return USAGE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains when it flushes
        return FINDINGS
    except (KerntuneError, OSError) as exc:
        complain(f"error: {error_text(exc)}")
        return FINDINGS


def _dispatch(words: list[str]) -> int:
    if tuple(words[:2]) == REFRESH and words[2:3] not in (["-h"], ["--help"]):
        return _refresh(words[2:])  # all that follows is pytest's, options too
    _refuse_empty(words)
    words, tests = _split(words)
    args = build_parser(words).parse_args(words)
    if tests:
        args.tests = tests
    run: Subcommand = args.function
    return run(args)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """What ``bisect`` takes itself, and what follows ``--``: pytest's, options too."""
    if words[:1] != ["bisect"] or "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _refuse_empty(words: list[str]) -> None:
    """A value that is empty comes from a variable that is unset, mostly."""
    ours = words[: words.index("--")] if "--" in words else words  # what follows is another program's
    for before, word in zip(["", *ours], ours, strict=False):
        if not word.strip() or re.fullmatch(r"--[\w-]+=\s*", word):
            option = before if not word.strip() and before.startswith("-") else word.strip()
            what = f"{option} has no value" if option else "an argument is empty"
            raise UsageError(f"{what}; a variable that should give one may be unset. Give one, or leave it out")


def build_parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """All commands. Only the one that ``words`` begin with has its arguments, since they load its module; without
    ``words`` each has its own."""
    parser = argparse.ArgumentParser(
        prog="kerntune", description="Tunes Triton kernels and guards their speed: pytest --kerntune.", epilog=EPILOG
    )
    groups = {"": _subcommands(parser)}
    for name, text in COMMANDS.items():
        group, _, last = name.rpartition(" ")
        if group not in groups:
            groups[group] = _subcommands(groups[""].add_parser(group, help=GROUPS[group]))
        about = f"{text[0].upper()}{text[1:]}."
        command = groups[group].add_parser(last, help=text, description=about, epilog=EPILOG)
        if words is None or name.split() == [*words[: len(name.split())]]:
            _declare(name, command)
    return parser


def _subcommands(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


GROUPS = {
    "baselines": "look at, compare, take over and clean what is remembered",
    "cache": "winners and trials of earlier tuning",
    "shapes": "which calls of tuned kernels a program makes, noted untuned",
    "history": "what many runs say together: where cases got slower or faster",
}

COMMANDS = {
    "baselines show": "all baselines: case, device, config, time, environment",
    "baselines refresh": "pytest --kerntune --kerntune-update=all [PYTEST ARGUMENTS]",
    "baselines apply": "write the baselines that a run's JSON from another machine carries",
    "baselines prune": "remove baselines of tests that no longer exist",
    "baselines mv": "move the baselines and anchors of renamed tests to their new names",
    "baselines verify": "whether every baseline and every artifact is whole",
    "cache show": "all winners",
    "cache clear": "remove all winners and trials: the next run tunes anew",
    "cache export": "write the cache as one JSON file",
    "cache import": "take exported files into the cache",
    "cache push": "store winners and trials behind a URL, for other machines",
    "cache pull": "take winners and trials from behind a URL",
    "diff": "two sets of baselines side by side, worst first",
    "upgrade": "which kernels lose under another Triton or torch, because of what",
    "code": "a case's code in a compiler stage, the baseline's beside today's",
    "dump": "a case's launches as folders that run without kerntune",
    "export": "a tuned kernel as cubin, C header and C launcher",
    "figures": "all cases against what their device reaches",
    "calibrate": "hold each stored case against itself: what can be told on this device",
    "bisect": "the first commit, Triton or torch with which a test's kernels are slower",
    "tune": "tune all keys of many kernels, from tests or from files of shapes",
    "shapes record": "run a command, and note the keys that it meets, untuned",
    "shapes show": "the noted keys by kernel, and those that can't be tuned so",
    "anchor": "make today's baselines the anchor, at a release",
    "history show": "steps and drifts of all cases, the largest slowdown first",
    "history add": "add what --kerntune-json wrote in an earlier run",
    "history forget": "remove runs that should not count",
    "report": "what runs found: an HTML page, a summary, CSV or Parquet",
    "doctor": "what this machine can do, and what is missing",
}


def _declare(name: str, parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of a command and its function, from the command's own module; no other one is loaded."""
    match name:
        case "baselines refresh":
            _refresh_arguments(parser)
        case "baselines show":
            from kerntune.cli.show import run_arguments

            run_arguments(parser)
        case "baselines apply":
            from kerntune.cli.apply import run_arguments

            run_arguments(parser)
        case "baselines prune":
            from kerntune.cli.prune import run_arguments

            run_arguments(parser)
        case "baselines mv":
            from kerntune.cli.mv import run_arguments

            run_arguments(parser)
        case "baselines verify":
            from kerntune.cli.show import verify_arguments

            verify_arguments(parser)
        case "cache show":
            from kerntune.cli.cache import show_arguments

            show_arguments(parser)
        case "cache clear":
            from kerntune.cli.cache import clear_arguments

            clear_arguments(parser)
        case "cache export":
            from kerntune.cli.cache import export_arguments

            export_arguments(parser)
        case "cache import":
            from kerntune.cli.cache import import_arguments

            import_arguments(parser)
        case "cache push":
            from kerntune.cli.cache import push_arguments

            push_arguments(parser)
        case "cache pull":
            from kerntune.cli.cache import pull_arguments

            pull_arguments(parser)
        case "diff":
            from kerntune.cli.diff import run_arguments

            run_arguments(parser)
        case "upgrade":
            from kerntune.cli.upgrade import run_arguments

            run_arguments(parser)
        case "code":
            from kerntune.cli.code import run_arguments

            run_arguments(parser)
        case "dump":
            from kerntune.cli.dump import run_arguments

            run_arguments(parser)
        case "export":
            from kerntune.cli.export import run_arguments

            run_arguments(parser)
        case "figures":
            from kerntune.cli.figures import run_arguments

            run_arguments(parser)
        case "calibrate":
            from kerntune.cli.calibrate import run_arguments

            run_arguments(parser)
        case "bisect":
            from kerntune.cli.bisect.entry import run_arguments

            run_arguments(parser)
        case "tune":
            from kerntune.cli.tune import run_arguments

            run_arguments(parser)
        case "shapes record":
            from kerntune.cli.tune import record_shapes_arguments

            record_shapes_arguments(parser)
        case "shapes show":
            from kerntune.cli.tune import show_shapes_arguments

            show_shapes_arguments(parser)
        case "anchor":
            from kerntune.cli.anchor import run_arguments

            run_arguments(parser)
        case "history show":
            from kerntune.cli.history import show_arguments

            show_arguments(parser)
        case "history add":
            from kerntune.cli.history import add_arguments

            add_arguments(parser)
        case "history forget":
            from kerntune.cli.history import forget_arguments

            forget_arguments(parser)
        case "report":
            from kerntune.cli.history import report_arguments

            report_arguments(parser)
        case "doctor":
            from kerntune.cli.doctor import run_arguments

            run_arguments(parser)


def _refresh_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "kerntune baselines refresh [PYTEST ARGUMENTS]"
    parser.description = (
        "Runs pytest --kerntune --kerntune-update=all with all that follows, in this process, and exits with its code. "
        "Baselines of tests that don't run are not touched."
    )
    parser.set_defaults(function=lambda args: _refresh([]))


def _refresh(words: Sequence[str]) -> int:
    from kerntune.gate import project

    return project.run(words)


if __name__ == "__main__":
    sys.exit(main())
