"""A baseline's config that can't be launched any more, or that isn't in the list."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from doubles import raising
from fake_runs import long_kernel

from gate.project import Project
from kerntune.base.case_result import CaseResult
from kerntune.base.policy import Policy, StaticPolicy, StaticRule, Verdict
from kerntune.errors import CompileError, EnvironmentFault
from kerntune.gate import static_check

SM86 = "cuda:86"
"""Has 101,376 bytes of shared memory a block."""


def longer_kernel() -> Any:
    """The same kernel after an edit that needs eight times the shared memory."""

    @triton.jit
    def long_kernel(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr, LENGTH: tl.constexpr):
        i, k = tl.arange(0, BLOCK), tl.arange(0, 8 * LENGTH)
        a = tl.load(x_ptr + i[:, None] * LENGTH + k[None, :])
        b = tl.load(y_ptr + k[:, None] * BLOCK + i[None, :])
        tl.store(z_ptr + i[:, None] * BLOCK + i[None, :], tl.dot(a, b))

    return long_kernel


Sizes = tuple[int, int]


def call(*sizes: Sizes, kernel: Any = long_kernel, **options: Any) -> Callable[[torch.Tensor], None]:
    """Launches a tuner of configs with these blocks and lengths."""
    listed = [triton.Config({"BLOCK": b, "LENGTH": n}, **options) for b, n in sizes]
    tuner = triton.autotune(listed, key=[])(kernel)
    return lambda x: tuner[(1,)](x, x, x)


def held(project: Project, after: Callable[..., Any], rules: StaticPolicy | None = None) -> CaseResult:
    """``after`` against the baseline of a list of two configs, the first of which it has."""
    for fn, policy in ((call((64, 64), (32, 32)), Policy()), (after, Policy(static=rules or StaticPolicy()))):
        with project.static_run(SM86) as run:
            x = torch.empty(64, 512, device="cuda", dtype=torch.float16)
            result = run.check(fn, x, policy=policy).commit()
    return result


BASE = "long_kernel: the baseline's config BLOCK=64 LENGTH=64 num_warps=4 num_stages=3"
NEEDS = "can't be launched: shared memory: needs 131,072 bytes a block, the device has 101,376 (29,696 too many)"
COMPARED = "; compared with BLOCK=32 LENGTH=32 num_warps=4 num_stages=3"


@pytest.mark.slow
def test_a_listed_config_that_no_longer_fits_fails_by_name_and_limit(project: Project) -> None:
    result = held(project, call((64, 64), (32, 32), kernel=longer_kernel()))
    assert result.verdict is Verdict.REGRESSED
    assert f"{BASE} is listed, but {NEEDS}{COMPARED}" in result.findings
    assert result.findings[0] in result.message


@pytest.mark.slow
def test_a_config_that_became_one_that_does_not_fit_fails(project: Project) -> None:
    result = held(project, call((64, 512), (32, 32)))
    assert result.verdict is Verdict.REGRESSED
    assert f"{BASE} became BLOCK=64 LENGTH=512 num_warps=4 num_stages=3, but {NEEDS}{COMPARED}" in result.findings


def test_a_config_that_became_one_that_does_not_compile_fails(project: Project) -> None:
    result = held(project, call((64, 48), (32, 32)))
    assert result.verdict is Verdict.REGRESSED
    assert "became BLOCK=64 LENGTH=48 num_warps=4 num_stages=3, but can't be compiled: " in result.message


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(call((32, 32)), id="taken from the list"),
        pytest.param(call((64, 32), (32, 32)), id="edited"),
        pytest.param(call((64, 512), (64, 32)), id="as near to one that fits", marks=pytest.mark.slow),
    ],
)
def test_a_removed_config_is_told(project: Project, after: Callable[..., Any]) -> None:
    result = held(project, after)
    assert result.verdict is Verdict.PASS
    (told,) = [f for f in result.findings if "removed" in f]
    first = result.launches[0].config
    assert told == (
        f"long_kernel: config BLOCK=64 LENGTH=64 num_warps=4 num_stages=3 removed from the list; compared with {first}"
    )


def test_both_configs_have_their_parameters_in_one_order(project: Project) -> None:
    """That of the list: a file has them sorted by name."""
    tuner = triton.autotune([triton.Config({"LENGTH": 32, "BLOCK": 32})], key=[])(long_kernel)
    (told,) = [f for f in held(project, lambda x: tuner[(1,)](x, x, x)).findings if "removed" in f]
    assert "config LENGTH=64 BLOCK=64 " in told
    assert "with LENGTH=32 BLOCK=32 " in told


def test_rules_say_what_these_do(project: Project) -> None:
    rules = StaticPolicy({"limits": StaticRule("warn"), "config_removed": StaticRule("fail")})
    assert held(project, call((64, 512), (32, 32)), rules).verdict is Verdict.PASS
    removed = held(project, call((32, 32)), rules)
    assert removed.verdict is Verdict.REGRESSED
    off = StaticPolicy({"config_removed": StaticRule("off")})
    assert held(project, call((32, 32)), off).findings == ()


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(call((32, 32), (64, 64)), id="another order"),
        pytest.param(call((64, 64), (64, 512)), id="another one that doesn't fit"),
        pytest.param(call((64, 64)), id="another one removed"),
    ],
)
def test_a_config_that_is_launched_as_before_is_plain(project: Project, after: Callable[..., Any]) -> None:
    result = held(project, after)
    assert (result.verdict, result.findings, result.unjudged) == (Verdict.PASS, (), "")


def test_a_config_that_does_not_compile_is_its_error_and_a_refused_compiler_ends_the_check() -> None:
    failed, refused = CompileError("no"), EnvironmentFault("no room")

    def compiler(error: Exception) -> Any:
        return SimpleNamespace(compiler=SimpleNamespace(compile=raising(error)))

    assert static_check._compiled(compiler(failed), SimpleNamespace()) is failed  # type: ignore[arg-type]
    with pytest.raises(EnvironmentFault, match="no room"):
        static_check._compiled(compiler(refused), SimpleNamespace())  # type: ignore[arg-type]
