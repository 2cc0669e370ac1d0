"""Checks compiled functions without a GPU, in a process of its own: stand-ins and torch's compiler change a process.

    python compiled_driver.py FOLDER

It prints one JSON object: results by step, and what was left behind in torch.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kerntune.base.policy import Policy
from kerntune.gate.api import Call, Session, Settings, open_session
from kerntune.gpu.scripted import FakeBackend


def functions() -> dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]]:
    import torch
    import torch.nn.functional as F

    def tensor(*shape: int, **options: Any) -> Any:
        return torch.randn(*shape, device="cuda", **options)

    def waves(x: Any) -> Any:
        return torch.cos(torch.sin(x) * 2) + x.sum(-1, keepdim=True)

    def renamed(values: Any) -> Any:
        inner = torch.sin(values)
        total = values.sum(dim=-1, keepdim=True)
        return torch.cos(inner * 2) + total

    def divided(x: Any) -> Any:
        inner = torch.sin(x) * 2
        torch._dynamo.graph_break()
        return torch.cos(inner) + x.sum(-1, keepdim=True)

    def after_another(x: Any) -> Any:
        other(x[:16])
        return compiled_waves(x)

    def scores(x: Any, y: Any) -> Any:
        return F.gelu(x @ y)

    def step(x: Any, weight: Any) -> None:
        trained(x, weight).sum().backward()

    def made_on_the_way(x: Any) -> Any:
        return compiled_waves(x + torch.zeros(x.shape[-1], device="cuda"))

    def doubled(x: Any) -> Any:
        return (torch.softmax(x, -1) * 2).sum(-1)

    def in_place() -> Any:
        model = torch.nn.Sequential(torch.nn.LayerNorm(128), torch.nn.GELU()).cuda()
        model.compile()
        return model

    def around(x: Any) -> Any:
        return disabled(x)

    disabled = torch.compiler.disable(waves)

    def apart(x: Any, y: Any) -> Any:
        return torch.sin(x), torch.cos(y)

    def broken(graph: Any) -> None:
        raise RuntimeError("planted")

    combined = torch.compile(apart, options={"combo_kernels": True, "benchmark_combo_kernel": True})
    other, compiled_waves = torch.compile(lambda x: torch.sqrt(x.sum(0))), torch.compile(waves)
    trained = torch.compile(lambda x, weight: F.layer_norm(x, (256,), weight))
    rows = (512, 1024)
    return {
        "waves": lambda: (torch.compile(waves), (tensor(*rows),)),
        "waves renamed": lambda: (torch.compile(renamed), (tensor(*rows),)),
        "waves divided": lambda: (torch.compile(divided), (tensor(*rows),)),
        "waves after another": lambda: (after_another, (tensor(*rows),)),
        "waves of a sum": lambda: (made_on_the_way, (tensor(*rows),)),
        "matmul": lambda: (torch.compile(scores), (tensor(512, 512), tensor(512, 512))),
        "matmul tuned": lambda: (torch.compile(scores, mode="max-autotune"), (tensor(512, 512), tensor(512, 512))),
        "step": lambda: (step, (tensor(64, 256, requires_grad=True), tensor(256, requires_grad=True))),
        "dynamic": lambda: (torch.compile(lambda x: torch.softmax(x, -1), dynamic=True), (tensor(300, 500),)),
        "module": lambda: (torch.compile(torch.nn.LayerNorm(128).cuda()), (tensor(32, 128),)),
        "several kernels": lambda: (torch.compile(doubled, options={"triton.multi_kernel": 1}), (tensor(512, 512),)),
        "timed fusion": lambda: (torch.compile(doubled, options={"benchmark_fusion": True}), (tensor(512, 512),)),
        "timed combination": lambda: (lambda *args: combined(*args)[0], (tensor(512, 512), tensor(256, 512))),
        "unaligned": lambda: (torch.compile(scores), (tensor(2047, 4095), tensor(4095, 4097))),
        "in C++": lambda: (torch.compile(doubled, options={"cpp_wrapper": True}), (tensor(512, 512),)),
        "broken": lambda: (torch.compile(doubled, options={"post_grad_custom_pre_pass": broken}), (tensor(512, 512),)),
        "whole": lambda: (torch.compile(divided, fullgraph=True), (tensor(*rows),)),
        "in place": lambda: (in_place(), (tensor(32, 128),)),
        "products alone": lambda: (torch.compile(lambda x, y: x @ y), (tensor(512, 512), tensor(512, 512))),
        "left alone": lambda: (torch.compile(around), (tensor(*rows),)),
        "not by inductor": lambda: (torch.compile(waves, backend="eager"), (tensor(*rows),)),
    }


def check(session: Session, name: str, made: tuple[Callable[..., Any], tuple[Any, ...]]) -> dict[str, Any]:
    function, args = made
    checked = session.check(Call(f"test_it.py::test_{name}", "0", function, args, policy=Policy()))
    checked.commit()
    result = checked.result
    return {
        "verdict": result.verdict.value,
        "message": result.message,
        "kernels": [launch.kernel for launch in result.launches],
        "origins": [list(launch.origins) for launch in result.launches],
        "registers": [launch.registers for launch in result.launches],
        "grids": [launch.grid for launch in result.launches],
        "elsewhere": result.elsewhere,
        "configs": len(result.configs),
        "warnings": list(result.warnings),
        "remarks": list(result.remarks),
        "shape": list(getattr(checked.value, "shape", ())),
    }


def left_behind() -> dict[str, Any]:
    import torch
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor.output_code import CompiledFxGraph
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    return {
        "compile": torch.compile.__module__,
        "run": CachingAutotuner.run.__module__,
        "graph": CompiledFxGraph.__call__.__module__,
        "available": torch.cuda.is_available() or CudaInterface.is_available(),
        "properties": CudaInterface.get_device_properties.__module__,
        "folder": os.environ.get("TRITON_CACHE_DIR"),
    }


def scripted(folder: Path) -> dict[str, Any]:
    """The same on the scripted GPU: a time each, and a replay of what has changed."""
    session = open_session(Settings(folder, folder / "baselines", cache_dir=folder / "cache"), FakeBackend())
    session.start()
    try:
        known = functions()
        return {
            "record": check(session, "waves", known["waves"]()),
            "again": check(session, "waves", known["waves"]()),
            "divided": check(session, "waves", known["waves divided"]()),
        }
    finally:
        session.close()


def main() -> None:
    folder = Path(sys.argv[1])
    settings = Settings(folder, folder / "baselines", targets=("cuda:90",), cache_dir=folder / "cache")
    steps: dict[str, Any] = {}
    session = open_session(settings)
    session.start()
    try:
        known = functions()
        alone = ("waves", "matmul", "matmul tuned", "step", "dynamic", "module", "waves of a sum", "not by inductor")
        steps["record"] = {name: check(session, name, known[name]()) for name in alone}
        for name in ("in place", "products alone", "left alone"):
            steps["record"][name] = check(session, name, known[name]())
        for name in ("several kernels", "timed fusion", "timed combination", "unaligned", "in C++", "broken"):
            steps["record"][name] = check(session, name, known[name]())
        try:
            steps["raised"] = check(session, "whole", known["whole"]())
        except Exception as exc:
            steps["raised"] = type(exc).__name__
        steps["again"] = {name: check(session, name, known[name]()) for name in ("waves", "matmul", "step")}
        edits = ("waves renamed", "waves divided", "waves after another")
        steps["edited"] = {name: check(session, "waves", known[name]()) for name in edits}
    finally:
        session.close()
    steps["scripted"] = scripted(folder / "scripted")
    print(json.dumps({"steps": steps, "left": left_behind()}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
