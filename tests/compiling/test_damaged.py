"""Damaged entries of Triton's cache are set aside, reported and compiled anew."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from kerntune.compiling.compiler import Compiler
from kerntune.compiling.frontend import request_of
from kerntune.compiling.triton_cache import DAMAGED_SUFFIX, damage_in, is_stored, set_aside

from . import kernels

DAMAGE = {
    "no metadata": (".json", lambda data: b"{}"),
    "metadata cut off": (".json", lambda data: data[:40]),
    "metadata of another kind": (".json", lambda data: b"[]"),
    "binary cut off": (".cubin", lambda data: data[:100]),
    "binary empty": (".cubin", lambda data: b""),
    "assembly cut off": (".ptx", lambda data: data[:100]),
    "TTIR empty": (".ttir", lambda data: b""),
    "TTIR cut off": (".ttir", lambda data: data[: len(data) // 3]),
    "TTIR no text": (".ttir", lambda data: b"\xff\xfe"),
}


def file_of(cache: Path, end: str) -> Path:
    (path,) = (p for p in cache.rglob(f"*{end}") if not p.name.startswith("__grp__"))
    return path


@pytest.mark.slow
def test_a_damaged_entry_is_set_aside_and_compiled_anew(farm, cache):
    launch, processes = kernels.add_launch(), farm()
    good = Compiler(processes).compile(launch)
    for how, (end, damage) in DAMAGE.items():
        path = file_of(cache, end)
        path.write_bytes(damaged := damage(path.read_bytes()))
        with pytest.warns(RuntimeWarning) as told:
            again = Compiler(processes).compile(launch)
        (text,) = (str(w.message) for w in told)
        assert str(path) in text, how
        assert f"kernel {launch.name} ({kernels.__file__})" in text
        assert (again.binary, again.ttir, again.data) == (good.binary, good.ttir, good.data), how
        assert path.with_name(path.name + DAMAGED_SUFFIX).read_bytes() == damaged, how
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert Compiler(processes).compile(launch).data == good.data, how


def test_what_the_settings_keep_in_this_process_is_compiled_anew_too(farm, cache, monkeypatch):
    launch = kernels.add_launch()
    good = Compiler(farm()).compile(launch)
    file_of(cache, ".json").write_text("{}")
    monkeypatch.setattr("kerntune.compiling.stream.why_in_process", lambda launch: "a test says so")
    with pytest.warns(RuntimeWarning, match="is damaged"):
        assert Compiler(farm()).compile(launch).data == good.data


@pytest.mark.slow
def test_a_folder_of_another_entry_is_left_alone(farm, cache, tmp_path):
    """A cache that was copied lists the files of the original."""
    launch = kernels.add_launch()
    Compiler(farm()).compile(launch)
    path = file_of(cache, ".cubin")
    group = next(cache.rglob("__grp__*"))
    elsewhere = tmp_path / "elsewhere.cubin"
    elsewhere.write_bytes(b"cut off")
    group.write_text(group.read_text().replace(str(path), str(elsewhere)))
    with pytest.warns(RuntimeWarning, match=r"elsewhere\.cubin"):
        Compiler(farm()).compile(launch)
    assert elsewhere.read_bytes() == b"cut off"
    assert is_stored(request_of(launch))


@pytest.mark.parametrize("target", kernels.TARGETS, ids=str)
def test_sound_entries_are_taken_for_such(farm, cache, target):
    Compiler(farm()).compile(kernels.matmul_launch(target))
    group = {p.name: str(p) for p in cache.rglob("*") if p.is_file() and not p.name.startswith("__grp__")}
    assert len(group) > 5
    assert damage_in(group, target.backend) is None


METADATA = b'{"target": 1, "name": "k", "shared": 0, "num_warps": 4}'


@pytest.mark.parametrize(
    ("data", "stage", "backend", "why"),
    [
        (METADATA, "json", "cuda", ""),
        (b'{"target": 1, "shared": 0}', "json", "cuda", "it lacks name, num_warps"),
        (b"[1]", "json", "cuda", "it lacks target, name, shared, num_warps"),
        (b"module {\n  }\n", "ttir", "cuda", ""),
        (b"module {\n", "ttir", "cuda", "it is cut off"),
        (b" \n", "ttir", "cuda", "it is empty"),
        (b"{ ret;\n}", "ptx", "cuda", ""),
        (b"{ ret;", "ptx", "cuda", "it is cut off"),
        (b"x\n.end_amdgpu_metadata\n", "amdgcn", "hip", ""),
        (b"x\n}\n", "amdgcn", "hip", "it is cut off"),
        (b"module {\n}\n", "llir", "hip", ""),
        (b"x\n.end_amdgpu_metadata\n", "llir", "hip", "it is cut off"),
    ],
)
def test_each_stage_has_an_end(tmp_path, data, stage, backend, why):
    path = tmp_path / f"k.{stage}"
    path.write_bytes(data)
    assert damage_in({path.name: str(path)}, backend) == ((path, why) if why else None)


def test_a_file_that_is_gone_is_damage(tmp_path):
    assert damage_in({"k.ttir": str(tmp_path / "k.ttir")}, "cuda") == (tmp_path / "k.ttir", "it is gone")
    assert damage_in({}, "cuda") is None


def test_the_list_and_a_file_of_the_same_folder_are_set_aside(tmp_path):
    (tmp_path / "group").write_text("list")
    (tmp_path / "k.ttir").write_text("damaged")
    set_aside(tmp_path, "group", tmp_path / "k.ttir")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["group.damaged", "k.ttir.damaged"]
    set_aside(tmp_path, "group", tmp_path / "k.ttir")  # gone: another process has done it
