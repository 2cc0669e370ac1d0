"""What no recording can be is said field by field, with the field's place."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from samples import recording

from kerntune.base.recording import Recording, Scratch, Stored, Uniform
from kerntune.base.recording_check import recording_problems

MAX_BYTES = 1 << 44
MAX_COUNT = 1 << 31
MAX_DIMENSIONS = 64
MAX_INTEGER = 1 << 64


GOOD = recording()


def with_first(part: str, **changes: Any) -> Recording:
    """A recording whose first launch, binary, storage or view is another."""
    first, *rest = getattr(GOOD, part)
    return replace(GOOD, **{part: (replace(first, **changes), *rest)})


def read(found: Recording) -> Recording:
    """A recording as it is decoded from a file."""
    return msgspec.json.decode(msgspec.json.encode(found), type=Recording)


def test_a_good_one_has_no_problem() -> None:
    assert list(recording_problems(GOOD)) == []


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("launches", {"grid": (0, MAX_COUNT, 1)}),
        ("binaries", {"num_warps": MAX_COUNT, "num_ctas": 1, "shared": MAX_COUNT, "tmem": 0}),
        ("binaries", {"global_scratch": Scratch(MAX_BYTES, MAX_COUNT), "profile_scratch": Scratch(0, 1)}),
        ("storages", {"nbytes": MAX_BYTES}),
        ("storages", {"nbytes": 0, "content": Uniform(-MAX_INTEGER, -MAX_INTEGER)}),
        ("views", {"shape": (MAX_INTEGER,) * MAX_DIMENSIONS, "strides": (-MAX_INTEGER,) * MAX_DIMENSIONS}),
        ("views", {"offset_bytes": MAX_BYTES}),
    ],
)
def test_a_bound_itself_may_be(part: str, changes: dict[str, Any]) -> None:
    assert list(recording_problems(read(with_first(part, **changes)))) == []


@pytest.mark.parametrize(
    ("part", "changes", "said"),
    [
        ("launches", {"binary": -1}, "binary is -1, and there are"),
        ("launches", {"binary": len(GOOD.binaries)}, f"binary is {len(GOOD.binaries)}, and there are"),
        ("launches", {"kernel": "a\nb"}, "kernel has a character that can't be printed"),
        ("launches", {"reads": (99,)}, "reads[0] is 99"),
        ("launches", {"writes": (0, 99)}, "writes[1] is 99"),
        ("binaries", {"symbol": "x" * 4001}, "symbol has 4001 characters"),
        ("storages", {"content": Uniform(2, 1)}, "content.high is 1"),
        ("views", {"storage": 99}, "storage is 99"),
        ("views", {"shape": (1, 2), "strides": (1,)}, "strides are 1, and there are 2 sizes"),
        ("views", {"shape": (1,) * 65, "strides": (1,) * 65}, "shape has 65 dimensions"),
        ("views", {"shape": (1, -1), "strides": (1, 1)}, "shape[1] is -1"),
        ("views", {"shape": (1,), "strides": (10**30,)}, "strides[0] is a number of 31 digits"),
    ],
)
def test_what_can_not_be_is_said_with_its_place(part: str, changes: dict[str, Any], said: str) -> None:
    (problem,) = recording_problems(with_first(part, **changes))
    assert problem.startswith(f"{part}[0].{said}")


@pytest.mark.parametrize(
    ("part", "changes", "place"),
    [
        ("launches", {"grid": (1, -1, 1)}, "grid[1]"),
        ("binaries", {"sha256": "../x"}, "sha256"),
        ("binaries", {"ttir_sha256": "A" * 64}, "ttir_sha256"),
        ("binaries", {"ttir_sha256": "a" * 64 + "\n"}, "ttir_sha256"),
        ("binaries", {"arch": "sm_90a\n"}, "arch"),
        ("binaries", {"num_warps": 0}, "num_warps"),
        ("binaries", {"shared": MAX_COUNT + 1}, "shared"),
        ("binaries", {"global_scratch": Scratch(-1, 1)}, "global_scratch.size"),
        ("binaries", {"profile_scratch": Scratch(0, 0)}, "profile_scratch.align"),
        ("storages", {"nbytes": -1}, "nbytes"),
        ("storages", {"content": Stored("x")}, "content.sha256"),
        ("views", {"offset_bytes": -1}, "offset_bytes"),
    ],
)
def test_what_no_number_or_text_can_be_is_not_decoded(part: str, changes: dict[str, Any], place: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        read(with_first(part, **changes))
    assert str(caught.value).endswith(f"at `$.{part}[0].{place}`")
