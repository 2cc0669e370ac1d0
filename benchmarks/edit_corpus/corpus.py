"""All edits."""

from benchmarks.edit_corpus.edit import Edit
from benchmarks.edit_corpus.edits_elementwise import ELEMENTWISE
from benchmarks.edit_corpus.edits_held_out import HELD_OUT
from benchmarks.edit_corpus.edits_matrix import MATRIX
from benchmarks.edit_corpus.edits_rows import ROWS

EDITS: tuple[Edit, ...] = (*ELEMENTWISE, *ROWS, *MATRIX, *HELD_OUT)

HELD_OUT_KERNELS = frozenset(edit.kernel for edit in HELD_OUT)


def by_kernel() -> dict[str, list[Edit]]:
    """The edits of each kernel."""
    found: dict[str, list[Edit]] = {}
    for edit in EDITS:
        found.setdefault(edit.kernel, []).append(edit)
    return found
