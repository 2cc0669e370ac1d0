"""A user's test, from randn to assert_close, forward and backward."""

from __future__ import annotations

from collections.abc import Callable

Run = Callable[[str], str]


def test_softmax_forward(in_process: Run) -> None:
    in_process("""
    with stand_ins().activate(), K.launched() as names:
        x = torch.randn(65536, 65536, device="cuda")
        torch.testing.assert_close(K.softmax(x), torch.softmax(x, -1))
        assert names == ["softmax_kernel"]
    """)


def test_autograd_function_launches_its_backward_kernel(in_process: Run) -> None:
    in_process("""
    with stand_ins().activate(), K.launched() as names:
        x = torch.randn(1000, device="cuda", requires_grad=True)
        y = (K.Square.apply(x * 3) + 1).sum()
        y.backward()
        assert names == ["square_kernel", "square_backward_kernel"]
        assert x.grad.shape == x.shape and x.grad.device.type == "cuda"
        torch.testing.assert_close(x.grad, 18 * x.detach())
        assert names == ["square_kernel", "square_backward_kernel"]
    """)


def test_slices_lose_alignment_in_their_address(in_process: Run) -> None:
    in_process("""
    s = stand_ins()
    with s.activate():
        x = torch.randn(1 << 40, device="cuda", dtype=torch.float16)
        assert s.address(x) % 256 == 0
        assert s.address(x[1:]) == s.address(x) + 2 == x[1:].data_ptr()
        assert s.storage_address(x[1:]) == s.storage_address(x) == s.address(x)
        assert K.add(x[8:100], x[:92]).shape == (92,)
    """)
