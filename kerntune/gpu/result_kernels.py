"""Kernels that compare two pieces of device memory: equal bits, else how many elements differ, where and by how much.

In PTX, which the driver compiles for the device at hand and keeps (CUDA's compute cache): a measuring process has
neither torch nor a compiler. :func:`kerntune.gpu.number_formats.count_differences` counts the same on the host.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from kerntune.base.recording import Param
from kerntune.gpu.base import Buffer, Executor, Function, binary_of_ptx
from kerntune.gpu.number_formats import BIAS, NOWHERE, ElementCounts, NumberFormat

PREFIX = "kerntune_results_"
"""How the symbols of all of these kernels begin."""

WARPS = 8
BLOCKS_PER_SM = 8
"""With 256 threads a block, so many fill every NVIDIA GPU from sm_70 on (2,048 threads a multiprocessor at most)."""

VECTOR = 16
"""Bytes that a thread loads at once where only equality is asked for."""

OUT = struct.Struct("<8Qd")
"""What the counting kernel leaves: the fields of :class:`ElementCounts`, in their order."""

START = OUT.pack(*ElementCounts())

POINTERS = ("a", "b", "mask", "out")
"""Names of the kernels' parameters that are addresses."""

HEADER = ".version 7.0\n.target sm_70\n.address_size 64\n"

THREAD = """
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %nctaid.x;
    cvt.u64.u32 %rd8, %r3;
    mad.wide.u32 %rd8, %r1, %r2, %rd8;
    mul.wide.u32 %rd9, %r4, %r2;
"""
"""The first element of a thread, and how far it is to its next one."""


def _where_different(
    name: str, parameters: Mapping[str, int], width: int, address: str, compare: str, found: str
) -> str:
    """A kernel over elements of ``width`` bytes of ``a`` and ``b``, whose addresses are %rd10 and %rd11 in ``compare``,
    which leaves in %p2 whether they are equal. ``found`` runs where they aren't, ``address`` for each element.

    ``parameters`` has the register of each, which all but ``count`` are pointers.
    """
    return f"""{_entry(f"{name}{width}", parameters)}
{{
    .reg .pred %p<3>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<17>;
{_loaded(parameters, [key for key in parameters if key != "count"])}{THREAD}
LOOP:
    setp.ge.u64 %p1, %rd8, %rd4;
    @%p1 bra DONE;
    shl.b64 %rd16, %rd8, {width.bit_length() - 1};
    add.s64 %rd10, %rd1, %rd16;
    add.s64 %rd11, %rd2, %rd16;
{address}    add.s64 %rd8, %rd8, %rd9;
{compare}
    @%p2 bra LOOP;
    mov.u64 %rd12, 1;
{found}
DONE:
    ret;
}}
"""


def _entry(name: str, parameters: Iterable[str]) -> str:
    given = ", ".join(f".param .u64 {key}" for key in parameters)
    return f"{HEADER}\n.visible .entry {PREFIX}{name}({given})"


def _loaded(parameters: Mapping[str, int], pointers: Iterable[str]) -> str:
    """Has each parameter in its register, and those that are ``pointers`` as addresses of global memory."""
    loads = [f"    ld.param.u64 %rd{register}, [{key}];" for key, register in parameters.items()]
    registers = [f"%rd{parameters[key]}" for key in pointers]
    return "\n".join([*loads, *(f"    cvta.to.global.u64 {register}, {register};" for register in registers)])


EQUAL_VECTORS = """\
    ld.global.v2.u64 {%rd12, %rd13}, [%rd10];
    ld.global.v2.u64 {%rd14, %rd15}, [%rd11];
    xor.b64 %rd12, %rd12, %rd14;
    xor.b64 %rd13, %rd13, %rd15;
    or.b64 %rd12, %rd12, %rd13;
    setp.eq.u64 %p2, %rd12, 0;"""


def _equal_elements(width: int) -> str:
    """Compares two elements of at most 8 bytes."""
    return f"""\
    ld.global.u{8 * width} %rd12, [%rd10];
    ld.global.u{8 * width} %rd13, [%rd11];
    setp.eq.u64 %p2, %rd12, %rd13;"""


def equal_ptx(width: int) -> str:
    """Stores 1 to ``out`` if one of ``count`` elements of 16 bytes or 1 byte differs."""
    compare = EQUAL_VECTORS if width == VECTOR else _equal_elements(width)
    parameters = {"a": 1, "b": 2, "count": 4, "out": 5}
    return _where_different("equal", parameters, width, "", compare, "    st.global.u64 [%rd5], %rd12;")


def mark_ptx(width: int) -> str:
    """Stores 1 to the byte in ``mask`` of each of ``count`` elements that differs."""
    parameters = {"a": 1, "b": 2, "mask": 3, "count": 4}
    place = "    add.s64 %rd15, %rd3, %rd8;\n"
    found = "    st.global.u8 [%rd15], %rd12;\n    bra LOOP;"
    return _where_different("mark", parameters, width, place, _equal_elements(width), found)


AS_DOUBLE = {
    "float64": "mov.b64 {to}, {bits};",
    "float32": "cvt.u32.u64 %r5, {bits};\n    mov.b32 %f1, %r5;\n    cvt.f64.f32 {to}, %f1;",
    "bfloat16": (
        "shl.b64 %rd40, {bits}, 16;\n    cvt.u32.u64 %r5, %rd40;\n    mov.b32 %f1, %r5;\n    cvt.f64.f32 {to}, %f1;"
    ),
    "float16": "cvt.u16.u64 %h1, {bits};\n    cvt.f32.f16 %f1, %h1;\n    cvt.f64.f32 {to}, %f1;",
    "float8_e5m2": (
        "shl.b64 %rd40, {bits}, 8;\n    cvt.u16.u64 %h1, %rd40;\n    cvt.f32.f16 %f1, %h1;\n    cvt.f64.f32 {to}, %f1;"
    ),
    "float8_e4m3fn": (
        "and.b64 %rd40, {bits}, 128;\n    shl.b64 %rd40, %rd40, 8;\n    and.b64 %rd41, {bits}, 127;\n"
        "    shl.b64 %rd41, %rd41, 7;\n    or.b64 %rd40, %rd40, %rd41;\n    cvt.u16.u64 %h1, %rd40;\n"
        "    cvt.f32.f16 %f1, %h1;\n    cvt.f64.f32 {to}, %f1;\n    mul.f64 {to}, {to}, 0d4070000000000000;"
    ),
}
"""Bits of a finite number as a double. Of E4M3, the exponent's bias is 7 and binary16's is 15: a factor of 256."""


def _numbers(kind: NumberFormat) -> str:
    """The part for two floats that differ, in %rd24 and %rd25."""
    magnitude, sign = kind.magnitude, 8 * kind.width - 1
    first, second = (AS_DOUBLE[kind.name].format(bits=b, to=t) for b, t in (("%rd24", "%fd1"), ("%rd25", "%fd2")))
    return f"""
    and.b64 %rd26, %rd24, {magnitude};
    and.b64 %rd27, %rd25, {magnitude};
    max.u64 %rd28, %rd26, %rd27;
    min.u64 %rd29, %rd26, %rd27;
    setp.le.u64 %p1, %rd28, {kind.finite};
    @%p1 bra FINITE;
    setp.ge.u64 %p1, %rd29, {kind.nan};
    @%p1 bra LOOP;
    add.s64 %rd13, %rd13, 1;
    bra LOOP;
FINITE:
    shr.u64 %rd30, %rd24, {sign};
    setp.ne.u64 %p1, %rd30, 0;
    sub.s64 %rd31, %rd19, %rd26;
    add.s64 %rd32, %rd19, %rd26;
    selp.b64 %rd33, %rd31, %rd32, %p1;
    shr.u64 %rd30, %rd25, {sign};
    setp.ne.u64 %p1, %rd30, 0;
    sub.s64 %rd31, %rd19, %rd27;
    add.s64 %rd32, %rd19, %rd27;
    selp.b64 %rd34, %rd31, %rd32, %p1;
    max.u64 %rd35, %rd33, %rd34;
    min.u64 %rd36, %rd33, %rd34;
    sub.s64 %rd37, %rd35, %rd36;
    max.u64 %rd17, %rd17, %rd37;
    setp.lt.u64 %p1, %rd37, %rd6;
    @%p1 bra RELATIVE;
    min.u64 %rd16, %rd16, %rd20;
RELATIVE:
    {first}
    {second}
    abs.f64 %fd3, %fd1;
    abs.f64 %fd4, %fd2;
    max.f64 %fd3, %fd3, %fd4;
    setp.eq.f64 %p1, %fd3, 0d0000000000000000;
    @%p1 bra LOOP;
    sub.f64 %fd5, %fd1, %fd2;
    abs.f64 %fd5, %fd5;
    div.rn.f64 %fd5, %fd5, %fd3;
    min.f64 %fd5, %fd5, 0d4000000000000000;
    mov.b64 %rd38, %fd5;
    max.u64 %rd18, %rd18, %rd38;"""


def count_ptx(kind: NumberFormat) -> str:
    """Counts over ``count`` elements, without those that have a byte in ``mask`` (0: there is none), as
    :class:`ElementCounts`. Doubles that aren't negative have the order of their bits."""
    parameters = {"a": 1, "b": 2, "mask": 3, "count": 4, "out": 5, "wanted": 6, "poisoned": 7}
    start = "\n".join(f"    mov.u64 %rd{10 + i}, {int(value):#x};" for i, value in enumerate(ElementCounts()))
    sums = "\n".join(f"    red.global.add.u64 [%rd5+{8 * i}], %rd{10 + i};" for i in range(5))
    return f"""{_entry(f"count_{kind.name}", parameters)}
{{
    .reg .pred %p<2>;
    .reg .b16 %h<2>;
    .reg .b32 %r<6>;
    .reg .f32 %f<2>;
    .reg .b64 %rd<42>;
    .reg .f64 %fd<6>;
{_loaded(parameters, ("a", "b", "out"))}{THREAD}
{start}
    mov.u64 %rd19, {BIAS:#x};
LOOP:
    setp.ge.u64 %p1, %rd8, %rd4;
    @%p1 bra LEAVE;
    mov.u64 %rd20, %rd8;
    add.s64 %rd8, %rd8, %rd9;
    setp.eq.u64 %p1, %rd3, 0;
    @%p1 bra LOAD;
    add.s64 %rd21, %rd3, %rd20;
    ld.global.u8 %rd22, [%rd21];
    setp.eq.u64 %p1, %rd22, 0;
    @%p1 bra LOAD;
    add.s64 %rd14, %rd14, 1;
    bra LOOP;
LOAD:
    shl.b64 %rd21, %rd20, {kind.width.bit_length() - 1};
    add.s64 %rd22, %rd1, %rd21;
    add.s64 %rd23, %rd2, %rd21;
    ld.global.u{8 * kind.width} %rd24, [%rd22];
    ld.global.u{8 * kind.width} %rd25, [%rd23];
    setp.eq.u64 %p1, %rd24, %rd25;
    @%p1 bra LOOP;
    add.s64 %rd10, %rd10, 1;
    min.u64 %rd15, %rd15, %rd20;
    setp.eq.u64 %p1, %rd7, 0;
    @%p1 bra NUMBERS;
    setp.ne.u64 %p1, %rd25, {kind.poison:#x};
    @%p1 bra EXTRA;
    add.s64 %rd11, %rd11, 1;
    bra LOOP;
EXTRA:
    setp.ne.u64 %p1, %rd24, {kind.poison:#x};
    @%p1 bra NUMBERS;
    add.s64 %rd12, %rd12, 1;
    bra LOOP;
NUMBERS:{_numbers(kind) if kind.is_float else ""}
    bra LOOP;
LEAVE:
    or.b64 %rd21, %rd10, %rd14;
    setp.eq.u64 %p1, %rd21, 0;
    @%p1 bra DONE;
{sums}
    red.global.min.u64 [%rd5+40], %rd15;
    red.global.min.u64 [%rd5+48], %rd16;
    red.global.max.u64 [%rd5+56], %rd17;
    red.global.max.u64 [%rd5+64], %rd18;
DONE:
    ret;
}}
"""


class ResultKernels:
    """The kernels on one device, each loaded when it is first needed, until :meth:`close`. Where the device can't load
    one, its first call raises (:class:`BackendError`, :class:`OutOfResourcesError`)."""

    def __init__(self, gpu: Executor) -> None:
        self._gpu = gpu
        self._loaded: dict[str, Function] = {}

    def close(self) -> None:
        """Unload all."""
        for function in self._loaded.values():
            self._gpu.unload(function)
        self._loaded.clear()

    def equal(self, pairs: Sequence[tuple[Buffer, Buffer]]) -> list[bool]:
        """Of each two buffers of one size, whether they hold the same bits: one wait for all of them."""
        return self.equality(pairs)() if pairs else []

    def equality(self, pairs: Sequence[tuple[Buffer, Buffer]]) -> Callable[[], list[bool]]:
        """:meth:`equal` of these buffers as they are when it is called, for as often as it is. Of a pair the second
        may be larger; its rest isn't looked at."""
        out = self._gpu.allocate(8 * len(pairs))
        places = [(a, b, out.address + 8 * place) for place, (a, b) in enumerate(pairs)]
        launches = [launch for place in places for launch in self._equal_launches(*place)]

        def found() -> list[bool]:
            self._gpu.fill(out, 0)
            for launch in launches:
                launch()
            return [flag == 0 for flag in struct.unpack(f"<{len(pairs)}Q", self._gpu.read(out))]

        return found

    def _equal_launches(self, a: Buffer, b: Buffer, out: int) -> Iterator[Callable[[], None]]:
        aligned = a.address % VECTOR == b.address % VECTOR == 0
        vectors = a.nbytes // VECTOR if aligned else 0
        rest = vectors * VECTOR
        for width, offset, count in ((VECTOR, 0, vectors), (1, rest, a.nbytes - rest)):
            if count:
                given = {"a": a.address + offset, "b": b.address + offset, "count": count, "out": out}
                yield self._prepared(f"equal{width}", partial(equal_ptx, width), given)

    def new_mask(self, elements: int) -> Buffer:
        """A byte for each element, all zero. :class:`MeasurementError` where there is no room."""
        mask = self._gpu.allocate(elements)
        self._gpu.fill(mask, 0)
        return mask

    def mark(self, a: Buffer, b: Buffer, mask: Buffer, kind: NumberFormat) -> None:
        """Note in ``mask`` which elements differ."""
        count = a.nbytes // kind.width
        given = {"a": a.address, "b": b.address, "mask": mask.address, "count": count}
        self._prepared(f"mark{kind.width}", partial(mark_ptx, kind.width), given)()

    def count(
        self, a: Buffer, b: Buffer, mask: Buffer | None, kind: NumberFormat, poisoned: bool, wanted: int = NOWHERE
    ) -> ElementCounts:
        """As :func:`kerntune.gpu.number_formats.count_differences`."""
        out = self._gpu.allocate(OUT.size)
        self._gpu.write(out, START)
        given = {"a": a.address, "b": b.address, "mask": mask.address if mask is not None else 0}
        given |= {"count": a.nbytes // kind.width, "out": out.address}
        given |= {"wanted": wanted, "poisoned": int(poisoned)}
        self._prepared(f"count_{kind.name}", partial(count_ptx, kind), given)()
        return ElementCounts(*OUT.unpack(self._gpu.read(out)))

    def _prepared(self, name: str, ptx: Callable[[], str], given: Mapping[str, int]) -> Callable[[], None]:
        """A call that enqueues a launch with what is ``given`` by name, in the kernel's order."""
        symbol = PREFIX + name
        if symbol not in self._loaded:
            self._loaded[symbol] = self._gpu.load(binary_of_ptx(symbol, WARPS), ptx().encode() + b"\0")
        params = [Param(k, "*i8") if k in POINTERS else Param(k, "u64", value=v) for k, v in given.items()]
        addresses = [value if key in POINTERS else None for key, value in given.items()]
        blocks = min(-(-given["count"] // (WARPS * 32)), BLOCKS_PER_SM * self._gpu.spec.sm_count)
        return self._gpu.prepare(self._loaded[symbol], (max(blocks, 1), 1, 1), params, addresses)
