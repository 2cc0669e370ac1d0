"""Functions compiled for a device that doesn't exist: the folder of what is generated."""

from __future__ import annotations

import os
from pathlib import Path

from kerntune.base.folders import LOCK, kind_of
from kerntune.gpu.fake_cuda.compiled_functions import CACHE_VARIABLES, own_caches


def test_the_folder_is_one_that_the_next_run_removes_after_a_kill() -> None:
    before = [os.environ.get(name) for name in CACHE_VARIABLES]
    with own_caches():
        (folder,) = {Path(os.environ[name]).parent for name in CACHE_VARIABLES}
        assert kind_of(folder) == "inductor"
        assert (folder / LOCK).exists()
    assert not folder.exists()
    assert [os.environ.get(name) for name in CACHE_VARIABLES] == before
