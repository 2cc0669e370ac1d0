"""What differs between then and now, in words."""

from __future__ import annotations

import msgspec
import pytest
from samples import ENVIRONMENT, binary, launch, recording

from kerntune.check.causes import causes, code_cause, config_causes
from kerntune.config import Config
from kerntune.recording import Recording

replace = msgspec.structs.replace
NEWER = replace(ENVIRONMENT, triton="3.10.0")
SMALL, LARGE = Config({"BLOCK": 128}), Config({"BLOCK": 256}, num_warps=8)


def with_launch(**changes: object) -> Recording:
    return recording(launches=(launch(**changes),))


BASE = with_launch(config=SMALL)


@pytest.mark.parametrize(
    ("before", "after", "triton", "text"),
    [
        (["a"], ["a"], "3.9.0", "code unchanged"),
        (["a"], ["b"], "3.9.0", "code changed"),
        (["a"], ["a", "b"], "3.9.0", "code changed"),
        (["a"], ["a"], "3.10.0", "code unchanged, Triton 3.9.0 -> 3.10.0"),
        (["a"], ["b"], "3.10.0", "code changed, Triton 3.9.0 -> 3.10.0"),
    ],
)
def test_code_and_compiler(before: list[str], after: list[str], triton: str, text: str) -> None:
    assert code_cause(before, after, "3.9.0", triton) == text


def test_sources_may_be_a_list_or_a_tuple() -> None:
    assert code_cause(("a",), ["a"], "3.9.0", "3.9.0") == "code unchanged"


def test_one_line_per_changed_config() -> None:
    found = config_causes([("a", SMALL), ("b", SMALL), ("c", None)], [("a", LARGE), ("b", LARGE), ("c", SMALL)])
    assert found == [
        "config of a changed: BLOCK=128 num_warps=4 num_stages=3 -> BLOCK=256 num_warps=8 num_stages=3",
        "config of b changed: BLOCK=128 num_warps=4 num_stages=3 -> BLOCK=256 num_warps=8 num_stages=3",
        "config of c changed: None -> BLOCK=128 num_warps=4 num_stages=3",
    ]


@pytest.mark.parametrize("same", [[], [("a", None)]])
def test_unchanged_configs_are_one_line(same: list[tuple[str, Config | None]]) -> None:
    assert config_causes(same, same) == ["config unchanged"]


def test_an_equal_config_read_from_disk_is_unchanged() -> None:
    assert config_causes([("a", SMALL)], [("a", Config({"BLOCK": 128}))]) == ["config unchanged"]


def test_nothing_changed() -> None:
    assert causes(BASE, BASE, ENVIRONMENT, ENVIRONMENT) == ("code unchanged", "config unchanged")


def test_changed_machine_code_is_not_said_twice() -> None:
    """The first sentence speaks of code already; a grid or an argument is news."""
    after = recording(
        launches=(launch(config=SMALL, source="edited", grid=(9, 1, 1)),),
        binaries=(binary("other", shared=4096),),
    )
    assert causes(BASE, after, ENVIRONMENT, NEWER) == (
        "code changed, Triton 3.9.0 -> 3.10.0",
        "config unchanged",
        "launch 0 (add_kernel): grid changed",
    )


def test_an_added_launch_is_a_cause() -> None:
    after = recording(launches=(*BASE.launches, launch(config=None)))
    found = causes(BASE, after, ENVIRONMENT, ENVIRONMENT)
    assert found == ("code changed", "config unchanged", "launches: 1 -> 2")


def test_the_environment_alone_is_no_cause_here() -> None:
    """The caller adds it; a driver is no change of code or compiler."""
    moved = replace(ENVIRONMENT, driver="other", torch="other", sm_clock_mhz=1)
    assert causes(BASE, BASE, ENVIRONMENT, moved) == ("code unchanged", "config unchanged")
