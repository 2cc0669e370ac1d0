"""The command ``kerntune``: its commands, usage errors and exit codes.

The module of a command declares its arguments. It is imported when its command is asked for, so that help comes at
once.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
from argparse import Action, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from kerntune.errors import KerntuneError, UsageError
from kerntune.gate.console import FINDINGS, OK, USAGE, complain, error_text, hide_line, live_line, say, speak_anything

EPILOG = "Exit codes: 0 in order, 1 something was found, 2 wrong usage. refresh: pytest's."

INTERRUPTED = 128 + signal.SIGINT
"""The exit code of a command that Ctrl-C has ended, as shells give it."""

REFRESH = ("baselines", "refresh")

Subcommand = Callable[[Namespace], int]


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
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains when it flushes
        return FINDINGS
    except (KerntuneError, OSError) as exc:
        complain(f"error: {error_text(exc)}")
        return FINDINGS


def _dispatch(words: list[str]) -> int:
    if tuple(words[:2]) == REFRESH and words[2:3] not in (["-h"], ["--help"]):
        return _run_pytest(words[2:])  # all that follows is pytest's, options too
    _refuse_empty(words)
    words, tests = _split(words)
    name = " ".join(word for word in words[:2] if not word.startswith("-"))
    with live_line(name):
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
    ours = words[: words.index("--")] if "--" in words else words  # the rest is another program's
    for before, word in zip(["", *ours], ours, strict=False):
        if not word.strip() or re.fullmatch(r"--[\w-]+=\s*", word):
            option = before if not word.strip() and before.startswith("-") else word.strip()
            what = f"{option} has no value" if option else "an argument is empty"
            raise UsageError(f"{what}; a variable that should give one may be unset. Give one, or leave it out")


def build_parser(words: Sequence[str] | None = None) -> ArgumentParser:
    """The command that ``words`` begin with, with its arguments, which load its module. Where they begin with none, all
    commands without theirs; without ``words`` all with theirs."""
    parser = CommandParser(
        prog="kerntune", description="Tunes Triton kernels and guards their speed: pytest --kerntune.", epilog=EPILOG
    )
    parser.add_argument("--version", action="version", version=f"kerntune {_version()}")
    parser.add_argument(
        "--completion",
        choices=["bash", "zsh"],
        action=Completion,
        help='print a script for the shell, as for eval "$(kerntune --completion bash)"',
    )
    groups = {"": _subcommands(parser)}
    named = [n for n in COMMANDS if words and n.split() == [*words[: len(n.split())]]]
    for name in named or COMMANDS:
        module, function, text = COMMANDS[name]
        group, _, last = name.rpartition(" ")
        if group not in groups:
            groups[group] = _subcommands(groups[""].add_parser(group, help=GROUPS[group]))
        about = f"{text[0].upper()}{text[1:]}."
        command = groups[group].add_parser(last, help=text, description=about, epilog=EPILOG)
        if words is None or named:
            loaded = importlib.import_module(f"kerntune.cli.{module}")  # no other is loaded
            getattr(loaded, f"{function}_arguments")(command)
            command.set_defaults(function=getattr(loaded, function))
    return parser


def _version() -> str:
    from kerntune import __version__

    return __version__


class CommandParser(ArgumentParser):
    """One that says what was meant, where a word is near one that it knows."""

    def error(self, message: str) -> NoReturn:
        """Wrong usage; argparse's message, and what was meant."""
        from kerntune.base.formatting import did_you_mean  # not for help, which loads nothing

        _, wrong, rest = message.partition("invalid choice: '")
        word, choices, known = rest.partition("' (choose from ")
        if wrong and choices:
            message += did_you_mean(word, re.findall(r"[\w.-]+", known))
        if (unknown := re.search(r"unrecognized arguments: (--[\w-]+)", message)) is not None:
            message += did_you_mean(unknown[1], _options_of(self))
        super().error(message)

    def _print_message(self, message: str, file: Any = None) -> None:
        """All that argparse prints: help, and errors of usage."""
        hide_line()
        super()._print_message(message, file)


def _options_of(parser: ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        for below in action.choices.values() if isinstance(action, _SubParsersAction) else ():
            yield from _options_of(below)


class Completion(Action):
    """Prints the script of a shell, and ends."""

    def __call__(self, parser: ArgumentParser, given: Any, value: Any, option: str | None = None) -> NoReturn:
        """What argparse calls."""
        from kerntune.cli.completion import script

        say(script(value, build_parser()), end="")
        parser.exit()


def _subcommands(parser: ArgumentParser) -> _SubParsersAction[ArgumentParser]:
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


GROUPS = {
    "baselines": "look at, compare, take over and clean what is remembered",
    "cache": "winners and trials of earlier tuning",
    "shapes": "which calls of tuned kernels a program makes, noted untuned",
    "history": "what many runs say together: where cases got slower or faster",
}

COMMANDS = {
    "init": ("init", "run", "write a project's settings, hook and workflow for the tests that it has"),
    "baselines show": ("show", "run", "all baselines: case, device, config, time, environment"),
    "baselines refresh": ("command", "refresh", "pytest --kerntune --kerntune-update=all [PYTEST ARGUMENTS]"),
    "baselines apply": ("upkeep", "apply", "write the baselines that a run's JSON from another machine carries"),
    "baselines prune": ("upkeep", "prune", "remove baselines of tests that no longer exist"),
    "baselines mv": ("upkeep", "move", "move the baselines and anchors of renamed tests to their new names"),
    "baselines verify": ("show", "verify", "whether every baseline and every artifact is whole"),
    "cache show": ("cache", "show", "all winners"),
    "cache clear": ("cache", "clear", "remove all winners and trials: the next run tunes anew"),
    "cache export": ("cache", "export", "write the cache as one JSON file"),
    "cache import": ("cache", "import_files", "take exported files into the cache"),
    "cache push": ("cache", "push", "store winners and trials behind a URL, for other machines"),
    "cache pull": ("cache", "pull", "take winners and trials from behind a URL"),
    "diff": ("diff", "run", "two sets of baselines side by side, worst first"),
    "upgrade": ("upgrade", "run", "which kernels lose under another Triton or torch, because of what"),
    "code": ("code", "run", "a case's code in a compiler stage, the baseline's beside today's"),
    "dump": ("dump", "run", "a case's launches as folders that run without kerntune"),
    "export": ("export", "run", "a tuned kernel as cubin, C header and C launcher"),
    "figures": ("figures", "run", "all cases against what their device reaches"),
    "judge": ("judge", "run", "is this kernel right, and faster than a reference?"),
    "calibrate": ("calibrate", "run", "hold each stored case against itself: what can be told on this device"),
    "bisect": ("bisect.entry", "run", "the first commit, Triton or torch with which a test's kernels are slower"),
    "tune": ("tune", "run", "tune all keys of many kernels, from tests or from files of shapes"),
    "shapes record": ("tune", "record_shapes", "run a command, and note the keys that it meets, untuned"),
    "anchor": ("anchor", "run", "make today's baselines the anchor, at a release"),
    "history show": ("history", "show", "steps and drifts of all cases, the largest slowdown first"),
    "history add": ("history", "add", "add what --kerntune-json wrote in an earlier run"),
    "history forget": ("history", "forget", "remove runs that should not count"),
    "report": ("history", "report", "what runs found: an HTML page, a summary, CSV or Parquet"),
    "doctor": ("doctor", "run", "what this machine can do, and what is missing"),
}
"""By name: the module of a command, the function in it that runs it, and its help. The function of that name and
``_arguments`` declares what the command takes."""


def refresh_arguments(parser: ArgumentParser) -> None:
    """Declare that ``kerntune baselines refresh`` takes pytest's arguments."""
    parser.usage = "kerntune baselines refresh [PYTEST ARGUMENTS]"
    parser.description = (
        "Runs pytest --kerntune --kerntune-update=all with all that follows, in this process, and exits with its code. "
        "Baselines of tests that don't run are not touched."
    )


def refresh(args: Namespace) -> int:
    """Run pytest without arguments."""
    return _run_pytest([])


def _run_pytest(words: Sequence[str]) -> int:
    from kerntune.gate import project

    return project.run(words)


if __name__ == "__main__":
    sys.exit(main())
