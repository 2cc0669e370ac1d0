"""A plugin for ``kerntune tune TESTS``: the calls that tests make of tuned kernels are noted, and nothing is tuned.

With ``--kerntune-note-target`` nothing runs either: tensors are stand-ins, and no kernel is compiled or launched.
Without, the tests run on the GPU, and kernels with the first config that can be launched.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kerntune.base.config import Config
from kerntune.base.device import target_named
from pytest_kerntune.marker import read_marker

if TYPE_CHECKING:
    from kerntune.capture import Capture

OPTION = "--kerntune-note-target"

CAPTURE = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, default="", help="note calls on stand-ins for this target")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before users' conftests and test modules are imported, which may ask for a GPU."""
    target = early_config.known_args_namespace.kerntune_note_target
    stack = ExitStack()
    early_config.add_cleanup(stack.close)
    if target:
        early_config.stash[CAPTURE] = stack.enter_context(on_stand_ins(target))
    else:
        from kerntune.tuning.api.install import install

        stack.enter_context(install())


@contextmanager
def on_stand_ins(target: str) -> Iterator[Capture]:
    """A process whose GPU doesn't exist, in which launches are noted and not made."""
    from kerntune.capture import Capture
    from kerntune.compiling.compiler import Compiler
    from kerntune.gpu.fake_cuda.static_backend import StaticBackend
    from kerntune.kernels.source import kernel_name
    from kerntune.tuning.many.shapes_file import note_call

    class Noting(Capture):
        """Notes the launches of tuners and of kernels with given candidates; makes none."""

        def _on_launch(self, jit: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
            if not kwargs.get("warmup") and kernel_name(jit) in self.given:
                note_call(jit, args, kwargs, self.given[kernel_name(jit)])

        def tuned_run(self, tuner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
            if not kwargs.get("warmup"):
                note_call(tuner, args, kwargs)

    backend = StaticBackend(target_named(target))
    with backend.activate(), (capture := Noting(backend, Compiler())).active():
        yield capture


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A marker's candidates are those of its test."""
    capture = item.config.stash.get(CAPTURE, None)
    if capture is None:
        return (yield)
    given: Mapping[str, tuple[Config, ...]] = read_marker(item).candidates
    capture.given = given
    try:
        return (yield)
    finally:
        capture.given = {}
