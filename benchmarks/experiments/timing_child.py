"""Question 5, one process: A against A of a recorded kernel, by decision, in two ways.

    python timing_child.py FOLDER1 FOLDER2

rotation  copies of the recording at different places, as many as make twice the L2; each side has copies of its own
          and its own module; a sample is a graph of one launch a copy, by two events
cleared   one place for both sides; before each launch a memset of 256 MB; a sample is the median of as many launches,
          each between two events that are nodes of the graph
A decision is the ratio of the medians of PAIRS samples of each side, taken in turn.
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from common import GRANULE, POISON, RESERVED, TARGET, answer
from replay import POINTER, SIZE, U64, Driver, Operation, Recording, Relocatable, operations, placed

PAIRS = 15
DECISIONS = 30
CLEARED = 256 << 20
EXTERNAL = 1
CAPTURE_THREAD = 1


class Events:
    def __init__(self, driver: Driver, count: int) -> None:
        self.driver, self.all = driver, [POINTER() for _ in range(count)]
        for event in self.all:
            driver("cuEventCreate", ctypes.byref(event), 0)

    def microseconds(self, i: int, j: int) -> float:
        value = ctypes.c_float()
        self.driver("cuEventElapsedTime", ctypes.byref(value), self.all[i], self.all[j])
        return value.value * 1e3


def captured(driver: Driver, stream: POINTER, body: Any) -> POINTER:
    driver("cuStreamBeginCapture_v2", stream, CAPTURE_THREAD)
    body()
    graph, executable = POINTER(), POINTER()
    driver("cuStreamEndCapture", stream, ctypes.byref(graph))
    driver("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, U64(0))
    return executable


def decisions(sample: Any) -> dict[str, Any]:
    """Ratios of A to A. ``sample(side)`` gives microseconds of one launch."""
    for side in (0, 1) * 5:
        sample(side)
    ratios, levels, single = [], [], []
    begin = time.monotonic()
    for _ in range(DECISIONS):
        sides: tuple[list[float], list[float]] = ([], [])
        for pair in range(PAIRS):
            for side in (0, 1) if pair % 2 == 0 else (1, 0):
                sides[side].append(sample(side))
        ratios.append(statistics.median(sides[0]) / statistics.median(sides[1]))
        levels.append(statistics.median(sides[0] + sides[1]))
        single += [t / levels[-1] for t in sides[0] + sides[1]]
    apart = sorted(abs(r - 1) for r in ratios)
    return {
        "microseconds": round(statistics.median(levels), 3),
        "apart_median_percent": round(100 * statistics.median(apart), 3),
        "apart_95_percent": round(100 * apart[int(0.95 * len(apart))], 3),
        "apart_most_percent": round(100 * apart[-1], 3),
        "mean_ratio_minus_1_percent": round(100 * (statistics.mean(ratios) - 1), 3),
        "sample_spread_percent": round(100 * statistics.pstdev(single), 3),
        "seconds_a_decision": round((time.monotonic() - begin) / DECISIONS, 4),
    }


def main() -> None:
    moved = Relocatable.of(*(Recording.read(Path(p)) for p in sys.argv[1:3]))
    case = moved.first.case
    driver = Driver()
    start, size = case["after"][1]
    chunk = (size + GRANULE - 1) // GRANULE * GRANULE
    l2 = ctypes.c_int()
    driver("cuDeviceGetAttribute", ctypes.byref(l2), 38, 0)
    traffic = sum(n for _, n in case["inputs"].values()) + sum(n for _, n in case["outputs"])
    copies = max(4, -(-2 * l2.value // traffic))
    total = 2 * copies * chunk + CLEARED + GRANULE
    driver.reserve(TARGET, RESERVED)
    driver.map(TARGET + start, TARGET + start + total)
    result: dict[str, Any] = {"case": case["case"], "traffic_mb": round(traffic / 1e6, 2), "copies_a_side": copies}
    result.update(l2_mb=round(l2.value / 1e6, 1), pairs=PAIRS, decisions=DECISIONS)
    stream = POINTER()
    driver("cuStreamCreate", ctypes.byref(stream), 1)

    sides: list[list[Operation]] = [[], []]
    for number in range(2 * copies):
        place = TARGET + number * chunk
        placed(driver, moved, place, common=False)
        sides[number % 2] += operations(driver, moved, place, number % 2)
        driver("cuMemsetD8_v2", U64(place + case["outputs"][0][0]), POISON, SIZE(case["outputs"][0][1]))
    driver("cuCtxSynchronize")
    events = Events(driver, 2 + 2 * copies)
    graphs = [captured(driver, stream, lambda s=side: [o.run(stream) for o in s]) for side in sides]

    def rotated(side: int) -> float:
        driver("cuEventRecord", events.all[0], stream)
        driver("cuGraphLaunch", graphs[side], stream)
        driver("cuEventRecord", events.all[1], stream)
        driver("cuStreamSynchronize", stream)
        return events.microseconds(0, 1) / copies

    result["rotation"] = decisions(rotated)

    fixed = [operations(driver, moved, TARGET, side) for side in (0, 1)]
    clear_at = TARGET + start + 2 * copies * chunk

    def body(side: int) -> None:
        for i in range(copies):
            driver("cuMemsetD8Async", U64(clear_at), 0, SIZE(CLEARED), stream)
            driver("cuEventRecordWithFlags", events.all[2 + 2 * i], stream, EXTERNAL)
            for operation in fixed[side]:
                operation.run(stream)
            driver("cuEventRecordWithFlags", events.all[3 + 2 * i], stream, EXTERNAL)

    graphs += [captured(driver, stream, lambda s=side: body(s)) for side in (0, 1)]

    def cleared(side: int) -> float:
        driver("cuGraphLaunch", graphs[2 + side], stream)
        driver("cuStreamSynchronize", stream)
        return statistics.median(events.microseconds(2 + 2 * i, 3 + 2 * i) for i in range(copies))

    result["cleared"] = decisions(cleared)
    offset, bytes_of = case["outputs"][0]
    skipped = case["after"][0][1] - start
    right = moved.first.memory("after")[offset + skipped : offset + skipped + bytes_of]
    places = [TARGET + number * chunk + offset for number in range(2 * copies)]
    result["outputs_equal"] = sum(driver.read(at, bytes_of) == right for at in places)
    result["outputs"] = len(places)
    answer(result)


main()
