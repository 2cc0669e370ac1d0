"""Kernels compiled for GPUs that this machine need not have."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kerntune.base.device import Target

Compile = Callable[..., Any]

_HEADER = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n"


@pytest.fixture(scope="package", autouse=True)
def _own_triton_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns when it is unset
        yield


@pytest.fixture(scope="session")
def compile_source(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """``compile_source(text, name, types, where, options, file=, **constants)`` gives Triton's compiled kernel.

    ``text`` defines the kernel ``name``; it goes to a file of its own, since Triton reads sources from files.
    """
    pytest.importorskip("triton")
    numbers = itertools.count()

    @functools.cache
    def compile_once(
        text: str,
        name: str,
        types: str,
        where: str,
        options: tuple[tuple[str, Any], ...],
        file: str,
        **constants: Any,
    ) -> Any:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        path = tmp_path_factory.mktemp("source") / file
        kernel = getattr(_module(path, _HEADER + textwrap.dedent(text), next(numbers)), name)
        free = [p for p in kernel.arg_names if p not in constants]
        given = dict(zip(free, types.split(), strict=True)) | dict.fromkeys(constants, "constexpr")
        source = ASTSource(kernel, {p: given[p] for p in kernel.arg_names}, constants, {})
        target = Target.parse(where)
        gpu = GPUTarget(target.backend, target.triton_arch, target.warp_size)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_ALWAYS_COMPILE", "1")  # Triton's cache forgets paths, which is what some tests change
            return triton.compile(source, target=gpu, options=dict(options))

    def compile_source(
        text: str,
        name: str,
        types: str,
        where: str,
        options: dict[str, Any] | None = None,
        file: str = "kernels.py",
        **constants: Any,
    ) -> Any:
        return compile_once(text, name, types, where, tuple((options or {}).items()), file, **constants)

    return compile_source


def _module(path: Path, text: str, number: int) -> Any:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(f"kernels_{number}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
