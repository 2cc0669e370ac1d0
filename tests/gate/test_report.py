"""The report: figures as text, the table, a run's JSON."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.case_result import (
    UNJUDGED,
    CaseId,
    CaseResult,
    CodeChange,
    LaunchFigures,
    LaunchReport,
    LaunchShare,
    Since,
)
from kerntune.base.config import Config
from kerntune.base.failed_candidates import ConfigReport, config_problems
from kerntune.base.formatting import NO_FIGURE
from kerntune.base.policy import Outcome, Verdict
from kerntune.base.stats import Estimate
from kerntune.errors import StoreError
from kerntune.gate.report import (
    MAX_CODE,
    Origin,
    RunReport,
    counts,
    counts_line,
    format_baseline,
    format_change,
    format_configs,
    format_static,
    format_today,
    format_work,
    other_failures,
    printable,
    properties,
    read_run,
    shown_change,
    worst_first,
    write_run,
)
from kerntune.gate.reporting.failure import table_lines

ADD = LaunchReport("add", Config({"BLOCK": 1024}, num_warps=8), (4, 1, 1), 32, 0, 2048)
SPILLING = LaunchReport("mul", None, (4, 1, 1), 255, 48, None)


def result(name: str = "test_a", verdict: Verdict = Verdict.PASS, **fields) -> CaseResult:
    base = {"target": "cuda:90", "launches": (ADD,), "current_ns": 13900.0, "baseline_ns": 12400.0}
    case = CaseId(f"tests/test_it.py::{name}", fields.pop("call", "0"))
    return CaseResult(case, "f", verdict, Outcome.PASS, f"{verdict.value} {name}", **(base | fields))


def table(results: list[CaseResult], *, whole: bool = True, width: int = 10_000) -> str:
    return "\n".join(line for line, _ in table_lines(results, whole=whole, width=width))


def test_format_change_gives_the_interval():
    assert format_change(Estimate(0.121, 0.116, 0.125, 0.999)) == "+12.1 % (+11.6..+12.5)"
    assert format_change(Estimate(-0.05, -0.06, -0.04, 0.999)) == "-5.0 % (-6.0..-4.0)"
    assert format_change(None) == NO_FIGURE


@pytest.mark.parametrize("end", [math.inf, sys.float_info.max])
def test_format_change_leaves_an_unbounded_interval_out(end):
    assert format_change(Estimate(0.1, -end, end, 0.999)) == "+10.0 %"


def test_the_table_shows_the_interval_at_99_percent():
    decides, shown = Estimate(0.121, 0.116, 0.125, 0.99998), Estimate(0.121, 0.118, 0.124, 0.99)
    assert "(+11.8..+12.4)" in table([result(change=decides, shown=shown)])
    since = msgspec.structs.replace(CREPT, shown=Estimate(0.061, 0.060, 0.062, 0.99))
    assert "(+6.0..+6.2) since" in table([result(verdict=Verdict.REGRESSED, since=since)])


def test_format_static_takes_the_largest_of_each():
    assert format_static([ADD, SPILLING]) == "255 regs, 48 B spilled, 2048 B shared"
    assert format_static([ADD]) == "32 regs, 2048 B shared"
    assert format_static([LaunchReport("k")]) == NO_FIGURE


def test_a_case_without_times_has_static_figures_on_both_sides():
    before = LaunchFigures(28, 4, 16, 1.0)
    untimed = {"current_ns": None, "baseline_ns": None, "launches": (ADD, msgspec.structs.replace(ADD, before=before))}
    assert format_today(result(**untimed)) == "32 regs, 2048 B shared"
    assert format_baseline(result(**untimed)) == "28 regs, 4 B spilled, 16 B shared"
    assert format_baseline(result(**{**untimed, "launches": (ADD,)})) == NO_FIGURE
    assert format_baseline(result(**{**untimed, "current_ns": 1000.0})) == NO_FIGURE, "a time without a baseline"
    assert format_baseline(result(**{**untimed, "baseline_ns": 1000.0})) == "1.00 µs"


FORWARD = LaunchReport("forward", None, (1, 1, 1), 254, 0, 0, 0.125, before=LaunchFigures(40, 0, 32, 0.75))
BACKWARD = LaunchReport("backward", None, (1, 1, 1), 64, 15_816, 0, 0.5, before=LaunchFigures(122, 0, 8192, 0.25))
SUM = LaunchReport("sum", ADD.config, (1, 1, 1), 32, 0, 512, 1.0, before=LaunchFigures(32, 0, 512, 1.0))


@pytest.mark.parametrize(
    ("findings", "launches", "today", "baseline"),
    [
        (
            ("backward: spills",),
            (FORWARD, BACKWARD, SUM),
            "backward: 64 regs, 15816 B spilled",
            "122 regs, 8192 B shared",
        ),
        (("launch 2 (sum): x",), (FORWARD, BACKWARD, SUM), "sum: 32 regs, 512 B shared", "32 regs, 512 B shared"),
        (("forward2: x", "forward at model.py:12: x"), (SUM, FORWARD), "forward: 254 regs", "40 regs, 32 B shared"),
        ((), (SUM, FORWARD), "forward: 254 regs", "40 regs, 32 B shared"),
        ((), (SUM, LaunchReport("new", registers=255)), "255 regs, 512 B shared", "32 regs, 512 B shared"),
        (("backward: spills",), (BACKWARD, BACKWARD), "64 regs, 15816 B spilled", "122 regs, 8192 B shared"),
    ],
)
def test_figures_of_several_kernels_are_of_the_one_that_is_blamed(findings, launches, today, baseline):
    case = result(current_ns=None, baseline_ns=None, findings=findings, launches=launches)
    assert (format_today(case), format_baseline(case)) == (today, baseline)


def test_a_finding_that_decided_is_before_one_that_warns():
    findings = ("forward: occupancy fell", "backward: spills")
    case = result("backward: spills", current_ns=None, findings=findings, launches=(FORWARD, BACKWARD))
    assert format_today(case).startswith("backward: ")


def test_a_config_above_a_row_stands_with_its_own_kernel():
    lines = table([result("test_" + "x" * 40, launches=(FORWARD, BACKWARD, SUM), findings=("y" * 40,))], width=80)
    assert [x.strip() for x in lines.splitlines() if x.strip().startswith(("forward", "backward", "sum"))] == [
        "forward",
        "backward",
        "sum: BLOCK=1024 num_warps=8 num_stages=3",
    ]


def test_format_configs_names_each_kernel_and_config_once():
    assert format_configs([ADD, ADD, SPILLING]) == "add: BLOCK=1024 num_warps=8 num_stages=3\nmul"
    many = [LaunchReport(f"k{i}") for i in range(9)]
    assert format_configs(many).splitlines() == ["k0", "k1", "k2", "k3", "... 5 more"]
    assert format_configs([]) == NO_FIGURE


GREW = "launch 0 (add): registers 32 -> 64 a thread (+100.0 %, 10.0 % allowed)"
CREPT = Since("2026-10-02T01:02:03Z", Verdict.REGRESSED, 0.05, Estimate(0.061, 0.059, 0.063, 0.999))


@pytest.mark.parametrize(
    ("fields", "shown", "hidden"),
    [
        ({"since": CREPT}, ["+6.1 % (+5.9..+6.3) since", "2026-10-02"], []),
        ({"findings": (GREW,)}, ["registers 32 -> 64"], []),
        ({"since": msgspec.structs.replace(CREPT, verdict=Verdict.PASS)}, [], ["since"]),
        ({"since": msgspec.structs.replace(CREPT, change=None)}, [], ["since"]),
    ],
)
def test_the_row_shows_what_decided_beside_the_time(fields, shown, hidden):
    text = table([result(verdict=Verdict.REGRESSED, change=Estimate(0.009, 0.008, 0.01, 0.999), **fields)])
    assert "+0.9 % (+0.8..+1.0)" in text
    assert all(x in text for x in shown)
    assert not any(x in text for x in hidden)


def test_the_anchors_comparison_and_warnings_are_in_the_json(tmp_path):
    unbounded = msgspec.structs.replace(CREPT, change=Estimate(0.1, -math.inf, math.inf, 0.999))
    warned = result(warnings=("can't be gated at 2.0 %",), since=CREPT)
    write_run(tmp_path / "run.json", RunReport((warned, result("test_b", since=unbounded))))
    found = read_run(tmp_path / "run.json").results
    assert found[0] == warned
    assert found[1].since is not None
    assert found[1].since.change == Estimate(0.1, -sys.float_info.max, sys.float_info.max, 0.999)


def test_table_has_a_row_per_result():
    text = table([result("test_a", Verdict.REGRESSED, change=Estimate(0.121, 0.116, 0.125, 0.999)), result("test_b")])
    assert re.search(r"^case +config +time +baseline +change +verdict *$", text, re.M)
    row = r"^tests/test_it.py::test_a +add: BLOCK=1024 .*13.9 µs +12.4 µs +\+12.1 % \(\+11.6..\+12.5\) +REGRESSED"
    assert re.search(row, text, re.M)
    assert re.search(r"test_b .* – +PASS", text)


def test_table_shows_static_figures_without_a_time():
    static = {"current_ns": None, "baseline_ns": None, "launches": (SPILLING,)}
    text = table([result(**static), result(findings=("mul spills 48 B more",), **static)])
    assert re.search(r"^case +config +static figures +change +verdict *$", text, re.M)
    assert re.search(r"255 regs, 48 B spilled +– +PASS", text)
    assert re.search(r"255 regs, 48 B spilled +mul spills 48 B more +PASS", text)
    assert re.search(r"^case +config +static figures +verdict *$", table([result(**static)]), re.M)


def test_table_names_targets_only_if_there_are_several():
    one = result()
    assert "cuda:90" not in table([one, one])
    assert "(hip:gfx942)" in table([one, result(target="hip:gfx942")])


def test_table_says_what_was_recorded():
    assert "NEW (recorded)" in table([result(verdict=Verdict.NEW, recorded=True)])


def test_table_folds_passes_but_nothing_else():
    results = [result(f"test_{i:03}", Verdict.PASS if i % 2 else Verdict.DRIFTED) for i in range(100)]
    text = table(results, whole=False)
    assert text.count("DRIFTED") == 50
    assert "test_001" not in text
    assert text.endswith("... and 50 more PASS")
    assert table(results).count("PASS") == 50


def test_counts_are_in_the_order_of_the_verdicts():
    results = [result(verdict=v) for v in (Verdict.NEW, Verdict.PASS, Verdict.NEW)]
    assert counts(results) == {Verdict.PASS: 1, Verdict.NEW: 2}
    assert counts_line(results) == "1 PASS, 2 NEW"
    assert counts_line([]) == "no case was checked"


def test_properties_name_the_call_only_if_there_are_several():
    one = result(verdict=Verdict.REGRESSED, change=Estimate(0.121, 0.116, 0.125, 0.999))
    assert properties([one]) == [
        ("kerntune_verdict", "REGRESSED"),
        ("kerntune_change", "+0.1210"),
        ("kerntune_time_ns", "13900.0"),
        ("kerntune_baseline_ns", "12400.0"),
    ]
    names = [name for name, _ in properties([one, result(call="add", target="hip:gfx942")])]
    assert "kerntune_verdict[0 cuda:90]" in names
    assert "kerntune_verdict[add hip:gfx942]" in names


finite = st.floats(allow_nan=False, allow_infinity=False)
end = st.floats(allow_nan=False)


@given(st.none() | finite, st.none() | finite, st.lists(finite), finite, end, end)
def test_run_reads_back_what_was_written(tmp_path_factory, current, base, times, point, low, high):
    change = Estimate(point, low, high, 0.999)
    one = result(current_ns=current, baseline_ns=base, times_ns=tuple(times), change=change)
    run = RunReport((one,), ("a GPU",), {"PASS": 1}, {"test": "why"}, {"case": {"x": 1}}, 1, "now", {"kerntune": "1"})
    path = tmp_path_factory.mktemp("run") / "run.json"
    write_run(path, run)
    assert read_run(path) == run


def test_run_of_another_schema_is_refused(tmp_path):
    path = tmp_path / "run.json"
    write_run(path, RunReport((result(),)))
    assert json.loads(path.read_text())["schema"] == "kerntune.run/1"
    path.write_text(path.read_text().replace("kerntune.run/1", "kerntune.run/9"))
    with pytest.raises(StoreError, match=r"run\.json: has schema 'kerntune.run/9'"):
        read_run(path)


def test_write_keeps_the_old_file_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    path.write_text("old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with pytest.raises(StoreError, match=r"run\.json"):
        write_run(path, RunReport(()))
    assert path.read_text() == "old"
    assert list(Path(tmp_path).iterdir()) == [path]


def test_a_result_without_a_target_is_no_second_target() -> None:
    text = table([result("test_a", target="cuda:90"), result("test_b", Verdict.INCOMPLETE, target="")])
    assert "cuda:90" not in text


def test_bytes_are_held_against_the_devices_bandwidth():
    moved = result(current_ns=1e6, bytes_moved=3_900_000_000, bandwidth=4.2e12)
    assert format_work(moved) == "3.90 TB/s (93 %)"
    assert format_work(result(current_ns=1e6, bytes_moved=3_900_000_000)) == "3.90 TB/s"
    assert dict(properties([moved]))["kerntune_of_bandwidth"] == "0.929"
    assert "3.90 TB/s (93 %)" in table([moved])


def test_operations_come_before_bytes():
    matmul = result(current_ns=1e6, bytes_moved=1e9, bandwidth=4.2e12, flops=6.12e11)
    assert format_work(matmul) == "612 TFLOP/s"
    found = dict(properties([matmul]))
    assert (found["kerntune_flops_per_second"], found["kerntune_bytes_per_second"]) == ("6.12e+14", "1e+12")


@pytest.mark.parametrize("time_ns", [None, 0.0])
def test_without_a_time_there_is_no_rate(time_ns):
    assert format_work(result(current_ns=time_ns, bytes_moved=1e9, bandwidth=1e12, flops=1e9)) == NO_FIGURE


def test_shares_are_told_slowest_first():
    shares = (LaunchShare(1, "softmax", 700.0, 0.7), LaunchShare(0, "add", 300.0, 0.3))
    assert dict(properties([result(shares=shares)]))["kerntune_shares"] == "softmax 70%, add 30%"


def test_table_keeps_a_pass_with_findings():
    results = [result(f"test_{i:03}") for i in range(100)]
    results[77] = result("test_077", findings=("registers 32 -> 40",))
    text = table(results, whole=False)
    assert "test_077" in text
    assert "registers 32 -> 40" in text
    assert "... and 99 more PASS" in text


def test_table_counts_findings_about_configs():
    configs = tuple(ConfigReport("add", Config({"BLOCK": n}), broken="can't be launched") for n in range(30))
    findings = ("add: registers 32 -> 40", *(f"add with {c.config}: {c.problem}" for c in configs))
    text = table([result(findings=findings, configs=configs)])
    assert "registers 32 -> 40" in text
    assert "30 configs with a problem" in text
    assert len(text.splitlines()) < 8


def test_table_counts_configs_of_which_one_finding_is_told():
    """Grouped as a run of today has them, beside those of a run's file that has one for each."""
    block = [ConfigReport("add", Config({"BLOCK": n}), broken="too large" if n < 9 else str(n)) for n in range(12)]
    text = [str(p) for p in config_problems(block)]
    assert [t.partition(": ")[0].count("others") for t in text] == [1, 0, 0, 0]
    assert "12 configs with a problem" in table([result(findings=tuple(text), configs=tuple(block))])
    two = [str(p) for p in config_problems(block[:2])]
    assert "2 configs with a problem" in table([result(findings=tuple(two), configs=tuple(block))])


def test_a_run_that_changes_all_kernels_can_be_read_again(tmp_path, monkeypatch):
    """Code of failing tests is kept first; what is beyond the bound is left out as a whole."""
    code = (CodeChange("k", "ptx", "x," * 50),)
    outcomes = [Outcome.PASS, Outcome.WARN, Outcome.FAIL, Outcome.PASS]
    results = tuple(
        CaseResult(CaseId(f"t.py::test_{i}", "0"), "", Verdict.PASS, outcome, "", "cuda:90", code=code)
        for i, outcome in enumerate(outcomes)
    )
    monkeypatch.setattr("kerntune.gate.report.MAX_CODE", 250)
    write_run(tmp_path / "run.json", RunReport(results))
    assert [bool(r.code) for r in read_run(tmp_path / "run.json").results] == [False, True, True, False]


# borders


def gpu(number: int, name: str = "test_a") -> CaseResult:
    return result(name, gpu=f"GPU-{number}", gpu_name=f"GPU {number}")


def test_the_table_names_gpus_only_if_there_are_several() -> None:
    assert "GPU" not in table([gpu(1), gpu(1, "test_b")])
    assert "GPU" not in table([result(), gpu(1, "test_b")]), "a result without one is no second GPU"
    assert "GPU" not in table([result()])
    text = table([gpu(1), gpu(2, "test_b")])
    assert re.search(r"^case +GPU +config", text, re.M)
    assert "GPU 1" in text
    assert "GPU 2" in text


@pytest.mark.parametrize(("room", "kept"), [(300, 3), (299, 2), (200, 2), (199, 1), (100, 1), (99, 0)])
def test_code_is_kept_as_long_as_there_is_room_to_the_last_character(tmp_path, monkeypatch, room, kept):
    code = (CodeChange("k", "ptx", "x" * 60), CodeChange("k", "sass", "x" * 40))
    results = tuple(msgspec.structs.replace(result(f"test_{i}"), code=code) for i in range(3))
    monkeypatch.setattr("kerntune.gate.report.MAX_CODE", room)
    write_run(tmp_path / "run.json", RunReport(results))
    assert [bool(r.code) for r in read_run(tmp_path / "run.json").results] == [i < kept for i in range(3)]


def test_code_of_four_million_characters_is_kept():
    assert MAX_CODE == 4_000_000


@pytest.mark.parametrize(
    ("count", "lines"), [(4, ["k0", "k1", "k2", "k3"]), (5, ["k0", "k1", "k2", "k3", "... 1 more"])]
)
def test_four_kernels_are_named(count, lines):
    assert format_configs([LaunchReport(f"k{i}") for i in range(count)]).splitlines() == lines


def test_the_first_remark_stands_in_for_findings():
    text = table([result(remarks=("renamed from a?", "faster"), current_ns=None, baseline_ns=None)])
    assert "renamed from a?" in text
    assert "faster" not in text
    assert "renamed" not in table([result(remarks=("renamed from a?",), findings=("grew",))])


@pytest.mark.parametrize(("count", "said"), [(1, "1 config with a problem"), (2, "2 configs with a problem")])
def test_configs_with_a_problem_are_counted(count, said):
    configs = tuple(ConfigReport("add", Config({"BLOCK": n}), spill_bytes=1024) for n in range(count))
    findings = tuple(f"add with {c.config}: {c.problem}" for c in configs)
    assert said in table([result(findings=findings, configs=configs)])


def test_a_share_of_bandwidth_is_of_bytes_alone():
    assert format_work(result()) == NO_FIGURE
    assert dict(properties([result()])).keys() == {"kerntune_verdict", "kerntune_time_ns", "kerntune_baseline_ns"}


def test_the_change_that_is_shown_is_the_one_at_99_percent_where_there_is_one():
    shown = Estimate(0.2, 0.1, 0.3, 0.99)
    assert "+20.0 %" in table([result(change=Estimate(0.1, 0.0, 0.2, 0.999), shown=shown)])
    assert "%" not in table([result(shown=shown)]), "nothing decided by a change"


def test_a_run_that_is_not_there_is_no_damaged_one(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        read_run(tmp_path / "none.json")
    assert caught.value.filename == str(tmp_path / "none.json")
    assert caught.value.strerror == "No such file or directory"


def test_static_figures_are_the_largest_of_those_that_are_known():
    launches = [LaunchReport("a", registers=8, shared_bytes=0), LaunchReport("b"), LaunchReport("c", registers=9)]
    assert format_static(launches) == "9 regs"


def test_of_where_a_run_took_place_only_what_is_known_is_written():
    assert msgspec.json.encode(Origin()) == b"{}"
    assert msgspec.json.encode(Origin(branch="main")) == b'{"branch":"main"}'


def test_a_run_without_more_said_of_it_succeeded():
    run = RunReport(())
    assert (run.exit_status, run.header, run.counts, run.created, run.failed) == (0, (), {}, "", {})


# cases without a baseline that fail, and other code that passes


def fails(name: str = "test_b") -> CaseResult:
    failing = result(name, Verdict.REGRESSED)
    return msgspec.structs.replace(failing, message=f"FAILS {name}, can't be compiled")


def test_what_was_held_against_nothing_is_not_called_regressed() -> None:
    results = [result(), fails(), result("test_c", Verdict.REGRESSED), result("test_d", Verdict.NEW)]
    assert [r.word for r in results] == ["PASS", "FAILS", "REGRESSED", "NEW"]
    assert counts_line(results) == "1 PASS, 1 REGRESSED, 1 FAILS, 1 NEW"
    assert table(results).splitlines()[3].rstrip().endswith("FAILS")
    assert properties([fails()])[0] == ("kerntune_verdict", "FAILS")
    assert counts(results)[Verdict.REGRESSED] == 2, "the run's JSON knows no further verdict"


CHANGED = f"code changed; {UNJUDGED}"


def test_the_row_of_other_code_that_passes_says_that_nothing_was_judged() -> None:
    assert CHANGED in table([result(remarks=(CHANGED,))])
    both = table([result(remarks=("less is spilled", CHANGED), findings=("occupancy fell",))])
    assert "occupancy fell" in both
    assert CHANGED in both
    assert UNJUDGED not in table([result(remarks=("less is spilled",))])


def test_folded_rows_of_other_code_are_counted() -> None:
    results = [fails(), *(result(f"test_{i}", remarks=() if i % 3 else (CHANGED,)) for i in range(9))]
    told = f"... and 9 more PASS, 3 of them with other code than before ({UNJUDGED})"
    assert table(results, whole=False).endswith(f"\n{told}")
    assert table([fails(), result()], whole=False).endswith("\n... and 1 more PASS")
    assert "more PASS" not in table(results)


LONG = LaunchReport("chunk_gated_delta_rule_fwd_kernel", Config({"BLOCK_M": 128, "BLOCK_N": 256}, num_warps=8))
SLOWER = Estimate(0.121, 0.116, 0.125, 0.999)


def wide(name: str, **fields) -> CaseResult:
    """A result whose row is wider than any terminal's."""
    found = {"launches": (LONG,), "change": SLOWER, "findings": (f"{LONG.kernel}: spills 0 -> 56 B a thread",)}
    return result(f"test_{60 * 'x'}[{name}]", Verdict.REGRESSED, **(found | fields))


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("untimed", [False, True])
def test_a_table_fits_its_width_but_for_ids(width, untimed):
    static = {"current_ns": None, "baseline_ns": None, "change": None} if untimed else {}
    results = [wide("a", **static), wide(100 * "b", **static)]
    lines = table(results, width=width).splitlines()
    ids = [str(r.case) for r in results]
    assert [line for line in lines if line in ids] == ids, "each whole on a line of its own"
    assert max(len(line) for line in lines if line not in ids) <= width
    assert sum("REGRESSED" in line for line in lines) == 2


def test_a_table_that_fits_has_its_cases_in_the_rows():
    assert table([result()], width=200) == table([result()])
    assert re.search(r"^tests/test_it.py::test_a  +add", table([result()], width=120), re.M)


def test_names_stay_whole_in_a_narrow_table():
    """As far as there is room: other columns are narrowed in place of theirs."""
    text = table([wide("a")], width=84)
    assert LONG.kernel in text
    assert "13.9 µs" in text


def test_a_row_names_its_kernel_once():
    twice = (LONG, msgspec.structs.replace(LONG, config=Config({"BLOCK_M": 64}, num_warps=4)))
    text = table([wide("a", launches=twice)])
    assert text.count(LONG.kernel) == 1
    assert "and BLOCK_M=64" in text
    assert "spills 0 -> 56 B" in text
    both = table([wide("a", launches=(LONG, ADD))])
    assert both.count(LONG.kernel) == 2, "of several kernels a finding says which"


def test_each_line_of_a_row_has_its_outcome():
    found = msgspec.structs.replace(wide("a"), outcome=Outcome.FAIL)
    lines = table_lines([found, result("test_b")], whole=True, width=80)
    start = lines.index((str(found.case), Outcome.FAIL))
    end = lines.index((str(result("test_b").case), Outcome.PASS))
    assert {outcome for _, outcome in lines[start:end]} == {Outcome.FAIL}
    assert {outcome for _, outcome in lines[:start]} == {None}


def test_a_table_of_folded_rows_alone_is_empty():
    """The counts below it say the same."""
    assert table([result("test_a"), result("test_b")], whole=False) == ""


WORSE, BETTER = Estimate(0.2, 0.1, 0.3, 0.99), Estimate(0.1, 0.05, 0.15, 0.99)
SLOW = Verdict.REGRESSED


@pytest.mark.parametrize(
    ("verdict", "since", "own", "shown"),
    [
        (SLOW, None, BETTER, BETTER),
        (SLOW, Since("d", SLOW, 0.05, WORSE), BETTER, WORSE),
        (SLOW, Since("d", SLOW, 0.05, BETTER), WORSE, WORSE),
        (SLOW, Since("d", SLOW, 0.05, BETTER), BETTER, BETTER),
        (SLOW, Since("d", SLOW, 0.05, WORSE), None, WORSE),
        (SLOW, Since("d", SLOW, 0.05, BETTER, shown=WORSE), BETTER, WORSE),
        (SLOW, Since("d", SLOW, 0.05, None, shown=WORSE), BETTER, BETTER),
        (SLOW, Since("d", Verdict.PASS, 0.05, WORSE), BETTER, BETTER),
        (Verdict.PASS, Since("d", Verdict.PASS, 0.05, WORSE), BETTER, BETTER),
        (SLOW, None, None, None),
    ],
)
def test_the_anchors_change_is_shown_where_it_decided_and_is_the_larger(verdict, since, own, shown) -> None:
    assert shown_change(result(verdict=verdict, since=since, change=own)) == shown


def test_the_interval_at_99_percent_is_shown_in_place_of_the_one_that_decides() -> None:
    assert shown_change(result(change=WORSE, shown=BETTER)) == BETTER
    assert shown_change(result(change=WORSE)) == WORSE
    since = Since("d", SLOW, 0.05, WORSE)
    assert shown_change(result(verdict=SLOW, since=since, change=Estimate(0.3, 0.2, 0.4, 0.9), shown=BETTER)) == WORSE


def test_results_stand_by_outcome_then_verdict_then_change() -> None:
    def case(name: str, outcome: Outcome, verdict: Verdict, change: float | None) -> CaseResult:
        estimate = None if change is None else Estimate(change, change, change, 0.99)
        return msgspec.structs.replace(result(name, verdict, change=estimate), outcome=outcome)

    order = [
        case("a", Outcome.FAIL, Verdict.REGRESSED, 0.5), case("b", Outcome.FAIL, Verdict.REGRESSED, 0.1),
        case("c", Outcome.FAIL, Verdict.REGRESSED, None), case("d", Outcome.FAIL, Verdict.INCOMPLETE, None),
        case("e", Outcome.FAIL, Verdict.STALE, None), case("f", Outcome.FAIL, Verdict.INCONCLUSIVE, 0.9),
        case("g", Outcome.WARN, Verdict.REGRESSED, 0.9), case("h", Outcome.PASS, Verdict.DRIFTED, 0.1),
        case("i", Outcome.PASS, Verdict.NEW, None), case("j", Outcome.PASS, Verdict.IMPROVED, -0.1),
        case("k", Outcome.PASS, Verdict.PASS, 0.01), case("l", Outcome.PASS, Verdict.PASS, -0.01),
        case("m", Outcome.PASS, Verdict.PASS, None),
    ]  # fmt: skip
    first, second = RunReport(tuple(order[::-2])), RunReport(tuple(order[-2::-2]))
    found = worst_first([first, second])
    assert [one.result.case.call and one.result.case.nodeid[-1] for one in found] == list("abcdefghijklm")
    assert [one.run_index for one in found] == [0, 1] * 6 + [0]
    assert all(one.run is (first, second)[one.run_index] for one in found)


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        (Origin(), ""),
        (Origin(dirty=True), ""),
        (Origin("0123456789abcdef"), "0123456789ab"),
        (Origin("0123456789abcdef", dirty=True), "0123456789ab with uncommitted changes"),
    ],
)
def test_a_commit_is_told_by_twelve_digits_and_whether_there_was_more(origin: Origin, text: str) -> None:
    assert origin.short_commit == text


def test_tests_that_fail_by_a_verdict_have_no_other_reason() -> None:
    failing = msgspec.structs.replace(result("test_a"), outcome=Outcome.FAIL)
    run = RunReport(
        (failing, result("test_b")), failed={failing.case.nodeid: "verdict", "tests/test_it.py::test_b": "x"}
    )
    assert other_failures(run) == {"tests/test_it.py::test_b": "x"}


def test_texts_are_printable_wherever_they_lie_but_a_page_s_own_markup() -> None:
    class Markup(str):
        __slots__ = ()

        def __html__(self) -> str:
            return self

    own = Markup("<b>\x1b</b>")
    found = printable({"a\x1b": ["\x1b", ("\x1b", 1)], "b": own, "c": None, "d": {"e": "\x1b"}})
    assert found == {"a\\u001b": ["\\u001b", ["\\u001b", 1]], "b": own, "c": None, "d": {"e": "\\u001b"}}
    assert isinstance(found, dict)
    assert found["b"] is own
