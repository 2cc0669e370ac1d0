"""Attributes of operations: the text that Triton 3.6 is read by gives what later Tritons' bindings give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kerntune.errors import InterpreterLimit
from kerntune.gpu.emulator.ttir_program import operation_lines
from kerntune.kernels.compat.operation_attributes import ATTRIBUTES, WORDS, attributes_in_text, operation_attributes
from kerntune.kernels.compat.versions import triton_series
from kerntune.kernels.writes import parse_module

M, V = "tensor<8x8xf32>", "tensor<8xi32>"
BLOCK = "8xf32" if triton_series() not in ("3.6", "3.7") else "tensor<8xf32>"
PLAIN = f"""
  %i = arith.constant 5 : i32
  %v = arith.constant 1.0 : f32
  %yes = arith.constant true
  %m = arith.constant dense<1.0> : {M}
  %a = tt.get_program_id x : i32
  %b = tt.get_num_programs z : i32
  %r = tt.make_range {{end = 12 : i32, start = 4 : i32}} : {V}
  %e = tt.expand_dims %r {{axis = 1 : i32}} : {V} -> tensor<8x1xi32>
  %x = tt.expand_dims %r {{axis = 0 : i32, loop.axis = 3 : i32}} : {V} -> tensor<1x8xi32>
  %g = tt.gather %m[%w] {{axis = 1 : i32}} : ({M}, tensor<8x8xi32>) -> {M}
  %d = tt.dot %m, %m, %m : {M} * {M} -> {M}
  %f = tt.fp_to_fp %m, rounding = rtz : {M} -> tensor<8x8xf16>
  %h = tt.fp_to_fp %m {{loop.stage = 1 : i32}}, rounding = rtne : {M} -> tensor<8x8xf16>
  %u = tt.make_tensor_descriptor %l, [%i], [%o] : <f32>, <{BLOCK}>
  %t = tt.make_tensor_descriptor %l, [%i], [%o] {{padding = 2 : i32}} : <f32>, <{BLOCK}>
  %k = tt.fp_to_fp %m : {M} -> tensor<8x8xf64>
"""
PLAIN = PLAIN.replace(
    "  %g =", "  %o = arith.constant 1 : i64\n  %w = arith.constant dense<1> : tensor<8x8xi32>\n  %g ="
)

SAID: list[tuple[str, dict[str, Any]]] = [
    ("tt.get_program_id", {"axis": 0}),
    ("tt.get_num_programs", {"axis": 2}),
    ("tt.make_range", {"start": 4, "end": 12}),
    ("tt.expand_dims", {"axis": 1}),
    ("tt.expand_dims", {"axis": 0}),
    ("tt.gather", {"axis": 1}),
    ("tt.dot", {"inputPrecision": "ieee"}),
    ("tt.fp_to_fp", {"rounding": "rtz"}),
    ("tt.fp_to_fp", {"rounding": "rtne"}),
    ("tt.make_tensor_descriptor", {"padding": 1}),
    ("tt.make_tensor_descriptor", {"padding": 2}),
    ("tt.fp_to_fp", {}),
]

HOSTILE = f"""
  %i = arith.constant 5 : i32
  tt.print " %q = tt.make_range {{end = 2 : i32, start = 1 : i32}}" {{hex = false, isSigned = array<i32: 1>}} : %i : i32
  tt.print "\\0A %q = tt.make_range {{end = 2 : i32, start = 1 : i32}} \\22 {{" {{hex = false, isSigned = array<i32: 1>}} : %i : i32
  %r = tt.make_range {{end = 8 : i32, said = "end = 2 \\22 end = 3 {{", start = 0 : i32}} : {V}
  %s = tt.make_range {{end = 9 : i32, "start " = 7 : i32, start = 1 : i32, tt.end = 4 : i32}} : {V}
"""  # noqa: E501

NESTED = f"""
  %m = arith.constant dense<1.0> : {M}
  %s = "tt.reduce"(%m) <{{axis = 1 : i32}}> ({{
  ^bb0(%p: f32, %w: f32):
    %less = arith.cmpf olt, %p, %w : f32
    %if = scf.if %less -> (f32) {{
      scf.yield %p : f32
    }} else {{
      scf.yield %w : f32
    }}
    %q = "tt.reduce"(%m) <{{axis = 0 : i32}}> ({{
    ^bb0(%p1: f32, %w1: f32):
      %o1 = arith.addf %p1, %w1 : f32
      tt.reduce.return %o1 : f32
    }}) : ({M}) -> tensor<8xf32>
    %o = arith.addf %p, %w : f32
    tt.reduce.return %o : f32
  }}) {{axis2 = 7 : i32}} : ({M}) -> tensor<8xf32>
  %c:2 = "tt.scan"(%m, %m) <{{axis = 1 : i32, reverse = true}}> ({{
  ^bb0(%p: f32, %w: f32, %p5: f32, %w5: f32):
    %less = arith.cmpf olt, %p, %w : f32
    %o = scf.if %less -> (f32) {{
      %bits = arith.bitcast %p : f32 to i32
      %le = arith.cmpi sle, %bits, %bits : i32
      scf.yield %p : f32
    }} else {{
      %ge = arith.cmpf uge, %p, %w : f32
      scf.yield %w : f32
    }}
    tt.scan.return %o, %o : f32, f32
  }}) : ({M}, {M}) -> ({M}, {M})
"""


def words_of(name: str) -> Iterator[str]:
    """A line for each word of an operation."""
    for word in WORDS[name].values():
        yield {
            "arith.cmpi": f"  %z_{word} = arith.cmpi {word}, %i, %i : i32",
            "arith.cmpf": f"  %y_{word} = arith.cmpf {word}, %m, %m fastmath<nnan> : {M}",
            "tt.clampf": f"  %c_{word} = tt.clampf %v, %v, %v, propagateNan = {word} : f32",
            "tt.dot": f"  %d_{word} = tt.dot %m, %m, %m, inputPrecision = {word} : {M} * {M} -> {M}",
            "tt.fp_to_fp": f"  %f_{word} = tt.fp_to_fp %m, rounding = {word} : {M} -> tensor<8x8xf16>",
            "tt.atomic_rmw": f"  %o_{word} = tt.atomic_rmw {word}, acq_rel, gpu, %{'l' if 'f' in word else 'n'}, "
            f"%{'v' if 'f' in word else 'i'}, %yes : (!tt.ptr<{'f32' if 'f' in word else 'i32'}>, "
            f"{'f32' if 'f' in word else 'i32'}, i1) -> {'f32' if 'f' in word else 'i32'}",
        }[name]


EVERY_WORD = PLAIN + "\n".join(line for name in WORDS for line in words_of(name))


def attributes(body: str) -> list[tuple[str, dict[str, int | str], dict[str, int | str]]]:
    """Name, attributes, and attributes by the text alone of a module's operations in the order of the walk."""
    from triton._C.libtriton import ir

    context = ir.context()
    ir.load_dialects(context)
    head = "tt.func public @k(%l: !tt.ptr<f32>, %n: !tt.ptr<i32>) attributes {noinline = false}"
    module = parse_module(f"module {{\n {head} {{\n{body}\n tt.return\n }}\n}}", context)
    lines = {name: iter(found) for name, found in operation_lines(module.str_nodebug()).items()}
    operations: list[Any] = []
    module.walk(operations.append)
    found = []
    for name, operation in ((o.get_name(), o) for o in operations):
        if name in ATTRIBUTES:
            line = next(lines[name])
            found.append((name, operation_attributes(operation, name, line), attributes_in_text(name, line)))
    assert not [name for name in ATTRIBUTES if next(lines.get(name, iter(())), None) is not None]
    return found


def test_values() -> None:
    assert [(name, found) for name, found, _ in attributes(PLAIN)] == SAID


@pytest.mark.parametrize("body", [EVERY_WORD, HOSTILE, NESTED], ids=["every word", "hostile", "nested"])
def test_the_text_says_the_same(body: str) -> None:
    for name, found, read in attributes(body):
        assert found == read, name


def test_every_word_is_read() -> None:
    found = attributes(EVERY_WORD)
    for name, words in WORDS.items():
        assert {next(iter(x.values())) for other, x, _ in found if other == name and x} == set(words.values())


def test_strings_are_no_attributes() -> None:
    assert [read for _, _, read in attributes(HOSTILE)] == [{"start": 0, "end": 8}, {"start": 1, "end": 9}]


def test_operations_in_regions_come_before_the_one_around() -> None:
    assert [(name, read) for name, _, read in attributes(NESTED)] == [
        ("arith.cmpf", {"predicate": "olt"}),
        ("tt.reduce", {"axis": 0}),
        ("tt.reduce", {"axis": 1}),
        ("arith.cmpf", {"predicate": "olt"}),
        ("arith.cmpi", {"predicate": "sle"}),
        ("arith.cmpf", {"predicate": "uge"}),
        ("tt.scan", {"axis": 1}),
    ]


@pytest.mark.parametrize(("name", "line"), [
    ("tt.make_range", "{a = {end = 3 : i32}, end = 8 : i32, start = 0 : i32} : tensor<8xi32>"),
    ("tt.make_range", "{end = 8 : i32} : tensor<8xi32>"),
    ("tt.make_tensor_descriptor", "%0, [%1], [%2] {a = {padding = 2 : i32}} : <f32>, <8xf32>"),
    ("tt.make_range", "{end = 8 : i32, start = -1 : i32} : tensor<8xi32>"),
    ("tt.get_program_id", "w : i32"),
    ("tt.get_program_id", " : i32"),
    ("arith.cmpi", "later, %0, %0 : i32"),
    ("tt.dot", "%0, %1, %2, inputPrecision = fp4 : tensor<8x8xf32>"),
    ("tt.clampf", "%0, %1, %2 : f32"),
])  # fmt: skip
def test_what_is_not_known_is_refused(name: str, line: str) -> None:
    with pytest.raises(InterpreterLimit, match=name):
        attributes_in_text(name, line)


@pytest.mark.parametrize("name", ["tt.get_program_id", "tt.get_num_programs"])
def test_axes_in_a_text(name: str) -> None:
    (key,) = ATTRIBUTES[name]
    assert [attributes_in_text(name, f" {axis} : i32") for axis in "xyz"] == [{key: i} for i in range(3)]
    with pytest.raises(InterpreterLimit, match=f"^a {name} in its TTIR has an attribute that isn't known$"):
        attributes_in_text(name, " w : i32")
