"""The private parts of Inductor that kerntune uses: which of them this torch has moved, by name."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
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
