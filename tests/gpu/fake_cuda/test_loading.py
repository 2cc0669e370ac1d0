"""``torch.load`` onto a GPU that isn't there, static and interpreted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_runs import active

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.gpu.interpreter import Interpreter

TO_THE_GPU: dict[str, Any] = {
    "name": "cuda",
    "device": torch.device("cuda", 0),
    "mapping": {"cpu": "cuda:0"},
    "function": lambda storage, location: storage.cuda(),
    "function by to": lambda storage, location: storage.to(device="cuda"),
}

SAVED = {
    "weight": torch.nn.Parameter(torch.arange(12.0).reshape(3, 4)),
    "row": None,
    "steps": torch.tensor([2, 3, 5]),
    "small": torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn),
    "unsigned": torch.tensor([1, 2], dtype=torch.uint16),
}


@pytest.fixture(params=["static", "interpreted"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint that a machine without a GPU has written; two entries share memory."""
    path = tmp_path / "state.pt"
    torch.save({**SAVED, "row": SAVED["weight"].detach()[1]}, path)
    return path


@pytest.fixture
def no_gpu(saved: Path, mode: str) -> Iterator[None]:
    with active() if mode == "static" else Interpreter(TYPICAL_DEVICES["cuda:90"]).activate():
        yield


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("map_location", TO_THE_GPU.values(), ids=TO_THE_GPU)
@pytest.mark.parametrize("weights_only", [True, False])
def test_a_checkpoint_comes_to_the_gpu(saved: Path, map_location: Any, weights_only: bool) -> None:
    found = torch.load(saved, map_location=map_location, weights_only=weights_only)
    for name, tensor in found.items():
        assert tensor.is_cuda, name
        assert tensor.device == torch.device("cuda", 0)
    weight = found["weight"]
    assert isinstance(weight, torch.nn.Parameter)
    assert weight.requires_grad
    assert (weight.shape, weight.stride(), weight.dtype) == ((3, 4), (4, 1), torch.float32)
    assert found["small"].dtype == torch.float8_e4m3fn
    assert found["unsigned"].dtype == torch.uint16
    assert found["row"].storage_offset() == 4
    assert found["steps"].tolist() == [2, 3, 5]


@pytest.mark.usefixtures("no_gpu")
def test_what_shares_memory_goes_on_doing_so(saved: Path, mode: str) -> None:
    found = torch.load(saved, map_location="cuda")
    weight, row = found["weight"].detach(), found["row"]
    assert weight.untyped_storage()._cdata == row.untyped_storage()._cdata
    if mode == "interpreted":
        row.fill_(7.0)
        assert weight[1].tolist() == [7.0] * 4


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("map_location", [None, "cpu", lambda storage, location: storage])
def test_one_for_the_cpu_stays_there(saved: Path, map_location: Any) -> None:
    found = torch.load(saved, map_location=map_location)
    assert not any(tensor.is_cuda for tensor in found.values())
    assert found["weight"].tolist() == SAVED["weight"].tolist()


@pytest.mark.usefixtures("no_gpu")
def test_the_format_of_old_files_too(saved: Path, tmp_path: Path, mode: str) -> None:
    old = tmp_path / "old.pt"
    torch.save({"steps": SAVED["steps"]}, old, _use_new_zipfile_serialization=False)
    found = torch.load(old, map_location="cuda")
    assert found["steps"].is_cuda
    if mode == "interpreted":
        assert found["steps"].tolist() == [2, 3, 5]


@pytest.mark.usefixtures("no_gpu")
def test_a_module_loads_it(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "linear.pt"
    torch.save(torch.nn.Linear(4, 3).state_dict(), path)
    model = torch.nn.Linear(4, 3, device="cuda")
    model.load_state_dict(torch.load(path, map_location=torch.device("cuda")))
    assert model.weight.is_cuda


def test_what_an_interpreted_test_saves_comes_back_to_the_gpu(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    with Interpreter(TYPICAL_DEVICES["cuda:90"]).activate():
        torch.save({"here": torch.ones(3), "there": torch.full((3,), 2.0, device="cuda")}, path)
        found = torch.load(path)
        assert not found["here"].is_cuda
        assert found["there"].is_cuda
        assert found["there"].tolist() == [2.0] * 3


def test_afterwards_torch_restores_as_before(saved: Path) -> None:
    before = list(torch.serialization._package_registry), torch._utils._restore_device_fake_mode
    with active():
        pass
    assert (list(torch.serialization._package_registry), torch._utils._restore_device_fake_mode) == before
