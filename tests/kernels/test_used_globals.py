"""What a kernel names around it counts, in the hash and in Triton's cache; a Python's version doesn't."""

from __future__ import annotations

import ast
import importlib.util
import json
import linecache
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import triton.language as tl
from triton.language.extra import libdevice

from kerntune.errors import CaptureError, CompileError
from kerntune.kernels import used_globals
from kerntune.kernels.source import jit_of, salt, source_hash
from kerntune.kernels.used_globals import dump


@pytest.fixture(autouse=True)
def no_stored_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit within the same second and of the same size would be taken for the file before it."""
    monkeypatch.setattr("sys.dont_write_bytecode", True)


ROOT = Path(__file__).parents[2]

HEAD = """
import triton
import triton.language as tl
from triton.language.extra import libdevice

"""

KERNEL = """

@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(x_ptr + i, {})
"""

CONSTEXPR = "{}\n@triton.constexpr_function\ndef width(n):\n    return {}"

AGGREGATE = """
from triton.language.core import _aggregate

@_aggregate
class Pair:
    a: tl.tensor
    b: tl.{}

    @triton.constexpr_function
    def __init__(self, a, b):
        self.a = a
        self.b = {}

    @triton.jit
    def total(self):
        return self.a {} self.b
"""

KINDS: dict[str, tuple[str, str, str]] = {
    "a dtype": ("KIND = tl.float32", "KIND = tl.float64", "x.to(KIND)"),
    "a dtype in a constexpr": ("KIND = tl.constexpr(tl.float32)", "KIND = tl.constexpr(tl.float64)", "x.to(KIND)"),
    "a tuple": ("SIZES = (1, (2, 3))", "SIZES = (1, (2, 4))", "x + SIZES[1][1]"),
    "an attribute of a class": (
        "class Sizes:\n    ONE = tl.constexpr(1)", "class Sizes:\n    ONE = tl.constexpr(2)", "x + Sizes.ONE",
    ),
    "another name of a builtin": ("act = tl.exp", "act = tl.log", "act(x)"),
    "a library's function": ("from triton.language.extra.libdevice import tanh", "tanh = tl.exp", "tanh(x)"),
    "a constexpr function": (CONSTEXPR.format("", "n + 1"), CONSTEXPR.format("", "n + 2"), "x + width(BLOCK)"),
    "what a constexpr function calls": (
        CONSTEXPR.format("@triton.constexpr_function\ndef more(n):\n    return n + 1\n", "more(n)"),
        CONSTEXPR.format("@triton.constexpr_function\ndef more(n):\n    return n + 2\n", "more(n)"),
        "x + width(BLOCK)",
    ),
    "a number in a constexpr function": (
        CONSTEXPR.format("MORE = 1\n", "n + MORE"), CONSTEXPR.format("MORE = 2\n", "n + MORE"), "x + width(BLOCK)",
    ),
    "a constexpr function that calls itself": (
        CONSTEXPR.format("", "n + 1 if n < 2 else width(1)"), CONSTEXPR.format("", "n + 2 if n < 2 else width(1)"),
        "x + width(BLOCK)",
    ),
    "a helper's dtype": (
        "KIND = tl.float32\n@triton.jit\ndef cast(x):\n    return x.to(KIND)",
        "KIND = tl.float64\n@triton.jit\ndef cast(x):\n    return x.to(KIND)",
        "cast(x)",
    ),
    "an aggregate's method": (
        AGGREGATE.format("tensor", "b", "+"), AGGREGATE.format("tensor", "b", "-"), "Pair(x, x).total()",
    ),
    "an aggregate's field": (
        AGGREGATE.format("tensor", "b", "+"), AGGREGATE.format("constexpr", "b", "+"), "Pair(x, x).total()",
    ),
    "an aggregate's constructor": (
        AGGREGATE.format("tensor", "b", "+"), AGGREGATE.format("tensor", "a", "+"), "Pair(x, x).total()",
    ),
}  # fmt: skip
"""What stands above the kernel before and after an edit, and how the kernel uses it."""


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Any]:
    """Import a text as a module in place of the one before; its ``kernel``."""
    path = tmp_path / "edited_kernel.py"

    def load(text: str) -> Any:
        path.write_text(textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        linecache.checkcache(str(path))
        return module.kernel

    yield load
    sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_changes_the_hash_and_the_key_of_triton_s_cache(load: Any, kind: str) -> None:
    before, after, use = KINDS[kind]
    found = []
    for above in (before, after, before):
        jit = load(HEAD + above + KERNEL.format(use))
        if kind == "an aggregate's field" and not jit.fn.__globals__["Pair"].__annotations__:
            pytest.skip("Triton 3.6 checks fields by their types, and compiles nothing by them")
        salt(jit)
        found.append((source_hash(jit), jit.cache_key))
    assert found[0] == found[2]
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]


def test_kernels_that_name_no_such_thing_keep_triton_s_own_key(load: Any) -> None:
    text = HEAD + "ONE = tl.constexpr(1)\nfrom triton.language import exp\n" + KERNEL.format("exp(x) + ONE")
    own, salted = load(text), load(text)
    salt(salted)
    assert salted.cache_key == own.cache_key


def test_salt_is_added_once(load: Any) -> None:
    jit = load(HEAD + "KIND = tl.float32" + KERNEL.format("x.to(KIND)"))
    salt(jit)
    key = jit.cache_key
    salt(jit)
    assert jit.cache_key == key


def test_a_parameter_hides_a_global(load: Any) -> None:
    plain = HEAD + "{}" + KERNEL.format("x")
    assert source_hash(load(plain.format("i = tl.float32"))) == source_hash(load(plain.format("i = tl.float64")))


def test_what_triton_can_t_take_is_said_each_time(load: Any) -> None:
    jit = load(HEAD + "KIND = tl.float32\ndef plain(x):\n    return x" + KERNEL.format("plain(x).to(KIND)"))
    for _ in range(2):
        with pytest.raises(CompileError, match=r"kernel kernel: Unsupported function referenced: <function plain"):
            salt(jit)


def test_the_dump_is_that_of_python_3_12() -> None:
    head = "@d\ndef f(a, /, b: int = 1, *c, d=None, **e) -> None:\n"
    text = head + "    x = {}\n    return f'{a!r:>3}', ..., b'', u'', -1.5, x[:]\n"
    mine = dump(ast.parse(text))
    assert "decorator_list=[Name(id='d', ctx=Load())], returns=Constant(value=None), type_params=[])" in mine
    theirs = ast.dump(ast.parse(text), **({"show_empty": True} if sys.version_info >= (3, 13) else {}))
    if sys.version_info < (3, 12):
        mine = mine.replace(", type_params=[]", "")
    assert mine == theirs


def sources(path: Path) -> dict[str, str]:
    """What a baseline stores of its kernels' sources."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    launches = stored["recording"]["launches"] if "recording" in stored else stored["launches"]
    return {x["kernel"]: x["source"] for x in launches}


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("test_*.py")), ids=lambda p: p.stem)
def test_stored_baselines_know_the_examples_sources(path: Path) -> None:
    """Recorded by Python 3.12 on an H200, and by 3.11 without a GPU."""
    stored = [sources(p) for p in (ROOT / "baselines").rglob(f"{path.name}/**/*.json")]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernels = {name: hash for name, value in vars(module).items() if (hash := hash_of(value))}
    known = {name for found in stored for name in found if name in kernels}
    assert all(found[name] == kernels[name] for found in stored for name in found if name in kernels)
    assert known or not stored


def hash_of(value: Any) -> str:
    """Of a kernel; empty for other things."""
    try:
        return source_hash(jit_of(value))
    except CaptureError:
        return ""


@pytest.mark.parametrize(("text", "path"), [("a", "a"), ("a.b.c", "a.b.c"), ("f().x", ""), ("a[0].x", ""), ("1", "")])
def test_a_path_is_of_names_alone(text: str, path: str) -> None:
    assert used_globals._path(ast.parse(text, mode="eval").body) == path


class Sizes:
    ONE, NONE = 1, None

    class Inner:
        TWO = 2


def test_what_is_named_of_modules_and_of_classes() -> None:
    """Of modules everything that is there; of classes what isn't None; nothing of Triton, nor of other objects."""
    library = ModuleType("library")
    library.Sizes, library.ONE = Sizes, 1  # type: ignore[attr-defined]
    scope = {"Sizes": Sizes, "library": library, "tl": tl, "nothing": None, "text": "a"}
    of_classes = {"Sizes.ONE": 1, "Sizes.Inner": Sizes.Inner, "Sizes.Inner.TWO": 2, "library.Sizes.ONE": 1}
    of_modules = {
        "Sizes": Sizes,
        "library": library,
        "library.ONE": 1,
        "library.Sizes": Sizes,
        "nothing": None,
        "tl": tl,
    }
    absent = ("Sizes.NONE", "Sizes.GONE", "library.GONE", "tl.dtype", "tl.dtype.name", "text.upper", "gone", "gone.x")
    syntax = used_globals.Syntax("", (*of_classes, *of_modules, *absent), frozenset({"library"}))
    assert used_globals.named(syntax, scope) == of_modules
    found = {path: attribute.value for path, attribute in used_globals._of_classes(syntax, scope).items()}
    assert found == of_classes
    everything = {path for path in {**of_classes, **of_modules} if not path.startswith("library")}
    assert used_globals.unshadowed(syntax, scope).keys() == everything


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("tl.exp", tl.exp, []),
        ("exp", tl.exp, []),
        ("e", tl.exp, ["e=tl.exp"]),
        ("libdevice.pow", libdevice.pow, ["libdevice.pow=triton.language.extra.libdevice"]),
        ("pow", libdevice.pow, ["pow=triton.language.extra.libdevice"]),
        ("p", libdevice.pow, ["p=triton.language.extra.libdevice.pow"]),
    ],
)
def test_a_builtin_is_told_by_another_name_or_by_its_library(name: str, value: Any, told: list[str]) -> None:
    assert [*used_globals._alias(name, value)] == told
