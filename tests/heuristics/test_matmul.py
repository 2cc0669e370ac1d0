"""Native matrix products."""

from __future__ import annotations

import pytest

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import HintError
from kerntune.heuristics import persistent_reduction, reduction
from kerntune.heuristics.hints import MAX_TENSOR_NUMEL, KernelHints

H100 = TYPICAL_DEVICES["cuda:90"]


def hints(r: int, **fields: object) -> KernelHints:
    return KernelHints(sizes={"x": 1024, "y": 512, "r0": r}, native_matmul=True, **fields)  # type: ignore[arg-type]


def test_nineteen_tiles_and_sixteen_without_the_loop() -> None:
    assert len(reduction(hints(256), H100)) == 19
    assert len(persistent_reduction(hints(16), H100)) == 16


def test_batches_have_z_blocks_of_one() -> None:
    batched = KernelHints(sizes={"x": 64, "y": 64, "z": 8, "r0": 64}, native_matmul=True)
    assert {c.kwargs["ZBLOCK"] for c in (*reduction(batched, H100), *persistent_reduction(batched, H100))} == {1}


@pytest.mark.parametrize("r", [16, 128, 512, 1024, 4096])
def test_a_whole_product_fits_one_tensor(r: int) -> None:
    for config in persistent_reduction(hints(r), H100):
        x, y = config.kwargs["XBLOCK"], config.kwargs["YBLOCK"]
        assert isinstance(x, int)
        assert isinstance(y, int)
        assert x * y * r <= MAX_TENSOR_NUMEL
        assert min(x, y) >= 16


def test_nothing_fits_a_very_long_product() -> None:
    with pytest.raises(HintError, match="no config fits"):
        persistent_reduction(hints(8192), H100)
    assert persistent_reduction(hints(8192, native_matmul_rblock=64), H100)


def test_short_products_are_padded_to_a_dot() -> None:
    assert persistent_reduction(hints(1), H100) == persistent_reduction(hints(16), H100)


def test_other_axes_are_refused() -> None:
    with pytest.raises(HintError, match="native matmul takes size hints for x y r0 or x y z r0"):
        reduction(KernelHints(sizes={"x": 64, "r0": 64}, native_matmul=True), H100)
