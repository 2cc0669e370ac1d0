"""A GPU that runs nothing any more in this process: found out, and said once, with what was launched last."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from kerntune.base.device import Target
from kerntune.capture.capture import Capture, last_capture
from kerntune.capture.launch import Pending
from kerntune.errors import DeviceFault, UsageError
from kerntune.gpu.base import Executor
from kerntune.kernels.source import text_of
from kerntune.kernels.specialize import Specialized

MAX_LAUNCHES = 8
"""Launches that a message names; the last ones. A fault is reported by a later call of the driver, so each of a call's
launches may be the one."""

ADVICE = (
    "A fault of a kernel (illegal address, trap, failed assertion) ends everything that its process does on the GPU. "
    "`compute-sanitizer pytest ...` says where it is; tests under `pytest -n1` (pytest-xdist) go on in a new process"
)


def lost(gpu: Executor | None) -> str:
    """Why ``gpu`` no longer answers; empty while it does, and where there is none.

    What was enqueued is waited for: so a fault of it shows. The driver gives its error to every later call.
    """
    if gpu is None:
        return ""
    try:
        gpu.synchronize()
    except Exception as exc:
        return str(exc)
    return ""


class Fault:
    """What is known of a GPU that runs nothing any more."""

    def __init__(self, gpu: Executor | None) -> None:
        self._gpus, self._known = [] if gpu is None else [gpu], ""

    def watch(self, gpu: Executor) -> None:
        """Ask this one, too: a process may use several."""
        if gpu not in self._gpus:
            self._gpus.append(gpu)

    def _lost(self) -> str:
        return next(filter(None, map(lost, self._gpus)), "")

    def known(self, ask: bool) -> str:
        """The first reason, from the device itself if nothing was known; empty while it answers."""
        if ask and not self._known:
            self._known = self._lost()
        return self._known

    @contextlib.contextmanager
    def named(self, case: object) -> Iterator[None]:
        """Whatever is raised while the GPU stops answering becomes one :class:`DeviceFault` that names ``case`` and
        what it launched. Errors on a device that answers stay what they are."""
        before = last_capture()
        try:
            yield
        except Exception as exc:
            why = self._lost()
            if not why:
                raise
            last = last_capture()
            mine = last() if last is not None and last is not before else None
            reason = f"{launched_text(mine)} ({why})"
            self._known = self._known or reason
            raise DeviceFault(f"{case}: the GPU runs nothing any more {reason}. {ADVICE}") from exc


def launched_text(capture: Capture | None) -> str:
    """``after kernel add with BLOCK=64 num_warps=4 on grid (16, 1, 1)``: a call's launches, the last ones of many."""
    launches = [] if capture is None else _launched(capture)
    if capture is None or not launches:
        return "before a kernel was launched in this call: a kernel of an earlier one, or what else the process ran"
    shown = [_text(p, capture.backend.targets[0]) for p in launches[-MAX_LAUNCHES:]]
    if len(launches) == 1:
        return f"after {shown[0]}"
    more = f"{len(launches) - len(shown)} others and " if len(launches) > len(shown) else ""
    return f"after {more}one of: {'; '.join(shown)}"


def _launched(capture: Capture) -> list[Pending]:
    """Those that ran, and the latest, which is kept only when it is over. Compared by identity: equality would compare
    the tensors of two launches, on a device that answers no more."""
    launches, latest = [p for p in capture.launches if p.ran], capture.latest
    return launches if latest is None or any(p is latest for p in launches) else [*launches, latest]


def _text(launch: Pending, target: Target) -> str:
    return f"kernel {launch.kernel} with {_config(launch, target)} on grid {launch.grid}"


def _config(launch: Pending, target: Target) -> str:
    """The candidate that was launched; of a launch with fixed parameters these, and the compiler's options."""
    if launch.site is not None:
        return str(launch.site.candidates[launch.site.chosen].config)
    found = launch.specialized.get(target)
    if not isinstance(found, Specialized):
        return "an unknown config"
    fixed = {p.name: found.bound.get(p.name) for p in found.jit.params if p.is_constexpr}
    words = {**fixed, "num_warps": found.options.num_warps, "num_stages": getattr(found.options, "num_stages", None)}
    return " ".join(f"{name}={text_of(value)}" for name, value in words.items() if value is not None)


def beside_verdict(otherwise: str, step: Callable[[], object], gpu: Executor | None) -> list[str]:
    """Do something beside a verdict, which stands whatever comes of it: why it could not be done, as a warning. Raises
    where the device is lost, and for what the user asked wrongly."""
    try:
        step()
    except UsageError:
        raise
    except Exception as exc:
        if gpu is not None:
            gpu.synchronize()
        return [f"{otherwise}: {type(exc).__name__}: {exc}"]
    return []
