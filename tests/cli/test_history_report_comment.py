"""``kerntune report --comment``, against a stand-in of GitHub's API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from gate.reporting.made_runs import made_run

from cli.command import Command, CommandResult
from cli.github_api import COMMENTS, TOKEN, Api, event, served
from kerntune.base.policy import Outcome, Verdict
from kerntune.gate.report import RunReport, write_run
from kerntune.gate.reporting.pull_request import marker_of


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Api]:
    """The API that the job's variables name, for a branch of the repository itself."""
    for found in served(Api()):
        monkeypatch.setenv("GITHUB_API_URL", found.url)
        monkeypatch.setenv("GITHUB_REPOSITORY", "owner/kernels")
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        monkeypatch.setenv("GITHUB_EVENT_PATH", str(tmp_path / "event.json"))
        for proxy in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.delenv(proxy, raising=False)
        event(tmp_path, {"number": 7, "head": {"repo": {"full_name": "owner/kernels"}}})
        yield found


def good_run() -> RunReport:
    run = made_run(3, samples=5, configs=8)
    results = [msgspec.structs.replace(r, verdict=Verdict.PASS, outcome=Outcome.PASS) for r in run.results]
    return msgspec.structs.replace(run, results=tuple(results))


@pytest.fixture
def runs(tmp_path: Path) -> None:
    write_run(tmp_path / "wrong.json", made_run(3, samples=5, configs=8))
    write_run(tmp_path / "good.json", good_run())
    write_run(tmp_path / "stopped.json", msgspec.structs.replace(good_run(), results=(), exit_status=2))


@pytest.fixture
def report(kerntune: Command, api: Api, runs: None):
    """The command; whatever it says, the token isn't in it."""

    def call(*words: str) -> CommandResult:
        ran = kerntune("report", *words)
        assert TOKEN not in ran.out + ran.err
        assert ran.clean
        return ran

    return call


def test_the_first_run_comments_and_the_second_edits(report, api):
    api.add("a person's words", "User")
    ran = report("wrong.json", "--comment=wrong")
    assert (ran.code, ran.out) == (0, "commented on pull request 7\n")
    first = api.comments[1]["body"]
    assert first.startswith(f"{marker_of('kerntune')}\n## kerntune\n")
    assert "REGRESSED" in first
    ran = report("stopped.json", "--comment=wrong")
    assert (ran.code, ran.out) == (0, "edited the comment on pull request 7\n")
    assert len(api.comments) == 2
    assert "REGRESSED" not in api.comments[1]["body"]
    assert api.comments[0]["body"] == "a person's words"
    assert api.tokens == {f"Bearer {TOKEN}"}


def test_a_run_in_which_nothing_is_wrong_has_a_comment_if_asked_for(report, api):
    report("good.json", "--comment=wrong")
    assert api.comments == []
    report("good.json", "--comment=always")
    assert len(api.comments) == 1


def test_a_comment_that_is_no_longer_true_is_edited(report, api):
    report("wrong.json", "--comment=wrong")
    assert report("good.json", "--comment=wrong").out == "edited the comment on pull request 7\n"
    assert "REGRESSED" not in api.comments[0]["body"]


def test_jobs_of_other_titles_have_their_own(report, api):
    report("wrong.json", "--comment=wrong", "--title=H200 --> <b>")
    report("wrong.json", "--comment=wrong", "--title=MI300X")
    assert len(api.comments) == 2
    assert all(re.match(r"<!-- kerntune [0-9a-f]{16} -->\n", c["body"]) for c in api.comments)


def test_with_a_personal_token_too_the_second_run_edits(report, api):
    api.owner = 17
    api.add(f"{marker_of('kerntune')}\nanother person's", "User", 18)
    for said in ("commented on", "edited the comment on", "edited the comment on"):
        assert report("wrong.json", "--comment=wrong").out == f"{said} pull request 7\n"
    assert [c["user"]["id"] for c in api.comments] == [18, 17]
    assert api.comments[0]["body"].endswith("another person's")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (403, "no comment: the API answered 403 Forbidden; give the job permissions: pull-requests: write\n"),
        (500, "no comment: the API answered 500 Internal Server Error\n"),
        (799, "no comment: the API answered 799\n"),
        (200, "no comment: the API's answer is no list of comments\n"),
    ],
)
def test_a_refusal_is_told_and_fails_no_job(report, api, status, said):
    api.refusal = status
    ran = report("wrong.json", "--comment=wrong")
    assert (ran.code, ran.out, ran.err) == (0, "", f"kerntune: {said}")


@pytest.mark.parametrize("status", [301, 302, 307])
def test_another_address_is_never_sent_the_token(report, api, status):
    for other in served(Api()):
        api.refusal, api.elsewhere = status, f"{other.url}{COMMENTS}"
        assert "no comment: the API answered 30" in report("wrong.json", "--comment=wrong").err
        assert other.requests == []


def test_where_there_is_none_to_write(report, api, tmp_path):
    event(tmp_path, None)
    ran = report("wrong.json", "--comment=always")
    assert (ran.code, ran.out, api.requests) == (0, "no comment: this job is not of a pull request\n", [])


def test_a_job_that_lacks_a_variable_is_a_usage_error(report, api, monkeypatch):
    monkeypatch.setenv("GITHUB_API_URL", "file:///etc")
    ran = report("wrong.json", "--comment=wrong")
    assert ran.code == 2
    assert "GITHUB_API_URL='file:///etc' is no https address" in ran.err
    assert api.requests == []
