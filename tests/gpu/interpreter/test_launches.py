"""Kernels on the CPU: what they compute, and what is refused."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra import libdevice
from triton.language.extra.libdevice import tanh
from triton.tools.tensor_descriptor import TensorDescriptor

from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import CompileError, ConfigError, InterpreterLimit, KernelFault, KernelTimeout
from kerntune.gpu.interpreter import Interpreter, launches
from kerntune.gpu.interpreter.launches import TensorMemory, _TimeEstimate, lower

pytestmark = pytest.mark.usefixtures("interpreter")

N = 100
close = torch.testing.assert_close


def cuda(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


@triton.jit
def axpy(x_ptr, y_ptr, out_ptr, n, a, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    y = tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x * a + y, mask=at < n)


tuned_axpy = triton.autotune([triton.Config({"BLOCK": b}) for b in (16, 32)], key=["n"])(axpy)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_arithmetic_is_of_values(dtype: torch.dtype) -> None:
    x, y = cuda(N, dtype=dtype), cuda(N, dtype=dtype)
    out = torch.empty_like(x)
    axpy[(4,)](x, y, out, N, -3.0, BLOCK=32)
    close(out, (x.float() * -3 + y.float()).to(dtype), rtol=2e-2 if dtype == torch.bfloat16 else 1e-3, atol=1e-2)


def test_a_launch_leaves_no_memory_to_the_garbage_collector() -> None:
    """A judge's process launches a reference thousands of times."""
    x = cuda(N)
    gc.collect()
    gc.disable()
    try:
        axpy[(4,)](x, x, x, N, 2.0, BLOCK=32)
        assert not [one for one in gc.get_objects() if isinstance(one, TensorMemory)]
    finally:
        gc.enable()


def test_a_tuned_kernel_runs_its_first_config(interpreter: Interpreter) -> None:
    x, y = cuda(N), cuda(N)
    out = torch.empty_like(x)
    tuned_axpy[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](x, y, out, N, 2.0)
    close(out, x * 2 + y)
    assert tuned_axpy.best_config.kwargs == {"BLOCK": 16}
    assert interpreter.launched == 1


def test_a_bare_kernel_takes_the_first_given_candidate(interpreter: Interpreter) -> None:
    x, y = cuda(N), cuda(N)
    out = torch.empty_like(x)
    with interpreter.given({"axpy": (Config({"BLOCK": 64}), Config({"BLOCK": 8}))}):
        axpy[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](x, y, out, N, 2.0)
    close(out, x * 2 + y)


@triton.jit
def brain(x_ptr, out_ptr, whole_ptr, total_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.where(x < 0.5, -x, x) * x)
    tl.store(whole_ptr + at, (x * 10).to(tl.int32))
    tl.atomic_add(total_ptr + at % 2, x)


def test_bf16_is_compared_negated_converted_and_added_by_value() -> None:
    x = (torch.arange(-32, 32, device="cuda") / 8).to(torch.bfloat16)
    out, whole = torch.empty_like(x), torch.empty(64, device="cuda", dtype=torch.int32)
    total = torch.zeros(2, device="cuda", dtype=torch.bfloat16)
    brain[(1,)](x, out, whole, total, BLOCK=64)
    close(out, torch.where(x < 0.5, -x, x) * x)
    close(whole, (x * 10).to(torch.int32))
    close(total, torch.stack([x[::2].sum(), x[1::2].sum()]))


@triton.jit
def product(a_ptr, b_ptr, out_ptr, k, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, k, BLOCK):
        a = tl.load(a_ptr + at[:, None] * k + start + at[None, :])
        b = tl.load(b_ptr + (start + at[:, None]) * BLOCK + at[None, :])
        total = tl.dot(a, b, total)
    tl.store(out_ptr + at[:, None] * BLOCK + at[None, :], total)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dots_in_a_loop_over_an_argument(dtype: torch.dtype) -> None:
    """The loop's bound is an array of one element, of which numpy 2.4 makes no integer any more (triton#9171)."""
    a, b = cuda(16, 64, dtype=dtype), cuda(64, 16, dtype=dtype)
    out = torch.empty(16, 16, device="cuda")
    product[(1,)](a, b, out, 64, BLOCK=16)
    close(out, a.float() @ b.float(), rtol=1e-5, atol=1e-4)


@triton.jit
def sums(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * cols + at, mask=at < cols, other=0.0)
    tl.store(out_ptr + tl.program_id(0) * 3, x.sum(axis=0))
    tl.store(out_ptr + tl.program_id(0) * 3 + 1, tl.max(x, axis=0))
    tl.store(out_ptr + tl.program_id(0) * 3 + 2, tl.sum(tl.where(at == 2, tl.cumsum(x, 0), 0.0), axis=0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_reductions_are_of_values(dtype: torch.dtype) -> None:
    """Of whole numbers, whose sums have no rounding: those of bfloat16 are rounded after each addition."""
    x = torch.randint(-2, 3, (5, 50), device="cuda").to(dtype)
    out = torch.empty(5, 3, device="cuda")
    sums[(5,)](x, out, 50, BLOCK=64)
    exact = x.float()
    assert out.equal(torch.stack([exact.sum(1), exact.amax(1), exact[:, :3].sum(1)], 1))


@triton.jit
def curves(x_ptr, out_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr + tl.arange(0, BLOCK), tanh(x) + libdevice.log1p(libdevice.exp(x)))


def test_libdevice_by_name_and_by_module() -> None:
    """Triton's own interpreter gets None from both."""
    x = cuda(64)
    out = torch.empty_like(x)
    curves[(1,)](x, out, BLOCK=64)
    close(out, torch.tanh(x) + torch.log1p(torch.exp(x)))


@triton.jit
def bessel(x_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(x_ptr + tl.arange(0, BLOCK), libdevice.j0(tl.load(x_ptr + tl.arange(0, BLOCK))))


@triton.jit
def assembly(x_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(x_ptr + tl.arange(0, BLOCK), x)


@triton.jit
def fp8_sum(x_ptr, out_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr + tl.arange(0, BLOCK), (x + x).to(tl.float32))


@gluon.jit
def in_gluon(x_ptr, BLOCK: gl.constexpr):  # type: ignore[no-untyped-def]
    gl.store(x_ptr, 1.0)


@pytest.mark.parametrize(
    ("kernel", "named"),
    [
        (bessel, "__nv_j0"),
        (assembly, "inline assembly"),
        (
            in_gluon,
            r"kernel in_gluon \(.*test_launches.py\) is written in Gluon, which only a GPU runs",
        ),
    ],
)
def test_what_no_cpu_runs_is_refused_by_name(kernel: Callable[..., None], named: str) -> None:
    with pytest.raises(InterpreterLimit, match=named):
        kernel[(1,)](cuda(16), BLOCK=16)  # type: ignore[index]


def test_fp8_arithmetic_is_refused() -> None:
    x = torch.zeros(16, device="cuda").to(torch.float8_e5m2)
    with pytest.raises(InterpreterLimit, match=r"^kernel fp8_sum \(.*\): arithmetic on f8E5M2 values: convert them"):
        fp8_sum[(1,)](x, torch.empty(16, device="cuda"), BLOCK=16)


@triton.jit
def scalars(out_ptr, eps, wide: tl.int64, one, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.static_assert(eps.dtype == tl.float32)
    tl.static_assert(wide.dtype == tl.int64)
    tl.store(out_ptr, (eps + 1.0).to(tl.float64))
    tl.store(out_ptr + 1, (wide * wide * one).to(tl.float64))


def test_scalars_have_the_types_that_the_compiler_is_told() -> None:
    out = torch.zeros(2, device="cuda", dtype=torch.float64)
    scalars[(1,)](out, 1e-8, 100_000, 1, BLOCK=16)
    assert out.tolist() == [1.0, 1e10]  # in float32 nothing is added; in int32 the product would wrap


@triton.jit
def unmasked(x_ptr, out_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at))


@triton.jit
def swapping(x_ptr):  # type: ignore[no-untyped-def]
    tl.atomic_cas(x_ptr + tl.arange(0, 16), tl.zeros((16,), tl.int32), tl.full((16,), 1, tl.int32))


def test_memory_outside_of_the_tensors_is_a_fault_of_the_kernel() -> None:
    with pytest.raises(KernelFault, match=r"kernel unmasked .*, program \(3, 0, 0\): it reads 28 elements of 4 bytes"):
        unmasked[(4,)](cuda(N), cuda(128), BLOCK=32)
    with pytest.raises(KernelFault, match="writes"):
        unmasked[(4,)](cuda(128), cuda(N), BLOCK=32)
    x = cuda(64, dtype=torch.bfloat16)
    with pytest.raises(KernelFault, match=r"kernel brain .*, program \(0, 0, 0\): it updates 32 elements of 2 bytes"):
        brain[(1,)](x, x.clone(), cuda(64), x[:1].clone(), BLOCK=64)
    with pytest.raises(KernelFault, match=r"kernel swapping .*: it updates 12 elements of 4 bytes"):
        swapping[(1,)](torch.zeros(4, device="cuda", dtype=torch.int32))


@triton.jit
def asserting(x_ptr):  # type: ignore[no-untyped-def]
    tl.static_assert(1 == 2, "one is not two")
    tl.store(x_ptr, 0.0)


@triton.jit
def calling(x_ptr):  # type: ignore[no-untyped-def]
    asserting(x_ptr)


@pytest.mark.parametrize("kernel", [asserting, calling])
def test_a_static_assertion_fails_the_launch(kernel: Any) -> None:
    with pytest.raises(AssertionError, match="one is not two"):
        kernel[(1,)](cuda(1))


@triton.jit
def misspelt(x_ptr):  # type: ignore[no-untyped-def]
    tl.store(x_ptr, tl.lode(x_ptr))  # type: ignore[attr-defined]


def test_what_does_not_compile_either_is_no_limit() -> None:
    with pytest.raises(CompileError, match="lode"):
        misspelt[(1,)](cuda(1))


def test_wrong_keywords_are_refused_as_on_a_gpu() -> None:
    with pytest.raises(ConfigError, match="BLOCKS"):
        axpy[(4,)](cuda(N), cuda(N), cuda(N), N, 1.0, BLOCK=32, BLOCKS=1)


def test_a_kernel_sees_the_names_around_it() -> None:
    factor = tl.constexpr(3)

    @triton.jit
    def scale(x_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.arange(0, BLOCK)
        tl.store(x_ptr + at, tl.load(x_ptr + at) * factor)

    x = torch.ones(16, device="cuda")
    scale[(1,)](x, BLOCK=16)
    assert x.tolist() == [3.0] * 16


def test_a_launch_that_would_take_too_long_is_refused_early() -> None:
    now = [0.0]
    watch = _TimeEstimate("kernel", (1000, 1, 1), lambda: now[0])
    watch.next()
    now[0] = 0.5
    watch.next()  # too early to tell
    now[0] = 1.5
    with pytest.raises(InterpreterLimit, match=r"1000 programs would take about 750 s .* smaller shapes"):
        watch.next()


def test_unwritten_memory_is_not_a_number() -> None:
    assert torch.empty(4, device="cuda").isnan().all()
    assert torch.empty_like(cuda(4)).isnan().all()
    assert not torch.zeros(4, device="cuda").isnan().any()


# what a launch returns


def test_a_launch_can_be_launched_again() -> None:
    x, y = cuda(N), cuda(N)
    first, second = torch.empty_like(x), torch.empty_like(x)
    compiled = axpy[(4,)](x, y, first, N, 2.0, BLOCK=32)
    compiled[(4, 1, 1)](x, y, second, N, 3.0, 32)
    close(first, x * 2 + y)
    close(second, x * 3 + y)


def test_a_launch_tells_what_a_compiler_knows() -> None:
    x = cuda(N)
    compiled = axpy[(4,)](x, x, torch.empty_like(x), N, 2.0, BLOCK=32, num_warps=2)
    assert compiled.n_regs > 0
    assert compiled.n_spills == 0
    assert compiled.metadata.num_warps == 2
    assert ".target sm_90a" in compiled.asm["ptx"]


def test_a_warm_up_launches_nothing_and_compiles(interpreter: Interpreter) -> None:
    compiled = axpy.warmup(torch.float32, torch.float32, torch.float32, N, 2.0, BLOCK=32, grid=(4,))
    assert interpreter.launched == 0
    assert "add.f32" in compiled.asm["ptx"] or "fma.rn.f32" in compiled.asm["ptx"]


def test_a_tuned_launch_returns_it_too() -> None:
    x, y = cuda(N), cuda(N)
    out = torch.empty_like(x)
    assert tuned_axpy[(7,)](x, y, out, N, 2.0).n_regs > 0


# constants of a module in arithmetic

SCALE = tl.constexpr(0.5)
LARGE = tl.constexpr(1000)
FEW = tl.constexpr(3)


class Constants:
    """A name space of constants."""

    SHIFT = tl.constexpr(2.0)


@triton.jit
def constants(x_ptr, out_ptr, LEAST: tl.constexpr = SCALE):  # type: ignore[no-untyped-def]
    at = tl.arange(0, 32)
    x = tl.load(x_ptr + at)
    y = SCALE * x + x * SCALE + (SCALE - x) + SCALE / (x * x + 1.0) + -SCALE * x
    y = tl.where(x > SCALE, y, LEAST + y)
    y = tl.where((x <= SCALE) | (at == LARGE), y + 1.0, y)
    tl.store(out_ptr + at, y + tl.where(LARGE // (at + 1) > FEW % (at + 1), 1.0, 2.0) + (FEW & at) + (1 + FEW) * 2)


def test_a_constant_on_the_left_of_a_tensor_is_a_number() -> None:
    x = cuda(32)
    out = torch.empty_like(x)
    constants[(1,)](x, out)
    at = torch.arange(32, device="cuda")
    y = 0.5 * x + x * 0.5 + (0.5 - x) + 0.5 / (x * x + 1) - 0.5 * x
    y = torch.where(x > 0.5, y, y + 0.5)
    y = torch.where(x <= 0.5, y + 1, y)
    close(out, y + torch.where(1000 // (at + 1) > 3 % (at + 1), 1.0, 2.0) + (3 & at) + 8)


def test_afterwards_constants_are_tritons_own() -> None:
    before = vars(tl.constexpr)["__mul__"]
    x = cuda(32)
    constants[(1,)](x, torch.empty_like(x))
    assert vars(tl.constexpr)["__mul__"] is before
    assert (SCALE * FEW).value == 1.5


# programs that never end


@triton.jit
def waits_for_the_last(lock_ptr, out_ptr, LAST: tl.constexpr):  # type: ignore[no-untyped-def]
    if tl.program_id(0) == LAST:
        tl.atomic_xchg(lock_ptr, 1)
    while tl.atomic_cas(lock_ptr, 1, 1) == 0:
        pass
    tl.store(out_ptr + tl.program_id(0), 1)


@pytest.fixture
def limited() -> Iterator[Interpreter]:
    """One that waits no longer than a second."""
    made = Interpreter(TYPICAL_DEVICES["cuda:90"], limit=1.0)
    with made.activate():
        yield made


def locks() -> tuple[torch.Tensor, torch.Tensor]:
    return (torch.zeros(n, device="cuda", dtype=torch.int32) for n in (1, 3))  # type: ignore[return-value]


def test_programs_wait_for_later_ones() -> None:
    lock, out = locks()
    waits_for_the_last[(3,)](lock, out, LAST=2)
    assert out.tolist() == [1, 1, 1]


@pytest.mark.parametrize("limit", [0.0, 60.0])
def test_what_ends_in_time_goes_on(interpreter: Interpreter, limit: float) -> None:
    interpreter._launches._limit = limit
    lock, out = locks()
    waits_for_the_last[(3,)](lock, out, LAST=0)
    assert out.tolist() == [1, 1, 1]


class TestNeverEnding:
    """In an interpreter of their own: the module's fixture is left for it."""

    @pytest.fixture
    def interpreter(self, limited: Interpreter) -> Interpreter:
        return limited

    @pytest.mark.slow
    def test_a_program_that_waits_in_vain_is_ended_by_name(self) -> None:
        lock, out = locks()
        with pytest.raises(KernelTimeout) as caught:
            waits_for_the_last[(3,)](lock, out, LAST=3)
        said = str(caught.value)
        line = waits_for_the_last.fn.__code__.co_firstlineno
        file, _, at = said.partition("(")[2].partition(")")[0].rpartition(":")
        assert said.startswith("kernel waits_for_the_last (")
        assert file == __file__
        assert line < int(at) <= line + 6
        assert " of grid (3, 1, 1). " in said
        assert "has not ended after 1 s in the interpreter, in program (" in said
        assert "The ini key kerntune_interpret_limit changes the limit" in said
        assert out.tolist() == [0, 0, 0]

    @pytest.mark.slow
    def test_the_next_launch_runs(self) -> None:
        lock, out = locks()
        with pytest.raises(KernelTimeout):
            waits_for_the_last[(3,)](lock, out, LAST=3)
        waits_for_the_last[(3,)](lock, out, LAST=0)
        assert out.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("elapsed", "done", "refused"), [(0.99, 1, False), (1.0, 1, True), (1.0, 50, False), (2.0, 100, False)]
)
def test_a_launch_may_take_twenty_seconds_as_far_as_can_be_told(elapsed: float, done: int, refused: bool) -> None:
    now = [5.0]
    watch = _TimeEstimate("kernel", (10, 50, 2), lambda: now[0])
    for _ in range(done):
        watch.next()
    now[0] += elapsed
    told = r"^kernel kernel: 1000 programs would take about 1000 s in the interpreter, more than 20 s; "
    with pytest.raises(InterpreterLimit, match=told) if refused else contextlib.nullcontext():
        watch.next()


# what only the compiler's own front end and its code can tell


@triton.jit
def racing(out_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(out_ptr + tl.arange(0, BLOCK), tl.program_id(0).to(tl.float32))


@triton.jit
def racing_elsewhere(x_desc, x_ptr, addresses_ptr, DESCRIPTOR: tl.constexpr):  # type: ignore[no-untyped-def]
    value = tl.full((16, 16), tl.program_id(0), tl.float32) + tl.load(x_ptr)
    if DESCRIPTOR:
        x_desc.store([0, 0], value)
    else:
        tl.store(tl.load(addresses_ptr).to(tl.pointer_type(tl.float32)), tl.program_id(0).to(tl.float32))


@pytest.mark.parametrize("described", [True, False])
def test_races_are_found_whatever_way_leads_to_a_tensor(described: bool) -> None:
    x, y, other = cuda(16, 16), cuda(16), cuda(16)
    numbers = torch.tensor([y.data_ptr()], device="cuda")
    name = "x_desc" if described else "another tensor"
    with pytest.raises(KernelFault, match=f"a race: program 1 writes byte 0 of the memory of {name}"):
        racing_elsewhere[(2,)](TensorDescriptor.from_tensor(x, [16, 16]), other, numbers, DESCRIPTOR=described)


@triton.jit
def copied(x_desc, out_ptr):  # type: ignore[no-untyped-def]
    tl.store(out_ptr + tl.arange(0, 16), x_desc.load([0]))


@pytest.mark.skipif(not hasattr(TensorDescriptor, "round_f32_to_tf32"), reason="Triton 3.7 has it first")
def test_a_descriptor_of_the_host_may_round() -> None:
    x, out = torch.full((16,), 1 + 3 * 2.0**-11, device="cuda"), torch.empty(16, device="cuda")
    for rounds, expected in ((True, 1 + 2.0**-9), (False, 1 + 3 * 2.0**-11)):
        copied[(1,)](TensorDescriptor(x, [16], [1], [16], round_f32_to_tf32=rounds), out)
        assert out.tolist() == [expected] * 16


def test_a_race_is_a_fault_that_names_the_argument() -> None:
    told = r"^kernel racing \(.*\), program \(1, 0, 0\): a race: program 1 writes byte 0 of the memory of out_ptr,"
    with pytest.raises(KernelFault, match=told):
        racing[(2,)](cuda(16), BLOCK=16)


def test_products_of_float32_are_as_exact_as_tensor_cores() -> None:
    a, b = cuda(16, 64), cuda(64, 16)
    out = torch.empty(16, 16, device="cuda")
    product[(1,)](a, b, out, 64, BLOCK=16)
    error = (out - a @ b).abs().max().item()
    assert 1e-4 < error < 0.1


@triton.jit
def by_numbers(addresses_ptr, out_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    x_ptr = tl.load(addresses_ptr + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + tl.program_id(0) * BLOCK + at, tl.load(x_ptr + at))


def test_a_kernel_follows_the_addresses_of_tensors_on_the_gpu() -> None:
    x, y, out = cuda(16), cuda(40), torch.empty(32, device="cuda")
    numbers = torch.tensor([x.data_ptr(), y[8:].data_ptr()], device="cuda")
    by_numbers[(2,)](numbers, out, BLOCK=16)
    assert out.tolist() == [*x.tolist(), *y[8:24].tolist()]
    numbers[1] += 4 * 24
    with pytest.raises(KernelFault, match=r"by_numbers .*: it reads 8 elements of 4 bytes outside of its tensors"):
        by_numbers[(2,)](numbers, out, BLOCK=16)


@triton.jit
def to_numbers(x_ptr, out_ptr):  # type: ignore[no-untyped-def]
    tl.store(out_ptr, x_ptr.to(tl.int64) % 16)
    tl.store(out_ptr + 1, (x_ptr + 3).to(tl.int64) - x_ptr.to(tl.int64))
    back_ptr = ((x_ptr + 1).to(tl.int64) + 4).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + 2, tl.load(back_ptr).to(tl.int64))


def test_an_address_may_become_a_number_and_one_again() -> None:
    x, out = torch.arange(16.0, device="cuda"), torch.zeros(3, device="cuda", dtype=torch.int64)
    to_numbers[(1,)](x[2:], out)
    assert out.tolist() == [8, 12, 4]


@triton.jit
def described(x_desc, out_desc, rows_ptr, more_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    out_desc.store([0, 0], x_desc.load([4, 8]) + 1)
    rows = tl.load(rows_ptr + tl.arange(0, BLOCK))
    one_ptr = tl.make_tensor_descriptor(more_ptr, [32, BLOCK], [BLOCK, 1], [1, BLOCK])
    one_ptr.scatter(one_ptr.gather(rows, 0) * 2, rows, 0)


@pytest.mark.parametrize("target", ["cuda:90", "cuda:80"])
def test_descriptors_of_the_host_and_of_the_kernel(interpreter: Interpreter, target: str) -> None:
    """For a GPU without tensor maps the compiler makes other parameters of them."""
    interpreter._launches._spec = TYPICAL_DEVICES[target]
    x, out, more = cuda(16, 32), torch.empty(16, 16, device="cuda"), cuda(32, 16)
    before, rows = more.clone(), torch.arange(0, 32, 2, device="cuda", dtype=torch.int32)
    padded = TensorDescriptor.from_tensor(x, [16, 16], padding="nan")
    described[(1,)](padded, TensorDescriptor.from_tensor(out, [16, 16]), rows, more, BLOCK=16)
    assert out[:12].equal(x[4:, 8:24] + 1)
    assert out[12:].isnan().all()
    before[::2] *= 2
    assert more.equal(before)


@triton.jit
def talking(x_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.device_print("x", x)
    tl.device_print("bits", x, hex=True)
    tl.device_print("both", x + 1, tl.program_id(0))
    tl.device_print("here")
    tl.device_assert(x < 250, "too large")


def test_a_kernel_prints(capsys: pytest.CaptureFixture[str]) -> None:
    talking[(1,)](torch.tensor([1, 200], device="cuda", dtype=torch.uint8), BLOCK=2)
    assert capsys.readouterr().out.splitlines() == [
        "(0, 0, 0) x: [  1 200]", "(0, 0, 0) bits: [0x1 0xc8]", "(0, 0, 0) both: [  2 201]", "(0, 0, 0) both: 0",
        "(0, 0, 0) here",
    ]  # fmt: skip


@triton.jit
def printing(x_ptr):  # type: ignore[no-untyped-def]
    tl.device_print("bits", tl.load(x_ptr), hex=True)


def test_bits_have_no_sign(capsys: pytest.CaptureFixture[str]) -> None:
    printing[(1,)](torch.tensor([-1], device="cuda", dtype=torch.int8))
    assert capsys.readouterr().out == "(0, 0, 0) bits: 0xff\n"


def test_an_assertion_counts_where_the_compiler_keeps_it() -> None:
    x = torch.tensor([1, 251], device="cuda", dtype=torch.uint8)
    talking[(1,)](x, BLOCK=2)
    with pytest.raises(KernelFault, match=r"^kernel talking .*: an assertion of its own fails .*: too large$"):
        talking[(1,)](x, BLOCK=2, debug=True)


@triton.jit
def scaled(a_ptr, a_scale_ptr, b_ptr, out_ptr, K: tl.constexpr):  # type: ignore[no-untyped-def]
    m, k, packed, group = tl.arange(0, 16), tl.arange(0, K), tl.arange(0, K // 2), tl.arange(0, K // 32)
    a = tl.load(a_ptr + m[:, None] * (K // 2) + packed[None, :])
    a_scale = tl.load(a_scale_ptr + m[:, None] * (K // 32) + group[None, :])
    b = tl.load(b_ptr + k[:, None] * 16 + m[None, :])
    total = tl.dot_scaled(a, a_scale, "e2m1", b, None, "bf16")
    tl.store(out_ptr + m[:, None] * 16 + m[None, :], total)


def test_products_with_scales() -> None:
    a = torch.randint(0, 256, (16, 32), device="cuda", dtype=torch.uint8)
    scale = torch.tensor([[127, 129]] * 16, device="cuda", dtype=torch.uint8)
    b, out = cuda(64, 16, dtype=torch.bfloat16), torch.empty(16, 16, device="cuda")
    scaled[(1,)](a, scale, b, out, K=64)
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    wide = numbers[torch.stack([a & 15, a >> 4], -1).reshape(16, 64).long().cpu()]
    wide[:, 32:] *= 4
    close(out.cpu(), wide @ b.float().cpu())


@triton.jit
def messages(flag_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        tl.atomic_poll(flag_ptr, 1)
        tl.store(out_ptr + at, tl.load(x_ptr + at) + tl.atomic_load(flag_ptr))
    else:
        tl.store(x_ptr + at, at)
        tl.debug_barrier()
        tl.atomic_store(flag_ptr, 1)


@pytest.mark.skipif(not hasattr(tl, "atomic_poll"), reason="Triton 3.9 has it first")
def test_programs_send_messages() -> None:
    flag, x, out = (torch.zeros(n, device="cuda", dtype=torch.int32) for n in (1, 16, 16))
    messages[(2,)](flag, x, out, BLOCK=16)
    assert out.tolist() == [*range(1, 17)]


@triton.jit
def rounding(x_ptr, out_ptr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, 2)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, x.to(tl.bfloat16))
    tl.store(out_ptr + 2 + at, x.to(tl.bfloat16, fp_downcast_rounding="rtz"))


def test_conversions_round_as_they_say() -> None:
    out = torch.zeros(4, device="cuda", dtype=torch.bfloat16)
    rounding[(1,)](torch.tensor([1 + 3 * 2.0**-8, -1 - 3 * 2.0**-8], device="cuda"), out)
    assert out.tolist() == [1 + 2.0**-6, -1 - 2.0**-6, 1 + 2.0**-7, -1 - 2.0**-7]


def test_a_kernel_is_lowered_once_for_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(launches, "lower", lambda request: asked.append(request) or lower(request))
    x, y = cuda(N), cuda(N)
    out = torch.empty_like(x)
    for factor in (2.0, 3.0):
        axpy[(4,)](x, y, out, N, factor, BLOCK=32)
        close(out, x * factor + y)
    axpy[(2,)](x, y, out, N, 3.0, BLOCK=64)
    assert len(asked) == 2
