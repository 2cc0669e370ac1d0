"""torch's compiler isn't imported for stand-ins, and is complete when it is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import PREAMBLE, run_python

pytestmark = pytest.mark.slow

OPERATORS = """
import sys
with stand_ins().activate():
    x = torch.randn(64, 64, device="cuda", requires_grad=True)
    y = torch.nn.functional.layer_norm(x, (64,)).softmax(-1) * x[1:2] + torch.arange(64, device="cuda")
    y.flatten().sum().backward()
    assert x.grad.shape == x.shape and x.grad.is_cuda
    K.Square.apply(x).sum().backward()
    assert torch.equal(torch.zeros(3) + 1, torch.ones(3))
"""


def run_fresh(tmp_path: Path, body: str) -> str:
    """In a Python that has imported nothing yet; the copies that other tests use have torch's compiler."""
    script = tmp_path / "script.py"
    script.write_text(PREAMBLE + body)
    done = run_python(str(script), cwd=tmp_path)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_stand_ins_leave_it_out(tmp_path: Path) -> None:
    body = OPERATORS + "print([name for name in sys.modules if name.startswith('torch._dynamo')])"
    assert run_fresh(tmp_path, body).strip() == "['torch._dynamo.config']"


def test_who_asks_gets_it_even_among_stand_ins(tmp_path: Path) -> None:
    """Its rules list functions of ``torch.cuda``, which are stubs by then."""
    run_fresh(
        tmp_path,
        OPERATORS
        + """
with stand_ins().activate():
    torch._dynamo.config.suppress_errors = True
    assert "torch._dynamo" not in sys.modules
    assert callable(torch._dynamo.graph_break)
    module = sys.modules["torch._dynamo"]
    assert torch._dynamo is module and module.config is sys.modules["torch._dynamo.config"]
    assert torch._dynamo.config.suppress_errors and module.config.suppress_errors
    import torch._dynamo.utils
    (x * 2).sum().backward()
    assert callable(torch._dynamo.disable)
""",
    )


def test_after_stand_ins_it_compiles(tmp_path: Path) -> None:
    """Operators that ran without it are still excluded from tracing once it is imported."""
    run_fresh(
        tmp_path,
        OPERATORS
        + """
import torch._dynamo
assert type(torch._dynamo).__name__ == "module"
seen = []
def backend(graph, inputs):
    seen.append(graph)
    return graph.forward
compiled = torch.compile(lambda x: torch.nn.functional.softmax(x * 2 + 1, -1), backend=backend)
x = torch.randn(8, 8)
assert torch.allclose(compiled(x), (x * 2 + 1).softmax(-1)) and len(seen) == 1
""",
    )


def test_a_patched_attribute_is_its_own(tmp_path: Path) -> None:
    run_fresh(
        tmp_path,
        OPERATORS
        + """
held = torch._dynamo
held.spare = 1
assert sys.modules["torch._dynamo"].spare == 1 and torch._dynamo.spare == 1
del held.spare
assert not hasattr(torch._dynamo, "spare") and not hasattr(held, "spare")
""",
    )
