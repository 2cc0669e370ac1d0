"""Launches that stop before the device: arguments are bound and hooks run, but the kernel isn't executed.

The resources that a compiled kernel needs are read from its binary without loading it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property, partial
from typing import Any, NamedTuple

import triton
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from kerntune.base.device import DeviceSpec
from kerntune.compiling.binary.elf import cubin_resources
from kerntune.compiling.frontend import request_of
from kerntune.compiling.protocol import facts_of
from kerntune.gpu.fake_cuda.driver import DeviceNumbers
from kerntune.gpu.fake_cuda.patches import replace
from kerntune.gpu.fake_cuda.placement import KnownValues
from kerntune.kernels.access import Access
from kerntune.kernels.compat import launch_environment, launcher, triton_compiler, tuners
from kerntune.kernels.specialize import Specialized, pointer_arguments


class Resources(NamedTuple):
    """Registers of a thread, and its spills in 32-bit words as Triton counts them (for NVIDIA: the stack frame)."""

    registers: int
    spills: int


def resources(asm: dict[str, Any]) -> Resources:
    """The resources of a compiled kernel, from ``CompiledKernel.asm``; ``ValueError`` if it holds no known binary."""
    if "cubin" in asm:
        found = cubin_resources(asm["cubin"])
        return Resources(found.registers, found.frame_bytes // 4)
    if "amdgcn" in asm:
        text = asm["amdgcn"]
        return Resources(_amd_field(text, "vgpr_count"), _amd_field(text, "vgpr_spill_count"))
    raise ValueError(f"no cubin and no amdgcn text among {sorted(asm)}")


def _amd_field(text: str, name: str) -> int:
    match = re.search(rf"^[ \t]*\.{name}:\s*(\d+)", text, re.MULTILINE)
    return int(match[1]) if match else 0


RUN_OPTIONS = ("instrumentation_mode", "fpsan_homomorphic_casts")
"""Knobs that :func:`kerntune.kernels.compat.launcher.run_options` passes as keywords (3.6: the first; 3.9: both)."""


class Unlaunched:
    """The result of a launch or a warm-up; it is compiled when an attribute is read that only a compiled kernel has.

    It has the attributes of ``triton.compiler.CompiledKernel`` (``asm``, ``metadata``, ``name``, ``hash``, ``src``),
    and those of a loaded kernel: ``n_regs``, ``n_spills``, ``n_max_threads``.
    """

    function = module = None

    def __init__(self, compile_now: Callable[[], Any], spec: DeviceSpec, again: Callable[..., Any]) -> None:
        self._compile_now = compile_now
        self._spec = spec
        self._again = again

    @cached_property
    def compiled(self) -> Any:
        """The compiled kernel; never loaded."""
        return self._compile_now()

    @property
    def n_regs(self) -> int:
        """Registers of a thread."""
        return resources(self.compiled.asm).registers

    @property
    def n_spills(self) -> int:
        """Spilled 32-bit words of a thread, as Triton counts them."""
        return resources(self.compiled.asm).spills

    @property
    def n_max_threads(self) -> int:
        """Threads of the largest block whose registers fit, in whole warps."""
        fitting = self._spec.registers_per_sm // max(1, self.n_regs) // self._spec.warp_size * self._spec.warp_size
        return min(self._spec.max_threads_per_block, fitting)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.compiled, name)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """As ``CompiledKernel``'s, for wrappers that keep compiled kernels: the launch is bound like any other."""
        return lambda *args, stream=None: self._again(*args, grid=tuple(grid))

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Nothing runs."""

    def _init_handles(self) -> None:
        """Nothing is loaded."""


class CapturedLaunches:
    """Replaces ``JITFunction.run`` and ``Autotuner.run``.

    ``specializing()`` is entered while Triton's binder asks arguments for their addresses; ``known`` learns what a
    launch may have written.
    """

    def __init__(
        self,
        numbers: DeviceNumbers,
        specializing: Callable[[], AbstractContextManager[None]],
        known: KnownValues,
    ) -> None:
        self._numbers = numbers
        self._specializing = specializing
        self._known = known
        self._binders: dict[tuple[int, Any], tuple[Any, Callable[..., Any]]] = {}
        self.access_of: Callable[[Specialized], Access] | None = None
        """How it is found out what a launch's kernel writes; None: it is compiled in this process."""

    def install(self, stack: ExitStack) -> None:
        """Nothing is launched until ``stack`` closes."""
        replace(stack, JITFunction, "run", lambda kernel, /, *args, **kwargs: self.run(kernel, *args, **kwargs))
        replace(stack, Autotuner, "run", run_first)

    def run(self, kernel: Any, /, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Unlaunched:
        """As ``JITFunction.run``, up to the launch: wrong arguments, a failing grid, a failing warm-up raise."""
        kwargs = launcher.run_options(kernel, kwargs)
        for hook in kernel.pre_run_hooks:
            hook(*args, **kwargs)
        spec = self._numbers.spec()
        backend = triton_compiler.make_backend(triton_compiler.gpu_target(spec.target))
        with self._specializing():
            known = id(kernel), spec.target
            if known not in self._binders:  # those of ``kernel.device_caches`` outlive the stand-ins
                self._binders[known] = (kernel, launcher.binder_of(kernel, backend))
            bound, specialization, options = self._binders[known][1](*args, **kwargs)
        if callable(grid) and not warmup:
            grid(bound)
        parsed, signature, constexprs, attributes = launcher.pack_args(
            kernel, backend, kwargs, bound, specialization, options
        )
        settings = launch_environment.compiler_settings(spec.target.backend)
        made = Specialized(kernel, spec.target, bound, signature, constexprs, attributes, parsed, settings)
        again = partial(launch_again, kernel, kwargs)
        launch = Unlaunched(partial(compiled_by_triton, made.without_arguments()), spec, again)
        if warmup:
            _ = launch.compiled
        else:
            self._known.launched(pointer_arguments(made), lambda: self._access(made, launch))
        return launch

    def _access(self, made: Specialized, launch: Unlaunched) -> Access:
        if self.access_of is not None:
            return self.access_of(made)
        return facts_of(made.target, launch.compiled.asm).access


def compiled_by_triton(launch: Specialized) -> Any:
    """Triton's ``CompiledKernel`` of a launch; it is never loaded."""
    request = request_of(launch)
    return triton.compile(request.source, target=request.target, options=dict(vars(launch.options)))


def run_first(tuner: Any, /, *args: Any, **kwargs: Any) -> Any:
    """``Autotuner.run`` without a benchmark: launch the first config that pruning leaves."""
    configs = tuners.prune_configs(tuner, args, kwargs) if len(tuner.configs) > 1 else tuner.configs
    config = tuner.best_config = configs[0]
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    try:
        if config.pre_hook is not None:
            config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
        return tuner.fn.run(*args, **kwargs, **config.all_kwargs())
    finally:
        tuner.nargs = None


def launch_again(kernel: Any, kwargs: dict[str, Any], *args: Any, grid: tuple[int, ...]) -> None:
    """Launch a kernel with all parameters by position and the options of an earlier launch, through the current
    replacement of ``JITFunction.run``."""
    known = {*kernel.arg_names, *RUN_OPTIONS}
    kernel.run(*args, grid=grid, warmup=False, **{k: v for k, v in kwargs.items() if k not in known})
