"""``kerntune judge``: is this kernel right, and faster? Recordings are replayed without the candidate's code."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kerntune.gate.console import say


def run_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune judge`` takes."""
    parser.epilog = (
        "Exit codes: 0 FASTER, 3 SAME, 4 SLOWER, 5 UNDECIDED, 6 UNTIMED, 7 WRONG, 8 REFUSED; 1 the judge itself "
        "failed, 2 wrong usage. docs/judge.md says what is kept from a candidate, and what isn't."
    )
    parser.add_argument(
        "candidate", metavar="CANDIDATE", help="file.py::function, or a file with ModelNew or custom_kernel"
    )
    parser.add_argument("reference", metavar="REFERENCE", help="file.py::function, or a file with Model or ref_kernel")
    parser.add_argument(
        "--inputs", metavar="INPUTS", action="append", default=[],
        help="a line, as 'x: f16[4096,4096] normal; idx: i64[4096] < 32000', once for each shape; or a file: a Python "
        "file with INPUTS, or task.yml",
    )  # fmt: skip
    parser.add_argument("--budget", metavar="SECONDS", type=float, default=10.0, help="for each shape (default: 10)")
    parser.add_argument("--json", action="store_true", help="one JSON document (kerntune.judge/1) instead of text")
    parser.add_argument(
        "--unsealed", action="store_true", help="run the candidate without limits where the system has none; it is said"
    )


def run(args: Namespace) -> int:
    """Judge; the exit code of the verdict."""
    from kerntune.referee.judgement import judge
    from kerntune.referee.sealed_process import use_freed_memory_again
    from kerntune.referee.verdict_report import text_of, to_json

    use_freed_memory_again()
    verdict = judge(args.candidate, args.reference, args.inputs, budget=args.budget, sealed=not args.unsealed)
    if args.json:
        say(to_json(verdict).decode(), end="")
    else:
        for line in text_of(verdict):
            say(line)
    return verdict.exit_code
