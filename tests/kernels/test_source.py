"""The kernel under its wrappers, and a hash that changes with the code only."""

from __future__ import annotations

import hashlib
import importlib.util
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import triton
from fake_runs import scale_kernel

from kerntune.errors import CaptureError
from kerntune.kernels.source import (
    is_kernel,
    jit_of,
    kernel_file,
    kernel_name,
    source_hash,
    source_text,
    text_of,
    wrappers,
)

MAX_WRAPPERS = 32


Load = Callable[[str], Any]

HEAD = """
import triton
import triton.language as tl

SHIFT = tl.constexpr(3)
SCALE = 2.0


@triton.jit
def inner(x):
    return x + 1


@triton.jit
def helper(x):
    return inner(x) * 2

"""

KERNEL = """
@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(x_ptr + i, helper(x) + SHIFT, mask=i < n)
"""


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Import a text as a module; its ``kernel``."""
    count = 0

    def load(text: str, name: str = "kernel") -> Any:
        nonlocal count
        count += 1
        path = tmp_path / f"module_{count}.py"
        path.write_text(textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location(f"module_{count}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, name)

    return load


SAME = {
    "itself": KERNEL,
    "further down": "\n" * 40 + KERNEL,
    "a comment": KERNEL.replace("    x = tl.load", "    # loads\n\n    x = tl.load  "),
    "a comment at a line's end": KERNEL.replace("mask=i < n)\n    tl.store", "mask=i < n)  # masked\n    tl.store"),
    "a docstring": KERNEL.replace("    i = tl", '    """Adds."""\n    i = tl', 1),
    "parentheses and line breaks": KERNEL.replace(
        "tl.load(x_ptr + i, mask=i < n)", "(tl.load(\n  (x_ptr + i),\n mask=i < n))"
    ),
    "another decorator": KERNEL.replace("@triton.jit", "@triton.jit()"),
}

OTHER = {
    "an operator": KERNEL.replace("helper(x) + SHIFT", "helper(x) - SHIFT"),
    "a constant": KERNEL.replace("tl.program_id(0)", "tl.program_id(1)"),
    "a parameter's name": KERNEL.replace("n,", "count,").replace("< n", "< count"),
    "an annotation": KERNEL.replace("n,", "n: tl.int64,"),
    "a default": KERNEL.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr = 64"),
    "another helper": KERNEL.replace("helper(x)", "inner(x)"),
}


@pytest.mark.parametrize("case", SAME)
def test_what_is_not_code_leaves_the_hash(load: Load, case: str) -> None:
    assert source_hash(load(HEAD + SAME[case])) == source_hash(load(HEAD + KERNEL))


@pytest.mark.parametrize("case", OTHER)
def test_code_changes_the_hash(load: Load, case: str) -> None:
    assert source_hash(load(HEAD + OTHER[case])) != source_hash(load(HEAD + KERNEL))


HEADS = {
    "a called helper": HEAD.replace("inner(x) * 2", "inner(x) * 3"),
    "a helper's helper": HEAD.replace("x + 1", "x + 2"),
    "a constexpr global": HEAD.replace("constexpr(3)", "constexpr(4)"),
}


@pytest.mark.parametrize("case", HEADS)
def test_what_the_kernel_names_changes_the_hash(load: Load, case: str) -> None:
    assert source_hash(load(HEADS[case] + KERNEL)) != source_hash(load(HEAD + KERNEL))


def test_what_the_kernel_does_not_name_leaves_the_hash(load: Load) -> None:
    assert source_hash(load(HEAD.replace("SCALE = 2.0", "SCALE = 9.0") + KERNEL)) == source_hash(load(HEAD + KERNEL))


def test_an_annotated_global_counts(load: Load) -> None:
    annotated = HEAD.replace("SHIFT = tl.constexpr(3)", "SHIFT: tl.constexpr = {}")
    three, four = (source_hash(load(annotated.format(f"tl.constexpr({n})") + KERNEL)) for n in (3, 4))
    assert three != four


DECORATED = {
    "a helper that isn't inlined": (
        HEAD.replace("@triton.jit\ndef helper", "@triton.jit(noinline=True)\ndef helper"),
        KERNEL,
    ),
    "what is not specialized": (HEAD, KERNEL.replace("@triton.jit", '@triton.jit(do_not_specialize=["n"])')),
}


@pytest.mark.parametrize("case", DECORATED)
def test_arguments_of_the_decorator_change_the_hash(load: Load, case: str) -> None:
    assert source_hash(load("".join(DECORATED[case]))) != source_hash(load(HEAD + KERNEL))


LIBRARY = """
import triton
import triton.language as tl

SHIFT = tl.constexpr(3)


@triton.jit
def helper(x):
    return x * 2
"""


@pytest.mark.parametrize("change", [("x * 2", "x * 3"), ("constexpr(3)", "constexpr(4)")], ids=["helper", "constant"])
def test_what_the_kernel_reaches_through_a_module_changes_the_hash(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str]
) -> None:
    kernel = HEAD + KERNEL.replace("helper(x) + SHIFT", "library.helper(x) + library.SHIFT")
    monkeypatch.syspath_prepend(str(tmp_path))
    hashes = []
    for name, text in (("library_before", LIBRARY), ("library_after", LIBRARY.replace(*change))):
        (tmp_path / f"{name}.py").write_text(text)
        hashes.append(source_hash(load(f"import {name} as library\n{kernel}")))
    assert hashes[0] != hashes[1]


def test_recursion_ends(load: Load) -> None:
    text = HEAD + KERNEL.replace("helper(x)", "kernel(x, n, BLOCK)")
    assert len(source_hash(load(text))) == 64


def test_closures_count(load: Load) -> None:
    def make(shift: int) -> Any:
        constant = shift

        @triton.jit
        def closed(x_ptr):
            x_ptr + constant

        return closed

    assert source_hash(make(1)) != source_hash(make(2))
    assert source_hash(make(1)) == source_hash(make(1))


def test_a_kernel_as_a_file_with_all_that_it_names(load: Load) -> None:
    """Each once, before what names it; what is no constant is left to its name."""
    above = f"{HEAD}\nKIND = tl.float32\nALSO = 7\n"
    kernel = load(above + KERNEL.replace("SHIFT,", "inner(SHIFT) + ALSO, KIND,"))
    parts = [part.strip() for part in source_text(kernel).split("\n\n")]
    assert parts[:3] == ["import triton\nimport triton.language as tl", "ALSO = 7", "SHIFT = tl.constexpr(3)"]
    assert parts[3:5] == [f"@triton.jit\n{text}" for text in (
        "def inner(x):\n    return x + 1", "def helper(x):\n    return inner(x) * 2",
    )]  # fmt: skip
    (last,) = parts[5:]
    assert last.startswith("@triton.jit\ndef kernel(x_ptr, n, BLOCK: tl.constexpr):\n    i = tl.program_id(0)")


# wrappers


class Layer:
    def __init__(self, fn: Any) -> None:
        self.fn = fn


def test_the_kernel_is_found_under_everything() -> None:
    tuned = triton.autotune([triton.Config({"BLOCK": 64})], key=["n"])(
        triton.heuristics({"factor": lambda args: 2.0})(scale_kernel)
    )
    top = Layer(tuned)
    assert jit_of(top) is scale_kernel
    assert is_kernel(top)
    assert [type(x).__name__ for x in wrappers(top)] == ["Layer", "Autotuner", "Heuristics", "JITFunction"]
    assert list(wrappers(scale_kernel)) == [scale_kernel]


@pytest.mark.parametrize("thing", [len, Layer(print), Layer(None), object()], ids=lambda value: type(value).__name__)
def test_what_is_no_kernel(thing: Any) -> None:
    with pytest.raises(CaptureError, match=r"not a Triton kernel"):
        jit_of(thing)
    assert not is_kernel(thing)


def test_a_circle_of_wrappers() -> None:
    layer = Layer(None)
    layer.fn = layer
    with pytest.raises(CaptureError, match="wraps itself"):
        jit_of(layer)


def test_as_many_wrappers_as_are_allowed() -> None:
    kernel: Any = scale_kernel
    for _ in range(MAX_WRAPPERS - 1):
        kernel = Layer(kernel)
    assert jit_of(kernel) is scale_kernel


def test_name_and_file() -> None:
    assert kernel_name(scale_kernel) == "scale_kernel"
    assert Path(kernel_file(scale_kernel)).name == "fake_runs.py"


class Part:
    """What has some names of a tensor."""

    def __init__(self, **names: Any) -> None:
        self.__dict__ |= names

    def __repr__(self) -> str:
        return f"Part({', '.join(self.__dict__)})"


TENSOR = {"stride": lambda: (4, 1), "dtype": "float32", "shape": (2, 4)}


@pytest.mark.parametrize("missing", [None, *TENSOR])
def test_a_tensor_is_what_has_strides_a_dtype_and_a_shape(missing: str | None) -> None:
    names = {name: value for name, value in TENSOR.items() if name != missing}
    assert text_of(Part(**names)) == (f"Part({', '.join(names)})" if missing else "float32(2, 4)(4, 1)")


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "True"), (0.5, "0.5"), ("a", "'a'"), (None, "None"), ((1, [2, "b"]), "(1, (2, 'b'))"), ((), "()"),
     (len, "builtins.len"), (Part(base=1), "Part(base)"), (object(), "object"),
     (Part(data_ptr=0, dtype="i8"), "Part(i8)"), (Part(data_ptr=0), "Part()")],
)  # fmt: skip
def test_texts_of_values(value: object, text: str) -> None:
    assert text_of(value) == text


def test_a_kernel_is_told_by_its_source() -> None:
    code = SimpleNamespace(src="def f(): pass")
    assert text_of(scale_kernel) == f"function({source_hash(scale_kernel)[:16]})"
    assert text_of(code) == f"function({hashlib.sha256(b'def f(): pass').hexdigest()[:16]})"
