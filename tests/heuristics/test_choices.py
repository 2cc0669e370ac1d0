"""Looped, persistent or cooperative: as torch's choices.py decides."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import pytest

from kerntune.heuristics.hints import KernelHints, ReductionHint
from kerntune.heuristics.reduction_blocks import pays_cooperative, pays_persistent

OUTPUTS = (1, 2, 4, 8, 16, 32, 1024)
LENGTHS = tuple(1 << n for n in (0, 5, 6, 7, 10, 11, 14, 15, 16, 17, 18, 20, 21, 22))


def test_a_length_that_is_known_at_launch_alone_is_not_held_by_a_block() -> None:
    hints = KernelHints(sizes={"x": 64, "r0": 32}, reduction=ReductionHint.INNER)
    assert pays_persistent(hints)
    assert not pays_persistent(msgspec.structs.replace(hints, dynamic_sizes=1))


@pytest.mark.parametrize(
    ("length", "hint", "holds"),
    [
        (1024, ReductionHint.INNER, True),
        (2048, ReductionHint.INNER, False),
        (64, ReductionHint.OUTER, True),
        (128, ReductionHint.DEFAULT, False),
    ],
)
def test_the_longest_rows_that_a_block_holds(length: int, hint: ReductionHint, holds: bool) -> None:
    """64 elements, or 1,024 where they are contiguous."""
    assert pays_persistent(KernelHints(sizes={"x": 64, "r0": length}, reduction=hint)) is holds


@pytest.mark.parametrize(
    ("outputs", "length", "pays"),
    [(1, 32768, True), (1, 16384, False), (8, 8 * 32768, True), (8, 4 * 32768, False), (16, 1 << 21, True),
     (16, 1 << 20, False), (32, 1 << 30, False)],
)  # fmt: skip
def test_rows_that_programs_should_share(outputs: int, length: int, pays: bool) -> None:
    assert pays_cooperative(KernelHints(sizes={"x": outputs, "r0": length})) is pays


def test_same_decisions_as_torch() -> None:
    pytest.importorskip("torch", minversion="2.13.0.dev0")
    import sympy
    import torch
    from torch._inductor import config
    from torch._inductor.choices import InductorChoices
    from torch._inductor.graph import GraphLowering
    from torch._inductor.runtime.hints import ReductionHint as TheirHint
    from torch._inductor.virtualized import V

    graph = GraphLowering(torch.fx.symbolic_trace(lambda x: x))
    decided: set[tuple[bool, ...]] = set()
    with V.set_graph_handler(graph), mock.patch.object(config.triton, "cooperative_reductions", True):
        for x, r, hint in itertools.product(OUTPUTS, LENGTHS, ReductionHint):
            hints = KernelHints(sizes={"x": x, "r0": r}, reduction=hint)
            features: Any = SimpleNamespace(
                get_reduction_hint=lambda told=TheirHint[hint.name]: told,
                reduction_numel=sympy.Integer(r),
                numel=sympy.Integer(x),
            )
            theirs = (
                bool(
                    InductorChoices.should_use_cooperative_reduction(
                        torch.device("cuda"), features.numel, features.reduction_numel
                    )
                ),
                bool(InductorChoices.should_use_persistent_reduction(features, False)),
            )
            ours = (pays_cooperative(hints), pays_persistent(hints))
            assert ours == theirs, f"{x} x {r} {hint}"
            decided.add(ours)
    assert len(decided) > 2
