"""The session of a run without a GPU, opened before users' conftests are imported.

Initial conftests are imported between ``pytest_load_initial_conftests`` and ``pytest_configure``. Modules decide there
what to do without a GPU (``DEVICE = "cuda" if torch.cuda.is_available() else "cpu"``), so the stand-ins must be in
place by then. Options are read from what pytest has parsed so far; those that conftests add don't matter here.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kerntune.errors import KerntuneError
from pytest_kerntune import interpret, options

if TYPE_CHECKING:
    from kerntune.gate.api import Session

NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""torch's (docs.pytorch.org/docs/stable/torch_environment_variables.html)."""

SESSION: pytest.StashKey[Session] = pytest.StashKey()
"""On the config, from initial conftests to the session's start."""


def begin(config: pytest.Config) -> None:
    """Open and start a session on stand-ins if this run will need one; :class:`pytest.UsageError` for wrong options.

    What can't be opened is left for the session's start, which says why: a conftest may give another backend by then.
    """
    given = config.known_args_namespace
    if given.help or given.version:
        return
    interprets = options.interprets(config, given)
    if not interprets and not options.enabled(config, given):
        return
    _refuse_tritons_interpreter()
    if interprets:
        interpret.begin(config)
        return
    resolved = options.resolve(config, given)
    if not _without_gpu(resolved):
        return
    try:
        _start(config, resolved)
    except KerntuneError:
        return


def take(config: pytest.Config) -> Session | None:
    """The session that :func:`begin` started, if any. It closes with the config."""
    session = config.stash.get(SESSION, None)
    if session is not None:
        del config.stash[SESSION]
    return session


def _refuse_tritons_interpreter() -> None:
    """A kernel that is decorated for Triton's own interpreter runs there: neither compiled, nor watched."""
    if not os.environ.get("TRITON_INTERPRET"):
        return
    from kerntune.kernels import compat

    if compat.interprets():
        raise pytest.UsageError(
            "TRITON_INTERPRET is set: Triton's own interpreter would run every kernel, and kerntune see none. "
            "Unset it; --kerntune-interpret does without"
        )


def _start(config: pytest.Config, resolved: options.Options) -> None:
    from kerntune.gate.api import open_session

    session = open_session(resolved.settings())
    config.add_cleanup(session.close)
    session.start()
    config.stash[SESSION] = session


def _without_gpu(resolved: options.Options) -> bool:
    """Whether targets are asked for, or known where there is no GPU. torch is imported only if that decides it."""
    if resolved.targets:
        return True
    from kerntune.gate.baselines import BaselineStore

    if not resolved.settings().known_targets(BaselineStore(resolved.baselines)):
        return False
    from kerntune.gpu.probe import has_cuda

    with _without_starting_cuda():
        return not has_cuda()


@contextlib.contextmanager
def _without_starting_cuda() -> Iterator[None]:
    """Have torch ask NVML for GPUs: CUDA reads ``CUDA_VISIBLE_DEVICES`` when it starts, and conftests that set it (a
    GPU for each of xdist's workers, say) come later."""
    before = os.environ.get(NVML_CHECK)
    os.environ[NVML_CHECK] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[NVML_CHECK]
        else:
            os.environ[NVML_CHECK] = before
