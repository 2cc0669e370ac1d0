"""What operators move, which of them count, and what results come from."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerntune.base.operator_list import OperatorList, OperatorRow, names_text
from kerntune.base.recording import Launch, Param, Recording, Storage, View, Zeros
from kerntune.capture import operators as module
from kerntune.capture.operator_traits import NO_STORAGE, Operator
from kerntune.capture.operators import CallOperators, OperatorEvent
from kerntune.gpu.operator_mode import noting

MAX_OUTSIDE = 1000
MAX_ROWS = 200


A = torch.empty(64, 64)
"""16,384 bytes."""


def watched(**known: Any) -> CallOperators:
    """Of a call whose tensors are the host's."""
    return CallOperators(known.get("launches", []), known.get("records", lambda: True), lambda x: True)


def listed(
    operators: CallOperators, arguments: Any = (), results: Any = (), storages: Any = (), launches: Any = ()
) -> OperatorList:
    """The list, of a recording with these storages and launches."""
    target: Any = SimpleNamespace()
    kept = tuple(Storage(x.untyped_storage().nbytes(), "float32", Zeros()) for x in storages)
    recording = Recording(target, tuple(launches), (), kept, ())
    return operators.summary(recording, {}, list(storages), arguments, results)


def run(work: Any, *args: Any) -> OperatorList:
    operators = watched()
    with noting(operators):
        result = work(*args)
    return listed(operators, args, [result] if isinstance(result, torch.Tensor) else list(result or ()))


@pytest.mark.parametrize(
    ("work", "nbytes"),
    [
        (lambda a: a + a, 2 * 16384),
        (lambda a: a.add_(1), 2 * 16384),
        (lambda a: a.copy_(torch.empty(64, 64)), 2 * 16384),
        (lambda a: torch.add(a, 1, out=torch.empty(64, 64)), 2 * 16384),
        (lambda a: a + a[:1].expand(64, 64), 2 * 16384 + 256),
        (lambda a: a.unfold(0, 8, 1).clone(), 16384 + 57 * 64 * 8 * 4),
        (lambda a: a[:, 0].contiguous(), 2 * 256),
        (lambda a: a.index_select(0, torch.tensor([3])), 2 * 256 + 8),
        (lambda a: torch.nn.functional.embedding(torch.tensor([3, 4]), a), 2 * 512 + 16),
        (lambda a: a.index_put_((torch.tensor([3]),), torch.empty(1, 64)), 2 * 256 + 8),
        (lambda a: a.t().view(64, 64).reshape(64, 64), 0),
        (lambda a: torch.empty_like(a), 0),
    ],
)  # fmt: skip
def test_bytes_are_distinct_elements(work, nbytes):
    """Of what is selected, not of where from; of a broadcast row once; of nothing that is a view."""
    assert run(work, A.clone()).moved == nbytes


def test_filled_memory_counts_apart():
    found = run(lambda a: (torch.zeros(64, 64), a.fill_(1.0), a.new_full((64, 64), 2.0)), A.clone())
    assert (found.moved, found.filled) == (0, 3 * 16384)


def test_operators_of_other_libraries_have_an_upper_bound():
    @torch.library.custom_op("operators_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    found = run(twice, A)
    assert (found.moved, found.uncertain) == (0, 2 * 16384)


def test_what_is_not_the_calls_is_not_counted():
    """Triton's timer clears the cache by ``zero_``, and Inductor copies arguments: 412 and 212 times in one call."""
    answers = [True]
    operators = watched(records=lambda: answers[0])
    x: Any = torch.empty(8)
    with noting(operators):
        x.zero_()
        answers[0] = False
        x.zero_()
        x.clone()
    assert listed(operators).by_name == {"aten.zero_": 1}


def test_an_operator_that_launches_kernels_is_none_of_torchs():
    launches: list[int] = []
    operators = watched(launches=launches)
    begun = operators.begin()
    launches.append(1)
    operators.observe(torch.ops.aten.clone.default, (A,), {}, A.clone(), begun)
    assert listed(operators, launches=[]).rows == ()


def test_a_cache_of_what_depends_on_no_argument_is_not_counted():
    cache: list[torch.Tensor] = []

    def work(a):
        cache.append(torch.arange(4096.0).cos())
        return a * cache[0]

    found = run(work, torch.ones(4096))
    assert {row.name: row.kind for row in found.rows} == {"aten.arange": "kept", "aten.cos": "kept", "aten.mul": ""}


def test_what_is_computed_from_a_launchs_output_is_no_cache():
    """The output depends on the argument, as the launch reads that."""
    launches: list[int] = []
    operators = watched(launches=launches)
    a, out, cache = torch.ones(4096), torch.empty(4096), list[torch.Tensor]()
    with noting(operators):
        made = torch.empty(4096)
        launches.append(1)
        cache.append(made + 1)
    launch = Launch("k", "s", 0, (1, 1, 1), (), reads=(0,), writes=(1,))
    found = listed(operators, [a], [out], storages=[a, made], launches=[launch])
    assert {row.name: row.kind for row in found.rows} == {"aten.add": ""}


def test_a_tensor_that_only_the_recording_holds_is_no_cache():
    """A mask that is made anew in each call depends on no argument either."""
    operators = watched()
    with noting(operators):
        mask = torch.arange(4096.0)
    storages = [mask]
    del mask
    assert {row.kind for row in listed(operators, [A], storages=storages).rows} == {""}


def test_a_result_that_grows_its_storage_counts_whole():
    def work(a):
        out = torch.empty(0)
        torch.add(a, 1, out=out)
        return torch.add(a, 2, out=out)

    assert run(work, A).moved == 4 * 16384


def test_an_operator_has_its_line():
    found = run(lambda a: a.exp(), A)
    (place,) = found.rows[0].places
    assert place == f"test_operators.py:{test_an_operator_has_its_line.__code__.co_firstlineno + 1}"
    assert names_text(found.rows, placed=True) == f"aten.exp at {place}"


def test_what_depends_on_an_argument_is_counted_even_if_it_is_kept():
    cache: list[torch.Tensor] = []

    def work(a):
        cache.append(a.exp())
        return a.clone()

    assert run(work, A).by_name == {"aten.exp": 1, "aten.clone": 1}
    operators = watched()
    with noting(operators):
        work(A)
    assert "aten.exp" in listed(operators).by_name, "without arguments, whatever was there before is one"


def test_a_list_is_bounded():
    def work(a):
        for i in range(MAX_ROWS + 8):
            a[: i % 64 + 1].repeat(i // 64 + 1, 1)

    found = run(work, A)
    assert len(found.rows) == MAX_ROWS
    assert found.left_out == 8
    assert 0 < found.left_out_bytes <= 8 * min(row.nbytes for row in found.rows), "those that move the least"


def test_what_moves_least_is_left_out(monkeypatch):
    """Rows are in the order of their names; a kept row's bytes are no operator's."""
    monkeypatch.setattr(module, "MAX_ROWS", 2)
    monkeypatch.setattr(module, "MAX_PLACES", 2)
    found = watched()

    def event(name, nbytes, *places, launches=0):
        operator = Operator(
            name, ((torch.float16, (2, 3)),), ((torch.int8, ()),), nbytes, "filled" if name == "d" else ""
        )
        return OperatorEvent(launches, operator, (), (), frozenset(), places)

    found.events = [
        event("b", 10, "x:1", "x:2"), event("b", 10, "x:2", "x:3"), event("a", 30), event("c", 19), event("d", 5),
        event("e", 1), event("c", 0), OperatorEvent(0, None, (), (), frozenset()),
    ]  # fmt: skip
    rows, left_out = found._rows({5})
    sides = "float16[2,3] -> int8[]"
    assert rows == (OperatorRow("a", sides, 1, 30), OperatorRow("b", sides, 2, 20, "", ("x:1", "x:2")))
    assert [(r.name, r.count, r.nbytes, r.kind) for r in left_out] == [
        ("c", 1, 19, ""), ("d", 1, 5, "filled"), ("e", 1, 1, "kept"), ("c", 1, 0, "")
    ]  # fmt: skip


def test_names_are_told_by_what_they_move():
    found = run(lambda a: (a.exp(), a.exp(), a[0].cos()), A)
    assert names_text(found.rows) == "aten.exp 2x, aten.cos"
    assert found.text() == "3 torch operators beside the kernels: 66 kB (aten.exp 2x, aten.cos)"


# alike calls, and when they are the call's


def test_alike_calls_are_looked_at_once(monkeypatch):
    """But which of their tensors are the same is each one's own, and so are storages."""
    looked: list[Any] = []
    original = module.operator_call
    monkeypatch.setattr(module, "operator_call", lambda func, *rest: looked.append(func) or original(func, *rest))
    operators, alike = watched(), object()
    a, b = torch.empty(64, 64), torch.empty(64, 64)
    for x, y in ((a, a), (a, b), (b, b)):
        operators.observe(torch.ops.aten.add.Tensor, (x, y), {}, torch.empty(64, 64), None, alike)
    operators.settle()
    assert len(looked) == 1
    assert [(len(e.ins), e.operator.nbytes) for e in operators.events if e.operator] == [
        (1, 2 * 16384), (2, 3 * 16384), (1, 2 * 16384)
    ]  # fmt: skip
    assert len({e.outs for e in operators.events}) == 3
    operators.observe(torch.ops.aten.add.Tensor, (a, b), {}, torch.empty(64, 64), None)
    assert len(looked) == 2, "nothing is known of what isn't alike"


def test_alike_calls_are_forgotten_in_the_end(monkeypatch):
    monkeypatch.setattr(module, "MAX_CALLS", 4)
    monkeypatch.setattr(module, "_calls", {})
    operators = watched()
    for _ in range(9):
        operators.observe(torch.ops.aten.exp.default, (A,), {}, A.clone(), None, object())
    assert 0 < len(module._calls) <= 4
    assert listed(operators).by_name == {"aten.exp": 9}


def test_alike_calls_of_the_host_alone_are_not_noted():
    operators, alike = CallOperators([], lambda: True, lambda x: False), object()
    for _ in range(2):
        operators.observe(torch.ops.aten.exp.default, (A,), {}, A.clone(), None, alike)
    operators.settle()
    assert operators.events == []


@pytest.mark.parametrize(
    "work",
    [
        lambda a: torch.cat([a, a]),
        lambda a: a.split(32),
        lambda a: torch.add(a, a, out=torch.empty(64, 64)),
        lambda a: torch.var_mean(a, 0),
        lambda a: torch._foreach_mul_([a, a.t()], 2.0),
    ],
)
def test_storages_are_found_wherever_tensors_lie(work):
    """In lists, among arguments by name, in several results, in none."""
    operators = watched()
    with noting(operators):
        work(A.clone())
    once = listed(operators)
    again = watched()

    class Alike:
        def begin(self) -> int:
            return 0

        def observe(self, func: Any, args: Any, kwargs: Any, result: Any, begun: int) -> None:
            for _ in range(2):
                again.observe(func, args, kwargs, result, begun, same.setdefault(func, object()))

    same: dict[Any, object] = {}
    with noting(Alike()):
        work(A.clone())
    assert {(r.name, r.signature, 2 * r.count, 2 * r.nbytes) for r in once.rows} == {
        (r.name, r.signature, r.count, r.nbytes) for r in listed(again).rows
    }


def test_places_are_those_of_code_that_is_gone():
    """Another function may have its ``id``."""
    operators = watched()
    for i in range(20):
        found: dict[str, Any] = {"__name__": f"model_{i}"}
        exec(compile("def work(a):\n    return a.exp()\n", f"/home/me/model_{i}.py", "exec"), found)
        with noting(operators):
            found["work"](A)
        operators.settle()
        found.clear()
    assert len({e.places for e in operators.events}) == 20


def test_places_are_each_operators_own_whichever_way_it_comes():
    """Directly and through functions of torch, by turns, from several functions of the user's."""

    def other(a):
        return torch.nn.functional.hardtanh(a)

    def work(a):
        for _ in range(2):
            a.exp()
            torch.nn.functional.softmax(a, -1)
            other(a)
            a.cos()

    operators = watched()
    with noting(operators):
        work(A)
    operators.settle()
    first, begin = other.__code__.co_firstlineno, work.__code__.co_firstlineno
    lines = [begin + 2, begin + 3, first + 1, begin + 5] * 2
    assert [e.places for e in operators.events] == [(f"{Path(__file__).name}:{n}",) for n in lines]


def test_whose_an_operator_is_is_asked_once_there_may_be_others():
    asked: list[int] = []
    operators = CallOperators([], lambda: bool(asked.append(1)), lambda x: True, asks=False)
    operators.observe(torch.ops.aten.exp.default, (A,), {}, A.clone(), 0)
    assert asked == []
    operators.asks = True
    operators.observe(torch.ops.aten.exp.default, (A,), {}, A.clone(), 0)
    assert (asked, listed(operators).by_name) == ([1], {"aten.exp": 1})


# where results come from


def launched(storages: list[torch.Tensor], *writes: int, reads: tuple[int, ...] = ()) -> Launch:
    return Launch(kernel="k", source="s", binary=0, grid=(1, 1, 1), params=(), reads=reads, writes=writes)


def coverage(work: Any, reads: tuple[int, ...] = ()) -> OperatorList:
    """``work(a, kernel)`` may call ``kernel(out)``, which writes ``out``."""
    a = A.clone()
    launches: list[int] = []
    storages: list[torch.Tensor] = []
    operators = watched(launches=launches)

    def kernel(out):
        storages.append(out)
        launches.append(len(launches))
        return out

    with noting(operators):
        result = work(a, kernel)
    recorded = [launched(storages, i, reads=reads) for i in range(len(launches))]
    results = [result] if isinstance(result, torch.Tensor) else list(result)
    return listed(operators, [a], results, storages, recorded)


@pytest.mark.parametrize(
    ("work", "covered", "makers"),
    [
        (lambda a, kernel: kernel(torch.empty_like(a)), (True,), ()),
        (lambda a, kernel: kernel(torch.empty_like(a)).half(), (True,), ()),
        (lambda a, kernel: kernel(torch.empty_like(a)).sum(0)[:3], (True,), ()),
        (lambda a, kernel: (kernel(torch.empty_like(a)), a.exp()), (True, False), ("aten.exp",)),
        (lambda a, kernel: kernel(torch.empty_like(a)).copy_(a), (False,), ("aten.copy_",)),
        (lambda a, kernel: torch.exp(a, out=kernel(torch.empty_like(a))), (False,), ("aten.exp",)),
        (lambda a, kernel: kernel(torch.empty_like(a)).mul_(2), (True,), ()),
        (lambda a, kernel: torch.ones_like(kernel(torch.empty_like(a))), (False,), ("aten.ones_like",)),
        (lambda a, kernel: (kernel(a).mul_(2), None)[:1], (True,), ()),
    ],
)
def test_a_result_is_covered_if_a_launch_has_a_part_in_it(work, covered, makers):
    found = coverage(work)
    assert (found.results, found.makers) == (covered, makers)


def test_an_operator_before_a_launch_does_not_take_its_part():
    def work(a, kernel):
        out = torch.exp(a)
        return kernel(out)

    assert coverage(work).results == (True,)


def test_changed_arguments_are_results():
    assert coverage(lambda a, kernel: [kernel(a)][:0]).results == (True,)
    assert coverage(lambda a, kernel: (a.exp_(), kernel(torch.empty_like(a)))[:0]).results == (False,)


def test_what_launches_read_from_before_the_call_is_outside():
    before = torch.empty(128)
    assert coverage(lambda a, kernel: kernel(before), reads=(0,)).outside == (512,)
    assert coverage(lambda a, kernel: kernel(a), reads=(0,)).outside == ()
    assert coverage(lambda a, kernel: kernel(torch.empty_like(a)), reads=(0,)).outside == ()


def read_after(work: Any) -> tuple[tuple[int, ...], OperatorList]:
    """Storages that launches have read from before the call, where the last launch reads nothing."""
    a = A.clone()
    operators = watched(launches=[0, 1])
    with noting(operators):
        work(a)
    launches = [
        Launch(kernel="k", source="s", binary=0, grid=(0, 1, 1), params=(), reads=(0,), writes=()),
        Launch(kernel="k", source="s", binary=0, grid=(1, 1, 1), params=(), reads=(1,), writes=()),
    ]
    found = listed(operators, [a], [], [torch.empty(4), torch.empty(2), a], launches)
    return found.outside, found


def test_a_launch_of_nothing_reads_nothing():
    assert read_after(lambda a: None)[0] == (8,)


def test_only_the_largest_from_outside_are_listed():
    sizes = range(1, MAX_OUTSIDE + 3)
    storages = [torch.empty(n) for n in reversed(sizes)]
    launch = launched(storages, reads=tuple(range(len(storages))))
    assert listed(watched(), storages=storages, launches=[launch]).outside == tuple(4 * n for n in sizes[2:])


def test_arguments_are_known_by_their_storages():
    """Views of a result are the result; what no parameter points to has no name."""
    x, y, z = torch.empty(4), torch.empty(4), torch.empty(4)
    views = (View(0, "float32", (4,), (1,), 0), View(1, "float32", (4,), (1,), 0), View(0, "float32", (2,), (1,), 8))
    params = (Param("a", "*fp32", view=0), Param("n", "i32", value=4), Param("b", "*fp32", view=1))
    first = Launch(kernel="k", source="s", binary=0, grid=(1, 1, 1), params=params, reads=(), writes=())
    second = Launch(
        kernel="k", source="s", binary=0, grid=(1, 1, 1), params=(Param("c", "*fp32", view=2),), reads=(), writes=()
    )
    target: Any = SimpleNamespace()
    kept = tuple(Storage(16, "float32", Zeros()) for _ in range(2))
    recording = Recording(target, (first, second), (), kept, views)
    operators = watched()
    asked = [(x[1:],), (y, z), (z,), (x, y)]
    found = [operators.arguments_of(results, recording, [x, y]) for results in asked]
    assert found == [{"a", "c"}, {"b"}, set(), {"a", "b", "c"}]


class Unstored(torch.Tensor):
    """As a subclass that wraps other tensors."""

    def untyped_storage(self) -> Any:
        raise NotImplementedError("it has none")


def test_a_tensor_without_a_storage_comes_from_nowhere_known():
    operators = watched()
    wrapping = A.as_subclass(Unstored)
    out = torch.empty(64, 64)
    operators.observe(torch.ops.aten.exp.default, (wrapping,), {}, out, 0)
    operators.settle()
    (event,) = operators.events
    assert (event.ins, event.outs) == ((NO_STORAGE,), (1,))
    (row,) = listed(operators, [wrapping], [wrapping, out]).rows
    assert (row.signature, row.nbytes) == ("float32[-1] -> float32[64,64]", 16384)
    assert listed(operators, [wrapping], [wrapping, out]).results == (False, False)


def test_what_torchs_compiler_has_for_sizes_is_no_operator():
    class Func:
        def __init__(self, namespace: str) -> None:
            self.namespace = namespace

        def __str__(self) -> str:
            return f"{self.namespace}.x"

    operators = watched()
    for namespace in ("inductor", "prims", "prim"):
        operators.observe(Func(namespace), (A,), {}, A.clone(), 0)
    operators.settle()
    assert [e.operator.name for e in operators.events] == ["prims.x"]


def test_operators_of_the_host_alone_are_not_noted():
    """One argument or one result on the device is enough."""
    device: list[Any] = []
    operators = CallOperators([], lambda: True, lambda x: any(x is y for y in device))
    a, b, out = torch.empty(1), torch.empty(2), torch.empty(3)
    for device[:] in ([], [b], [out]):
        operators.observe(torch.ops.aten.add.Tensor, (a, b), {}, out.clone() if not device else out, 0)
    operators.settle()
    assert len(operators.events) == 2


@pytest.mark.parametrize("cache", [SimpleNamespace(), {}], ids=["attribute", "dictionary"])
def test_a_cache_that_a_launch_reads_is_kept_where_others_refer_to_it(cache):
    """The capture's own lists keep it alive as well."""

    def work(a, kernel):
        made = torch.arange(4096.0)
        (cache if isinstance(cache, dict) else vars(cache))["made"] = made
        kernel(made)
        return a.clone()

    assert {row.name: row.kind for row in coverage(work).rows} == {"aten.arange": "kept", "aten.clone": ""}


def test_what_comes_of_an_argument_at_second_hand_is_no_cache():
    cache: list[torch.Tensor] = []

    def work(a):
        cache.append(a.exp().cos())
        cache.append(torch.ones(3).sin().cos())
        return a.clone()

    kinds = {row.name: row.kind for row in run(work, A).rows if "64" in row.signature}
    assert set(kinds.values()) == {""}
    assert {row.kind for row in run(work, A).rows if "[3]" in row.signature} == {"kept"}
