"""The findings about a change, and their severity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.policy import STATIC_RULES, StaticPolicy, StaticRule
from kerntune.static.code_rules import Finding
from kerntune.static.metrics import StaticMetrics
from kerntune.static.occupancy import Violation
from kerntune.static.ptx import ProductLoops
from kerntune.static.rules import ANY_CONFIG, SIZES, _multiplied_otherwise, _operand_counts, _share, compare_static

KERNTUNE = Path(__file__).parents[2] / "kerntune"

BASE = StaticMetrics(
    registers=64,
    spill_store_bytes=0,
    spill_load_bytes=0,
    stack_bytes=0,
    shared_bytes=32768,
    code_bytes=8192,
    threads=128,
    instructions={
        "tensor_core": 64,
        "tensor_core_macs": 64 * 2048,
        "global_load": 8,
        "global_load_128": 8,
        "fp32": 100,
        "total": 500,
    },
    occupancy=0.5,
    occupancy_limiter="registers",
)
OVER = Violation("shared memory", 300000, 232448, "bytes a block")


def changed(instructions: dict[str, int] | None = None, **fields: Any) -> StaticMetrics:
    counts = {name: n for name, n in (BASE.instructions | (instructions or {})).items() if n}
    return msgspec.structs.replace(BASE, instructions=counts, **fields)


def thresholded(**thresholds: float) -> StaticPolicy:
    return StaticPolicy({k: StaticRule(STATIC_RULES[k].severity, v) for k, v in thresholds.items()})


def found(after: StaticMetrics, before: StaticMetrics = BASE, **thresholds: float) -> dict[str, Finding]:
    findings = compare_static(before, after, rules=thresholded(**thresholds))
    by_metric = {finding.metric: finding for finding in findings}
    assert len(by_metric) == len(findings)
    return by_metric


LOST_WIDTH = {"global_load": 32, "global_load_128": 0, "global_load_32": 32}


@pytest.mark.parametrize(
    ("after", "metric", "severity", "says"),
    [
        (
            changed(spill_store_bytes=128, spill_load_bytes=96),
            "spills",
            "fail",
            "spills 0 -> 224 B a thread (stored 0 -> 128, loaded 0 -> 96)",
        ),
        (changed(over_limit=(OVER,)), "shared memory", "fail", "needs 300,000 bytes a block, the device has 232,448"),
        (
            changed({"tensor_core": 32, "tensor_core_macs": 65536, "fp32": 100 + 65536 // 32}),
            "tensor_core",
            "fail",
            "products left the tensor cores: 64 -> 32 tensor core instructions, 100 -> 2,148 in fp32",
        ),
        (
            changed({"tensor_core": 0, "tensor_core_macs": 0}),
            "tensor_core",
            "fail",
            "no tensor cores are used any more",
        ),
        (changed({"fp64": 4}), "fp64", "fail", "0 -> 4 instructions"),
        (
            changed(LOST_WIDTH),
            "global_load_width",
            "fail",
            "8 of 128 bits -> 32 of 32 bits (on average 128 -> 32",
        ),
        (changed(occupancy=0.25), "occupancy", "warn", "50.0% -> 25.0%"),
        (changed(occupancy=0.48), "occupancy", "warn", "50.0% -> 48.0%"),
        (changed(registers=80), "registers", "warn", "64 -> 80 (+25%)"),
        (changed(shared_bytes=65536), "shared_bytes", "warn", "32,768 -> 65,536 (+100%)"),
        (changed(code_bytes=16384), "code_bytes", "warn", "8,192 -> 16,384 (+100%)"),
        (changed({"total": 700}), "total", "warn", "500 -> 700 (+40%)"),
        (changed(occupancy=0.75), "occupancy", "info", "rose: 50.0% -> 75.0%"),
        (changed(registers=32), "registers", "info", "64 -> 32 (-50%)"),
        (changed({"tma": 2}), "tma", "info", "0 -> 2"),
    ],
)
def test_one_change_is_one_finding(after: StaticMetrics, metric: str, severity: str, says: str) -> None:
    (finding,) = found(after).values()
    assert (finding.metric, finding.severity) == (metric, severity)
    assert says in finding.text


@pytest.mark.parametrize(
    ("stored", "repeated", "severity"), [(64, 0, "warn"), (65, 0, "fail"), (64, 4, "fail"), (64, msgspec.UNSET, "fail")]
)
def test_sixteen_registers_beside_loops_are_a_warning(stored: int, repeated: Any, severity: str) -> None:
    after = changed(spill_store_bytes=stored, spill_load_bytes=64, repeated_spill_bytes=repeated)
    before = msgspec.structs.replace(BASE, repeated_spill_bytes=0)
    assert found(after, before)["spills"].severity == severity


def test_what_fails_one_way_is_an_improvement_the_other_way() -> None:
    for after in (
        changed(spill_store_bytes=128),
        changed(over_limit=(OVER,)),
        changed({"tensor_core": 0, "tensor_core_macs": 0}),
        changed({"fp64": 4}),
        changed(LOST_WIDTH),
    ):
        assert [f.severity for f in found(after).values()] == ["fail"]
        assert [f.severity for f in found(BASE, after).values()] == ["info"]


def test_losing_bulk_copies_fails_whatever_the_config() -> None:
    before = changed({"tma": 2})
    assert found(BASE, before)["tma"].severity == "fail"
    assert [f.severity for f in compare_static(before, BASE, other_config=True)] == ["fail"]


@pytest.mark.parametrize(
    ("key", "loads", "verb"), [("tma_load", "async_copy", "loads"), ("tma_store", "global_store", "stores")]
)
def test_one_of_two_operands_that_is_no_longer_copied_in_bulk_is_found(key: str, loads: str, verb: str) -> None:
    before = changed({"tma": 3, key: 2})
    after = changed({"tma": 2, key: 1, loads: 4, f"{loads}_128": 4})
    finding = found(after, before)[key]
    assert (finding.rule, finding.severity) == ("tma_operands", "warn")
    assert f"fewer {verb} by bulk copies (TMA): 2 -> 1 instructions" in finding.text
    strict = StaticPolicy({"tma_operands": StaticRule("fail")})
    assert {f.metric: f.severity for f in compare_static(before, after, rules=strict)}[key] == "fail"
    assert found(changed({"tma": 2, key: 1}), before) == {}, "a larger tile, or an operand that isn't needed any more"
    scale = changed({"tma": 2, key: 1, loads: 1, f"{loads}_32": 1})
    assert "tma_operands" not in {f.rule for f in found(scale, before).values()}


@pytest.mark.parametrize(
    ("key", "loads", "products", "severity"),
    [
        pytest.param("tma_load", "async_copy", 64, "fail", id="no operand any more"),
        pytest.param("tma_store", "global_store", 64, "warn", id="a product's result"),
        pytest.param("tma_store", "global_store", 0, "fail", id="what a kernel that waits for memory writes"),
    ],
)
def test_one_way_that_is_no_longer_copied_in_bulk(key: str, loads: str, products: int, severity: str) -> None:
    counts = {"tensor_core": products, "tensor_core_macs": 0}
    before = changed({"tma": 3, key: 2, **counts})
    after = changed({"tma": 1, loads: 4, f"{loads}_128": 4, **counts})
    assert found(after, before)[key].severity == severity


@pytest.mark.parametrize(
    ("stored", "repeated", "severity"),
    [
        pytest.param(32, 0, "warn", id="kept while a loop runs"),
        pytest.param(32, 4, "fail", id="some in the loop"),
        pytest.param(32, msgspec.UNSET, "fail", id="not known where"),
        pytest.param(80, 0, "fail", id="many"),
    ],
)
def test_a_few_registers_that_wait_beside_a_loop(stored: int, repeated: int | msgspec.UnsetType, severity: str) -> None:
    after = changed(spill_store_bytes=stored, spill_load_bytes=stored, repeated_spill_bytes=repeated)
    before = changed(repeated_spill_bytes=0)
    assert found(after, before)["spills"].severity == severity


def test_the_reduction_of_large_angles_is_no_double_precision_of_the_kernels() -> None:
    """Every ``tl.sin`` has one, for arguments that are hardly ever so large."""
    after = changed({"fp64": 16, "total": 9000, "slow_path": 16, "slow_path_fp64": 1})
    assert {f.rule for f in found(after).values()} <= {"instructions"}
    assert found(changed({"fp64": 16, "slow_path": 16}))["fp64"].severity == "fail", "beside other arithmetic in it"


def test_fewer_but_larger_tensor_core_instructions_are_no_loss() -> None:
    assert found(changed({"tensor_core": 16})) == {}


@pytest.mark.parametrize("halved", [{"tensor_core": 32, "tensor_core_macs": 65536}, {"tensor_core": 32}])
def test_half_the_products_in_the_code_are_a_smaller_tile_or_a_loop_no_longer_unrolled(halved: dict[str, int]) -> None:
    assert found(changed(halved)) == {}


def test_tensor_cores_no_longer_used_by_whole_warpgroups() -> None:
    before, after = changed({"warpgroup_mma": 64}), changed({"tensor_core": 512})
    finding = found(after, before)["warpgroup_mma"]
    assert finding.severity == "fail"
    assert "64 -> 0" in finding.text
    assert [f.severity for f in compare_static(before, after, other_config=True)] == ["warn"], (
        "a tile of 32 rows has none"
    )


def test_where_no_tensor_cores_are_left_their_warpgroups_are_not_told_beside() -> None:
    lost = changed({"tensor_core": 0, "tensor_core_macs": 0})
    assert set(found(lost, changed({"warpgroup_mma": 64}))) == {"tensor_core"}


def test_more_fp64_where_there_was_some_is_a_warning() -> None:
    assert found(changed({"fp64": 8}), changed({"fp64": 4}))["fp64"].severity == "warn"


def test_asynchronous_copies_are_loads_too() -> None:
    """cp.async in place of plain loads of the same width is no change of width."""
    after = changed({"global_load": 0, "global_load_128": 0, "async_copy": 8, "async_copy_128": 8})
    assert "global_load_width" not in found(after)
    narrow = changed({"global_load": 0, "global_load_128": 0, "async_copy": 32, "async_copy_32": 32})
    assert found(narrow)["global_load_width"].severity == "fail"


def test_loads_that_became_bulk_copies_have_no_width() -> None:
    after = changed({"global_load": 0, "global_load_128": 0, "tma": 4})
    assert [f.metric for f in found(after).values()] == ["tma"]


def test_spills_to_accumulators_on_amd() -> None:
    before, after = changed(vgpr_spills=0), changed(vgpr_spills=5)
    finding = found(after, before)["vgpr_spills"]
    assert finding.severity == "fail"
    assert "0 -> 5 vector registers" in finding.text


def test_scalar_spills_on_amd_are_a_warning() -> None:
    finding = found(changed(sgpr_spills=9), changed(sgpr_spills=2))["sgpr_spills"]
    assert finding.severity == "warn"
    assert "2 -> 9 scalar registers" in finding.text


def test_a_limit_broken_further_fails_again() -> None:
    worse = msgspec.structs.replace(OVER, needed=400000)
    finding = found(changed(over_limit=(worse,)), changed(over_limit=(OVER,)))["shared memory"]
    assert (finding.severity, finding.before, finding.after) == ("fail", 300000, 400000)


def test_thresholds_are_shares_of_the_value_before() -> None:
    assert found(changed(registers=70)) == {}
    assert "registers" in found(changed(registers=70), registers=0.05)
    assert found(changed(occupancy=0.3), occupancy=0.5)["occupancy"].severity == "warn"
    strict = StaticPolicy({"occupancy": StaticRule("fail", 0.5)})
    assert [f.severity for f in compare_static(BASE, changed(occupancy=0.3), rules=strict)] == ["warn"]
    assert [f.severity for f in compare_static(BASE, changed(occupancy=0.2), rules=strict)] == ["fail"]
    mixed = {"global_load": 11, "global_load_128": 7, "global_load_32": 4}
    assert "global_load_width" in found(changed(mixed))
    assert found(changed(mixed), load_width=0.2) == {}


def test_failures_come_first() -> None:
    after = changed({"fp64": 1, "total": 900}, registers=32, occupancy=0.7, spill_store_bytes=4)
    severities = [f.severity for f in compare_static(BASE, after)]
    assert severities == sorted(severities, key=["fail", "warn", "info"].index)
    assert severities[:2] == ["fail", "fail"]


_SIZES = st.integers(0, 10**6)
_COUNTS = st.dictionaries(
    st.sampled_from(
        [
            "tensor_core",
            "tensor_core_macs",
            "fp64",
            "global_load_128",
            "global_load_16",
            "async_copy_64",
            "tma",
            "tma_load",
            "warpgroup_mma",
            "tensor_core_slots",
            "fp32",
            "global_store_128",
            "global_store_32",
            "total",
        ]
    ),
    st.integers(1, 10**4),
)
_VIOLATIONS = st.lists(
    st.builds(
        Violation,
        resource=st.sampled_from(["threads", "shared memory"]),
        needed=st.integers(1001, 9999),
        limit=st.just(1000),
        unit=st.just("a block"),
    ),
    max_size=2,
    unique_by=lambda v: v.resource,
).map(tuple)
_METRICS = st.builds(
    StaticMetrics,
    registers=st.integers(1, 255),
    spill_store_bytes=_SIZES,
    spill_load_bytes=_SIZES,
    stack_bytes=_SIZES,
    shared_bytes=_SIZES,
    code_bytes=_SIZES,
    threads=st.integers(32, 1024),
    instructions=_COUNTS,
    occupancy=st.none() | st.floats(0, 1),
    occupancy_limiter=st.sampled_from(["registers", "blocks"]),
    over_limit=_VIOLATIONS,
    vgpr_spills=st.none() | st.integers(0, 100),
)


@given(_METRICS)
def test_a_kernel_compared_with_itself_has_no_finding(metrics: StaticMetrics) -> None:
    assert compare_static(metrics, metrics) == []
    strict = {k: StaticRule("fail", 0.0) for k in STATIC_RULES}
    assert compare_static(metrics, metrics, rules=StaticPolicy(strict)) == []


@given(_METRICS, _METRICS)
def test_a_finding_names_what_changed(before: StaticMetrics, after: StaticMetrics) -> None:
    for finding in compare_static(before, after):
        assert finding.before != finding.after
        for value in (finding.before, finding.after):
            assert _written(value) & {word.strip("(),;:%") for word in finding.text.split()}, (finding, value)


def _written(value: float) -> set[str]:
    """How a figure may stand in a sentence."""
    whole = {f"{int(value):,}"} if value == int(value) else set()
    return whole | {f"{value:,.1f}", f"{value * 100:.1f}"}


@given(_METRICS, st.sampled_from(["spill_store_bytes", "spill_load_bytes"]), st.integers(1, 1000))
def test_any_new_spill_fails(metrics: StaticMetrics, field: str, more: int) -> None:
    after = msgspec.structs.replace(metrics, **{field: getattr(metrics, field) + more})
    assert [f.severity for f in compare_static(metrics, after)] == ["fail"]


@pytest.mark.slow
@given(_METRICS, _METRICS)
def test_what_fails_one_way_does_not_fail_the_other_way(before: StaticMetrics, after: StaticMetrics) -> None:
    forth = {f.metric for f in compare_static(before, after) if f.severity == "fail"}
    back = {f.metric for f in compare_static(after, before) if f.severity == "fail"}
    assert not forth & back


@pytest.mark.slow
@given(_METRICS, _METRICS)
def test_each_rule_is_as_loud_as_it_is_told(before: StaticMetrics, after: StaticMetrics) -> None:
    default = compare_static(before, after)
    assert {f.rule for f in default} <= STATIC_RULES.keys()
    for name in {f.rule for f in default}:
        told = {s: StaticPolicy({name: StaticRule(s, STATIC_RULES[name].threshold)}) for s in ("fail", "warn", "off")}
        by = {s: compare_static(before, after, rules=p) for s, p in told.items()}
        assert by["off"] == [f for f in default if f.rule != name]
        assert "fail" not in {f.severity for f in by["warn"] if f.rule == name}
        assert {f.metric for f in by["fail"]} == {f.metric for f in default}


@given(_METRICS, _METRICS)
@pytest.mark.slow
def test_another_config_fails_by_hard_rules_only(before: StaticMetrics, after: StaticMetrics) -> None:
    findings = compare_static(before, after, other_config=True)
    gone = {"tensor_core": 0, "tma": 0, "global_load_width": None, "global_store_width": None}
    for finding in findings:
        if finding.severity == "fail" and finding.rule not in ANY_CONFIG:
            assert gone[finding.metric] in (finding.after, None), finding
    assert {f.metric for f in findings} == {f.metric for f in compare_static(before, after)}


def test_another_tile_has_other_sizes_and_that_is_only_a_remark() -> None:
    other = changed({"total": 2000}, registers=128, shared_bytes=65536, code_bytes=16384, occupancy=0.25)
    said = {f.rule: f.severity for f in compare_static(BASE, other, other_config=True)}
    assert said == {"occupancy": "warn", **dict.fromkeys(SIZES, "info")}


def test_what_a_project_itself_lets_fail_fails_between_two_configs_too() -> None:
    rules = StaticPolicy({"occupancy": StaticRule("fail", 0.1)})
    findings = compare_static(BASE, changed(occupancy=0.25), rules=rules, other_config=True)
    assert [f.severity for f in findings] == ["fail"]


def test_a_growing_figure_fails_where_a_test_says_so() -> None:
    rules = StaticPolicy({"registers": StaticRule("fail", 0.2)})
    assert [f.severity for f in compare_static(BASE, changed(registers=80), rules=rules)] == ["fail"]
    assert compare_static(BASE, changed(registers=76), rules=rules) == []


@pytest.mark.parametrize(
    ("after", "said"),
    [("registers", "(limited by registers)"), ("blocks", "(limited by registers, then by blocks)")],
)
def test_what_limits_the_occupancy_is_named_once(after: str, said: str) -> None:
    assert found(changed(occupancy=0.25, occupancy_limiter=after))["occupancy"].text.endswith(said)


def test_every_rule_is_looked_at() -> None:
    """A rule that no module names would be accepted from users and never find anything; so would a misspelt one."""
    texts = [p.read_text() for folder in ("static", "gate") for p in sorted((KERNTUNE / folder).glob("*.py"))]
    assert len(texts) > 20
    assert {name for name in STATIC_RULES if not any(f'"{name}"' in text for text in texts)} == set()


# pipelines and operands of tensor cores


def loops(**counts: Any) -> ProductLoops:
    known: dict[str, Any] = {"loading": 1, "ahead": 1, "rounds": 2.0, "grouped": 1, "overlapped": 1, "types": TYPES}
    return ProductLoops(**(known | counts))


TYPES = ("f32.f16.f16",)
WAITING = {"ahead": 0, "rounds": 0.0, "overlapped": 0}
PIPELINED = changed({"async_copy": 24}, product_loops=loops())


def test_a_loop_of_products_that_waits_for_its_loads_fails() -> None:
    after = changed(product_loops=loops(**WAITING))
    finding = found(after, PIPELINED)["pipelined_loops"]
    assert (finding.severity, finding.rule) == ("fail", "pipelining")
    assert finding.text.startswith("pipelined loops 1 -> 0 (")
    assert "asynchronous copies 24 -> 0 instructions, 2 rounds ahead before)" in finding.text
    assert [f.severity for f in compare_static(PIPELINED, after, other_config=True)] == ["fail"]
    assert [f.severity for f in compare_static(after, PIPELINED)] == ["info"]


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(loops(loading=0, ahead=0, rounds=0.0), id="operands from other warps"),
        pytest.param(loops(rounds=1.0), id="a stage less"),
        pytest.param(loops(loading=2, ahead=1), id="a remainder beside"),
        pytest.param(loops(plain_bytes=64), id="more loads beside as many copies"),
        pytest.param(msgspec.UNSET, id="no loop"),
    ],
)
def test_what_leaves_a_pipeline_as_it_is(after: Any) -> None:
    copies = changed({"async_copy": 24}, product_loops=after)
    assert {f.severity for f in compare_static(PIPELINED, copies)} <= {"info"}


def test_one_of_two_loops_that_waits_fails() -> None:
    both, one = loops(loading=2, ahead=2), loops(loading=2, ahead=1)
    (finding,) = compare_static(changed(product_loops=both), changed(product_loops=one))
    assert (finding.severity, finding.metric) == ("fail", "pipelined_loops")
    assert compare_static(changed(product_loops=both), changed(product_loops=loops(loading=1, ahead=1))) == []


def test_an_operand_that_is_loaded_without_copies_fails() -> None:
    after = changed({"async_copy": 12}, product_loops=loops(plain_bytes=64))
    finding = found(after, PIPELINED)["plain_bytes"]
    assert (finding.severity, finding.rule) == ("fail", "pipelining")
    assert "0 -> 64 bytes a thread by ordinary loads, asynchronous copies 24 -> 12" in finding.text
    assert found(changed({"async_copy": 12}, product_loops=loops(plain_bytes=4)), PIPELINED) == {}


def test_loads_that_became_tma_lose_nothing() -> None:
    tma = changed({"tma": 6, "tma_load": 6}, product_loops=loops())
    assert {f.severity for f in compare_static(PIPELINED, tma)} == {"info"}


def test_figures_of_earlier_versions_are_held_against_todays_by_their_copies() -> None:
    earlier, lost = changed({"async_copy": 24}), changed(product_loops=loops(**WAITING))
    assert found(lost, earlier)["pipelined_loops"].severity == "fail"
    assert found(PIPELINED, earlier) == {}
    assert found(lost, changed()) == {}


def test_products_that_no_longer_overlap_fail() -> None:
    after = changed({"async_copy": 24}, product_loops=loops(overlapped=0))
    finding = found(after, PIPELINED)["overlapped_loops"]
    assert (finding.severity, finding.rule) == ("fail", "pipelining")
    other = changed({"async_copy": 24}, product_loops=loops(overlapped=0, types=("f16.f16.f16",)))
    assert found(other, PIPELINED) == {}
    single = changed({"async_copy": 24}, product_loops=loops(overlapped=0, grouped=0))
    assert found(single, PIPELINED) == {}


@pytest.mark.parametrize(("resident", "severity"), [(0.25, "fail"), (0.5, "warn"), (None, "warn")])
def test_a_stream_needs_its_copies_where_few_threads_run(resident: float | None, severity: str) -> None:
    none = {"tensor_core": 0, "tensor_core_macs": 0}
    before, after = changed(none | {"async_copy": 9}), changed(none)
    (finding,) = compare_static(before, after, resident=resident)
    assert finding.severity == severity
    assert "no longer asynchronous" in finding.text
    assert "9 -> 0" in finding.text
    assert [f.rule for f in compare_static(before, changed(none | {"tma": 2, "tma_load": 2}), resident=0.1)] == ["tma"]


HALF = {"tensor_core_16": 8}


@pytest.mark.parametrize(
    ("before", "after", "fails"),
    [
        pytest.param(HALF, {"tensor_core_32": 16}, True, id="tf32"),
        pytest.param(HALF, {"tensor_core_16": 6, "tensor_core_32": 4}, True, id="one of four products"),
        pytest.param({"tensor_core_8": 4}, HALF, True, id="8-bit to 16-bit"),
        pytest.param(HALF | {"tensor_core_32": 2}, {"tensor_core_16": 4, "tensor_core_32": 10}, True, id="more"),
        pytest.param(HALF, HALF | {"tensor_core_32": 4}, False, id="a further product"),
        pytest.param(HALF, {"tensor_core_16": 4}, False, id="a smaller tile"),
        pytest.param(HALF | {"tensor_core_32": 4}, {"tensor_core_16": 4, "tensor_core_32": 2}, False, id="half"),
        pytest.param({"tensor_core_32": 16}, HALF, False, id="narrower"),
        pytest.param(HALF, {}, False, id="none: another rule"),
    ],
)
def test_wider_operands_fail(before: dict[str, int], after: dict[str, int], fails: bool) -> None:
    sides = changed({"tensor_core_macs": 0} | before), changed({"tensor_core_macs": 0} | after)
    for other_config in (False, True):
        found = [f for f in compare_static(*sides, other_config=other_config) if f.severity == "fail"]
        assert [f.rule for f in found] == ["operand_width"] * fails


def test_wider_operands_are_told_by_their_numbers() -> None:
    sides = changed(HALF), changed({"tensor_core_16": 6, "tensor_core_32": 4})
    text = found(sides[1], sides[0])["operand_bits"].text
    assert text == "tensor cores multiply wider operands: 8 16-bit -> 6 16-bit and 4 tf32 products in the code"


def test_operands_of_earlier_figures_are_known_by_their_rate() -> None:
    macs = BASE.instructions["tensor_core_macs"]
    earlier = changed({"tensor_core_slots": 2 * macs})
    assert found(changed({"tensor_core_32": 128}), earlier)["operand_bits"].severity == "fail"
    assert "operand_bits" not in found(changed(HALF), earlier)
    mixed = changed({"tensor_core_slots": 3 * macs})
    assert "operand_bits" not in found(changed({"tensor_core_32": 128}), mixed)


@pytest.mark.parametrize(
    ("products", "bits", "share"),
    [({}, 16, 0.0), ({16: 4}, 16, 1.0), ({16: 4}, 32, 0.0), ({8: 2, 16: 4}, 16, 0.5), ({8: 8, 32: 32}, 16, 0.5)],
)
def test_the_share_of_wide_products(products: dict[int, int], bits: int, share: float) -> None:
    """An instruction has half as many elements of twice the bits."""
    assert _share(products, bits) == share


@pytest.mark.parametrize(
    ("lost", "more", "otherwise"),
    [(0, 100, False), (-1, 100, False), (1, 1, True), (1280, 10, True), (1280, 9, False), (1280, 0, False)],
)
def test_lost_products_are_in_the_further_fp32_instructions(lost: int, more: int, otherwise: bool) -> None:
    """A quarter of what 32 lanes would need."""
    before = changed({"tensor_core_macs": 5000, "fp32": 100})
    assert _multiplied_otherwise(before, changed({"tensor_core_macs": 5000 - lost, "fp32": 100 + more})) is otherwise


def test_as_many_instructions_of_tensor_cores_lost_no_products() -> None:
    after = changed({"tensor_core_macs": 64 * 1024, "fp32": 5000, "total": 500})
    assert "tensor_core" not in found(after)
    assert found(changed({"tensor_core": 128, "fp32": 5000, "total": 500})) == {}


def test_a_limit_is_told_by_its_resource_on_both_sides() -> None:
    (broken,) = compare_static(BASE, changed(over_limit=(OVER,)))
    assert (broken.metric, broken.before, broken.after, broken.severity) == ("shared memory", 232448, 300000, "fail")
    assert broken.text == f"can't be launched: {OVER}; before at most 232,448, after 300,000"
    further = msgspec.structs.replace(OVER, needed=400000)
    (worse,) = compare_static(changed(over_limit=(OVER,)), changed(over_limit=(further,)))
    assert worse.text == f"can't be launched: {further}; before 300,000, after 400,000"
    assert compare_static(changed(over_limit=(further,)), changed(over_limit=(OVER,))) == []
    (met,) = compare_static(changed(over_limit=(OVER,)), BASE)
    assert (met.metric, met.before, met.after, met.severity) == ("shared memory", 300000, 232448, "info")
    assert met.text == ("shared memory is within the device's limit again: before 300,000, after at most 232,448")


def test_limits_of_one_resource_in_two_units_are_two() -> None:
    thread, block = (Violation("registers", 300, 255, unit) for unit in ("a thread", "a block"))
    (other,) = compare_static(changed(over_limit=(thread,)), changed(over_limit=(thread, block)))
    assert (other.severity, other.before) == ("fail", 255)


@pytest.mark.parametrize(
    ("before", "after", "metric", "severity"),
    [
        pytest.param({}, {"tensor_core": 0, "tensor_core_macs": 0}, "tensor_core", "fail", id="tensor cores"),
        pytest.param({"tensor_core_16": 8}, {"tensor_core_32": 16}, "operand_bits", "fail", id="operands"),
        pytest.param({"tma": 2}, {}, "tma", "fail", id="bulk copies"),
        pytest.param({}, {"fp64": 2}, "fp64", "fail", id="double precision"),
        pytest.param({"fp64": 1}, {"fp64": 2}, "fp64", "warn", id="more double precision"),
        pytest.param({}, {"total": 5000}, "total", "info", id="a size"),
        pytest.param(
            {}, {"tensor_core": 32, "tensor_core_macs": 65536, "fp32": 3000}, "tensor_core", "warn", id="some products"
        ),
        pytest.param(
            {"tma": 3, "tma_load": 2}, {"tma": 1, "async_copy": 4, "async_copy_128": 4}, "tma_load", "warn", id="loads"
        ),
    ],
)
def test_what_fails_between_two_configs(
    before: dict[str, int], after: dict[str, int], metric: str, severity: str
) -> None:
    findings = compare_static(changed(before), changed(after), other_config=True)
    assert {f.metric: f.severity for f in findings}[metric] == severity


@pytest.mark.parametrize(
    ("old", "new", "severity", "told"),
    [
        (0.5, 0.25, "warn", "fell: 50.0% -> 25.0% (limited by registers)"),
        (0.5, 0.2, "fail", "fell: 50.0% -> 20.0% (limited by registers)"),
        (0.5, 0.75, "info", "rose: 50.0% -> 75.0% (limited by registers)"),
    ],
)
def test_how_far_the_occupancy_may_fall(old: float, new: float, severity: str, told: str) -> None:
    rules = StaticPolicy({"occupancy": StaticRule("fail", 0.5)})
    (finding,) = compare_static(changed(occupancy=old), changed(occupancy=new), rules=rules)
    assert (finding.severity, finding.text) == (severity, f"theoretical occupancy {told}")
    assert compare_static(changed(occupancy=old), changed(occupancy=None), rules=rules) == []
    assert compare_static(changed(occupancy=None), changed(occupancy=new), rules=rules) == []


@pytest.mark.parametrize(
    ("field", "rule", "told"),
    [
        ("registers", "registers", "registers a thread"),
        ("shared_bytes", "shared_memory", "bytes of shared memory a block"),
        ("code_bytes", "binary_size", "bytes of machine code"),
    ],
)
def test_the_border_of_a_size(field: str, rule: str, told: str) -> None:
    """A quarter: a threshold has to be exceeded, on either side. Without one any change is told."""
    rules = StaticPolicy({rule: StaticRule("warn", 0.25)})

    def sized(value: int) -> StaticMetrics:
        return msgspec.structs.replace(BASE, **{field: value})

    before = sized(400)
    for value, said in ((500, []), (501, [f"more {told}: 400 -> 501 (+25%)"]), (300, []),
                        (299, [f"fewer {told}: 400 -> 299 (-25%)"])):  # fmt: skip
        assert [f.text for f in compare_static(before, sized(value), rules=rules)] == said
    bare = StaticPolicy({rule: StaticRule("warn")})
    assert len(compare_static(before, sized(401), rules=bare)) == 1
    assert compare_static(before, before, rules=bare) == []


@pytest.mark.parametrize(
    ("before", "after", "fails"),
    [({8: 10}, {8: 4, 16: 3, 32: 2}, 32), ({8: 8, 16: 8}, {8: 4, 16: 8}, 16), ({16: 8}, {16: 7, 32: 1}, 32),
     ({16: 8, 32: 4}, {16: 8, 32: 9}, None), ({16: 4, 32: 4}, {16: 3, 32: 3}, None)],
)  # fmt: skip
def test_the_widest_that_replaces_narrower_operands_is_told(
    before: dict[int, int], after: dict[int, int], fails: int | None
) -> None:
    sides = (changed({f"tensor_core_{b}": n for b, n in counts.items()}) for counts in (before, after))
    findings = [f for f in compare_static(*sides) if f.metric == "operand_bits" and f.severity == "fail"]
    assert [(f.before, f.after) for f in findings] == ([(min(before), fails)] if fails else [])


def test_narrower_operands_are_an_improvement() -> None:
    before, after = changed({"tensor_core_32": 16, "tensor_core_16": 2}), changed({"tensor_core_16": 8})
    finding = found(after, before)["operand_bits"]
    assert (finding.severity, finding.before, finding.after) == ("info", 32, 16)
    assert finding.text == (
        "tensor cores multiply narrower operands: 2 16-bit and 16 tf32 -> 8 16-bit products in the code"
    )


@pytest.mark.parametrize(
    ("macs", "slots", "counted"),
    [(1024, 1024, {8: 64}), (1024, 2048, {16: 64}), (1024, 4096, {32: 64}), (1024, 3072, {}), (0, 0, {})],
)
def test_operands_by_the_rate_of_earlier_figures(macs: int, slots: int, counted: dict[int, int]) -> None:
    assert _operand_counts(changed({"tensor_core_macs": macs, "tensor_core_slots": slots})) == counted


@pytest.mark.parametrize(
    ("lost", "width", "told"),
    [(1, 128, True), (4, 32, True), (3, 32, False), (0, 128, False)],
)
def test_bytes_of_an_operand_by_address(lost: int, width: int, told: bool) -> None:
    """16 bytes a thread, where bulk copies became fewer."""
    before = changed({"tma": 4, "tma_store": 3})
    after = changed({"tma": 4, "tma_store": 2, f"global_store_{width}": lost})
    assert ("tma_store" in found(after, before)) is told
    assert "tma_store" not in found(msgspec.structs.replace(after, instructions=after.instructions | {"tma_store": 3}),
                                    before)  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "severity", "told"),
    [
        (0, 1, "fail", "arithmetic in double precision appeared: 0 -> 1 instructions; look for a float64 constant or a "
                       "Python float"),
        (1, 3, "warn", "more arithmetic in double precision: 1 -> 3 instructions"),
        (3, 1, "info", "less arithmetic in double precision: 3 -> 1 instructions"),
    ],
)  # fmt: skip
def test_double_precision_is_told(old: int, new: int, severity: str, told: str) -> None:
    finding = found(changed({"fp64": new}), changed({"fp64": old}))["fp64"]
    assert (finding.severity, finding.text, finding.before, finding.after) == (severity, told, old, new)


@pytest.mark.parametrize(("old", "new", "severity"), [(3, 5, {"fail", "warn"}), (5, 3, {"info"})])
def test_spilled_registers_of_amd_are_told_both_ways(old: int, new: int, severity: set[str]) -> None:
    before, after = (changed(vgpr_spills=n, sgpr_spills=n, spill_store_bytes=40 * n) for n in (old, new))
    findings = found(after, before)
    assert {f.severity for f in findings.values()} == severity
    assert findings["vgpr_spills"].text == f"spills {old} -> {new} vector registers"
    assert findings["sgpr_spills"].text == f"spills {old} -> {new} scalar registers"
    assert findings["spills"].text == (
        f"spills {40 * old} -> {40 * new} B a thread (stored {40 * old} -> {40 * new}, loaded 0 -> 0)"
    )
    assert found(changed(vgpr_spills=None), changed(vgpr_spills=0)) == {}
