"""Which compiler stage differs first."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.compiling.binary.identity import STAGES, first_difference, stage_hashes

triton = pytest.importorskip("triton")

TTIR = """
#loc = loc("a.py":1:0)
module {
  tt.func public @add(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x"), %n: i32 loc("n")) {
    %0 = tt.splat %n : i32 -> tensor<256xi32> loc(#loc)
    %1 = tt.call @m.helper__i32(%0) : (tensor<256xi32>) -> tensor<256xi32> loc(#loc)
    tt.return loc(#loc)
  } loc(#loc)
  tt.func private @m.helper__i32(%v: tensor<256xi32> loc("v")) -> tensor<256xi32> {
    tt.return %v : tensor<256xi32> loc(#loc)
  } loc(#loc)
} loc(#loc)
"""

LLIR = """
; ModuleID = 'a'
source_filename = "a"
define ptx_kernel void @add(ptr addrspace(1) %0) #0 !dbg !4 {
  %2 = tail call i32 asm "mov.u32 $0; // ; x", "=r"(), !dbg !7  ; a comment
  ret void, !dbg !8
}
!4 = distinct !DISubprogram(name: "add", line: 3)
"""

PTX = """
.version 8.7
.target sm_90a
.visible .entry add(
\t.param .u64 add_param_0
)
{
\t.loc\t1 3 0
\tret;  // done
}
"""

TEXTS = {"ttir": TTIR, "ttgir": TTIR, "llir": LLIR, "ptx": PTX, "cubin": b"\x7fELF"}


def hashes(**changes: str) -> dict[str, str]:
    return stage_hashes(TEXTS | changes)


def test_stages_come_in_their_order_and_bytes_are_none() -> None:
    assert list(hashes()) == ["ttir", "ttgir", "llir", "ptx"]
    assert list(stage_hashes({"amdgcn": "s_endpgm", "ttir": TTIR})) == ["ttir", "amdgcn"]
    (one,) = {stage_hashes({"amdgcn": f"s_endpgm ; {comment}"})["amdgcn"] for comment in ("done", "the end")}
    assert one != stage_hashes({"ptx": "s_endpgm ; done"})["ptx"]


@pytest.mark.parametrize(
    "same",
    [
        {"ttir": TTIR.replace("a.py", "b.py").replace(":1:0", ":9:4")},
        {"ttir": TTIR.replace("%n", "%count").replace('"n"', '"count"')},
        {"ttir": TTIR.replace("@add", "@sum").replace("@m.helper", "@other.twice")},
        {"llir": LLIR.replace("@add", "@sum").replace('"add"', '"sum"')},
        {"llir": LLIR.replace("line: 3", "line: 4").replace("!7", "!70").replace("a comment", "another")},
        {"ptx": PTX.replace("add", "sum").replace("1 3 0", "1 4 0").replace("done", "end")},
    ],
)
def test_names_places_and_comments_do_not_count(same: dict[str, str]) -> None:
    assert hashes(**same) == hashes()


@pytest.mark.parametrize(
    ("changes", "stage"),
    [
        ({"ttir": TTIR.replace("256", "128")}, "TTIR"),
        ({"ttir": TTIR.replace("divisibility = 16", "divisibility = 8"), "ptx": PTX + "exit;"}, "TTIR"),
        ({"ttir": TTIR.replace("tt.splat %n", "tt.splat %x")}, "TTIR"),
        ({"ttgir": TTIR.replace("256", "128"), "llir": ""}, "TTGIR"),
        ({"llir": LLIR.replace("// ; x", "// ; y")}, "LLIR"),
        ({"ptx": PTX.replace("ret", "exit")}, "PTX"),
        ({}, ""),
    ],
)
def test_the_first_that_differs(changes: dict[str, str], stage: str) -> None:
    assert first_difference(hashes(), hashes(**changes)) == stage


_STAGES = st.dictionaries(st.sampled_from(STAGES), st.sampled_from(["a", "b"]))


@given(_STAGES, _STAGES)
def test_a_stage_that_one_side_lacks_is_never_named(before: dict[str, str], after: dict[str, str]) -> None:
    named = first_difference(before, after).lower()
    assert named == first_difference(after, before).lower()
    if named:
        assert before[named] != after[named]
        assert all(before[s] == after[s] for s in STAGES[: STAGES.index(named)] if s in before and s in after)
    else:
        assert all(before[s] == after[s] for s in before.keys() & after.keys())


SOURCE = """
import triton, triton.language as tl

@triton.jit
def KERNEL(VALUES, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)COMMENT
    tl.store(out + at, tl.load(VALUES + at) * FACTOR)
"""


def compiled(tmp_path, **words: str) -> dict[str, str]:
    """Stages of a kernel written with these words."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    text = SOURCE
    for word, value in ({"KERNEL": "scale", "VALUES": "x", "COMMENT": "", "FACTOR": "2.0"} | words).items():
        text = text.replace(word, value)
    path = tmp_path / "kernels.py"
    path.write_text(textwrap.dedent(text))
    scope: dict[str, object] = {"__name__": "kernels"}
    exec(compile(text, str(path), "exec"), scope)
    import linecache

    linecache.checkcache(str(path))
    jit = scope[words.get("KERNEL", "scale")]
    signature = {words.get("VALUES", "x"): "*fp32", "out": "*fp32", "BLOCK": "constexpr"}
    source = ASTSource(jit, signature, {(2,): 256}, {(0,): [["tt.divisibility", 16]]})
    return stage_hashes(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm)


def test_a_real_kernel(tmp_path) -> None:
    same = compiled(tmp_path)
    assert compiled(tmp_path, KERNEL="times", VALUES="values", COMMENT="  # a comment\n\n") == same
    assert first_difference(same, compiled(tmp_path, FACTOR="3.0")) == "TTIR"
