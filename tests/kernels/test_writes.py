"""Which arguments a kernel reads and writes, on kernels compiled to TTIR here."""

from __future__ import annotations

import functools
import os
from typing import Any

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from hostile_texts import within_time
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from kerntune.base.device import Target
from kerntune.kernels import writes
from kerntune.kernels.access import Access
from kerntune.kernels.writes import access_of

TARGETS = ["cuda:80", "cuda:90", "cuda:100", "hip:gfx942"]


@functools.cache
def _ttir(
    kernel: Any, signature: tuple[tuple[str, str], ...], constants: tuple[tuple[str, Any], ...], where: str
) -> str:
    """TTIR as a compilation for ``where`` makes it: after the backend's first stage."""
    from triton._C.libtriton import ir

    target = Target.parse(where)
    gpu = GPUTarget(target.backend, target.triton_arch, target.warp_size)
    backend = make_backend(gpu)
    options = backend.parse_options({"enable_fp_fusion": True})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    source = ASTSource(kernel, dict(signature), dict(constants), {})
    module = source.make_ir(
        gpu, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
    )
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    return str(stages["ttir"](module, {}))


def access(kernel: Any, types: str, where: str = "cuda:90", **constants: Any) -> Access:
    """``types`` in the order of the parameters that are no constants, for example ``"*fp32 *fp32 i32"``."""
    free = [p for p in kernel.arg_names if p not in constants]
    signature = dict(zip(free, types.split(), strict=True)) | dict.fromkeys(constants, "constexpr")
    ordered = tuple((p, signature[p]) for p in kernel.arg_names)
    return access_of(_ttir(kernel, ordered, tuple(constants.items()), where), Target.parse(where))


def exact(
    reads: set[int], writes: set[int], count: int, atomics: set[int] = frozenset(), floats: bool = False
) -> Access:
    return Access(frozenset(reads), frozenset(writes), frozenset(atomics), floats, (), count)


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def relu_in_place(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0), mask=i < n)


@triton.jit
def histogram(x, counts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@triton.jit
def accumulate(x, total, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))


@triton.jit
def scatter_add(x, rows, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(rows + i), tl.load(x + i, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def spin(lock, x):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(x, tl.load(x) + 1.0)
    tl.atomic_xchg(lock, 0)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BM + tl.arange(0, BM)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * K + rk[None, :]
    pb = b + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BM), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc)
        pa += BK
        pb += BK * N
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def carried(src, dst, n, BLOCK: tl.constexpr):
    """Both addresses travel through the loop, side by side."""
    p = src + tl.arange(0, BLOCK)
    q = dst + tl.arange(0, BLOCK)
    for _ in range(0, n):
        tl.store(q, tl.load(p))
        p += BLOCK
        q += BLOCK


@triton.jit
def ping_pong(a, b, n):
    """The two swap places in each turn, so each is read and each is written."""
    p = a
    q = b
    for _ in range(0, n):
        tl.store(q, tl.load(p) + 1.0)
        p, q = q, p


@triton.jit
def rebound(a, b, n):
    """Stores to ``a`` where the loop has no trip."""
    p = a
    for _ in range(n):
        p = b
    tl.store(p, 1.0)


@triton.jit
def while_loop(src, dst, n):
    i = n
    p = src
    q = dst
    while i > 0:
        tl.store(q, tl.load(p))
        p += 1
        q += 1
        i -= 1


@triton.jit
def choose(a, b, out, n):
    if n > 7:  # noqa: SIM108 - the branch is what is tested
        p = a
    else:
        p = b
    tl.store(out, tl.load(p))


@triton.jit
def choose_target(a, b, x, n):
    if n > 7:  # noqa: SIM108 - the branch is what is tested
        p = a
    else:
        p = b
    tl.store(p, tl.load(x))


@triton.jit
def select_target(a, b, x, n):
    tl.store(tl.where(n > 7, a, b), tl.load(x))


@triton.jit
def aliased(a, b, n, BLOCK: tl.constexpr):
    p = a
    a = b
    i = tl.arange(0, BLOCK)
    tl.store(p + i, tl.load(a + i, mask=i < n), mask=i < n)


@triton.jit(noinline=True)
def _copy_one(source, sink):
    tl.store(sink, tl.load(source))


@triton.jit(noinline=True)
def _step(p, k):
    return p + k


@triton.jit
def calls(out, unused, x):
    _copy_one(x, out)


@triton.jit
def calls_for_address(out, x, k):
    tl.store(_step(out, k), tl.load(_step(x, k)))


@triton.jit(noinline=True)
def _two_steps(p, unused, k):
    return _step(_step(p, k), 1)


@triton.jit(noinline=True)
def _either(p, q, k):
    return tl.where(k > 0, p, q)


@triton.jit
def calls_through_calls(out, x, unused, k):
    tl.store(_two_steps(out, unused, k), tl.load(_two_steps(x, unused, k)))


@triton.jit
def calls_in_a_loop(out, x, k):
    p = out
    q = x
    for _ in range(k):
        tl.store(p, tl.load(q))
        p = _step(p, k)
        q = _step(q, k)


@triton.jit
def calls_for_either(out, x, y, k):
    tl.store(_step(out, k), tl.load(_either(x, y, k)) + tl.load(_step(y, k)))


@triton.jit
def calls_that_touch(a, b):
    _copy_one(a, b)
    _copy_one(b, a)


@triton.jit
def descriptor_copy(source, sink, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK
    sink.store([i, 0], source.load([i, 0]))


@triton.jit
def descriptor_made(x, out, n, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [n, BLOCK], [BLOCK, 1], [BLOCK, BLOCK])
    sink = tl.make_tensor_descriptor(out, [n, BLOCK], [BLOCK, 1], [BLOCK, BLOCK])
    sink.store([0, 0], source.load([0, 0]))


@triton.jit
def descriptor_add(x, sink, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    sink.atomic_add([0, 0], tl.load(x + i[:, None] * BLOCK + i[None, :]))


@triton.jit
def early_exit(x, out, n):
    if n == 0:
        return
    tl.store(out, tl.load(x))


@triton.jit
def impure(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x + i)], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(out + i, v)


@triton.jit
def pure(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x + i)], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out + i, v)


@triton.jit
def through_table(table, n):
    p = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(p, 1.0)


@triton.jit
def partly_through_table(table, x, n):
    """One path writes an argument, the other an address out of memory: the first must not hide the second."""
    p = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(tl.where(n > 3, p, x), 1.0)


@triton.jit
def nothing(x, n):
    pass


@pytest.mark.parametrize("where", TARGETS)
@pytest.mark.parametrize(
    ("kernel", "types", "constants", "expected"),
    [
        (add, "*fp32 *fp32 *fp32 i32", {"BLOCK": 128}, exact({0, 1}, {2}, 3)),
        (relu_in_place, "*fp16 i32", {"BLOCK": 128}, exact({0}, {0}, 1)),
        (histogram, "*i32 *i32 i32", {"BLOCK": 128}, exact({0, 1}, {1}, 2, {1})),
        (accumulate, "*fp32 *fp32 i32", {"BLOCK": 128}, exact({0, 1}, {1}, 2, {1}, True)),
        (scatter_add, "*fp32 *i64 *fp32 i32", {"BLOCK": 128}, exact({0, 1, 2}, {2}, 3, {2}, True)),
        (spin, "*i32 *fp32", {}, exact({0, 1}, {0, 1}, 2, {0})),
        (matmul, "*fp16 *fp16 *fp16 i32 i32 i32", {"BM": 32, "BK": 32}, exact({0, 1}, {2}, 3)),
        (carried, "*fp32 *fp32 i32", {"BLOCK": 64}, exact({0}, {1}, 2)),
        (ping_pong, "*fp32 *fp32 i32", {}, exact({0, 1}, {0, 1}, 2)),
        (rebound, "*fp32 *fp32 i32", {}, exact(set(), {0, 1}, 2)),
        (while_loop, "*fp32 *fp32 i32", {}, exact({0}, {1}, 2)),
        (choose, "*fp32 *fp32 *fp32 i32", {}, exact({0, 1}, {2}, 3)),
        (choose_target, "*fp32 *fp32 *fp32 i32", {}, exact({2}, {0, 1}, 3)),
        (select_target, "*fp32 *fp32 *fp32 i32", {}, exact({2}, {0, 1}, 3)),
        (aliased, "*fp32 *fp32 i32", {"BLOCK": 64}, exact({1}, {0}, 2)),
        (calls, "*fp32 *fp32 *fp32", {}, exact({2}, {0}, 3)),
        (calls_for_address, "*fp32 *fp32 i32", {}, exact({1}, {0}, 2)),
        (calls_through_calls, "*fp32 *fp32 *fp32 i32", {}, exact({1}, {0}, 3)),
        (calls_in_a_loop, "*fp32 *fp32 i32", {}, exact({1}, {0}, 2)),
        (calls_for_either, "*fp32 *fp32 *fp32 i32", {}, exact({1, 2}, {0}, 3)),
        (calls_that_touch, "*fp32 *fp32", {}, exact({0, 1}, {0, 1}, 2)),
        (descriptor_made, "*fp16 *fp16 i32", {"BLOCK": 64}, exact({0}, {1}, 2)),
        (early_exit, "*fp32 *fp32 i32", {}, exact({0}, {1}, 2)),
        (pure, "*i32 *i32", {"BLOCK": 64}, exact({0}, {1}, 2)),
        (nothing, "*fp32 i32", {}, exact(set(), set(), 1)),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_reads_and_writes(kernel: Any, types: str, constants: dict[str, Any], expected: Access, where: str) -> None:
    assert access(kernel, types, where, **constants) == expected


@pytest.mark.parametrize("where", TARGETS)
def test_tensor_descriptors_count_as_pointers(where: str) -> None:
    tile = "tensordesc<fp16[64,64]>"
    assert access(descriptor_copy, f"{tile} {tile}", where, BLOCK=64) == exact({0}, {1}, 2)


def test_a_reducing_descriptor_store_is_an_atomic() -> None:
    found = access(descriptor_add, "*fp16 tensordesc<fp16[64,64]>", BLOCK=64)
    assert found == exact({0, 1}, {1}, 2, {1}, True)


def test_impure_assembly_may_write_everything() -> None:
    found = access(impure, "*i32 *i32", BLOCK=64)
    assert found.writes == found.reads == {0, 1}
    assert found.unknown == ("impure elementwise_inline_asm",)


@pytest.mark.parametrize(
    ("kernel", "types", "count"), [(through_table, "*i64 i32", 1), (partly_through_table, "*i64 *fp32 i32", 2)]
)
def test_addresses_out_of_memory_are_unknown(kernel: Any, types: str, count: int) -> None:
    found = access(kernel, types)
    assert found.writes == frozenset(range(count))
    assert found.unknown == ("tt.store: an address is made from an integer",)


@triton.jit
def from_table(table, out, n, BLOCK: tl.constexpr):
    source = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(source + i, mask=i < n), mask=i < n)


@triton.jit
def asm_with_a_word(table, out):
    value = tl.load(table)
    seen = tl.inline_asm_elementwise("mov.b32 $0, 1;", "=r,l", [value], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(out, seen)


@triton.jit
def asm_with_an_argument(x, out):
    seen = tl.inline_asm_elementwise("ld.global.b32 $0, [$1];", "=r,l", [x], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(out, seen)


@triton.jit
def asm_with_an_address_from_a_table(table, out):
    source = tl.load(table).to(tl.pointer_type(tl.int32))
    seen = tl.inline_asm_elementwise("ld.global.b32 $0, [$1];", "=r,l", [source], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out, seen)


@triton.jit
def add_through_table(table, n):
    at = tl.load(table + n).to(tl.pointer_type(tl.float32))
    tl.atomic_add(at, 1.0)


@pytest.mark.parametrize(("kernel", "op"), [(through_table, "tt.store"), (add_through_table, "tt.atomic_rmw")])
@pytest.mark.parametrize("where", TARGETS)
def test_who_writes_where_no_argument_points_says_why(where: str, kernel: Any, op: str) -> None:
    found = access(kernel, "*i64 i32", where)
    assert found.follows
    assert found.beyond == (f"{op}: an address is made from an integer",)


def test_who_only_reads_there_follows_addresses_and_writes_nothing_beyond() -> None:
    found = access(from_table, "*i64 *fp32 i32", BLOCK=64)
    assert found.follows
    assert found.beyond == ()
    assert found.unknown == ("tt.load: an address is made from an integer",)


def test_assembly_is_trusted_with_what_arguments_point_to_and_not_with_words() -> None:
    assert not access(impure, "*i32 *i32", BLOCK=64).follows
    assert not access(asm_with_an_argument, "*i32 *i32").follows
    why = "elementwise_inline_asm takes an integer that may be an address"
    assert access(asm_with_a_word, "*i64 *i32").beyond == (why,)
    why = "tt.elementwise_inline_asm: an address is made from an integer"
    assert access(asm_with_an_address_from_a_table, "*i64 *i32").beyond == (why,)


def test_text_that_isnt_understood_may_write_anywhere() -> None:
    assert access_of("").beyond == access_of("").unknown


def test_all_other_kernels_stay_with_their_arguments() -> None:
    for kernel, types, constants in ((add, "*fp32 *fp32 *fp32 i32", {"BLOCK": 64}), (spin, "*i32 *fp32", {})):
        assert not access(kernel, types, **constants).follows


def test_damaged_text_is_everything_and_counts_pointers(capfd: pytest.CaptureFixture[str]) -> None:
    good = _ttir(
        add,
        (("x", "*fp32"), ("y", "*fp32"), ("out", "*fp32"), ("n", "i32"), ("BLOCK", "constexpr")),
        (("BLOCK", 64),),
        "cuda:90",
    )
    found = access_of(good.replace("tt.store", "tt.no_such_operation"))
    assert found.pointer_count == 3
    assert found.writes == {0, 1, 2}
    assert found.unknown[0].startswith("TTIR not understood")
    assert access_of("").pointer_count == 0
    assert access_of("").unknown


RECURSIVE = """
module {
  tt.func private @walk(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %k: i32) -> !tt.ptr<f32> {
    %zero = arith.constant 0 : i32
    %more = arith.cmpi sgt, %k, %zero : i32
    %r = scf.if %more -> (!tt.ptr<f32>) {
      %n = tt.call @walk(%q, %p, %zero) : (!tt.ptr<f32>, !tt.ptr<f32>, i32) -> !tt.ptr<f32>
      scf.yield %n : !tt.ptr<f32>
    } else {
      scf.yield %p : !tt.ptr<f32>
    }
    tt.return %r : !tt.ptr<f32>
  }
  tt.func public @kernel(%out: !tt.ptr<f32>, %x: !tt.ptr<f32>, %k: i32) {
    %d = tt.call @walk(%out, %x, %k) : (!tt.ptr<f32>, !tt.ptr<f32>, i32) -> !tt.ptr<f32>
    %v = arith.constant 1.0 : f32
    tt.store %d, %v : !tt.ptr<f32>
    tt.return
  }
}
"""


def test_a_function_that_calls_itself_may_return_what_any_caller_gave() -> None:
    assert access_of(RECURSIVE) == exact(set(), {0, 1}, 2)


JUMPS = """
module {
  tt.func public @kernel(%x: !tt.ptr<f32>, %out: !tt.ptr<f32>) {
    cf.br ^next(%out : !tt.ptr<f32>)
  ^next(%p: !tt.ptr<f32>):
    %v = tt.load %x : !tt.ptr<f32>
    tt.store %p, %v : !tt.ptr<f32>
    tt.return
  }
}
"""

REGION = """
module {
  tt.func public @kernel(%x: !tt.ptr<f32>, %out: !tt.ptr<f32>) {
    %p = scf.execute_region -> !tt.ptr<f32> {
      scf.yield %out : !tt.ptr<f32>
    }
    %v = tt.load %x : !tt.ptr<f32>
    tt.store %p, %v : !tt.ptr<f32>
    tt.return
  }
}
"""


@pytest.mark.parametrize("text", [JUMPS, REGION], ids=["a branch", "a region"])
def test_an_address_that_a_branch_or_a_region_hands_on_is_followed(text: str) -> None:
    assert access_of(text) == exact({0}, {1}, 2)


def test_many_branches_take_no_longer_than_their_text() -> None:
    """A text by a stranger may have as many as it likes."""
    blocks = "".join(f"  ^b{i}:\n cf.cond_br %c, ^b{i + 1}, ^b2500\n" for i in range(2500))
    head = "tt.func public @kernel(%x: !tt.ptr<f32>, %c: i1) {\n %v = tt.load %x : !tt.ptr<f32>\n cf.br ^b0"
    text = f"module {{\n {head}\n{blocks}  ^b2500:\n tt.store %x, %v : !tt.ptr<f32>\n tt.return\n }}\n}}"
    found: list[Access] = []
    within_time(lambda: found.append(access_of(text)), 5.0)
    assert found == [exact({0}, {0}, 1)]


def test_a_text_that_is_known_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configs that differ in warps have the same TTIR, and a new MLIR context for each takes most of the time."""
    text, parsed, parse = RECURSIVE.replace("@kernel", "@known"), [], writes.parse_module
    monkeypatch.setattr(writes, "parse_module", lambda text, context: parsed.append(text) or parse(text, context))
    for target in (None, None, Target.parse("cuda:90"), Target.parse("cuda:90")):
        assert access_of(text, target) == exact(set(), {0, 1}, 2)
    assert parsed == [text] * 2, "once for each target"


def test_what_was_not_understood_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the text's fault: the process had too many open files."""
    text = RECURSIVE.replace("@kernel", "@tried_again")
    with monkeypatch.context() as patch:
        patch.setattr(writes.tempfile, "TemporaryFile", lambda: os.open("/no/such/file", 0))
        assert access_of(text).unknown == (
            "TTIR not understood: FileNotFoundError: [Errno 2] No such file or directory: '/no/such/file'",
        )
    assert access_of(text) == exact(set(), {0, 1}, 2)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("tt.func public @k(%a: !tt.ptr<f32>, %b: i32, %c: !tt.tensordesc<f16>) attributes {noinline = false} {", 2),
        ("tt.func private @f(%a: !tt.ptr<f32>) {\n}\ntt.func public @k(%b: !ttng.tensordesc<f16>)\n-> i32 {", 1),
        ("tt.func public @k(%a: !tt.ptr<f32> {a = (1)}, %b: !tt.ptr<f32>) {\n%p: !tt.ptr<f32>", 2),
        ("tt.func public @k(%a: !tt.ptr<f32>", 0),
        ("tt.func public @k: !tt.ptr<f32>", 0),
        ("(%a: !tt.ptr<f32>) {", 0),
    ],
)
def test_pointers_of_a_text_that_cant_be_parsed(text: str, count: int) -> None:
    assert writes._count_pointers(text) == count


BODILESS = """
module {
  tt.func private @beyond(%p: !tt.ptr<f32>)
  tt.func public @kernel(%x: !tt.ptr<f32>) {
    tt.call @beyond(%x) : (!tt.ptr<f32>) -> ()
    tt.return
  }
}
"""


def test_a_function_without_a_body_may_write_anywhere() -> None:
    found = access_of(BODILESS)
    assert found.beyond == found.unknown == ("a call of a function without a body",)
    assert (found.writes, found.follows) == ({0}, True)


PARTITIONS = """
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, "ttg.threads-per-warp" = 32 : i32} {
  tt.func public @kernel(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %out: !tt.ptr<f32>) {
    %v = arith.constant 1.0 : f32
    %p = ttg.warp_specialize(%y) attributes {requestedRegisters = array<i32: 24>}
    default {
      ttg.warp_yield %out : !tt.ptr<f32>
    }
    partition0(%q: !tt.ptr<f32>) num_warps(4) {
      %w = tt.load %q : !tt.ptr<f32>
      ttg.warp_return
    } : (!tt.ptr<f32>) -> !tt.ptr<f32>
    tt.store %p, %v : !tt.ptr<f32>
    tt.return
  }
}
"""


def test_an_address_that_the_first_partition_of_warps_yields_is_followed() -> None:
    assert access_of(PARTITIONS, Target.parse("cuda:90")) == exact({1}, {2}, 3)


WHILE = """
module {
  tt.func public @kernel(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %z: !tt.ptr<f32>, %n: i1) {
    %v = arith.constant 1.0 : f32
    %r:2 = scf.while (%a = %x, %b = %y) : (!tt.ptr<f32>, !tt.ptr<f32>) -> (!tt.ptr<f32>, !tt.ptr<f32>) {
      scf.condition(%n) %b, %a : !tt.ptr<f32>, !tt.ptr<f32>
    } do {
    ^bb0(%c: !tt.ptr<f32>, %d: !tt.ptr<f32>):
      WITHIN
      scf.yield %z, %c : !tt.ptr<f32>, !tt.ptr<f32>
    }
    AFTER
    tt.return
  }
}
"""


@pytest.mark.parametrize(
    ("within", "after", "written"),
    [("%c", "", {1}), ("%d", "", {0, 2}), ("", "%r#0", {1}), ("", "%r#1", {0, 2})],
)
def test_addresses_change_places_in_both_regions_of_a_while_loop(within: str, after: str, written: set[int]) -> None:
    store = "tt.store {}, %v : !tt.ptr<f32>"
    text = WHILE.replace("WITHIN", within and store.format(within)).replace("AFTER", after and store.format(after))
    assert access_of(text) == exact(set(), written, 3)


def of_body(*lines: str) -> Access:
    """The accesses of a kernel of two pointers to floats and a word."""
    head = "tt.func public @kernel(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %w: i64) {"
    begin = ["%c0 = arith.constant 0 : index", "%c1 = arith.constant 1 : index", "%v = arith.constant 1.0 : f32"]
    return access_of("\n".join(["module {", head, *begin, *lines, "tt.return", "}", "}"]))


@pytest.mark.parametrize(
    ("lines", "unknown", "follows"),
    [
        pytest.param(["%i = tt.ptr_to_int %x : !tt.ptr<f32> -> i64"], ["an address becomes an integer"], False,
                     id="to an integer"),
        pytest.param(
            ['%p = tt.elementwise_inline_asm "mov.b64 $0, $1;" {constraints = "=l,l", packed_element = 1 : i32, '
             "pure = true} %w : i64 -> !tt.ptr<f32>", "tt.store %p, %v : !tt.ptr<f32>"],
            ["elementwise_inline_asm takes an address",
             "elementwise_inline_asm takes an integer that may be an address",
             "tt.store: elementwise_inline_asm makes an address"], True, id="made by assembly"),
    ],
)  # fmt: skip
def test_addresses_of_unknown_origin_say_why(lines: list[str], unknown: list[str], follows: bool) -> None:
    found = of_body(*lines)
    assert (list(found.unknown), found.follows) == (unknown, follows)
    assert found.writes == {0, 1}


def test_a_region_that_no_rule_is_about_may_be_given_any_operand() -> None:
    found = of_body(
        "%n = arith.index_cast %w : i64 to index",
        "%r = scf.parallel (%i) = (%c0) to (%n) step (%c1) init (%x) -> !tt.ptr<f32> {",
        "scf.reduce(%y : !tt.ptr<f32>) {",
        "^bb0(%a: !tt.ptr<f32>, %b: !tt.ptr<f32>):",
        "tt.store %b, %v : !tt.ptr<f32>",
        "scf.reduce.return %a : !tt.ptr<f32>",
        "}",
        "}",
    )
    assert (found.writes, found.unknown) == ({1}, ())
