"""A process that calls a choice on the scripted GPU; what it does it says in lines, and waits for an answer to some.

Its one argument is how many milliseconds the implementation ``one`` takes; ``other`` takes 1. It says ``running`` when
an implementation is called first, ``waiting`` when it first waits for another process, and at the end what it has come
to.
"""

from __future__ import annotations

import json
import sys
import time
import types
from typing import Any

import torch

import kerntune
from kerntune.gpu.script import Script
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning import agreement, context

BACKEND: Any = FakeBackend(Script(()))
said: list[str] = []
calls: list[str] = []


def say(word: str) -> None:
    """Once; the answer is waited for."""
    if word not in said:
        said.append(word)
        print(word, flush=True)
        sys.stdin.readline()


def spend(name: str, ns: float) -> None:
    say("running")
    calls.append(name)
    BACKEND.gpu._clock += ns


def one(x: torch.Tensor) -> torch.Tensor:
    spend("one", float(sys.argv[1]) * 1e6)
    return x * 2


def other(x: torch.Tensor) -> torch.Tensor:
    spend("other", 1e6)
    return x + x


double = kerntune.choice([one, other], key=["x"])(lambda x: None)


def sleep(seconds: float) -> None:
    say("waiting")
    time.sleep(seconds)


if __name__ == "__main__":
    context.this_gpu = lambda: BACKEND
    agreement.time = types.SimpleNamespace(monotonic=time.monotonic, sleep=sleep)  # type: ignore[assignment]
    with BACKEND.activate():
        double(torch.ones(4))
    decision = double.operation.decisions[-1]
    print(json.dumps({"winner": decision.winner, "how": decision.how, "calls": calls}), flush=True)
