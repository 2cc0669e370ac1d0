"""What modules declare: values that are passed on are frozen, data from a file or a process has no unknown fields, a
default is nothing."""

from __future__ import annotations

import ast
import ctypes
import dataclasses
import enum
import importlib
import inspect
import math
import pkgutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

import kerntune
import pytest_kerntune

LENIENT = {
    "_Header",
    "ModelledConfig",
    "Code",
    "Direction",
    "Draft",
    "Jump",
    "LaunchFindings",
    "Listing",
    "Section",
    "Symbol",
}
"""Structs that are never decoded, and headers, which are read to tell which version wrote the rest."""

FOREIGN = "kerntune.gate.reporting.pull_request"
"""What GitHub writes, in whose answers we read a few of many fields."""

CHANGING = {
    "Bench", "Capture", "Collection", "TrialSet", "FakeBuffer", "FakeFunction", "Screening", "Consensus",
    "CallOperators", "CandidateLaunches", "_Group", "_LaunchFolder", "LateConfigs",
    "OwnBuffer", "Pending", "CandidatePool",
    "Record", "Recorded", "Script", "_Comparison", "Site", "Trial", "Tuning", "Verifier", "_Call", "_Fork",
    "GpuPools", "_SubmittedJob", "_Pool",
    "Deciding", "MeasuredGpu", "_SuspendableShare", "_Piece", "_Mine", "_Notice",
    "FirstLaunchFaults", "FirstLaunchFault", "ImplementationRuns", "Batch", "BatchWait", "_HookTrials",
    "_KeyWait", "_Order", "_Run", "_Seen", "_Tried", "_Tuning",
    "ArgumentReader", "CompiledCalls", "DynamoReader", "FusionChange", "GraphLaunch", "GridMemo",
    "ClaimedCase", "InductorChoices", "KernelCall", "RecordedChoices", "SealedRun",
    "TracingReader",
}  # fmt: skip
"""Dataclasses whose objects change: what is under way. All others are frozen."""

PRIVATE = {
    "ChangedGuard", "ForgetRequest", "FirstLaunchFailed", "FirstLaunchReply", "FirstLaunchRequest",
    "FirstLaunchesRequest", "StageRequest",
    "Staged", "RequestFailed", "PairReply", "PairRequest", "Ready",
}  # fmt: skip
"""Messages between one version's own processes."""


def modules(*packages: ModuleType) -> Iterator[ModuleType]:
    for package in packages or (kerntune, pytest_kerntune):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def declared(owner: Any, name: str) -> list[Any]:
    """What a module or class defines itself."""
    return [v for v in vars(owner).values() if getattr(v, "__module__", None) == name]


def classes() -> Iterator[type]:
    for module in modules():
        yield from filter(inspect.isclass, declared(module, module.__name__))


def name_of(one: type) -> str:
    return f"{one.__module__}.{one.__qualname__}"


SWITCHES = (
    "autojunk=False", "capture_output=True", "check=False", "closefd=False", "daemon=True", "dirs_exist_ok=True",
    "disable_numparse=True", "endpoint=True", "exist_ok=True", "follow_symlinks=False", "ignore_errors=True",
    "missing_ok=True", "parents=True", "pytrace=False", "start_new_session=True", "use_errno=True",
)  # fmt: skip
"""What is said of calls one way alone: a thread keeps no process alive, a folder may be there already."""

UNEVEN = {
    "codec": 1, "grid_check": 1, "candidate_launches": 1, "launches": 3, "launch": 1,
    "command": 1, "compiler": 2, "baseline_files": 1, "code_changes": 2, "project": 1, "c_launcher": 2,
    "driver_gpu": 1, "autograd": 2, "operator_replay": 2, "sizing": 1, "launch_path": 4, "candidate_speed": 1,
    "other_calls": 2, "other_contents": 1, "replay_comparer": 4,
    "replay_processes": 1, "heuristic_tuner": 1, "race": 1, "source": 1,
    "graph_launch": 1, "tuned_call": 2, "tuners": 1,
}  # fmt: skip
"""How many times modules go through several lists of which one may be longer. Others are of one length."""


def test_switches_of_calls_are_set_one_way() -> None:
    uneven = Counter[str]()
    for path in sorted(file for one in (kerntune, pytest_kerntune) for file in Path(one.__path__[0]).rglob("*.py")):
        text = path.read_text()
        for said in SWITCHES:
            name, _, value = said.partition("=")
            assert f"{name}={value != 'True'}" not in text, f"{path}: {said} everywhere else"
        uneven[path.stem] += text.count("strict=False")
    assert +uneven == UNEVEN


DEFAULTS = {
    "BudgetedSearch.__init__": "at_once", "CallSlot.__init__": "runs", "ChildProcess._ended_by_errors": "end_if_late",
    "ChildProcess.ask": "end_if_late", "ChildProcess.end": "wait", "ChildProcess.exchange": "end_if_late",
    "ChildProcess.ready": "end_if_late", "CpuExecutionMode": "supports_higher_order_operators",
    "Deadline.__init__": "factor floor", "DriverGpu.rest": "seconds", "EndedProgram.last": "count",
    "Executor.rest": "seconds", "FakeGpu.rest": "seconds", "Farm.__init__": "idle_seconds", "Field.values": "radius",
    "FirstLaunchProcess.end": "wait", "GpuSpeeds": "on_gpu", "Grid.resolve": "num_ctas num_warps",
    "GridChoice.of": "y z", "GuardReader.__init__": "on_device", "HeuristicTuner.__init__": "cache_results counts",
    "InterpretedAutotune": "interpreted", "InterpretedLaunches.__init__": "limit", "Interpreter.__init__": "limit",
    "Isolation.drop": "wait", "KeptIsolation.keeping": "seconds", "KnownValues.keep": "derived", "Max": "extreme",
    "Min": "extreme", "Mul": "identity", "OperatorMode": "supports_higher_order_operators",
    "Placement": "supports_higher_order_operators", "ProfilerSlot.__init__": "runs",
    "SealedProcesses.__init__": "sealed", "Session.in_turn": "crowded", "Session.lost": "ask",
    "SharedWinnerCache.offer": "first_stands", "StandInFakeMode": "avoid_device_init",
    "StandInFakeMode.__init__": "devices", "StaticBackend": "count",
    "StoreClient.close": "wait_s", "Timeout.wait": "event", "TuneOptions.now": "keep",
    "VersionJudge.__init__": "processes", "Winners.arrived": "ask", "WorkerPool.__init__": "requests",
    "_decorator": "counts", "roundings_of": "random", "as_config": "stages", "autotune": "cache_results",
    "block_of": "default", "calibrate": "processes", "check_grid": "num_ctas num_warps",
    "checked": "calls", "choose_warps": "least most", "combine": "bias", "decode_floats": "wide", "descend": "trials",
    "export_cache": "with_trials", "filter_steps": "missing", "finish": "floors", "flushed_runs": "flushes",
    "foreach": "cache_results", "fork": "kept", "hodges_lehmann": "level",
    "install": "cache_results", "judge": "budget sealed", "main": "seconds",
    "metrics_of": "instructions", "missing_parts": "load", "mode_of": "keep", "more_bytes": "operators_count",
    "names_text": "most", "operator_problems": "calls", "options_of": "keep", "places_text": "most",
    "pull_cache": "with_trials", "push_cache": "with_trials", "race_calls": "most", "reduction_config": "least_warps",
    "reduction_split": "may_split", "settled": "slope window", "side_of": "binaries", "steps_of": "false_rate",
    "sums_of": "random", "timed_message": "held", "told_apart": "digits", "tune_many": "progress",
    "variation_of": "least", "with_words": "last",
}  # fmt: skip
"""Attributes of classes, and parameters, whose default is a number or true. What isn't given is nothing elsewhere:
empty, zero or off."""


def test_a_default_is_nothing_but_for_these() -> None:
    found: dict[str, list[str]] = {}
    for one in classes():
        if not issubclass(one, (enum.Enum, ctypes.Structure, msgspec.Struct)):
            own = set(dict(fields_of(one)))
            given = {k: v for k, v in vars(one).items() if not k.startswith("__") and k not in ("_is_protocol", *own)}
            found[one.__name__] = [name for name, value in given.items() if _is_something(value)]
    for function in map(inspect.unwrap, functions()):
        positional = function.__code__.co_varnames[function.__code__.co_argcount - len(function.__defaults__ or ()) :]
        given = dict(zip(positional, function.__defaults__ or (), strict=False)) | (function.__kwdefaults__ or {})
        found.setdefault(function.__qualname__, []).extend(name for name, v in given.items() if _is_something(v))
    assert {name: " ".join(sorted(set(names))) for name, names in found.items() if names} == DEFAULTS


def _is_something(value: Any, below: float = 100) -> bool:
    """Whether a value is or has a number other than 0; a parameter's of a hundred or more is a limit or a size."""
    if isinstance(value, tuple):
        return any(_is_something(x, below) for x in value)
    return isinstance(value, (bool, int, float)) and not isinstance(value, enum.Enum) and 0 < abs(value) <= below


def test_structs_are_frozen_and_refuse_unknown_fields() -> None:
    structs = {name_of(c): c for c in classes() if issubclass(c, msgspec.Struct)}
    assert len(structs) > 100
    changing = [n for n, c in structs.items() if not c.__struct_config__.frozen and c.__name__ != "_Header"]
    assert changing == [], "not frozen"
    decoded = {
        name: c
        for name, c in structs.items()
        if c.__name__ not in LENIENT
        and c.__module__ != FOREIGN
        and not (c.__name__ in PRIVATE and "worker" in c.__module__)
    }
    assert [n for n, c in decoded.items() if not c.__struct_config__.forbid_unknown_fields] == [], "unknown fields"


WHOLE = {
    "Access", "AllFigures", "BandwidthFile", "BaselineChanges", "BinaryInput", "Budget", "CacheFile", "Calibration",
    "CodeFigures", "ComboPlan", "CompileFailed", "DeviceSpec", "Done", "Draft", "Environment", "Field", "Finding",
    "FirstLaunchFailed", "FirstLaunchReply", "HistorySteps", "JobRequest", "KernelHints", "LaunchCause",
    "LaunchChange", "LaunchDump", "LookupTable", "Loss", "Measured", "Metrics", "Modes",
    "NamesRequest", "Neighbourhood", "Normal", "OutsideWrite", "PairReply", "PairRequest", "Policy", "Preset",
    "Range", "RequestFailed", "Row", "RunReport", "Scratch", "SealRequest", "SealedEnd", "Shown", "StaticBaseline",
    "StaticChange", "StaticDifference", "StaticMetrics", "StaticPolicy", "StaticPrune", "StaticRule", "Target",
    "TimeBaseline", "TimingProtocol", "Tried", "TtirCounts", "Uniform", "Upgrade", "WriteReply", "_Author",
    "_Comment", "_Event", "_Head", "_Header", "_Repository",
}  # fmt: skip
"""Structs that are written with all their fields, or not at all. Of others, fields with their default are left out:
files and messages stay small, and a baseline that is written again stays as it was when a field is added."""


def test_structs_are_written_without_their_defaults_but_for_these() -> None:
    required = msgspec.NODEFAULT
    whole = {
        c.__name__
        for c in classes()
        if issubclass(c, msgspec.Struct)
        and not c.__struct_config__.omit_defaults
        and any(f.default is not required or f.default_factory is not required for f in msgspec.structs.fields(c))
    }
    assert whole == WHOLE


def test_which_values_have_an_order_and_which_objects_are_equal_to_themselves_alone() -> None:
    structs = [c for c in classes() if issubclass(c, msgspec.Struct)]
    assert {c.__name__ for c in structs if c.__struct_config__.order} == {"CaseId", "OperatorRow"}
    assert {c.__name__ for c in structs if not c.__struct_config__.eq} == {"Config"}
    parameters = [(c.__name__, c.__dataclass_params__) for c in classes() if dataclasses.is_dataclass(c)]  # type: ignore[attr-defined]
    assert {name for name, p in parameters if p.order} == {"BaselinePlace", "_Order"}
    assert {name for name, p in parameters if not p.eq} == {
        "Collection", "FakeFunction", "GraphLaunch", "GridMemo", "SealedRun", "Traced", "Trial",
    }  # fmt: skip


def test_what_a_class_leaves_to_others() -> None:
    found = {
        c.__name__: {n for n, value in vars(c).items() if getattr(value, "__isabstractmethod__", False)}
        for c in classes()
    }
    assert {name: left for name, left in found.items() if left} == {
        "ComboKernelGrid": {"x_blocks"},
        "Grid": {"axes"},
        "UrlFiles": {"create", "names", "read", "remove", "replace"},
    }


def test_dataclasses_that_change_are_these() -> None:
    found = {c.__name__ for c in classes() if dataclasses.is_dataclass(c) and not _frozen(c)}
    assert found <= CHANGING, "freeze it, or add its name to the list above"


def _frozen(one: type) -> bool:
    return bool(one.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def functions() -> Iterator[Any]:
    """The functions and methods that are written in our modules."""
    for owner in [*modules(kerntune), *(c for c in classes() if c.__module__.startswith("kerntune."))]:
        name = owner.__name__ if inspect.ismodule(owner) else owner.__module__
        for value in vars(owner).values():
            found = getattr(value, "__func__", value)
            if inspect.isfunction(found) and found.__module__ == name and "<string>" not in found.__code__.co_filename:
                yield found


def test_arguments_can_be_given_by_name() -> None:
    """Those of a function that passes any others on aside: their names may be among these."""
    seen = 0
    for function in functions():
        kinds = [p.kind for p in inspect.signature(function).parameters.values()]
        if not {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} & {*kinds}:
            assert inspect.Parameter.POSITIONAL_ONLY not in kinds, function.__qualname__
            seen += 1
    assert seen > 1000


KEPT = {
    "base": {"pack": 32, "sweep_once": 4096, "locks_work": 64, "student_quantile": 1024,
             "signed_rank_cut": 256, "_library": None},
    "capture": {"_comments_in": 64, "lines_of_call": 1024, "_distinct": 4096, "traits_of": 4096},
    "compiling": {"_tell": 4, "_works": 16},
    "gate": {"_short": 4096, "_template": None},
    "gpu": {"library": 1, "quick_library": 1, "_warn_unlocked": 16, "value_type": 4096, "parse_ttir": 64,
            "_wrapper_code": None, "device_node": 16, "_untouched": 8, "_standard_tile": 8, "_cuda_device": 16},
    "heuristics": {"_fitted": 64, "_looped": 64},
    "kernels": {"_group": 8, "_decomposed_flags": 1, "compiled_kernel": 8, "_nothing_left": None, "triton_version": 1,
                "torch_version": 1, "_ptxas_version": 8, "built": 1, "_syntax": 256, "_syntax_of_text": 256,
                "_understood": 64},
    "referee": {"_number": 2048, "_operator": 2048, "_tree_of": 8},
    "static": {"_compiled": None},
    "tuning": {"_opened": 8, "_client": 8, "_file": 8, "_warn": 1024, "_numbers_apart": 4096, "launch_operator": 1},
}  # fmt: skip
"""Functions that keep their results as long as the process lives, and how many: without a limit only those that few
arguments are known for. Clients, threads, libraries and warnings are kept because there must be one of each."""


def test_what_functions_keep_has_a_limit() -> None:
    found: dict[str, dict[str, int | None]] = {}
    for module in modules():
        for one in declared(module, module.__name__):
            if hasattr(one, "cache_parameters"):
                package = module.__name__.split(".")[1]
                found.setdefault(package, {})[one.__name__] = one.cache_parameters()["maxsize"]
    assert found == KEPT


HOOKS = {
    "wrapper": {
        "Gate.pytest_fixture_setup", "Gate.pytest_make_collect_report", "Gate.pytest_runtest_makereport",
        "Numerics.pytest_fixture_setup", "Numerics.pytest_runtest_call", "noted_calls.pytest_runtest_call",
        "plugin.pytest_runtest_makereport",
    },
    "wrapper tryfirst": {
        "Gate.pytest_runtest_protocol", "Gate.pytest_runtest_setup", "Gate.pytest_runtest_teardown",
        "Gate.pytest_sessionstart", "Numerics.pytest_collection_modifyitems", "Numerics.pytest_runtest_setup",
        "Progress.pytest_runtest_teardown", "RunEnd.pytest_sessionfinish", "SealedRun.pytest_sessionstart",
        "plugin.pytest_collection_modifyitems",
    },
    "wrapper trylast": {"Gate.pytest_runtest_call"},
    "tryfirst": {
        "Collection.pytest_cmdline_main", "Gate.pytest_keyboard_interrupt", "Progress.pytest_sessionfinish",
        "noted_calls.pytest_load_initial_conftests", "plugin.pytest_load_initial_conftests",
        "SealedRun.pytest_runtestloop", "plugin.pytest_runtest_call", "plugin.pytest_runtest_setup",
        "unattended.pytest_collection_finish",
        "unattended.pytest_sessionstart",
    },
    "trylast": {"plugin.pytest_kerntune_backend", "unattended.pytest_configure"},
    "optionalhook": {
        "Gate.pytest_configure_node", "Progress.pytest_xdist_node_collection_finished",
        "Progress.pytest_xdist_setupnodes", "RunEnd.pytest_testnodedown", "plugin.pytest_testnodedown",
    },
    "optionalhook trylast": {"Gate.pytest_xdist_setupnodes"},
    "optionalhook wrapper tryfirst": {"Gate.pytest_handlecrashitem"},
    "firstresult": {"hookspecs.pytest_kerntune_backend"},
}  # fmt: skip
"""Where pytest runs our hooks: a wrapper that is ``tryfirst`` is around those of all other plugins, one that is
``trylast`` has only the call itself inside. Hooks of xdist are optional."""


def test_hooks_run_before_or_after_those_of_other_plugins() -> None:
    found: dict[str, set[str]] = {}
    for owner in [*modules(), *classes()]:
        for name, one in vars(owner).items():
            marks = getattr(one, "pytest_impl", None) or getattr(one, "pytest_spec", None)
            if marks and inspect.isfunction(one):
                whose = owner.__name__.rpartition(".")[2]
                found.setdefault(" ".join(k for k, on in marks.items() if on), set()).add(f"{whose}.{name}")
    found = {" ".join(sorted(words.split())): names for words, names in found.items()}
    assert found == {" ".join(sorted(words.split())): names for words, names in HOOKS.items()}


def test_what_is_imported_for_types_alone_is_not_there_when_it_runs() -> None:
    """It costs no time at an import, and makes no circle."""
    seen, there = 0, []
    for module in modules():
        text = inspect.getsource(module)
        for block in ast.parse(text).body if "if TYPE_CHECKING" in text else ():
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
                names = [a.asname or a.name for one in block.body for a in getattr(one, "names", ())]
                seen += len(names)
                there += [f"{module.__name__}.{name}" for name in names if hasattr(module, name)]
    assert seen > 30
    assert there == []


FIELDS: dict[str, dict[str, Any]] = {
    "Bench": {"sealed": True}, "Binary": {"num_ctas": 1, "warp_size": 32},
    "CallOperators": {"asks": True}, "CandidateVerdict": {"sealed": True}, "CompiledCalls": {"_running": True},
    "Config": {"num_warps": 4, "num_stages": 3, "num_ctas": 1}, "Descent": {"trials": 25, "radius": 1},
    "DescentOptions": {"trials": 25},
    "DeviceSpec": {
        "registers_per_sm": 65536, "max_threads_per_sm": 2048, "max_threads_per_block": 1024,
        "shared_memory_per_block": 49152, "shared_memory_per_sm": 65536,
    },
    "FakeFunction": {"registers": 32}, "Field": {"least": 1, "most": 1048576, "radius": 1},
    "FirstLaunchFailed": {"spoiled": True}, "FixedGrid": {"y": 1, "z": 1},
    "KernelHints": {"contiguous_reduction_access": True, "min_scan_rblock": 256}, "KeyOutcome": {"given_out": 1},
    "LaunchReport": {"grid": (1, 1, 1)},
    "Limits": {"idle_s": 1.0, "busy_s": 30.0, "wait_s": 120.0, "poll_s": 0.05, "ask_s": 0.5},
    "Metrics": {"time": True},
    "Modes": {
        "autotune_pointwise": True, "dynamic_scale_rblock": True, "multi_stage_mix_order": True, "descent_radius": 1,
    },
    "Needs": {"binary": True}, "Neighbourhood": {"dot_rblock": 1}, "Normal": {"std": 1.0},
    "Options": {"interpret_limit": 60.0, "spread": True}, "OutsideWrite": {"certain": True}, "Pending": {"ran": True},
    "Policy": {"tolerance": 0.02, "level": 0.999, "cases": 1, "anchor_tolerance": 0.05},
    "Preset": {
        "hip_wide_x": True, "backend_extras": True, "inner_by_r": True, "tuned_outer": True,
        "small_persistent_inner": True, "tune_persistent": True, "filters": True, "chained_scaling": True,
        "foreach_candidates": True,
    },
    "PairReply": {"placements": 1}, "ReplayAnswer": {"repeatable": True}, "ReplayTask": {"whole": True},
    "RequestFailed": {"replayable": True},
    "Rule": {"time_ns": 10000.0}, "Scratch": {"align": 1},
    "Script": {"noise": 0.0005, "shift": 1.0, "memory_bytes": 1099511627776}, "Settings": {"calibrate": True},
    "Shape": {"warps": 4}, "StoredTrial": {"grid": (1, 1, 1)}, "Target": {"warp_size": 32},
    "TensorInput": {"high": 1.0}, "TimeAnswer": {"placements": 1}, "TimingProtocol": {"version": 2},
    "TuneOptions": {"keep": True}, "WaitingJob": {"times": 1},
}  # fmt: skip
"""Fields whose default is a number that isn't 0, or a tuple of numbers, of structs and dataclasses. What a file leaves
out means the default: another one would be another meaning of all files that are there."""


def fields_of(one: type) -> Iterator[tuple[str, Any]]:
    """The fields that a struct or dataclass itself declares, with their defaults."""
    own, found = vars(one).get("__annotations__", {}), ()
    if issubclass(one, msgspec.Struct):
        found = msgspec.structs.fields(one)
    elif dataclasses.is_dataclass(one):
        found = dataclasses.fields(one)
    return ((f.name, f.default) for f in found if f.name in own)


def test_defaults_of_fields_are_empty_but_for_these() -> None:
    found: dict[str, dict[str, Any]] = {}
    for one in classes():
        if numbers := {name: value for name, value in fields_of(one) if _is_something(value, math.inf)}:
            found.setdefault(one.__name__, {}).update(numbers)
    assert found == FIELDS
