"""Where in a tensor an element that differs is."""

from __future__ import annotations

from typing import Any

import pytest

from kerntune.base.recording import View
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
