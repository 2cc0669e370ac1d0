"""Where a run takes place: the GPU, the targets that were asked for, or those the baselines know."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from kerntune.base.device import Target, typical_device
from kerntune.errors import TargetError, UsageError
from kerntune.gpu import probe
from kerntune.gpu.fake_cuda.static_backend import StaticBackend
from kerntune.gpu.probe import compiled_targets, find_backend, torch_device

SM80, SM90 = Target.parse("cuda:80"), Target.parse("cuda:90")


@pytest.fixture(params=[False, True], ids=["no GPU", "a GPU"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    monkeypatch.setattr(probe, "has_cuda", lambda: request.param)
    return request.param


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "has_cuda", lambda: False)


@pytest.mark.parametrize(
    "texts", [["cuda:80,cuda:90"], ["cuda:80", "cuda:90"], ["cuda:80, cuda:90,", "cuda:80"]], ids=str
)
def test_asked_for_targets_are_compiled_for_even_beside_a_gpu(gpu: bool, texts: list[str]) -> None:
    found = compiled_targets(texts, [Target.parse("cuda:75")])
    assert found == (SM80, SM90)
    backend = find_backend(found)
    assert isinstance(backend, StaticBackend)
    assert (backend.spec.target, backend.gpu) == (SM80, None)


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_the_baselines_targets_are_the_default() -> None:
    assert compiled_targets((), [SM90, SM80]) == (SM90, SM80)


@pytest.mark.usefixtures("no_gpu")
def test_nothing_to_go_by_suggests_a_target() -> None:
    with pytest.raises(UsageError, match=r"no GPU here.*--kerntune-target=cuda:90"):
        compiled_targets()


@pytest.mark.parametrize("text", ["cuda", "sm_9x", "cuda:9x", "hip:90", ":90"])
def test_what_is_no_target(gpu: bool, text: str) -> None:
    with pytest.raises(TargetError, match="write backend:arch"):
        compiled_targets([text])


def test_a_second_target_without_a_known_device_is_refused_at_once(gpu: bool) -> None:
    with pytest.raises(TargetError, match="no device is known for target cuda:70"):
        compiled_targets(["cuda:90,cuda:70"])


def test_an_amd_build_of_torch_has_no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert not probe.has_cuda()
    monkeypatch.setattr(torch.version, "hip", None)
    assert probe.has_cuda()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not probe.has_cuda()


def test_a_stand_in_is_no_gpu_but_says_what_it_stands_for() -> None:
    static = find_backend([SM80])
    with static.activate():
        assert torch_device() == "cuda"
        assert not probe.has_cuda()
        assert probe.current_device() == typical_device(Target.parse("cuda:80"))


def test_an_amd_gpu_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    found = SimpleNamespace(gcnArchName="gfx942:sramecc+:xnack-", name="AMD MI300X", multi_processor_count=304)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: found)
    device = probe.current_device()
    assert (str(device.target), device.sm_count, device.warp_size) == ("hip:gfx942", 304, 64)


def test_without_a_gpu_proposals_are_for_a_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert str(probe.current_device().target) == "cuda:90"


def test_what_torch_is_asked_for_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", lambda: 2, raising=False)
    assert probe.amd_gpus() == 0
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert probe.amd_gpus() == 2
    monkeypatch.delattr(torch._C, "_cuda_getDeviceCount")
    assert probe.amd_gpus() == 0
    for answer in (True, False):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda answer=answer: answer)
        monkeypatch.setattr(torch.compiler, "is_exporting", lambda answer=answer: answer)
        monkeypatch.setattr(torch.backends.cuda, "is_built", lambda answer=answer: answer)
        assert (probe.captures_graph(), probe.is_exporting()) == (answer, answer)
        why = "can't use it" if answer else "was built without CUDA"
        assert probe.why_unused() == f"torch {torch.__version__} {why}"


def test_devices_count_once_torch_has_used_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda number: number % 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert (probe.device_in_use(), probe.devices_used()) == (None, [])
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert (probe.device_in_use(), probe.devices_used()) == (2, [1])


@pytest.mark.parametrize("inference", [True, False])
def test_another_thread_launches_as_this_one_does(monkeypatch: pytest.MonkeyPatch, inference: bool) -> None:
    import torch

    entered: list[object] = []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "mine")
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: entered.append(stream) or contextlib.nullcontext())
    with torch.inference_mode(inference):
        state = probe.current_thread_state()
    for _ in range(2):
        with state():
            assert (torch.is_inference_mode_enabled(), torch.is_grad_enabled()) == (inference, not inference)
    assert (entered, torch.is_inference_mode_enabled(), torch.is_grad_enabled()) == (["mine"] * 2, False, True)
