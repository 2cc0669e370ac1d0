"""Says which candidates are wrong: those that disagree with a reference, or with most of the others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kerntune.base.recording import Recording, work_of
from kerntune.gpu.program import First, Program
from kerntune.tuning.race import Trial
from kerntune.tuning.verification import Verification, Verifier

T = TypeVar("T")

CandidateContent = tuple[tuple[int, int], ...]
"""What a candidate begins with (:func:`content_of`)."""

CandidateWork = tuple[str, tuple[int, int, int], CandidateContent]
"""Equal for two candidates that are one: what is :func:`launched`, its grid, and its first contents."""

MOST_VOTERS = 8
"""Candidates that are run at most, where one disagrees with a reference that is only another candidate."""

CLEAR = 2
"""Votes ahead that make a majority clear: two to one may be two configs with the same fault."""

DOUBT = "no more configs agree with one than with the other; if that is meant, name the argument in verify_ignore"
"""The note on a reference that no other candidate confirms: it stays, being the first."""


@dataclass
class Consensus:
    """The verification of one kernel's candidates. ``verifier`` compares them with the current reference; its result
    counts if that is settled, else the majority of the candidates decides."""

    kernel: str
    asked: Verification
    verifier: Verifier
    _right: set[CandidateWork] = field(default_factory=set)
    _doubt: str = ""

    def wrong(self, suspects: Sequence[Trial], alive: Sequence[Trial]) -> dict[int, str]:
        """Why some of the suspects, by index, are wrong. Any of the ``alive`` trials may be run for it."""
        before, found = self.verifier, self._found(suspects, alive)
        return found if self.verifier is before else self._found(suspects, alive)  # by the new reference, all of them

    @property
    def partly(self) -> bool:
        """Whether something that candidates write is not compared."""
        return bool(self.verifier.left_out or self.asked.ignore)

    def notes(self) -> tuple[str, ...]:
        """What a user should know: arguments that are not compared, a reference that no candidate confirms."""
        texts = [*self.verifier.left_out.values(), *([self._doubt] if self._doubt else [])]
        return tuple(f"kernel {self.kernel}: {text}" for text in texts)

    def _found(self, suspects: Sequence[Trial], alive: Sequence[Trial]) -> dict[int, str]:
        return {trial.index: why for trial in suspects if (why := self._disagreement(trial, alive)) is not None}

    def _disagreement(self, trial: Trial, alive: Sequence[Trial]) -> str | None:
        """How a trial differs from the reference. If that is the trial itself, another candidate has to agree with it;
        where one doesn't, the majority decides which candidate is the reference."""
        voters = self._voters(trial, alive)
        if candidate_work(trial.program) in self._right or not voters:
            return None
        programs = [voter.program for voter in voters]
        why = self.verifier.disagreement(programs[0], programs)
        if why is not None and not self.verifier.settled:
            self.verifier, lead = elected(self.verifier, programs)
            self._right.clear()
            self._doubt = "" if lead else f"{why}; {DOUBT}"
            why = None if self._is_reference(trial) else self.verifier.disagreement(trial.program, programs)
        if why is None:
            self._right.add(candidate_work(trial.program))
        return why

    def _voters(self, trial: Trial, alive: Sequence[Trial]) -> list[Trial]:
        """Candidates other than the reference: the trial, then those with other constants, the fastest first. None
        where the reference is settled."""
        if self._is_reference(trial) and self.verifier.settled:
            return []
        seen = [_constants(trial)]
        new: list[Trial] = []
        rest: list[Trial] = []
        for other in sorted(alive, key=lambda t: t.time_ns):
            if other is not trial and not self._is_reference(other):
                (rest if _constants(other) in seen else new).append(other)
                seen.append(_constants(other))
        return [*([] if self._is_reference(trial) else [trial]), *new, *rest]

    def _is_reference(self, trial: Trial) -> bool:
        return candidate_work(trial.program) == candidate_work(self.verifier.reference)


def candidate_work(program: Program) -> CandidateWork:
    """Of a program of one launch."""
    return work_of_single(program.recording, program.first)


def work_of_single(single: Recording, first: First) -> CandidateWork:
    """Of a recording of one launch that begins with ``first``."""
    return launched(single), _only(single.launches).grid, content_of(first)


def launched(single: Recording) -> str:
    """Equal for recordings of one launch whose machine code, arguments and launch options are, whatever compiler
    options led to them: without a loop that is pipelined, all numbers of stages do. A config may choose arguments that
    are no ``tl.constexpr``, and so may its hook and ``triton.heuristics``."""
    binary = _only(single.binaries)
    needs = (binary.num_warps, binary.num_ctas, binary.shared, binary.tmem, binary.cooperative, binary.pdl)
    return f"{binary.sha256} {needs} {binary.global_scratch} {binary.profile_scratch} {_arguments(single)}"


def stored_code(single: Recording) -> str:
    """Of a recording of one launch the identity of its code with its arguments, as stored trials have it."""
    return hashlib.sha256(f"{_only(single.binaries).code} {_arguments(single)}".encode()).hexdigest()


def _arguments(single: Recording) -> str:
    return repr(work_of(single, _only(single.launches)).arguments)


def _only(items: Sequence[T]) -> T:
    (only,) = items
    return only


def content_of(first: First) -> CandidateContent:
    """Equal for equal contents of one race: there is one copy of what is alike."""
    return tuple((storage, id(content)) for storage, content in sorted(first.items()) if content is not None)


def _constants(trial: Trial) -> Mapping[str, str]:
    return _only(trial.recording.binaries).constexprs


def elected(first: Verifier, programs: Sequence[Program]) -> tuple[Verifier, int]:
    """The verifier with which most candidates agree, ``first`` in doubt, and by how many votes it leads.
    :attr:`~Verifier.confirmed` if that is clear.

    ``programs`` are further candidates with code of their own, in the order in which they are run.
    """
    classes, votes = [first], [1]
    for program in programs[: MOST_VOTERS - 1]:
        homes = (k for k, v in enumerate(classes) if v.disagreement(program, programs) is None)
        home = next(homes, len(classes))
        if home == len(classes):
            classes.append(Verifier(program, left_out=first.left_out, ignored=first.ignored))
            votes.append(0)
        votes[home] += 1
        if _lead(votes) >= CLEAR:
            break
    lead = _lead(votes)
    best = votes.index(max(votes)) if lead else 0
    found = classes[best]
    found.name = f"{votes[best]} of {sum(votes)} configs" if lead else first.name
    found.settled, found.confirmed = True, lead >= CLEAR
    return found, lead


def _lead(votes: Sequence[int]) -> int:
    ranked = sorted([*votes, 0], reverse=True)
    return ranked[0] - ranked[1]
