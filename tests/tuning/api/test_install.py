"""``kerntune.install()``: Triton's tuners with kerntune's engine, and back."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from fake_runs import THREE, N, by_block, captured, configs, scale_kernel, script
from triton.runtime import autotuner as tritons
from triton.runtime.autotuner import Autotuner as TritonAutotuner

import kerntune
from kerntune.errors import UsageError
from kerntune.gpu.scripted import FakeBackend
from kerntune.kernels.compat import launcher
from kerntune.kernels.dispatch import LaunchPath
from kerntune.tuning import context
from kerntune.tuning.api import install
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.context import PlainPath


@pytest.fixture
def backend(this_gpu: FakeBackend) -> FakeBackend:
    """The GPU on which tuning happens, with three blocks' times."""
    script(this_gpu, *THREE)
    return this_gpu


@pytest.fixture(autouse=True)
def left_as_found() -> Iterator[None]:
    before = state()
    yield
    assert not install.is_installed()
    assert state() == before


def state() -> list[dict[str, Any]]:
    """All that install() may touch."""
    owners: list[Any] = [TritonAutotuner, Inheriting, Overriding, Renaming, kerntune.Autotuner]
    names = [{"autotune": vars(o).get("autotune")} for o in (triton, triton.runtime, tritons)]
    return [*(dict(vars(o)) for o in owners), *names]


CALLS: list[Any] = []


class Inheriting(TritonAutotuner):
    """A library's subclass that does something of its own and leaves tuning to Triton."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        CALLS.append(self)
        return super().run(*args, **kwargs)


class Renaming(TritonAutotuner):
    """The same, with the base class by its name."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return TritonAutotuner.run(self, *args, **kwargs)


class Overriding(TritonAutotuner):
    """A library's subclass with an engine of its own: it never calls Triton's."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.best_config = self.configs[-1]
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())


class Wrapper:
    """A library's wrapper: ``kernel[grid](...)`` by way of ``.fn``."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: self.fn.run(*args, grid=grid, warmup=False, **kwargs)


def tritons_own(kind: Any = TritonAutotuner, fn: Any = scale_kernel, **options: Any) -> Any:
    return kind(fn, fn.arg_names, configs(64, 128, 256), ["n"], None, None, **options)


def call(kernel: Any, *rest: Any) -> Any:
    x = torch.empty(N, device="cuda")
    return kernel[by_block](x, x, N, *(rest or (2.0,)))


def test_kernels_decorated_before_are_tuned(backend: FakeBackend) -> None:
    kernel = triton.autotune(configs(64, 128, 256), key=["n"])(scale_kernel)
    assert type(kernel) is TritonAutotuner
    with kerntune.install():
        call(kernel)
    assert kernel.best_config is kernel.configs[1]
    assert kernel.cache == {(N, "torch.float32", "torch.float32"): kernel.configs[1]}
    assert {c.kwargs["BLOCK"]: round(ms[0] * 1e6, -2) for c, ms in kernel.configs_timings.items()} == {
        64: 3000.0, 128: 1000.0, 256: 2000.0,
    }  # fmt: skip


def test_kernels_decorated_meanwhile_are_kerntunes(backend: FakeBackend) -> None:
    with kerntune.install():
        assert triton.autotune is triton.runtime.autotune is tritons.autotune is kerntune.autotune
        assert inspect.signature(triton.autotune) == inspect.signature(kerntune.autotune)
        kernel = triton.autotune(configs(64, 128, 256), key=["n"])(scale_kernel)
    assert isinstance(kernel, kerntune.Autotuner)
    call(kernel)
    assert kernel.best_config is kernel.configs[1]


def test_no_configs_are_tritons_default() -> None:
    theirs = triton.autotune([], key=[])(scale_kernel)
    with kerntune.install():
        assert triton.autotune([], key=[])(scale_kernel).configs == theirs.configs


def test_after_uninstalling_the_old_engine_runs(backend: FakeBackend) -> None:
    kernel, run = tritons_own(), TritonAutotuner.run
    with kerntune.install():
        assert TritonAutotuner.run is not run
    assert TritonAutotuner.run is run
    call(kernel)
    assert backend.gpu.launches == 0
    assert kernel.best_config is kernel.configs[0], "stand-ins' engine: the first config"


def test_winners_found_before_stay(backend: FakeBackend) -> None:
    kernel = tritons_own()
    kernel.cache[N, "torch.float32", "torch.float32"] = kernel.configs[2]
    with kerntune.install():
        call(kernel)
    assert backend.gpu.launches == 0
    assert kernel.best_config is kernel.configs[2]


@pytest.mark.parametrize("kind", [Inheriting, Renaming, Overriding])
def test_subclasses_are_taken_over(backend: FakeBackend, kind: Any) -> None:
    kernel = tritons_own(kind)
    CALLS.clear()
    with kerntune.install():
        call(kernel)
        call(kernel)
    assert kernel.best_config is kernel.configs[1]
    assert [kernel] * (2 if kind is Inheriting else 0) == CALLS
    call(kernel)
    assert kernel.best_config is kernel.configs[2 if kind is Overriding else 0], "its own engine again"


def test_subclasses_made_meanwhile_are_taken_over(backend: FakeBackend) -> None:
    with kerntune.install():

        class Late(TritonAutotuner):
            def run(self, *args: Any, **kwargs: Any) -> Any:
                return "its own"

        own = tritons_own(Late)
        call(own)
        assert own.best_config is own.configs[1]
    assert call(own) == "its own"


def test_heuristics_and_wrappers_lead_to_it(backend: FakeBackend) -> None:
    inner = triton.heuristics({"factor": lambda args: args["BLOCK"] / 2})(scale_kernel)
    under = tritons_own(fn=inner)
    over = triton.heuristics({"factor": lambda args: 3.0})(tritons_own())
    wrapped = Wrapper(Wrapper(tritons_own()))
    wrapped.fn.run = lambda *args, **kwargs: wrapped.fn.fn.run(*args, **kwargs)
    x = torch.empty(N, device="cuda")
    with kerntune.install():
        under[by_block](x, x, N)
        over[by_block](x, x, N)
        call(wrapped)
    for tuner in (under, over.fn, wrapped.fn.fn):
        assert tuner.best_config.kwargs["BLOCK"] == 128


@pytest.mark.parametrize("keep", [True, False])
def test_winners_of_tritons_decorator_are_kept_on_disk_if_wanted(
    backend: FakeBackend, tmp_path: Path, keep: bool
) -> None:
    with kerntune.install(cache_results=keep):
        call(tritons_own())
        assert len(WinnerCache(tmp_path).entries()) == keep
        launches = backend.gpu.launches
        call(tritons_own())
    assert (backend.gpu.launches == launches) == keep


def test_where_nothing_can_be_measured_triton_does_what_it_does(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "this_gpu", lambda: None)
    kernels = [tritons_own(), tritons_own(Inheriting), tritons_own(Overriding)]
    with kerntune.install():
        kernels.append(triton.autotune(configs(64, 128), key=["n"])(scale_kernel))
        for kernel in kernels:
            call(kernel)
    assert [k.best_config.kwargs["BLOCK"] for k in kernels] == [64, 64, 256, 64]


def test_a_capture_sees_candidates_meanwhile(backend: FakeBackend) -> None:
    kernels = [tritons_own(), tritons_own(Overriding)]
    with kerntune.install():
        capture = captured(backend, lambda: [call(k) for k in kernels])
    sites = [p.site for p in capture.launches]
    assert [len(s.candidates) for s in sites if s is not None] == [3, 3]


# undoing


def test_installations_nest(backend: FakeBackend) -> None:
    first, second = kerntune.install(), kerntune.install()
    first.uninstall()
    first.uninstall()
    assert install.is_installed()
    second.uninstall()
    assert not install.is_installed()


def test_the_first_installation_says_what_is_kept_and_who_launches(backend: FakeBackend) -> None:
    tuner = triton.autotune(configs(64, 128), key=["n"])(scale_kernel)
    own = triton.autotune(configs(64, 128), key=["n"])(scale_kernel)
    own.run = lambda *args, **words: None
    with kerntune.install(cache_results=False), kerntune.install(cache_results=True):
        engine, plain = context.engine_of(tuner), context.engine_of(own)
        assert engine is not None
        assert plain is not None
        assert (engine.keep, plain.keep) == (False, False)
        assert (isinstance(engine.path, LaunchPath), isinstance(plain.path, PlainPath)) == (True, True)
        assert vars(tuner)[install.PATH] is engine.path
    assert context.engine_of(tuner) is None
    assert install.PATH not in vars(tuner)
    assert (install._keeps, install._swaps, install._SLOW, len(install._prepared)) == ([], [], {}, 0)


def test_a_swap_puts_back_what_was_there_or_nothing() -> None:
    class Owner:
        named = 1

    for name, before in (("named", 1), ("other", install.MISSING)):
        swap = install.Swap(Owner, name, before, 2)
        assert not swap.holds()
        swap.apply()
        assert (swap.holds(), vars(Owner)[name]) == (True, 2)
        swap.undo()
        assert vars(Owner).get(name, install.MISSING) == before


def test_what_a_first_launch_waits_for_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr(launcher, "prepare_specializing", lambda: begun.append("gluon"))
    monkeypatch.setattr(context, "prepare_hashes", lambda: begun.append("hash"))
    for may, expected in ((True, ["gluon", "hash"]), (False, ["gluon"])):
        monkeypatch.setattr(context, "may_fork", lambda may=may: may)
        with kerntune.install():
            assert begun == expected
        begun.clear()


@pytest.mark.slow
def test_gluon_is_there_before_the_first_launch() -> None:
    script = "import sys, kerntune; kerntune.install(); print('triton.experimental.gluon' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_it_is_undone_when_the_body_fails() -> None:
    with pytest.raises(KeyError), kerntune.install():
        raise KeyError("body")


def test_undoing_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="isn't installed"):
        install.uninstall()


def test_it_does_not_undo_what_others_did_since() -> None:
    installed, run = kerntune.install(), TritonAutotuner.run
    TritonAutotuner.run = lambda self: None  # type: ignore[method-assign]
    with pytest.raises(UsageError, match=r"Autotuner\.run was replaced since"):
        installed.uninstall()
    assert install.is_installed()
    TritonAutotuner.run = run  # type: ignore[method-assign]
    installed.uninstall()


@pytest.mark.slow
def test_it_is_imported_when_asked_for() -> None:
    code = "import sys, kerntune; assert 'triton' not in sys.modules; kerntune.install(); import triton; "
    code += "assert triton.autotune is kerntune.autotune"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])
