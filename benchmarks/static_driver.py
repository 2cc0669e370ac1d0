"""Compares static figures with the driver's own, and stand-ins' launches with real ones, for every example.

    python benchmarks/static_driver.py OUT.json

Needs an NVIDIA GPU. The examples' tests run twice, in two processes: really, and on stand-ins (which work beside a
GPU too). Both note every launch, and what every candidate config of a tuned kernel would launch. Then, of every
distinct binary that the real side has:

* the driver's figures after loading it (``cuFuncGetAttribute``; what Triton's ``load_binary`` says, from which its
  ``n_regs`` and ``n_spills`` are; blocks of an SM by ``cuOccupancyMaxActiveBlocksPerMultiprocessor``) against
  kerntune's reading of the file alone,
* whether it is, byte for byte, what Triton itself launched,
* whether the stand-ins' launch has the same specialization, grid, code identity and machine code.

The examples spill nothing and all fit. So that local memory and launch validity are compared too, each launch is also
compiled for at most ``TIGHT`` registers a thread, and those with long pipelines for ``DEEP`` stages. Those binaries'
figures are compared likewise; what kerntune says can't be launched, the driver must refuse.

Exits with 1 if anything differs. ``--side standin`` and ``--side driver`` are the two processes.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from plugin_options import plugin_options

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest
from ops_sides import Observed, compared, compiled_of, entry_of, environment, first_line, static_figures, write

from kerntune.compiling.compiler import Compiled
from kerntune.errors import BackendError, KerntuneError, TrialError
from kerntune.gate import session as engine
from kerntune.gate.call import Call, Checked
from kerntune.gate.call_capture import compared_call
from kerntune.kernels.specialize import Specialized

ROOT = Path(__file__).resolve().parents[1]
TARGET = "cuda:90"
TIGHT = 32
"""Registers a thread, too few for most of the examples."""

DEEP = 9
"""Stages of a pipeline: more than most tiles have room for in shared memory."""

TRITONS_STAGES = 3
"""Triton's default number of stages."""

STATIC_SHARED, LOCAL, REGISTERS, DYNAMIC_SHARED = 1, 3, 4, 8
"""Numbers of ``CUfunction_attribute`` (cuda.h)."""


class Watcher:
    """A replacement of kerntune's check: it records what a call launches and gives no verdict."""

    def __init__(self) -> None:
        self.cases: dict[str, Any] = {}
        self.compiled: dict[str, Compiled] = {}
        self.session: Any = None

    def check(self, session: Any, call: Call, progress: Callable[[str], None] = print) -> Checked:
        """In place of ``Session.check``."""
        self.session = session
        capture = Observed(session.backend, session._compiler, call.candidates)
        with capture.active():
            value = call.fn(*call.args, **call.kwargs)
            probes = [self._candidates(capture, p.site) for p in capture.launches]
        compared_call(session.backend, call, value)
        target = session.backend.targets[0]
        launches = capture.entries(target)
        self._keep(capture, [p.specialized[target] for p in capture.launches])
        candidates = [self._entry(capture, *x) for found in probes for x in found]
        self.cases[str(call.case)] = {"launches": launches, "candidates": candidates}
        return Checked(value, ())

    def _candidates(self, capture: Observed, site: Any) -> list[Any]:
        """What each candidate of a tuned launch would launch, or why it can't be specialized."""
        out = []
        for index, candidate in enumerate(site.candidates if site else ()):
            try:
                probe = capture.probe(site, index)
                out.append((candidate.config, probe.specialized, probe.grid))
            except TrialError as exc:
                out.append((candidate.config, exc, (0, 0, 0)))
        launches = [x for _, x, _ in out if not isinstance(x, TrialError)]
        capture.compiler.compile_all(launches)
        self._keep(capture, launches)
        return out

    def _entry(self, capture: Observed, config: Any, launch: Any, grid: Any) -> dict[str, Any]:
        return entry_of(capture, launch, grid, config)

    def _keep(self, capture: Observed, launches: list[Any]) -> None:
        variants = [y for x in launches if not isinstance(x, TrialError) for y in variants_of(x)]
        capture.compiler.compile_all(variants)
        for launch in (*launches, *variants):
            compiled = compiled_of(capture, launch)
            if compiled is not None:
                self.compiled[compiled.binary.sha256] = compiled


def variants_of(launch: Specialized) -> list[Specialized]:
    """The launch with ``TIGHT`` registers, and with ``DEEP`` stages if it was written with more than three."""
    changes: list[dict[str, int]] = [{"maxnreg": TIGHT}]
    changes += [{"num_stages": DEEP}] if launch.options.num_stages > TRITONS_STAGES else []
    return [replace(launch, options=replace(launch.options, **change)) for change in changes]


def run_side(driver: bool, out: Path) -> int:
    """Run the examples under ``--kerntune`` with the watcher in place; write what it saw."""
    watcher = Watcher()
    engine.Session.check = lambda s, c, p=print: watcher.check(s, c, p)  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as scratch:
        options = ["--kerntune", f"--kerntune-baselines={scratch}/none", "-q", "-p", "no:cacheprovider"]
        options += [] if driver else [f"--kerntune-target={TARGET}"]
        options += plugin_options()
        figures = Figures(watcher)
        code = pytest.main([*options, str(ROOT / "examples")], plugins=[figures] if driver else [])
    write(out, {"cases": watcher.cases, "figures": figures.found, "exit_code": int(code)})
    return int(code)


class Figures:
    """Reads the driver's figures at the end of the run, while the device is still there."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.found: list[dict[str, Any]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """All binaries at once: one run of the disassembler."""
        kernels = list(self.watcher.compiled.values())
        gpu = self.watcher.session.backend.gpu
        figures = static_figures(kernels, gpu.spec)
        self.found = [driver_beside(gpu, c, f) for c, f in zip(kernels, figures, strict=True)]


def driver_beside(gpu: Any, compiled: Compiled, ours: dict[str, Any]) -> dict[str, Any]:
    """One binary's figures from both sources, by name, and those that differ."""
    binary, limits = compiled.binary, ours.get("over_limit", ())
    out: dict[str, Any] = {"kernel": binary.symbol, "constexprs": binary.constexprs, "sha256": binary.sha256}
    refusal = _refusal(compiled)
    if refusal or limits:
        return {
            **out,
            "refused": {"driver": refusal, "kerntune": limits},
            "differs": [] if refusal and limits else ["?"],
        }
    function = gpu.load(binary, compiled.data)
    try:
        theirs = _of_driver(gpu, compiled, function) | _of_triton(gpu, compiled)
    finally:
        gpu.unload(function)
    mine = _ours(ours, gpu.spec, compiled)
    differs = [k for k in theirs if k in mine and mine[k] != theirs[k]]
    return {**out, "driver": theirs, "kerntune": mine, "differs": differs}


def _refusal(compiled: Compiled) -> str:
    """Why the driver itself won't have a kernel's shared memory; empty if it will."""
    from kerntune.gpu.cuda_driver import check, library

    module, function, name = ctypes.c_void_p(), ctypes.c_void_p(), compiled.binary.symbol.encode()
    check(library().cuModuleLoadData(ctypes.byref(module), compiled.data), "loading")
    try:
        check(library().cuModuleGetFunction(ctypes.byref(function), module, name), "finding")
        check(library().cuFuncSetAttribute(function, DYNAMIC_SHARED, compiled.binary.shared), "asking shared memory")
    except BackendError as exc:
        return first_line(exc)
    finally:
        check(library().cuModuleUnload(module), "unloading")
    return ""


def _of_driver(gpu: Any, compiled: Compiled, function: Any) -> dict[str, Any]:
    binary, blocks = compiled.binary, ctypes.c_int()
    from kerntune.gpu.cuda_driver import check, library

    threads = ctypes.c_int(binary.num_warps * binary.warp_size)
    asked = library().cuOccupancyMaxActiveBlocksPerMultiprocessor
    check(asked(ctypes.byref(blocks), function.handle, threads, ctypes.c_size_t(binary.shared)), "asking occupancy")
    return {
        "registers": function._attribute(REGISTERS),
        "local_bytes": function._attribute(LOCAL),
        "blocks_of_an_sm": blocks.value,
        "static_shared_bytes": function._attribute(STATIC_SHARED),
    }


def _of_triton(gpu: Any, compiled: Compiled) -> dict[str, Any]:
    """The attributes that Triton sets on its compiled kernel once it is loaded, and its metadata."""
    from triton.runtime import driver

    binary = compiled.binary
    loaded = driver.active.utils.load_binary(binary.symbol, compiled.data, binary.shared, gpu.ordinal)
    return {"n_regs": loaded[2], "n_spills": loaded[3], "shared": compiled.metadata["shared"]}


def _ours(figures: dict[str, Any], spec: Any, compiled: Compiled) -> dict[str, Any]:
    threads = figures["threads"]
    return {
        "registers": figures["registers"],
        "local_bytes": figures["stack_bytes"],
        "blocks_of_an_sm": round(figures["occupancy"] * spec.max_threads_per_sm / threads),
        "n_regs": figures["registers"],
        "n_spills": figures["stack_bytes"] // 4,
        "shared": figures["shared_bytes"],
        "spill_store_bytes": figures["spill_store_bytes"],
    }


def both_sides(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Each side in a process of its own, with a compile cache of its own."""
    out = []
    for side in ("standin", "driver"):
        file = folder / f"{side}.json"
        environ = {**os.environ, "TRITON_CACHE_DIR": str(folder / f"{side}-cache"), "KERNTUNE_CACHE_DIR": str(folder)}
        command = [sys.executable, __file__, str(file), "--side", side]
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        if not file.exists():
            raise SystemExit(f"{side}: wrote nothing\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        out.append(json.loads(file.read_text()))
        print(f"{side}: exit {done.returncode}: {(done.stdout.strip().splitlines() or [''])[-1]}", flush=True)
    return out[0], out[1]


def summary(standin: dict[str, Any], driver: dict[str, Any], device: str) -> dict[str, Any]:
    """Counts first, then what differs, then the figures."""
    names = sorted({*standin["cases"], *driver["cases"]})
    empty: dict[str, Any] = {"launches": [], "candidates": []}
    cases = {}
    for name in names:
        a, b = standin["cases"].get(name, empty), driver["cases"].get(name, empty)
        cases[name] = {kind: compared(a[kind], b[kind]) for kind in ("launches", "candidates")}
    launched = [x for c in driver["cases"].values() for x in c["launches"]]
    figures = driver["figures"]
    loaded = [f for f in figures if "driver" in f]
    return {
        "environment": environment(device=device, target=TARGET),
        "examples": len(names),
        "exit_codes": {"standin": standin["exit_code"], "driver": driver["exit_code"]},
        "launches_alike": _share(cases, "launches"),
        "candidates_alike": _share(cases, "candidates"),
        "compiled_as_triton_launched": f"{sum(x.get('same_as_launched', False) for x in launched)} of {len(launched)}",
        "binaries": len(figures),
        "binaries_with_equal_figures": f"{sum(not f['differs'] for f in loaded)} of {len(loaded)}",
        "binaries_with_local_memory": sum(f["driver"]["local_bytes"] > 0 for f in loaded),
        "refused_by_both": sum(not f["differs"] for f in figures if "refused" in f),
        "gaps": {n: c for n, c in cases.items() if any(x["gaps"] for x in c.values())},
        "different_figures": [f for f in figures if f["differs"]],
        "figures": figures,
    }


def _share(cases: dict[str, Any], kind: str) -> str:
    return f"{sum(c[kind]['alike'] for c in cases.values())} of {sum(c[kind]['launches'] for c in cases.values())}"


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--side", choices=("standin", "driver"))
    args = parser.parse_args()
    if args.side:
        return run_side(args.side == "driver", args.out.resolve())
    from kerntune.gpu.probe import current_device, has_cuda

    if not has_cuda():
        raise KerntuneError("there is no NVIDIA GPU here: the driver's figures come from one")
    with tempfile.TemporaryDirectory() as scratch:
        standin, driver = both_sides(Path(scratch))
    result = summary(standin, driver, current_device().name)
    write(args.out, result)
    print({k: v for k, v in result.items() if k not in ("figures", "gaps", "different_figures")}, flush=True)
    return int(bool(result["gaps"] or result["different_figures"] or any(result["exit_codes"].values())))


if __name__ == "__main__":
    raise SystemExit(main())
