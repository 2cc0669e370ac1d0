"""Rules on what a loop has in flight from one round to the next: asynchronous copies, and products.

In a loop of products few warps keep the tensor cores busy, so nothing else hides the latency of a round that waits for
its own loads, whatever the tile. How far ahead they are decides less: of loops with a stage fewer as many became faster
as slower. A loop without products has as many warps as its launch gives, and a pipeline's buffers take their place: of
two layer norms that lost theirs one became faster, which fills three quarters of the device, and one slower, which
fills a quarter.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kerntune.static.finding import Draft, change
from kerntune.static.metrics import StaticMetrics
from kerntune.static.product_loops import OPERAND_BYTES, ProductLoops

HIDDEN = 0.5
"""The share of a device's threads from which on others run while some wait for their loads."""


def unpipelined(before: StaticMetrics, after: StaticMetrics, resident: float | None) -> Iterator[Draft]:
    """Findings where loads are no longer ahead of the products or other work of their loop, or less far, and where
    products don't overlap any more. ``resident``: the share of the device's threads that ``after`` has at a time."""
    old, new = _loops(before), _loops(after)
    copies = f"asynchronous copies {change(_copies(before), _copies(after))} instructions"
    if old is None or new is None:
        yield from _stream(before, after, copies, resident)
        return
    if old.ahead > new.ahead and new.waiting > old.waiting:
        far = f" ({old.rounds:g} {'round' if old.rounds == 1 else 'rounds'} ahead before)" if old.rounds else ""
        text = f"{WAITS}: {change(old.ahead, new.ahead)} pipelined loops, {copies}{far}; {LOOK}"
        yield Draft("fail", "pipelined_loops", old.ahead, new.ahead, text, "pipelining", True)
        return
    if new.ahead > old.ahead:
        text = f"loops of tensor cores load ahead now: {change(old.ahead, new.ahead)} pipelined loops, {copies}"
        yield Draft("info", "pipelined_loops", old.ahead, new.ahead, text, "pipelining")
    elif old.ahead and _known(before):
        yield from _nearer(before, after, old, new, copies)
    yield from _apart(old, new)


WAITS = "each round of a loop of tensor cores waits for its own loads"
LOOK = "look at num_stages, and for a barrier or a while loop, which keep a loop from being pipelined"


def _known(metrics: StaticMetrics) -> bool:
    return not isinstance(metrics.product_loops, msgspec.UnsetType)


def _loops(metrics: StaticMetrics) -> ProductLoops | None:
    """The loops of products; of figures of an earlier version, which don't have them, a loop that ``cp.async`` fed:
    Triton makes such copies in pipelines alone."""
    if not isinstance(metrics.product_loops, msgspec.UnsetType):
        return metrics.product_loops
    fed = "tensor_core" in metrics.instructions and "async_copy" in metrics.instructions
    return ProductLoops(loading=1, ahead=1) if fed else None


def _copies(metrics: StaticMetrics) -> int:
    return metrics.instructions.get("async_copy", 0) + metrics.instructions.get("tma_load", 0)


def _stream(before: StaticMetrics, after: StaticMetrics, copies: str, resident: float | None) -> Iterator[Draft]:
    """Loops without products. Those that TMA fed have a rule of their own."""
    old, new = before.instructions.get("async_copy", 0), _copies(after)
    if any("tensor_core" in m.instructions for m in (before, after)):
        return  # on one side alone, or outside of loops: other rules compare that
    if old and not new and resident is not None and resident < HIDDEN:
        few = f"and the launch has only {resident:.0%} of the device's threads to hide their latency"
        yield Draft(
            "fail", "async_copies", old, new, f"loads are no longer asynchronous, {few}: {copies}", "pipelining", True
        )
    elif old and not new:
        text = f"loads are no longer asynchronous: {copies}"
        yield Draft("fail", "async_copies", old, new, text, "async_copies")


def _nearer(
    before: StaticMetrics, after: StaticMetrics, old: ProductLoops, new: ProductLoops, copies: str
) -> Iterator[Draft]:
    """Loops that are still pipelined, but for one of their operands, or less far ahead."""
    if new.plain_bytes - old.plain_bytes >= OPERAND_BYTES and _copies(after) < _copies(before):
        told = f"{change(old.plain_bytes, new.plain_bytes)} bytes a thread by ordinary loads"
        text = f"{WAITS}, some of which are no longer asynchronous: {told}, {copies}"
        yield Draft("fail", "plain_bytes", old.plain_bytes, new.plain_bytes, text, "pipelining", True)
    elif old.rounds > new.rounds:
        text = f"a pipelined loop loads fewer rounds ahead: {change(old.rounds, new.rounds)}"
        yield Draft("info", "rounds", old.rounds, new.rounds, text, "pipelining")


def _apart(old: ProductLoops, new: ProductLoops) -> Iterator[Draft]:
    """Products of the same types that have all ended before the next round begins its own: their results are read in
    each round. Products of other types are other work, and what that costs isn't known from their waits."""
    if old.overlapped and new.grouped and not new.overlapped and old.types == new.types:
        text = (
            "each round of a loop of tensor cores waits for its own products: in "
            f"{change(old.overlapped, new.overlapped)} loops they are in flight when the next round begins; look for "
            "what reads or changes the sums in each round"
        )
        yield Draft("fail", "overlapped_loops", old.overlapped, new.overlapped, text, "pipelining", True)
