"""The private parts of torch that kerntune uses: which of them this torch lacks, by name."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from kerntune.kernels.compat import torch_private
from kerntune.kernels.compat.torch_private import PARTS, PrivatePart, missing_parts

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.*is deprecated:DeprecationWarning")
"""Inductor warns of what it imports itself."""


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_this_torch_has_it(part: PrivatePart) -> None:
    moved = missing_parts([part])
    assert not moved, (
        f"torch's {part.name} has moved: {part.user} uses it ({part.parameters}); without it {part.breaks}"
    )


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_what_uses_it_exists(part: PrivatePart) -> None:
    assert (ROOT / part.user).is_file()
    assert part.breaks


def test_each_stands_there_once() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS)


def test_a_part_that_is_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._higher_order_ops.triton_kernel_wrap as wrap

    monkeypatch.delattr(wrap.TritonHOPifier, "call_triton_kernel")
    assert [part.path for part in missing_parts()] == ["TritonHOPifier.call_triton_kernel"]


def test_a_parameter_with_another_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._higher_order_ops.triton_kernel_wrap as wrap

    monkeypatch.setattr(wrap.TritonHOPifier, "raise_unsupported", lambda self, message: None)
    assert [part.path for part in missing_parts()] == ["TritonHOPifier.raise_unsupported"]


def test_a_module_that_is_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "_modules", lambda: {})
    assert missing_parts() == PARTS


def test_no_other_module_imports_private_modules_of_torchs_compiler() -> None:
    """They move with every release."""
    compilers = re.compile(
        r"^\s*(?:from|import) torch\._(?:dynamo|inductor|functorch|higher_order_ops|library)\b", re.M
    )
    users = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "kerntune").rglob("*.py")
        if compilers.search(path.read_text(encoding="utf-8"))
    }
    assert users - FAKE_CUDA == {"kerntune/kernels/compat/torch_private.py"}


FAKE_CUDA = {"kerntune/gpu/fake_cuda/" + name for name in ("dynamo.py", "ops.py", "session.py")} | {
    "kerntune/gpu/interpreter/session.py"
}
"""Stand-ins for CUDA tensors have their own dealings with torch."""


def test_a_graph_is_warmed_up_only_where_torch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    managers: dict[int, Any] = {0: SimpleNamespace(in_warmup=True), 1: SimpleNamespace(in_warmup=False), 2: None}
    trees = SimpleNamespace(get_manager=lambda device, create_if_none_exists: managers[device])
    monkeypatch.setitem(torch_private.sys.modules, torch_private.TREES, trees)
    assert [torch_private.warms_up_for_graph(device) for device in (0, 1, 2)] == [True, False, False]
    monkeypatch.delitem(torch_private.sys.modules, torch_private.TREES)
    assert not torch_private.warms_up_for_graph(0)
