"""What is wrong on contents beside the usual and extreme ones: exact, far and sparse ones, and those of a task."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from kerntune.gpu.number_formats import FLOAT_FORMATS
from kerntune.referee.case_inputs import CaseInputs
from kerntune.referee.content_errors import ContentErrors
from kerntune.referee.content_forms import DECIDED, DRAWN_FLOATS, ENDS, GRIDS, OF_MADE, OF_NAN, SIZED
from kerntune.referee.declared_inputs import contents_of, poison_patterns
from kerntune.referee.element_errors import ResultError
from kerntune.referee.errors_together import (
    ShapeComparison,
    errors_of,
    left_of,
    unequal_of,
)
from kerntune.referee.further_contents import (
    DRAWN_BYTES,
    made_in_another_order,
    made_otherwise,
    made_sparse,
)
from kerntune.referee.reasons import Refusal
from kerntune.referee.reference_evidence import (
    differs,
    in_buffers,
)
from kerntune.referee.tasks import ExpectedSeed, ExpectTask

SPARSE_CONTENTS = 2
"""Contents of the task's own code that are looked at once more, made sparse."""

MOST_EMULATED = 1 << 25
"""Bytes of inputs and results up to which what is right on a GPU is emulated, too: more takes longer than its time."""

_T = TypeVar("_T")

WIDE_FLOATS = ("float32", "float64")
"""Floats that differ enough far from zero."""

INDICES = ("int64", "int32")
"""What results may be indices."""


def _few_of_large(kinds: Sequence[_T], seed: ExpectedSeed) -> list[_T]:
    """The kinds of contents; of large inputs the first, and one that is drawn: each takes a second of a verdict's
    ten."""
    large = sum(map(len, seed.contents)) > DRAWN_BYTES
    return [kinds[0], secrets.choice(kinds[1:])] if large and len(kinds) > 2 else list(kinds)


def promising(case: CaseInputs, first: ExpectedSeed) -> list[tuple[str, tuple[str, ...]]]:
    """The kinds of contents where more is promised than rounding allows, each with the forms of its floats."""
    wanted = [r.dtype for r in first.computed]
    whole = any(dtype not in FLOAT_FORMATS for dtype in wanted)
    kinds: list[tuple[str, tuple[str, ...]]] = [("", ("ties",))] * bool({*wanted} & {*INDICES})
    if first.exact:
        kinds += [("grid", GRIDS), ("decided", DECIDED), ("sized", SIZED)]
        kinds += [("nan", OF_NAN)] * whole + [("kept", OF_NAN)] * any(dtype in FLOAT_FORMATS for dtype in wanted)
    known = {r.chain.known for r in first.computed}
    kinds = sorted(kinds + [(where, (where,)) for where in known & {*ENDS}], key=lambda kind: kind[0] not in known)
    return _few_of_large(kinds, first) if any(t.content in DRAWN_FLOATS for t in case.tensors) else []


class OtherContents(ContentErrors):
    """Compares on these, for one reference."""

    def _of_ties(self, of: ShapeComparison, first: ExpectedSeed) -> tuple[ResultError, ...]:
        """What is wrong where more is promised than rounding allows: indices of equal numbers where torch documents
        them, and all results where all that the reference does is exact."""
        kinds = promising(of.case, first)
        with ThreadPoolExecutor(self._workers) as threads:
            asked = [self._beside(threads, self._of_promised, of, exact, words) for exact, words in kinds]
            for (exact, _), one in zip(kinds, asked, strict=True):
                promised, wrong = one()
                if wrong or (exact in ("grid", "decided") and not promised):
                    return wrong
        return ()

    def _of_promised(
        self, of: ShapeComparison, exact: str, words: Sequence[str]
    ) -> tuple[bool, tuple[ResultError, ...]]:
        """Whether the reference promises its results there, and what is wrong on contents with floats of these
        forms."""
        case = of.case
        forms = [tuple(word if t.content in DRAWN_FLOATS else "" for t in case.tensors) for word in words]
        seeds = tuple(secrets.randbits(63) for _ in forms)
        with ThreadPoolExecutor(self._workers) as threads:
            given = tuple(threads.map(partial(contents_of, case.tensors, plain=case.numbers), seeds, forms))
        task = ExpectTask(self._reference, case, seeds, given, self._on_gpu, ties=not exact, exact=exact)
        return self._of_contents(of, task, forms)

    def _of_far(self, of: ShapeComparison, first: ExpectedSeed) -> tuple[ResultError, ...]:
        """What is wrong with whole results farther from zero, of which it isn't looked at what cancels there."""
        forms = tuple("far" if t.varied and t.dtype in WIDE_FLOATS else "" for t in of.case.tensors)
        if not any(forms) or all(r.dtype in FLOAT_FORMATS for r in first.computed):
            return ()
        contents = (contents_of(of.case.tensors, secrets.randbits(63), forms),)
        task = ExpectTask(self._reference, of.case, (0,), contents, self._on_gpu, extreme=0)
        return self._of_contents(of, task, [forms])[1]

    def _of_sparse(self, of: ShapeComparison, usual: Sequence[ExpectedSeed]) -> tuple[ResultError, ...]:
        """What is wrong where contents that the task's own code has made are ``sparse``."""
        case = of.case
        seeds = tuple(secrets.randbits(63) for _ in usual[:SPARSE_CONTENTS] if case.made_by_author)
        made = [made_sparse(case, one.contents, seed) for one, seed in zip(usual, seeds, strict=False)]
        if not any(any(forms) for _, forms in made):
            return ()
        contents = tuple(tuple(content) for content, _ in made)
        task = ExpectTask(self._reference, case, seeds, contents, self._on_gpu, extreme=0)
        return self._of_contents(of, task, [forms for _, forms in made])[1]

    def _of_made(self, of: ShapeComparison, usual: Sequence[ExpectedSeed]) -> tuple[ResultError, ...]:
        """What is wrong where contents that the task's own code has made have other signs and sizes, or are zeros. A
        fault there is none of what the task makes. Numbers that are others alone are judged without that."""
        case, chance, kinds = of.case, secrets.SystemRandom(), _few_of_large(OF_MADE, usual[0])
        looked_at_so = case.made_by_author and of.call.again is not None
        pairs = [(kind, usual[i % len(usual)]) for i, kind in enumerate(kinds if looked_at_so else ())]
        made = [made_otherwise(case, one.contents, chance.getrandbits(63), kind) for kind, one in pairs]
        made = [one for one in made if any(one[1])]
        contents = tuple(tuple(each) for each, _ in made)
        task = ExpectTask(self._reference, case, (0,) * len(made), contents, self._on_gpu, extreme=0)
        with contextlib.suppress(Refusal):
            return self._of_contents(of, task, [forms for _, forms in made])[1] if made else ()
        return ()

    def _of_alike(self, of: ShapeComparison, usual: Sequence[ExpectedSeed]) -> tuple[ResultError, ...]:
        """What is wrong where one input that the task's own code makes alike each time has another order: the one alone
        that the reference's results follow from. The candidate's may follow from another, which tells the same."""
        case, seed = of.case, secrets.randbits(63)
        contents = [one.contents for one in usual] if case.made_by_author and of.call.again is not None else []
        small = bool(contents) and sum(map(len, contents[0])) < MOST_EMULATED
        made = list(made_in_another_order(case, contents, seed)) if small else []
        task = ExpectTask(self._reference, case, (0,) * len(made), tuple(x for x, _ in made), self._on_gpu, extreme=0)
        with contextlib.suppress(Refusal, ValueError):  # it may have other results there, or none
            found = self._authors(task).seeds if made else ()
            follow = [differs(usual[0], one) for one in found]
            for which in (False, True) if sum(follow) == 1 else ():
                some = [one for one, follows in zip(made, follow, strict=True) if follows == which]
                seeds, every, forms = (0,) * len(some), tuple(x for x, _ in some), [x for _, x in some]
                if some and (wrong := self._of_contents(of, replace(task, seeds=seeds, contents=every), forms)[1]):
                    return wrong if which else ()
        return ()

    def _of_contents(
        self, of: ShapeComparison, task: ExpectTask, forms: Sequence[tuple[str, ...]]
    ) -> tuple[bool, tuple[ResultError, ...]]:
        """Whether the reference has results of all of a task's contents, and what is wrong there. The replays have the
        time of another budget, for the reference may have used that of the shape."""
        case, call = of.case, of.call
        found, patterns, given = tuple[ExpectedSeed, ...](), poison_patterns(len(forms)), task.contents
        with contextlib.suppress(Refusal):  # it takes no such numbers, or torch's operators can't be watched there
            found = tuple(in_buffers(call, case, one) for one in self._authors(task).seeds)
        lie = [(view.dtype, view.shape) for view in call.results]
        has_all = len(found) == len(forms) and all([(r.dtype, r.shape) for r in x.results] == lie for x in found)
        end = time.monotonic() + self._budget
        each = [(contents, poison, end) for contents, poison in zip(given, patterns, strict=True)]
        with ThreadPoolExecutor(self._workers) as threads:
            replays = self._replays(threads, case, call, each if has_all else (), 0)
            answers = [answer for one in replays for answer in one.result()]
        for i, answer in enumerate(answers):
            want = replace(found[i], contents=given[i])
            after = left_of(call, want, answer)
            errors = (
                unequal_of(of, want, after, forms[i], task.exact)
                if task.exact
                else errors_of(of, want, patterns[i], after, forms[i])
            )
            if wrong := tuple(e for e in errors if e.wrong):
                return True, wrong
        return has_all, ()
