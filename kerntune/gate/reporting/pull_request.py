"""One comment on a pull request, edited in place by later runs, through the API of GitHub.

Only what GitHub Actions sets names where it goes: the variables and the event's file. Comments are texts of strangers:
nothing of them is shown or followed. Of those that begin with the marker only a bot's is edited, or that of the person
whose token this is.
"""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kerntune.base.policy import Outcome
from kerntune.errors import StoreError, UsageError
from kerntune.gate.report import RunReport
from kerntune.gate.reporting.summaries import summary

MAX_COMMENT = 60_000
"""Bytes of a comment. GitHub takes 65,536 characters (its answer to a longer one: "body is too long (maximum is 65536
characters)")."""

SECONDS = 20
"""How long one request may take."""

MAX_ANSWER = 32 * 2**20
"""Bytes that are read of one answer: 100 comments of 65,536 characters, in up to four bytes each."""

PAGE = 100
"""Comments of a page: the most that the API gives (docs.github.com, "List issue comments": per_page)."""

MAX_PAGES = 50

LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True)
class PullRequest:
    """Where a comment goes. ``api`` is the address of the API, ``repository`` is ``owner/name``. ``token`` is not in
    its ``repr``."""

    api: str
    repository: str
    number: int
    token: str = field(repr=False)


class _Repository(msgspec.Struct, frozen=True):
    full_name: str = ""


class _Head(msgspec.Struct, frozen=True):
    repo: _Repository | None = None


class _Pull(msgspec.Struct, frozen=True):
    number: int
    head: _Head


class _Event(msgspec.Struct, frozen=True):
    pull_request: _Pull | None = None


class _Author(msgspec.Struct, frozen=True):
    id: int = 0
    type: str = ""


class _Comment(msgspec.Struct, frozen=True):
    id: int
    body: str | None = None
    user: _Author | None = None


def pull_request_of(environ: Mapping[str, str]) -> PullRequest | str:
    """That of the job that runs, or the reason why there is none to comment on: another event, or a fork, whose token
    may not write. :class:`UsageError` if the job lacks a variable."""
    if not environ.get("GITHUB_EVENT_PATH"):
        raise UsageError("--comment: GITHUB_EVENT_PATH is not set; it works in a job of GitHub Actions only")
    path = Path(environ["GITHUB_EVENT_PATH"])
    try:
        pull = msgspec.json.decode(path.read_bytes(), type=_Event).pull_request
    except (OSError, msgspec.MsgspecError, RecursionError) as exc:
        raise UsageError(f"--comment: GITHUB_EVENT_PATH={path}: is no event of GitHub Actions ({exc})") from exc
    if pull is None:
        return "this job is not of a pull request"
    repository = environ.get("GITHUB_REPOSITORY", "")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII):
        raise UsageError(f"--comment: GITHUB_REPOSITORY={repository!r} is not OWNER/NAME")
    if pull.head.repo is None or pull.head.repo.full_name != repository:
        return "the pull request comes from a fork; the job's summary has the same"
    token = environ.get("GITHUB_TOKEN", "")
    if not re.fullmatch(r"[!-~]+", token):  # nothing that would end the header that carries it
        raise UsageError("--comment: GITHUB_TOKEN is not set, or not one word; give the step env: GITHUB_TOKEN")
    return PullRequest(_api(environ.get("GITHUB_API_URL", "")), repository, pull.number, token)


def _api(address: str) -> str:
    """The address without its last slash; a token is sent in the clear to this machine only."""
    parts = urlsplit(address)
    local = parts.scheme == "http" and parts.hostname in LOCAL
    if not parts.hostname or not (parts.scheme == "https" or local):
        raise UsageError(f"--comment: GITHUB_API_URL={address!r} is no https address")
    return address.rstrip("/")


def is_wrong(runs: Sequence[RunReport]) -> bool:
    """Whether a run failed, or one of its cases."""
    return any(run.exit_status != 0 or any(r.outcome is Outcome.FAIL for r in run.results) for run in runs)


def marker_of(title: str) -> str:
    """What a comment of this title begins with; browsers don't show it."""
    return f"<!-- kerntune {sha256(title.encode()).hexdigest()[:16]} -->"


def comment(place: PullRequest, runs: Sequence[RunReport], title: str, always: bool) -> str:
    """Write the runs' summary as the only comment of ``title``; a sentence that says what was done.

    Where nothing is wrong a new comment is written only if ``always``; one that is there is edited all the same, since
    what it says is no longer so. :class:`StoreError` if the API refuses or can't be reached.
    """
    here, found = f"repos/{place.repository}/issues", _own_comment(place, marker_of(title))
    if found is None and not always and not is_wrong(runs):
        return "nothing is wrong: no comment"
    body = {"body": f"{marker_of(title)}\n{summary(runs, MAX_COMMENT)}"}
    if found is None:
        _request(place, "POST", f"{here}/{place.number}/comments", body)
        return f"commented on pull request {place.number}"
    _request(place, "PATCH", f"{here}/comments/{found}", body)
    return f"edited the comment on pull request {place.number}"


def _own_comment(place: PullRequest, marker: str) -> int | None:
    """The id of the comment that an earlier run has written. Anyone can write the marker, so who wrote the comment
    counts too: a job's token is a bot's, a personal one its owner's. Another person's comment is left alone."""
    owner: int | None = None
    for found in _comments(place):
        if found.user is None or not (found.body or "").startswith(marker):
            continue
        if found.user.type == "Bot":
            return found.id
        owner = _owner(place) if owner is None else owner
        if owner and owner == found.user.id:
            return found.id
    return None


def _owner(place: PullRequest) -> int:
    """The id of the person whose token this is; 0 for a token that is no person's."""
    try:
        return msgspec.json.decode(_request(place, "GET", "user"), type=_Author).id
    except (StoreError, msgspec.MsgspecError, RecursionError):  # a job's token may not ask
        return 0


def _comments(place: PullRequest) -> Iterator[_Comment]:
    for page in range(1, MAX_PAGES + 1):
        path = f"repos/{place.repository}/issues/{place.number}/comments?per_page={PAGE}&page={page}"
        data = _request(place, "GET", path)
        try:
            found = msgspec.json.decode(data, type=list[_Comment])
        except (msgspec.MsgspecError, RecursionError) as exc:
            raise StoreError("the API's answer is no list of comments") from exc
        yield from found
        if len(found) < PAGE:
            return


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Another address would be sent the token."""

    def redirect_request(self, *args: Any) -> None:
        return None


def _request(place: PullRequest, method: str, path: str, body: object = None) -> bytes:
    """The answer; :class:`StoreError` with its number, and none of its text."""
    request = urllib.request.Request(
        f"{place.api}/{path}",
        None if body is None else msgspec.json.encode(body),
        {"Accept": "application/vnd.github+json", "Content-Type": "application/json", "User-Agent": "kerntune"},
        method=method,
    )
    request.add_unredirected_header("Authorization", f"Bearer {place.token}")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=SECONDS) as answer:
            data: bytes = answer.read(MAX_ANSWER)
            return data
    except urllib.error.HTTPError as exc:
        exc.close()
        refused = exc.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
        advice = "; give the job permissions: pull-requests: write" if refused else ""
        raise StoreError(f"the API answered {_status(exc.code)}{advice}") from None
    except (OSError, http.client.HTTPException) as exc:
        raise StoreError(f"the API can't be reached ({type(exc).__name__})") from None


def _status(code: int) -> str:
    known = code in HTTPStatus.__members__.values()
    return f"{code} {HTTPStatus(code).phrase}" if known else str(code)
