"""What a store is asked for, in which order, and what its files may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kerntune.base import codec
from kerntune.base.store_process import (
    Contents,
    CreateRequest,
    Names,
    NamesRequest,
    ReadRequest,
    RemoveLaterRequest,
    ReplaceRequest,
    WriteLaterRequest,
    WriteReply,
)
from kerntune.tuning.cache.shared_store import (
    SharedStore,
    forget_stores,
    generation_of,
    lease_name,
    store_folder,
    trials_file,
    winner_folder,
    winner_name,
)
from tuning.cache.made import LARGE, QUESTION, SMALL, WINNER, trial, won

replace = msgspec.structs.replace


class Client:
    """Gives replies one after the other, None once there are no more, and remembers what it was asked."""

    def __init__(self, *replies: Any) -> None:
        self._replies = iter(replies)
        self.asked: list[Any] = []
        self.told: list[Any] = []

    def ask(self, request: Any) -> Any:
        self.asked.append(request)
        return next(self._replies, None)

    def tell(self, request: Any) -> None:
        self.told.append(request)


def store(folder: Path, *replies: Any, url: str = "s3://a/b") -> tuple[SharedStore, Client]:
    client: Any = Client(*replies)
    return SharedStore(url, folder, client), client


UNFINISHED = won(untried=(LARGE,))


def names(first: int, last: int) -> list[str]:
    return [winner_name(WINNER, g) for g in range(first, last + 1)]


def test_winners_that_were_refused_or_unfinished_have_eight_places(tmp_path: Path) -> None:
    """Each is read after the last one; the latest that can be used stands."""
    data = codec.to_json(UNFINISHED)
    found, client = store(tmp_path, *[Contents((data,))] * 9)
    assert found.find(WINNER) == UNFINISHED
    assert client.asked == [ReadRequest((name,), 4 << 20) for name in names(1, 8)]
    assert client.told == []


def test_a_finished_winner_ends_the_search(tmp_path: Path) -> None:
    found, client = store(tmp_path, Contents((b"{",)), Contents((codec.to_json(won()),)))
    assert found.find(WINNER) == won()
    assert len(client.asked) == 2
    none, client = store(tmp_path, Contents((None,)))
    assert none.find(WINNER) is None
    assert len(client.asked) == 1
    away, client = store(tmp_path)
    assert away.find(WINNER) is None
    assert len(client.asked) == 1


def test_a_winner_is_offered_for_eight_places(tmp_path: Path) -> None:
    """Those before hold what can't be used."""
    found, client = store(tmp_path, *[WriteReply(False, b"{")] * 9)
    assert found.offer(won()) is None
    assert [one.name for one in client.asked] == names(1, 8)
    found, client = store(tmp_path, WriteReply(False, b"["), WriteReply(True))
    assert found.offer(won()) == won()
    data = codec.to_json(won())
    assert client.asked == [CreateRequest(winner_name(WINNER, g), data, 4 << 20) for g in (1, 2)]


def test_another_s_winner_stands(tmp_path: Path) -> None:
    other = won(config=LARGE)
    found, client = store(tmp_path, WriteReply(False, codec.to_json(other)))
    assert found.offer(won()) == other
    assert client.told == []


def test_tuning_by_force_removes_the_later_places(tmp_path: Path) -> None:
    data = codec.to_json(won())
    found, client = store(tmp_path, WriteReply(True))
    assert found.replace(won())
    assert client.asked == [ReplaceRequest(winner_name(WINNER, 1), data)]
    assert client.told == [RemoveLaterRequest(tuple(names(2, 8)))]
    found, client = store(tmp_path, WriteReply(True))
    assert found.replace(UNFINISHED)
    assert client.told == []
    away, client = store(tmp_path)
    assert not away.replace(won())
    assert client.told == []


def test_a_store_that_is_only_read_is_told_nothing(tmp_path: Path) -> None:
    found, client = store(tmp_path, Contents((codec.to_json(won()),)), url="hf://datasets/a/b")
    assert found.is_read_only
    assert found.find(WINNER) == won()
    assert found.offer(won()) is None
    assert not found.replace(won())
    found.add_trials([trial()])
    assert client.told == []
    assert len(client.asked) == 1


@pytest.mark.parametrize("more", [0, 1])
def test_a_winner_s_file_may_have_four_mebibytes(tmp_path: Path, more: int) -> None:
    data = codec.to_json(won())
    data += b" " * ((4 << 20) + more - len(data))
    found, _ = store(tmp_path)
    assert (found.winner_of(winner_name(WINNER, 1), data) is None) is bool(more)
    assert len(found.damaged) == more
    if more:
        assert f"{winner_name(WINNER, 1)}: has more than the 4194304 bytes" in found.damaged[0]


def test_a_winner_is_of_the_key_that_its_name_says_and_that_is_asked_for(tmp_path: Path) -> None:
    found, _ = store(tmp_path)
    data, other = codec.to_json(won()), replace(WINNER, arguments="n=7")
    name = winner_name(WINNER, 3)
    assert found.winner_of(name, data) == found.winner_of(name, data, WINNER) == won()
    assert found.winner_of(name, data, other) is None
    again, _ = store(tmp_path / "again")
    assert again.winner_of(winner_name(other, 1), data) is None
    assert "is of another key than its name says" in again.damaged[0]
    assert again.winner_of(winner_name(other, 1), data) is None
    assert len(again.damaged) == 1, "and is told once"


def test_trials_take_two_requests(tmp_path: Path) -> None:
    name, data = trials_file([trial()])
    found, client = store(tmp_path, Names((name, "notes.txt")), Contents((data,)))
    assert found.trials_of(QUESTION) == [trial()]
    assert client.asked == [NamesRequest(f"v1/trials/{QUESTION.digest()}"), ReadRequest((name,), 4 << 20)]
    none, client = store(tmp_path, Names(()))
    assert none.trials_of(QUESTION) == []
    assert len(client.asked) == 1
    for replies in ((), (Names((name,)),)):
        away, _ = store(tmp_path, *replies)
        assert away.trials_of(QUESTION) is None


def test_of_many_files_of_trials_64_are_read(tmp_path: Path) -> None:
    listed = Names(tuple(f"{i}.json" for i in range(70)))
    found, client = store(tmp_path, listed, Contents((None,) * 64))
    assert found.trials_of(QUESTION) == []
    assert client.asked[1] == ReadRequest(listed.names[:64], 4 << 20)


@pytest.mark.parametrize("more", [0, 1])
def test_a_file_of_trials_may_have_four_mebibytes(tmp_path: Path, more: int) -> None:
    name, data = trials_file([trial()])
    data += b" " * ((4 << 20) + more - len(data))
    found, _ = store(tmp_path)
    assert list(found.trials_in(name, data)) == ([] if more else [trial()])
    assert list(found.trials_in(name, data, QUESTION)) == ([] if more else [trial()])
    assert len(found.damaged) == more


def test_trials_of_another_question_or_schema_are_refused(tmp_path: Path) -> None:
    name, _ = trials_file([trial()])
    for wrong in (trial(key=replace(QUESTION, arguments="n=7")), trial(schema="kerntune.trial/0")):
        found, _ = store(tmp_path / wrong.schema.replace("/", "-"))
        assert list(found.trials_in(name, trials_file([wrong])[1])) == []
        assert "has trials of another question than its name says" in found.damaged[0]


def test_trials_are_stored_later_if_there_are_any(tmp_path: Path) -> None:
    found, client = store(tmp_path)
    found.add_trials([])
    assert client.told == []
    found.add_trials([trial(LARGE), trial(SMALL)])
    name, data = trials_file([trial(SMALL), trial(LARGE)])
    assert client.told == [WriteLaterRequest(name, data)], "whatever their order"
    assert name.startswith(f"v1/trials/{QUESTION.digest()}/")


def test_names_say_what_is_in_a_file() -> None:
    folder = winner_folder(WINNER)
    assert folder.startswith("v1/winners/cuda-90/nvidia-h100/add_kernel-")
    assert len(folder.rpartition("-")[2]) == 32
    assert winner_name(WINNER, 2) == f"{folder}/{WINNER.digest()}.2.json"
    assert lease_name(WINNER, 3) == f"v1/leases/{WINNER.digest()}.3"
    long = winner_folder(replace(WINNER, kernel="k" * 200)).rpartition("/")[2]
    assert long[:81] == "k" * 80 + "-"
    assert winner_folder(replace(WINNER, kernel="")).rpartition("/")[2].startswith("kernel-")
    assert winner_folder(replace(WINNER, kernel="<a b>")).rpartition("/")[2].startswith("-a-b--")


def test_of_a_key_s_winners_the_usable_one_with_the_highest_number_stands(tmp_path: Path) -> None:
    found, _ = store(tmp_path)
    files = {winner_name(WINNER, g): codec.to_json(won(time_ns=float(g))) for g in (7, 5, 2)}
    assert found.latest({**files, winner_name(WINNER, 8): b"{"}) == [won(time_ns=7.0)]
    assert [generation_of(name) for name in files] == [7, 5, 2]


KEYS = [replace(WINNER, arguments=f"n={n}") for n in range(200)]


def listing(*generations: int) -> Names:
    """A store that has these files of each of the keys."""
    return Names(tuple(sorted(winner_name(key, g) for key in KEYS for g in generations)))


def contents(request: ReadRequest) -> Contents:
    """What the files of these names hold."""
    by_digest = {key.digest(): key for key in KEYS}
    keys = [by_digest[name.rpartition("/")[2].partition(".")[0]] for name in request.names]
    return Contents(tuple(codec.to_json(won(key=key)) for key in keys))


class Answering(Client):
    """Lists and reads the files of all keys, but no file whose name begins with what is ``slow``."""

    def __init__(self, *generations: int, slow: str = "none") -> None:
        super().__init__()
        self._listing, self._slow = listing(*generations), slow

    def ask(self, request: Any) -> Any:
        self.asked.append(request)
        if isinstance(request, NamesRequest):
            return self._listing
        read = zip(request.names, contents(request).data, strict=True)
        return Contents(tuple(None if name.startswith(self._slow) else data for name, data in read))


def test_of_a_kernel_with_many_winners_128_are_read_and_the_key_s_own_first(tmp_path: Path) -> None:
    client: Any = Answering(1)
    found = SharedStore("s3://a/b", tmp_path, client)
    last = max(KEYS, key=lambda key: key.digest())
    assert last in [one.key for one in found.of_kernel(last) or []]
    listed, read = client.asked
    assert listed == NamesRequest(winner_folder(WINNER))
    assert len(read.names) == 128
    assert read.names[0] == winner_name(last, 1)


def test_each_winner_of_a_kernel_is_read_once(tmp_path: Path) -> None:
    client: Any = Answering(1)
    found = SharedStore("s3://a/b", tmp_path, client)
    got = [one.key for key in KEYS for one in found.of_kernel(key) or []]
    assert sorted(key.digest() for key in got) == sorted(key.digest() for key in KEYS)
    assert [type(one) for one in client.asked] == [NamesRequest, ReadRequest, ReadRequest]


def test_the_files_of_a_key_are_read_together(tmp_path: Path) -> None:
    """Else an unfinished winner would count, whose finished one wasn't read."""
    client: Any = Answering(1, 2, 3)
    SharedStore("s3://a/b", tmp_path, client).of_kernel(KEYS[0])
    read = client.asked[1].names
    assert len(read) == 126
    assert {winner_name(KEYS[0], g) for g in (1, 2, 3)} <= set(read)
    assert all(sum(key.digest() in name for name in read) in (0, 3) for key in KEYS)


def test_what_there_was_no_time_for_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    late = KEYS[7]
    client: Any = Answering(1, 2, slow=winner_name(late, 2))
    found = SharedStore("sftp://a/b", tmp_path, client)
    found.unread[winner_folder(late)] = frozenset(winner_name(key, g) for key in (late, KEYS[8]) for g in (1, 2))
    assert [one.key for one in found.of_kernel(KEYS[8]) or []] == [KEYS[8]], "not half of a key's files"
    assert [one.key for one in found.of_kernel(late) or []] == [late]
    assert found.of_kernel(late) == [], "its second file was removed meanwhile"
    assert len(client.asked) == 2


def test_what_lies_beside_winners_is_left_alone(tmp_path: Path) -> None:
    """Also what earlier versions of this layout wrote: all winners of a kernel in one file."""
    folder = winner_folder(WINNER)
    odd = (f"{folder}.json.gz", f"{folder}/notes.txt", f"{folder}/{WINNER.digest()}.9.json", f"{folder}/x.1.json")
    found, client = store(tmp_path, Names(odd))
    assert found.of_kernel(WINNER) == []
    assert len(client.asked) == 1


def test_what_is_known_of_stores_can_be_forgotten(tmp_path: Path) -> None:
    folder = store_folder(tmp_path, "s3://a/b")
    assert folder.parent == tmp_path / "stores"
    assert len(folder.name) == 16
    folder.mkdir(parents=True)
    (tmp_path / "winners").mkdir()
    forget_stores(tmp_path)
    forget_stores(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["winners"]
