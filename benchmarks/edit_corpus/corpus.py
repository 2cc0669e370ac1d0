"""All edits."""

from benchmarks.edit_corpus.edit import Edit
from benchmarks.edit_corpus.edits_elementwise import ELEMENTWISE
from benchmarks.edit_corpus.edits_matrix import MATRIX
from benchmarks.edit_corpus.edits_rows import ROWS

EDITS: tuple[Edit, ...] = (*ELEMENTWISE, *ROWS, *MATRIX)


def by_kernel() -> dict[str, list[Edit]]:
    """The edits of each kernel."""
    found: dict[str, list[Edit]] = {}
    for edit in EDITS:
        found.setdefault(edit.kernel, []).append(edit)
    return found
