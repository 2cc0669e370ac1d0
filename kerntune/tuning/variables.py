"""The environment variables that kerntune reads, and whether each holds what it can: one table, checked at the start.

What a variable says is read where it is used. A value that it can't have would be found there only, which a run without
a GPU, or one that finds all winners stored, never reaches.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping

from kerntune.compiling import compiler_tokens, forking
from kerntune.errors import UsageError
from kerntune.tuning import switch_interval, tune_options
from kerntune.tuning.cache.shared_store import store_url
from kerntune.tuning.patience import checked_patience
from kerntune.tuning.verification import verify_mode

PREFIX = "KERNTUNE_"


def _switch(text: str) -> None:
    if text not in ("0", "1"):
        raise UsageError(f"it is {text!r}; it can be 1 or 0")


def _content_of_dumps(text: str) -> None:
    from kerntune.tuning.launch_dumps import keeps_content  # few runs dump anything

    keeps_content()


def _free(text: str) -> None:
    """A file, a folder, names."""


CHECKS: Mapping[str, Callable[[str], object]] = {
    "KERNTUNE_BANDWIDTH": _free,
    "KERNTUNE_CACHE_DIR": _free,
    compiler_tokens.SWITCH: lambda text: compiler_tokens.token_count(),
    "KERNTUNE_DUMP": _free,
    "KERNTUNE_DUMP_CONTENT": _content_of_dumps,
    forking.SWITCH: _switch,
    tune_options.ISOLATE: tune_options.isolate_mode,
    "KERNTUNE_LOG": _free,
    "KERNTUNE_NVTX": _switch,
    tune_options.PATIENCE: checked_patience,
    "KERNTUNE_SHAPES": _free,
    "KERNTUNE_SHARED_GPU": _free,
    "KERNTUNE_SIGTERM": _switch,
    "KERNTUNE_STORE": lambda text: store_url(),
    "KERNTUNE_STORE_BINARIES": lambda text: store_url(),
    "KERNTUNE_STORE_PROCESS_URL": _free,
    switch_interval.SWITCH: _switch,
    tune_options.TUNE: lambda text: tune_options.tune_mode(),
    tune_options.VERIFY: verify_mode,
    "KERNTUNE_WINNERS": _free,
}
"""By a variable's name what raises :class:`UsageError` for a text that it can't be."""


def check_variables() -> None:
    """:class:`UsageError` for the first variable of this process's environment that is what it can't be: its name, and
    what it can be. An empty one counts as none."""
    for name, check in CHECKS.items():
        if text := os.environ.get(name):
            _check(name, text, check)


def _check(name: str, text: str, check: Callable[[str], object]) -> None:
    try:
        check(text)
    except UsageError as exc:
        if name in str(exc):
            raise
        raise UsageError(f"{name}: {exc}") from None


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[str]:
    """What is named as if kerntune read it, and isn't: a sentence each."""
    return [_unknown(name) for name in sorted(environ) if name.startswith(PREFIX) and name not in CHECKS]


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, CHECKS, 1)
    return f"{name} is read by nothing" + (f"; is it {near[0]}?" if near else "")
