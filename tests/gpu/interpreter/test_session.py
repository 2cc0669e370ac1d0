"""What is replaced while an interpreter is active."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import InterpreterLimit
from kerntune.gpu.interpreter import Interpreter, limit_of, session

MOST = 1 << 26
"""The elements of the largest tensor."""


def test_nothing_is_compiled_meanwhile() -> None:
    def f(x: int) -> int:
        return x

    before = torch.compile
    with Interpreter(TYPICAL_DEVICES["cuda:90"]).activate():
        assert torch.compile(f, fullgraph=True) is f
        assert torch.compile(dynamic=True)(f) is f
    assert torch.compile is before


def test_a_limit_is_found_among_causes() -> None:
    limit = InterpreterLimit("no such instruction")
    error = RuntimeError("in a launch")
    error.__cause__ = limit
    assert (limit_of(None), limit_of(ValueError()), limit_of(error), limit_of(limit)) == (None, None, limit, limit)


@pytest.mark.parametrize(
    ("dtype", "filled"),
    [(torch.int16, 2**15 - 1), (torch.int32, 2**31 - 1), (torch.int64, 2**63 - 1), (torch.int8, 5), (torch.bool, True),
     (torch.uint8, 5)],
)  # fmt: skip
def test_memory_that_nobody_has_written_shows(dtype: torch.dtype, filled: int) -> None:
    """Of few values each may be right, so these stay as they are."""
    tensor = torch.full((2,), 5).to(dtype)
    session._fill_with_nan(tensor)
    assert tensor.tolist() == [filled, filled]


def test_floats_that_nobody_has_written_are_nan_if_they_have_two_bytes() -> None:
    for dtype in (torch.float16, torch.float32, torch.float64, torch.bfloat16):
        tensor = torch.ones(2, dtype=dtype)
        session._fill_with_nan(tensor)
        assert tensor.isnan().all()
    for other in (torch.ones(2).to(torch.float8_e5m2), torch.ones(2, dtype=torch.complex64)):
        session._fill_with_nan(other)
        assert other.to(torch.complex64).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("args", "kwargs", "refused"),
    [(([MOST],), {}, False), (([MOST + 1],), {}, True), ((), {"size": [2, MOST]}, True), ((), {}, False),
     ((), {"size": (MOST, 1)}, False), ((3, [MOST + 1]), {}, False), ((["x"],), {}, False)],
)  # fmt: skip
def test_what_is_too_large_to_make_is_refused_before(args: Any, kwargs: Any, refused: bool) -> None:
    told = pytest.raises(InterpreterLimit, match=r"^empty of .* elements is too large for the interpreter")
    with told if refused else contextlib.nullcontext():
        session._refuse_large(torch.ops.aten.empty.memory_format, args, kwargs)


def test_of_the_flags_of_to_the_first_alone_is_parsed() -> None:
    cpu = torch.device("cpu")
    assert [*session._plain([cpu, torch.half, True, False])] == [cpu, torch.half, True]
    assert [*session._plain([False, 3, True, True, 4])] == [False, 3, 4]


def test_storages_are_on_the_gpu_with_all_that_shares_them() -> None:
    storages, here, there = session.GpuStorages(), torch.zeros(4), torch.zeros(4)
    storages.put(there[1:])
    assert [storages.on_gpu(t) for t in (here, there, there[2:], torch.eye(2).to_sparse())] == [
        False,
        True,
        True,
        False,
    ]
    assert (storages.any_on_gpu([here, {"a": there}]), storages.any_on_gpu([here, 3])) == (True, False)
    assert (storages.has_storage(there.untyped_storage()), storages.has_storage(here.untyped_storage())) == (
        True,
        False,
    )
    made = torch.zeros(2)
    assert storages.put_new((made, here), here) == [made]
    assert (storages.on_gpu(made), storages.on_gpu(here)) == (True, False)
    storages.put_storage(here.untyped_storage())
    assert storages.on_gpu(here)
    seen = [storages.named]
    with storages.naming(True), storages.naming(False):
        seen.append(storages.named)
    with storages.naming(True):
        seen.append(storages.named)
    assert [*seen, storages.named] == [False, False, True, False]
