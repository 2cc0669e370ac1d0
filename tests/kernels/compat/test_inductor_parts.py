"""The private parts of Inductor that kerntune uses: which of them this torch has moved, by name."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.errors import BackendError
from kerntune.gpu.cuda import before_compiled
from kerntune.kernels.compat import inductor_parts, torch_compiler
from kerntune.kernels.compat.inductor_parts import INDUCTOR, InductorPart, moved_parts, replace_part, why_gate_is_off

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.*is deprecated:DeprecationWarning")
"""Inductor warns of what it imports itself."""


@pytest.mark.slow
def test_this_torch_has_every_part() -> None:
    """Of the optional ones some may be missing."""
    there = [part for part in INDUCTOR.values() if part.owner_in(part.load()) is not None or not part.optional]
    assert [part.changed() for part in there if not part.exists()] == []


def test_each_says_what_it_is_used_for() -> None:
    assert all(part.use for part in INDUCTOR.values())
    assert len({part.name for part in INDUCTOR.values()}) == len(INDUCTOR)


def test_a_part_that_is_gone_is_told_with_its_use(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    monkeypatch.delattr(CachingAutotuner, "_interpret_args_grid")
    (moved,) = moved_parts()
    assert "CachingAutotuner._interpret_args_grid, which is used for: the grid of a launch" in moved
    with pytest.raises(BackendError, match="_interpret_args_grid"):
        inductor_parts.inductor_part("grid")


def test_a_parameter_with_another_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    monkeypatch.setattr(CachingAutotuner, "_precompile_config", lambda self, config: None)
    (moved,) = moved_parts()
    assert "CachingAutotuner._precompile_config has no parameter cfg any more" in moved


def test_a_module_that_is_gone_is_told() -> None:
    part = InductorPart("torch._inductor.nowhere", "function", "nothing")
    assert part.changed().endswith("has no torch._inductor.nowhere:function, which is used for: nothing")


def test_a_replaced_part_is_put_back() -> None:
    before = inductor_parts.inductor_part("cudagraphify")
    with contextlib.ExitStack() as stack:
        replace_part(stack, "cudagraphify", len)
        assert inductor_parts.inductor_part("cudagraphify") is len
    assert inductor_parts.inductor_part("cudagraphify") is before


@pytest.mark.slow
def test_an_optimizer_is_no_use_of_the_compiler() -> None:
    """Else each captured call after it would import Inductor, and make torch forget what it has compiled."""
    program = (
        "import sys, torch\n"
        "from kerntune.kernels.compat.inductor_parts import inductor_is_used\n"
        "weight = torch.nn.Parameter(torch.ones(1))\n"
        "weight.sum().backward()\n"
        "torch.optim.SGD([weight], 0.1).step()\n"
        "print('torch._dynamo' in sys.modules, inductor_is_used())\n"
        "torch.compile(abs)\n"
        "print(inductor_is_used())\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "False", "True"]


def test_a_moved_part_is_a_warning_and_other_kernels_are_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may use ``torch.compile`` beside kernels of its own."""

    def begin(stack: contextlib.ExitStack) -> None:
        INDUCTOR["run"].owner()

    monkeypatch.setattr(inductor_parts, "inductor_is_used", lambda: True)
    monkeypatch.setitem(INDUCTOR, "run", InductorPart("torch._inductor.nowhere", "function", "every launch"))
    with (
        pytest.warns(
            RuntimeWarning, match=r"compiled by torch are not captured: .*no torch\._inductor\.nowhere:function"
        ),
        before_compiled(begin) as guesses,
    ):
        assert guesses == ()


REQUIRED = [word for word, part in INDUCTOR.items() if not part.optional]


@pytest.mark.parametrize("word", REQUIRED)
def test_without_a_part_the_gate_of_compiled_functions_is_off_and_says_why(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = INDUCTOR[word]
    wrong: Any = (lambda *args: None) if part.kind != "function" else 7
    owner, name = part.owner()
    assert not why_gate_is_off()  # which imports modules that have classes of these
    monkeypatch.setattr(owner, name, wrong)
    changed = why_gate_is_off()
    monkeypatch.undo()
    monkeypatch.setitem(INDUCTOR, word, dataclasses.replace(part, path=f"{part.path}_moved"))
    moved = why_gate_is_off()
    assert f"'s {part.name} is no {part.kind} any more, which is used for: {part.use}" in changed
    assert f" has no {part.name}_moved, which is used for: {part.use}" in moved
    for why in (changed, moved):
        assert why.endswith(": the gate of compiled functions is off; kernels launched directly are judged")
        assert "\n" not in why


def test_a_part_that_has_changed_is_not_begun_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in its place would be called with other arguments, in the midst of the user's call."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    monkeypatch.setattr(inductor_parts, "inductor_is_used", lambda: True)
    monkeypatch.setattr(CachingAutotuner, "_precompile_config", lambda self, config: None)
    begun: list[object] = []
    said = "has no parameter cfg any more.* launched directly are judged"
    with pytest.warns(RuntimeWarning, match=said), before_compiled(begun.append):
        pass
    assert begun == []


def test_an_optional_part_that_has_changed_is_as_if_it_were_gone() -> None:
    part = InductorPart(
        "torch._inductor.codecache", "PersistentCache.lookup", "times", parameters=("no_such",), optional=True
    )
    assert not part.exists()
    assert "has no parameter no_such any more" in part.changed()


def test_functions_of_dynamos_cuda_interface_are_those_of_torch() -> None:
    import torch

    found = dict(torch_compiler.interface_functions())
    assert {"device_count", "current_device"} <= found.keys()
    assert not [name for name in found if name.startswith("__") or not hasattr(torch.cuda, name)]


@pytest.mark.parametrize(
    ("graph", "launches", "hidden"),
    [
        (SimpleNamespace(source_code="k = async_compile.triton('k')"), True, "a compiled graph whose"),
        (SimpleNamespace(source_code="@triton_heuristics.pointwise", fx_kwargs={"cpp_wrapper": True}), True,
         "a graph compiled with cpp_wrapper, which launches from C++"),
        (SimpleNamespace(source_code="extern_kernels.mm(a)", fx_kwargs={"cpp_wrapper": False}), False, "a compiled"),
        (SimpleNamespace(fx_kwargs=None), False, "a compiled graph whose launches were recorded before, such as in a"),
    ],
)  # fmt: skip
def test_what_is_known_of_a_compiled_graph(graph: Any, launches: bool, hidden: str) -> None:
    assert inductor_parts.launches_kernels(graph) is launches
    assert inductor_parts.why_hidden(graph).startswith(hidden)


def test_which_failures_are_the_compilers() -> None:
    class InductorError(Exception):
        pass

    class Later(InductorError):
        pass

    assert inductor_parts.is_compiler_failure(Later())
    assert not inductor_parts.is_compiler_failure(ValueError())


def test_a_tuners_own_words() -> None:
    tuner = SimpleNamespace(inductor_meta={"kernel_name": "triton_poi_fused_add_0"}, fn=SimpleNamespace(__name__="f"))
    assert inductor_parts.kernel_word(tuner) == "triton_poi_fused_add_0"
    tuner.inductor_meta = {"kernel_name": None}
    assert inductor_parts.kernel_word(tuner) == "f"
    assert inductor_parts.size_hints_text(SimpleNamespace(size_hints={"x": 4})) == "{'x': 4}"
    assert inductor_parts.size_hints_text(SimpleNamespace()) == "None"


def test_a_choice_is_made_anew_if_no_setting_made_it() -> None:
    call = SimpleNamespace(picked_kernel=1, kernels=("a", "b"))
    inductor_parts.choose_anew(call)
    assert call.picked_kernel == 1
    inductor_parts.mark_free(call)
    inductor_parts.choose_anew(call)
    assert (call.picked_kernel, inductor_parts.listed_kernels(call)) == (None, ["a", "b"])


def test_a_kernels_function_is_loaded_where_a_worker_made_the_tuner() -> None:
    own, loaded = SimpleNamespace(fn=None), SimpleNamespace(fn="function")
    tuner = SimpleNamespace(fn=own, _reload_kernel=lambda: SimpleNamespace(fn=loaded))
    assert inductor_parts.loaded_kernel(tuner) is tuner.fn is loaded
    tuner._reload_kernel = None
    assert inductor_parts.loaded_kernel(tuner) is loaded


# a tuner of Inductor's, by hand


class Tuner:
    """Lists configs, here by their names; its timing chooses the last."""

    def __init__(self, *listed: str, **words: Any) -> None:
        self.listed, self.did = listed, list[Any]()
        self.launchers: list[Any] = []
        self.configs = [SimpleNamespace(name="first")]
        self.inductor_meta: dict[str, Any] = {}
        self.fn = SimpleNamespace(fn="function")
        self._cached_launcher = "cached"
        self.__dict__ |= words

    def precompile(self) -> None:
        self.did.append("precompile")
        self.launchers = [SimpleNamespace(config=SimpleNamespace(name=name)) for name in self.listed]

    def autotune_to_one_config(self, *args: Any, **kwargs: Any) -> None:
        self.did.append((args, kwargs))
        self.launchers = self.launchers[-1:]

    def _precompile_config(self, config: Any) -> Any:
        if config.name == "wrong":
            raise RuntimeError("no such tile")
        return SimpleNamespace(make_launcher=lambda: SimpleNamespace(config=config, compiled=True))

    @property
    def names(self) -> list[str]:
        return [launcher.config.name for launcher in self.launchers]


@pytest.mark.parametrize(
    ("listed", "settled", "did", "noted"),
    [
        ((), "first", ["precompile"], None),
        (("a",), "a", ["precompile"], None),
        (("a", "b"), "b", ["precompile", ((1,), {"n": 2})], ["a", "b"]),
    ],
)
def test_a_launch_settles_a_tuner(
    listed: tuple[str, ...], settled: str, did: list[Any], noted: list[str] | None
) -> None:
    tuner = Tuner(*listed)
    for _ in range(2):
        assert inductor_parts.settled_config(tuner, (1,), {"n": 2}).name == settled
    assert tuner.did == (did if listed else did * 2), "once"
    assert [c.name for c in getattr(tuner, "kerntune_listed", [])] == (noted or [])
    config = object()
    found = inductor_parts.launched_config(tuner, config)
    assert found is (tuner.launchers[0].config if listed else config)


def kept(tuner: Any, wanted: str, made: str | None = None) -> bool:
    config = None if made is None else SimpleNamespace(name=made)
    return inductor_parts.keep_config(tuner, lambda c: c.name == wanted, lambda like: like and config)


@pytest.mark.parametrize(
    ("listed", "wanted", "found"),
    [(("a", "b", "c"), "b", True), (("a", "b"), "x", False), (("a",), "a", True), ((), "a", False)],
)
def test_a_tuner_keeps_a_config_of_its_list(listed: tuple[str, ...], wanted: str, found: bool) -> None:
    tuner = Tuner(*listed)
    tuner.precompile()
    assert kept(tuner, wanted, "x") is found
    assert tuner.names == ([wanted] if found else [*listed])
    assert tuner._cached_launcher == (None if len(listed) > 1 and found else "cached")
    flags = [vars(launcher.config) for launcher in tuner.launchers]
    own = {"found_by_coordesc": True, "found_by_combo_autotune": True} if found else {}
    assert flags == [{"name": name, **own} for name in tuner.names]
    assert len(getattr(tuner, "kerntune_listed", [])) == (len(listed) if len(listed) > 1 and found else 0)


@pytest.mark.parametrize(
    ("words", "made", "found"),
    [
        ({}, "x", False),
        ({"inductor_meta": {"coordinate_descent_tuning": True}}, "x", True),
        ({"inductor_meta": {"coordinate_descent_tuning": False}}, "x", False),
        ({"autotune_cache_info": {"autotune_cache_state": "hit"}}, "x", True),
        ({"autotune_cache_info": {"autotune_cache_state": "miss"}}, "x", False),
        ({"autotune_cache_info": None}, "x", False),
        ({"kerntune_listed": [SimpleNamespace(name="b"), SimpleNamespace(name="x")]}, "x", True),
        ({"kerntune_listed": [SimpleNamespace(name="b")]}, "x", False),
        ({"inductor_meta": {"coordinate_descent_tuning": True}}, None, False),
        ({"inductor_meta": {"coordinate_descent_tuning": True}}, "wrong", False),
    ],
)
def test_a_config_that_a_tuner_may_have_had_is_compiled_anew(
    words: dict[str, Any], made: str | None, found: bool
) -> None:
    tuner = Tuner("a", **words)
    tuner.precompile()
    assert kept(tuner, "x", made) is found
    assert tuner.names == (["x"] if found else ["a"])
    assert getattr(tuner.launchers[0], "compiled", False) is found


def test_what_is_compiled_for_a_config_is_what_inductor_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this thread; another one's compilation goes on, and nothing stays replaced."""
    from torch._inductor.runtime import triton_heuristics

    compiled: list[Any] = []
    monkeypatch.setattr(triton_heuristics.triton, "compile", lambda *given, **words: compiled.append((given, words)))
    source = SimpleNamespace(fn="jit", signature={"x": "*fp32"}, constants={(1,): 4}, attrs={(0,): []})

    def ask(config: str) -> None:
        other = threading.Thread(target=lambda: triton_heuristics.triton.compile("other", target=1, options=2, more=3))
        other.start()
        other.join()
        if config == "asks":
            triton_heuristics.triton.compile(source, target="gpu", options={"num_warps": 8})

    original = triton_heuristics.triton.compile
    tuner = SimpleNamespace(fn=SimpleNamespace(fn="function"), _precompile_config=ask)
    found = inductor_parts.inductor_compilation(tuner, "asks")
    parts = ("jit", {"x": "*fp32"}, {(1,): 4}, {(0,): []}, {"num_warps": 8})
    assert found == inductor_parts.InductorCompilation(*parts)
    assert compiled == [(("other",), {"target": 1, "options": 2, "more": 3})]
    with pytest.raises(BackendError, match=r"_precompile_config compiled without calling triton\.compile$"):
        inductor_parts.inductor_compilation(tuner, "does not")
    assert triton_heuristics.triton.compile is original


def test_a_grid_is_three_numbers() -> None:
    tuner = SimpleNamespace(_interpret_args_grid=lambda args, config: ([*args, config], (4.0, 2, True)))
    assert inductor_parts.inductor_grid(tuner, [7, 8], "config") == ((7, 8, "config"), (4, 2, 1))


@pytest.mark.parametrize(
    ("options", "config", "wraps"),
    [({}, False, False), ({}, True, True), ({"options": None}, True, True),
     ({"options": {"cpp_wrapper": False}}, True, False), ({"options": {"cpp_wrapper": True}}, False, True)],
)  # fmt: skip
def test_whether_a_compiled_function_launches_from_cpp(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], config: bool, wraps: bool
) -> None:
    monkeypatch.setattr(inductor_parts, "inductor_part", lambda word: SimpleNamespace(cpp_wrapper=config))
    assert inductor_parts.wraps_in_cpp(options) is wraps


def test_kinds_of_tuners(monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu = [inductor_parts.runs_on_gpu(SimpleNamespace(device_props=SimpleNamespace(**words)))
              for words in ({}, {"type": "cuda"}, {"type": "cpu"})]  # fmt: skip
    assert on_gpu == [True, True, False]
    assert [inductor_parts.is_users_kernel(SimpleNamespace(**w)) for w in ({}, {"custom_kernel": 1})] == [False, True]
    config = SimpleNamespace(combo_kernels_autotune=1, combo_kernel_per_subkernel_blocks=False)
    monkeypatch.setattr(inductor_parts, "inductor_part", lambda word: config)
    assert inductor_parts.combo_settings() == ("1", "None", "False")
    used = []
    for name in inductor_parts.USED:
        for module in inductor_parts.USED:
            monkeypatch.delitem(sys.modules, module, raising=False)
        used.append(inductor_parts.inductor_is_used())
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
        used.append(inductor_parts.inductor_is_used())
    assert used == [False, True] * 3
