"""What a call leaves otherwise in its process and with its caller, and what it calls that is no launch or operator."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from kerntune.capture.operator_traits import TORCHS
from kerntune.referee.device_operators import precision_of_products
from kerntune.referee.reasons import Reason
from kerntune.referee.tasks import SETTINGS

DECLARE_NUMBERS = "; an input's numbers are known if they are declared: n: i32[3] = [5, 7, 9]"
"""What to do where the host's code depends on values."""


def settings_of_torch() -> dict[str, Any]:
    """What torch has for the whole program now, by its names."""
    cudnn = torch.backends.cudnn
    values = (
        torch.get_default_dtype(),
        (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        precision_of_products(),
        (cudnn.enabled, cudnn.benchmark, cudnn.deterministic),
        torch.is_grad_enabled(),
        torch.initial_seed(),
    )
    return dict(zip(SETTINGS, values, strict=True))


def seen_by_the_caller(given: Any) -> Any:
    """What a caller has of arguments beside their numbers: how tensors lie, which need gradients, what sequences and
    mappings hold."""
    if isinstance(given, torch.Tensor):
        return id(given), given.requires_grad, given.dtype, tuple(given.shape), given.stride()
    if isinstance(given, dict):
        return [(key, seen_by_the_caller(item)) for key, item in given.items()]
    if isinstance(given, (tuple, list)):
        return [seen_by_the_caller(item) for item in given]
    return repr(given)


def what_runs_behind() -> tuple[int, Sequence[Any]]:
    """How many threads there are, and what handles signals."""
    own = sum(one.name.startswith("kerntune-") for one in threading.enumerate())
    return _thread._count() - own, [signal.getsignal(number) for number in sorted(signal.valid_signals())]


def _noted_calls() -> Iterator[tuple[Any, str, Reason, str, Callable[..., bool]]]:
    """Functions that do what no launch or operator says: their owner, name and reason, what is said, and whether a call
    counts."""
    from torch._subclasses.fake_tensor import FakeTensor

    for name in ("stream", "set_stream", "_set_stream_by_id"):
        yield torch.cuda, name, Reason.STREAMS, "it chooses a stream", lambda *_, **__: True
    yield torch.cuda.CUDAGraph, "capture_begin", Reason.UNSEEN, "it captures a CUDA graph", lambda *_, **__: True
    for name in ("__setitem__", "byteswap", "copy_", "fill_", "resize_"):
        text = f"it changes a tensor by {name} of its storage, which no operator does"
        yield torch.UntypedStorage, name, Reason.UNSEEN, text, lambda one, *_, **__: one.device.type != "cpu"
    text = "it implements an operator of torch's anew"
    yield (
        torch.library.Library,
        "impl",
        Reason.UNSEEN,
        text,
        lambda one, *_, **__: one.ns in TORCHS and not _is_torchs(),
    )
    text = f"it needs the text of a tensor's value{DECLARE_NUMBERS}"
    yield FakeTensor, "__format__", Reason.VALUES, text, lambda one, *_: one.numel() == 1


def _is_torchs() -> bool:
    """Whether the noted call comes from torch, which implements some when they are needed first."""
    return str(sys._getframe(3).f_globals.get("__name__")).partition(".")[0] == "torch"


@contextlib.contextmanager
def calls_noted() -> Iterator[list[tuple[Reason, str]]]:
    """Which of these functions are called meanwhile: a reason and a sentence each."""
    found: list[tuple[Reason, str]] = []

    def noting(original: Any, reason: Reason, text: str, counts: Callable[..., bool]) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if counts(*args, **kwargs):
                found.append((reason, text))
            return original(*args, **kwargs)

        return call

    with contextlib.ExitStack() as stack:
        for owner, name, reason, text, counts in _noted_calls():
            original = getattr(owner, name)
            stack.callback(setattr, owner, name, original)
            setattr(owner, name, noting(original, reason, text, counts))
        yield found
