"""Hunks of changed code in results, by the real compiler."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
import triton
import triton.language as tl
from fake_runs import N, by_block
from samples import artifacts_of, binary, bytes_of, recording, static_launch

from gate.project import Project
from kerntune.base.config import Config
from kerntune.errors import CompileError
from kerntune.gate import code_changes as module


@triton.jit
def first_kernel(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def second_kernel(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.sqrt(tl.load(x_ptr + i, mask=i < n)) + 1, mask=i < n)


def launch(kernel: Any, block: int = 128) -> Any:
    def fn(x: torch.Tensor) -> None:
        kernel[by_block](x, N, BLOCK=block)

    return fn


def judged(tmp_path: Path, *runs: Any, code: bool = True) -> Any:
    """The result of the last of several runs of one case on the scripted GPU."""
    project = Project(tmp_path)
    for fn in runs:
        found = project.once(code_changes=code).judge(fn, torch.zeros(N, device="cuda"))
    return found


@pytest.mark.slow
def test_assembly_and_machine_code_of_a_changed_source(tmp_path: Path) -> None:
    result = judged(tmp_path, launch(first_kernel), launch(second_kernel))
    ptx, sass = result.code
    assert (ptx.kernel, ptx.stage, sass.stage) == ("second_kernel", "ptx", "sass")
    added = [line for line in ptx.diff.splitlines() if line.startswith("+")]
    assert any("sqrt" in line for line in added)
    assert any("MUFU" in line for line in sass.diff.splitlines() if line.startswith("+"))
    assert len(ptx.diff.splitlines()) <= module.MAX_LINES
    assert result.launches[0].before is not None
    assert result.launches[0].before.registers is not None
    assert result.launches[0].occupancy is not None
    assert result.baseline_times_ns
    assert result.replayed is not None
    assert len(result.replayed.baseline_ns) == len(result.replayed.current_ns) > 0


@pytest.mark.slow
def test_nothing_where_nobody_asked_or_the_code_is_the_same(tmp_path: Path) -> None:
    assert judged(tmp_path / "a", launch(first_kernel), launch(second_kernel), code=False).code == ()
    assert judged(tmp_path / "b", launch(first_kernel), launch(first_kernel)).code == ()


@pytest.mark.slow
def test_another_constant_alone_is_no_changed_code(tmp_path: Path) -> None:
    """Its diff is of two configs: long, and says nothing about an edit."""
    assert judged(tmp_path, launch(first_kernel), launch(first_kernel, 256)).code == ()


@pytest.mark.slow
def test_without_a_gpu(tmp_path: Path) -> None:
    project = Project(tmp_path)
    nvidia, amd = (
        [
            project.static_once(target, code_changes=True).judge(launch(kernel), torch.zeros(N, device="cuda"))
            for kernel in (first_kernel, second_kernel)
        ][1]
        for target in ("cuda:90", "hip:gfx942")
    )
    assert [c.stage for c in nvidia.code] == ["ptx", "sass"]
    assert [c.stage for c in amd.code] == ["amdgcn"]
    assert "v_sqrt" in amd.code[0].diff


@pytest.mark.slow
def test_what_cant_be_compiled_again_is_shown_as_ttir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any) -> Any:
        raise module.KerntuneError("Triton refuses it")

    monkeypatch.setattr(module, "stages_from", refused)
    result = judged(tmp_path, launch(first_kernel), launch(second_kernel))
    assert [c.stage for c in result.code] == ["ttir"]
    assert "+" in result.code[0].diff


# which launches are shown, and how, without compiling


def compiled(code: str, **changes: Any) -> Any:
    return msgspec.structs.replace(static_launch(code), **changes)


def shown(monkeypatch: pytest.MonkeyPatch, before: list[Any], after: list[Any]) -> list[int]:
    """Places of the launches whose change is shown."""
    monkeypatch.setattr(module._Texts, "changes", lambda self, index, old, new: [index])
    stored: Any = module.StoredCode(before, {})
    recorded: Any = None
    return list(module.code_changes(stored, recorded, after, recorded))  # type: ignore[arg-type]


def test_four_distinct_changes_are_shown_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [compiled(f"a{i}", kernel=f"k{i}") for i in range(6)]
    after = [compiled(f"b{i}", kernel=f"k{i}", source="edited") for i in range(6)]
    assert shown(monkeypatch, before, after) == [0, 1, 2, 3]
    same = [compiled("b", source="edited")] * 3
    assert shown(monkeypatch, [compiled("a")] * 3, same) == [2]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"code": "b", "source": "edited"}, [0]),
        ({"code": "b", "source": "edited", "config": Config({"BLOCK": 64})}, [0]),
        ({"code": "b"}, [0]),
        ({"code": "b", "config": Config({"BLOCK": 64})}, []),
        ({"source": "edited"}, []),
        ({}, []),
    ],
    ids=["source", "source and config", "compiler", "config", "the same code", "nothing"],
)
def test_a_config_alone_is_no_changed_code(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], expected: list[int]
) -> None:
    assert shown(monkeypatch, [compiled("a")], [msgspec.structs.replace(compiled("a"), **changes)]) == expected


TTIR = {"old": b"module {\n  first\n}\n", "new": b"module {\n  second\n}\n"}


def texts(monkeypatch: pytest.MonkeyPatch, stored: set[str], today: set[str], made: Any, **new: Any) -> list[Any]:
    """What is shown of a launch whose TTIR is kept on these sides; ``made`` is the assembly that can be made."""
    old = compiled("a", ttir_sha256="old", compiler="C")
    launch_ = compiled("b", **{"ttir_sha256": "new", "compiler": "C", "kernel": "named", **new})
    asked: list[bytes] = []

    def assembly(self: Any, index: int, old: Any, new: Any, ttir: bytes) -> list[Any]:
        asked.append(ttir)
        return made

    monkeypatch.setattr(module._Texts, "_assembly", assembly)
    kept, recorded = ({k: TTIR[k] for k in side} for side in (stored, today))
    holder: Any = SimpleNamespace(artifacts=recorded)
    found = module._Texts(module.StoredCode([old], kept), holder, holder)
    result = list(found.changes(0, old, launch_))
    assert asked == ([TTIR["old"]] if stored and new.get("compiler", "C") == "C" else [])
    return [(one.kernel, one.stage, one.diff, one.cut) for one in result]


SIDES = [("ptx", ("same\nold", "same\nnew")), ("sass", ("x", "x"))]


def test_assembly_is_shown_where_it_can_be_made_and_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    ((kernel, stage, diff, cut),) = texts(monkeypatch, {"old"}, {"new"}, SIDES)
    assert (kernel, stage, cut) == ("named", "ptx", 0)
    assert "-old" in diff
    assert "+new" in diff


@pytest.mark.parametrize("compiler", ["C", "another"])
def test_else_the_ttir(monkeypatch: pytest.MonkeyPatch, compiler: str) -> None:
    made = [] if compiler == "C" else SIDES
    ((_, stage, diff, _),) = texts(monkeypatch, {"old"}, {"new"}, made, compiler=compiler)
    assert stage == "ttir"
    assert "+  second" in diff


@pytest.mark.parametrize(("stored", "today"), [(set(), {"new"}), ({"old"}, set())])
def test_without_both_nothing_is_shown(monkeypatch: pytest.MonkeyPatch, stored: set[str], today: set[str]) -> None:
    assert texts(monkeypatch, stored, today, []) == []


@pytest.mark.parametrize(("lines", "cut"), [(399, 0), (400, 1)])
def test_long_differences_and_lines_are_cut(monkeypatch: pytest.MonkeyPatch, lines: int, cut: int) -> None:
    long = "\n".join(f"{i} {'x' * 400}" for i in range(lines))
    ((_, _, diff, left_out),) = texts(monkeypatch, {"old"}, {"new"}, [("ptx", ("", long))])
    assert left_out == cut
    assert max(len(line) for line in diff.splitlines()) == 301
    assert (module.MAX_LINES, module.MAX_LINE) == (400, 300)


def test_options_are_those_of_the_compiler_and_the_config() -> None:
    told = {"num_warps": "8", "num_stages": "2", "x": "*fp32", "BLOCK": "constexpr 64"}
    assert module.options_of(compiled("a", config=None, compiled_for=told)) == {"num_warps": 8, "num_stages": 2}
    found = module.options_of(compiled("a", compiled_for={"num_warps": "8"}))
    assert (found["num_warps"], found["BLOCK"]) == (8, 128)


def test_the_baselines_binary_is_that_of_the_launch() -> None:
    kept = recording(binaries=(binary("a"), binary("b")))
    unused: Any = None
    texts_of = module._Texts(module.StoredCode([], artifacts_of("a", "b"), kept), unused, unused)
    assert texts_of._cubin(compiled("b")) == bytes_of("cubin b")
    assert texts_of._cubin(compiled("another")) is None


@pytest.mark.parametrize(
    ("kind", "kept", "stages"),
    [
        ("cubin", False, [("ptx", ("-made ptx-", "-today's ptx-")), ("sass", ("made", "today"))]),
        ("cubin", True, [("ptx", ("-made ptx-", "-today's ptx-")), ("sass", ("kept", "today"))]),
        ("hsaco", False, [("ptx", ("-made ptx-", "-today's ptx-"))]),
        ("missing", False, []), ("refused", False, []),
    ],
)  # fmt: skip
def test_assembly_and_machine_code_of_both_sides(
    monkeypatch: pytest.MonkeyPatch, kind: str, kept: bool, stages: list[Any]
) -> None:
    """Of the baseline what it keeps, else what its TTIR compiles to with its options; nothing where that fails."""
    asked: list[Any] = []
    today = binary("new", kind="cubin" if kind in ("missing", "refused") else kind)
    stored = recording(binaries=(binary("other"), binary("old"))) if kept else None

    def stages_from(*words: Any) -> dict[str, bytes]:
        asked.append(words)
        if kind == "refused":
            raise CompileError("no")
        return {"ptx": b"made ptx", "cubin": b"made"}

    monkeypatch.setattr(module, "stages_from", stages_from)
    monkeypatch.setattr(module, "strip_debug", lambda text, kind: f"-{text}-")
    monkeypatch.setattr(module, "_machine_code", lambda cubin, arch: cubin.decode())
    texts = module._Texts(
        SimpleNamespace(recording=stored, artifacts={binary("old").sha256: b"kept"}),  # type: ignore[arg-type]
        SimpleNamespace(  # type: ignore[arg-type]
            recording=recording(binaries=(today,)),
            asm={} if kind == "missing" else {today.sha256: "today's ptx"},
            artifacts={today.sha256: b"today"},
        ),
        "the farm",  # type: ignore[arg-type]
    )
    old = static_launch("old")
    assert list(texts._assembly(0, old, static_launch("new"), b"ttir")) == stages
    target = recording().target
    assert asked == [("the farm", target, b"ttir", module.options_of(old), "add_kernel", today.options)]
