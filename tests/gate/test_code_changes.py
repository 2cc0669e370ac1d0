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
from doubles import raising
from fake_runs import N, by_block
from samples import binary, recording, static_launch

from gate.project import Project
from kerntune.base.config import Config
from kerntune.base.device import Target
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
    monkeypatch.setattr(module, "stages_from", raising(module.KerntuneError("Triton refuses it")))
    result = judged(tmp_path, launch(first_kernel), launch(second_kernel))
    assert [c.stage for c in result.code] == ["ttir"]
    assert "+" in result.code[0].diff


# which launches are shown, and how, without compiling


def compiled(code: str, **changes: Any) -> Any:
    return msgspec.structs.replace(static_launch(code), **changes)


def shown(monkeypatch: pytest.MonkeyPatch, before: list[Any], after: list[Any]) -> list[int]:
    """Places of the launches whose change is shown."""
    monkeypatch.setattr(module, "_both_sides", lambda texts, old, new: {"ptx": ("", "x")})
    launches = [SimpleNamespace(place=i) for i in range(len(after))]
    binary_of = lambda launch: (places.append(launch.place), binary("a"))[1]  # noqa: E731
    places: list[int] = []
    run = SimpleNamespace(launches=launches, binary_of=binary_of, binaries=(), target=recording().target)
    recorded: Any = SimpleNamespace(recording=run, artifacts={}, asm={})
    assert len(module.code_changes(before, module.Side("old", {}), after, recorded, recorded)) == len(places)
    return places


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
    given = dict(made)
    whole = module.Texts.of

    def of(self: Any, side: Any, launch: Any, stage: str) -> str:
        if stage not in module.STAGES[:2] and stage not in given:
            raise CompileError("no")
        return given[stage][launch is launch_] if stage in given else whole(self, side, launch, stage)

    monkeypatch.setattr(module.Texts, "of", of)
    kept, recorded = ({k: TTIR[k] for k in side} for side in (stored, today))
    run: Any = SimpleNamespace(recording=recording(), artifacts=recorded, asm={})
    result = module.code_changes([old], module.Side("old", kept), [launch_], run, run)
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


@pytest.mark.parametrize(
    ("kind", "kept", "stages"),
    [
        ("cuda", False, {"ptx": ("-made ptx-", "-today's ptx-"), "sass": ("made", "today")}),
        ("cuda", True, {"ptx": ("-made ptx-", "-today's ptx-"), "sass": ("kept", "today")}),
        ("hip", False, {"amdgcn": ("-made amdgcn-", "-today's ptx-")}),
        ("no cubin", False, {"ptx": ("-made ptx-", "-today's ptx-")}),
        ("refused", False, {"ttir": ("old {}\n", "new {}\n")}),
    ],
)  # fmt: skip
def test_assembly_and_machine_code_of_both_sides(
    monkeypatch: pytest.MonkeyPatch, kind: str, kept: bool, stages: dict[str, Any]
) -> None:
    """Of the baseline what it keeps, else what its TTIR compiles to with its options; else the TTIR."""
    asked: list[Any] = []
    target = Target.parse("hip:gfx942" if kind == "hip" else "cuda:90")

    def stages_from(*words: Any) -> dict[str, bytes]:
        asked.append(words)
        if kind == "refused":
            raise CompileError("no")
        made = {"ptx": b"made ptx", "amdgcn": b"made amdgcn", "cubin": b"made"}
        return {name: data for name, data in made.items() if (name, kind) != ("cubin", "no cubin")}

    monkeypatch.setattr(module, "stages_from", stages_from)
    monkeypatch.setattr(module, "arch_in", lambda ptx: "sm_90a")
    monkeypatch.setattr(module, "strip_debug", lambda text, kind: f"-{text}-")
    monkeypatch.setattr(module, "Elf", lambda cubin: SimpleNamespace(text=[("", cubin)]))
    monkeypatch.setattr(module, "code_lines", lambda data, arch: [data.decode()])
    old, new = compiled("old", ttir_sha256="o", compiler="C"), compiled("new", ttir_sha256="n", compiler="C")
    stored = module.Side("old", {"o": b"old {}", binary("old").sha256: b"kept"}, (binary("old"),) if kept else ())
    today = module.Side("today", {"n": b"new {}", binary("new").sha256: b"today"}, (binary("new"),))
    texts = module.Texts("the farm", target, {"an": "option"})  # type: ignore[arg-type]
    texts.know_assembly(new, "" if kind == "refused" else "today's ptx")
    assert module._both_sides(texts, (stored, old), (today, new)) == stages
    assert set(map(str, asked)) == {
        str(("the farm", target, b"old {}", module.options_of(old), "add_kernel", {"an": "option"}))
    }
