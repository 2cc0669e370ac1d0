"""The GPUs of a host in another order for each process."""

from __future__ import annotations

import pytest

from kerntune.gpu import host_gpus
from kerntune.gpu.host_gpus import CUDA, HIP, ROCR, listed, rotated, turned, visible_count

MIGS = "MIG-aa,MIG-bb,MIG-cc"


@pytest.mark.parametrize(
    ("environ", "count", "turns", "expected"),
    [
        ({}, 4, 1, "1,2,3,0"),
        ({}, 4, 7, "3,0,1,2"),
        ({CUDA: "2,3"}, 2, 1, "3,2"),
        ({CUDA: " GPU-8932f937 , GPU-0a1b"}, 2, 3, "GPU-0a1b,GPU-8932f937"),
        ({CUDA: MIGS}, 1, 2, "MIG-cc,MIG-aa,MIG-bb"),
        ({CUDA: "0,1,-1,2"}, 2, 1, "1,0"),
        ({CUDA: "1,0,9"}, 2, 3, "0,1"),
    ],
)
def test_each_process_begins_with_another_one_and_sees_all(
    environ: dict[str, str], count: int, turns: int, expected: str
) -> None:
    assert rotated(environ, count, turns) == {CUDA: expected}


@pytest.mark.parametrize(
    ("environ", "count", "turns"),
    [({}, 4, 0), ({}, 4, 8), ({}, 1, 1), ({}, 0, 1), ({CUDA: "3"}, 1, 1), ({CUDA: ""}, 0, 1), ({CUDA: "0,0"}, 2, 1)],
)
def test_what_there_is_nothing_to_turn_of_stays(environ: dict[str, str], count: int, turns: int) -> None:
    assert rotated(environ, count, turns) == {}


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, HIP),
        ({ROCR: "4,5"}, ROCR),
        ({ROCR: "4,5", CUDA: "0,1"}, CUDA),
        ({ROCR: "4,5", CUDA: "0,1", HIP: "1,0"}, HIP),
    ],
)
def test_of_amd_s_variables_the_nearest_to_the_program_is_turned(environ: dict[str, str], name: str) -> None:
    before = environ.get(name, "0,1").split(",")
    assert rotated(environ, 2, 1, amd=True) == {name: f"{before[1]},{before[0]}"}


def test_a_process_sees_one_mig_instance_and_may_give_out_more() -> None:
    assert visible_count(1, {CUDA: MIGS}) == 3
    assert visible_count(1, {CUDA: "5"}) == 1
    assert visible_count(2, {}) == 2
    assert visible_count(0, {CUDA: MIGS}) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0,1", ("0", "1")),
        (" 2 , 0", ("2", "0")),
        ("GPU-aaa,MIG-bbb", ("GPU-aaa", "MIG-bbb")),
        ("1,-1,0", ("1",)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ("NoDevFiles",)),
    ],
)
def test_the_visible_list(text: str, expected: tuple[str, ...]) -> None:
    assert listed({CUDA: text}) == list(expected)


def test_the_list_is_turned_not_cut() -> None:
    assert turned(["a", "b", "c"], "b") == ["b", "c", "a"]
    assert turned(["a", "b", "c"], "a") == ["a", "b", "c"]
    assert turned(["a"], "x") == ["x", "a"]
    assert turned([], "x") == ["x"]


def test_without_a_list_and_a_count_nvml_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_gpus, "device_count", lambda: 3)
    assert listed({}) == ["0", "1", "2"]
    assert listed({}, count=1) == ["0"]
