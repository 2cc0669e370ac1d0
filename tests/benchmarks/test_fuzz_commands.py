"""Mutated files of every format through the commands that read them: documented errors alone. 200,000 are tried by
``benchmarks/fuzz/fuzz_commands.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fuzz.fuzz_commands import MOST_MB, SLOWEST_S, formats, fuzz


@pytest.mark.slow
def test_mutated_files_give_documented_errors_alone(tmp_path: Path) -> None:
    found = fuzz(20 * len(formats()), 7, tmp_path)
    assert dict(found.failures) == {}, "".join(text for _, text in found.examples.values())
    assert set(found.files.values()) == {20}
    assert found.slowest_s < SLOWEST_S
    assert found.memory_mb < MOST_MB
