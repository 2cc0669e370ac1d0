"""``kerntune doctor``."""

from __future__ import annotations

import fcntl
import json
import sys
import tempfile
from types import SimpleNamespace

import msgspec
import pytest
from doubles import raising

from cli.made import folder, timed
from kerntune.base.device import TYPICAL_DEVICES
from kerntune.cli import doctor
from kerntune.compiling import compiler_tokens
from kerntune.errors import MeasurementError
from kerntune.gate.baselines import Calibration
from kerntune.gpu import device_lock, probe
from kerntune.gpu.driver_gpu import DriverGpu
from kerntune.gpu.host_gpus import by_nvml
from kerntune.kernels.compat import versions


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """A separate folder for locks, and no GPU on any machine."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(probe, "has_cuda", lambda: False)
    monkeypatch.setattr(doctor, "by_nvml", lambda ask: None)
    return tmp_path


def lines(out: str) -> dict[str, str]:
    """The found text by the check's name, with its mark in front."""
    rows = [x.split(None, 2) for x in out.splitlines() if not x.startswith(" ")]
    return {name: f"{mark} {found}" for mark, name, found in rows}


def test_everything_in_order(kerntune, runtime, tmp_path):
    folder(tmp_path / "baselines", timed())
    ran = kerntune("doctor", "--cache-dir", "cache")
    found = lines(ran.out)
    assert ran.code == 0, ran.out
    assert " ".join(found) == "kerntune Python Triton torch GPU ptxas nvdisasm lock variables cache baselines"
    assert all(text.startswith("ok ") for text in found.values())
    assert versions.triton_version() in found["Triton"]
    assert "none: kernels are compiled" in found["GPU"]
    assert found["cache"] == f"ok {tmp_path / 'cache'}: 0 winners"
    assert found["baselines"] == f"ok {tmp_path / 'baselines'}: 1 baseline for cuda:90"


def test_without_gpu_and_targets_there_is_something_to_do(kerntune, runtime):
    ran = kerntune("doctor", "--cache-dir", "cache")
    assert ran.code == 1
    assert lines(ran.out)["baselines"].startswith("!!")
    assert "--kerntune-target=cuda:90" in ran.out


def test_checks_as_json(kerntune, runtime):
    told = json.loads(kerntune("doctor", "--cache-dir", "cache", "--json").out)
    assert [set(check) for check in told] == [{"name", "found", "advice"}] * len(told)
    assert {check["name"]: check for check in told}["baselines"]["advice"]


def test_earlier_calibrations_are_counted(tmp_path):
    known = Calibration(processes=4, blocks=12, floor=0.001, bias=0.001, median_sd=0.002)
    pending = timed()
    found = pending._replace(baseline=msgspec.structs.replace(pending.baseline, calibration=known))
    folder(tmp_path / "baselines", found)
    told = "1 baseline for cuda:90; 1 calibrated by an earlier rule, `kerntune calibrate` on its GPU does it anew"
    check = doctor.check_baselines(str(tmp_path / "baselines"), gpu=False)
    assert (check.found.partition(": ")[2], check.advice) == (told, "")


@pytest.mark.parametrize(("broken", "more"), [(0, ""), (1, ""), (2, ", and 1 more can't be read")])
def test_a_damaged_baseline_is_not_in_order(tmp_path, broken, more):
    folder(tmp_path / "baselines", timed("t.py::a"), timed("t.py::b"), timed("t.py::c"))
    paths = sorted((tmp_path / "baselines").rglob("time/**/*.json"))
    for path in paths[:broken]:
        path.write_text("{")
    check = doctor.check_baselines(str(tmp_path / "baselines"), gpu=False)
    assert check.found.endswith(": 3 baselines for cuda:90")
    first = check.advice.removesuffix(more)
    assert (first.startswith(str(paths[0])), "more" in first, bool(first)) == (broken > 0, False, broken > 0), first


def test_with_a_gpu_no_baselines_are_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert doctor.check_baselines(None, gpu=True).advice == ""


def test_nvml_is_asked_for_the_driver_where_torch_sees_no_gpu(kerntune, runtime, monkeypatch):
    calls = []
    fake = SimpleNamespace(
        NVMLError=OSError,
        nvmlInit=lambda: calls.append("init"),
        nvmlSystemGetDriverVersion=lambda: calls.append("version") or "580.65",
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(doctor, "by_nvml", by_nvml)
    ran = kerntune("doctor", "--cache-dir", "cache")
    assert ran.code == 1
    assert "there is an NVIDIA driver (580.65), but torch" in ran.out
    assert calls == ["init", "version"]


@pytest.mark.parametrize(
    ("found", "advice"),
    [
        ("3.6.0", ""),
        ("3.9.9", ""),
        (
            "3.10.1",
            "Triton 3.10 is newer than any that kerntune was run with (3.9): where something fails, take triton 3.9",
        ),
        ("4.0", "Triton 4.0 is newer than any"),
        ("2.13.0+cpu", "needs triton>=3.6"),
        ("3.5.9", "needs triton>=3.6"),
        ("", "install triton>=3.6"),
    ],
)
def test_versions(found, advice):
    check = doctor.check_version("Triton", found, ("3.6", "3.9"))
    assert (advice in check.advice) if advice else check.advice == ""


def test_one_broken_check_does_not_hide_the_others(kerntune, runtime, monkeypatch):
    monkeypatch.setattr(versions, "assembler_version", raising(RuntimeError("no ptxas here")))
    ran = kerntune("doctor", "--cache-dir", "cache")
    assert ran.code == 1
    assert lines(ran.out)["ptxas"] == "!! RuntimeError when looking"
    assert "no ptxas here" in ran.out
    assert lines(ran.out)["nvdisasm"].startswith("ok")


@pytest.mark.parametrize("name", ["cache", "baselines"])
def test_a_file_where_a_folder_should_be(kerntune, runtime, tmp_path, name):
    (tmp_path / name).write_text("a file")
    ran = kerntune("doctor", "--cache-dir", "cache")
    assert ran.code == 1
    assert lines(ran.out)[name].startswith("!!")
    assert ran.clean


def test_a_device_that_another_process_measures_on_is_told(kerntune, runtime, tmp_path):
    with device_lock.hold("GPU-1234", "a GPU", 0.0):
        ran = kerntune("doctor", "--cache-dir", "cache")
    assert lines(ran.out)["lock"] == f"ok {tmp_path}, now measuring: GPU-1234"
    assert lines(kerntune("doctor", "--cache-dir", "cache").out)["lock"] == f"ok {tmp_path}"


def test_a_compiler_is_no_device_that_is_measured_on(kerntune, runtime, tmp_path):
    path = compiler_tokens._path(0)
    with open(path, "w") as token:
        fcntl.flock(token, fcntl.LOCK_EX)
        found = lines(kerntune("doctor", "--cache-dir", "cache").out)
    assert path.startswith(str(tmp_path))
    assert found["lock"] == f"ok {tmp_path}"


def test_the_lock_of_a_real_device_is_this_one(runtime, monkeypatch):
    """``DriverGpu.lock`` without a driver: it needs no more of the device than what it is."""
    gpu = object.__new__(DriverGpu)
    gpu.spec = msgspec.structs.replace(TYPICAL_DEVICES["cuda:90"], uuid="GPU-5678")
    assert device_lock.held_by_others() == []
    with gpu.lock():
        assert device_lock.held_by_others() == ["GPU-5678"]
    assert device_lock.held_by_others() == []


def test_waiting_for_a_device_is_said_and_ends(runtime, monkeypatch):
    monkeypatch.setattr(device_lock, "NOTICE_S", 0.01)
    with (
        device_lock.hold("GPU-1", "a GPU", 0.0),
        pytest.warns(UserWarning, match="waiting for a GPU: another process measures on it"),
        pytest.raises(MeasurementError, match="a GPU is measured on by another process"),
        device_lock.hold("GPU-1", "a GPU", 0.1),
    ):
        pass


def test_a_store_is_asked(kerntune, runtime, tmp_path, monkeypatch):
    assert "store" not in lines(kerntune("doctor").out)
    monkeypatch.setenv("KERNTUNE_STORE", f"file://{tmp_path}/store")
    found = lines(kerntune("doctor", "--cache-dir", "cache").out)
    assert found["store"].startswith(f"ok file://{tmp_path}/store: 0 winners of it here, first writer wins; answered")
    assert found["store"].endswith("start, and can be written")
    assert not (tmp_path / "store").exists(), "what is tried leaves nothing behind"


def test_a_store_and_a_cache_that_cannot_be_written_say_why_and_name_the_setting(kerntune, runtime, monkeypatch):
    """Root may write everywhere but where the file system itself refuses."""
    monkeypatch.setenv("KERNTUNE_STORE", "file:///proc/zz")
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", "/proc/zy")
    ran = kerntune("doctor")
    found = lines(ran.out)
    assert ran.code == 1
    assert found["store"] == "!! file:///proc/zz: 0 winners of it here, can't be written"
    assert "let KERNTUNE_STORE name a folder that can be written" in ran.out
    assert found["cache"] == "!! /proc/zy: can't be written"
    assert "name a folder that can be written by KERNTUNE_CACHE_DIR" in ran.out
    assert "name a folder that can be written by --cache-dir" in kerntune("doctor", "--cache-dir", "/proc/zx").out


def test_a_variable_that_is_what_it_cannot_be_is_told(kerntune, runtime, monkeypatch):
    monkeypatch.setenv("KERNTUNE_TUNE", "frzen")
    ran = kerntune("doctor", "--cache-dir", "cache")
    assert (ran.code, lines(ran.out)["variables"]) == (1, "!! one can't be what it is")
    assert "KERNTUNE_TUNE is 'frzen'; it can be auto, frozen, force or nearest" in ran.out


def test_a_variable_that_nothing_reads_is_told(kerntune, runtime, monkeypatch):
    monkeypatch.setenv("KERNTUNE_CACHEDIR", "/x")
    ran = kerntune("doctor", "--cache-dir", "cache")
    assert ran.code == 1
    assert "KERNTUNE_CACHEDIR is read by nothing; did you mean KERNTUNE_CACHE_DIR?" in ran.out


def test_a_store_that_does_not_answer_is_named(kerntune, runtime, tmp_path, monkeypatch):
    (tmp_path / "store").write_text("a file, not a folder")
    monkeypatch.setenv("KERNTUNE_STORE", f"file://{tmp_path}/store")
    found = lines(kerntune("doctor", "--cache-dir", "cache").out)
    assert found["store"].startswith("!!")


def test_a_store_of_no_known_kind_is_named(kerntune, runtime, tmp_path, monkeypatch):
    monkeypatch.setenv("KERNTUNE_STORE", "ftp://a/b")
    ran = kerntune("doctor", "--cache-dir", "cache")
    assert lines(ran.out)["store"] == "!! can't be used as it is set"
    assert "sftp://" in ran.out
