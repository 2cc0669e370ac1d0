"""Installing and taking back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[[str], str]

SNAPSHOT = """
import torch._dynamo  # what stand-ins import anyway
from torch._subclasses.fake_tensor import FakeTensor
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

OWNERS = [
    torch, torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.graphs, torch.cuda.streams, torch.cuda.nvtx,
    torch.version, torch.accelerator, torch.autograd, torch.autograd.graph, torch.nn.Module, torch._C._nn, FakeTensor,
    torch.autograd.Function, torch.autograd.function.FunctionCtx,
    torch.Tensor, torch.library.Library, torch._subclasses.fake_tensor, JITFunction, Autotuner, triton.runtime.driver,
]

def snapshot():
    return [dict(vars(owner)) for owner in OWNERS]

def modes():
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
    lift = torch._C._only_lift_cpu_tensors()
    return [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack(), lift]

def assert_same(before, after):
    for owner, was, now in zip(OWNERS, before, after, strict=True):
        assert was.keys() == now.keys(), (owner, was.keys() ^ now.keys())
        assert not [name for name in was if was[name] is not now[name]], owner
"""


@pytest.mark.slow
def test_everything_is_taken_back(in_process: Run) -> None:
    in_process(
        SNAPSHOT
        + """
before, modes_before = snapshot(), modes()
for end in (None, ValueError("in a body"), KeyboardInterrupt()):
    try:
        with stand_ins().activate():
            assert torch.cuda.is_available() and modes() != modes_before
            K.Square.apply(torch.randn(8, device="cuda", requires_grad=True)).sum().backward()
            if end is not None:
                raise end
    except BaseException as caught:
        assert caught is end
    assert_same(before, snapshot())
    assert modes() == modes_before
"""
    )


@pytest.mark.slow
def test_torch_is_itself_again(in_process: Run) -> None:
    in_process("""
    with stand_ins().activate():
        kept = torch.randn(4, 4, device="cuda", requires_grad=True)
        module = torch.nn.Linear(4, 4)
        K.Square.apply(module(torch.randn(2, 4)).cuda()).sum().backward()
    assert not torch.cuda.is_available()
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]
    assert torch.nn.Linear(2, 2).half().weight.dtype == torch.half
    assert torch.randn(1 << 23).sum().item() != 0
    try:
        torch.randn(2, device="cuda")
    except (AssertionError, RuntimeError):
        pass
    else:
        raise AssertionError("torch without CUDA made a CUDA tensor")
    assert kept[1:].shape == (3, 4)
    del kept
    """)


def test_only_one_at_a_time(in_process: Run) -> None:
    in_process("""
    from kerntune.errors import UsageError
    s = stand_ins()
    with s.activate():
        for again in (s, stand_ins("cuda:80")):
            try:
                with again.activate():
                    raise AssertionError("entered twice")
            except UsageError as error:
                assert "active already" in str(error)
        assert torch.cuda.get_device_capability() == (9, 0)
    with stand_ins("cuda:80").activate():
        assert torch.cuda.get_device_capability() == (8, 0)
    with s.activate():
        assert torch.cuda.get_device_capability() == (9, 0)
    """)


def test_a_failing_installation_is_taken_back(in_process: Run) -> None:
    in_process(
        SNAPSHOT
        + """
s = stand_ins()
before, modes_before = snapshot(), modes()
def fail(*args): raise OSError("no")
s._install_modes = fail
try:
    with s.activate():
        raise AssertionError("unreachable")
except OSError:
    pass
assert_same(before, snapshot())
assert modes() == modes_before
with stand_ins().activate():
    assert torch.randn(1, device="cuda").is_cuda
"""
    )


def test_addresses(in_process: Run) -> None:
    in_process("""
    from torch._subclasses.fake_tensor import FakeTensor
    s = stand_ins()
    with s.activate():
        x = torch.randn(1 << 40, device="cuda", dtype=torch.float16)
        assert s.address(x) % 256 == 0
        assert s.address(x[1:]) == s.address(x) + 2 == x[1:].data_ptr()
        assert s.storage_address(x[1:]) == s.storage_address(x) == s.address(x)
        with s.specializing():
            assert FakeTensor.data_ptr(x[3:]) == s.address(x) + 6
        assert "data_ptr" not in vars(FakeTensor)
        real = torch.randn(4)
        assert s.address(real[1:]) == real.data_ptr() + 4
    """)


@pytest.mark.slow
def test_other_targets_answer_for_themselves(in_process: Run) -> None:
    in_process("""
    for name, capability, warp in (("cuda:75", (7, 5), 32), ("cuda:100", (10, 0), 32), ("hip:gfx942", (9, 4), 64)):
        with stand_ins(name).activate():
            target = triton.runtime.driver.active.get_current_target()
            assert f"{target.backend}:{target.arch}" == name and target.warp_size == warp
            assert torch.cuda.get_device_capability() == capability
            assert (torch.version.hip is not None) == name.startswith("hip")
            assert torch.cuda.is_bf16_supported() == (name != "cuda:75")
            x = torch.randn(1000, device="cuda")
            kernel = K.add_kernel.warmup(x, x, x, 1000, BLOCK=1024, grid=(1,))
            assert kernel.n_regs > 0 and kernel.n_max_threads >= 256 and kernel.metadata.target == target
    """)


@pytest.mark.slow
def test_threads_use_stand_ins_at_a_time(in_process: Run) -> None:
    """torch's own fake mode meets its assertions, or gives tensors on the device ``meta``."""
    in_process("""
    import sys, threading
    sys.setswitchinterval(1e-6)
    with stand_ins().activate():
        x, found = torch.empty(8, 4, device="cuda"), []

        def use():
            for _ in range(300):
                y = torch.empty_like(x).add_(x)[1:].sum(0)
                assert (y.device.type, y.shape, x.device.type, x.is_cuda) == ("cuda", (4,), "cuda", True)
            found.append(len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()))

        modes = len(torch.utils._python_dispatch._get_current_dispatch_mode_stack())
        threads = [threading.Thread(target=use) for _ in range(3)]
        for one in threads:
            one.start()
        use()
        for one in threads:
            one.join()
        assert sorted(found) == [0, 0, 0, modes], found
    """)
