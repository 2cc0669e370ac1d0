"""``kerntune judge``: words, errors and exit codes; judgements themselves are in tests/referee."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kerntune.cli.command import main
from kerntune.referee import judgement, sealed_process
from kerntune.referee.verdicts import EXIT_CODES, CandidateVerdict, ShapeResult, Word


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the command asks the judge; the answer is FASTER, or what ``word`` in the candidate's name says."""
    found: list[Any] = []

    def judge(*args: Any, **words: Any) -> CandidateVerdict:
        found.append((args, words))
        word = Word(args[0]) if args[0] in Word.__members__ else Word.FASTER
        return CandidateVerdict(word, args[0], args[1], (ShapeResult("x", word),))

    monkeypatch.setattr(judgement, "judge", judge)
    return found


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is asked of the C library, for the whole process."""
    found: list[Any] = []
    monkeypatch.setattr(sealed_process, "use_freed_memory_again", lambda: found.append(True))
    return found


def test_what_is_given_goes_to_the_judge(asked: list[Any]) -> None:
    words = ["judge", "c.py::f", "r.py::f", "--inputs", "x: f16[3]", "--inputs", "x: f16[4]", "--budget", "3"]
    assert main([*words, "--unsealed"]) == 0
    assert asked == [(("c.py::f", "r.py::f", ["x: f16[3]", "x: f16[4]"]), {"budget": 3.0, "sealed": False})]
    assert main(["judge", "c.py::f", "r.py::f", "--budget", "86399"]) == 0
    assert asked.pop()[1]["budget"] == 86_399.0
    assert main(["judge", "c.py::f", "r.py::f"]) == 0
    assert asked[1] == (("c.py::f", "r.py::f", []), {"budget": 10.0, "sealed": True})


@pytest.mark.parametrize("word", Word)
def test_the_exit_code_is_the_verdicts(word: Word, asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", word.value, "r.py::f"]) == EXIT_CODES[word]
    assert capsys.readouterr().out.startswith(word.value)


def test_freed_memory_is_used_again(asked: list[Any], memory: list[Any]) -> None:
    main(["judge", "c.py::f", "r.py::f"])
    assert memory == [True]


def test_json_is_one_document(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    main(["judge", "c.py::f", "r.py::f", "--json"])
    assert json.loads(capsys.readouterr().out)["verdict"] == "FASTER"


@pytest.mark.parametrize("budget", ["0", "-1", "nan", "inf", "86400"])
def test_a_budget_is_a_number_of_seconds(budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", "c.py::f", "r.py::f", f"--budget={budget}"]) == 2
    assert "the budget is a number of seconds above 0" in capsys.readouterr().err


def test_usage_errors_exit_with_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.py").write_text("def f(x): return x")
    assert main(["judge", f"{tmp_path}/none.py::f", f"{tmp_path}/r.py::f", "--inputs", "x: f16[3]"]) == 2
    assert "no such file" in capsys.readouterr().err
