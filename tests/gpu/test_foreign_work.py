"""Other processes' work on a device is seen by a kernel that reads the device's clock."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kerntune.base.device import Target, typical_device
from kerntune.errors import BackendError
from kerntune.gpu import foreign_work
from kerntune.gpu.foreign_work import OUT, PTX, ClockWatch, ForeignWork, together
from kerntune.gpu.script import Rule, Script
from kerntune.gpu.scripted import FakeGpu
from kerntune.static.disassembly import find_tool

FOREIGN_SHARE = 0.02
GAP_NS = 50_000


def device(**script: object) -> FakeGpu:
    return FakeGpu(typical_device(Target.parse("cuda:90")), Script(**script))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_the_kernel_reads_the_clock_in_its_loop(tmp_path: Path, arch: str) -> None:
    """Assembled as the driver would: the read is not moved out of the loop, and nothing is kept in local memory."""
    (tmp_path / "watch.ptx").write_text(PTX)
    binary = tmp_path / "watch.cubin"
    command = [find_tool("ptxas"), "-v", f"-arch={arch}", tmp_path / "watch.ptx", "-o", binary]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "0 bytes stack frame, 0 bytes spill stores" in made.stderr
    listed = subprocess.run([find_tool("nvdisasm"), "-c", binary], capture_output=True, text=True, check=True).stdout
    loop = re.search(r"^(\.L_x_\d+):\n(.*?)BRA[^\n]*\1", listed, re.M | re.S)
    assert loop is not None
    assert "SR_GLOBALTIMERLO" in loop[2]
    assert "STG" not in loop[2]


def test_nothing_is_seen_on_a_device_of_one_s_own() -> None:
    gpu = device()
    watch = ClockWatch(gpu)
    seen = watch.watch()
    assert (seen.watched_ns, seen.gaps, seen.share, seen.disturbs) == (foreign_work.WATCH_NS, 0, 0.0, False)
    watch.close()
    watch.close()
    assert gpu.modules == 0


@pytest.mark.parametrize(("share", "disturbs"), [(0.01, False), (FOREIGN_SHARE, True), (0.5, True)])
def test_what_others_take_is_seen(share: float, disturbs: bool) -> None:
    seen = together(ClockWatch(device(foreign=share)).watch() for _ in range(3))
    assert seen.share == pytest.approx(share, rel=1e-3)
    assert seen.watched_ns == 3 * foreign_work.WATCH_NS
    assert seen.disturbs is disturbs


def test_it_says_how_much() -> None:
    text = str(ForeignWork(9e6, 2.7e6, 1.9e6, 2))
    assert text == "other work ran on the GPU meanwhile: for 30.0 % of the 9.00 ms that were watched, 1.90 ms at once"


@pytest.mark.parametrize(("steps", "usable"), [(3_000_000 * 4 // GAP_NS, True), (3_000_000 * 4 // GAP_NS - 1, False)])
def test_a_clock_of_long_steps_shows_nothing(monkeypatch: pytest.MonkeyPatch, steps: int, usable: bool) -> None:
    """Its own steps would be taken for others' work."""
    watch = ClockWatch(device())
    monkeypatch.setattr(watch, "_read", lambda ns: OUT.pack(3, 3_000_000, 1_000_000, steps, 3_000_000))
    assert watch.watch() == (ForeignWork(3e6, 3e6, 1e6, 3) if usable else ForeignWork())


def test_a_device_that_can_not_load_it_shows_nothing() -> None:
    gpu = device(rules=[Rule(fails="no such image")], foreign=0.5)
    watch = ClockWatch(gpu)
    assert [watch.watch(), watch.watch()] == [ForeignWork()] * 2
    gpu.lost = "CUDA_ERROR_ILLEGAL_ADDRESS (700)"
    with pytest.raises(BackendError, match="ILLEGAL_ADDRESS"):
        ClockWatch(gpu).watch()


BUSY = """
import itertools, torch
x = torch.randn(4096, 4096, device="cuda")
for batch in itertools.count():
    for _ in range(20):
        x = torch.tanh(x @ x)
    torch.cuda.synchronize()
    if not batch:  # the first product waits for its library to be loaded
        print("busy", flush=True)
"""


@contextlib.contextmanager
def busy_process(code: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, from when it says that it is busy. One that has ended fails the test, with its output."""
    with tempfile.TemporaryFile("w+") as errors:
        words = [sys.executable, "-c", code]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            assert process.stdout is not None
            try:
                said = process.stdout.readline()
                if said == "busy\n":
                    yield process
                ended = said != "busy\n" or process.poll() is not None
            finally:
                process.kill()
        errors.seek(0)
        if ended:
            pytest.fail(f"the busy process has ended: {said}{errors.read()}")


def test_a_busy_process_that_ends_is_no_busy_process() -> None:
    for code in ("raise SystemExit('no such library')", "print('no such library')"):
        with pytest.raises(pytest.fail.Exception, match=r"has ended: .*no such library"), busy_process(code):
            pass
    ends = "print('busy', flush=True); raise SystemExit('no memory left')"
    ended = pytest.raises(pytest.fail.Exception, match="has ended: busy\nno memory left")
    with ended, busy_process(ends) as process:
        process.wait()
    with busy_process("print('busy', flush=True)\nwhile True: pass"):
        pass


@pytest.mark.gpu
class TestOnAGpu:
    @pytest.fixture(autouse=True)
    def needs_a_gpu(self) -> None:
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("needs a GPU")

    def test_alone_nothing_disturbs(self) -> None:
        from kerntune.gpu.driver_gpu import DriverGpu

        seen = together(ClockWatch(DriverGpu(0)).watch() for _ in range(20))
        assert seen.watched_ns > 0, "the clock can be watched"
        assert not seen.disturbs, seen

    def test_another_process_is_seen(self) -> None:
        from kerntune.gpu.driver_gpu import DriverGpu

        watch = ClockWatch(DriverGpu(0))
        watch.watch()  # loads the kernel
        with busy_process(BUSY):
            seen = together(watch.watch() for _ in range(20))
        assert seen.disturbs, seen


def test_nothing_is_watched_at_first() -> None:
    assert ForeignWork() == ForeignWork(0.0, 0.0, 0.0, 0)
