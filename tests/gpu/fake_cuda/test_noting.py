"""Which of a call's operators are alike is told by torch's cache of fake results, where that knows."""

from __future__ import annotations

from collections.abc import Callable

Run = Callable[[str], str]

LISTENER = """
import contextlib

class Listener:
    def __init__(self):
        self.noted = []

    def observe(self, func, args, kwargs, result, begun, alike=None):
        assert begun is None
        self.noted.append((str(func), alike))

@contextlib.contextmanager
def noting():
    active, listener = stand_ins(), Listener()
    with active.activate(), active.watch.to(listener):
        yield active, listener

aten = torch.ops.aten
"""


def test_operators_on_equal_layouts_are_alike(in_process: Run) -> None:
    """The first is computed. Another layout, operator, number or device is another call."""
    in_process(
        LISTENER
        + """
with noting() as (_, listener):
    a, b, c = (torch.empty(shape, device="cuda") for shape in ((8, 8), (8, 8), (8, 9)))
    calls = [
        lambda: a + b, lambda: b + a, lambda: a + a, lambda: c + c, lambda: a - b, lambda: a.t() + b, lambda: a + 1,
        lambda: a + 2, lambda: a.add_(b), lambda: a.exp(), lambda: torch.nn.functional.layer_norm(a, (8,)),
    ]
    for call in calls * 2:
        call()
found = {}
for name, alike in listener.noted:
    found.setdefault(name, []).append(alike)
adds = found["aten.add.Tensor"]
assert len(adds) == 14, found.keys()
first, second, twice, wider, transposed, number, other = adds[7:]
assert first is second is twice is adds[1] is adds[2]
assert adds[0] is None
assert len({id(x) for x in (first, wider, transposed, number, other)}) == 5
assert None not in (first, wider, transposed, number, other)
assert found["aten.sub.Tensor"][1] is not None and found["aten.sub.Tensor"][1] is not first
assert found["aten.exp.default"][0] is None and found["aten.exp.default"][1] is not None
"""
    )


def test_what_an_operator_consists_of_does_not_tell_what_it_is_like(in_process: Run) -> None:
    in_process(
        LISTENER
        + """
with noting() as (active, listener):
    x, y = torch.empty(8, device="cuda"), torch.empty(8, device="cuda")
    x.exp(), x.cos()
    listener.noted.clear()
    parts = {
        "itself": lambda f, a, k: f(x),
        "another": lambda f, a, k: x.cos(),
        "computed, then itself": lambda f, a, k: (torch.empty(11, device="cuda").exp(), f(x))[1],
        "another, then itself": lambda f, a, k: (x.cos(), f(x))[1],
        "another result": lambda f, a, k: (f(x), y)[1],
        "none": lambda f, a, k: None,
    }
    fake = active._placement._fake
    for work in parts.values():
        with fake:
            active.watch.run(aten.exp.default, (x,), {}, work)
found = dict(zip(parts, (alike for _, alike in listener.noted), strict=True))
assert [name for name, alike in found.items() if alike is not None] == ["itself"], found
"""
    )


def test_an_operator_that_is_computed_by_itself_is_not_like_that(in_process: Run) -> None:
    """A decomposition may call the operator again, for another layout."""
    in_process(
        LISTENER
        + """
from torch._subclasses.fake_tensor import FakeTensorMode

original = FakeTensorMode._dispatch_impl

def again(self, func, types, args, kwargs):
    if func is aten.exp.default and args[0].shape == (11,):
        with self:
            return func(x)
    return original(self, func, types, args, kwargs)

with noting() as (active, listener):
    x = torch.empty(8, device="cuda")
    x.exp(), x.exp()
    FakeTensorMode._dispatch_impl = again
    torch.empty(11, device="cuda").exp()
assert [alike is None for name, alike in listener.noted if "exp" in name] == [True, False, True]
"""
    )


def test_looks_at_tensors_call_no_mode_of_functions(in_process: Run) -> None:
    """In a backward pass the stand-ins' own mode is on, whose calls would take longer than the looks."""
    in_process(
        LISTENER
        + """
from kerntune.gpu.fake_cuda.modes import TorchFunctionHandlers

class Looking(Listener):
    def observe(self, func, args, kwargs, result, begun, alike=None):
        assert not isinstance(result, torch.Tensor) or result.untyped_storage() is not None
        super().observe(func, args, kwargs, result, begun, alike)

seen = []
original = TorchFunctionHandlers.__torch_function__

def counted(*args, **kwargs):
    seen[-1] += 1
    return original(*args, **kwargs)

def work():
    x = torch.empty(8, device="cuda", requires_grad=True)
    torch.autograd.grad(x.exp().sum(), x)

active, listener = stand_ins(), Looking()
with active.activate():
    TorchFunctionHandlers.__torch_function__ = counted
    for noted in (False, False, True):
        seen.append(0)
        with active.watch.to(listener) if noted else contextlib.nullcontext():
            work()
assert seen[1] == seen[2] > 0, seen
assert listener.noted[-1][0] == "aten.mul.Tensor" and listener.noted[-1][1] is not None, listener.noted
"""
    )


def test_operators_of_other_threads_are_told_of(in_process: Run) -> None:
    in_process(
        LISTENER
        + """
import threading
with noting() as (active, listener):
    x = torch.empty(8, device="cuda")
    for _ in range(2):
        thread = threading.Thread(target=lambda: x.exp())
        thread.start()
        thread.join()
        with active.watch.silent():
            x.exp()
names = [name for name, _ in listener.noted]
assert names.count("aten.exp.default") == 2, names
first, second = (alike for name, alike in listener.noted if "exp" in name)
assert first is None and second is not None
"""
    )
