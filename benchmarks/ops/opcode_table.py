"""Do the tables of :mod:`kerntune.static.opcodes` say of machine code what nvdisasm says?

    python -m benchmarks.ops.opcode_table FOLDER [FOLDER ...] [--out OUT.json]

A folder has compiled kernels, ``.cubin`` with the ``.ptx`` beside it, as Triton's cache has them. Equal code counts
once. Counts by class are compared of kernels without a stack frame, of which the gate asks the tables. Codes that the
tables lack are printed with nvdisasm's mnemonic, to be added there.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import harness
from kerntune.compiling.binary.elf import Elf, cubin_resources
from kerntune.errors import StoreError
from kerntune.static import disassembly, opcodes
from kerntune.static.instructions import nvidia_classes
from kerntune.static.opcodes import counted_opcodes

TOGETHER = 16
"""Kernels in one run of nvdisasm."""


def kernels(folders: Iterable[Path]) -> dict[str, list[bytes]]:
    """The machine code of kernels without a stack frame, by architecture, each once."""
    found: defaultdict[str, dict[bytes, None]] = defaultdict(dict)
    for path in (path for folder in folders for path in sorted(folder.rglob("*.cubin"))):
        try:
            data, ptx = path.read_bytes(), path.with_suffix(".ptx").read_text()
            resources = cubin_resources(data)
        except (OSError, StoreError):
            continue
        arch = re.search(r"^\.target\s+(sm_\w+)", ptx, re.MULTILINE)
        if arch is not None and not resources.frame_bytes and not resources.min_stack:
            found[arch[1]][b"".join(code for _, code in Elf(data).text)] = None
    return {arch: [*texts] for arch, texts in sorted(found.items())}


def listed(texts: list[bytes], arch: str) -> list[list[tuple[int, str]]]:
    """Code and opcode of each instruction of each text, as nvdisasm prints it."""
    found: list[list[tuple[int, str]]] = []
    for first in range(0, len(texts), TOGETHER):
        part = texts[first : first + TOGETHER]
        whole = b"".join(part)
        lines = filter(None, map(disassembly._INSTRUCTION.match, disassembly._listing(whole, arch).splitlines()))
        codes = [(int.from_bytes(whole[at : at + 2], "little") & 0xFFF, x[3]) for x in lines for at in [int(x[1], 16)]]
        ends = [*itertools.accumulate((len(text) // 16 for text in part), initial=0)]
        found += [codes[begin:end] for begin, end in itertools.pairwise(ends)]
    return found


FORMS, SAMPLES = 8, 3
"""Bits 9 to 11 of an instruction say of which kind its operands are: registers, a number, a constant. So many
instructions of a code are changed to each kind."""


def other_forms(texts: list[bytes], arch: str) -> list[str]:
    """Codes that the tables lack, and that nvdisasm prints where a known instruction gets operands of another kind."""
    samples: defaultdict[int, dict[int, None]] = defaultdict(dict)
    for text in texts if arch in opcodes._ARCHITECTURES else ():
        for at in range(0, len(text), 16):
            one = int.from_bytes(text[at : at + 16], "little")
            if one & 0xFFF in opcodes._MNEMONICS and len(samples[one & 0xFFF]) < SAMPLES:
                samples[one & 0xFFF][one] = None
    changed = [one & ~0xE00 | form << 9 for some in samples.values() for one in some for form in range(FORMS)]
    left = [one for one in changed if one & 0xFFF not in opcodes._MNEMONICS]
    while left:
        said, refused = printed(left, arch)
        if not refused:
            return sorted({f"{left[at] & 0xFFF:03x} {name}" for at, name in said.items()})
        left = [one for at, one in enumerate(left) if at not in refused]
    return []


def printed(instructions: list[int], arch: str) -> tuple[dict[int, str], set[int]]:
    """nvdisasm's opcodes of instructions by their place, and the places of those that are none."""
    with open(os.memfd_create("code"), "wb") as file:
        file.write(b"".join(one.to_bytes(16, "little") for one in instructions))
        file.flush()
        tool, code = str(disassembly.find_tool("nvdisasm")), f"/proc/self/fd/{file.fileno()}"
        command = [tool, "-ndf", "--binary", arch.replace("sm_", "SM"), code]
        done = subprocess.run(command, capture_output=True, text=True, check=False, pass_fds=[file.fileno()])
    refused = {int(at, 16) // 16 for at in re.findall(r"at address (0x[0-9a-f]+)", done.stderr)}
    if done.returncode and not refused:
        raise SystemExit(f"nvdisasm: {done.stderr}")
    lines = filter(None, map(disassembly._INSTRUCTION.match, done.stdout.splitlines()))
    return {int(x[1], 16) // 16: x[3] for x in lines}, refused


def compared(texts: list[bytes], arch: str) -> dict[str, Any]:
    """How many kernels the tables read, and how many of these they count otherwise than nvdisasm."""
    said = listed(texts, arch)
    read = [counted_opcodes(text, arch) for text in texts]
    other = [a for a, b in zip(read, said, strict=True) if a and nvidia_classes(a) != nvidia_classes(counted(b))]
    return {
        "kernels": len(texts),
        "instructions": sum(map(len, texts)) // 16,
        "read": sum(found is not None for found in read),
        "counted_otherwise": len(other),
        "other_forms_lacking": other_forms(texts, arch),
        "lacking": sorted({f"{code:03x} {name}" for x in said for code, name in x if code not in opcodes._MNEMONICS}),
    }


def counted(said: list[tuple[int, str]]) -> Counter[str]:
    """How often nvdisasm prints each opcode."""
    return Counter(name for _, name in said)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("folders", metavar="FOLDER", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = {arch: compared(texts, arch) for arch, texts in kernels(options.folders).items()}
    report = {**harness.environment(commit=harness.commit()), "architectures": found}
    print(json.dumps(report, indent=1))
    if options.out is not None:
        harness.write(options.out, report)


if __name__ == "__main__":
    main()
