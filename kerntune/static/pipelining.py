"""Rules on asynchronous copies: whether loops still load ahead of what they compute.

In a loop of products few warps keep the tensor cores busy, so nothing else hides the latency of a round that waits for
its own loads. A loop without products has as many warps as fit, and a pipeline's buffers take their place: of two layer
norms that lost theirs one became faster and one slower, so that is only a remark.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kerntune.static.finding import Draft, change
from kerntune.static.metrics import StaticMetrics
from kerntune.static.product_loops import OPERAND_BYTES, ProductLoops


def unpipelined(before: StaticMetrics, after: StaticMetrics) -> Iterator[Draft]:
    """Findings where loads are no longer ahead of the products or other work of their loop, or less far."""
    old, new = _loops(before), _loops(after)
    copies = f"asynchronous copies {change(_copies(before), _copies(after))} instructions"
    if old is None or new is None:
        yield from _stream(before, after, copies)
    elif old.ahead > new.ahead and new.waiting > old.waiting:
        text = f"{WAITS}: {change(old.ahead, new.ahead)} pipelined loops, {copies}{_far(old)}; {LOOK}"
        yield Draft("fail", "pipelined_loops", old.ahead, new.ahead, text, "pipelining", True)
    elif old.ahead and new.ahead and _known(before):
        yield from _nearer(before, after, old, new, copies)
    elif new.ahead > old.ahead:
        text = f"loops with tensor cores load ahead now: {change(old.ahead, new.ahead)} pipelined loops, {copies}"
        yield Draft("info", "pipelined_loops", old.ahead, new.ahead, text, "pipelining")


WAITS = "each round of a loop with tensor cores waits for its own loads"
LOOK = "look at num_stages, and for a barrier or a while loop, which aren't pipelined"


def _far(loops: ProductLoops) -> str:
    return f" ({loops.rounds:g} {'round' if loops.rounds == 1 else 'rounds'} ahead before)" if loops.rounds else ""


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


def _stream(before: StaticMetrics, after: StaticMetrics, copies: str) -> Iterator[Draft]:
    """Loops without products."""
    old, new = _copies(before), _copies(after)
    if any("tensor_core" in m.instructions for m in (before, after)):
        return  # on one side alone, or outside of loops: other rules compare that
    if old and not new:
        text = f"loads are no longer asynchronous: {copies}"
        yield Draft("fail", "async_copies", old, new, text, "async_copies")


def _nearer(
    before: StaticMetrics, after: StaticMetrics, old: ProductLoops, new: ProductLoops, copies: str
) -> Iterator[Draft]:
    """Loops that still load ahead, but less."""
    if new.plain_bytes - old.plain_bytes >= OPERAND_BYTES and _copies(after) < _copies(before):
        told = f"{change(old.plain_bytes, new.plain_bytes)} bytes a thread by ordinary loads"
        text = f"some loads of a pipelined loop are no longer asynchronous: {told}, {copies}"
        yield Draft("fail", "async_copies", old.plain_bytes, new.plain_bytes, text, "async_copies")
    elif old.rounds > new.rounds and before.shared_bytes > after.shared_bytes:
        text = f"a loop's copies are fewer rounds ahead: {old.rounds:g} -> {new.rounds:g}, {copies}"
        yield Draft("fail", "async_copies", old.rounds, new.rounds, text, "async_copies")
