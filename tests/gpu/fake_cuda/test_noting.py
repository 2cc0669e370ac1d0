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
        self.noted.append((str(func), alike, result))

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
for name, alike, _ in listener.noted:
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
found = dict(zip(parts, (alike for _, alike, _ in listener.noted), strict=True))
assert [name for name, alike in found.items() if alike is not None] == ["itself"], found
"""
    )


def test_a_mode_of_users_does_not_see_looks_at_tensors(in_process: Run) -> None:
    in_process(
        LISTENER
        + """
from torch.overrides import TorchFunctionMode

class Users(TorchFunctionMode):
    seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))

class Looking(Listener):
    def observe(self, func, args, kwargs, result, begun, alike=None):
        assert result.untyped_storage() is not None
        super().observe(func, args, kwargs, result, begun, alike)

active, listener = stand_ins(), Looking()
with active.activate():
    x = torch.empty(8, device="cuda")
    seen = []
    for noted in (False, False, True):
        Users.seen = []
        with Users(), active.watch.to(listener) if noted else contextlib.nullcontext():
            aten.exp.default(x)
            x.cos()
        seen.append(Users.seen)
    assert seen[1] == seen[2], seen
assert [alike is not None for _, alike, _ in listener.noted] == [True, True]
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
names = [name for name, _, _ in listener.noted]
assert names.count("aten.exp.default") == 2, names
first, second = (alike for name, alike, _ in listener.noted if "exp" in name)
assert first is None and second is not None
"""
    )
