"""What is known of small integers, and when it stops being known."""

import kernels as K
import pytest
import torch

from kerntune.gpu.fake_cuda import static_reason


def assert_ends(question):
    with pytest.raises(Exception) as caught:  # noqa: PT011  the reason is what counts
        question()
    assert static_reason(caught.value)


def test_labels_lengths_and_masks():
    labels = torch.randint(0, 10, (100,), device="cuda")
    labels[:5] = -100
    assert (labels == -100).sum().item() == 5
    assert (labels == -100).nonzero()[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert labels[labels == -100].shape == (5,)
    assert labels.is_cuda
    ends = torch.tensor([0, 100, 500, 1024], device="cuda", dtype=torch.int32)
    assert ends.diff().tolist() == [100, 400, 524]
    assert int(ends[1:].sub(ends[:-1]).max()) == 524
    assert ends.cpu().numpy().tolist() == [0, 100, 500, 1024]
    assert torch.repeat_interleave(torch.arange(3, device="cuda"), ends.diff()).shape == (1024,)
    assert torch.tensor(0.5, device="cuda").item() == 0.5


def test_a_known_mask_selects_from_unknown_values():
    mask = torch.ones(100, dtype=torch.bool, device="cuda")
    mask[3] = False
    x = torch.randn(100, 7, device="cuda", requires_grad=True)
    assert x[mask].shape == (99, 7)
    x[mask].sum().backward()
    assert x.grad.shape == (100, 7)
    assert_ends(lambda: x[mask][0, 0].item())


def test_comparisons_of_known_values_are_real():
    a = torch.arange(4, device="cuda")
    assert torch.equal(a, a)
    differs = torch.equal(a, a + 1)
    assert differs is False
    some = bool((a > 2).any())
    every = bool((a > 2).all())
    assert (some, every) == (True, False)
    with pytest.raises(AssertionError, match="not equal"):
        torch.testing.assert_close(a, a + 1)


def test_writes_through_views_are_followed():
    a = torch.zeros(4, dtype=torch.int64, device="cuda")
    a[1:3].fill_(7)
    a.add_(1)
    assert a.tolist() == [1, 8, 8, 1]
    copied = a.clone()
    a.copy_(torch.randn(4, device="cuda"))
    assert_ends(a.tolist)
    assert copied.tolist() == [1, 8, 8, 1]


def test_a_launch_may_write_what_it_is_given():
    x, y, out = (torch.zeros(8, dtype=torch.int32, device="cuda") for _ in range(3))
    beside = torch.arange(8, device="cuda")
    assert out.sum().item() == 0
    K.add_kernel[(1,)](x, y, out[4:], 4, BLOCK=4)
    assert_ends(lambda: out.sum().item())
    assert_ends(lambda: out[:4].tolist())
    assert beside.tolist() == list(range(8))
    assert (x.tolist(), y.tolist()) == ([0] * 8, [0] * 8), "which the kernel only reads"


def test_a_launch_that_is_only_compiled_writes_nothing():
    out = torch.zeros(8, dtype=torch.int32, device="cuda")
    K.add_kernel.warmup(out, out, out, 8, BLOCK=8, grid=(1,))
    assert out.tolist() == [0] * 8


def test_a_kernel_that_can_not_be_compiled_may_write_all_that_it_is_given():
    x = torch.zeros(8, dtype=torch.int32, device="cuda")
    K.broken_kernel[(1,)](x, BLOCK=8)
    assert_ends(x.tolist)


def test_what_a_kernel_reads_through_a_descriptor_stays_known():
    read, written = (torch.zeros(8, 16, dtype=torch.int32, device="cuda") for _ in range(2))
    K.copy_descriptor_kernel[(1,)](K.descriptor(read), K.descriptor(written))
    assert read.sum().item() == 0
    assert_ends(lambda: written.sum().item())


def test_a_kernel_that_writes_by_a_number_may_write_all_that_it_is_given():
    at = torch.zeros(8, dtype=torch.int64, device="cuda")
    K.by_number_kernel[(1,)](at)
    assert_ends(at.tolist)


def test_an_address_gives_the_values_up():
    a = torch.arange(8, device="cuda")
    assert a[1:].data_ptr() % 16 == 8
    assert_ends(lambda: a[0].item())


def test_what_is_made_like_an_unknown_tensor_is_known():
    x = torch.randn(8, 2, device="cuda")
    assert torch.ones_like(x.sum()).item() == 1.0
    assert torch.zeros_like(x, dtype=torch.int32).tolist() == [[0, 0]] * 8
    assert x.new_full((3,), 7, dtype=torch.int64).sum().item() == 21
    assert_ends(lambda: torch.ones_like(x).sum().item())  # real-valued, and more than one
    assert_ends(lambda: torch.empty_like(x, dtype=torch.int32)[0, 0].item())
    assert_ends(lambda: torch.zeros(1 << 17, device="cuda", dtype=torch.int32).new_zeros(1 << 17)[0].item())


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_a_backward_pass_that_asks_for_its_gradient_hears_it(factor):
    class Asking(torch.autograd.Function):
        heard = None

        @staticmethod
        def forward(ctx, x):
            return x.sum()

        @staticmethod
        def backward(ctx, grad):
            Asking.heard = (bool(torch.ne(grad, torch.tensor(1.0, device=grad.device))), grad.item())
            return grad.expand(4)

    loss = Asking.apply(torch.randn(4, device="cuda", requires_grad=True)) * factor
    loss.backward()
    assert Asking.heard == (factor != 1.0, factor)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(4, dtype=torch.int64, device="cuda"),
        lambda: torch.randn(4, device="cuda").long(),
        lambda: torch.randn(4, device="cuda"),
        lambda: torch.zeros(4, device="cuda"),
        lambda: torch.arange(1 << 30, device="cuda")[:4],
        lambda: torch.ones(4, device="cuda").argmax(),
    ],
    ids=["empty", "from floats", "random", "zeros", "large", "of floats"],
)
def test_nothing_else_is_known(make):
    assert_ends(lambda: make().sum().item())


def test_large_outcomes_are_not_computed():
    a = torch.arange(1 << 16, device="cuda")
    assert (a[:, None] == a[None]).shape == (1 << 16, 1 << 16)
