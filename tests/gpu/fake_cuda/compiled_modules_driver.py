"""Runs modules of :mod:`compiled_modules`, in a process of its own, and prints what torch's compiler says of each.

python compiled_modules_driver.py plain NAME,NAME           CPU tensors, nothing of kerntune's, a process for each
python compiled_modules_driver.py gate NAME,NAME FOLDER     stand-ins, in the gate's captures, one after the other
python compiled_modules_driver.py alone NAME,NAME FOLDER    the same, a process for each
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

Said = dict[str, Any]


def counted() -> Said:
    """Graphs, the operators in them, and each break's reason: what Dynamo has counted."""
    from torch._dynamo.utils import counters

    breaks = {**counters["graph_break"], **counters["unimplemented"]}
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "operators": counters["stats"]["calls_captured"],
        "breaks": sorted((without_addresses(reason), count) for reason, count in breaks.items()),
    }


def without_addresses(reason: str) -> str:
    return re.sub(r"0x[0-9a-f]+|device='\w+(:\d+)?'", "", reason)


def run(name: str, device: str, call: Callable[..., Said]) -> Said:
    """``call(function, args)`` of a module that is made now; the error that it ended with, too."""
    import compiled_modules
    from torch._dynamo.utils import counters

    function, args = compiled_modules.MODULES[name](device)
    counters.clear()
    said: Said = {}
    try:
        said = call(function, args)
    except Exception as exc:
        said = {"error": f"{type(exc).__name__}: {without_addresses(str(exc)).splitlines()[0]}"}
    return {**said, **counted()}


def alone(names: list[str], find: Callable[[list[str]], dict[str, Said]]) -> dict[str, Said]:
    """Each in a process of its own: torch keeps more of earlier modules than it forgets."""
    found: dict[str, Said] = {}
    for name in names:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            with open(writer, "w") as file:
                json.dump(find([name]), file)
            os._exit(0)
        os.close(writer)
        with open(reader) as file:
            text = file.read()
        _, status = os.waitpid(child, 0)
        found |= json.loads(text) if status == 0 else {name: {"error": f"the process ended with {status}"}}
    return found


def plain(names: list[str]) -> dict[str, Said]:
    import torch

    compile_ = torch.compile

    def by_dynamo_alone(model: Any = None, **options: Any) -> Any:
        if model is None:
            return functools.partial(by_dynamo_alone, **options)
        return compile_(model, **{**options, "backend": "eager"})

    def call(function: Callable[..., Any], args: tuple[Any, ...]) -> Said:
        function(*args)
        return {}

    torch.compile = by_dynamo_alone
    return {name: run(name, "cpu", call) for name in names}


def gate(names: list[str], folder: Path) -> dict[str, Said]:
    from kerntune.base.policy import Policy
    from kerntune.gate.api import Call, Settings, open_session

    settings = Settings(folder, folder / "baselines", targets=("cuda:90",), cache_dir=folder / "cache")
    session = open_session(settings)
    session.start()

    def check(name: str, function: Any, args: Any) -> Said:
        checked = session.check(Call(f"test_it.py::test_{name}", "0", function, args, policy=Policy()))
        result = checked.result
        return {
            "verdict": result.verdict.value,
            "message": result.message,
            "kernels": [launch.kernel for launch in result.launches],
            "elsewhere": result.elsewhere,
        }

    try:
        return {name: run(name, "cuda", functools.partial(check, name)) for name in names}
    finally:
        session.close()


def main() -> None:
    mode, given, *folder = sys.argv[1:]
    names = given.split(",")
    import torch  # once, for all processes; of Dynamo, which stand-ins import as users' calls do, for plain torch alone

    if mode == "plain":
        torch._dynamo.reset()
        found = alone(names, plain)
    else:
        find = functools.partial(gate, folder=Path(folder[0]))
        found = alone(names, find) if mode == "alone" else find(names)
    print(json.dumps(found))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
