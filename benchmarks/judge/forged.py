"""Forged recordings: mutated by a script and by hand; none may be FASTER, and none may break the judge.

``python -m benchmarks.judge.forged [--count 1000] [--seed 1] [OUT.json]``

A wrong candidate's recording is what a forger starts from: whatever is changed of it, it must not become right. Each is
checked as the judge checks it, replayed by the emulator in this process if it passes, and its results are compared.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.harness import environment
from kerntune.base.device import Target
from kerntune.referee.case_inputs import UserCallable
from kerntune.referee.declared_inputs import content_of, parse_line
from kerntune.referee.hostile_recording import CheckedCall, check_results, checked, decoded, side_of
from kerntune.referee.later_call import behind, check_later_results, with_later
from kerntune.referee.reasons import Refusal
from kerntune.referee.replayed_outputs import replayed
from kerntune.referee.result_errors import error_of
from kerntune.referee.sealed_process import SealedProcesses
from kerntune.referee.tasks import ExpectedResult, ExpectedSeed, RecordTask, ReplayTask

HERE = Path(__file__).parent
CASE = parse_line("x: f32[600]; y: f32[600]")
TARGET = Target.parse("cuda:90")

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 255, 1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 32, 1 << 40, 1 << 63,
    (1 << 64) - 1, -(1 << 63), 0.0, -0.0, 1e308, float("inf"), float("nan"), "", "x", "float32", "float16", "bfloat16",
    "\x00", "a" * 9000, "../../x", b"", b"\x7fELF", b"\xff" * 64, [], {}, [[]], [0], [0, 0], [600], [1], [-1],
    {"x": 1}, "*fp32", "i32", "cubin",
)  # fmt: skip


def recorded(name: str) -> bytes:
    """The answer of a recorder for one function of the corpus."""
    processes = SealedProcesses()
    try:
        source = UserCallable(str(HERE / "exploits" / "half.py"), name, "function")
        task = RecordTask(source, CASE, TARGET, later=True)
        data = processes.ask("record", task, source.readable, 300.0, 1 << 28).data
    finally:
        processes.close()
    assert data is not None
    return data


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in plain data."""
    found = [path]
    if isinstance(value, dict):
        for key in value:
            found += places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            found += places(value[index], (*path, index))
    return found


def changed(value: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """A copy of plain data with one value changed."""
    if not path:
        return change(value)
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = changed(value[path[0]], path[1:], change)
    return copied


def mutated(data: bytes, chance: random.Random, often: tuple[str, ...] = ("call", "operators")) -> bytes:
    """One to four changes of values, structure or bytes; every other time of what is ``often`` changed, where there is
    any."""
    if chance.random() < 0.15:
        raw = bytearray(data)
        for _ in range(chance.randint(1, 8)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        return bytes(raw[: chance.randrange(1, len(raw))] if chance.random() < 0.3 else raw)
    value = msgspec.msgpack.decode(data)
    for _ in range(chance.randint(1, 4)):
        all_places = [p for p in places(value) if p]
        beside = [p for p in all_places if p[: len(often)] == often]
        path = chance.choice((beside if chance.random() < 0.5 else all_places) or all_places or [()])
        value = changed(value, path, functools.partial(_other, whole=value, chance=chance))
    return msgspec.msgpack.encode(value)


def _other(old: Any, whole: Any, chance: random.Random) -> Any:
    kind = chance.randrange(6)
    if kind == 0 and isinstance(old, int) and not isinstance(old, bool):
        return max(
            -(1 << 63), min((1 << 64) - 1, old + chance.choice((-2400, -600, -300, -4, -1, 1, 4, 300, 600, 2400)))
        )
    if kind == 1 and isinstance(old, list) and old:
        return [*old, chance.choice(old)] if chance.random() < 0.5 else old[:-1]
    if kind == 2 and isinstance(old, list):
        copied = list(old)
        chance.shuffle(copied)
        return copied
    if kind == 3:  # what stands elsewhere
        at = chance.choice(places(whole))
        found = whole
        for step in at:
            found = found[step]
        return found
    if kind == 4 and isinstance(old, bytes) and old:
        raw = bytearray(old)
        raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        return bytes(raw)
    return chance.choice(ODD)


def by_hand(data: bytes) -> list[tuple[str, bytes]]:
    """Forgeries with a purpose."""
    value = msgspec.msgpack.decode(data)
    call = value["call"]
    views, storages, launches = (call["recording"][k] for k in ("views", "storages", "launches"))

    def forged(**parts: Any) -> bytes:
        return msgspec.msgpack.encode({**value, "call": {**call, **parts}})

    def recording(**parts: Any) -> bytes:
        return forged(recording={**call["recording"], **parts})

    result = call["results"][0]
    inputs = call["inputs"]
    deep: Any = 1
    for _ in range(200):
        deep = {"x": deep}
    return [
        ("the result is input 0", forged(results=[inputs[0]])),
        ("inputs swapped", forged(inputs=inputs[::-1])),
        ("both inputs one memory", forged(inputs=[inputs[0], inputs[0]])),
        ("an input is the result", forged(inputs=[result, inputs[1]])),
        ("no result", forged(results=[])),
        ("the result twice", forged(results=[result, result])),
        ("a constant holds the result", forged(constants=[{"storage": views[result]["storage"], "data": bytes(2400)}])),
        ("a constant of an input", forged(constants=[{"storage": views[inputs[0]]["storage"], "data": bytes(2400)}])),
        ("a fill of the result",
         forged(fills=[{"storage": views[result]["storage"], "dtype": "float32", "value": 1.0}])),
        ("a fill of a large storage as unknown dtype",
         forged(fills=[{"storage": views[result]["storage"], "dtype": "float3", "value": 1.0}])),
        ("the result's view has stride 0",
         recording(views=[{**v, "strides": [0]} if i == result else v for i, v in enumerate(views)])),
        ("the result's view is outside",
         recording(views=[{**v, "offset_bytes": 2400} if i == result else v for i, v in enumerate(views)])),
        ("the result is one element",
         recording(views=[{**v, "shape": [1], "strides": [1]} if i == result else v for i, v in enumerate(views)])),
        ("storages are huge", recording(storages=[{**s, "nbytes": 1 << 43} for s in storages])),
        ("negative sizes", recording(storages=[{**s, "nbytes": -1} for s in storages])),
        ("a grid of none", recording(launches=[{**x, "grid": [0, 1, 1]} for x in launches])),
        ("a grid without end", recording(launches=[{**x, "grid": [1 << 30, 1 << 30, 1]} for x in launches])),
        ("a million launches", recording(launches=launches * 3000)),
        ("options nested deeply",
         recording(binaries=[{**b, "options": {"x": deep}} for b in call["recording"]["binaries"]])),
        ("artifacts of other content", forged(artifacts={k: b"x" + v for k, v in call["artifacts"].items()})),
        ("claims that nothing is written", recording(launches=[{**x, "reads": [], "writes": []} for x in launches])),
        ("an address as a number",
         recording(launches=[{**x, "params": [*x["params"][:-1], {"name": "n", "type": "i64", "value": 1 << 47}]}
                             for x in launches])),
        ("another target", recording(target={"backend": "cuda", "arch": "80", "warp_size": 32})),
        ("refused and recorded", msgspec.msgpack.encode({**value, "refused": {"reason": "FASTER", "text": "x"}})),
        ("an unknown reason", msgspec.msgpack.encode({"refused": {"reason": "FASTER", "text": "\x1b[2J"}})),
        ("nothing", b""),
        ("nested lists", b"\x91" * 100_000),
    ]  # fmt: skip


def of_operators(data: bytes) -> list[tuple[str, bytes]]:
    """Forgeries of torch's operators."""
    value = msgspec.msgpack.decode(data)
    call = value["call"]
    rows, result, view = call["operators"], call["results"][0], {"type": "view", "index": call["results"][0]}

    def forged(*operators: Any, **parts: Any) -> bytes:
        return msgspec.msgpack.encode({**value, "call": {**call, "operators": operators, **parts}})

    def row(name: str, *args: Any, before: int = 1, **words: Any) -> Any:
        return {"before": before, "name": name, "args": args, "words": words}

    def recording(**parts: Any) -> Any:
        return {**call["recording"], **parts}

    views = call["recording"]["views"]
    outside = [{**v, "shape": [1 << 40]} if i == result else v for i, v in enumerate(views)]
    one_more = [{**v, "offset_bytes": 1} if i == result else v for i, v in enumerate(views)]
    grown = [{**v, "shape": [9]} if i == result else v for i, v in enumerate(views)]
    several, three = {"type": "several", "items": [view]}, {"type": "several", "items": [view] * 3}
    for _ in range(40):
        several = {"type": "several", "items": [several]}
    return [
        ("no operators", forged()), ("operators twice", forged(*rows, *rows)),
        ("operators backwards", forged(*rows[::-1])),
        ("an operator that loads a file", forged(row("from_file.default", "/etc/passwd", out=view))),
        ("one that takes other memory", forged(row("set_.source_Storage_storage_offset", view, view, 0, [600], [1]))),
        ("one that grows", forged(row("resize_.default", view, [1 << 30]))),
        ("strides of a temporary tensor", forged(*rows, row("as_strided_.default", view, [1 << 30], [1], 0))),
        ("a name that is a path", forged(row("add_.__class__.__init__", view, 1))),
        ("a name of Python's", forged(row("add_.__class__", view, 1))), ("no name", forged(row("", view))),
        ("an overload without a result's memory", forged(*rows, row("add.Tensor", view, view))),
        ("a million of them", forged(*(row("zero_.default", view) for _ in range(1 << 20)))),
        ("a view of a terabyte", forged(*rows, recording=recording(views=outside))),
        ("a view between elements", forged(*rows, recording=recording(views=one_more))),
        ("a result larger than its view", forged(*rows, row("cat.out", three, 0, out=view),
                                                 recording=recording(views=grown))),
        ("lists in lists", forged(row("cat.out", several, 0, out=view))),
        ("a dtype that is a function", forged(row("sum.out", view, dtype={"type": "dtype", "name": "load"}, out=view))),
        ("repeated without end", forged(row("repeat.out", view, {"type": "several", "items": [1 << 62]}, out=view))),
        ("after the end", forged(row("zero_.default", view, before=99))),
        ("an argument by an odd name", forged(row("zero_.default", view, **{"__class__": 1}))),
        ("an index outside", forged(row("index_select.out", view, 0, {"type": "view", "index": 0}, out=view))),
        ("a division by a whole zero", forged(row("floor_divide.out", 1, 0, out=view))),
    ]  # fmt: skip


def of_later_calls(right: bytes, wrong: bytes) -> list[tuple[str, bytes]]:
    """Forgeries of the later calls behind a right one."""
    value, other = msgspec.msgpack.decode(right), msgspec.msgpack.decode(wrong)
    call, again = value["call"], value["again"]
    launches, first, last = again["recording"]["launches"], call["results"][0], again["results"][0]

    def forged(**parts: Any) -> bytes:
        return msgspec.msgpack.encode({**value, "again": {**again, **parts}})

    def recording(**parts: Any) -> bytes:
        return forged(recording={**again["recording"], **parts})

    wrong_code = {**other["call"]["artifacts"], **other["again"]["artifacts"]}
    return [
        ("no later call", msgspec.msgpack.encode({**value, "again": None})),
        ("later calls of a wrong one", forged(**{**other["again"], "artifacts": wrong_code})),
        ("later calls return the first's result", forged(results=[first])),
        ("later calls are the first alone", msgspec.msgpack.encode({**value, "again": call})),
        ("the last of the later calls launches nothing", recording(launches=launches[:-1])),
        ("later calls launch more", recording(launches=[*launches, launches[-1]])),
        ("later calls use the first's inputs", forged(inputs=call["inputs"])),
        ("later calls' inputs swapped with results", forged(inputs=[last, again["inputs"][1]])),
        ("a constant holds a later result that nothing writes",
         forged(constants=[{"storage": again["recording"]["views"][last]["storage"], "data": bytes(2400)}],
                recording={**again["recording"], "launches": launches[:-1]})),
    ]  # fmt: skip


def outcome(data: bytes) -> str:
    """``refused``, ``wrong`` or ``accepted``; what the judge would do with such an answer."""
    numbers = [[content_of(t, seed) for t in CASE.tensors] for seed in (7, 8)]
    try:
        answer = decoded(data)
        if answer.refused is not None or answer.call is None:
            return "refused"
        call = with_later(checked(answer.call, CASE, TARGET), answer.again, CASE, TARGET)
        check_results(call, CASE, [_sum_of(numbers[0])])
        check_later_results(call, CASE, [ExpectedSeed((), (_sum_of(numbers[0]),))])
    except Refusal:
        return "refused"
    found = [_outcome(one, inputs) for one, inputs in zip((call, behind(call, numbers[0])), numbers, strict=True)]
    return next((one for one in found if one != "accepted"), "accepted")


def _sum_of(inputs: Sequence[bytes]) -> ExpectedResult:
    one, other = (np.frombuffer(x, "<f4") for x in inputs)
    wide = one.astype("<f8") + other.astype("<f8")
    return ExpectedResult("float32", (600,), (1,), (one + other).tobytes(), wide.tobytes())


def _outcome(call: CheckedCall, inputs: Sequence[bytes]) -> str:
    """What a replay on these inputs comes to."""
    if sum(s.nbytes for s in call.recording.storages) > 1 << 28:
        return "refused"  # the judge's replay would run out of memory in a process of its own
    poison = b"\xff\x7f" * 4
    side = side_of(call, inputs, poison, binaries=False)
    done = replayed(ReplayTask(side, call.wanted, 5.0))
    if done.refused is not None or done.outside:
        return "refused"
    left = zip(call.wanted, done.contents, strict=True)
    after = {i: side.contents[i] or b"" if content is None else content for i, content in left}
    view = call.results[0]
    error = error_of(0, after[view.storage], view, _sum_of(inputs), CASE, poison)
    changed_inputs = any(s is not None and after[s] != inputs[i] for i, s in enumerate(call.inputs))
    return "wrong" if error.wrong or changed_inputs else "accepted"


def main(argv: Sequence[str] | None = None) -> int:
    """Forge, judge, count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("out", nargs="?")
    args = parser.parse_args(argv)
    data, beside, right = recorded("half"), recorded("half_beside"), recorded("whole")
    assert outcome(right) == "accepted", "the check accepts what is right"
    assert {outcome(data), outcome(beside)} == {"wrong"}
    counts: dict[str, Counter[str]] = {"mutated": Counter(), "by hand": Counter(), "later": Counter()}
    named, crashes = [], []
    chance = random.Random(args.seed)
    forgeries = [("mutated", str(i), mutated((data, beside)[i % 2], chance)) for i in range(args.count)]
    each = (*by_hand(data), *of_operators(beside), *of_later_calls(right, data))
    forgeries += [("by hand", name, forged) for name, forged in each]
    # what is timed stays right, and may be accepted
    forgeries += [("later", str(i), mutated(right, chance, ("again",))) for i in range(args.count // 10)]
    for kind, name, forged in forgeries:
        try:
            found = outcome(forged)
        except Exception:
            found = "crash"
            crashes.append(f"{kind} {name}: {traceback.format_exc(limit=-3)}")
        counts[kind][found] += 1
        if kind == "by hand" or (kind, found) == ("mutated", "accepted"):
            named.append({"kind": kind, "name": name, "outcome": found})
    result = {
        "environment": environment(),
        "seed": args.seed,
        **{k: dict(v) for k, v in counts.items()},
        "named": named,
        "crashes": crashes,
    }
    print(json.dumps(result, indent=1))
    if args.out:
        Path(args.out).write_text(json.dumps(result, indent=1) + "\n")
    return 1 if crashes or any(counts[kind]["accepted"] for kind in ("mutated", "by hand")) else 0


if __name__ == "__main__":
    raise SystemExit(main())
