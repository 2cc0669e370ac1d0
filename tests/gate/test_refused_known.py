"""A launch that can't be compiled here, though its baseline has the very same one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from cli import made

from kerntune.errors import CompileError, EnvironmentFault, OutOfResourcesError
from kerntune.gate import static_check as module
from kerntune.gate.stores import KnownCase

COMPILER = "Triton 3.9.0, assembler 12.8"


class Launch:
    """As specialized."""

    def compiled_for(self) -> dict[str, str]:
        return {"n": "i32"}


@pytest.fixture(autouse=True)
def versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.versions, "triton_version", lambda: "3.9.0")
    monkeypatch.setattr(module.versions, "assembler_version", lambda backend, arch: "12.8")


def refused(ttir: str = "t") -> CompileError:
    error = CompileError("ptxas died")
    error.ttir_sha256 = ttir
    return error


def known(**changes: Any) -> KnownCase:
    import msgspec

    baseline = made.static().baseline
    told = {"ttir_sha256": "t", "compiler": COMPILER, "compiled_for": {"n": "i32"}, **changes}
    launch = msgspec.structs.replace(baseline.launches[0], **told)  # type: ignore[union-attr]
    baseline = msgspec.structs.replace(baseline, launches=(baseline.launches[0], launch))  # type: ignore[union-attr]
    return KnownCase(None, baseline)  # type: ignore[arg-type]


def check(case: KnownCase, *failures: Any) -> None:
    pending, recording = SimpleNamespace(specialized=Launch()), SimpleNamespace(target=made.CUDA90)
    recorded: Any = SimpleNamespace(failures=dict(enumerate(failures)), recording=recording)
    capture: Any = SimpleNamespace(launches=[pending] * len(failures))
    module._refuse_known(case, recorded, capture)


def test_the_machine_is_to_blame_for_what_it_has_compiled_before() -> None:
    with pytest.raises(EnvironmentFault, match=r"ptxas died\nThe baseline has the same code, .* look at its memory"):
        check(known(), refused())


def test_each_launch_is_looked_at() -> None:
    with pytest.raises(EnvironmentFault):
        check(known(), OutOfResourcesError("too large"), refused("other"), refused())


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"ttir_sha256": "other"}, refused()),
        ({"compiler": "Triton 3.8.0, assembler 12.8"}, refused()),
        ({"compiled_for": {"n": "i64"}}, refused()),
        ({"ttir_sha256": ""}, refused("")),
        ({}, OutOfResourcesError("too large")),
    ],
    ids=["other code", "another compiler", "other arguments", "no code", "no compiler error"],
)
def test_else_the_code_may_be(changes: dict[str, Any], error: Exception) -> None:
    check(known(**changes), error)
    check(KnownCase(None, None), error)
