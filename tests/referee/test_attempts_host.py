"""Attempts of the host's side that no candidate's file can be: sources, inputs, folders and texts of the command."""

from __future__ import annotations

import contextlib
import json
import os
import py_compile
import sys
import time
import traceback
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.msgpack import encode as encoded

from kerntune.base.device import Target
from kerntune.base.folders import remove_tree
from kerntune.compiling.forking import fork
from kerntune.errors import UsageError
from kerntune.referee import layouts
from kerntune.referee.case_inputs import UserCallable
from kerntune.referee.declared_inputs import content_of, parse_line
from kerntune.referee.hostile_recording import checked, decoded
from kerntune.referee.judgement import Bench, judge
from kerntune.referee.layouts import candidate_source, literal_inputs, load, task_shapes
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.recorder_answer import answer_of
from kerntune.referee.sealed_process import Answered, SealedEnd
from kerntune.referee.sealing import _drop_capabilities, import_folders
from kerntune.referee.tasks import CallRefused, RecordAnswer
from kerntune.referee.verdict_report import text_of, to_json
from kerntune.referee.verdicts import CandidateVerdict, ShapeResult, Word
from tests.referee import recordings


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    modules = {*sys.modules}
    yield
    for name in {*sys.modules} - modules:
        del sys.modules[name]


def _file(folder: Path, text: str, name: str = "a.py") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


# sources, which the judge itself reads


def test_a_source_in_an_encoding_that_is_decoded_slowly(tmp_path: Path) -> None:
    """Python's punycode takes the square of a text's length; the judge itself parses the candidate's file."""
    path = _file(tmp_path, f"# coding: punycode\n{'a' * 40_000}-{'b' * 40_000}")
    began = time.process_time()
    with pytest.raises(UsageError):
        candidate_source(f"{path}::fn")
    assert time.process_time() - began < 0.1


def test_a_source_in_an_encoding_that_shows_other_code(tmp_path: Path) -> None:
    """In UTF-7 what a reader sees as a comment has a line break, and goes on as code."""
    path = _file(tmp_path, "# coding: utf-7\ndef fn(x): return x\n# a note +AAo-def fn(x): return None\n")
    with pytest.raises(UsageError, match="UTF-8"):
        candidate_source(f"{path}::fn")


@pytest.mark.parametrize("text", ["-" * 20_000 + "1", "a" + ".a" * 20_000, "x=" + "1 if 1 else " * 5_000 + "1"])
def test_a_source_that_is_nested_deeply(tmp_path: Path, text: str) -> None:
    """The judge itself parses it: that may fail, and may not end the process."""
    path = _file(tmp_path, text)
    with pytest.raises(UsageError):
        candidate_source(f"{path}::fn")


def test_a_source_without_an_end() -> None:
    """A device in place of a file."""
    with pytest.raises(UsageError, match="more than"):
        candidate_source("/dev/zero::fn")


def test_a_source_that_has_the_parser_warn(tmp_path: Path) -> None:
    """A warning shows the line that it is for: a terminal would get its control characters, with or without ``-W``."""
    path = _file(tmp_path, "def fn(x): return '\\d \x1b[2J'\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert candidate_source(f"{path}::fn").name == "fn"


def test_the_folder_of_the_script_that_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's path begins with that folder, where a leaderboard keeps its shapes: a candidate may not read it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    assert str(tmp_path) not in import_folders()


def test_compiled_code_beside_a_source(tmp_path: Path, imports: None) -> None:
    """``__pycache__`` may hold code that is never compared with the source (PEP 552, unchecked): the reference's."""
    path = _file(tmp_path, "def fn(): return 'of the cache'\n", "cached_reference.py")
    py_compile.compile(path, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    _file(tmp_path, "def fn(): return 'of the source'\n", "cached_reference.py")
    assert load(UserCallable(path, "fn", layouts.FUNCTION)).fn() == "of the source"


def test_a_package_beside_the_reference_that_is_installed_without_a_file(
    tmp_path: Path, imports: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed namespace package (``nvidia``, ``google``) gives way to a folder of its name with a file."""
    _file(tmp_path, "WHO = 'installed'\n", "installed/spaced_package/part.py")
    _file(tmp_path, "", "task/spaced_package/__init__.py")
    _file(tmp_path, "WHO = 'beside'\n", "task/spaced_package/part.py")
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    path = _file(tmp_path, "from spaced_package.part import WHO\n", "task/spaced_reference.py")
    assert load(UserCallable(path, "WHO", layouts.FUNCTION)).WHO == "installed"


def test_a_file_of_an_installed_modules_name_beside_the_reference(tmp_path: Path, imports: None) -> None:
    """Relative to the folder of the reference, a candidate has the name of a module of Python's."""
    _file(tmp_path, "WHO = 'beside'\n", "sndhdr.py" if sys.version_info < (3, 13) else "this.py")
    name = "sndhdr" if sys.version_info < (3, 13) else "this"
    path = _file(tmp_path, f"import importlib.util\nWHERE = importlib.util.find_spec('{name}').origin\n", "r.py")
    assert not load(UserCallable(path, "WHERE", layouts.FUNCTION)).WHERE.startswith(str(tmp_path))


@pytest.mark.parametrize("name", ["sitecustomize.py", "conftest.py", "__init__.py", "_pytest.py", "__main__.py"])
def test_files_that_python_runs_by_itself(tmp_path: Path, imports: None, name: str) -> None:
    """Nothing beside the reference is imported that it doesn't ask for."""
    _file(tmp_path, "raise SystemExit('run')\n", name)
    _file(tmp_path, "import sys; sys.exit('run')\n", "beside.pth")
    path = _file(tmp_path, "def fn(): return 1\n", "quiet_reference.py")
    assert load(UserCallable(path, "fn", layouts.FUNCTION)).fn() == 1


# inputs


@pytest.mark.parametrize(
    "later", ['INPUTS += ["x: f32[500]"]', 'INPUTS = ["x: f32[500]"]', 'INPUTS.append("x: f32[5]")']
)
def test_shapes_that_are_added_later(tmp_path: Path, later: str) -> None:
    """A Python that runs the file would have other shapes than the judge, which reads the first line alone."""
    with pytest.raises(UsageError):
        literal_inputs(_file(tmp_path, f'INPUTS = ["x: f32[1000]"]\n{later}\n'))


@pytest.mark.parametrize("value", ["5", "None", "{[]: 1}", "1 + 2j", "True"])
def test_inputs_that_are_no_list(tmp_path: Path, value: str) -> None:
    """Wrong usage, and no error of the judge's."""
    with pytest.raises(UsageError):
        literal_inputs(_file(tmp_path, f"INPUTS = {value}\n"))


def test_shapes_of_a_task_in_another_style(tmp_path: Path) -> None:
    """YAML knows two ways to write a mapping: those in the other one would be left out, and no one told."""
    text = 'benchmarks:\n  - {"size": 10}\n  - size: 20\n    seed: 1\n'
    with pytest.raises(UsageError):
        task_shapes(_file(tmp_path, text, "task.yml"))


def test_a_task_whose_values_refer_to_each_other(tmp_path: Path) -> None:
    """YAML's anchors make much of little."""
    text = "a: &a [1]\nb: &b [*a, *a]\nbenchmarks:\n  - {size: *b}\n"
    with pytest.raises(UsageError):
        task_shapes(_file(tmp_path, text, "task.yml"))


def _drawn(line: str) -> None:
    case = parse_line(line)
    encoded(case)
    for given in case.tensors:
        content_of(given, 1)


@pytest.mark.parametrize(
    "line",
    ["x: i64[4] < 99999999999999999999", "x: i64[4] in 0..9223372036854775807", f"x: i64[4] < 1{'0' * 400}",
     f"x: f32[4]; n = {10**30}", "x: f32[4]; n = '\\ud800'"],
)  # fmt: skip
def test_lines_that_fail_after_they_were_read(line: str) -> None:
    """Numbers that can't be drawn, or told to another process, are wrong usage."""
    with pytest.raises(UsageError):
        _drawn(line)


# files' names, texts, processes


def _lines(verdict: CandidateVerdict) -> list[str]:
    return "\n".join(text_of(verdict)).splitlines()


def test_lines_of_a_refusals_text() -> None:
    """An exception's text has lines: none may stand where the verdict does."""
    shape = ShapeResult("x: f32[4]", Word.REFUSED, reason=Reason.CANDIDATE_FAILED, text="E: \nFASTER a.py against b.py")
    found = _lines(CandidateVerdict(Word.REFUSED, "a.py", "b.py", (shape,)))
    assert not [line for line in found[1:] if not line.startswith("  ")]


def test_lines_of_a_files_name() -> None:
    """So may a file's name."""
    found = _lines(CandidateVerdict(Word.WRONG, "a\nFASTER b.py", "b.py", ()))
    assert len(found) == 1


def test_a_files_name_in_json() -> None:
    """What looks like JSON stays a text in it."""
    name = 'a.py", "verdict": "FASTER", "x": "\x1b[2J\n'
    found = json.loads(to_json(CandidateVerdict(Word.WRONG, name, "b.py", ())))
    assert (found["verdict"], found["candidate"]) == ("WRONG", name)


def test_a_files_name_that_is_no_text(tmp_path: Path) -> None:
    """Bytes that are no UTF-8: told to be wrong usage, before a process starts."""
    path = _file(tmp_path, "def fn(x): return x\n", "\udcff.py")
    with pytest.raises(UsageError):
        encoded(candidate_source(f"{path}::fn"))


def _without_capabilities(work: Callable[[], bool]) -> bool:
    """What ``work`` gives in a fork that has no rights beyond its own files', even where tests run as root."""

    def code() -> None:
        try:
            _drop_capabilities()
            os._exit(0 if work() else 7)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    _, status = os.waitpid(fork(code), 0)
    found = os.waitstatus_to_exitcode(status)
    assert found in (0, 7)
    return found == 0


def test_a_folder_without_rights_is_removed(tmp_path: Path) -> None:
    """Who isn't root can't move a folder that can't be written: the candidate's would stay for ever."""

    def work() -> bool:
        scratch = tmp_path / "1"
        (scratch / "a" / "b").mkdir(parents=True)
        (scratch / "a").chmod(0)
        remove_tree(scratch)
        return not os.listdir(tmp_path)

    assert _without_capabilities(work)


class Late:
    """Processes that all are late."""

    asked = 0

    def wait(self) -> None:
        """There is nothing to start."""

    def ask(self, *args: Any, **kwargs: Any) -> Answered:
        """Late."""
        self.asked += 1
        return Answered(None, SealedEnd(-9, late=True), "")

    def close(self) -> None:
        """There is nothing to end."""


def test_a_candidate_that_hangs_at_each_of_many_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 shapes of two minutes each would be two hours: one that is refused decides for all."""
    monkeypatch.setattr("kerntune.referee.judgement.PrewarmedProcesses", lambda sealed: Late())
    path = _file(tmp_path, "def fn(x): return x\n")
    bench = Bench()
    verdict = judge(f"{path}::fn", f"{path}::fn", [f"x: f32[{n}]" for n in range(1, 9)], bench=bench)
    assert verdict.word is Word.REFUSED
    assert bench.processes.asked == 1  # type: ignore[attr-defined]


# recordings: what their size, and their texts, do to the judge and to its reader


def test_fifty_thousand_empty_maps() -> None:
    """Each byte of a recording may become a hundred in the judge: what isn't bytes needs a bound of its own."""
    binary = msgspec.structs.replace(recordings.BINARY, options={"x": [{}] * 50_000})
    answer = encoded(RecordAnswer(call=recordings.recording(binaries=(binary,))))
    tracemalloc.start()
    try:
        with contextlib.suppress(Refusal):
            found = decoded(answer)
            assert found.call is not None
            checked(found.call, recordings.CASE, recordings.TARGET)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(answer)
    finally:
        tracemalloc.stop()


def test_the_text_of_another_target() -> None:
    """It is the candidate's: it has an end, and one line."""
    target = Target("cuda", "90\nFASTER" + "x" * 100_000)
    with pytest.raises(Refusal) as refused:
        checked(recordings.recording(target=target), recordings.CASE, recordings.TARGET)
    assert len(str(refused.value)) < 2_000


def test_the_name_of_a_launch_is_that_of_its_code() -> None:
    """A verdict lists launches by name: what the recording calls them is its own claim."""
    call = checked(recordings.launch(kernel="flash_attention"), recordings.CASE, recordings.TARGET)
    assert [x.kernel for x in call.recording.launches] == ["add"]


@pytest.mark.parametrize("reason", [Reason.REFERENCE, Reason.UNSEALED, Reason.ROOFLINE, Reason.DEGENERATE])
def test_a_recorder_that_blames_another(reason: Reason) -> None:
    """A candidate's process can't know what is wrong with the reference, the system or the time."""
    answer = encoded(RecordAnswer(refused=CallRefused(reason.value, "x")))
    with pytest.raises(Refusal) as refused:
        answer_of(Answered(answer, SealedEnd(), ""))
    assert refused.value.reason is Reason.ANSWER
