"""A pytest plugin as small as can be: stand-ins for the whole run."""

from __future__ import annotations

import contextlib
import os

import pytest

from kerntune.base.device import Target, typical_device
from kerntune.gpu.fake_cuda import StandIns, static_reason

_active = contextlib.ExitStack()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    target = Target.parse(os.environ.get("STANDIN_TARGET", "cuda:90"))
    _active.enter_context(StandIns(typical_device(target)).activate())


def pytest_unconfigure() -> None:
    _active.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    try:
        return (yield)
    except Exception as error:
        reason = static_reason(error)
        if reason is None:
            raise
        pytest.skip(f"ended: {reason}")
