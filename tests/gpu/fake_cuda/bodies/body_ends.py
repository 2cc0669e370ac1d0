"""Questions that end a test body."""

import io

import numpy as np
import pytest
import torch

from kerntune.gpu.fake_cuda import static_reason

ENDS = {
    "item": lambda x: x[0].item(),
    "float": lambda x: float(x[0]),
    "int": lambda x: int(x[0]),
    "bool": lambda x: bool(x[0] > 0),
    "if": lambda x: 1 if x.sum() > 0 else 0,
    "index": lambda x: [1, 2, 3][x[0].long()],
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.cpu().numpy(),
    "asarray": lambda x: np.asarray(x.cpu()),
    "numpy assertion": lambda x: np.testing.assert_allclose(x.cpu(), np.ones(4)),
    "nonzero": lambda x: x.nonzero(),
    "where": lambda x: torch.where(x > 0),
    "mask": lambda x: x[x > 0],
    "unique": lambda x: torch.unique(x),
    "save": lambda x: torch.save(x, io.BytesIO()),
    "dlpack": lambda x: torch.from_dlpack(x),
    "write to the CPU": lambda x: torch.empty(4).copy_(x),
    "write part to the CPU": lambda x: torch.empty(4).__setitem__(slice(0, 2), x[:2].cpu()),
}


@pytest.mark.parametrize("question", ENDS)
def test_ends_recognizably(question):
    with pytest.raises(Exception) as caught:  # noqa: PT011  the reason is what counts
        ENDS[question](torch.randn(4, device="cuda"))
    assert static_reason(caught.value)
