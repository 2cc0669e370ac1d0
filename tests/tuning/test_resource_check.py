"""A kernel that can't be launched is recognised by its binary, with the driver's figures after loading."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from samples import H100, binary

from kerntune.compiling.binary.elf import CubinResources
from kerntune.tuning import admission
from kerntune.tuning.admission import MAX_CLUSTER, misfit


@pytest.fixture
def registers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the number of registers in the cubin."""

    def say(count: int) -> None:
        resources = CubinResources("add_kernel", count, 0, 0, 128, 0, ("add_kernel",))
        monkeypatch.setattr(admission, "cubin_resources", lambda data, symbol: resources)

    return say


def test_what_fits_is_let_through(registers: Any) -> None:
    registers(64)
    assert misfit(binary(shared=H100.shared_memory_per_block, num_warps=8), b"", H100) == ""


@pytest.mark.parametrize(
    ("count", "changes", "words"),
    [
        (32, {"shared": H100.shared_memory_per_block + 1}, "shared memory: needs 232,449 bytes a block"),
        (32, {"num_warps": 64}, "threads: needs 2,048 a block, the device has 1,024"),
        (255, {"num_warps": 32}, "registers: needs 262,144 a block, the device has 65,536"),
        (32, {"num_ctas": MAX_CLUSTER * 2}, "cluster: needs 32 blocks, the device has 16"),
    ],
)
def test_each_limit_is_named(registers: Any, count: int, changes: dict[str, Any], words: str) -> None:
    registers(count)
    assert words in misfit(binary(**changes), b"", H100)


def test_a_file_that_does_not_say_is_left_to_the_driver() -> None:
    assert misfit(binary(), b"no ELF file", H100) == ""
    hip = msgspec.structs.replace(binary(), kind="hsaco")
    assert misfit(hip, b"", H100) == ""
