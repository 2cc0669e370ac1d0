"""Opcodes of machine code by a table, without nvdisasm, whose start takes 0.2 s.

The low twelve bits of an instruction say what it does; an access's width and a product's shape have bits of their own.
The tables are made of what nvdisasm prints of kernels that Triton compiles, and of their instructions with operands of
other kinds (bits 9 to 11). ``e9199d4f:benchmarks/ops/opcode_table.py`` holds them against it, and prints what they
lack. Of code with anything else in it nothing is said, and nvdisasm is asked.
"""

from __future__ import annotations

import re
import struct
from collections import Counter

_TABLE = """
ATOMG 3a9 9a3 9a8 BAR 31d 51d 91d b1d BRA 947 BREAK 942 BSSY 945 BSYNC 941 CALL 343 344 944 CCTL 98f CGAERRBAR 5ab CS2R
805 DADD 429 DEPBAR 91a DFMA 42b 62b a2b c2b e2b DMMA 23f DMUL 228 828 a28 c28 DSETP 22a 42a 62a e2a ELECT 82f ERRBAR
9ab EXIT 94d F2F 304 310 904 910 b04 b10 F2FP 23e 43e 63e 83e a3e F2I 305 311 905 911 b05 b11 FADD 221 421 621 e21 FENCE
3c6 FFMA 223 423 623 823 a23 c23 e23 FLO d00 FMNMX 209 809 a09 c09 FMUL 220 820 a20 c20 FRND 307 907 b07 FSEL 208 808
a08 c08 FSET 20a 80a a0a FSETP 20b 80b a0b HADD2 230 430 630 e30 HFMA2 231 235 431 435 631 635 831 835 a31 a35 HGMMA 9f0
df0 HMMA 23c HMNMX2 240 840 a40 HMUL2 232 832 a32 c32 HSETP2 234 434 634 I2F 306 312 906 912 b06 b12 d06 d12 I2FP 245
845 a45 c45 IABS 213 813 a13 IADD3 210 810 a10 c10 IGMMA 9f1 IMAD 224 225 227 424 624 625 627 824 825 827 a24 a25 a27
c24 c25 e24 e25 IMMA 237 IMNMX 217 817 a17 ISETP 20c 80c a0c c0c LDC b82 LDG 981 LDGDEPBAR 9af LDGSTS fae LDS 984 LDSM
83b LEA 211 411 811 a11 c11 LEPC 34e 94e LOP3 212 812 a12 c12 MEMBAR 992 MOV 202 802 a02 c02 MUFU 308 908 b08 NOP 918
P2R 203 803 a03 PLOP3 81c POPC 309 909 b09 d09 PRMT 216 416 616 816 a16 R2P 204 804 a04 R2UR 2ca 3c2 RED 98e REDG 9a6
REDUX 3c4 RET 950 S2R 919 S2UR 9c3 SEL 207 807 a07 c07 SGXT 21a 81a a1a SHF 219 419 619 819 a19 SHFL 389 589 989 f89 STG
986 STS 388 988 STSM 844 SYNCS 3b2 5a7 5b1 5b2 9a7 9b1 9b2 UCGABAR_ARV 9c7 UCGABAR_WAIT dc7 UIADD3 290 890 UIMAD 2a4 2a5
4a4 8a4 8a5 UISETP 28c 88c ULDC ab9 ULEA 291 491 891 ULOP3 292 892 UMOV 882 c82 UPLOP3 89c USEL 287 887 USETMAXREG 9c8
USGXT 29a 89a USHF 299 499 899 UTMACMDFLUSH 9b7 UTMALDG 3b4 5b4 UTMASTG 3b5 VIADD 236 836 a36 c36 VIADDMNMX 246 446 646
846 a46 c46 e46 VIMNMX 248 848 a48 c48 VIMNMX3 20f VOTEU 886 WARPGROUP 9c5 WARPSYNC 348 948
"""
"""Mnemonics, each with its codes in hexadecimal. Those that access the stack frame are left out."""

_MNEMONICS = {
    int(code, 16): name
    for name, codes in re.findall(r"([A-Z]\w+)((?: [0-9a-f]{3}\b)+)", " ".join(_TABLE.split()))
    for code in codes.split()
}

_ARCHITECTURES = frozenset({"sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"})
"""Those that the tables are of. From sm_100 on some codes mean something else, and one may stand for two opcodes."""

_WIDTHS = (".U8", ".S8", ".U16", ".S16", "", ".64", ".128", None)
"""Of accesses to global memory, by bits 73 to 75."""

_PRODUCTS = {
    ("HMMA", 0x018): ".16816.F32",
    ("HMMA", 0x418): ".16816.F32.BF16",
    ("HMMA", 0x810): ".1688.F32.TF32",
    ("IMMA", 0x445C): ".16832.S8.S8.SAT",
    ("DMMA", 0x000): ".8x8x4",
}
"""Shapes and types of a warp's products, by bits 72 to 90."""

_GROUP_PRODUCTS = {0x008: (16, ".F32"), 0x018: (16, ".F32.BF16"), 0x028: (8, ".F32.TF32")}
"""Depth and types of a warpgroup's products, by bits 72 to 82. They have 64 rows, and eight columns more than bits 53
to 57 count by eight."""


def counted_opcodes(text: bytes, arch: str) -> Counter[str] | None:
    """How often each opcode occurs in machine code for ``arch`` (``sm_90a``), with the modifiers that
    :func:`kerntune.static.instructions.nvidia_classes` reads; None of code that has one that isn't in the tables."""
    if arch not in _ARCHITECTURES or len(text) % 16:
        return None
    found: Counter[str] = Counter()
    for low, high in struct.iter_unpack("<2Q", text):
        name = _MNEMONICS.get(low & 0xFFF, "")
        modifiers = _modifiers(name, low, high) if name in _MODIFIED else ""
        if not name or modifiers is None:
            return None
        found[name + modifiers] += 1
    return found


_MODIFIED = frozenset({"LDG", "STG", "LDGSTS", "HMMA", "IMMA", "DMMA", "HGMMA", "IGMMA"})
"""Mnemonics of which more than the class counts."""


def _modifiers(name: str, low: int, high: int) -> str | None:
    if name == "HGMMA":
        depth, types = _GROUP_PRODUCTS.get(high >> 8 & 0x7FF, (0, ""))
        return f".64x{8 + 8 * (low >> 53 & 0x1F)}x{depth}{types}" if depth else None
    if name.endswith("MMA"):
        return _PRODUCTS.get((name, high >> 8 & 0x7FFFF))
    return _WIDTHS[high >> 9 & 7]
