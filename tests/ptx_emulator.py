"""Runs small PTX kernels, thread by thread: what the tests' kernels use of the PTX ISA, and nothing else."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

MASK = (1 << 64) - 1
PARAMS = re.compile(r"\.param \.u64 (\w+)")
LINE = re.compile(r"(?:@(?P<guard>%p\d+)\s+)?(?P<op>[\w.]+)\s*(?P<rest>.*);")
ADDRESS = re.compile(r"\[(%rd\d+)(?:\+(\d+))?\]")


@dataclass(frozen=True)
class Instruction:
    guard: str
    op: str
    operands: tuple[str, ...]


@dataclass(frozen=True)
class PtxKernel:
    """A parsed kernel: instructions, and where labels stand among them."""

    params: tuple[str, ...]
    body: tuple[Instruction, ...]
    labels: Mapping[str, int]


def parse_ptx(text: str) -> PtxKernel:
    head, _, rest = text.partition("{")
    body: list[Instruction] = []
    labels: dict[str, int] = {}
    for raw in rest.rpartition("}")[0].splitlines():
        line = raw.strip()
        if not line or line.startswith((".reg", "//")):
            continue
        if line.endswith(":"):
            labels[line[:-1]] = len(body)
            continue
        found = LINE.fullmatch(line)
        assert found is not None, line
        operands = re.findall(r"\{[^}]*\}|[^,\s{}]+", found["rest"])
        body.append(Instruction(found["guard"] or "", found["op"], tuple(operands)))
    return PtxKernel(tuple(PARAMS.findall(head)), tuple(body), labels)


@dataclass
class Emulator:
    """Memory as two functions of absolute addresses."""

    load: Callable[[int, int], bytes]
    store: Callable[[int, bytes], None]

    def run(self, kernel: PtxKernel, arguments: Mapping[str, int], blocks: int, threads: int) -> None:
        assert set(arguments) == set(kernel.params)
        for block in range(blocks):
            for thread in range(threads):
                special = {"%ctaid.x": block, "%ntid.x": threads, "%tid.x": thread, "%nctaid.x": blocks}
                _Thread(self, kernel, arguments, special).run()


class _Thread:
    def __init__(
        self, machine: Emulator, kernel: PtxKernel, arguments: Mapping[str, int], special: dict[str, int]
    ) -> None:
        self.machine, self.kernel, self.arguments = machine, kernel, arguments
        self.registers: dict[str, object] = dict(special)

    def run(self) -> None:
        at, steps = 0, 0
        while True:
            steps += 1
            assert steps < 1_000_000, "it does not end"
            instruction = self.kernel.body[at]
            at += 1
            if instruction.guard and not self.registers[instruction.guard]:
                continue
            if instruction.op == "ret":
                return
            if instruction.op == "bra":
                at = self.kernel.labels[instruction.operands[0]]
            else:
                self.step(instruction.op, instruction.operands)

    def value(self, text: str) -> int:
        if text.startswith("%"):
            found = self.registers[text]
            assert isinstance(found, int), text
            return found
        return int(text, 0)

    def double(self, text: str) -> np.float64:
        if text.startswith("0d"):
            return np.float64(struct.unpack(">d", bytes.fromhex(text[2:]))[0])
        found = self.registers[text]
        assert isinstance(found, np.float64), text
        return found

    def place(self, text: str) -> int:
        found = ADDRESS.fullmatch(text)
        assert found is not None, text
        return self.value(found[1]) + int(found[2] or 0)

    def step(self, op: str, given: tuple[str, ...]) -> None:
        name, *kinds = op.split(".")
        with np.errstate(all="ignore"):
            handler = getattr(self, f"_{name}")
            handler(kinds, given)

    def _set(self, name: str, value: int, bits: int = 64) -> None:
        assert name.startswith("%")
        self.registers[name] = value & ((1 << bits) - 1)

    def _ld(self, kinds: list[str], given: tuple[str, ...]) -> None:
        if kinds[0] == "param":
            self._set(given[0], self.arguments[given[1].strip("[]")])
            return
        size, names = int(kinds[-1][1:]) // 8, given[0].strip("{}").replace(" ", "").split(",")
        assert (kinds[1] == "v2") == (len(names) == 2)
        at = self.place(given[1])
        assert at % (size * len(names)) == 0, "misaligned"
        for i, register in enumerate(names):
            self._set(register, int.from_bytes(self.machine.load(at + i * size, size), "little"))

    def _st(self, kinds: list[str], given: tuple[str, ...]) -> None:
        size = int(kinds[-1][1:]) // 8
        stored = self.value(given[1]) & ((1 << 8 * size) - 1)
        self.machine.store(self.place(given[0]), stored.to_bytes(size, "little"))

    def _red(self, kinds: list[str], given: tuple[str, ...]) -> None:
        assert kinds[0] == "global"
        assert kinds[2] == "u64"
        at, new = self.place(given[0]), self.value(given[1])
        old = int.from_bytes(self.machine.load(at, 8), "little")
        done = {"add": old + new, "min": min(old, new), "max": max(old, new)}[kinds[1]] & MASK
        self.machine.store(at, done.to_bytes(8, "little"))

    def _cvta(self, kinds: list[str], given: tuple[str, ...]) -> None:
        self._set(given[0], self.value(given[1]))

    def _mov(self, kinds: list[str], given: tuple[str, ...]) -> None:
        to, source = given
        if to.startswith("%fd"):
            self.registers[to] = np.uint64(self.value(source)).view(np.float64)
        elif to.startswith("%f"):
            self.registers[to] = np.uint32(self.value(source)).view(np.float32)
        elif source.startswith("%fd"):
            self._set(to, int(self.double(source).view(np.uint64)))
        else:
            self._set(to, self.value(source), 32 if kinds[0] == "u32" else 64)

    def _cvt(self, kinds: list[str], given: tuple[str, ...]) -> None:
        to, source = given
        if kinds == ["f64", "f32"]:
            self.registers[to] = np.float64(self.registers[source])
        elif kinds == ["f32", "f16"]:
            self.registers[to] = np.float32(np.uint16(self.value(source)).view(np.float16))
        else:
            assert kinds[0][0] == kinds[1][0] == "u"
            self._set(to, self.value(source), int(kinds[0][1:]))

    def _mad(self, kinds: list[str], given: tuple[str, ...]) -> None:
        assert kinds == ["wide", "u32"]
        a, b, c = map(self.value, given[1:])
        self._set(given[0], a * b + c)

    def _mul(self, kinds: list[str], given: tuple[str, ...]) -> None:
        if kinds[-1] == "f64":
            self.registers[given[0]] = self.double(given[1]) * self.double(given[2])
            return
        assert kinds == ["wide", "u32"]
        self._set(given[0], self.value(given[1]) * self.value(given[2]))

    def _two(self, kinds: list[str], given: tuple[str, ...], numbers: Callable, doubles: Callable) -> None:
        if kinds[-1] == "f64":
            self.registers[given[0]] = np.float64(doubles(self.double(given[1]), self.double(given[2])))
        else:
            self._set(given[0], numbers(self.value(given[1]), self.value(given[2])))

    def _add(self, kinds: list[str], given: tuple[str, ...]) -> None:
        self._two(kinds, given, lambda a, b: a + b, np.add)

    def _sub(self, kinds: list[str], given: tuple[str, ...]) -> None:
        self._two(kinds, given, lambda a, b: a - b, np.subtract)

    def _max(self, kinds: list[str], given: tuple[str, ...]) -> None:
        assert kinds[-1] in ("u64", "f64")
        self._two(kinds, given, max, np.fmax)

    def _min(self, kinds: list[str], given: tuple[str, ...]) -> None:
        assert kinds[-1] in ("u64", "f64")
        self._two(kinds, given, min, np.fmin)

    def _div(self, kinds: list[str], given: tuple[str, ...]) -> None:
        assert kinds == ["rn", "f64"]
        self._two(kinds, given, lambda a, b: a // b, np.divide)

    def _abs(self, kinds: list[str], given: tuple[str, ...]) -> None:
        self.registers[given[0]] = np.abs(self.double(given[1]))

    def _shl(self, kinds: list[str], given: tuple[str, ...]) -> None:
        self._two(kinds, given, lambda a, b: a << b, np.add)

    def _shr(self, kinds: list[str], given: tuple[str, ...]) -> None:
        assert kinds == ["u64"]
        self._two(kinds, given, lambda a, b: a >> b, np.add)

    def _and(self, kinds: list[str], given: tuple[str, ...]) -> None:
        self._two(kinds, given, lambda a, b: a & b, np.add)

    def _or(self, kinds: list[str], given: tuple[str, ...]) -> None:
        self._two(kinds, given, lambda a, b: a | b, np.add)

    def _xor(self, kinds: list[str], given: tuple[str, ...]) -> None:
        self._two(kinds, given, lambda a, b: a ^ b, np.add)

    def _selp(self, kinds: list[str], given: tuple[str, ...]) -> None:
        self._set(given[0], self.value(given[1] if self.registers[given[3]] else given[2]))

    def _setp(self, kinds: list[str], given: tuple[str, ...]) -> None:
        test, kind = kinds
        if kind == "f64":
            assert test == "eq"
            self.registers[given[0]] = bool(self.double(given[1]) == self.double(given[2]))
            return
        assert kind == "u64"
        a, b = self.value(given[1]), self.value(given[2])
        found = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "ge": a >= b, "gt": a > b}
        self.registers[given[0]] = found[test]
