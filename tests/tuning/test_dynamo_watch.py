"""torch's compiler is taught tuned kernels when it is imported: not before, and not if it lacks a part."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kerntune.tuning.dynamo_watch as watch
from kerntune.kernels.compat import torch_private
from kerntune.tuning.dynamo_watch import AfterImport

PROGRAM = """
import sys, torch, triton, kerntune
from kerntune.kernels.compat import torch_private

@triton.jit
def kernel(x, BLOCK): pass

found = list(sys.meta_path)
assert "torch._dynamo" not in sys.modules
import torch._higher_order_ops.triton_kernel_wrap as wrap
before = wrap.TritonHOPifier.call_triton_kernel
kerntune.autotune([triton.Config({"BLOCK": b}) for b in (1, 2)], key=[])(kernel)
kerntune.autotune([triton.Config({"BLOCK": b}) for b in (1, 2)], key=[])(kernel)
assert [type(f).__name__ for f in sys.meta_path if f not in found] == ["AfterImport", "AfterImport"]
assert "torch._dynamo" not in sys.modules
assert not [name for name in sys.modules if name.startswith("kerntune.tuning.torch_compile")]
assert wrap.TritonHOPifier.call_triton_kernel is before
import torch._dynamo
import torch._functorch._aot_autograd.autograd_cache
assert sys.meta_path == found
assert wrap.TritonHOPifier.call_triton_kernel is not before
assert torch_private.missing_parts() == ()
print("taught")
"""


@pytest.mark.slow
def test_nothing_is_replaced_before_dynamo_is_imported(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "taught", done.stderr


def test_what_is_imported_is_the_module_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kerntune_tests_watched.py").write_text("value = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[int] = []
    finder = AfterImport("kerntune_tests_watched", lambda: seen.append(sys.modules["kerntune_tests_watched"].value), "")
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    import kerntune_tests_watched  # type: ignore[import-not-found]

    assert seen == [1]
    assert type(kerntune_tests_watched.__loader__).__name__ == "SourceFileLoader"
    assert kerntune_tests_watched.__spec__.loader is kerntune_tests_watched.__loader__
    assert "exec_module" not in vars(kerntune_tests_watched.__loader__)
    assert finder not in sys.meta_path
    monkeypatch.delitem(sys.modules, "kerntune_tests_watched")


@pytest.mark.parametrize("strict", [False, True])
def test_an_import_goes_on_whatever_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strict: bool) -> None:
    (tmp_path / "kerntune_tests_failing.py").write_text("value = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    finder = AfterImport("kerntune_tests_failing", lambda: {}["moved"], "tuned kernels are left to torch")
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("error" if strict else "always")
        import kerntune_tests_failing  # type: ignore[import-not-found]
    monkeypatch.delitem(sys.modules, "kerntune_tests_failing")
    assert kerntune_tests_failing.value == 1
    assert [str(w.message) for w in seen] == (
        [] if strict else ["kerntune: tuned kernels are left to torch (KeyError: 'moved')"]
    )


def test_a_torch_that_lacks_a_part_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from kerntune.tuning.torch_compile import hook_in

    class Hopifier:
        def call_triton_kernel(self, other: Any) -> None: ...

    module = SimpleNamespace(TritonHOPifier=Hopifier)
    before = dict(vars(Hopifier))
    monkeypatch.setitem(sys.modules, torch_private.WRAP, module)
    part = next(p for p in torch_private.PARTS if p.path == "TritonHOPifier.call_triton_kernel")
    monkeypatch.setattr(torch_private, "GRAPH_PARTS", (part,))
    with pytest.warns(
        RuntimeWarning, match=r"this torch has no .*TritonHOPifier\.call_triton_kernel as .*kernel_calls"
    ):
        hook_in.teach_tracing()
    assert dict(vars(Hopifier)) == before


def test_watching_twice_is_watching_once() -> None:
    watch.watch_dynamo()
    before = list(sys.meta_path)
    watch.watch_dynamo()
    assert sys.meta_path == before


def test_what_is_loaded_is_taught_at_once_and_the_rest_first_of_all_finders(monkeypatch: pytest.MonkeyPatch) -> None:
    taught: list[str] = []
    monkeypatch.setattr(watch, "_watched", set())
    monkeypatch.setattr(sys, "meta_path", before := list(sys.meta_path))
    others = list(before)
    monkeypatch.setattr(torch_private, "DYNAMO", "json")
    monkeypatch.setattr(torch_private, "AOT_CACHE", "kerntune_tests_later")
    monkeypatch.setattr(watch, "_teach_tracing", lambda: taught.append("tracing"))
    monkeypatch.setattr(watch, "_teach_cache", lambda: taught.append("cache"))
    for _ in range(2):
        watch.watch_dynamo()
    finder, *rest = sys.meta_path
    assert (taught, rest, watch._watched) == (["tracing"], others, {"json", "kerntune_tests_later"})
    assert isinstance(finder, AfterImport)
    assert finder.find_spec("json") is None
    assert finder in sys.meta_path
    finder._then()
    assert taught == ["tracing", "cache"]


@pytest.mark.parametrize("name", ["teach_tracing", "teach_cache"])
def test_what_is_taught_is_taught_by_the_package_for_graphs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kerntune.tuning.torch_compile import hook_in

    taught: list[str] = []
    monkeypatch.setattr(hook_in, name, lambda: taught.append(name))
    getattr(watch, f"_{name}")()
    assert taught == [name]
