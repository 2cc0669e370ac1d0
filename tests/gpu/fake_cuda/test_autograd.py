"""The small engine against torch's own, on real tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.gpu.fake_cuda.autograd import Backward, install_functions, leading_to, sources_of
from kerntune.gpu.fake_cuda.modes import Watch

OPERATIONS = {
    "add": torch.add,
    "multiply": torch.mul,
    "matmul": torch.matmul,
    "broadcast": lambda a, b: a + b.sum(0, keepdim=True),
    "normalize": lambda a, b: torch.softmax(a, -1) * b,
    "split": lambda a, b: torch.cat([*torch.chunk(a, 2), b[:1]])[:3],
    "unused part": lambda a, b: torch.max(a, 0).values + b,
    "cast": lambda a, b: (a.float() * 2).double() + b,
}
STEP = st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 9), st.integers(0, 9))
STEPS = st.lists(STEP, min_size=1, max_size=8)
unhurried = settings(deadline=None, max_examples=50)


def computed(steps: Sequence[tuple[str, int, int]]) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Three leaves, and what the steps make of them; each step takes two of what is there."""
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(3, 3, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(3)]
    values = list(leaves)
    for name, left, right in steps:
        values.append(OPERATIONS[name](values[left % len(values)], values[right % len(values)]))
    return leaves, values[-1]


@pytest.mark.slow
@unhurried
@given(STEPS)
def test_gradients_equal_torchs(steps: list[tuple[str, int, int]]) -> None:
    leaves, result = computed(steps)
    start = torch.ones_like(result)
    expected = torch.autograd.grad(result, leaves, start, retain_graph=True, allow_unused=True)
    found = Backward([result], leaves, accumulate=False, create_graph=False, watch=Watch()).run([start])
    torch.testing.assert_close(found, expected)


@pytest.mark.slow
@unhurried
@given(STEPS)
def test_accumulated_gradients_equal_torchs(steps: list[tuple[str, int, int]]) -> None:
    leaves, result = computed(steps)
    result.backward(torch.ones_like(result), retain_graph=True)
    expected = [None if leaf.grad is None else leaf.grad * 2 for leaf in leaves]
    Backward([result], (), accumulate=True, create_graph=False, watch=Watch()).run([torch.ones_like(result)])
    torch.testing.assert_close([leaf.grad for leaf in leaves], expected)


@unhurried
@given(STEPS)
def test_nodes_run_only_towards_what_is_wanted(steps: list[tuple[str, int, int]]) -> None:
    leaves, result = computed(steps)
    sources = sources_of([torch.autograd.graph.get_gradient_edge(result).node])
    target = torch.autograd.graph.get_gradient_edge(leaves[0]).node
    for node in leading_to([target], sources):
        assert target in sources_of([node])


def test_second_order_equals_torchs() -> None:
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    (first,) = Backward([(x**3).sum()], [x], accumulate=False, create_graph=True, watch=Watch()).run(
        [torch.tensor(1.0)]
    )
    torch.testing.assert_close(torch.autograd.grad(first.sum(), x)[0], 6 * x.detach())


def test_a_gradient_of_the_wrong_shape_fails() -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            return gradient.new_zeros(7)

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="size"):
        Backward([Wrong.apply(x)], [x], accumulate=False, create_graph=False, watch=Watch()).run([torch.ones(3)])


def python_apply(cls: Any, *args: Any) -> Any:
    """``Function.apply`` of torch 2.11 to 2.13."""
    return torch._C._FunctionBase.__dict__["apply"].__get__(None, cls)(*args)


@pytest.mark.parametrize("apply", [classmethod(python_apply), torch._C._FunctionBase.__dict__["apply"]])
def test_functions_are_recorded_whatever_kind_of_method_apply_is(apply: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.14 made it C's: a class method without a Python function."""
    found: list[Any] = []

    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3, len(x)

        @staticmethod
        def backward(ctx, first, second, count):
            found.append((first, second, count))
            return first * 2 + second * 3

    monkeypatch.setattr(torch.autograd.Function, "apply", apply)
    x = torch.ones(3, requires_grad=True)
    with contextlib.ExitStack() as stack:
        install_functions(stack)
        _, second, count = Two.apply(x)
        (gradient,) = Backward([second], [x], accumulate=False, create_graph=False, watch=Watch()).run([torch.ones(3)])
    assert count == 3
    torch.testing.assert_close(gradient, torch.full((3,), 3.0))
    torch.testing.assert_close(found[0][:2], (torch.zeros(3), torch.ones(3)))
    assert found[0][2] is None
    assert vars(torch.autograd.Function)["apply"] is apply
