"""What imports of users' files change is put back."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def finders_as_they_were() -> Iterator[None]:
    """Python's finders, and what they know of folders."""
    finders, hooks, known = [*sys.meta_path], [*sys.path_hooks], {*sys.path_importer_cache}
    yield
    sys.meta_path[:], sys.path_hooks[:] = finders, hooks
    for path in {*sys.path_importer_cache} - known:
        del sys.path_importer_cache[path]
