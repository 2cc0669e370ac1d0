"""What a dump of a launch has, piece by piece: names, contents, what takes the place of what isn't known."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from samples import recording

from kerntune.base.recording import Normal, Storage, Stored, Uniform, Zeros
from kerntune.capture.launch_dump import (
    ContentFile,
    DumpedContents,
    DumpedStorage,
    DumpedTexts,
    _digest,
    _expected,
    _LaunchFolder,
    folder_name,
    guessed,
    machine_code,
    plain_name,
)
from kerntune.errors import StoreError
from kerntune.gpu.memory import content_bytes

FEW = Storage(4, "int8", Zeros())
NO_TEXTS = DumpedTexts()


@pytest.mark.parametrize(
    ("text", "name"),
    [("a/b c::d", "a-b-c-d"), ("..a-", "a"), ("x" * 80, "x" * 80), ("x" * 81, "x" * 80), ("a.b_c-1", "a.b_c-1")],
)
def test_names_of_files(text: str, name: str) -> None:
    assert plain_name(text) == name
    assert folder_name(text).startswith(f"{name}-")
    assert len(folder_name(text)) == len(name) + 9


def test_names_of_folders_are_distinct() -> None:
    assert len({folder_name(text) for text in ("a b", "a-b", "a/b")}) == 3


def test_floats_are_guessed_by_their_number_and_all_else_is_left() -> None:
    dtypes = ("int32", "float32", "bfloat16", "fp8e5", "float16")
    made = replace(recording(), storages=tuple(Storage(8, dtype, Zeros()) for dtype in dtypes))
    contents = [storage.content for storage in guessed(made).storages]
    assert contents == [Zeros(), Normal(seed=1), Normal(seed=2), Zeros(), Normal(seed=4)]


@pytest.mark.parametrize(
    ("content", "before", "data"),
    [
        (Uniform(7, 7), {}, b"\7" * 4), (Zeros(), {}, None), (Zeros(), {1: b"1234"}, b"1234"),
        (Stored("ab" * 32), {}, b"kept"), (Stored("ab" * 32), {1: b"1234"}, b"1234"),
    ],
)  # fmt: skip
def test_a_content_is_a_file_where_its_bytes_are_known(
    tmp_path: Path, content: Zeros | Uniform | Stored, before: dict[int, bytes], data: bytes | None
) -> None:
    made = replace(recording(), storages=(FEW, Storage(4, "int8", content)))
    launch = replace(made.launches[0], reads=(1,), writes=(0,))
    found = _LaunchFolder(tmp_path, made, launch, {"ab" * 32: b"kept"}, NO_TEXTS, DumpedContents(before)).storage(1)
    assert found == DumpedStorage(4, "int8", Zeros() if data is None else ContentFile("content-1.bin"), True, False)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [data] * (data is not None)


@pytest.mark.parametrize(
    ("storage", "nbytes"),
    [
        (Storage((1 << 22) + 8, "int64", Uniform(0, 9, seed=3)), 1 << 22),
        (Storage(1 << 23, "float16", Normal(2.0, seed=3)), 1 << 20),
    ],
)
def test_of_a_large_content_the_begin_is_written_as_it_is_drawn(tmp_path: Path, storage: Storage, nbytes: int) -> None:
    made = replace(recording(), storages=(storage,))
    _LaunchFolder(tmp_path, made, made.launches[0], {}, NO_TEXTS, DumpedContents()).storage(0)
    drawn = content_bytes(storage)
    assert drawn is not None
    assert (tmp_path / "content-0.bin").read_bytes() == drawn[:nbytes]
    assert len(drawn) >= nbytes


def test_a_content_that_is_lost_is_told(tmp_path: Path) -> None:
    made = replace(recording(), storages=(Storage(4, "int8", Stored("ab" * 32)),))
    with pytest.raises(StoreError, match="a storage's content abababababab is not stored, so it can't be dumped"):
        _LaunchFolder(tmp_path, made, made.launches[0], {}, NO_TEXTS, DumpedContents()).storage(0)


def test_what_was_written_is_a_file_of_its_place(tmp_path: Path) -> None:
    found = _expected(tmp_path, 2, b"data")
    assert (found.storage, found.file, (tmp_path / found.file).read_bytes()) == (2, "expected-2.bin", b"data")


def test_launches_are_distinguished_by_code_grid_and_parameters() -> None:
    made = recording()
    (launch, *_), binary = made.launches, made.binaries[0]
    digests = {
        _digest(made, launch, binary), _digest(made, replace(launch, grid=(9, 9, 9)), binary),
        _digest(made, launch, replace(binary, sha256="c" * 64)), _digest(made, replace(launch, params=()), binary),
    }  # fmt: skip
    assert [len(one) for one in digests] == [12] * 4
    assert _digest(made, replace(launch, kernel="other"), binary) in digests


def test_binaries_of_other_kinds_and_damaged_ones_have_no_instructions() -> None:
    binary = recording().binaries[0]
    assert machine_code(replace(binary, kind="hsaco"), b"") == machine_code(replace(binary, kind="cubin"), b"no") == ""
