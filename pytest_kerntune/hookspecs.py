"""The hook that a project can implement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kerntune.gpu.base import Backend


@pytest.hookspec(firstresult=True)
def pytest_kerntune_backend(config: pytest.Config) -> Backend | None:
    """The backend to run on, instead of the one that kerntune finds by itself.

    Called once a process under ``--kerntune``, before collection; the first answer that isn't None counts. Without a
    GPU, stand-ins are in place while initial conftests are imported; another backend takes their place here.
    kerntune's own tests run on its scripted backend this way, in a ``conftest.py``::

        from kerntune.gpu.scripted import FakeBackend

        def pytest_kerntune_backend(config):
            return FakeBackend()
    """
