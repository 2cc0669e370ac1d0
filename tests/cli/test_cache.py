"""``kerntune cache``."""

from __future__ import annotations

import json
import re
import sys

import pytest
from tuning.cache.made import won

from cli.command import column_widths
from kerntune.base.config import Config
from kerntune.base.device import Environment
from kerntune.cli.cache import _table
from kerntune.gate.console import CONFIG_WIDTH
from kerntune.tuning.cache import Winner, WinnerCache, WinnerKey
from kerntune.tuning.choices.declaration import config_for


@pytest.fixture
def cache(tmp_path) -> WinnerCache:
    cache = WinnerCache(tmp_path / "cache")
    for n in (1024, 4096):
        config = Config({"BLOCK": n})
        key = WinnerKey("add_kernel", "s" * 64, "cuda:90", "NVIDIA H200", "3.9.0", f"n={n}", (config, Config()))
        cache.add(won(config, key=key, time_ns=12_400.0))
    return cache


def test_show(kerntune, cache):
    ran = kerntune("cache", "show", "--cache-dir", "cache")
    assert ran.code == 0
    assert ran.out.count("add_kernel") == 2
    for text in ("NVIDIA H200 (cuda:90)", "BLOCK=4096", "12.4 µs", "n=1024", f"{cache.folder}: 2 winners"):
        assert text in ran.out


def test_show_names_the_implementation_of_a_choice(kerntune, tmp_path):
    config = config_for("ops.skinny_matmul", "0123456789abcdef")
    key = WinnerKey("ops.matmul", "", "cuda:90", "NVIDIA H200", "3.9.0", "m=1", (config, config_for("torch.mm", "ab")))
    WinnerCache(tmp_path / "cache").add(won(config, key=key, time_ns=12_400.0))
    ran = kerntune("cache", "show", "--cache-dir", "cache")
    assert "calls ops.skinny_matmul " in ran.out
    assert "num_warps" not in ran.out


def test_winners_are_listed_by_kernel_device_and_arguments():
    def winner(kernel, device="H200", arguments="n=1", untried=()):
        config = Config({"BLOCK": 64})
        key = WinnerKey(kernel, "s", "cuda:90", device, "3.9.0", arguments, (config,))
        return Winner("s", key, config, 12_400.0, Environment(triton="3.9.0"), untried)

    config, others = "BLOCK=64 num_warps=4 num_stages=3", (Config(), Config({"BLOCK": 32}))
    table = _table([winner("b"), winner("a", untried=others), winner("a", arguments="n=0"), winner("a", device="A100")])
    assert [re.split("  +", line.strip()) for line in table.splitlines()[2:]] == [
        ["a", "A100 (cuda:90)", "3.9.0", config, "12.4 µs", "n=1"],
        ["a", "H200 (cuda:90)", "3.9.0", config, "12.4 µs", "n=0"],
        ["a", "H200 (cuda:90)", "3.9.0", f"{config} (2", "12.4 µs", "n=1"], ["untried)"],
        ["b", "H200 (cuda:90)", "3.9.0", config, "12.4 µs", "n=1"],
    ]  # fmt: skip
    wide = winner("k" * 99, "d" * 99, "n" * 99)
    assert column_widths(_table([wide])) == [99, 109, 8, len(config), 7, CONFIG_WIDTH]


def test_show_json(kerntune, cache):
    rows = json.loads(kerntune("cache", "show", "--cache-dir", "cache", "--json").out)
    assert sorted(row["config"]["kwargs"]["BLOCK"] for row in rows) == [1024, 4096]


def test_a_damaged_winner_is_set_aside_and_reported(kerntune, cache):
    path = next(cache.folder.rglob("*.json"))
    path.write_text("{")
    ran = kerntune("cache", "show", "--cache-dir", "cache")
    assert ran.code == 1
    assert str(path) in ran.err
    assert ran.clean
    assert "1 winner" in ran.out
    assert kerntune("cache", "show", "--cache-dir", "cache").code == 0


def test_clear(kerntune, cache, tmp_path):
    (tmp_path / "cache" / "other.txt").write_text("not a winner")
    assert "removed 2 winners" in kerntune("cache", "clear", "--cache-dir", "cache").out
    assert "removed 0 winners" in kerntune("cache", "clear", "--cache-dir", "cache").out
    assert (tmp_path / "cache" / "other.txt").exists()


def test_the_folder_of_the_ini_file(kerntune, cache, tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nkerntune_cache_dir = cache\n")
    assert "2 winners" in kerntune("cache", "show").out


def test_a_folder_that_can_not_be_cleared_is_named(kerntune, cache):
    path = next(cache.folder.rglob("*.json"))
    path.unlink()
    path.mkdir()
    kerntune("cache", "clear", "--cache-dir", "cache").complains(1, str(path))


def test_export_and_import(kerntune, cache, tmp_path):
    ran = kerntune("cache", "export", "all.json", "--cache-dir", "cache")
    assert (ran.code, ran.out) == (0, "all.json: 2 winners, 0 trials\n")
    ran = kerntune("cache", "import", "all.json", "--cache-dir", "other")
    assert (ran.code, ran.out) == (0, "all.json: 2 winners, 0 trials\n")
    assert WinnerCache(tmp_path / "other").entries() == cache.entries()
    assert (
        "0 winners, 0 trials, 2 kept as they were"
        in kerntune("cache", "import", "all.json", "--cache-dir", "other").out
    )
    assert "2 winners" in kerntune("cache", "import", "--replace", "all.json", "--cache-dir", "other").out


def test_export_per_device_and_import(kerntune, cache, tmp_path):
    ran = kerntune("cache", "export", "--per-device", "wheel", "--cache-dir", "cache")
    assert (ran.code, ran.out) == (0, "wheel/cuda-90/nvidia-h200.json\n")
    ran = kerntune("cache", "import", "wheel/cuda-90/nvidia-h200.json", "--cache-dir", "other")
    assert ran.code == 0
    assert WinnerCache(tmp_path / "other").entries() == cache.entries()


def test_a_name_that_is_no_file_is_wrong_usage(kerntune, cache, tmp_path):
    kerntune("cache", "export", "all.json", "--cache-dir", "cache")
    ran = kerntune("cache", "import", "all.json", "nosuch.json", "--cache-dir", "other")
    assert ran.code == 2
    assert ran.err.startswith("kerntune: error: nosuch.json: no such file")
    assert WinnerCache(tmp_path / "other").entries() == []


def test_a_damaged_file_is_told_after_the_others_were_taken(kerntune, cache, tmp_path):
    kerntune("cache", "export", "all.json", "--cache-dir", "cache")
    (tmp_path / "bad.json").write_text("{")
    kerntune("cache", "import", "bad.json", "all.json", "--cache-dir", "other").complains(1, "bad.json")
    assert len(WinnerCache(tmp_path / "other").entries()) == 2


def test_push_and_pull(kerntune, cache, tmp_path, monkeypatch):
    url = f"file://{tmp_path}/store"
    ran = kerntune("cache", "push", url, "--cache-dir", "cache")
    assert (ran.code, ran.out) == (0, f"{url}: 2 winners, 0 trials\n")
    monkeypatch.setenv("KERNTUNE_STORE", url)
    assert f"{url}: 2 winners, 0 trials" in kerntune("cache", "pull", "--cache-dir", "other").out
    assert "2 winners" in kerntune("cache", "show", "--cache-dir", "other").out
    assert "2 kept as they were" in kerntune("cache", "pull", "--cache-dir", "other", "--winners-only").out


def test_what_a_second_push_adds_is_nothing(kerntune, cache, tmp_path):
    words = ("cache", "push", f"file://{tmp_path}/store", "--cache-dir", "cache")
    kerntune(*words)
    ran = kerntune(*words)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"file://{tmp_path}/store: 0 winners, 0 trials, 2 kept as they were\n"


def test_a_damaged_store_is_never_taken_for_an_empty_one(kerntune, cache, tmp_path):
    url = f"file://{tmp_path}/store"
    kerntune("cache", "push", url, "--cache-dir", "cache")
    paths = sorted((tmp_path / "store").rglob("*.1.json"))
    for path in paths:
        path.write_bytes(b"")
    first, second = (kerntune("cache", "pull", url, "--cache-dir", "other") for _ in range(2))
    assert (first.code, first.clean) == (1, True)
    assert first.out == f"{url}: 0 winners, 0 trials\n"
    assert all(path.name in first.err for path in paths)
    assert second == first


def test_a_store_with_nothing_in_it_is_told(kerntune, cache, tmp_path):
    ran = kerntune("cache", "pull", f"file://{tmp_path}/elsewhere", "--cache-dir", "cache")
    assert (ran.code, ran.err) == (0, "")
    assert (
        ran.out == f"file://{tmp_path}/elsewhere: nothing new there; `kerntune cache push` stores what a machine has\n"
    )


def test_a_store_that_can_not_be_used_is_named_once_without_its_password(kerntune, cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "paramiko", None)
    cached = ("--cache-dir", "cache")
    for words in (("cache", "push", *cached), ("cache", "pull", *cached), ("history", "show", "--history")):
        ran = kerntune(*words, "sftp://me:secret@host/a")
        assert ran.code == 2 or words[0] == "history"
        assert ran.err == "kerntune: error: sftp://me@host/a: install paramiko\n"


def test_clear_forgets_what_is_known_of_stores(kerntune, cache, tmp_path):
    kerntune("cache", "push", f"file://{tmp_path}/store", "--cache-dir", "cache")
    kerntune("cache", "pull", f"file://{tmp_path}/store", "--cache-dir", "cache")
    assert list((cache.folder / "stores").rglob("*.json"))
    kerntune("cache", "clear", "--cache-dir", "cache")
    assert not (cache.folder / "stores").exists()
    assert list((tmp_path / "store").rglob("*.json")), "the store is everybody's"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("file://relative{}/path", "names no absolute path on this machine; for a folder write file:///path"),
        ("file://~{}/store", "names no absolute path on this machine; for a folder write file:///path"),
        ("file://mystore", "names no absolute path on this machine; for a folder write file:///path"),
        ("file:///", "names no absolute path on this machine; for a folder write file:///path"),
        ("file://{}/a?b", "has a ?"),
        ("mystore", "no URL; for a folder write file:///path"),
        ("ftp://a/b", "nothing is known there by which one of several writers is the first"),
    ],
)
@pytest.mark.parametrize("command", ["push", "pull"])
def test_a_url_that_is_no_store_is_named_as_it_was_given(kerntune, cache, tmp_path, monkeypatch, command, url, says):
    url, before = url.format(tmp_path), sorted(tmp_path.rglob("*"))
    for words, where in (((url,), url), ((), f"KERNTUNE_STORE is {url!r}")):
        if not words:
            monkeypatch.setenv("KERNTUNE_STORE", url)
        ran = kerntune("cache", command, *words, "--cache-dir", "cache")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"kerntune: error: {where}: {says}")
        assert sorted(tmp_path.rglob("*")) == before


COMMANDS = [
    ("show",),
    ("show", "--json"),
    ("clear",),
    ("export", "all.json"),
    ("export", "--per-device", "wheel"),
    ("import", "given.json"),
    ("push", "file:///nosuch/store"),
    ("pull", "file:///nosuch/store"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("given", ["option", "ini", "variable"])
def test_a_cache_that_can_be_no_folder_is_named_with_what_names_it(kerntune, tmp_path, monkeypatch, given, words):
    (tmp_path / "given.json").write_text("{}")
    (tmp_path / "file").write_text("mine")
    option = ("--cache-dir", "file") if given == "option" else ()
    if given == "ini":
        (tmp_path / "pytest.ini").write_text("[pytest]\nkerntune_cache_dir = file\n")
    elif given == "variable":
        monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "file"))
    before = sorted(tmp_path.rglob("*"))
    ran = kerntune("cache", *words, *option)
    named_by = {
        "option": "--cache-dir=DIR",
        "ini": f"kerntune_cache_dir in {tmp_path / 'pytest.ini'}",
        "variable": "KERNTUNE_CACHE_DIR=DIR",
    }[given]
    says = f"{tmp_path / 'file'}: can't be the folder of the cache (Not a directory); name another: {named_by}\n"
    assert (ran.code, ran.out, ran.err) == (2, "", f"kerntune: error: {says}")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("file/below", "Not a directory"),
        ("link", "No such file or directory"),
        ("circle", "Too many levels of symbolic links"),
        ("x" * 300, "File name too long"),
    ],
)
def test_other_names_that_no_cache_can_have(kerntune, tmp_path, monkeypatch, name, says):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nothing")
    (tmp_path / "circle").symlink_to("circle")
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", name)
    kerntune("cache", "show").complains(2, f"{name}: can't be the folder of the cache ({says})")


def test_a_cache_that_is_not_there_yet_is_empty(kerntune, tmp_path, monkeypatch):
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "not" / "yet"))
    ran = kerntune("cache", "show")
    assert (ran.code, ran.out) == (0, f"{tmp_path / 'not' / 'yet'}: 0 winners, 0 trials, 0 listings\n")
    assert not (tmp_path / "not").exists()


def test_without_a_store_there_is_nothing_to_push_to(kerntune, cache):
    kerntune("cache", "push", "--cache-dir", "cache").complains(2, "KERNTUNE_STORE")
