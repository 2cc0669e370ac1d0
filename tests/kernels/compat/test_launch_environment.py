"""What a launch depends on besides its arguments, and the compiler's settings."""

from __future__ import annotations

import functools
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton import knobs
from triton.runtime.jit import JITFunction

from kerntune.kernels.compat import launch_environment
from kerntune.kernels.compat.launch_environment import compiler_settings, settings_changed


@pytest.mark.parametrize(
    ("runtime", "compilation", "text"),
    [
        ({}, {}, "kt_runtime or kt_compilation"),
        ({"debug": True}, {}, "kt_runtime != kt_runtime_then or kt_compilation"),
        ({}, {"override": True}, "kt_runtime or kt_compilation != kt_compilation_then"),
    ],
)
def test_the_expression_for_a_changed_knob(runtime: Any, compilation: Any, text: str) -> None:
    assert settings_changed((runtime, compilation)) == text


@pytest.mark.parametrize(("count", "one"), [(0, False), (1, True), (2, False)])
def test_one_device_needs_no_query(monkeypatch: pytest.MonkeyPatch, count: int, one: bool) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert launch_environment.has_one_device() is one


def test_globals_that_a_kernel_was_compiled_with() -> None:
    scope: dict[str, Any] = {"A": 1, "B": None}
    jit = SimpleNamespace(used_global_vals={("A", 5): (1, scope), ("B", 5): (None, scope)})
    assert launch_environment.globals_kept(jit)
    scope["A"] = 2
    assert not launch_environment.globals_kept(jit)
    scope["A"] = 1
    del scope["B"]
    assert not launch_environment.globals_kept(jit)


def test_a_range_is_recorded_while_a_profiler_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setattr(torch.profiler, "record_function", names.append)
    monkeypatch.setattr(torch.autograd.profiler, "_is_profiler_enabled", False)
    with launch_environment.profiler_range(lambda: pytest.fail("the name isn't needed")):
        pass
    monkeypatch.setattr(torch.autograd.profiler, "_is_profiler_enabled", True)
    launch_environment.profiler_range(lambda: "a range")
    assert names == ["a range"]


def test_the_current_stream_is_that_of_the_current_device(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sys.modules["triton.runtime.driver"]
    active = SimpleNamespace(get_current_device=lambda: 3, get_current_stream=lambda device: 70 + device)
    monkeypatch.setattr(found, "driver", SimpleNamespace(active=active))
    assert launch_environment.current_stream() == 73
    monkeypatch.setattr(found, "driver", SimpleNamespace())
    assert launch_environment.current_stream() is None


def test_an_nvtx_range_is_closed_by_what_opening_it_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    nvtx = SimpleNamespace(range_push=steps.append, range_pop=lambda: steps.append("end"))
    monkeypatch.setattr(torch.cuda, "nvtx", nvtx)
    launch_environment.begin_nvtx_range("begin")()
    assert steps == ["begin", "end"]


@pytest.mark.parametrize(
    ("text", "read"),
    [("1", "1"), ("TRUE", "1"), ("on", "1"), ("y", "1"), ("yes", "1"), ("", None), ("0", None), ("False", None),
     ("off", None), ("n", None), ("no", None), ("3", "3")],
)  # fmt: skip
def test_switches_are_read_as_tritons_compiler_does(text: str, read: str | None) -> None:
    assert launch_environment._switch(text) == read


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (True, "1"), (False, "0"), (8, "8"), ("ieee", "ieee"), ("/opt/lib/libdevice.bc", "libdevice.bc")],
)
def test_settings_as_text(value: object, text: str) -> None:
    assert launch_environment._text(value) == text


def test_settings_that_are_not_tritons_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for variables in launch_environment.SETTINGS.values():
        for name in variables:
            monkeypatch.delenv(name, raising=False)
    assert (compiler_settings("cuda"), compiler_settings("hip"), compiler_settings("xpu")) == ({}, {}, {})
    monkeypatch.setenv("DISABLE_LLVM_OPT", "true")
    monkeypatch.setenv("LLVM_PASS_PLUGIN_PATH", "/opt/plugins/pass.so")
    monkeypatch.setenv("DISABLE_MMA_V3", "on")
    monkeypatch.setenv("DISABLE_MMA_V5", "0")
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    both = {"DISABLE_LLVM_OPT": "1", "LLVM_PASS_PLUGIN_PATH": "pass.so", "TRITON_F32_DEFAULT": "ieee"}
    assert compiler_settings("cuda") == {**both, "DISABLE_MMA_V3": "1"}
    assert compiler_settings("hip") == both


@triton.jit
def kernel(x):  # type: ignore[no-untyped-def]
    pass


class OtherRun(JITFunction):  # type: ignore[misc]
    """A tool's own kind of kernel."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return None


class OtherKernel:
    """What has a kernel's ``run`` and is none."""

    run = JITFunction.run


@pytest.fixture
def active(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Triton's driver."""
    found = SimpleNamespace(get_current_target=lambda: SimpleNamespace(backend="cuda"), get_current_device="device",
                            get_current_stream="stream")  # fmt: skip
    monkeypatch.setattr(sys.modules["triton.runtime.driver"], "driver", SimpleNamespace(active=found))
    return found


@pytest.mark.usefixtures("active")
def test_what_a_prepared_launch_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    found = launch_environment.launch_surroundings(kernel)
    assert found is not None
    for name, knobs_ in (("runtime", knobs.runtime), ("compilation", knobs.compilation)):
        held, then = found[f"kt_{name}"], found[f"kt_{name}_then"]
        assert held is vars(knobs_)
        assert then == held
        assert then is not held
    assert (found["kt_run"], found["kt_jit"], found["kt_JITFunction"]) == (JITFunction.run, kernel, JITFunction)
    assert (found["kt_entering"], found["kt_leaving"]) == (
        knobs.runtime.launch_enter_hook.calls, knobs.runtime.launch_exit_hook.calls,
    )  # fmt: skip
    assert (found["kt_running"], found["kt_current_device"], found["kt_current_stream"]) == (
        kernel.pre_run_hooks, "device", "stream",
    )  # fmt: skip
    assert not eval(launch_environment.UNUSUAL, {**found})


@pytest.mark.parametrize("jit", [OtherKernel(), OtherRun(kernel.fn)], ids=lambda jit: type(jit).__name__)
@pytest.mark.usefixtures("active")
def test_no_launch_is_prepared_for_another_kind_of_kernel(jit: Any) -> None:
    assert launch_environment.launch_surroundings(jit) is None


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (JITFunction, "run", functools.partial(print)),
        (JITFunction, "run", OtherRun.run),
        (knobs.runtime, "launch_enter_hook", None),
        (knobs.runtime, "launch_exit_hook", None),
        (knobs.runtime, "debug", True),
        (knobs.runtime, "add_stages_inspection_hook", print),
        (knobs.compilation, "instrumentation_mode", "gsan"),
    ],
)
@pytest.mark.usefixtures("active")
def test_no_launch_is_prepared_beside_other_tools(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, value: Any
) -> None:
    monkeypatch.setattr(owner, name, value) if owner is JITFunction else monkeypatch.setitem(vars(owner), name, value)
    assert launch_environment.launch_surroundings(kernel) is None


def test_no_launch_is_prepared_on_other_gpus(active: Any) -> None:
    active.get_current_target = lambda: SimpleNamespace(backend="hip")
    assert launch_environment.launch_surroundings(kernel) is None
