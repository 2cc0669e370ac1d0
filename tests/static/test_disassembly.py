"""Many kernels in one run of the disassembler, each listed as if alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kerntune.compiling.binary.elf import text_sections
from kerntune.errors import BackendError, StoreError
from kerntune.static import disassembly
from kerntune.static.disassembly import Disassembler, find_tool

NAMES = ["add", "softmax", "histogram", "matmul"]


@pytest.fixture
def texts(compiled: Callable[..., Any]) -> list[bytes]:
    return [text_sections(compiled(name, "cuda:90").binary.data)[0][1] for name in NAMES]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the tool was run on, one entry a run."""
    seen: list[bytes] = []
    real = disassembly._listing

    def counted(code: bytes, arch: str) -> str:
        seen.append(code)
        return real(code, arch)

    monkeypatch.setattr(disassembly, "_listing", counted)
    return seen


@pytest.mark.slow
def test_a_batch_is_one_run_and_says_what_single_runs_say(texts: list[bytes], runs: list[bytes]) -> None:
    together = Disassembler().listings(texts, "sm_90a")
    assert len(runs) == 1
    assert together == [Disassembler().listings([text], "sm_90a")[0] for text in texts]
    assert len({tuple(sorted(listing.opcodes.items())) for listing in together}) == len(NAMES)
    assert [sum(listing.opcodes.values()) * 16 for listing in together] == [len(text) for text in texts]


@pytest.mark.slow
def test_known_code_is_not_disassembled_again(texts: list[bytes], runs: list[bytes]) -> None:
    tool = Disassembler()
    first = tool.listings(texts[:2], "sm_90a")
    again = tool.listings([texts[1], texts[0], texts[2], texts[1]], "sm_90a")
    assert again[:2] == first[::-1]
    assert again[3] == again[0]
    assert runs == [texts[0] + texts[1], texts[2]]


def test_the_memory_is_bounded_and_forgets_the_oldest(texts: list[bytes], runs: list[bytes]) -> None:
    tool = Disassembler(cache_size=2)
    tool.listings(texts[:3], "sm_90a")
    tool.listings(texts[1:3], "sm_90a")
    assert len(runs) == 1
    tool.listings(texts[:1], "sm_90a")
    assert runs[1:] == [texts[0]]


def test_nothing_to_list() -> None:
    assert Disassembler().listings([], "sm_90a") == []


def test_an_unknown_architecture_is_an_error(texts: list[bytes]) -> None:
    with pytest.raises(BackendError, match="can't disassemble sm_31"):
        Disassembler().listings(texts[:1], "sm_31")


def test_bytes_that_are_no_code_are_an_error() -> None:
    with pytest.raises(StoreError, match="not a multiple of 16"):
        Disassembler().listings([b"12345"], "sm_90a")
    with pytest.raises((StoreError, BackendError)):
        Disassembler().listings([b"\xff" * 160], "sm_90a")


@pytest.mark.parametrize("name", ["nvdisasm", "cuobjdump", "ptxas"])
def test_tools_come_with_triton(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(f"TRITON_{name.upper()}_PATH", raising=False)
    assert find_tool(name).is_file()
    assert find_tool(name).name == name


def test_a_given_path_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_NVDISASM_PATH", sys.executable)
    assert find_tool("nvdisasm") == Path(sys.executable)


def test_a_given_path_that_is_wrong_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_PTXAS_BLACKWELL_PATH", str(tmp_path / "none"))
    with pytest.raises(BackendError, match="none, which is no file: correct it or unset it"):
        find_tool("ptxas-blackwell")


def test_a_missing_tool_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRITON_NVDISASM_PATH", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendError, match="set TRITON_NVDISASM_PATH to the one of a CUDA toolkit"):
        find_tool("nvdisasm")
