"""Figures of launches in reports, and which launches of two sides belong together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from samples import H100, binary, metrics, recording, static_launch

from kerntune.base.case_result import LaunchFigures
from kerntune.base.config import Config
from kerntune.gate.static_figures import LaunchStatic, binary_input, in_both, launch_reports, launch_statics, paired

replace = msgspec.structs.replace
FIGURES = replace(metrics(), spill_store_bytes=24, spill_load_bytes=8)


def one(kernel: str = "a", **changes: Any) -> LaunchStatic:
    return replace(static_launch(), kernel=kernel, **changes)


def test_a_report_has_todays_figures_beside_those_of_the_same_launch() -> None:
    before = (one("b", metrics=replace(FIGURES, registers=99)), one("a", metrics=metrics()))
    first, second = launch_reports((one("a", metrics=FIGURES), one("new")), before[1:])
    assert (first.kernel, first.registers, first.spill_bytes, first.shared_bytes) == ("a", 32, 32, 1024)
    assert (first.occupancy, first.limiter, first.grid) == (0.5, "registers", (8, 1, 1))
    assert first.config == Config({"BLOCK": 128})
    assert first.before == LaunchFigures(32, 0, 1024, 0.5)
    assert second.before is None
    (told,) = launch_reports((one("b"),), before)
    assert told.before == LaunchFigures(99, 32, 1024, 0.5)
    assert launch_reports((one(),))[0].before is None


def test_a_binary_is_analysed_with_what_it_was_compiled_for() -> None:
    made = replace(binary(), shared=12, num_warps=8, tmem=64)
    found = binary_input(made, b"elf", "text")
    assert (found.kind, found.data, found.asm, found.arch) == ("cubin", b"elf", "text", "sm_90a")
    assert (found.shared_bytes, found.num_warps, found.tensor_memory_columns) == (12, 8, 64)


@pytest.mark.parametrize(("took", "stored"), [(0.12345, 0.123), (2.0, 2.0), (None, None)])
def test_how_long_the_compiler_took_is_stored_to_the_millisecond(took: float | None, stored: float | None) -> None:
    made = binary()
    compiled = SimpleNamespace(stages={}, compiled_for={"x": "*fp32"}, seconds=took)
    recorded: Any = SimpleNamespace(
        recording=recording(), compiled={(made.sha256, made.ttir_sha256): compiled}, accesses={}, lines=(), made_from={}
    )
    (found,) = launch_statics(recorded, H100, {made.code: FIGURES})
    assert found.compile_seconds == stored
    assert (found.metrics, found.compiled_for) == (FIGURES, {"x": "*fp32"})


def indices(before: list[LaunchStatic], after: list[LaunchStatic]) -> list[tuple[int, int]]:
    """Places before, by places after."""
    found = in_both(before, after)
    return [(next(j for j, x in enumerate(before) if x is old), i) for i, old, _ in found]


WIDE, HIGH = (8, 1, 1), (1, 8, 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([one("a"), one("b")], [one("b", grid=HIGH), one("a", grid=HIGH)]),
        ([one(code="x", grid=HIGH), one(code="x")], [one(code="x"), one(code="x", grid=HIGH)]),
        ([one(code="x"), one(code="y")], [one(code="y", grid=HIGH), one(code="x", grid=HIGH)]),
        (
            [one(code="1", compiled_for={"n": "1"}), one(code="2", compiled_for={"n": "2"})],
            [one(code="3", compiled_for={"n": "2"}), one(code="4", compiled_for={"n": "1"})],
        ),
        ([one(code="1", grid=HIGH), one(code="2", grid=WIDE)], [one(code="3", grid=WIDE), one(code="4", grid=HIGH)]),
        (
            [one(code="1", compiled_for={"n": "1"}), one(code="2", compiled_for={"n": "2"})],
            [one(code="3", compiled_for={"n": "2"}, grid=HIGH), one(code="4", compiled_for={"n": "1"}, grid=HIGH)],
        ),
        ([one("a", code="1"), one("b", code="2")], [one("b", code="3"), one("c", code="4")]),
    ],
    ids=[
        "code of two kernels",
        "grid",
        "code",
        "compiled for",
        "grid of other code",
        "compiled for, other grid",
        "rest",
    ],
)
def test_launches_of_kernels_that_persons_wrote(before: Any, after: Any) -> None:
    assert indices(before, after) == [(1, 0), (0, 1)]


def test_what_only_one_side_has_stands_alone_and_last_if_it_is_gone() -> None:
    a, b, new = one("a"), one("b"), one("a")
    assert paired([a, b], [new]) == [(a, new), (b, None)]
    assert paired([], [new]) == [(None, new)]
    assert paired([a], []) == [(a, None)]


def test_operators_in_common_decide_by_the_larger_part() -> None:
    def generated(code: str, *origins: str) -> LaunchStatic:
        return one(f"triton_{code}", code=code, source=code, origins=origins)

    before = [generated("1", "mul", "add"), generated("2", "mul", "sub", "exp")]
    after = [generated("3", "mul", "sub", "exp", "log"), generated("4", "mul", "neg")]
    assert indices(before, after) == [(1, 0), (0, 1)]
    assert indices([generated("1", "mul")], [generated("2", "add")]) == []


def test_a_baseline_s_file_has_no_fields_that_say_nothing() -> None:
    plain = msgspec.to_builtins(one())
    assert set(plain) == {"kernel", "source", "code", "ttir_sha256", "grid", "metrics", "config"}


def test_another_config_than_the_baselines_is_beside_todays() -> None:
    small, large = Config({"B": 1}), Config({"B": 2})
    written = one(config=None, compiled_for={"B": "constexpr 1", "x_ptr": "*fp32", "num_warps": "8"})
    cases = [
        (one(config=small), one(config=large), (large, {})),
        (one(config=small), one(config=small), (None, {})),
        (one(config=small), written, (None, {"B": "1", "num_warps": "8"})),
        (one(config=None, compiled_for={"num_warps": "1"}), written, (None, {"B": "1", "num_warps": "8"})),
        (written, written, (None, {})),
    ]
    for today, before, told in cases:
        (report,) = launch_reports((today,), (before,))
        assert (report.config_before, report.written_before) == told
    assert launch_reports((written,))[0].written_before == {}
