"""One comment on a pull request: where it goes, whose it is and what is sent, without a server."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.policy import Outcome, Verdict
from kerntune.errors import StoreError, UsageError
from kerntune.gate.report import RunReport
from kerntune.gate.reporting import pull_request as module
from kerntune.gate.reporting.pull_request import PullRequest, comment, is_wrong, marker_of, pull_request_of

PLACE = PullRequest("https://api.test", "owner/kernels", 7, "secret")
COMMENTS = "repos/owner/kernels/issues/7/comments"
MARKER = marker_of("mine")


def said(number: int, body: str | None = MARKER, kind: str = "Bot", owner: int = 1) -> dict[str, Any]:
    return {"id": number, "body": body, "user": {"id": owner, "type": kind}}


def run(outcome: Outcome = Outcome.PASS, exit_status: int = 0) -> RunReport:
    result = CaseResult(CaseId("t.py::a", "0"), "f", Verdict.PASS, outcome, "said", "cuda:90")
    return RunReport((result,), exit_status=exit_status)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What was asked, and the answers by path; an answer may be an error."""

    class Api:
        def __init__(self) -> None:
            self.asked: list[tuple[str, str, Any]] = []
            self.answers: dict[str, Any] = {"user": {"id": 9}}

        def request(self, place: PullRequest, method: str, path: str, body: Any = None) -> bytes:
            assert place is PLACE
            self.asked.append((method, path, body))
            answer = self.answers.get(path, [])
            if isinstance(answer, Exception):
                raise answer
            return answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    found = Api()
    monkeypatch.setattr(module, "_request", found.request)
    return found


def page(number: int) -> str:
    return f"{COMMENTS}?per_page=100&page={number}"


# where it goes


def environ(folder: Path, **changes: str) -> dict[str, str]:
    path = folder / "event.json"
    if not path.exists():
        path.write_text('{"pull_request": {"number": 7, "head": {"repo": {"full_name": "owner/kernels"}}}}')
    found = {
        "GITHUB_EVENT_PATH": str(path), "GITHUB_REPOSITORY": "owner/kernels", "GITHUB_TOKEN": "secret",
        "GITHUB_API_URL": "https://api.test/",
    }  # fmt: skip
    return found | changes


def test_the_job_s_variables_say_where_a_comment_goes(tmp_path: Path) -> None:
    assert pull_request_of(environ(tmp_path)) == PLACE
    assert "secret" not in repr(PLACE)


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ("{}", "this job is not of a pull request"),
        ('{"pull_request": {"number": 7, "head": {}}}', "the pull request comes from a fork; the job's summary has"),
        ('{"pull_request": {"number": 7, "head": {"repo": {"full_name": "o/kernels"}}}}', "the pull request comes"),
    ],
)  # fmt: skip
def test_why_there_is_none_to_comment_on(tmp_path: Path, event: str, why: str) -> None:
    (tmp_path / "event.json").write_text(event)
    found = pull_request_of(environ(tmp_path))
    assert isinstance(found, str)
    assert found.startswith(why)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GITHUB_EVENT_PATH", ""), ("GITHUB_EVENT_PATH", "/none/event.json"), ("GITHUB_REPOSITORY", "kernels"),
        ("GITHUB_REPOSITORY", "a/b/c"), ("GITHUB_TOKEN", ""), ("GITHUB_TOKEN", "two words"),
        ("GITHUB_API_URL", "http://api.test"), ("GITHUB_API_URL", ""),
        ("GITHUB_TOKEN", "two\nlines"), ("GITHUB_REPOSITORY", "../owner/x"), ("GITHUB_API_URL", "file:///etc"),
    ],
)  # fmt: skip
def test_a_job_without_a_variable_is_a_usage_error(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(UsageError, match=rf"^--comment: {name}\b"):
        pull_request_of(environ(tmp_path, **{name: value}))


@pytest.mark.parametrize(
    ("address", "known"),
    [
        ("https://api.test/v3//", "https://api.test/v3"), ("http://127.0.0.1:1/", "http://127.0.0.1:1"),
        ("http://localhost", "http://localhost"), ("http://[::1]:8", "http://[::1]:8"), ("http://api.test", None),
        ("ftp://localhost", None), ("https://", None), ("api.test", None),
    ],
)  # fmt: skip
def test_a_token_goes_in_the_clear_to_this_machine_alone(address: str, known: str | None) -> None:
    with contextlib.nullcontext() if known else pytest.raises(UsageError, match="is no https address"):
        assert module._api(address) == known


# whose it is, and what is written


def test_a_comment_of_an_earlier_version_is_found_again() -> None:
    assert f"<!-- kerntune {hashlib.sha256(b'mine').hexdigest()[:16]} -->" == MARKER
    assert len({MARKER, marker_of("another"), marker_of("")}) == 3


@pytest.mark.parametrize(
    ("runs", "wrong"),
    [([], False), ([run()], False), ([run(), run(exit_status=2)], True), ([run(), run(Outcome.FAIL)], True),
     ([run(Outcome.WARN)], False)],
)  # fmt: skip
def test_a_run_is_wrong_by_its_end_or_by_a_case(runs: list[RunReport], wrong: bool) -> None:
    assert is_wrong(runs) is wrong


def test_a_first_comment_is_written_where_something_is_wrong_or_always(api: Any) -> None:
    assert comment(PLACE, [run()], "mine", always=False) == "nothing is wrong: no comment"
    assert api.asked == [("GET", page(1), None)]
    for runs, always in (([run()], True), ([run(Outcome.FAIL)], False)):
        api.asked.clear()
        assert comment(PLACE, runs, "mine", always) == "commented on pull request 7"
        _, (method, path, body) = api.asked
        assert (method, path) == ("POST", COMMENTS)
        assert body["body"].startswith(f"{MARKER}\n## kerntune\n")


def test_a_comment_that_is_there_is_edited_whatever_it_says(api: Any) -> None:
    api.answers[page(1)] = [said(4, marker_of("another")), said(5), said(6)]
    assert comment(PLACE, [run()], "mine", always=False) == "edited the comment on pull request 7"
    assert [x[:2] for x in api.asked] == [("GET", page(1)), ("PATCH", "repos/owner/kernels/issues/comments/5")]


@pytest.mark.parametrize(
    ("comments", "own", "asks"),
    [
        ([said(1, f"see {MARKER}"), said(2, None), {"id": 3, "body": MARKER}], None, 0),
        ([said(1, "x", "User", 9), said(2, kind="User", owner=9)], 2, 1),
        ([said(1, kind="User", owner=8), said(2, kind="User", owner=8), said(3)], 3, 1),
        ([said(1, kind="User", owner=0)], None, 1),
    ],
)
def test_only_a_bot_s_comment_and_one_s_own_are_edited(api: Any, comments: Any, own: int | None, asks: int) -> None:
    api.answers[page(1)] = comments
    assert module._own_comment(PLACE, MARKER) == own
    assert [x[1] for x in api.asked].count("user") == asks


@pytest.mark.parametrize("answer", [StoreError("403"), b"[]", b"{" * 9])
def test_a_token_of_nobody_owns_no_comment(api: Any, answer: Any) -> None:
    api.answers |= {"user": answer, page(1): [said(1, kind="User", owner=0)]}
    assert module._own_comment(PLACE, MARKER) is None


def test_pages_are_asked_for_until_one_is_not_full(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    api.answers |= {page(1): [said(i) for i in range(100)], page(2): [said(100)], page(3): [said(101)]}
    assert [x.id for x in module._comments(PLACE)] == list(range(101))
    monkeypatch.setattr(module, "MAX_PAGES", 1)
    assert [x.id for x in module._comments(PLACE)] == list(range(100))
    api.answers[page(1)] = b"{}"
    with pytest.raises(StoreError, match="no list of comments"):
        list(module._comments(PLACE))


# the request itself


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that were opened, after what each gets: an answer or an error."""
    made: list[Any] = []

    class Opener:
        def open(self, request: Any, timeout: float) -> Any:
            answer = made.pop(0)
            made.append((request, timeout))
            if isinstance(answer, Exception):
                raise answer
            return contextlib.closing(io.BytesIO(answer))

    def build(handler: Any) -> Opener:
        assert handler().redirect_request("anywhere") is None, "another address would be sent the token"
        return Opener()

    monkeypatch.setattr(urllib.request, "build_opener", build)
    return made


def test_what_a_request_carries(opened: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER", 3)
    opened.append(b"answer")
    assert module._request(PLACE, "POST", "user", {"body": "x"}) == b"ans"
    request, timeout = opened.pop()
    assert (request.full_url, request.get_method(), timeout) == ("https://api.test/user", "POST", module.SECONDS)
    assert msgspec.json.decode(request.data) == {"body": "x"}
    assert request.unredirected_hdrs == {"Authorization": "Bearer secret"}
    assert request.get_header("Accept") == "application/vnd.github+json"
    opened.append(b"")
    module._request(PLACE, "GET", "user")
    assert opened.pop()[0].data is None


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (401, "401 Unauthorized; give the job permissions: pull-requests: write"), (500, "500 Internal Server Error"),
        (403, "403 Forbidden; give the job permissions: pull-requests: write"), (599, "599"),
        (404, "404 Not Found; give the job permissions: pull-requests: write"),
    ],
)  # fmt: skip
def test_a_refusal_is_told_by_its_number(opened: list[Any], code: int, text: str) -> None:
    body = io.BytesIO(b"secret things")
    opened.append(urllib.error.HTTPError("https://api.test", code, "theirs", None, body))  # type: ignore[arg-type]
    with pytest.raises(StoreError) as caught:
        module._request(PLACE, "GET", "user")
    assert (str(caught.value), body.closed) == (f"the API answered {text}", True)


def test_an_api_that_can_not_be_reached_is_told(opened: list[Any]) -> None:
    opened.append(TimeoutError("secret"))
    with pytest.raises(StoreError, match=r"^the API can't be reached \(TimeoutError\)$"):
        module._request(PLACE, "GET", "user")
