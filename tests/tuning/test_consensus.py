"""Which candidates are wrong: votes, and what makes two candidates one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.tuning import consensus
from kerntune.tuning.consensus import elected


class Voter:
    """Agrees with programs of its number; stands for a verifier."""

    def __init__(self, reference: Any, left_out: Any = None, ignored: Any = None) -> None:
        self.reference, self.left_out, self.ignored = reference, left_out, ignored
        self.name, self.settled, self.confirmed = "the first", False, False

    def disagreement(self, program: int, programs: Any) -> str | None:
        return None if program == self.reference else "other"


@pytest.mark.parametrize(
    ("programs", "winner", "name", "lead", "confirmed"),
    [
        ([1], 1, "2 of 2 configs", 2, True),
        ([2], 1, "the first", 0, False),
        ([2, 2], 2, "2 of 3 configs", 1, False),
        ([2, 2, 2], 2, "3 of 4 configs", 2, True),
        ([2, 1], 1, "2 of 3 configs", 1, False),
        ([1, 2, 2, 2], 1, "2 of 2 configs", 2, True),
        ([2, 3, 4, 5, 6, 7, 8, 1], 1, "the first", 0, False),
        ([2, 3, 2, 3, 2, 3, 3, 3], 3, "4 of 8 configs", 1, False),
    ],
)
def test_most_candidates_decide_the_first_in_doubt(
    programs: list[int], winner: int, name: str, lead: int, confirmed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until one leads by two; eight vote at most."""
    monkeypatch.setattr(consensus, "Verifier", Voter)
    first: Any = Voter(1, "left out", "ignored")
    found, by = elected(first, programs)  # type: ignore[arg-type]
    assert (found.reference, found.name, by) == (winner, name, lead)
    assert (found.settled, found.confirmed) == (True, confirmed)
    assert (found.left_out, found.ignored) == ("left out", "ignored")


@pytest.mark.parametrize(("votes", "lead"), [([1], 1), ([1, 1], 0), ([3, 1], 2), ([1, 4, 2], 2)])
def test_by_how_many_votes_one_leads(votes: list[int], lead: int) -> None:
    assert consensus._lead(votes) == lead


def test_contents_are_one_if_there_is_one_copy() -> None:
    one, other = object(), object()
    first: Any = {3: one, 1: None, 2: other}
    assert consensus.content_of(first) == ((2, id(other)), (3, id(one)))


def test_what_makes_two_launches_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code, what it needs of the device, and the arguments; not the options that it was compiled with."""
    monkeypatch.setattr(consensus, "_arguments", lambda single: "args")
    names = ("num_warps", "num_ctas", "shared", "tmem", "cooperative", "pdl", "global_scratch", "profile_scratch")
    plain = {"sha256": "abc", "code": "c", "options": 1, **dict.fromkeys(names, 0)}

    def single(**words: Any) -> Any:
        return SimpleNamespace(binaries=[SimpleNamespace(**{**plain, **words})])

    base = consensus.launched(single())
    assert base == consensus.launched(single(options=2, code="d"))
    assert all(consensus.launched(single(**{name: 1})) != base for name in ("sha256", *names))
    assert consensus.stored_code(single()) == consensus.stored_code(single(sha256="other"))
    assert consensus.stored_code(single()) != consensus.stored_code(single(code="d"))


def test_notes_are_of_the_kernel() -> None:
    made: Any = consensus.Consensus(
        "k",
        SimpleNamespace(ignore=()),
        SimpleNamespace(left_out={1: "x is not compared"}),  # type: ignore[arg-type]
    )
    assert (made.notes(), made.partly) == (("kernel k: x is not compared",), True)
    made._doubt, made.verifier.left_out = "no majority", {}
    assert (made.notes(), made.partly) == (("kernel k: no majority",), False)
    made.asked.ignore = ("y",)
    assert made.partly


class Comparing(Voter):
    """Notes which programs it was asked about."""

    asked: list[int] = []

    def disagreement(self, program: int, programs: Any) -> str | None:
        self.asked.append(program)
        return super().disagreement(program, programs)


def trial_of(program: int, index: int, constants: str = "", time_ns: float = 1.0) -> Any:
    binary = SimpleNamespace(constexprs=constants or f"of {index}")
    return SimpleNamespace(program=program, index=index, time_ns=time_ns, recording=SimpleNamespace(binaries=[binary]))


@pytest.fixture
def comparing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is compared; a program is its own work."""
    monkeypatch.setattr(consensus, "candidate_work", lambda program: program)
    Comparing.asked = []
    return Comparing.asked


def consensus_of(reference: int, settled: bool = False) -> Any:
    verifier: Any = Comparing(reference)
    verifier.settled = settled
    return consensus.Consensus("k", consensus.Verification(), verifier)


def test_what_agreed_with_a_reference_that_was_wrong_is_compared_anew(
    comparing: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several that are wrong alike the first may be the reference until another is asked for."""
    made, other = consensus_of(1), Comparing(2)
    other.settled = True
    monkeypatch.setattr(consensus, "elected", lambda verifier, programs: (other, 2))
    made._right = {5}
    trials = [trial_of(5, 0), trial_of(2, 1), trial_of(3, 2)]
    assert made.wrong(trials, trials) == {0: "other", 2: "other"}
    assert (made.verifier, made._right, made._doubt) == (other, {2}, "")


def test_a_reference_that_no_majority_has_is_kept_with_a_note(
    comparing: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = consensus_of(1)
    same = Comparing(1, {})
    same.settled = True
    monkeypatch.setattr(consensus, "elected", lambda verifier, programs: (same, 0))
    assert made.wrong([trial_of(2, 0)], [trial_of(1, 1)]) == {0: "other"}
    assert made.notes() == (f"kernel k: other; {consensus.DOUBT}",)


def test_what_agreed_is_not_compared_again(comparing: list[int]) -> None:
    made = consensus_of(1, settled=True)
    made._right = {7}
    trials = [trial_of(7, 0), trial_of(1, 1), trial_of(4, 2)]
    assert made.wrong(trials, trials) == {2: "other"}
    assert comparing == [4], "neither the reference nor one that is known to be right"


def test_who_votes_has_other_constants_first_then_is_the_fastest(comparing: list[int]) -> None:
    made = consensus_of(1)
    own, reference = trial_of(2, 0, "A"), trial_of(1, 1, "B")
    others = [trial_of(3, 2, "A", 1.0), trial_of(4, 3, "C", 9.0), trial_of(5, 4, "C", 3.0), trial_of(6, 5, "D", 5.0)]
    alive = [own, reference, *others]
    assert [t.program for t in made._voters(own, alive)] == [2, 5, 6, 3, 4]
    assert [t.program for t in made._voters(reference, alive)] == [2, 5, 6, 3, 4]
    made.verifier.settled = True
    assert made._voters(reference, alive) == []
