"""The two sides of ``kerntune code``: which baselines they are, and what is shown of a pair of launches."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from cli.made import CUDA90, static, timed
from cli.made import folder as store
from kerntune.base.case_result import CaseId
from kerntune.base.device import Target
from kerntune.cli import code
from kerntune.cli.code import CaseSide, _copied, _first, _show, _show_launch, side_of, wanted
from kerntune.cli.code import stored as stored_side
from kerntune.cli.stored import load_folder
from kerntune.errors import UsageError
from kerntune.gate import code_changes
from kerntune.gate.code_changes import Side, Texts, arch_in

CASE = CaseId("t.py::test_a", "0")


def of(place: Path, *pending: Any) -> Path:
    store(place, *pending)
    return place


def words(case: str = "test_a", target: str | None = None, against: str | None = None, **more: Any) -> Any:
    return argparse.Namespace(case=case, target=target, against=against, **more)


def test_the_case_and_target_that_are_meant(tmp_path: Path) -> None:
    entries = load_folder(of(tmp_path / "b", static("t.py::test_a"), static("t.py::test_b")))
    assert wanted(entries, words()) == (CASE, CUDA90)
    assert wanted(entries, words(target="cuda:80")) == (CASE, Target.parse("cuda:80"))
    new = "t.py::test_new"
    assert wanted(entries, words(new, "cuda:90", "main")) == (CaseId(new, "0"), CUDA90)
    with pytest.raises(UsageError, match=r"^say what to compile for: --target cuda:90$"):
        wanted(entries, words(new, None, "main"))
    for case, against in ((new, None), ("nothing", "main")):
        with pytest.raises(UsageError, match=f"no baseline's case is {case!r}; `kerntune baselines show` lists them"):
            wanted(entries, words(case, "cuda:90", against))


def test_of_several_targets_one_must_be_named(tmp_path: Path) -> None:
    here, other = static("t.py::test_a"), static("t.py::test_a")
    there = msgspec.structs.replace(other.baseline, target=Target.parse("cuda:80"))
    place = of(tmp_path / "b", here, other._replace(baseline=there))
    with pytest.raises(UsageError, match=r"^say what to compile for: --target cuda:80 or cuda:90$"):
        wanted(load_folder(place), words())


def test_the_latest_static_baseline_is_the_stored_side(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = static("t.py::test_a").baseline
    older, newer = (msgspec.structs.replace(made, recorded=f"2026-01-0{day}T00:00:00Z") for day in (1, 2))
    others = [msgspec.structs.replace(made, case=CaseId("t.py::test_b", "0"), recorded="2027-01-01T00:00:00Z")]
    timed = SimpleNamespace(case=CASE, target=CUDA90, recorded="2028-01-01T00:00:00Z")
    monkeypatch.setattr(code, "readable", lambda entries: [older, newer, *others, timed])
    side = stored_side(tmp_path, [], CASE, CUDA90)
    assert (side.name, side.baseline) == ("baseline of 2026-01-02", newer)
    monkeypatch.setattr(code, "readable", lambda entries: [*others, timed])
    assert stored_side(tmp_path, [], CASE, CUDA90).name == "baseline of 2028-01-01"
    with pytest.raises(UsageError, match=r"has no baseline of t.py::test_a for cuda:80"):
        stored_side(tmp_path, [], CASE, Target.parse("cuda:80"))


def test_a_cases_baselines_are_put_where_it_is_recorded(tmp_path: Path) -> None:
    source = of(tmp_path / "b", static("t.py::test_a"), static("t.py::test_b"))
    (entry,) = [e for e in load_folder(source) if e.baseline is not None and e.baseline.case == CASE]
    assert entry.baseline is not None
    assert _copied(source, tmp_path / "into", CASE, CUDA90) == {entry.baseline.fingerprint}
    assert [e.path for e in load_folder(tmp_path / "into")] == [entry.path]
    assert _copied(source, tmp_path / "other", CASE, Target.parse("cuda:80")) == set()
    assert len(load_folder(tmp_path / "other")) == 1


@pytest.mark.parametrize(
    ("ptx", "arch"), [(".version 8\n.target sm_90a, debug\n", "sm_90a"), (".target sm_80\n.target x", "sm_80")]
)
def test_the_architecture_of_ptx(ptx: str, arch: str) -> None:
    assert arch_in(ptx) == arch


def test_a_devices_side_has_its_binaries() -> None:
    device: Any = timed().baseline
    assert side_of("a", device, {}).binaries == device.recording.binaries
    assert side_of("a", static().baseline, {}).binaries == ()


class Made:
    """Texts by side and stage."""

    def __init__(self, *stages: str, **texts: str) -> None:
        self.stages, self.texts, self.asked = stages, texts, list[str]()

    def stages_of(self, side: CaseSide, launch: Any) -> tuple[str, ...]:
        return tuple(s for s in self.stages if f"{side.name}_{s}" in self.texts)

    def of(self, side: CaseSide, launch: Any, stage: str) -> str:
        self.asked.append(stage)
        return self.texts[f"{side.name}_{stage}"]


ONE = static().baseline
OLD, NOW = side_of("old", ONE, {}), side_of("now", ONE, {})
LAUNCH = ONE.launches[0]
OTHER = msgspec.structs.replace(LAUNCH, code="d" * 64)


@pytest.mark.parametrize(
    ("pair", "texts", "first"),
    [
        ((LAUNCH, LAUNCH), {}, ""),
        ((LAUNCH, OTHER), {"old_a": "1", "now_a": "1", "old_b": "1", "now_b": "2", "old_c": "1", "now_c": "2"}, "b"),
        ((LAUNCH, OTHER), {"old_a": "1", "now_b": "2", "old_c": "1", "now_c": "2"}, "c"),
        ((LAUNCH, OTHER), {"old_a": "1", "now_a": "1"}, ""),
        ((LAUNCH, msgspec.structs.replace(LAUNCH, ttir_sha256="e")), {"old_a": "1", "now_a": "2"}, "a"),
    ],
)
def test_the_first_stage_that_differs(pair: Any, texts: dict[str, str], first: str) -> None:
    assert _first(OLD, NOW, pair, cast(Texts, Made("a", "b", "c", **texts))) == first


def test_a_stage_that_the_baselines_name_is_looked_at_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made("a", "b", old_a="1", now_a="2", old_b="1", now_b="2")
    monkeypatch.setattr(code, "first_difference", lambda old, new: "B")
    assert _first(OLD, NOW, (LAUNCH, OTHER), cast(Texts, made)) == "b"
    assert set(made.asked) == {"b"}


@pytest.mark.parametrize(
    ("more", "said", "differs"),
    [
        ({"stage": "a"}, ["a:", "--- old", "+++ now", "@@ -1 +1 @@", "-1", "+2", ""], True),
        ({"stage": "b"}, ["b: the same"], False),
        ({"stage": ""}, ["a:", "--- old", "+++ now", "@@ -1 +1 @@", "-1", "+2", ""], True),
    ],
)
def test_a_pair_is_shown_in_one_stage(
    capsys: pytest.CaptureFixture[str], more: dict[str, str], said: list[str], differs: bool
) -> None:
    texts = cast(Texts, Made("a", "b", old_a="1", now_a="2", old_b="1", now_b="1"))
    args = argparse.Namespace(unified=True, width=None, **more)
    assert _show_launch(OLD, NOW, (LAUNCH, OTHER), texts, args) == differs
    assert capsys.readouterr().out.splitlines() == [f"{LAUNCH.kernel}, {said[0]}", *said[1:]]


def test_columns_have_the_width_that_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "63")
    texts = cast(Texts, Made("a", old_a="1", now_a="2"))
    for width in (103, None):
        _show_launch(OLD, NOW, (LAUNCH, OTHER), texts, argparse.Namespace(unified=False, width=width, stage="a"))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("--")]
    assert lines == [f"{'-' * n}   {'-' * n}" for n in (50, 30)]


def test_equal_launches_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert not _show(OLD, NOW, cast(Texts, Made()), argparse.Namespace(stage="", unified=False, width=80))
    assert capsys.readouterr().out == f"{LAUNCH.kernel}: the same in every stage\n"


def test_each_code_is_compiled_once_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    made = {"ttgir": b"x loc(#1)", "llir": b"l", "ptx": b"p", "cubin": b"c"}
    monkeypatch.setattr(
        code_changes, "stages_from", lambda farm, target, ttir, options, name, own: asked.append(options) or made
    )
    monkeypatch.setattr(code_changes, "options_of", lambda launch: {"num_warps": launch.code[:1]})
    monkeypatch.setattr(code_changes, "ttir_text", lambda ttir, name: "module {} loc(#2)")
    monkeypatch.setattr(code_changes, "strip_locations", lambda text: f"stripped {text}")
    monkeypatch.setattr(code_changes, "strip_debug", lambda text, kind: f"{kind} without debug {text}")
    texts, side = Texts(cast(Any, None), CUDA90), side_of("old", ONE, {LAUNCH.ttir_sha256: b"ttir"})
    found = [texts.of(side, LAUNCH, stage) for stage in ("ttir", "ttgir", "llir", "ptx")]
    assert found == ["stripped module {} loc(#2)", "stripped x loc(#1)", "stripped l", "ptx without debug p"]
    texts.of(side, OTHER, "llir")
    assert asked == [{"num_warps": "c"}, {"num_warps": "d"}]
    with pytest.raises(UsageError, match=rf"^now: the TTIR of {LAUNCH.kernel} \({LAUNCH.ttir_sha256[:12]}\) is not st"):
        texts.of(NOW, LAUNCH, "ttir")
    with pytest.raises(UsageError, match=r"has no stage amdgcn for cuda:90; there are ttir, ttgir, llir, ptx, sass$"):
        texts.of(side, LAUNCH, "amdgcn")


def test_machine_code_is_of_the_stored_binary_or_of_one_that_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its own architecture."""
    monkeypatch.setattr(code_changes, "ttir_text", lambda ttir, name: "module {}")
    monkeypatch.setattr(code_changes, "stages_from", lambda *words: {"cubin": b"made", "ptx": b".target sm_90a\n"})
    monkeypatch.setattr(code_changes, "Elf", lambda cubin: SimpleNamespace(text=[("a", cubin), ("b", b" end")]))
    monkeypatch.setattr(code_changes, "code_lines", lambda data, arch: [data.decode(), arch])
    texts, side = Texts(cast(Any, None), CUDA90), side_of("old", ONE, {LAUNCH.ttir_sha256: b"ttir"})
    assert texts.of(side, LAUNCH, "sass") == "made end\nsm_90a"
    own: Any = SimpleNamespace(code=LAUNCH.code, sha256="its", arch="sm_80")
    side = Side("old", {LAUNCH.ttir_sha256: b"ttir", "its": b"stored"}, (own,))
    assert texts.of(side, LAUNCH, "sass") == "stored end\nsm_80"


@pytest.mark.parametrize(
    ("against", "differs", "asked", "problem", "exit_code"),
    [
        (None, True, False, "", 0),
        (None, True, True, "", 1),
        ("main", False, True, "", 0),
        (None, False, False, "bad", 1),
    ],
)
def test_two_sides_are_compared_and_the_exit_code_says_what_was_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], against: str | None,
    differs: bool, asked: bool, problem: str, exit_code: int,
) -> None:  # fmt: skip
    shown: list[Any] = []
    entries: Any = [SimpleNamespace(problem=problem), SimpleNamespace(problem="")]

    @contextlib.contextmanager
    def recorded(case: Any, target: Any, folder: Path, name: str, revision: str = "") -> Any:
        yield (case, target, folder, name, revision)

    monkeypatch.setattr(code, "given_folder", lambda given: tmp_path / given)
    monkeypatch.setattr(code, "load_folder", lambda folder: entries)
    monkeypatch.setattr(code, "wanted", lambda found, args: (CASE, CUDA90))
    monkeypatch.setattr(code, "recorded", recorded)
    monkeypatch.setattr(code, "stored", lambda folder, found, case, target: ("stored", folder, case, target))
    monkeypatch.setattr(code, "Farm", lambda: SimpleNamespace(close=lambda: shown.append("closed")))
    monkeypatch.setattr(code, "_show", lambda before, after, texts, args: shown.extend([before, after]) or differs)
    assert code.run(words(against=against, baselines="b", exit_code=asked)) == exit_code
    place = tmp_path / "b"
    before = (CASE, CUDA90, place, "main", "main") if against else ("stored", place, CASE, CUDA90)
    assert shown == [before, (CASE, CUDA90, place, "today", ""), "closed"]
    assert capsys.readouterr().err == ("kerntune: bad\n" if problem else "")
