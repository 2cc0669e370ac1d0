"""Compares a kernel's configs by static figures alone: a predicted cost for each, and which aren't worth running.

All candidates of one call do the same work, so costs are per unit of it: a multiply-add where tensor cores are used,
else a byte that a thread moves to or from global memory. A loop's instructions are in the code once, but so is its
share of the work, so instructions and bytes *per unit* don't depend on the number of iterations. Cycles of a
multiprocessor per unit, of a candidate with B resident blocks of W warps (``cuda_occupancy``, NVIDIA's arithmetic):

* issue:   instructions per unit and warp over the warp schedulers, one a cycle each;
* tensor:  one over the multiply-adds per cycle, fewer for instructions that one warp alone issues;
* memory:  bytes per unit over the bytes per cycle, or over what is in flight by Little's law if that is less:
           in flight = B x (bytes that a block loads in one pass, or the stages ahead of a pipeline's buffers),
           needed = bytes per cycle x latency (Little 1961; Volkov, "Better Performance at Lower Occupancy", GTC 2010);
* spills:  local bytes, as further memory.

The terms overlap if there are warps to switch between: the largest counts whole, the others by :data:`OVERLAP`. The
sum is divided by the share of the multiprocessors' slots that the last wave of blocks fills (the grid's tail). The
costs order configs of one kernel; they are no times, and say nothing about two kernels.

Where asked, candidates of a tuning have figures as soon as they are compiled. By them some are left out unrun: never
all, and none without a reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from math import ceil, inf, isfinite, prod

import msgspec

from kerntune.base.device import DeviceSpec
from kerntune.base.policy import StaticPrune
from kerntune.base.recording import Binary
from kerntune.base.strict import StrictStruct
from kerntune.compiling.binary.elf import cubin_resources
from kerntune.compiling.compiler import Compiled
from kerntune.errors import StoreError, TargetError
from kerntune.static.occupancy import Occupancy, cuda_occupancy
from kerntune.static.ptx import ptx_classes

SCHEDULERS = 4
"""Warp schedulers of a multiprocessor, each issues one instruction a cycle (sm_70 and later, CUDA C++ Programming
Guide, "Compute Capability": architecture)."""

LATENCY_CYCLES = 700
"""Latency of a load from DRAM under load; unloaded some 480 on A100 and H100 (Luo et al., "Benchmarking and Dissecting
the Nvidia Hopper GPU Architecture via Microbenchmarking", 2024)."""

DRAM_BYTES_PER_CYCLE = {"80": 10.0, "90": 14.0, "100": 30.0}
"""Bytes per cycle and multiprocessor from DRAM: A100 1.56 TB/s over 108 at 1.41 GHz, H100 3.35 TB/s over 132 at 1.8 GHz
(H200: 20), B200 8 TB/s over 148 at 1.85 GHz; datasheets."""

L2_BYTES_PER_CYCLE = 32.0
"""From L2 to one multiprocessor: two thirds of A100's 5120 bytes a clock for 108 of them (A100 whitepaper)."""

MACS_PER_CYCLE = {"80": 1024.0, "90": 2048.0, "100": 4096.0}
"""Dense 16-bit multiply-adds per cycle and multiprocessor: A100 312, H100 989, B200 2250 TFLOP/s; datasheets."""

WARP_MMA_SHARE = 0.62
"""The share of these that instructions of one warp (HMMA) reach on sm_90, whose full rate needs warpgroups (Luo et al.
2024)."""

GROUP_MACS = 16 * 8 * 32
"""A tensor core instruction with more multiply-adds than one warp's largest is executed by a warpgroup of four
warps."""

ATOMIC_CYCLES = 2000
"""Latency of an atomic operation whose result a block waits for: an access to L2, and often a wait for a neighbouring
block. Chosen by the sweep of a scan in chained blocks."""

BARRIER_CYCLES = 30
"""Latency of a barrier of a block. Not measured: all recorded orders but one are the same from 0 to 100."""

LOOP_SHARE = 0.3
"""The share of a matrix product's instructions that are in its loop; the rest, which runs once, computes addresses and
stores. Not measured: the recorded order is the same from 0 to 0.3."""

OVERLAP = 0.5
"""Share of the smaller terms that isn't hidden behind the largest. Chosen on the first recorded sweeps, whose orders
hardly change between 0.2 and 1; ``benchmarks/results/resource_model.json`` lists those kernels separately."""


class ModelledConfig(msgspec.Struct, frozen=True):
    """The static figures of one config. ``instructions`` are counted by class as in
    :class:`kerntune.static.StaticMetrics`; ``shared_bytes`` and ``threads`` per block, the others per thread;
    ``blocks`` is the grid's product."""

    registers: int
    shared_bytes: int
    threads: int
    blocks: int
    instructions: Mapping[str, int]
    spill_bytes: int
    stages: int
    """Stages of the software pipeline, as in the config; 0 if unknown."""


def quick_candidate(binary: Binary, data: bytes, ptx: str, grid: Sequence[int], *, stages: int = 0) -> ModelledConfig:
    """A compiled kernel at a grid, from its cubin and its PTX, without a disassembler: 0.3 to 0.8 ms, little enough for
    a tuner.

    Instructions are counted in PTX; the whole stack frame counts as spilled, stored and loaded once.
    :class:`StoreError` for a damaged file, or another than a cubin.
    """
    resources = cubin_resources(data, binary.symbol)
    return ModelledConfig(
        registers=resources.registers,
        shared_bytes=binary.shared,
        threads=binary.num_warps * binary.warp_size,
        blocks=prod(grid) * binary.num_ctas,
        instructions=ptx_classes(ptx),
        spill_bytes=2 * resources.frame_bytes,
        stages=stages,
    )


def cost(candidate: ModelledConfig, spec: DeviceSpec) -> float:
    """Cycles of one multiprocessor per unit of work, tail included; infinite for what can't be launched.

    Only compared among configs of one call on one device. :class:`TargetError` for a device whose limits aren't known.
    """
    resident = _occupancy(candidate, spec).blocks
    if resident == 0:
        return inf
    terms = sorted(_terms(candidate, spec, resident))
    return (terms[-1] + OVERLAP * sum(terms[:-1])) / _filled(candidate.blocks, spec.sm_count, resident)


def _occupancy(candidate: ModelledConfig, spec: DeviceSpec) -> Occupancy:
    if spec.target.backend != "cuda":
        raise TargetError(f"the resource model knows NVIDIA's GPUs, not {spec.target}")
    return cuda_occupancy(
        spec, registers=candidate.registers, shared_bytes=candidate.shared_bytes, threads=candidate.threads
    )


def _terms(candidate: ModelledConfig, spec: DeviceSpec, resident: int) -> list[float]:
    counts = candidate.instructions
    warps = candidate.threads // spec.warp_size
    moved = _moved(candidate)
    macs = counts.get("tensor_core_macs", 0) * warps / (4 if _grouped(counts) else 1)
    unit = macs or moved or 1.0
    issue = counts.get("total", 0) * warps / unit / SCHEDULERS * _unhidden(resident * warps)
    if macs:
        issue *= LOOP_SHARE
    local = candidate.spill_bytes * candidate.threads / unit / L2_BYTES_PER_CYCLE
    memory = moved / unit / _bandwidth(candidate, spec, resident)
    return [issue, _tensor(counts, spec) if macs else 0.0, memory, local]


def _tensor(counts: Mapping[str, int], spec: DeviceSpec) -> float:
    whole = _known(MACS_PER_CYCLE, spec)
    alone = spec.target.arch != "80" and not _grouped(counts)
    return 1 / (whole * WARP_MMA_SHARE if alone else whole)


def _moved(candidate: ModelledConfig) -> float:
    """Bytes that a block moves in one pass. A pipeline's copies are in the code once per stage: all of them together
    fill its buffers, so one pass fills one stage."""
    counts = candidate.instructions
    plain = _bytes(counts, "global_load") + _bytes(counts, "global_store")
    if _pipelined(counts) and "tensor_core" in counts:
        return candidate.shared_bytes / max(1, candidate.stages)
    return float((plain + _bytes(counts, "async_copy") / max(1, candidate.stages)) * candidate.threads)


def _bandwidth(candidate: ModelledConfig, spec: DeviceSpec, resident: int) -> float:
    """Bytes per cycle that the bytes in flight can sustain. A block of a matrix product is read through L2, where
    neighbouring blocks reuse it; anything else is read once."""
    counts = candidate.instructions
    most = L2_BYTES_PER_CYCLE if "tensor_core" in counts else _known(DRAM_BYTES_PER_CYCLE, spec)
    loads = _bytes(counts, "global_load") * candidate.threads
    ahead = (candidate.stages - 1) / candidate.stages if candidate.stages > 1 else 1.0
    staged = candidate.shared_bytes * ahead if _pipelined(counts) else 0.0
    in_flight = resident * max(loads, staged)
    # a block only waits for its loads, and for operations that wait one after the other
    waits = ATOMIC_CYCLES * counts.get("atomic", 0) + BARRIER_CYCLES * counts.get("barrier", 0)
    latency = LATENCY_CYCLES + (0 if "tensor_core" in counts else waits)
    return most * min(1.0, in_flight / (most * latency)) if in_flight else most


def _unhidden(warps: int) -> float:
    """More than 1 with so few warps that schedulers wait for dependent instructions, 4 cycles each (Jia et
    al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018)."""
    return max(1.0, 4 * SCHEDULERS / warps)


def _filled(blocks: int, multiprocessors: int, resident: int) -> float:
    """The share of the slots of all waves that blocks fill; of one multiprocessor at least. 1 for an empty grid."""
    if not blocks:
        return 1.0
    slots = multiprocessors * resident
    waves = ceil(blocks / slots)
    if waves > 1:
        return blocks / (waves * slots)
    per_one = ceil(blocks / multiprocessors)
    return blocks / (per_one * multiprocessors)


def _bytes(counts: Mapping[str, int], kind: str) -> int:
    """Bytes that one thread moves with the instructions of a class, from the counts by width in bits."""
    widths = (name.rpartition("_") for name in counts if name.startswith(f"{kind}_"))
    return sum(int(bits) // 8 * counts[f"{kind}_{bits}"] for _, _, bits in widths if bits.isdigit())


def _grouped(counts: Mapping[str, int]) -> bool:
    return counts.get("tensor_core_macs", 0) > GROUP_MACS * counts.get("tensor_core", 0)


def _pipelined(counts: Mapping[str, int]) -> bool:
    return "async_copy" in counts or "tma" in counts


def _known(table: Mapping[str, float], spec: DeviceSpec) -> float:
    """A table's figure for a device, of the newest architecture in it that isn't newer than the device's."""
    arch = int(spec.target.arch)
    older = [int(known) for known in table if int(known) <= arch]
    return table[str(max(older))] if older else table[min(table, key=int)]


# the figures of one tuning's candidates, and which of them aren't worth running

GridTriple = tuple[int, int, int]


class Figures(StrictStruct, frozen=True):
    """Of one compiled candidate at its grid: ``cost`` as :func:`cost` gives it,
    infinite for what can't be launched; ``spill_bytes`` per thread, the stack frame stored and loaded; theoretical
    ``occupancy`` (0..1).
    """

    cost: float
    spill_bytes: int
    occupancy: float


def figures_of(compiled: Compiled, grid: GridTriple, spec: DeviceSpec) -> Figures | None:
    """The figures, from the binary in memory alone: 0.3 to 0.8 ms. None for another vendor's GPU, one whose limits
    aren't known, and a binary that can't be read."""
    found = compiled.binary.options.get("num_stages")
    stages = found if isinstance(found, int) else 0
    try:
        candidate = quick_candidate(compiled.binary, compiled.data, compiled.asm, grid, stages=stages)
        return Figures(cost(candidate, spec), candidate.spill_bytes, _occupancy(candidate, spec).fraction)
    except (StoreError, TargetError):
        return None


MODEL_LIMIT = 3.0
"""A multiple of the lowest predicted cost. On 52 sweeps of 21 kernels (``benchmarks/results/resource_model.json``) a
config within 1 % of the best is predicted to cost 2.1 times the lowest at most, and 1.3 times in all cases but one."""

LOW_OCCUPANCY = 0.1
"""A share of the highest occupancy among the candidates. On those sweeps a backward layer norm's best has an eighth of
it, matrix products' a sixth: below a quarter there are configs that are up to 15 % faster than all others."""

Figured = Mapping[int, Figures]


def left_out(figures: Figured, rules: StaticPrune, protected: Collection[int | None] = ()) -> dict[int, str]:
    """Why each candidate that needn't run is left out, by index; the ``protected`` never are, and one is always left.

    Each rule applies to the candidates that the one before it kept. Candidates that can't be launched (infinite cost)
    are kept, so that the launch reports them, and so are those without figures.
    """
    rest = {i: f for i, f in figures.items() if isfinite(f.cost)}
    out: dict[int, str] = {}
    for rule in _rules(rules, len(rest)):
        found = rule(rest) if rest else {}
        out.update(found)
        rest = {i: f for i, f in rest.items() if i not in found}
    return {i: why for i, why in out.items() if i not in protected}


def _rules(rules: StaticPrune, count: int) -> Iterator[Callable[[Figured], dict[int, str]]]:
    """The rules that are set, each as a function of the candidates that are left."""
    if rules.spills:
        yield _spilling
    if rules.occupancy:
        yield _sparse
    if rules.model:
        yield _costly
    if rules.share is not None:
        yield partial(_beyond, ceil(rules.share * count))


def _spilling(figures: Figured) -> dict[int, str]:
    if all(f.spill_bytes for f in figures.values()):
        return {}
    return {i: f"spills {f.spill_bytes:,} bytes a thread, others none" for i, f in figures.items() if f.spill_bytes}


def _sparse(figures: Figured) -> dict[int, str]:
    most = max(f.occupancy for f in figures.values())
    return {
        i: f"occupancy {f.occupancy:.0%}, others have up to {most:.0%}"
        for i, f in figures.items()
        if f.occupancy < LOW_OCCUPANCY * most
    }


def _costly(figures: Figured) -> dict[int, str]:
    least = min(f.cost for f in figures.values())
    return {
        i: f"predicted to cost more than {MODEL_LIMIT:g} times what the best does"
        for i, f in figures.items()
        if f.cost > MODEL_LIMIT * least
    }


def _beyond(most: int, figures: Figured) -> dict[int, str]:
    """All but the ``most`` with the lowest cost; of equal ones the first are kept."""
    order = sorted(figures, key=lambda i: (figures[i].cost, i))
    return {
        i: f"predicted to be number {place} of {len(order)}, the first {most} are tried"
        for place, i in enumerate(order, 1)
        if place > most
    }
