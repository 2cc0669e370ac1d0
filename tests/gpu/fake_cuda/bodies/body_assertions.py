"""Comparisons of stand-ins: values pass, metadata decides."""

import pytest
import torch

X = torch.randn(4, 4, device="cuda")


def test_values_pass():
    y = X * 2
    torch.testing.assert_close(X, y)
    torch.testing.assert_close([X, y], [y, X])
    torch.testing.assert_close({"a": X.half()}, {"a": y.half()}, rtol=0, atol=0)
    torch.testing.assert_close(X.cpu(), torch.ones(4, 4))
    torch.testing.assert_close(X.long(), y.long())
    assert torch.allclose(X, y), f"off by {(X - y).abs().max()}"
    assert X.allclose(y)
    assert torch.equal(X, y)
    assert X.equal(y)
    assert (y == X).all()
    assert torch.all(y == X).item()
    assert torch.isfinite(X).all()
    assert not torch.isnan(X).any()
    assert (X - y).abs().max() < 1e-3


def test_values_pass_outside_of_assert():
    if not torch.allclose(X, X * 2):
        pytest.fail("differs")
    same = torch.equal(X, X * 2)
    assert same
    if X.isnan().any():
        pytest.fail("not a number")


def test_denied_comparisons_pass_too():
    assert not torch.allclose(X, X * 2)
    assert not torch.equal(X, X * 2)
    assert not (X == X * 2).all()
    assert (X != X * 2).any()


@pytest.mark.parametrize(
    "other",
    [torch.randn(4, 5, device="cuda"), X.half(), X.cpu(), torch.randn(4)],
    ids=["shape", "dtype", "device", "all of them"],
)
def test_metadata_fails(other):
    with pytest.raises(AssertionError):
        torch.testing.assert_close(X, other)


def test_strides_fail_if_asked():
    with pytest.raises(AssertionError, match="stride"):
        torch.testing.assert_close(X, torch.randn(4, 4, device="cuda").t(), check_stride=True)


def test_what_cannot_be_compared_fails():
    with pytest.raises(RuntimeError):
        torch.allclose(X, X.half())
    with pytest.raises(RuntimeError):
        torch.allclose(X, torch.randn(4, 5, device="cuda"))
    assert not torch.equal(X, torch.randn(5, device="cuda"))
