"""The private parts of torch that kerntune uses: which of them this torch lacks, by name."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kerntune.errors import BackendError
from kerntune.kernels.compat import torch_private
from kerntune.kernels.compat.inductor_parts import INDUCTOR
from kerntune.kernels.compat.torch_private import (
    PARTS,
    STAND_IN_PARTS,
    STAND_INS_OFF,
    PrivatePart,
    exports,
    missing_parts,
    require_stand_in_parts,
)
from kerntune.kernels.compat.versions import PrivateName

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.*is deprecated:DeprecationWarning")
"""Inductor warns of what it imports itself."""


def test_this_torch_has_them() -> None:
    assert missing_parts(PARTS) == (), "these have moved: each says what uses it, and what breaks without it"


def test_what_uses_them_exists() -> None:
    assert [part.name for part in PARTS if not (ROOT / part.user).is_file() or not part.breaks] == []


def test_each_stands_there_once() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS)


@pytest.mark.slow
def test_a_part_that_is_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._higher_order_ops.triton_kernel_wrap as wrap

    monkeypatch.delattr(wrap.TritonHOPifier, "call_triton_kernel")
    assert [part.path for part in missing_parts()] == ["TritonHOPifier.call_triton_kernel"]


def test_a_parameter_with_another_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._higher_order_ops.triton_kernel_wrap as wrap

    monkeypatch.setattr(wrap.TritonHOPifier, "raise_unsupported", lambda self, message: None)
    assert [part.path for part in missing_parts()] == ["TritonHOPifier.raise_unsupported"]


def test_a_module_that_is_gone_is_found() -> None:
    gone = PrivatePart("torch._dynamo.nowhere", "function", "kerntune/nowhere.py", "nothing")
    assert missing_parts([gone]) == (gone,)
    assert missing_parts([gone], load=False) == (gone,)


@contextlib.contextmanager
def replaced(part: PrivateName, value: Any) -> Iterator[None]:
    """torch with ``value`` in the place of a part; ``GONE`` takes it away, where no base class has it as well."""
    found = part.owner_in(part.load())
    assert found is not None
    owner, name = found
    had = name in vars(owner) if hasattr(owner, "__dict__") else False
    before = inspect.getattr_static(owner, name)
    if value is not GONE:
        setattr(owner, name, value)
    else:
        delattr(owner, name)
    try:
        yield
    finally:
        setattr(owner, name, before) if had else delattr(owner, name)


GONE = object()


def removable(part: PrivateName) -> bool:
    """Whether Python can take a name away: not from a class in C, and not where a base class has it as well."""
    found = part.owner_in(part.load())
    assert found is not None
    owner, name = found
    if name not in getattr(owner, "__dict__", {}):
        return False
    return not isinstance(owner, type) or not any(name in vars(base) for base in owner.__mro__[1:])


@pytest.mark.parametrize("part", STAND_IN_PARTS, ids=lambda part: part.name)
def test_stand_ins_without_a_part_say_its_name_and_what_still_works(part: PrivatePart) -> None:
    """Before anything of the stand-ins is imported: an ImportError or AttributeError from within says neither."""
    wrong: Any = (lambda *args: None) if part.kind != "function" else 7
    named = re.escape(part.name)
    other_kind = replaced(part, wrong) if settable(part) else looked_up(part, wrong)
    changed = rf"torch \S+'s {named} is no {part.kind} any more .*{part.user}"
    with other_kind, pytest.raises(BackendError, match=changed) as seen:
        require_stand_in_parts()
    gone = replaced(part, GONE) if settable(part) and removable(part) else looked_up(part, GONE)
    with gone, pytest.raises(BackendError, match=rf"torch \S+ has no {named}"):
        require_stand_in_parts()
    assert part.breaks in str(seen.value)
    assert f". {STAND_INS_OFF}. kerntune was run with torch " in str(seen.value)
    assert "runs on a GPU, and tuning in programs, go on" in str(seen.value)
    assert "\n" not in str(seen.value)
    require_stand_in_parts()


def settable(part: PrivateName) -> bool:
    """Whether Python can replace a name: not of a class in C, nor of an operator."""
    found = part.owner_in(part.load())
    assert found is not None
    owner, _ = found
    return isinstance(owner, ModuleType) or (isinstance(owner, type) and bool(owner.__flags__ & HEAP_TYPE))


HEAP_TYPE = 1 << 9
"""``Py_TPFLAGS_HEAPTYPE``: a class that a ``class`` statement has made, not C."""


@contextlib.contextmanager
def looked_up(part: PrivateName, value: Any) -> Iterator[None]:
    """The same of a name that Python can't replace: the table finds ``value``."""
    own = PrivateName.owner_in

    def owner_in(asked: PrivateName, module: Any) -> Any:
        if asked.name != part.name:
            return own(asked, module)
        return None if value is GONE else (SimpleNamespace(found=value), "found")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivateName, "owner_in", owner_in)
        yield


@pytest.mark.parametrize("package", ["kerntune.gpu.fake_cuda", "kerntune.gpu.interpreter"])
def test_the_check_comes_before_what_takes_the_parts(package: str) -> None:
    """Else the import of a module that has ``from torch._subclasses.fake_tensor import FakeTensor`` fails first."""
    body = ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")).body
    calls = [i for i, node in enumerate(body) if "require_stand_in_parts()" in ast.unparse(node)]
    own = [
        i
        for i, node in enumerate(body)
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{package}.")
    ]
    assert len(calls) == 1
    assert own
    assert calls[0] < own[0]


def test_backward_threads_are_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    assert not torch_private.runs_backward()
    monkeypatch.delattr(torch._C, "_current_autograd_node")
    with pytest.raises(BackendError, match=r"has no torch\._C:_current_autograd_node, by which .* go on"):
        torch_private.runs_backward()


def private_names(text: str) -> Iterator[str]:
    """The private names of torch that a module uses, as ``module.attribute``: imported ones, and those that it reads of
    an imported name."""
    nodes = list(ast.walk(ast.parse(text))) if "torch" in text else []
    bound: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            bound |= {a.asname or "torch": a.name if a.asname else "torch" for a in node.names if is_torch(a.name)}
        elif isinstance(node, ast.ImportFrom) and is_torch(node.module or ""):
            bound |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
            yield from (f"{node.module}.{a.name}" for a in node.names if is_private(f"{node.module}.{a.name}"))
    for node in nodes:
        steps: list[str] = []
        while isinstance(node, ast.Attribute):
            steps.append(node.attr)
            node = node.value
        if steps and isinstance(node, ast.Name) and node.id in bound:
            name = ".".join([bound[node.id], *reversed(steps)])
            if is_private(name):
                yield name


def is_torch(module: str) -> bool:
    return module.partition(".")[0] == "torch"


def is_private(name: str) -> bool:
    return any(step.startswith("_") and not step.startswith("__") for step in name.split("."))


@pytest.mark.slow
def test_every_private_name_stands_in_a_table() -> None:
    """They move with every release of torch; a name that isn't in a table fails in the user's run, from within."""
    listed = {part.name.replace(":", ".") for part in (*PARTS, *INDUCTOR.values())}
    known = {*listed, *(".".join(name.split(".")[:n]) for name in listed for n in range(1, name.count(".") + 1))}
    unknown = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("kerntune", "pytest_kerntune")
        for path in (ROOT / folder).rglob("*.py")
        if "kernels/compat" not in str(path)
        for name in private_names(path.read_text(encoding="utf-8"))
        if name not in known | ASKED_WITH_CARE and not any(name.startswith(f"{part}.") for part in listed)
    }
    assert unknown == set()


ASKED_WITH_CARE = frozenset(
    {
        "torch._dynamo",  # imported whole: it lists torch.cuda's functions when it is
        "torch._int_mm",
        "torch._scaled_mm",  # operators of torch's dispatcher, without a public name yet
        "torch._C.DisableTorchFunctionSubclass",  # docs.pytorch.org/docs/stable/notes/extending.html
        "torch.ops.aten._to_copy",  # the same
    }
)
"""Names that no table needs."""


def test_a_graph_is_warmed_up_only_where_torch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    managers: dict[int, Any] = {0: SimpleNamespace(in_warmup=True), 1: SimpleNamespace(in_warmup=False), 2: None}
    trees = SimpleNamespace(get_manager=lambda device, create_if_none_exists: managers[device])
    monkeypatch.setitem(torch_private.sys.modules, torch_private.TREES, trees)
    assert [torch_private.warms_up_for_graph(device) for device in (0, 1, 2)] == [True, False, False]
    monkeypatch.delitem(torch_private.sys.modules, torch_private.TREES)
    assert not torch_private.warms_up_for_graph(0)


@pytest.mark.parametrize(
    "tracer", [None, SimpleNamespace(output=SimpleNamespace()), SimpleNamespace(export=False, output=None)]
)
def test_a_tracer_that_says_nothing_of_an_export_makes_none(tracer: Any) -> None:
    assert not exports(tracer)


def test_a_graph_that_runs_without_kerntune_is_an_export(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ``torch.export``, of AOTInductor, and behind a C++ wrapper: each alone."""
    import torch
    from torch._inductor import config, virtualized

    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "is_exporting", lambda: True)
        assert exports(None)
    with monkeypatch.context() as patch:
        patch.setattr(virtualized, "V", SimpleNamespace(aot_compilation=True))
        assert exports(None)
    with config.patch(cpp_wrapper=True):
        assert exports(None)


def test_a_call_of_an_operator_without_results_is_put_into_the_graph() -> None:
    calls: list[Any] = []
    tx = SimpleNamespace(output=SimpleNamespace(create_proxy=lambda *given: calls.append(given)))
    torch_private.output_code(tx, "op", ("a", 1))
    assert calls == [("call_function", "op", ("a", 1), {})]


@pytest.mark.parametrize("tracer", [SimpleNamespace(export=True), SimpleNamespace(output=SimpleNamespace(export=True))])
def test_a_tracer_or_its_output_says_that_it_exports(tracer: Any) -> None:
    assert exports(tracer)


def test_a_call_of_another_kernel_keeps_its_grid() -> None:
    class Variable(SimpleNamespace):
        """As torch 2.11 makes them: of kernel, its number and grid."""

        def __init__(self, *words: Any) -> None:
            super().__init__(words=words)

    def recreate(variable: Any, **words: Any) -> Any:
        return variable, words

    first = Variable()
    later = SimpleNamespace(recreate_variable=recreate)
    words = {"kernel": "kernel", "kernel_idx": None, "grid": "grid"}
    assert torch_private.with_kernel(later, first, "kernel", "grid") == (first, words)
    earlier = torch_private.with_kernel(SimpleNamespace(), first, "kernel", "grid")
    assert (type(earlier), earlier.words) == (Variable, ("kernel", None, "grid"))


def test_a_kernel_that_is_not_refused_gets_a_number() -> None:
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    variable, kernel = SimpleNamespace(), object()
    torch_private.accept(variable, kernel, "grid")
    assert (variable.kernel, variable.grid) == (kernel, "grid")
    assert kernel_side_table.get_kernel(variable.kernel_idx) is kernel


def test_whether_a_call_is_for_a_graph_or_for_sizes_alone() -> None:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    traced: list[bool] = []

    def body(x: Any) -> Any:
        traced.append(torch_private.makes_graph(None))
        return x + 1

    make_fx(body)(torch.ones(1))
    assert (torch_private.makes_graph(object()), torch_private.makes_graph(None), traced) == (True, False, [True])
    x = torch.ones(2)
    fake = FakeTensorMode().from_tensor(x)
    calls = [((x, 1), {}), ((fake,), {"x": x}), ((1,), {"x": fake})]
    assert [torch_private.runs_for_sizes(args, kwargs) for args, kwargs in calls] == [False, True, True]


def test_kernels_of_the_operators_that_a_graph_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._library import triton

    monkeypatch.setattr(triton, "triton_ops_to_kernels", {"mine::add": ["add", "more"], "mine::mul": ["mul"]})
    names = [{"_name": "mine::add.default"}, {"_qualified_op_name": "mine::mul"}, {"_name": "aten::add"}, {}]
    nodes = [SimpleNamespace(target=SimpleNamespace(**words)) for words in names]
    graphs = [SimpleNamespace(), SimpleNamespace(graph=None), SimpleNamespace(graph=SimpleNamespace(nodes=nodes))]
    found = torch_private.kernels_in_operators(SimpleNamespace(modules=lambda: graphs))
    assert list(found) == [["add", "more"], ["mul"]]


def test_what_make_fx_is_given_is_what_it_is() -> None:
    def grid(meta: Any) -> tuple[int]:
        return (1,)

    assert (torch_private.as_constant(7, None), torch_private.as_grid(grid, None)) == (7, grid)
    assert repr(torch_private._Reference("buf0")) == "buf0"
    torch_private.mark_constant(grid)
    assert grid._dynamo_marked_constant is True  # type: ignore[attr-defined]


class Traced:
    """A value that Dynamo traces; lazy ones are realized first."""

    def __init__(self, **words: Any) -> None:
        self.__dict__ |= words

    def realize(self) -> Any:
        return self.__dict__.get("inside", self)

    def is_python_constant(self) -> bool:
        return "constant" in self.__dict__

    def as_python_constant(self) -> Any:
        return self.constant


class TracedKernel(Traced):
    pass


class TracedModule(Traced):
    pass


class TracedObjectVariable(Traced):
    pass


class TracedList(Traced):
    pass


class TracedTuple(Traced):
    pass


class TracedDescriptor(Traced):
    pass


class TracedFunction(Traced):
    pass


@pytest.fixture
def dynamo(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Dynamo's modules with these classes in them; the guards that are installed, and the settings that hold while
    arguments are bound."""
    seen: list[Any] = []

    @contextlib.contextmanager
    def patch(**settings: bool) -> Iterator[None]:
        seen.append(settings)
        yield
        seen.append("end")

    modules: dict[str, dict[str, Any]] = {
        "": {"config": SimpleNamespace(patch=patch)},
        ".guards": {"GuardBuilder": SimpleNamespace(ID_MATCH="same"), "install_guard": seen.append},
        ".variables.base": {"VariableTracker": Traced},
        ".variables.constant": {"ConstantVariable": SimpleNamespace(create=lambda value: ("constant", value))},
        ".variables.functions": {
            "TritonKernelVariable": TracedKernel, "TMADescriptorStableVariable": TracedDescriptor,
            "UserFunctionVariable": TracedFunction, "NestedUserFunctionVariable": TracedFunction,
        },
        ".variables.lists": {"ListVariable": TracedList, "TupleVariable": TracedTuple},
        ".variables.misc": {"PythonModuleVariable": TracedModule},
        ".variables.tensor": {"SymNodeVariable": TracedObjectVariable},
        ".variables.user_defined": {"UserDefinedObjectVariable": TracedObjectVariable},
    }  # fmt: skip
    for name, values in modules.items():
        monkeypatch.setitem(torch_private.sys.modules, f"torch._dynamo{name}", SimpleNamespace(**values))
    return seen


SOURCE = SimpleNamespace(make_guard=lambda how: ("guard", how))


@pytest.mark.parametrize(
    ("variable", "found"),
    [
        (TracedKernel(kernel="kernel", grid=None), "kernel"),
        (TracedKernel(kernel="kernel", grid=(1,), constant="called"), "called"),
        (TracedModule(value="module"), "module"),
        (Traced(grid=None, constant=7), 7),
        (TracedObjectVariable(value="object", source=SOURCE), "object"),
    ],
)
def test_the_object_that_a_traced_value_is(dynamo: list[Any], variable: Any, found: Any) -> None:
    """Of a user's object with a guard that it is the same one."""
    assert torch_private.object_of(variable) == found
    assert dynamo == [("guard", "same")] * (found == "object")


@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("variable", [TracedObjectVariable(value="object", source=None), Traced(source=SOURCE)])
def test_what_exists_only_in_the_graph_is_no_object(variable: Any) -> None:
    with pytest.raises(torch_private.NoConstant, match=f"^a {type(variable).__name__.removesuffix('Variable')}$"):
        torch_private.object_of(variable)


def test_an_object_of_a_class_traced_or_not(dynamo: list[Any]) -> None:
    object_of_kind = torch_private.object_of_kind
    assert (object_of_kind("a", str), object_of_kind("a", int)) == ("a", None)
    text = TracedObjectVariable(value="b", source=SOURCE)
    assert (object_of_kind(Traced(inside=text), str), object_of_kind(text, int)) == ("b", None)
    assert dynamo == [("guard", "same")]
    assert object_of_kind(TracedModule(value="c"), str) is None


@pytest.mark.usefixtures("dynamo")
def test_kinds_of_traced_values() -> None:
    one, tx = Traced(), object()
    assert torch_private.items_of(TracedList(items=(one,))) == (list, [one])
    assert torch_private.items_of(TracedTuple(items=(one, one))) == (tuple, [one, one])
    assert torch_private.items_of(Traced(items=(one,))) is None
    assert torch_private.descriptor_parts(TracedDescriptor(tensor="x", block_shape="b")) == ("x", "b")
    assert torch_private.descriptor_parts(Traced(tensor="x", block_shape="b")) is None
    assert (torch_private.is_number(TracedObjectVariable()), torch_private.is_number(one)) == (True, False)
    assert torch_private.is_tensor(Traced(is_tensor=lambda: 1)) is True
    assert torch_private.settled(Traced(evaluate_expr=lambda: 5)) == 5
    node = SimpleNamespace(meta={"example_value": "fake"})
    assert torch_private.example_of(Traced(as_proxy=lambda: SimpleNamespace(node=node))) == "fake"
    assert torch_private.as_constant(7, tx) == torch_private.constant_variable(7) == ("constant", 7)


def made_in_a_function(cell: int) -> Any:
    def grid(meta: Any, more: int = 1, *, last: int = 2) -> int:
        own = cell
        return own

    return grid


def test_parts_of_a_traced_function(dynamo: list[Any]) -> None:
    """Its first parameter is the call's config; what it has kept, and the defaults of the others, are traced values."""
    code, bound = made_in_a_function(3).__code__, {"cell": "c", "meta": "m", "more": "d", "last": "e", "own": "o"}

    def bind(tx: Any, args: Any, kwargs: Any) -> Any:
        assert (args, kwargs) == ([("constant", None)], {})
        dynamo.append("bound")
        return bound

    effects = SimpleNamespace(load_cell=lambda value: f"loaded {value}")
    tx = SimpleNamespace(output=SimpleNamespace(side_effects=effects))
    words = {"bind_args": bind, "get_globals": lambda: {"g": 1}}
    found = torch_private.function_parts(TracedFunction(get_code=lambda: code, **words), tx)
    assert found == torch_private.TracedFunction(code, {"g": 1}, {"cell": "loaded c"}, {"more": "d", "last": "e"})
    assert dynamo == [{"skip_guards_on_constant_func_defaults": False}, "bound", "end"]
    none = TracedFunction(get_code=lambda: (lambda: 1).__code__, **words)
    with pytest.raises(torch_private.NoConstant, match=r"^a function without an argument$"):
        torch_private.function_parts(none, tx)
    assert torch_private.function_parts(Traced(get_code=lambda: code, **words), tx) is None


def test_what_generated_code_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors by their names in it, without quotes; of lists each item as text."""
    lines: list[str] = []
    wrapper = SimpleNamespace(val_to_arg_str=lambda value: f"<{value!r}>", add_import_once=lines.append)
    table: dict[str, Any] = {}
    for name, values in {
        "virtualized": {"V": SimpleNamespace(graph=SimpleNamespace(wrapper_code=wrapper))},
        "codegen.custom_extern_kernel_codegen": {
            "CUSTOM_EXTERN_KERNEL_CODEGEN": table, "CustomCodegen": lambda python: python,
        },
    }.items():  # fmt: skip
        monkeypatch.setitem(torch_private.sys.modules, f"torch._inductor.{name}", SimpleNamespace(**values))
    node = SimpleNamespace(
        inputs=[SimpleNamespace(codegen_reference=lambda: "buf0")], constant_args=(3, "a"),
        unflatten_args=lambda tensors, constants: ([tensors[0], [tensors[0], constants[0]], (constants[1],)], {}),
    )  # fmt: skip
    assert torch_private.texts_of_arguments(node) == ["buf0", ["<buf0>", "<3>"], ["<'a'>"]]
    torch_private.write_once("import this")
    torch_private.set_generated_call("op", print)  # type: ignore[arg-type]
    assert (lines, table) == (["import this"], {"op": print})
