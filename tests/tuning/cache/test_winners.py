"""Winners on disk: keyed by everything, safe under many processes, damage set aside."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kerntune.base import codec
from kerntune.errors import CacheError
from kerntune.tuning.cache import Winner, WinnerCache, WinnerKey
from tuning.cache.made import LARGE, SMALL, won
from tuning.cache.made import WINNER as KEY

replace = msgspec.structs.replace
OTHER_KEYS = [
    replace(KEY, kernel="mul_kernel"),
    replace(KEY, source="abd"),
    replace(KEY, target="cuda:80"),
    replace(KEY, device="NVIDIA H200"),
    replace(KEY, triton="3.8.0"),
    replace(KEY, arguments="n=1025; x=float32(1025,)(1,)"),
    replace(KEY, configs=(SMALL,)),
    replace(KEY, configs=(SMALL, LARGE.replace(num_stages=2))),
    replace(KEY, search="BLOCK 128..1024"),
]


@pytest.fixture
def cache(tmp_path: Path) -> WinnerCache:
    return WinnerCache(tmp_path / "cache")


def file_of(cache: WinnerCache) -> Path:
    (path,) = cache.folder.glob("winners/*/*/*.json")
    return path


def test_a_winner_comes_back(cache: WinnerCache) -> None:
    assert cache.get(KEY) is None
    cache.add(won(LARGE, time_ns=12_400.5))
    assert cache.get(KEY) == won(LARGE, time_ns=12_400.5)
    assert WinnerCache(cache.folder).get(KEY) == cache.get(KEY)
    assert cache.damaged == []


@pytest.mark.parametrize("key", OTHER_KEYS)
def test_every_part_of_a_key_counts(cache: WinnerCache, key: WinnerKey) -> None:
    cache.add(won(LARGE))
    assert cache.get(key) is None
    cache.add(won(SMALL, time_ns=2.0, key=key))
    assert [w.config for k in (KEY, key) if (w := cache.get(k))] == [LARGE, SMALL]


AMONG_OTHERS = replace(KEY, configs=(SMALL,)), replace(KEY, search="BLOCK 128..1024")


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the entries that are read from now on."""
    names: list[str] = []
    read = codec.read_file

    def noting(path: Path, **words: Any) -> bytes | None:
        names.append(path.name)
        return read(path, **words)

    monkeypatch.setattr(codec, "read_file", noting)
    return names


def many(cache: WinnerCache) -> None:
    """Winners of other questions, and two of this one."""
    for i in range(40):
        cache.add(won(SMALL, key=replace(KEY, arguments=f"n={i}")))
    for key in (KEY, *AMONG_OTHERS):
        cache.add(won(LARGE, key=key))


def test_winners_among_other_configs_are_found_without_reading_the_rest(
    cache: WinnerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(cache)
    names = reads(monkeypatch)
    found = WinnerCache(cache.folder).of_other_configs(KEY)
    assert {w.key.digest() for w in found} == {k.digest() for k in AMONG_OTHERS}
    assert len(names) == 3
    assert WinnerCache(cache.folder).of_other_configs(replace(KEY, source="unknown")) == []
    assert len(names) == 3


def test_a_winner_in_another_question_s_folder_is_not_believed(cache: WinnerCache) -> None:
    many(cache)
    (other,) = cache.folder.glob(f"winners/*/{replace(KEY, arguments='n=1').question}/*.json")
    (mine,) = cache.folder.glob(f"winners/*/*/{KEY.digest()}.json")
    shutil.copy(other, mine.parent)
    assert {w.key.digest() for w in cache.of_other_configs(KEY)} == {k.digest() for k in AMONG_OTHERS}


def test_digests_are_distinct_and_stable() -> None:
    digests = {key.digest() for key in (KEY, *OTHER_KEYS)}
    assert len(digests) == 1 + len(OTHER_KEYS)
    assert msgspec.json.decode(codec.to_json(KEY), type=WinnerKey).digest() == KEY.digest()
    assert KEY.digest() == "6e7e0d49a7685c54f3ac07def33736529567ca28ff65e4165788486141008f1d", "from before searches"


def test_a_later_winner_replaces(cache: WinnerCache) -> None:
    cache.add(won(LARGE, time_ns=2.0))
    cache.add(won(SMALL))
    found = cache.get(KEY)
    assert found is not None
    assert found.config == SMALL
    assert len(cache.entries()) == 1


def test_looking_writes_nothing(cache: WinnerCache) -> None:
    cache.get(KEY)
    assert cache.of_other_configs(KEY) == []
    assert cache.entries() == []
    assert cache.clear() == 0
    assert not cache.folder.exists()


DAMAGE = [
    pytest.param(lambda data: data[: len(data) // 2], id="cut"),
    pytest.param(lambda data: b"", id="empty"),
    pytest.param(lambda data: data.replace(b"kerntune.winner/1", b"kerntune.winner/0"), id="another schema"),
    pytest.param(lambda data: data.replace(b'"time_ns": ', b'"time_ns": "1", "x": '), id="wrong type"),
    pytest.param(lambda data: data.replace(b'"config"', b'"setting"'), id="unknown field"),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_set_aside_and_reported(cache: WinnerCache, damage: Any) -> None:
    cache.add(won(LARGE))
    path = file_of(cache)
    broken = damage(path.read_bytes())
    path.write_bytes(broken)
    assert cache.get(KEY) is None
    assert len(cache.damaged) == 1
    assert str(path) in cache.damaged[0]
    assert not path.exists()
    assert path.with_suffix(".damaged").read_bytes() == broken
    cache.add(won(SMALL))
    found = cache.get(KEY)
    assert found is not None
    assert found.config == SMALL
    assert len(cache.damaged) == 1


def test_entries_go_on_past_damage(cache: WinnerCache) -> None:
    for key in (KEY, *OTHER_KEYS):
        cache.add(won(SMALL, key=key))
    next(cache.folder.glob("winners/*/*/*.json")).write_bytes(b"{")
    assert len(cache.entries()) == len(OTHER_KEYS)
    assert len(cache.damaged) == 1


def test_an_entry_under_another_keys_name_is_no_hit(cache: WinnerCache) -> None:
    cache.add(won(LARGE))
    path = file_of(cache)
    text = path.read_text().replace("add_kernel", "mul_kernel")
    path.write_text(text)
    assert cache.get(KEY) is None
    assert path.exists(), "it is whole, only not what was asked for"


def test_clear_counts_and_leaves_nothing_to_find(cache: WinnerCache) -> None:
    for key in (KEY, *OTHER_KEYS):
        cache.add(won(SMALL, key=key))
    assert cache.clear() == 1 + len(OTHER_KEYS)
    assert cache.entries() == []
    assert cache.get(KEY) is None


def test_a_file_in_the_folders_place_is_an_error_with_its_path(cache: WinnerCache) -> None:
    cache.folder.write_text("a file")
    assert cache.get(KEY) is None
    with pytest.raises(CacheError, match="can't be written") as info:
        cache.add(won(SMALL))
    assert str(cache.folder) in str(info.value)


@pytest.mark.parametrize("place", [".lock", "the aside name"])
def test_damage_that_can_not_be_set_aside_is_not_fatal(cache: WinnerCache, place: str) -> None:
    """A cache folder that is read-only (an image, another user's); folders in the way refuse a superuser too."""
    cache.add(won(LARGE))
    path = file_of(cache)
    path.write_bytes(b"{")
    blocked = cache.folder / ".lock" if place == ".lock" else path.with_suffix(".damaged")
    (blocked / "inside").mkdir(parents=True)
    assert cache.get(KEY) is None
    assert len(cache.damaged) == 1


def test_entries_survive_what_can_not_be_read(cache: WinnerCache) -> None:
    cache.add(won(LARGE))
    (cache.folder / "winners" / "00" / "folder.json").mkdir(parents=True)
    assert len(cache.entries()) == 1


def test_the_default_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KERNTUNE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert WinnerCache().folder == WinnerCache(None).folder == tmp_path / "kerntune"


# offered


@pytest.mark.parametrize(("words", "stands"), [({}, False), ({"first_stands": True}, True)])
def test_a_finished_winner_replaces_an_unfinished_one_unless_the_first_stands(
    cache: WinnerCache, words: Any, stands: bool
) -> None:
    unfinished, finished = won(SMALL, untried=(LARGE,)), won(LARGE)
    cache.add(unfinished)
    standing = unfinished if stands else finished
    assert cache.offer(finished, **words) == standing
    assert cache.own(KEY) == standing
    assert cache.offer(unfinished, **words) == standing


def within(calls: int, function: Callable[..., bool], before: Callable[[int], object] = lambda call: None) -> Any:
    """The function, which may be called so often; what is done before each call gets its number."""
    numbers = itertools.count(1)

    def counted(*given: Any) -> bool:
        before(number := next(numbers))
        assert number <= calls
        return function(*given)

    return counted


@pytest.mark.parametrize("link", [False, True], ids=["another key's", "a link to nothing"])
def test_a_winner_is_offered_in_the_place_of_what_is_no_winner_of_its_key(
    cache: WinnerCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: bool
) -> None:
    """A whole entry under a name that isn't its own is no damage to be set aside."""
    cache.add(won(SMALL))
    path = file_of(cache)
    if link:
        path.unlink()
        path.symlink_to(tmp_path / "nothing")
    else:
        path.write_text(path.read_text().replace("add_kernel", "mul_kernel"))
    monkeypatch.setattr(cache, "write_new", within(2, cache.write_new))
    assert cache.offer(won(LARGE)) == won(LARGE)
    assert cache.own(KEY) == won(LARGE)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("at_once", [False, True], ids=["before it is offered again", "at once"])
def test_where_damage_was_set_aside_the_first_of_several_processes_stands(
    cache: WinnerCache, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    cache.add(won(SMALL))
    file_of(cache).write_bytes(b"{")
    other, read = WinnerCache(cache.folder), cache.own

    def own(key: WinnerKey) -> Winner | None:
        found = read(key)
        if at_once and found is None:
            other.add(won(SMALL))
        return found

    attempt = within(2, cache.write_new, lambda call: call == 2 and not at_once and other.add(won(SMALL)))
    monkeypatch.setattr(cache, "write_new", attempt)
    monkeypatch.setattr(cache, "own", own)
    assert cache.offer(won(LARGE)) == won(SMALL)
    assert cache.own(KEY) == won(SMALL)
    assert len(cache.damaged) == 1


# many processes

WORKER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from tuning.cache.test_winners import KEY, LARGE, OTHER_KEYS, SMALL, won
from kerntune.tuning.cache import WinnerCache
cache, mine = WinnerCache(Path(sys.argv[1])), int(sys.argv[2])
config, time_ns = (SMALL, LARGE)[mine], float(mine)
for _ in range(60):
    for key in (KEY, OTHER_KEYS[mine]):
        cache.add(won(config, time_ns=time_ns, key=key))
        found = cache.get(key)
        assert found is not None and found.key == key
        assert found.config == (SMALL, LARGE)[int(found.time_ns)], "halves of two writers"
    cache.entries()
assert cache.damaged == [], cache.damaged
"""


@pytest.mark.slow
def test_two_processes_never_see_half_an_entry(cache: WinnerCache) -> None:
    folders = [str(Path(__file__).parents[2]), str(Path(__file__).parents[3])]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(cache.folder), str(i), *folders],
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    errors = [worker.communicate(timeout=120)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], errors
    assert {w.key.digest() for w in cache.entries()} == {k.digest() for k in (KEY, *OTHER_KEYS[:2])}
    assert sorted(p.suffix for p in (cache.folder / "winners").glob("??/*/*")) == [".json"] * 3


ASIDE = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from tuning.cache.test_winners import KEY, SMALL
from kerntune.tuning.cache import WinnerCache
cache = WinnerCache(Path(sys.argv[1]))
assert cache.get(KEY) is None
print(len(cache.damaged))
"""


@pytest.mark.slow
def test_two_processes_set_the_same_damage_aside(cache: WinnerCache) -> None:
    cache.add(won(LARGE))
    path = file_of(cache)
    path.write_bytes(b"{")
    folders = [str(Path(__file__).parents[2]), str(Path(__file__).parents[3])]
    command = [sys.executable, "-c", ASIDE, str(cache.folder), *folders]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [worker.communicate(timeout=120) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], outputs
    assert sum(int(out) for out, _ in outputs) >= 1
    assert path.with_suffix(".damaged").read_bytes() == b"{"


def test_a_good_entry_that_came_meanwhile_is_not_set_aside(cache: WinnerCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Process A reads damage; before it sets it aside, B mends the entry."""
    cache.add(won(LARGE))
    file_of(cache).write_bytes(b"{")
    decode = codec.from_json

    def late(data: bytes, *args: Any, **kwargs: Any) -> Any:
        if data == b"{":
            WinnerCache(cache.folder).add(won(SMALL))
        return decode(data, *args, **kwargs)

    monkeypatch.setattr(codec, "from_json", late)
    cache.get(KEY)
    found = WinnerCache(cache.folder).get(KEY)
    assert found is not None
    assert found.config == SMALL


def test_what_is_as_by_default_is_not_stored() -> None:
    found = json.loads(codec.to_json(won()))
    assert sorted(found) == ["config", "environment", "key", "schema", "time_ns"]
    assert sorted(found["key"]) == ["arguments", "configs", "device", "kernel", "source", "target", "triton"]
