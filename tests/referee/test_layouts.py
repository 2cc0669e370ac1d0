"""Layouts are recognised by syntax; nothing is imported by the process that decides."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from kerntune.errors import UsageError
from kerntune.referee import layouts
from kerntune.referee.call_inputs import named_in
from kerntune.referee.layouts import (
    FUNCTION,
    GPU_MODE,
    KERNELBENCH,
    UsersFolder,
    UsersPackage,
    candidate_beside,
    candidate_source,
    defined_names,
    literal_inputs,
    load,
    makes_inputs,
    parameters_of,
    reference_source,
    remarks_of_imports,
    task_modules,
    task_shapes,
)

BOMB = "raise SystemExit('imported')\n"


def write(folder: Path, text: str, name: str = "a.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_named_function_is_a_function(tmp_path: Path) -> None:
    path = write(tmp_path, f"{BOMB}def fn(x): return x\n")
    source = candidate_source(f"{path}::fn")
    assert (source.path, source.name, source.layout) == (path, "fn", FUNCTION)


@pytest.mark.parametrize(
    ("text", "read", "name", "layout"),
    [
        ("class ModelNew: pass", candidate_source, "ModelNew", KERNELBENCH),
        ("def custom_kernel(data): pass", candidate_source, "custom_kernel", GPU_MODE),
        ("class Model: pass\ndef get_inputs(): pass", reference_source, "Model", KERNELBENCH),
        ("def ref_kernel(data): pass\ndef generate_input(): pass", reference_source, "ref_kernel", GPU_MODE),
        ("from b import custom_kernel", candidate_source, "custom_kernel", GPU_MODE),
    ],
)
def test_the_layouts_are_found(tmp_path: Path, text: str, read: object, name: str, layout: str) -> None:
    path = write(tmp_path, BOMB + text)
    source = read(path)  # type: ignore[operator]
    assert (source.name, source.layout) == (name, layout)


@pytest.mark.parametrize(
    ("text", "name", "layout"),
    [
        ("class Model: pass", "Model", KERNELBENCH), ("class ModelNew: pass", "ModelNew", KERNELBENCH),
        ("class Fused: pass\ndef f(): pass", "Fused", KERNELBENCH), ("class Fused: pass\ndef f(): pass", "f", FUNCTION),
        ("def ref_kernel(data): pass", "ref_kernel", GPU_MODE),
        ("def custom_kernel(data): pass", "custom_kernel", GPU_MODE),
    ],
)  # fmt: skip
def test_a_named_one_has_its_layout_on_either_side(tmp_path: Path, text: str, name: str, layout: str) -> None:
    """An older submission may be the reference, a task's own code the candidate; a class is a model."""
    path = write(tmp_path, BOMB + text)
    assert {read(f"{path}::{name}").layout for read in (candidate_source, reference_source)} == {layout}


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        ("def f(w): pass\n@no_grad()\ndef f(x, /, w, *more, eps=1, **words): pass", ("x", "w")),
        ("from b import f", ()),
        ("f = lambda x: x\ndef g(x): pass", ()),
    ],
)
def test_a_functions_parameters_are_read(tmp_path: Path, text: str, takes: tuple[str, ...]) -> None:
    assert parameters_of(reference_source(write(tmp_path, f"{BOMB}{text}") + "::f")) == takes


def test_a_task_s_own_module_may_make_inputs(tmp_path: Path) -> None:
    source = reference_source(write(tmp_path, "def custom_kernel(data): pass", "old.py") + "::custom_kernel")
    task = write(tmp_path, "def generate_input(): pass", "reference.py")
    assert not makes_inputs(source)
    assert makes_inputs(replace(source, modules={"reference": task}))
    assert not makes_inputs(replace(source, modules={"eval": task}))


def test_makes_inputs_asks_for_the_layouts_function(tmp_path: Path) -> None:
    assert makes_inputs(reference_source(write(tmp_path, "class Model: pass\ndef get_inputs(): pass")))
    assert not makes_inputs(reference_source(write(tmp_path, "class Model: pass")))
    assert not makes_inputs(reference_source(write(tmp_path, "def f(): pass\ndef get_inputs(): pass") + "::f"))


@pytest.mark.parametrize(
    ("text", "spec", "told"),
    [
        ("def f(): pass", "", r"a\.py: it has none of a candidate's ModelNew or custom_kernel; name its function as "
         r".*a\.py::function$"),
        ("def f(): pass\ndef e(): pass", "::g", "it defines no g at its top level; it has e, f$"),
        ("", "::g", "it defines no g at its top level; it has none$"),
        ("def f(:", "::f", "no Python"),
        ("x = 1\0", "::x", "no Python"),
        ("(" * 3000, "::f", "no Python"),
        ("# coding: punycode\ndef f(): pass-", "::f", "its encoding is punycode; save it as UTF-8"),
        ("# coding: nothing\ndef f(): pass", "::f", "no Python"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told(tmp_path: Path, text: str, spec: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        candidate_source(write(tmp_path, text) + spec)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert layouts.MOST_SOURCE == 262_144
    path = write(tmp_path, f"def f(): pass{' ' * ((3 << 20) - 13)}")
    monkeypatch.setattr(layouts, "MOST_SOURCE", 3 << 20)
    candidate_source(f"{path}::f")
    write(tmp_path, f"def f(): pass{' ' * ((3 << 20) - 12)}")
    with pytest.raises(UsageError, match=r"a\.py: it has more than 3072 KiB$"):
        candidate_source(f"{path}::f")


@pytest.mark.parametrize("start", ["", "\ufeff", "# coding: utf-8\n", "# -*- coding: UTF8 -*-\n"])
def test_utf_8_is_read(tmp_path: Path, start: str) -> None:
    assert candidate_source(write(tmp_path, f"{start}def f(): pass  # \u00e9") + "::f").name == "f"


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        reference_source(f"{tmp_path}/none.py::f")


def test_names_inside_of_functions_are_not_the_files(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "def f():\n    def ModelNew(): pass\na, b = 1, 2\nc = e = 3\nd: int = 4\nimport os.path as p, g.h\nx.y = 5\n"
        "class C:\n    z = 1\nfrom i import j as k, l\n",
    )
    assert defined_names(path) == {"f", "c", "e", "d", "p", "g", "C", "k", "l"}


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test imports, its path and finders, are forgotten; modules that it has forgotten are there again."""
    before = dict(sys.modules)
    for name in ("path", "meta_path", "path_hooks"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    yield
    for name in sys.modules.keys() - before.keys():
        del sys.modules[name]
    sys.modules.update(before)


def test_files_beside_a_reference_stand_for_nothing_that_is_installed(tmp_path: Path, imports: None) -> None:
    """A candidate in the reference's folder may have any name."""
    for name in ("fractions", "xdist"):
        write(tmp_path, BOMB, f"{name}.py")
        sys.modules.pop(name, None)
    write(tmp_path, "HELP = 3", "helper_of_task.py")
    text = "import fractions, xdist\nfrom helper_of_task import HELP\ndef f(): return HELP, fractions, xdist\n"
    value, *others = load(candidate_source(write(tmp_path, text, "task_file.py") + "::f")).f()
    assert value == 3
    assert not any(Path(str(module.__file__)).is_relative_to(tmp_path) for module in others)
    assert sys.meta_path[-1] == UsersFolder(str(tmp_path))
    assert str(tmp_path) not in sys.path


def test_a_users_file_takes_no_name_of_another_module(tmp_path: Path, imports: None) -> None:
    sys.modules.pop("fractions", None)
    for name in ("json", "fractions"):
        module = load(candidate_source(write(tmp_path, "def f(): pass", f"{name}.py") + "::f"))
        assert module.__name__ == f"{name}_of_user"
        assert sys.modules[module.__name__] is module
    assert "fractions" not in sys.modules
    for _ in range(2):  # once for each shape
        assert load(candidate_source(write(tmp_path, "def f(): pass", "task_file.py") + "::f")).__name__ == "task_file"
        assert sys.meta_path.count(UsersFolder(str(tmp_path))) == 1


def test_inputs_are_read_and_not_run(tmp_path: Path) -> None:
    assert literal_inputs(write(tmp_path, BOMB + "INPUTS = ['x: f16[3]', 'x: f16[4]']")) == ("x: f16[3]", "x: f16[4]")
    assert literal_inputs(write(tmp_path, "INPUTS = 'x: f16[3]'")) == ("x: f16[3]",)
    assert literal_inputs(write(tmp_path, "OTHER = 1")) == ()
    for text in ("INPUTS = open('x').read()", "INPUTS = [1]"):
        with pytest.raises(UsageError, match="no plain text"):
            literal_inputs(write(tmp_path, text))


def test_shapes_of_a_task(tmp_path: Path) -> None:
    tests, timed = 'tests:\n  - {"size": 1, "seed": 2}\n', 'benchmarks:\n  - {"size": 3, "seed": 2}\n  - {"size": 4}\n'
    assert task_shapes(write(tmp_path, f"lang: py\n{tests}{timed}", "task.yml")) == ({"size": 3}, {"size": 4})
    assert task_shapes(write(tmp_path, tests, "task.yml")) == ({"size": 1},)
    assert task_shapes(write(tmp_path, tests + timed, "task.yml"), small=True) == ({"size": 1},)
    assert task_shapes(write(tmp_path, timed, "task.yml"), small=True) == ({"size": 3}, {"size": 4})
    for text in ("", "tests:\n", 'tests:\n  - {"size": {"a": 1}}\n', 'files:\n  - {"a": 1}\n'):
        with pytest.raises(UsageError):
            task_shapes(write(tmp_path, text, "task.yml"))
    with pytest.raises(UsageError, match="can't be read"):
        task_shapes(str(tmp_path / "none.yml"))


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ('tests:  \n  - {"a": 1}\n\nother:\n  - {"b": 2}\n', ({"a": 1},)),
        ('tests:\n- {"a": 1}\n# none\nlang: py\nfiles:\n  - x: y\n', ({"a": 1},)),
        ('tests:\n  # - {"c": 1}\n    - {"a": true, "b": null, "c": "d", "e": 0.5}  \n',
         ({"a": True, "b": None, "c": "d", "e": 0.5},)),
        ("tests:\n" + '  - {"a": 1}\n' * 64, ({"a": 1},) * 64),
        ('tests:  # small\n  - {"a": True, "b": None, "c": "None"}  # as {Python} has them\n',
         ({"a": True, "b": None, "c": "None"},)),
        ("tests:\n  - {a: 1, b: bf16, c: false, d: 'it is', e: -1.5e-3, f: on,}\n",
         ({"a": 1, "b": "bf16", "c": False, "d": "it is", "e": -0.0015, "f": True},)),
        ('tests:\n  - {"m": [96, 128,], "n": [], "c": ["a # b", 0.5, Null], "d": "it\'s \\"x\\"" }\n',
         ({"m": [96, 128], "n": [], "c": ["a # b", 0.5, None], "d": 'it\'s "x"'},)),
    ],
)  # fmt: skip
def test_lines_of_a_task_that_are_read(text: str, shapes: object, tmp_path: Path) -> None:
    assert task_shapes(write(tmp_path, text, "task.yml")) == shapes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tests:\n" + '  - {"a": 1}\n' * 65, "it has 65 shapes under benchmarks or tests; 1 to 64 are read"),
        ("  tests:\n  - {}\n", "it has 0 shapes under benchmarks or tests; 1 to 64 are read"),
        *((f"tests:\n  - {line}\n", f"{'- ' + line!r} is no mapping in braces") for line in (
            "{size: *b}", "{size: &a 1}", "{size: !int 1}", "{size: 1 2}", "{size: a b}", "{size: 0x10}", "{a: 1_000}",
            "{size: [[1]]}", "{size: {a: 1}}", "{size: (1, 2)}", "{size}", "{1: 1}", "{a: 1} {b: 1}", "{size: 'a}",
            '{"size: 1}', "{'a\\b': 1}", "{size: 1 # }", "{size: 1}# a", "{size: __import__('os').getpid()}",
        )),
        ('tests:\n  - {"a": 1}\n  lang: py\n', "'lang: py'; each shape is a line `- {...}` under tests"),
    ],
)  # fmt: skip
def test_lines_of_a_task_that_are_none(text: str, told: str, tmp_path: Path) -> None:
    path = write(tmp_path, text, "task.yml")
    with pytest.raises(UsageError) as caught:
        task_shapes(path)
    assert str(caught.value) == f"{path}: {told}"


def test_a_line_of_a_task_that_is_all_quotes_takes_no_time(tmp_path: Path) -> None:
    """The judge itself reads it: to look for the end of each text would take minutes."""
    path = write(tmp_path, 'tests:\n  - {"' + '\\"' * 120_000 + "\n", "task.yml")
    with pytest.raises(UsageError, match=r"no mapping in braces$"):
        task_shapes(path)


# the modules of a task


def task_of(folder: Path, *files: str) -> str:
    lines = "".join(f'  - {{"name": "{name}", "source": "{source}"}}\n' for name, source in map(str.split, files))
    return write(folder, f"files:\n{lines}tests:\n  - {{}}\n", "task.yml")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The folder of a task in a clone, two below its top. Files lie there and above."""
    task = tmp_path / "clone" / "problems" / "one"
    task.mkdir(parents=True)
    (tmp_path / "clone" / ".git").mkdir()
    for folder in (task, *task.parents[:3]):
        write(folder, f"WHERE = {folder.name!r}\n", "utils.py")
    return task


def test_the_modules_of_a_task_are_those_that_it_names(clone: Path) -> None:
    write(clone.parent, "", "notes.txt")
    (clone.parent / "folder.py").mkdir()
    path = task_of(
        clone, "submission.py @SUBMISSION@", "utils.py ../utils.py", "own.py utils.py", "eval.py ../none.py",
        "notes.py ../notes.txt", "a.h ../utils.py", "../b.py ../utils.py", "a/b.py utils.py", "a-b.py utils.py",
        "folder.py ../folder.py",
    )  # fmt: skip
    assert task_modules(path) == {"utils": str(clone.parent / "utils.py"), "own": str(clone / "utils.py")}
    assert task_modules(write(clone, "files:\n  - name: utils.py\n    source: utils.py\n", "task.yml")) == {}


@pytest.mark.parametrize("source", ["../../../utils.py", "{tmp_path}/utils.py", "link.py"])
def test_a_module_of_a_task_lies_in_its_clone(source: str, clone: Path, tmp_path: Path) -> None:
    (clone / "link.py").symlink_to(tmp_path / "utils.py")
    source = source.format(tmp_path=tmp_path)
    path = task_of(clone, f"utils.py {source}")
    with pytest.raises(UsageError) as caught:
        task_modules(path)
    assert str(caught.value) == f"{path}: {source!r} lies outside of {tmp_path}/clone"


def test_where_no_clone_is_known_modules_lie_three_folders_above_at_most(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "clone" / ".git").rmdir()
    path = task_of(clone, "utils.py ../../../utils.py")
    assert task_modules(path) == {"utils": str(tmp_path / "utils.py")}
    with pytest.raises(UsageError, match=f"'../../../../utils.py' lies outside of {tmp_path}$"):
        task_modules(task_of(clone, "utils.py ../../../../utils.py"))


def test_what_a_task_names_comes_before_a_file_beside_and_after_what_is_installed(clone: Path, imports: None) -> None:
    sys.modules.pop("fractions", None)
    write(clone, BOMB, "fractions.py")
    write(clone.parent, "OTHER = 1", "other_of_folder.py")
    source = reference_source(
        write(clone, "import fractions, utils\ndef f(): import other_of_folder\n", "task_file.py") + "::f"
    )
    modules = task_modules(task_of(clone, "utils.py ../utils.py", "fractions.py fractions.py"))
    module = load(replace(source, modules=modules))
    assert module.utils.WHERE == "problems"
    assert not Path(module.fractions.__file__).is_relative_to(clone)
    with pytest.raises(ModuleNotFoundError, match="other_of_folder"):
        module.f()


@pytest.mark.parametrize(
    ("name", "another"), [("sys", True), ("json", True), ("_ast", True), ("task_file_of_none", False)]
)
def test_which_files_have_the_name_of_another_module(name: str, another: bool, tmp_path: Path) -> None:
    """Of one that is imported, built in, or that an import would find."""
    assert layouts._named_as_another(tmp_path / f"{name}.py") is another


@pytest.mark.parametrize(
    "text",
    [
        "from .helper import WHERE\ndef f(): return WHERE",
        "from ..ops import helper\ndef f(): return helper.WHERE",
        "def f():\n    import fractions.ops.helper as x\n    return x.WHERE",
        "from fractions.ops.helper import WHERE\ndef f(): return WHERE",
    ],
)
def test_a_file_of_a_package_imports_from_that_one(text: str, tmp_path: Path, imports: None) -> None:
    """Not from the installed package of that name: a reviewer judges one version of a library against another."""
    sys.modules.pop("fractions", None)
    ops = tmp_path / "fractions" / "ops"
    ops.mkdir(parents=True)
    for folder in (ops.parent, ops):
        write(folder, "", "__init__.py")
    write(ops, "WHERE = 'beside'", "helper.py")
    source = candidate_source(write(ops, text, "kernels.py") + "::f")
    assert source.readable == (str(ops.parent),)
    assert remarks_of_imports(source, source) == ("the candidate's process may read all of its package, fractions",)
    module = load(source)
    assert module.f() == "beside"
    assert module.__name__ == "fractions.ops.kernels"
    assert load(replace(source, path=str(ops / "__init__.py"))).__name__ == "fractions.ops"
    assert sys.meta_path.count(UsersPackage(str(ops.parent))) == 1


@pytest.mark.parametrize(
    ("package", "imported"), [("fractions", "from xdist import fractions"), ("json", "import json")]
)
def test_other_files_of_packages_are_modules_of_their_own(
    package: str, imported: str, tmp_path: Path, imports: None
) -> None:
    """Those that import nothing from it, and where another package of that name is imported already."""
    sys.modules.pop("fractions", None)
    folder = tmp_path / package
    folder.mkdir()
    write(folder, BOMB, "__init__.py")
    path = write(folder, f"def f(): pass\nif False:\n    {imported}\n", "kernels_of_none.py")
    assert load(candidate_source(path + "::f")).__name__ == "kernels_of_none"


def test_an_installed_module_that_comes_before_one_beside_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the working folder is that one: sealed processes don't import from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "xdist").mkdir()
    write(tmp_path / "xdist", BOMB, "__init__.py")
    for name in ("fractions", "helper_of_task", "msgspec"):
        write(tmp_path, BOMB, f"{name}.py")
    text = "import helper_of_task, xdist.looponfail\nimport json\ndef f():\n    from fractions import Fraction\n"
    source = candidate_source(write(tmp_path, text) + "::f")
    assert remarks_of_imports(source, source) == tuple(
        f"a.py imports the installed {name}, not the one beside it" for name in ("xdist", "fractions")
    )
    monkeypatch.chdir(tmp_path.parent)
    assert remarks_of_imports(source, source) == ()  # a user has put that folder first


def test_a_file_of_a_package_imports_what_its_task_names_too(tmp_path: Path, imports: None) -> None:
    folder = tmp_path / "package_of_task"
    folder.mkdir()
    write(folder, "", "__init__.py")
    named = write(tmp_path, "X = 1", "named_by_task.py")
    text = "from . import __name__\nimport named_by_task\ndef f(): return named_by_task.X\n"
    source = replace(candidate_source(f"{write(folder, text)}::f"), modules={"named_by_task": named})
    assert source.package == str(folder)
    assert load(source).f() == 1


def test_a_candidate_s_imports_open_no_package_that_has_what_it_must_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held-back shapes, or the judge's own files. A reference's package runs no code of a candidate that lies in it."""
    inside, outside = tmp_path / "task", tmp_path / "elsewhere"
    for folder in (inside, outside):
        folder.mkdir()
    write(inside, "", "__init__.py")
    text = "from . import x\ndef f(): pass\n"
    spec, shapes = f"{write(inside, text)}::f", write(inside, "INPUTS = 'x: f32[4]'", "shapes.py")
    plain = reference_source(f"{write(outside, text)}::f")
    monkeypatch.chdir(outside)
    source, other = candidate_beside(spec, plain, "x: f32[4]")
    assert (source.package, other) == (str(inside), plain)
    source, _ = candidate_beside(spec, plain, shapes)
    told = "a.py isn't read as a module of task, in which the working folder, the inputs or this program lies"
    assert (source.package, source.readable, remarks_of_imports(source, plain)) == ("", (str(inside),), (told,))
    _, other = candidate_beside(spec, reference_source(spec), "x: f32[4]")
    assert other.package == ""
    assert remarks_of_imports(plain, other) == ("a.py isn't read as a module of task, in which the candidate lies",)
    monkeypatch.chdir(inside)
    assert candidate_beside(spec, plain, "x: f32[4]")[0].package == ""


def test_of_an_autograd_function_its_apply_is_judged(tmp_path: Path, imports: None) -> None:
    text = "import torch\nclass Twice(torch.autograd.Function):\n    @staticmethod\n"
    text += "    def forward(ctx, x): return x + x\n"
    source = candidate_source(write(tmp_path, text + "def f(x): pass\n", "twice_of_task.py") + "::Twice")
    module = load(source)
    assert source.layout == FUNCTION
    assert named_in(module, source)(3) == 6
    assert named_in(module, replace(source, name="f")) is module.f
    told = "of Twice the forward pass alone is judged; a function that runs both has both judged"
    assert remarks_of_imports(source, source) == (told,)
    assert remarks_of_imports(replace(source, name="f"), source) == ()
