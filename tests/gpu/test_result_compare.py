"""Where in a tensor an element that differs is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from host_gpu import HostGpu
from samples import H100, recording

from kerntune.base.recording import View
from kerntune.gpu import result_compare
from kerntune.gpu.number_formats import FLOAT_FORMATS, ElementCounts
from kerntune.gpu.result_compare import place_in


@pytest.mark.parametrize(
    ("changes", "element", "place"),
    [
        ({}, 0, (0, 0)),
        ({}, 13, (1, 5)),
        ({}, 31, (3, 7)),
        ({}, 32, ()),
        ({"strides": (1, 4)}, 13, (1, 3)),
        ({"strides": (16, 2)}, 18, (1, 1)),
        ({"strides": (16, 2)}, 19, ()),
        ({"offset_bytes": 8}, 15, (1, 5)),
        ({"offset_bytes": 8}, 1, ()),
        ({"offset_bytes": 6}, 15, ()),
        ({"shape": (32,), "strides": (1,)}, 13, ()),
        ({"shape": (), "strides": ()}, 0, ()),
        ({"shape": (4, 1, 8), "strides": (8, 3, 1)}, 13, (1, 0, 5)),
        ({"shape": (4, 3, 8), "strides": (8, 0, 1)}, 13, (1, 0, 5)),
    ],
    ids=str,
)
def test_an_element_of_a_storage_has_a_place_in_its_tensor(
    changes: dict[str, Any], element: int, place: tuple[int, ...]
) -> None:
    words = {"storage": 0, "dtype": "float32", "shape": (4, 8), "strides": (8, 1), **changes}
    assert place_in(View(**words), element) == place


def test_what_both_sides_view_in_two_ways_has_no_places() -> None:
    assert place_in(None, 0) == ()


A = np.arange(10, dtype="<f4")
B = np.where(np.isin(np.arange(10), (2, 7)), A + 1, A).astype("<f4")


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (ElementCounts(varying=3), {"count": 0, "first": 0, "worst": 0, "baseline": "", "today": "", "place": (),
                                    "varying": 3, "ulp": 0, "relative": 0.0, "typical": None}),
        (ElementCounts(2, 1, 4, 5, first=2, worst=7, ulp=9, relative=0.5), {
            "count": 2, "first": 2, "worst": 7, "baseline": "7", "today": "8", "place": (1, 2), "varying": 0, "ulp": 9,
            "relative": 0.5, "unwritten": 1, "newly_written": 4, "nonfinite": 5, "typical": 4.5}),
        (ElementCounts(2, first=2), {"worst": 2, "baseline": "2", "today": "3", "place": (0, 2)}),
    ],
    ids=["only varying", "all", "no worst"],
)  # fmt: skip
def test_what_is_told_of_an_output(monkeypatch: pytest.MonkeyPatch, counts: ElementCounts, expected: Any) -> None:
    kind, gpu = FLOAT_FORMATS["float32"], HostGpu(H100)
    for side, values in enumerate((A, B)):
        monkeypatch.setattr(gpu, f"side{side}", gpu.allocate(40), raising=False)
        gpu.write(getattr(gpu, f"side{side}"), values.tobytes())
    view = View(0, "float32", (2, 5), (5, 1))
    program: Any = SimpleNamespace(gpu=gpu, recording=recording(), written=(), memory=None)
    made = result_compare._Comparison(program, program, None, "content")  # type: ignore[arg-type]
    made.kept = {0: ([(0, gpu.side0)], [(0, gpu.side1)])}  # type: ignore[attr-defined]
    monkeypatch.setattr(result_compare._Comparison, "_view", lambda *given: view)
    made.__dict__["storages"] = SimpleNamespace(intermediate=frozenset({0}))
    found = made._described(0, kind, counts, 10)
    assert {name: getattr(found, name) for name in expected} == expected
    assert (found.dtype, found.total, found.intermediate, found.content) == ("float32", 10, True, "content")


def test_an_element_outside_of_what_was_kept_has_no_text() -> None:
    kind, gpu = FLOAT_FORMATS["float32"], HostGpu(H100)
    kept = gpu.allocate(8)
    gpu.write(kept, A[1:3].tobytes())
    program: Any = SimpleNamespace(gpu=gpu)
    made = result_compare._Comparison(program, program, None, "")  # type: ignore[arg-type]
    made.kept = {0: ([(16, kept)], [])}
    assert [made._text(0, 0, element, kind) for element in (3, 4, 5, 6)] == ["", "1", "2", ""]
