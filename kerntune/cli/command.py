"""The command ``kerntune``. Each subcommand's module is imported when it is asked for, so that help comes at once."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence

from kerntune.errors import KerntuneError, UsageError
from kerntune.gate.console import FINDINGS, OK, USAGE, complain, error_text, speak_anything

EPILOG = "Exit codes: 0 in order, 1 something was found, 2 wrong usage. refresh: pytest's."

STORE_HELP = "s3://, gs://, sftp://, file:// or hf:// (default: KERNTUNE_STORE)"

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
        return run_refresh(words[2:])  # all that follows is pytest's, options too
    _refuse_empty(words)
    words, tests = _split(words)
    args = build_parser().parse_args(words)
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


def build_parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    parser = argparse.ArgumentParser(
        prog="kerntune", description="Tunes Triton kernels and guards their speed: pytest --kerntune.", epilog=EPILOG
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _baselines(commands.add_parser("baselines", help="look at, compare, take over and clean what is remembered"))
    _cache(commands.add_parser("cache", help="winners and trials of earlier tuning"))
    _diff(_command(commands, "diff", run_diff, "two sets of baselines, or two Tritons, side by side, worst first"))
    _code(_command(commands, "code", run_code, "a case's code in a compiler stage, the baseline's beside today's"))
    _dump(_command(commands, "dump", run_dump, "a case's launches as folders that run without kerntune"))
    _export(_command(commands, "export", run_export, "a tuned kernel as cubin, C header and C launcher"))
    _figures(_command(commands, "figures", run_figures, "all cases against what their device reaches"))
    calibrate = _command(
        commands, "calibrate", run_calibrate, "hold each stored case against itself: what can be told on this device"
    )
    _folder(calibrate)
    _case(calibrate)
    calibrate.add_argument(
        "--processes", metavar="N", type=int, default=0, help="fresh processes a case, 2 or more (default: 4)"
    )
    _bisect(
        _command(commands, "bisect", run_bisect, "the first commit, or Triton, with which a test's kernels are slower")
    )
    _tune(_command(commands, "tune", run_tune, "tune all keys of many kernels, from tests or from files of shapes"))
    _shapes(commands.add_parser("shapes", help="which calls of tuned kernels a program makes, noted untuned"))
    _anchor(_command(commands, "anchor", run_anchor, "make today's baselines the anchor, at a release"))
    _history(commands.add_parser("history", help="what many runs say together: where cases got slower or faster"))
    _report(_command(commands, "report", run_report, "what runs found: an HTML page, a summary, CSV or Parquet"))
    doctor = _command(commands, "doctor", run_doctor, "what this machine can do, and what is missing")
    _folder(doctor)
    doctor.add_argument("--cache-dir", metavar="DIR", help="folder of the tuning cache")
    return parser


def _baselines(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _show(_command(commands, "show", run_show, "all baselines: case, device, config, time, environment"))
    _refresh(
        _command(
            commands,
            "refresh",
            lambda args: run_refresh([]),
            "pytest --kerntune --kerntune-update=all [PYTEST ARGUMENTS]",
        )
    )
    _apply(_command(commands, "apply", run_apply, "write the baselines that a run's JSON from another machine carries"))
    _prune(_command(commands, "prune", run_prune, "remove baselines of tests that no longer exist"))
    _mv(_command(commands, "mv", run_mv, "move the baselines and anchors of renamed tests to their new names"))
    _folder(_command(commands, "verify", run_verify, "whether every baseline and every artifact is whole"))


def _show(parser: argparse.ArgumentParser) -> None:
    _folder(parser)
    _case(parser)
    _json(parser)


def _diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        metavar="A [B] | TESTS",
        nargs="*",
        help="folders, git revisions of the baseline folder, or Triton series in it such as triton-3.9 (default of B: "
        "the baseline folder as it is now); with --python what pytest is to run (its options after --)",
    )
    parser.add_argument(
        "--static", action="store_true", help="compare registers, spills and sizes of each launch by the static rules"
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        action="append",
        help="compile the tests' kernels in this environment too and compare with the current one, as --static does; "
        "given twice, these two are compared",
    )
    parser.add_argument("--target", metavar="TARGET[,TARGET]", help="what --python compiles for, as cuda:90,hip:gfx942")
    _folder(parser)
    _case(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="for a comment on a pull request, or a job summary")
    _json(form)
    parser.add_argument(
        "--exit-code",
        action="store_true",
        help="exit with 1 if there is a difference; with --static or --python, if a rule of the static gate fails",
    )


def _refresh(parser: argparse.ArgumentParser) -> None:
    parser.usage = "kerntune baselines refresh [PYTEST ARGUMENTS]"
    parser.description = (
        "Runs pytest --kerntune --kerntune-update=all with all that follows, in this process, and exits with its code. "
        "Baselines of tests that don't run are not touched."
    )


def _apply(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN.json", help="what --kerntune-json wrote on the other machine")
    _folder(parser)
    _case(parser)
    parser.add_argument(
        "--only",
        choices=("new", "improved", "all"),
        default="all",
        help="cases that the folder doesn't have, cases that the run found faster, or all (default)",
    )


def _prune(parser: argparse.ArgumentParser) -> None:
    _folder(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    parser.add_argument(
        "--stale-from",
        metavar="RUN.json",
        help="remove what this run (of --kerntune-json) found stale, instead of collecting the tests",
    )


def _code(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", help="a test's id (and call), or what only one case contains")
    parser.add_argument(
        "--stage",
        choices=("ttir", "glir", "ttgir", "llir", "ptx", "amdgcn", "sass"),
        help="which code (default: the first stage that differs)",
    )
    parser.add_argument("--against", metavar="REF", help="a git revision's code instead of the baseline's")
    parser.add_argument("--target", metavar="TARGET", help="what to compile for (default: what the baseline is of)")
    _folder(parser)
    parser.add_argument("--unified", action="store_true", help="as diff -u, instead of side by side")
    parser.add_argument("--width", metavar="N", type=int, default=0, help="columns (default: the terminal's)")
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if there is a difference")


def _dump(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", help="a test's id (and call), or what only one case contains")
    parser.add_argument(
        "-o", "--output", metavar="DIR", default="kerntune-dump", help="folder (default: kerntune-dump)"
    )
    parser.add_argument(
        "--content",
        choices=("described", "recorded"),
        default="described",
        help="of tensors: how their numbers are distributed (default), or all bytes, before and after each launch",
    )
    parser.add_argument("--target", metavar="TARGET", help="what to compile for without a GPU")
    parser.add_argument(
        "--stored", action="store_true", help="what the baseline holds, instead of running the test: no source"
    )
    _folder(parser)


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", metavar="KERNEL", help="package.module:kernel or path/to/file.py:kernel")
    parser.add_argument(
        "--key",
        metavar="NAME=VALUE",
        action="append",
        help="an argument of the call: n=4096, x_ptr=fp16[4096,128]; those that aren't given are the stored winner's",
    )
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="folder of the files")
    parser.add_argument(
        "--grid",
        metavar="GRID",
        help="cdiv(n, BLOCK), or a grid or grid function of the kernel's module (default: three arguments)",
    )
    parser.add_argument(
        "--config", metavar="NAME=VALUE,...", help="instead of the stored winner's: BLOCK=128,num_warps=4"
    )
    parser.add_argument("--name", metavar="NAME", help="of files and C functions (default: the kernel's)")
    parser.add_argument("--target", metavar="TARGET", help="what to compile for (default: the stored winner's)")
    parser.add_argument("--cpp", action="store_true", help="a launcher in C++11 instead of C99")
    parser.add_argument("--cache-dir", metavar="DIR", help="folder of the cache (default: the ini file's, else yours)")


def _figures(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN.json", nargs="?", help="what --kerntune-json wrote (default: baselines)")
    _folder(parser)
    _case(parser)
    parser.add_argument("--cache-dir", metavar="DIR", help="folder of the cache, which knows devices' rates")
    _json(parser)


def _mv(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", metavar="OLD", help="a folder, file, test, parameter set or call; * is a wildcard")
    parser.add_argument("new", metavar="NEW", help="its new name; each * is what the * at its place in OLD matched")
    _folder(parser)
    parser.add_argument(
        "--anchor", metavar="DIR", help="folder of the anchor (default: as the ini file says, else anchors)"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be moved")
    parser.add_argument(
        "--replace", action="store_true", help="also where NEW has a baseline of other kernels, which is lost"
    )


def _bisect(parser: argparse.ArgumentParser) -> None:
    parser.usage = "kerntune bisect [GOOD [BAD]] [OPTIONS] -- TESTS"
    parser.add_argument(
        "revisions", metavar="GOOD [BAD]", nargs="*", help="commits, branches or tags; BAD is HEAD if it is left out"
    )
    parser.add_argument(
        "--setup",
        metavar="CMD",
        default="",
        help="a shell command that builds a commit, in its checkout; a commit for which it fails is skipped",
    )
    parser.add_argument(
        "--triton",
        metavar="3.8,3.9",
        default="",
        help="go through these versions, the good one first: pip installs them to kerntune's cache folder; NAME=PATH "
        "of an interpreter or of a folder that has triton/",
    )
    parser.add_argument(
        "--target",
        metavar="TARGET",
        default="",
        help="time nothing: compile for this, as cuda:90, and let the static rules decide (default: without a GPU, the "
        "targets of the baselines)",
    )
    parser.add_argument("--own-tests", action="store_true", help="run each commit's own tests (default: today's)")
    parser.add_argument(
        "--check",
        action="store_true",
        help="only the working tree, against GOOD: exit with 0 if it isn't slower, 1 if it is, 125 if that can't be "
        "told and 128 if the command is wrong, as `git bisect run` wants it",
    )
    parser.add_argument(
        "--keep", metavar="DIR", help="with --check: keep what was recorded of GOOD there, and use it again"
    )
    parser.add_argument(
        "--processes", metavar="N", type=int, help="versions compiled at once (default: one for four cores)"
    )
    _folder(parser)
    parser.set_defaults(tests=[])


def _anchor(parser: argparse.ArgumentParser) -> None:
    _folder(parser)
    parser.add_argument(
        "--anchor", metavar="DIR", help="folder of the anchor (default: as the ini file says, else anchors)"
    )
    _case(parser)


def _history(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    show = _command(commands, "show", run_history_show, "steps and drifts of all cases, the largest slowdown first")
    _case(show)
    show.add_argument("place", nargs="?", default="", help=argparse.SUPPRESS)
    show.add_argument(
        "--branch", metavar="NAME", default="", help="the branch that is shown (default: that with most runs)"
    )
    show.add_argument(
        "--false-rate",
        metavar="P",
        type=float,
        default=0.01,
        help="probability of any false step in all that is shown (default: 0.01)",
    )
    form = show.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="for a comment on a pull request, or a job summary")
    _json(form)
    show.add_argument("--exit-code", action="store_true", help="exit with 1 if a case got slower")
    add = _command(commands, "add", run_history_add, "add what --kerntune-json wrote in an earlier run")
    add.add_argument("runs", metavar="RUN.json", nargs="+", help="what --kerntune-json wrote")
    forget = _command(commands, "forget", run_history_forget, "remove runs that should not count")
    forget.add_argument("runs", metavar="RUN", nargs="+", help="the file that `add` named, or the run's commit")
    for command in (show, add, forget):
        command.add_argument(
            "--history",
            metavar="PLACE",
            help="a folder, git:BRANCH, or a URL (default: the ini file's kerntune_history)",
        )


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN.json", nargs="+", help="what --kerntune-json wrote")
    parser.add_argument("-o", "--output", metavar="FILE", help="one HTML file that opens offline")
    parser.add_argument("--title", metavar="TEXT", default="kerntune", help="its heading (default: kerntune)")
    parser.add_argument(
        "--history",
        metavar="PLACE",
        help="a folder, git:BRANCH, or a URL, drawn in the page (default: the ini file's kerntune_history)",
    )
    parser.add_argument(
        "--branch", metavar="NAME", default="", help="the branch of the history (default: that with most runs)"
    )
    parser.add_argument("--summary", metavar="FILE", help="append Markdown, as for $GITHUB_STEP_SUMMARY")
    parser.add_argument("--csv", metavar="FILE", help="a table of all figures")
    parser.add_argument("--parquet", metavar="FILE", help="the same; needs pip install kerntune[parquet]")


def _tune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tests", metavar="TESTS", nargs="*", help="files, folders or node ids, whose calls are tuned")
    parser.add_argument(
        "--shapes", metavar="FILE", action="append", default=[], help="calls that `kerntune shapes record` noted"
    )
    parser.add_argument(
        "--gpus", metavar="0,1", type=lambda text: text.split(","), help="this host's GPUs to tune on (default: all)"
    )
    parser.add_argument("--dask", metavar="HOST:PORT", help="tune on the workers of this Dask scheduler instead")
    parser.add_argument(
        "--module", metavar="NAME", action="append", default=[], help="import kernels from this module or package only"
    )
    parser.add_argument(
        "--path", metavar="DIR", action="append", default=[], help="where Python looks for modules first"
    )
    parser.add_argument("--target", metavar="TARGET", help="what tests' calls are noted for (default: this GPU's)")
    parser.add_argument("--run", action="store_true", help="run the tests on the GPU to note their calls, untuned")
    parser.add_argument("--force", action="store_true", help="tune keys that have a stored winner, too")
    parser.add_argument("--list", action="store_true", help="only say which kernels' keys would be tuned")
    parser.add_argument("--cache-dir", metavar="DIR", help="folder of the cache (default: the ini file's, else yours)")


def _shapes(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    record = _command(commands, "record", run_shapes_record, "run a command, and note the keys that it meets, untuned")
    record.add_argument(
        "-o", "--output", metavar="FILE", default="shapes.jsonl", help="file to add them to (default: shapes.jsonl)"
    )
    record.add_argument(
        "command", metavar="COMMAND", nargs=argparse.REMAINDER, help="after --, as `-- python train.py`"
    )
    show = _command(commands, "show", run_shapes_show, "the noted keys by kernel, and those that can't be tuned so")
    show.add_argument("files", metavar="FILE", nargs="+", help="what record wrote")


def _cache(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    show = _command(commands, "show", run_cache_show, "all winners")
    clear = _command(commands, "clear", run_cache_clear, "remove all winners and trials: the next run tunes anew")
    export = _command(commands, "export", run_cache_export, "write the cache as one JSON file")
    export.add_argument("file", metavar="FILE", help="what to write; with --per-device a folder")
    form = export.add_mutually_exclusive_group()
    form.add_argument("--winners-only", action="store_true", help="leave single trials out")
    form.add_argument("--per-device", action="store_true", help="a file of winners per device, to ship in a wheel")
    import_ = _command(commands, "import", run_cache_import, "take exported files into the cache")
    import_.add_argument("files", metavar="FILE", nargs="+", help="what export wrote, of either form")
    import_.add_argument("--replace", action="store_true", help="also where the cache has an entry already")
    push = _command(commands, "push", run_cache_push, "store winners and trials behind a URL, for other machines")
    pull = _command(commands, "pull", run_cache_pull, "take winners and trials from behind a URL")
    for sub in (push, pull):
        sub.add_argument("url", nargs="?", metavar="URL", help=STORE_HELP)
        sub.add_argument("--winners-only", action="store_true", help="leave the trials out")
    for command in (show, clear, export, import_, push, pull):
        command.add_argument(
            "--cache-dir", metavar="DIR", help="folder of the cache (default: the ini file's, else yours)"
        )
    _json(show)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, run: Subcommand, text: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=EPILOG)
    parser.set_defaults(function=run)
    return parser


def _folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--baselines", metavar="DIR", help="folder of the baselines (default: as the ini file says)")


def _case(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--case", metavar="PATTERN", default="", help="only cases that contain this text, or match it with * and ?"
    )


def _json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_show(args: argparse.Namespace) -> int:
    """``kerntune baselines show``."""
    from kerntune.cli import show

    return show.run(args)


def run_diff(args: argparse.Namespace) -> int:
    """``kerntune diff``."""
    if args.static or args.python:
        from kerntune.cli import static_diff

        return static_diff.run(args)
    from kerntune.cli import diff

    return diff.run(args)


def run_code(args: argparse.Namespace) -> int:
    """``kerntune code``."""
    from kerntune.cli import code

    return code.run(args)


def run_apply(args: argparse.Namespace) -> int:
    """``kerntune baselines apply``."""
    from kerntune.cli import apply

    return apply.run(args)


def run_prune(args: argparse.Namespace) -> int:
    """``kerntune baselines prune``."""
    from kerntune.cli import prune

    return prune.run(args)


def run_mv(args: argparse.Namespace) -> int:
    """``kerntune baselines mv``."""
    from kerntune.cli import mv

    return mv.run(args)


def run_verify(args: argparse.Namespace) -> int:
    """``kerntune baselines verify``."""
    from kerntune.cli import show as verify

    return verify.verify(args)


def run_cache_show(args: argparse.Namespace) -> int:
    """``kerntune cache show``."""
    from kerntune.cli import cache

    return cache.show(args)


def run_cache_clear(args: argparse.Namespace) -> int:
    """``kerntune cache clear``."""
    from kerntune.cli import cache

    return cache.clear(args)


def run_tune(args: argparse.Namespace) -> int:
    """``kerntune tune``."""
    from kerntune.cli import tune

    return tune.run(args)


def run_shapes_record(args: argparse.Namespace) -> int:
    """``kerntune shapes record``."""
    from kerntune.cli import tune as shapes

    return shapes.record_shapes(args)


def run_shapes_show(args: argparse.Namespace) -> int:
    """``kerntune shapes show``."""
    from kerntune.cli import tune as shapes

    return shapes.show_shapes(args)


def run_calibrate(args: argparse.Namespace) -> int:
    """``kerntune calibrate``."""
    from kerntune.cli import calibrate

    return calibrate.run(args)


def run_dump(args: argparse.Namespace) -> int:
    """``kerntune dump``."""
    from kerntune.cli import dump

    return dump.run(args)


def run_export(args: argparse.Namespace) -> int:
    """``kerntune export``."""
    from kerntune.cli import export

    return export.run(args)


def run_figures(args: argparse.Namespace) -> int:
    """``kerntune figures``."""
    from kerntune.cli import figures

    return figures.run(args)


def run_anchor(args: argparse.Namespace) -> int:
    """``kerntune anchor``."""
    from kerntune.cli import anchor

    return anchor.run(args)


def run_cache_export(args: argparse.Namespace) -> int:
    """``kerntune cache export``."""
    from kerntune.cli import cache

    return cache.export(args)


def run_cache_push(args: argparse.Namespace) -> int:
    """``kerntune cache push``."""
    from kerntune.cli import cache

    return cache.push(args)


def run_cache_pull(args: argparse.Namespace) -> int:
    """``kerntune cache pull``."""
    from kerntune.cli import cache

    return cache.pull(args)


def run_cache_import(args: argparse.Namespace) -> int:
    """``kerntune cache import``."""
    from kerntune.cli import cache

    return cache.import_(args)


def run_history_show(args: argparse.Namespace) -> int:
    """``kerntune history show``."""
    from kerntune.cli import history

    return history.show(args)


def run_history_add(args: argparse.Namespace) -> int:
    """``kerntune history add``."""
    from kerntune.cli import history

    return history.add(args)


def run_history_forget(args: argparse.Namespace) -> int:
    """``kerntune history forget``."""
    from kerntune.cli import history

    return history.forget(args)


def run_report(args: argparse.Namespace) -> int:
    """``kerntune report``."""
    from kerntune.cli import history as report

    return report.report(args)


def run_doctor(args: argparse.Namespace) -> int:
    """``kerntune doctor``."""
    from kerntune.cli import doctor

    return doctor.run(args)


def run_bisect(args: argparse.Namespace) -> int:
    """``kerntune bisect``."""
    from kerntune.cli.bisect import entry

    return entry.run(args)


def run_refresh(args: Sequence[str]) -> int:
    """``kerntune baselines refresh``."""
    from kerntune.gate import project

    return project.run(args)


if __name__ == "__main__":
    sys.exit(main())
