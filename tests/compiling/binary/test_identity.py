"""Two compilations are the same code when only names, comments and places differ."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.compiling.binary import identity as identity_module
from kerntune.compiling.binary.elf import text_sections
from kerntune.compiling.binary.identity import bare_text, identity_of, strip_debug, strip_locations, text_identity
from kerntune.errors import StoreError, UsageError

TARGETS = ["cuda:80", "cuda:90", "cuda:100", "hip:gfx942"]
ASSEMBLER = "ptxas 12.9"

SOFTMAX = """
@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    for k in range(0, n, BLOCK):
        v += k
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + i, e / tl.sum(e, 0), mask=i < n)
"""

HELPER = """
@triton.jit(noinline=True)
def keep(p, value):
    tl.store(p, tl.exp(value))


@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    keep(out, tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))
    keep(out + 1, tl.max(tl.load(x + i, mask=i < n, other=0.0), 0))
"""

SAME = {
    "comments": SOFTMAX.replace("    e = ", "    # the numerator // of it /* all */\n\n    e = "),
    "line numbers": "\n\n\n# one\n\n" + SOFTMAX,
    "local names": SOFTMAX.replace("row", "line").replace(" v", " values").replace("(v", "(values"),
    "parameter names": SOFTMAX.replace("(x, out", "(source, sink")
    .replace("(x +", "(source +")
    .replace("(out +", "(sink +"),
}
OTHER = {
    "another operation": SOFTMAX.replace("tl.exp(", "tl.exp2("),
    "another constant": SOFTMAX.replace("v += k", "v += k + 1"),
    "another order": SOFTMAX.replace("e / tl.sum(e, 0)", "e * (1.0 / tl.sum(e, 0))"),
}


def kind_of(compiled: Any) -> str:
    return "ptx" if "ptx" in compiled.asm else "amdgcn"


def identity(compiled: Any, assembler: str = ASSEMBLER) -> str:
    kind = kind_of(compiled)
    return identity_of(
        bare_text(compiled.asm[kind], kind), kind=kind, options=compiled.metadata._asdict(), assembler=assembler
    )  # type: ignore[arg-type]


def binary(compiled: Any) -> bytes:
    return compiled.asm["cubin" if "cubin" in compiled.asm else "hsaco"]


@pytest.fixture
def softmax(compile_source: Callable[..., Any]) -> Callable[..., Any]:
    def softmax(text: str, where: str, name: str = "softmax", **options: Any) -> Any:
        file = options.pop("file", "kernels.py")
        return compile_source(text, name, "*fp32 *fp32 i32", where, options, file, BLOCK=256)

    return softmax


@pytest.mark.parametrize("where", TARGETS)
@pytest.mark.parametrize("change", SAME)
def test_unchanged_by(change: str, where: str, softmax: Callable[..., Any]) -> None:
    before, after = softmax(SOFTMAX, where), softmax(SAME[change], where, file="elsewhere.py")
    assert SAME[change] != SOFTMAX
    assert identity(before) == identity(after)
    assert text_identity(binary(before)) == text_identity(binary(after))


@pytest.mark.parametrize("where", TARGETS)
@pytest.mark.parametrize("change", OTHER)
def test_changed_by(change: str, where: str, softmax: Callable[..., Any]) -> None:
    before, after = softmax(SOFTMAX, where), softmax(OTHER[change], where)
    assert identity(before) != identity(after)
    assert text_identity(binary(before)) != text_identity(binary(after))


@pytest.mark.parametrize("where", ["cuda:90", "hip:gfx942"])
@pytest.mark.parametrize("name", ["renamed_kernel", "add", "ret", "mov", "v_add_f32", "shared", "softmax_param_0", "x"])
def test_a_rename_is_the_same_code(name: str, where: str, softmax: Callable[..., Any]) -> None:
    """Also to the name of an instruction or of something else that the assembler text is full of."""
    before, after = softmax(SOFTMAX, where), softmax(SOFTMAX.replace("def softmax", f"def {name}"), where, name)
    assert identity(before) == identity(after)
    assert text_identity(binary(before)) == text_identity(binary(after))


@pytest.mark.parametrize("where", TARGETS)
def test_renamed_functions_that_a_kernel_calls(where: str, compile_source: Callable[..., Any]) -> None:
    texts = [HELPER, HELPER.replace("keep", "put_away"), HELPER.replace("tl.exp(", "tl.exp2(")]
    first, renamed, changed = (identity(compile_source(t, "total", "*fp32 *fp32 i32", where, BLOCK=256)) for t in texts)
    assert first == renamed
    assert first != changed


def test_options_and_assembler_count(softmax: Callable[..., Any]) -> None:
    plain = softmax(SOFTMAX, "cuda:90")
    assert identity(plain) != identity(softmax(SOFTMAX, "cuda:90", num_warps=8))
    assert identity(plain) != identity(softmax(SOFTMAX, "cuda:90", maxnreg=32))
    assert identity(plain) != identity(plain, "ptxas 13.4")
    assert identity(plain) == identity(plain, f" {ASSEMBLER}\n")


def _code(**options: Any) -> str:
    return identity_of(bare_text("mov.u32 %r1, 1;", "ptx"), kind="ptx", options=options, assembler=ASSEMBLER)


def test_options_count_by_value_not_by_spelling() -> None:
    assert _code(a=1, b=(1, 2)) == _code(b=[1, 2], a=1)
    assert _code(a=1) == _code(a=1, new_in_the_next_triton=None)
    assert _code(a=1) == _code(a=1, hash="source with comments", name="kernel")
    assert _code(a=1, triton_version="3.6.0") != _code(a=1, triton_version="3.9.0")
    assert _code(a=1) != _code(a=True)
    assert _code(a=frozenset({"x", "y"})) == _code(a={"y", "x"})


def test_where_libraries_lie_does_not_count() -> None:
    here, there = (("libdevice", "/a/lib/libdevice.10.bc"),), [["libdevice", "C:\\b\\libdevice.10.bc"]]
    assert _code(extern_libs=here) == _code(extern_libs=there)
    assert _code(extern_libs=here) != _code(extern_libs=(("libdevice", "/a/lib/other.bc"),))


def test_an_option_without_stable_text_is_refused() -> None:
    with pytest.raises(UsageError, match="'hook' has a object"):
        _code(hook=object())


@pytest.mark.parametrize("where", ["cuda:80", "cuda:90", "cuda:100"])
def test_stripped_text_assembles_to_the_same_machine_code(
    where: str, softmax: Callable[..., Any], tmp_path: Path
) -> None:
    from triton.backends.nvidia.compiler import get_ptxas

    ptx = softmax(SOFTMAX, where).asm["ptx"]
    texts = []
    for name, text in {"whole": ptx, "stripped": strip_debug(ptx, kind="ptx")}.items():
        source, target = tmp_path / f"{name}.ptx", tmp_path / f"{name}.cubin"
        source.write_text(text)
        arch = next(line.split()[1].rstrip(",") for line in ptx.splitlines() if line.startswith(".target"))
        tool = get_ptxas(int(where.partition(":")[2])).path
        subprocess.run([tool, "-arch", arch, str(source), "-o", str(target)], check=True, capture_output=True)
        texts.append([code for _, code in text_sections(target.read_bytes())])
    assert texts[0] == texts[1]


def test_nothing_of_the_source_is_left(softmax: Callable[..., Any]) -> None:
    for where, kind in (("cuda:90", "ptx"), ("hip:gfx942", "amdgcn")):
        text = softmax(SOFTMAX, where, file="tell_tale.py").asm[kind]
        assert "tell_tale" in text
        bare = strip_debug(text, kind=kind)  # type: ignore[arg-type]
        assert "tell_tale" not in bare
        assert not any(word in bare for word in (".loc", ".file", ".debug_info", "//", "__tmp", "Ltmp"))
        assert strip_debug(bare, kind=kind) == bare  # type: ignore[arg-type]


def test_comment_signs_in_strings_are_no_comments() -> None:
    text = '.pragma "no // comment"; // one\n.asciz "a;b" ; two\n'
    assert strip_debug(text, kind="ptx") == '.pragma "no // comment";\n.asciz "a;b" ; two\n'
    assert strip_debug('.asciz "a;b" ; two\n', kind="amdgcn") == '.asciz "a;b"\n'


_LINES = st.lists(st.sampled_from(["mov.u32 %r1, %r2;", "@%p1 bra $L__BB0_1;", "$L__BB0_1:", "ret;", "bar.sync 0;"]))
_NOISE = st.sampled_from(["", "// text", "\t.loc 1 2 3", "$L__tmp7:", "/* a\nb */", '.file 1 "a//b.py"'])


@given(_LINES, st.data())
def test_noise_between_lines_changes_nothing(lines: list[str], data: st.DataObject) -> None:
    noisy = [part for line in lines for part in (data.draw(_NOISE), f"  {line}  // {line}")]
    assert strip_debug("\n".join(noisy), kind="ptx") == strip_debug("\n".join(lines), kind="ptx")


@given(_LINES, _LINES)
def test_different_lines_differ(one: list[str], two: list[str]) -> None:
    bare = [strip_debug("\n".join(lines), kind="ptx") for lines in (one, two)]
    hashes = [
        identity_of(bare_text("\n".join(lines), "ptx"), kind="ptx", options={}, assembler=ASSEMBLER)
        for lines in (one, two)
    ]
    assert (bare[0] == bare[1]) == (hashes[0] == hashes[1])


def test_machine_code_of_nonsense_is_an_error() -> None:
    with pytest.raises(StoreError, match="not a compiled kernel"):
        text_identity(b"no ELF at all")


@pytest.mark.parametrize(
    ("text", "renamed"),
    [
        ("%x = a\nuse %x, %y\n%y = b %x", "%0 = a\nuse %0, %1\n%2 = b %0"),
        ("%x = a\nuse %x\n%x = b\nuse %x", "%0 = a\nuse %0\n%1 = b\nuse %1"),
        ("%x:2 = a\nuse %x#1", "%0:2 = a\nuse %0#1"),
        ("func @f(%x: i32, %7: i32)\ncall @f, @g, %7", "func @function_0(%0: i32, %1: i32)\ncall @function_0, @g, %1"),
        ("func @b\nfunc @a\ncall @a @b", "func @function_0\nfunc @function_1\ncall @function_1 @function_0"),
    ],
)
def test_values_and_functions_go_by_their_order(text: str, renamed: str) -> None:
    """A name that is defined again is another value."""
    assert identity_module._renamed(text, re.compile(r"func @(\w+)")) == renamed


@pytest.mark.parametrize(
    ("line", "stripped"),
    [
        ('%0 = tt.load %1 : f32 loc("a)b":1:2)', "%0 = tt.load %1 : f32"),
        ('%0 = tt.load %1 : f32 loc("a(b":1:2) end', "%0 = tt.load %1 : f32 end"),
        ('x loc(callsite("f\\")"(#loc1) at "g"(#loc2))) y', "x y"),
        ("x loc(fused[#loc1, loc(unknown)]) loc(#loc2) y", "x y"),
        ("func(%arg0: i32 loc(#loc1), %arg1: i32 loc(#loc2)) {", "func(%arg0: i32, %arg1: i32) {"),
        ("x block(1) y", "x block(1) y"),
        ("x loc(never ends", "x"),
    ],
)
def test_a_location_ends_at_its_own_bracket(line: str, stripped: str) -> None:
    """Brackets within its texts aren't its own."""
    assert strip_locations(f"#loc1 = loc(unknown)\n{line}") == f"{stripped}\n"


def renamed(kind: str, head: str, line: str) -> str:
    """``line`` after definitions of the functions ``add`` and ``keep``."""
    return identity_module.anonymous(f"{head}\n{line}", kind).removeprefix(identity_module.anonymous(head, kind) + "\n")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("call.uni (retval0), keep, (param0);", "call.uni (retval0), function_1, (param0);"),
        ("keep, (add);", "function_1, (function_0);"),
        ("keep(x)", "function_1(x)"),
        ("ld.u64 %rd1,[keep];", "ld.u64 %rd1,[function_1];"),
        ("mov.u64 %rd1,keep;", "mov.u64 %rd1,function_1;"),
        ("ld.param.u64 %rd1, [add_param_0];", "ld.param.u64 %rd1, [function_0_param_0];"),
        ("add_param_0_param_1", "function_0_param_0_param_1"),
        *((same, same) for same in ("add.s32 %r1, %r2, 1;", "add;", "mov.u64 %rd1, keep.x;", "x+keep", "%keep",
                                    "%add_param_0 .add_param_0", "add_param_x", "keeping")),
    ],
)  # fmt: skip
def test_where_a_word_of_ptx_is_a_functions_name(line: str, other: str) -> None:
    assert renamed("ptx", ".visible .entry add()\n.func (.param .b32 r) keep()", line) == other


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("add:", "function_0:"),
        ("m.keep:", "function_1:"),
        ("s_getpc add", "s_getpc function_0"),
        ("s m.keep.add", "s function_1.add"),
        ("x,add@rel (add)", "x,function_0@rel (function_0)"),
        (".Lm.keep.end0-add", ".Lfunction_1.end0-function_0"),
        (".Ladd.end:", ".Lfunction_0.end:"),
        ("x.Ladd.Lm.keep.y", "x.Lfunction_0.Lfunction_1.y"),
        *((same, same) for same in ("add", "\tadd:", "[add]", "s m.kept", "a.add", ".Ladd", "x.Lm.keep", ".Lm.keep_end",
                                    "Ladd", "m.keep.kd:", "v_add_f32 v0, v1")),
    ],
)  # fmt: skip
def test_where_a_word_of_amdgcn_is_a_functions_name(line: str, other: str) -> None:
    assert renamed("amdgcn", ".type add,@function\n.type m.keep,@function", line) == other


@pytest.mark.parametrize(("parts", "known"), [(9, True), (10, False)])
def test_of_a_name_nine_parts_are_looked_at(parts: int, known: bool) -> None:
    """Else a name of thousands of parts would take for ever."""
    dotted, suffixed = ".".join("abcdefghij"[:parts]), "f" + "_param_0" * (parts - 1)
    shown = renamed("amdgcn", f".type {dotted},@function", f"s {dotted}\n.L{dotted}.end\n{dotted}:")
    own = "function_0" if known else dotted
    assert shown == f"s {own}\n.L{own}.end\nfunction_0:"
    assert renamed("ptx", f".entry {suffixed}()", f"{suffixed}_param_0") == (
        "function_0_param_0" if known else f"{suffixed}_param_0"
    )


def test_what_of_the_options_counts() -> None:
    left_out = {"hash": 1, "name": "n", "target": 2, "ir_override": "f", "unset": None}
    options = {"z": 1, "b": (1, [True, None]), "a": {"k": 2, 1: "x"}, "s": {"b", "a"}, "f": 0.5}
    found = identity_module._canonical_options({**left_out, **options, "extern_libs": {"l": "/a/b.bc", "n": 1}})
    assert found == {"a": {"1": "x", "k": 2}, "b": [1, [True, None]], "extern_libs": {"l": "b.bc", "n": 1}, "f": 0.5,
                     "s": ["a", "b"], "z": 1}  # fmt: skip
    assert [*found] == sorted(found)


def test_identities_in_baselines_stay_what_they_are() -> None:
    words = {"kind": "ptx", "options": {"num_warps": 4}, "assembler": "13.1"}
    assert identity_of("ret;\n", **words)[:16] == "a4623e0627114346"  # type: ignore[arg-type]
    assert identity_of("ret;\n", **words, settings={"DISABLE_PTXAS_OPT": "1"})[:16] == "928f622458329061"  # type: ignore[arg-type]
