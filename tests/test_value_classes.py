"""Values that are passed on are frozen, and data from a file or a process has no unknown fields."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import msgspec

import kerntune

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
    "Bench", "Capture", "Collection", "TrialSet", "Expectation", "FakeBuffer", "FakeFunction", "Screening", "Consensus",
    "CallOperators", "CandidateLaunches", "_Group", "LateConfigs",
    "OwnBuffer", "Pending", "CandidatePool",
    "Recorded", "Script", "_Comparison", "Site", "Trial", "Tuning", "Verifier", "_Call", "_Fork",
    "GpuPools", "ShapesFile", "_Flow", "_SubmittedJob", "_Pool",
    "Deciding", "MeasuredGpu", "_SuspendableShare", "_Piece", "_Mine", "_Notice",
    "FirstLaunchFaults", "FirstLaunchFault", "ImplementationRuns", "Batch", "BatchWait", "_HookTrials",
    "_KeyWait", "_Order", "_Run", "_Seen", "_Tried", "_Tuning",
    "ArgumentReader", "CompiledCalls", "DynamoReader", "FusionChange", "GraphLaunch", "GridMemo",
    "InductorChoices", "KernelCall", "RecordedChoices",
    "TracingReader",
}  # fmt: skip
"""Dataclasses whose objects change: what is under way. All others are frozen."""

PRIVATE = {
    "ChangedGuard", "ForgetRequest", "FirstLaunchFailed", "FirstLaunchReply", "FirstLaunchRequest",
    "FirstLaunchesRequest", "StageRequest",
    "Staged", "RequestFailed", "PairReply", "PairRequest", "Ready",
}  # fmt: skip
"""Messages between one version's own processes."""


def classes() -> Iterator[type]:
    for found in pkgutil.walk_packages(kerntune.__path__, "kerntune."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            yield from (v for v in vars(module).values() if inspect.isclass(v) and v.__module__ == found.name)


def name_of(one: type) -> str:
    return f"{one.__module__}.{one.__qualname__}"


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


def test_dataclasses_that_change_are_these() -> None:
    found = {c.__name__ for c in classes() if dataclasses.is_dataclass(c) and not _frozen(c)}
    assert found <= CHANGING, "freeze it, or add its name to the list above"


def _frozen(one: type) -> bool:
    return bool(one.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def functions() -> Iterator[Any]:
    """The functions and methods that are written in our modules."""
    names = (found.name for found in pkgutil.walk_packages(kerntune.__path__, "kerntune."))
    owners: list[Any] = [*map(importlib.import_module, (n for n in names if not n.endswith("__main__"))), *classes()]
    for owner in owners:
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
