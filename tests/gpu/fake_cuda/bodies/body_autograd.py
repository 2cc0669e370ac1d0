"""Forward and backward, and the kernels that a backward launches."""

import kernels as K
import pytest
import torch
from torch.utils.checkpoint import checkpoint


def leaf(*shape):
    return torch.randn(*shape, device="cuda", requires_grad=True)


def test_backward_kernel_is_launched_once():
    with K.launched() as names:
        x = leaf(1000)
        (K.Square.apply(x * 3) + 1).sum().backward()
        torch.testing.assert_close(x.grad, 18 * x.detach())
    assert names == ["square_kernel", "square_backward_kernel"]


def test_grad_of_inputs():
    with K.launched() as names:
        x, other = leaf(333), leaf(3)
        y = (K.Square.apply(x * 2) * torch.arange(333, device="cuda")).sum()
        assert torch.autograd.grad(y, [x])[0].shape == x.shape
    assert names == ["square_kernel", "square_backward_kernel"]
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad((x * 2).sum(), other)
    assert torch.autograd.grad((x * 2).sum(), other, allow_unused=True) == (None,)


def test_only_what_leads_to_a_wanted_gradient_runs():
    with K.launched() as names:
        x, other = leaf(8), leaf(8)
        torch.autograd.grad((K.Square.apply(x) + other * 2).sum(), other)
    assert names == ["square_kernel"]


def test_a_leaf_on_the_cpu():
    x = torch.randn(8, 8, requires_grad=True)
    K.Square.apply(x.cuda()).sum().backward()
    assert x.grad.device.type == "cpu"
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_real_autograd_stays_real():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_arguments_that_are_no_tensors():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, name, x, factor, weight):
            ctx.save_for_backward(x, weight)
            return x * weight

        @staticmethod
        def backward(ctx, gradient):
            x, weight = ctx.saved_tensors
            return None, gradient * weight, None, (gradient * x).sum(0)

    x, weight = leaf(5, 4), leaf(4)
    Scaled.apply("name", x, 2.0, weight).sum().backward()
    assert (x.grad.shape, weight.grad.shape) == ((5, 4), (4,))


class Many(torch.autograd.Function):
    """Returns every kind of output, and records the gradient that its backward gets for each."""

    materialize = True
    heard = None

    @staticmethod
    def forward(ctx, x):
        if not Many.materialize:
            ctx.set_materialize_grads(False)
        fixed, chosen = x * 3, (x > 0).sum(0)
        ctx.mark_non_differentiable(fixed)
        return x * 2, None, fixed, chosen, 7, x.sum(0).to(torch.float64)

    @staticmethod
    def backward(ctx, *gradients):
        Many.heard = [None if g is None else (tuple(g.shape), g.dtype) for g in gradients]
        return gradients[0]


@pytest.mark.parametrize("materialize", [True, False])
def test_backward_hears_what_torchs_engine_would_tell_it(materialize):
    Many.materialize = materialize
    told = []
    for device in ("cpu", "cuda"):
        x = torch.randn(5, 4, device=device, requires_grad=True)
        Many.apply(x)[0].sum().backward()
        assert x.grad.shape == (5, 4)
        told.append(Many.heard)
    assert told[0] == told[1]
    assert told[0][1] is None, "what is no tensor has no gradient"
    assert (told[0][5] is not None) is materialize


def test_an_output_of_one_that_is_no_tensor_among_views_and_inputs():
    class Through(torch.autograd.Function):
        heard = None

        @staticmethod
        def forward(ctx, x, y):
            return x, y[1:], None

        @staticmethod
        def backward(ctx, *gradients):
            Through.heard = [None if g is None else tuple(g.shape) for g in gradients]
            return gradients[0], None

    x, y = leaf(3), torch.randn(4, device="cuda")
    Through.apply(x, y)[0].sum().backward()
    assert Through.heard == [(3,), (3,), None]


def test_wrong_number_of_gradients_fails():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        Wrong.apply(leaf(3), leaf(3)).sum().backward()


def test_outputs_that_got_no_gradient_are_zeros():
    class Pair(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, first, second):
            assert second.shape == (4,)
            return first + second

    x = leaf(4)
    Pair.apply(x)[0].sum().backward()
    assert x.grad.shape == (4,)


def test_hooks():
    seen = []
    x = leaf(4)
    x.register_hook(lambda gradient: seen.append("x"))
    x.register_post_accumulate_grad_hook(lambda tensor: seen.append("after x"))
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda gradient: seen.append("y"))
    y.register_hook(lambda gradient: seen.append("removed")).remove()
    K.Square.apply(y).sum().backward()
    assert seen == ["y", "x", "after x"]
    assert y.grad.shape == (4,)


def test_second_order():
    x = leaf(4)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    assert first.requires_grad
    first.sum().backward()
    assert x.grad.shape == (4,)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_recomputes(reentrant):
    with K.launched() as names:
        checkpoint(K.Square.apply, leaf(8), use_reentrant=reentrant).sum().backward()
    assert names == ["square_kernel", "square_kernel", "square_backward_kernel"]


def test_func_grad_and_vmap():
    assert torch.func.grad(lambda x: (x * x).sum())(torch.randn(4, device="cuda")).shape == (4,)
    assert torch.func.vmap(lambda x: x.sum())(torch.randn(3, 4, device="cuda")).shape == (3,)


def test_modes_without_gradients():
    x = leaf(4)
    with torch.no_grad():
        assert not K.add(x, x).requires_grad
    with torch.inference_mode():
        assert K.add(torch.randn(4, device="cuda"), torch.randn(4, device="cuda")).shape == (4,)


def test_address_inside_backward():
    seen = []

    class Asks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            seen.append(gradient.contiguous().data_ptr())
            return gradient

    Asks.apply(leaf(4)).sum().backward()
    assert seen[0] > 0
    assert seen[0] % 256 == 0


def test_results_of_the_cpu_move_with_their_history():
    weight = torch.randn(4, 4, requires_grad=True)
    x = torch.randn(2, 4, device="cuda")
    (x @ (weight * 2).cuda()).sum().backward()
    assert weight.grad.shape == (4, 4)
