"""Runs tests' kernels in Triton's interpreter, process-wide, and undoes all changes afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch._dynamo  # lists torch.cuda's functions when it is imported: before they are replaced
from torch._library.triton import set_wrap_triton_enabled

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.base.users_line import chain
from kerntune.errors import InterpreterLimit
from kerntune.gpu.fake_cuda.autograd import replace_engine
from kerntune.gpu.fake_cuda.cuda_api import install_cuda
from kerntune.gpu.fake_cuda.driver import DeviceNumbers, install_driver
from kerntune.gpu.fake_cuda.loading import install_restoring
from kerntune.gpu.fake_cuda.modes import RealImplementations, entered
from kerntune.gpu.fake_cuda.patches import replace
from kerntune.gpu.fake_cuda.session import alone, run_eagerly
from kerntune.gpu.interpreter.language import Language
from kerntune.gpu.interpreter.launches import NEVER_ENDS_SECONDS, InterpretedLaunches
from kerntune.gpu.interpreter.placement import CpuExecutionMode, GpuPlacementMode, GpuStorages


class Interpreter:
    """While active, ``device="cuda"`` makes tensors in the CPU's memory that are reported as on a GPU, torch and Triton
    report the device ``spec``, and kernels run in Triton's interpreter, also those that were decorated before.
    Everything is process-wide, except that torch's modes are per thread.

    Not detected: races between programs (they run one after the other), asynchronous copies, tf32 (products are exact).
    """

    def __init__(self, spec: DeviceSpec, limit: float = NEVER_ENDS_SECONDS) -> None:
        """``limit``: seconds of wall time after which a launch is ended, 0 for none."""
        self.spec = spec
        self._language = Language()
        self._launches = InterpretedLaunches(spec, self._language, limit=limit)
        self._operators = RealImplementations(self._entered_modes)
        storages = GpuStorages()
        self._storages = storages
        self._on_cpu = CpuExecutionMode(storages, self._operators.find)
        self._placement_mode = GpuPlacementMode(storages)

    @property
    def launched(self) -> int:
        """Kernels that have run so far."""
        return self._launches.count

    def given(self, candidates: Mapping[str, tuple[Config, ...]]) -> contextlib.AbstractContextManager[None]:
        """Meanwhile, bare kernels of these names run with the first of their candidates."""
        return self._launches.given(candidates)

    @contextlib.contextmanager
    def activate(self) -> Iterator[None]:
        """Install everything until the context closes. Activate before users' modules are imported, since these check
        for a GPU.

        :class:`UsageError` if fake CUDA tensors are active.
        """
        with alone(), contextlib.ExitStack() as stack:
            numbers = DeviceNumbers((self.spec,))
            install_cuda(stack, numbers)
            self._language.install(stack)
            self._launches.install(stack)
            self._operators.install(stack)
            install_driver(stack, numbers)
            self._install_torch(stack)
            install_restoring(stack, self._storages.put_storage, self._storages.has_storage)
            stack.enter_context(self._entered_modes())
            yield

    def _install_torch(self, stack: contextlib.ExitStack) -> None:
        original = torch.autograd._engine_run_backward

        def backward(*args: Any, **kwargs: Any) -> Any:
            with entered(self._placement_mode):  # torch has taken it off on the way here
                return original(*args, **kwargs)

        replace_engine(stack, backward)
        replace(stack, torch, "compile", run_eagerly)
        stack.enter_context(set_wrap_triton_enabled(False))

    def _entered_modes(self) -> contextlib.AbstractContextManager[None]:
        return entered(self._on_cpu, self._placement_mode)


def limit_of(error: BaseException | None) -> InterpreterLimit | None:
    """The :class:`InterpreterLimit` in the causes of an error, if there is one."""
    return next((link for link in chain(error) if isinstance(link, InterpreterLimit)), None)
