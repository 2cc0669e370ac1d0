"""The real GPU: launches by the driver alone give what Triton's own launches give."""

import ctypes

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402  # after the skip

import kerntune  # noqa: E402
from kerntune.capture import Capture  # noqa: E402
from kerntune.capture.memory_plan import describe  # noqa: E402
from kerntune.capture.recorder import record  # noqa: E402
from kerntune.compiling.compiler import Compiler  # noqa: E402
from kerntune.errors import MeasurementError  # noqa: E402
from kerntune.gpu.cuda import CudaBackend  # noqa: E402
from kerntune.gpu.memory import Memory, make_source  # noqa: E402
from kerntune.gpu.program import Loader, Program  # noqa: E402
from kerntune.timing.timers import GraphSlot, event_slot  # noqa: E402
from kerntune.tuning.verification import Verifier, run_poisoned  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x * factor, mask=i < n)


@triton.jit
def double_in_place(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def copy_tiles(source, target, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    column = tl.program_id(1) * BLOCK
    target.store([row, column], source.load([row, column]))


@pytest.fixture(scope="module")
def backend():
    return CudaBackend()


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path))
    tuned_increment.cache.clear()


def captured(backend, fn):
    capture = Capture(backend, Compiler())
    with capture.active():
        value = fn()
    torch.cuda.synchronize()
    return value, record(capture)


def program_of(backend, recorded):
    memory = Memory(backend.gpu, recorded.recording.storages, recorded.sources)
    return Program(Loader(backend.gpu), recorded.recording, memory, recorded.artifacts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_a_replay_writes_what_triton_wrote(backend, dtype, offset):
    torch.manual_seed(0)
    x = torch.randn(10_003, device="cuda", dtype=dtype)[offset:]
    y = torch.zeros(10_003, device="cuda", dtype=dtype)[offset:]
    _, recorded = captured(backend, lambda: scale_kernel[(20,)](x, y, x.numel(), 1.7, BLOCK=512))
    assert torch.allclose(y.float(), x.float() * 1.7, rtol=1e-2, atol=1e-2)

    program = program_of(backend, recorded)
    program.enqueue()
    torch.cuda.synchronize()
    written = recorded.recording.launches[0].writes
    assert len(written) == 1
    assert backend.gpu.read(program.memory.buffer(0, written[0])) == backend.gpu.read(backend.gpu.borrow(y))


def test_users_tensors_stay_as_the_call_left_them(backend):
    x = torch.ones(4096, device="cuda")
    _, recorded = captured(backend, lambda: double_in_place[(8,)](x, 4096, BLOCK=512))
    program = program_of(backend, recorded)
    assert program.in_place == [0]
    for _ in range(3):
        program.enqueue()
    torch.cuda.synchronize()
    assert bool((x == 2).all())


def test_in_place_work_starts_from_its_first_content_each_time(backend):
    x = torch.ones(4096, device="cuda")
    _, recorded = captured(backend, lambda: double_in_place[(8,)](x, 4096, BLOCK=512))
    program = program_of(backend, recorded)
    for _ in range(2):
        run_poisoned(program, 0x7F, frozenset())
        assert backend.gpu.read(program.memory.buffer(0, 0)) == torch.full((4096,), 2.0).numpy().tobytes()
    assert Verifier(program).disagreement(program) is None
    program.enqueue()
    assert backend.gpu.read(program.memory.buffer(0, 0)) == torch.full((4096,), 2.0).numpy().tobytes()


def test_tensor_descriptors_are_encoded_as_triton_does(backend):
    from triton.tools.tensor_descriptor import TensorDescriptor

    x = torch.randn(256, 256, device="cuda", dtype=torch.float16)
    y = torch.zeros_like(x)

    def copy():
        copy_tiles[(4, 4)](
            TensorDescriptor.from_tensor(x, [64, 64]), TensorDescriptor.from_tensor(y, [64, 64]), BLOCK=64
        )

    _, recorded = captured(backend, copy)
    assert torch.equal(x, y)
    program = program_of(backend, recorded)
    program.enqueue()
    torch.cuda.synchronize()
    (written,) = recorded.recording.launches[0].writes
    assert backend.gpu.read(program.memory.buffer(0, written)) == backend.gpu.read(backend.gpu.borrow(x))


def test_the_drivers_figures_are_the_static_ones(backend):
    from kerntune.gate.static_figures import launch_statics

    x = torch.randn(4096, device="cuda")
    _, recorded = captured(backend, lambda: scale_kernel[(8,)](x, x, 4096, 2.0, BLOCK=512))
    (entry,) = launch_statics(recorded, backend.spec)
    (function,) = program_of(backend, recorded).functions
    assert function.registers == entry.metrics.registers


def test_both_timers_agree_on_a_long_kernel(backend):
    x, y = torch.randn(1 << 26, device="cuda"), torch.empty(1 << 26, device="cuda")
    _, recorded = captured(backend, lambda: scale_kernel[((1 << 26) // 1024,)](x, y, 1 << 26, 2.0, BLOCK=1024))
    program = program_of(backend, recorded)
    events, graph = event_slot(program, 10), GraphSlot(program, 2, 10)
    for slot in (events, graph):
        slot.enqueue()()
    assert events.enqueue()() == pytest.approx(graph.enqueue()(), rel=0.1)


def test_a_stored_recording_runs_from_its_description_alone(backend):
    x, y = torch.randn(4096, device="cuda"), torch.empty(4096, device="cuda")
    _, recorded = captured(backend, lambda: scale_kernel[(8,)](x, y, 4096, 3.0, BLOCK=512))
    storages, contents = describe(recorded.recording.storages, recorded.sources, backend)
    sources = [make_source(backend.gpu, s, contents.get(getattr(s.content, "sha256", ""))) for s in storages]
    memory = Memory(backend.gpu, storages, sources)
    program = Program(Loader(backend.gpu), recorded.recording, memory, recorded.artifacts)
    program.enqueue()
    read = [torch.frombuffer(bytearray(backend.gpu.read(memory.buffer(0, i))), dtype=torch.float32) for i in (0, 1)]
    assert torch.allclose(read[1], read[0] * 3)
    assert read[0].std() > 0.5


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        scale_kernel[(8,)](x, y, x.numel(), 2.0, BLOCK=512)
        return y

    @staticmethod
    def backward(ctx, gradient):
        out = torch.empty_like(gradient)
        scale_kernel[(8,)](gradient.contiguous(), out, gradient.numel(), 2.0, BLOCK=512)
        return out


def test_a_capture_finds_launches_on_autograds_thread(backend):
    x = torch.randn(4096, device="cuda", requires_grad=True)
    _, recorded = captured(backend, lambda: Double.apply(x).sum().backward())
    assert len(recorded.recording.launches) == 2


@kerntune.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=w) for b in (256, 1024) for w in (2, 4)], key=["n"])
@triton.jit
def tuned_increment(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)


def increment(x):
    tuned_increment[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x.numel())


def test_the_library_tunes_and_leaves_what_one_launch_leaves(backend, tmp_path):
    x = torch.zeros(100_003, device="cuda")
    increment(x)
    assert bool((x == 1).all())
    assert tuned_increment.best_config in tuned_increment.configs
    assert len(tuned_increment.configs_timings) > 1
    increment(x)
    assert bool((x == 2).all())
    assert len(list(tmp_path.glob("winners/*/*/*.json"))) == 1


def test_a_stored_winner_is_used_in_the_next_process(backend):
    x = torch.zeros(5000, device="cuda")
    increment(x)
    first = tuned_increment.best_config
    tuned_increment.cache.clear()
    tuned_increment.configs_timings = None
    increment(x)
    assert tuned_increment.best_config is first
    assert len(tuned_increment.configs_timings) == 1, "nothing was raced again"
    assert bool((x == 2).all())


def test_tuning_inside_a_graph_capture_is_refused(backend):
    x = torch.zeros(7000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(MeasurementError, match="captured"):
            increment(x)
        x.add_(1)  # the refusal leaves the capture usable
    graph.replay()
    assert bool((x == 1).all())


@torch.library.custom_op("kerntune_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    scale_kernel[(8,)](x, y, x.numel(), 2.0, BLOCK=512)
    return y


@torch.library.triton_op("kerntune_tests::scaled_by_triton", mutates_args=())
def scaled_by_triton(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    torch.library.wrap_triton(scale_kernel)[(8,)](x, y, x.numel(), 2.0, BLOCK=512)
    return y


@pytest.mark.parametrize("op", [scaled, scaled_by_triton])
def test_custom_ops_are_captured(backend, op):
    x = torch.randn(4096, device="cuda")
    value, recorded = captured(backend, lambda: op(x))
    assert torch.equal(value, x * 2)
    assert [launch.kernel for launch in recorded.recording.launches] == ["scale_kernel"]


def test_a_thread_that_has_touched_no_device_can_ask_for_memory(backend):
    import threading

    found = []

    def work():
        found.append(backend.gpu.free_bytes())
        found.append(backend.gpu.allocate(1 << 20).nbytes)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0] > 0
    assert found[1] == 1 << 20


def test_a_backward_that_begins_with_a_launch_is_captured(backend):
    """Autograd's thread has called nothing of CUDA before it."""
    x = torch.randn(1000, device="cuda", requires_grad=True)
    gradient = torch.ones_like(x)
    _, recorded = captured(backend, lambda: torch.autograd.backward(Double.apply(x), gradient))
    assert [launch.kernel for launch in recorded.recording.launches] == ["scale_kernel"] * 2
    assert torch.equal(x.grad, torch.full_like(x, 2.0))


def test_a_kept_compiled_kernel_that_is_launched_again_is_captured(backend):
    """As wrappers with a kernel cache of their own do: past ``JITFunction.run``, all parameters by position."""
    x = torch.randn(1 << 12, device="cuda")
    y = torch.empty_like(x)
    kept = scale_kernel[(4,)](x, y, x.numel(), 3.0, BLOCK=1024, num_warps=8)
    y.zero_()
    _, recorded = captured(backend, lambda: kept[(4, 1, 1)](x, y, x.numel(), 3.0, 1024))
    assert [(launch.kernel, launch.grid) for launch in recorded.recording.launches] == [("scale_kernel", (4, 1, 1))]
    assert recorded.recording.binaries[0].num_warps == 8
    assert torch.equal(y, x * 3.0)


@triton.jit
def add_by_table(table, n, BLOCK: tl.constexpr):
    target = tl.load(table + tl.program_id(1)).to(tl.pointer_type(tl.float32))
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + i, tl.load(target + i, mask=i < n) + 1.0, mask=i < n)


GROUPS, LENGTH = 5, 100_003
BLOCKS = [triton.Config({"BLOCK": b}) for b in (256, 512, 1024, 2048)]


def by_group(meta):
    return (triton.cdiv(LENGTH, meta["BLOCK"]), GROUPS)


def table_of():
    """Tensors of which one is a slice, and a table of where they begin."""
    whole = torch.arange(2 * LENGTH, device="cuda", dtype=torch.float32)
    targets = [torch.arange(LENGTH, device="cuda", dtype=torch.float32) for _ in range(GROUPS - 1)] + [whole[LENGTH:]]
    return torch.tensor([t.data_ptr() for t in targets], device="cuda"), targets, whole


def assert_added(targets, whole, times):
    counted = torch.arange(LENGTH, device="cuda", dtype=torch.float32)
    for target in targets[:-1]:
        assert torch.equal(target, counted + times)
    assert torch.equal(whole[LENGTH:], torch.arange(LENGTH, 2 * LENGTH, device="cuda", dtype=torch.float32) + times)
    assert torch.equal(whole[:LENGTH], counted)


FOLLOWS = "ignore:kernel add_by_table. first launches ran in this process. it follows addresses:RuntimeWarning"
"""Said of every kernel that does: its first launches have no process of their own."""


@pytest.mark.filterwarnings(FOLLOWS)
def test_memory_that_a_kernel_finds_by_a_table_is_what_one_launch_leaves():
    kernel = kerntune.autotune(BLOCKS, key=["n"], verify="all")(add_by_table)
    table, targets, whole = table_of()
    kernel[by_group](table, LENGTH)
    torch.cuda.synchronize()
    assert_added(targets, whole, 1)
    assert sum(t[0] != float("inf") for t in kernel.configs_timings.values()) == len(BLOCKS), "raced, and right"
    kernel[by_group](table, LENGTH)
    torch.cuda.synchronize()
    assert_added(targets, whole, 2)


def test_memory_that_no_tensor_holds_is_not_raced_on(backend):
    """Of the driver's own allocator, as another library's would be."""
    mine = backend.gpu.allocate(4 * LENGTH)
    backend.gpu.fill(mine, 0)
    assert backend.gpu.reaches(mine.address)
    assert not backend.gpu.reaches(1 << 40)
    kernel = kerntune.autotune(BLOCKS, key=["n"])(add_by_table)
    table = torch.tensor([mine.address], device="cuda")
    with pytest.warns(RuntimeWarning, match="lies in memory of no tensor that Python knows"):
        kernel[lambda meta: (triton.cdiv(LENGTH, meta["BLOCK"]), 1)](table, LENGTH)
    assert backend.gpu.read(mine) == torch.ones(LENGTH).numpy().tobytes()
    assert kernel.best_config.kwargs == {"BLOCK": 256}


def test_the_gate_leaves_what_a_call_by_a_table_left(tmp_path):
    from kerntune.base.policy import Verdict
    from kerntune.gate.api import Call, Settings, open_session

    table, targets, whole = table_of()
    tuned = triton.autotune(BLOCKS, key=["n"])(add_by_table)
    calls = [lambda t: tuned[by_group](t, LENGTH)]
    calls += [lambda t, b=b: add_by_table[by_group({"BLOCK": b})](t, LENGTH, BLOCK=b) for b in (128, 512)]
    session = open_session(Settings(tmp_path, tmp_path / "baselines", cache_dir=tmp_path / "cache"))
    session.start()
    try:
        results = []
        for done, fn in enumerate([*calls, calls[-1]], start=1):
            checked = session.check(Call("tests/test_table.py::test_table", "0", fn, (table,)))
            assert_added(targets, whole, done)
            results.append(checked.commit() if done == 1 else checked.result)
    finally:
        session.close()
    assert results[0].verdict is Verdict.NEW
    assert len(results[0].trials) == len(BLOCKS)
    assert all(r.rung in ("paired replay", "identity") for r in results[1:]), "whatever times of 10 us by events say"


def test_an_empty_grid_is_not_tuned():
    kernel = kerntune.autotune(BLOCKS, key=["n"])(add_by_table)
    table, targets, whole = table_of()
    kernel[lambda meta: (0, GROUPS)](table, LENGTH)
    assert kernel.cache == {}
    with pytest.warns(RuntimeWarning, match="first launches ran in this process: it follows addresses"):
        kernel[by_group](table, LENGTH)
    torch.cuda.synchronize()
    assert_added(targets, whole, 1)
    assert len(kernel.cache) == 1


def test_the_driver_says_whether_the_device_has_come_to_an_event(backend):
    gpu = backend.gpu
    for _ in range(50):
        gpu.flush_l2()
    event = gpu.event()
    assert not gpu.reached(event), "50 flushes take longer than asking"
    gpu.synchronize()
    assert gpu.reached(event)


@triton.jit
def sum_parts(x_ptr, y_ptr, n, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    """Rows' sums; a row's parts are added up where it is split."""
    row, part = tl.program_id(0), tl.program_id(1)
    size = n // SPLIT
    total = 0.0
    for begin in range(0, size, BLOCK):
        total += tl.sum(tl.load(x_ptr + row * n + part * size + begin + tl.arange(0, BLOCK)))
    if SPLIT == 1:
        tl.store(y_ptr + row, total)
    else:
        tl.atomic_add(y_ptr + row, total)


@pytest.mark.parametrize("order", [1, -1])
def test_configs_whose_hooks_zero_an_output_race_beside_plain_ones(order):
    def zero(named):
        named["y_ptr"].zero_()

    plain = [triton.Config({"SPLIT": 1, "BLOCK": 1024})]
    split = [triton.Config({"SPLIT": s, "BLOCK": 1024}, pre_hook=zero) for s in (4, 16)]
    kernel = kerntune.autotune([*plain, *split][::order], key=["n"], verify="all")(sum_parts)
    x = torch.randn(16, 1 << 16, device="cuda")
    y = torch.full((16,), 1e6, device="cuda")
    kernel[lambda meta: (16, meta["SPLIT"])](x, y, 1 << 16)
    torch.testing.assert_close(y, x.sum(1), atol=2e-2, rtol=2e-3)
    assert kernel.best_config.kwargs["SPLIT"] > 1, "16 programs leave most of a GPU idle"
    assert len(kernel.configs_timings) == 3


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_second_gpu_has_its_own_memory_and_is_current_only_while_it_is_used() -> None:
    first = CudaBackend(0)
    second = first.on(1)
    assert second is first.on(1)
    assert second.spec.uuid != first.spec.uuid
    assert torch.cuda.current_device() == 0
    free = second.gpu.free_bytes()
    with second.gpu.entered():
        assert torch.cuda.current_device() == 1
        kept = second.gpu.allocate(256 << 20)
        second.gpu.fill(kept, 7)
        assert second.gpu.read(kept, 4) == b"\x07" * 4
    second.gpu.synchronize()
    assert torch.cuda.current_device() == 0
    assert second.gpu.free_bytes() <= free - (200 << 20)
    assert first.gpu.environment().device == first.spec.name


def test_a_device_is_idle_when_its_work_has_ended(backend):
    """Also on streams that are not known here, as those of collectives."""
    gpu, stream = backend.gpu, torch.cuda.Stream()
    torch.cuda.synchronize()
    assert gpu.idle(10.0)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(2_000_000_000)  # cycles: about a second
    assert not gpu.idle(0.01)
    assert not gpu.idle(0.01)
    assert gpu.idle(60.0)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1_000_000_000)
    assert not gpu.idle(0.01), "an earlier answer says nothing of later work"
    torch.cuda.synchronize()


def test_calls_of_one_graph_have_memory_of_their_own(backend):
    """Results and temporaries, as far as there are streams; each call sees what the one before has left."""
    total, places = torch.zeros(1 << 18, device="cuda"), []

    def call():
        temporary = total * 2
        places.append(temporary.data_ptr())
        total.add_(1)
        return temporary + 1

    call()
    torch.cuda.synchronize()
    total.zero_()
    del places[:]
    graph = backend.gpu.call_graph(*[call] * 8)
    assert len(set(places)) == 8
    graph.replay()
    torch.cuda.synchronize()
    assert total.unique().tolist() == [8.0]


def test_calls_of_one_graph_wait_for_two_others_at_most(backend):
    """The one before, and the last one of the same stream."""
    kept, count, x = torch.cuda.CUDAGraph(keep_graph=True), ctypes.c_size_t(), torch.zeros(1000, device="cuda")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "CUDAGraph", lambda: kept)
        backend.gpu.call_graph(*[lambda: x.add_(1)] * 40)
    raw = ctypes.c_void_p(kept.raw_cuda_graph())
    assert ctypes.CDLL("libcuda.so.1").cuGraphGetEdges(raw, None, None, ctypes.byref(count)) == 0
    assert 39 <= count.value <= 2 * 39
    kept.replay()
    torch.cuda.synchronize()
    assert x.unique().tolist() == [40.0]


def test_persisting_lines_can_be_reset(backend):
    x = torch.zeros(1000, device="cuda")
    backend.gpu.reset_persisting_l2()
    assert x.add(1).sum().item() == 1000
