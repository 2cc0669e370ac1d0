"""Ten Gluon kernels through the gate without a GPU: recorded, passed again, and an edit of each told with its cause."""

from __future__ import annotations

import pytest
from gluon_kernels import CASES, GluonCase, N, floats, gl, gluon, scale

from gate.project import Project
from kerntune.base.policy import Verdict

ELSEWHERE = {"softmax": "hip:gfx942", "mma": "cuda:80", "total": "cuda:100"}
"""Targets of kernels that compile for several; the others are compiled for their first but one, or their only one."""


def target_of(case: GluonCase) -> str:
    return ELSEWHERE.get(case.name, case.targets[min(1, len(case.targets) - 1)])


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_passes_again_and_an_edit_is_told(case: GluonCase, project: Project) -> None:
    target = target_of(case)
    steps = (({}, Verdict.NEW, ""), ({}, Verdict.PASS, "code unchanged"), (case.edit, None, case.told))
    for edit, verdict, told in steps:
        result = project.static_once(target).judge(lambda edit=edit: case.call(**case.needs(target), **edit))
        assert verdict in (result.verdict, None)
        assert told in result.message


@gluon.jit
def narrow_kernel(x_ptr, y_ptr, n, factor: gl.constexpr, BLOCK: gl.constexpr, WIDTH: gl.constexpr, LANES: gl.constexpr):
    """The same as :func:`gluon_kernels.scale_kernel` after an edit of its layout."""
    layout: gl.constexpr = gl.BlockedLayout([1], [LANES], [gl.num_warps()], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(y_ptr + i, gl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda:80", "cuda:90", "cuda:100", "hip:gfx942"])
def test_an_edit_of_the_source_that_narrows_its_loads_fails(target: str, project: Project) -> None:
    lanes = 64 if target.startswith("hip") else 32
    narrow_kernel.fn.__name__ = narrow_kernel.__name__ = "scale_kernel"
    project.static_once(target).judge(lambda: scale(lanes=lanes))
    with project.static_run(target) as run:
        result = run.judge(lambda: narrow_kernel[(4,)](floats(N), floats(N), N, 2.0, 1024, 4, lanes))
    assert result.verdict is Verdict.REGRESSED
    assert "scale_kernel: loads from global memory got narrower" in result.message
    assert "code changed" in result.message
