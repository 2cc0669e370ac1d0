"""A stand-in of GitHub's API: the comments of one pull request."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOKEN = "ghs_0123456789secret"
COMMENTS = "/repos/owner/kernels/issues/7/comments"


class Api:
    """Comments of pull request 7, as the service keeps them; ``refusal`` is what it answers instead."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str]] = []
        self.tokens: set[str | None] = set()
        self.refusal: int | None = None
        self.elsewhere = ""
        self.url = ""
        self.owner = 0
        """Whose token it is: a person's id, or 0 for a job's, whose comments are a bot's."""

    def add(self, body: str, kind: str, author: int = 0) -> dict[str, Any]:
        user = {"login": "someone", "id": author or 900 + len(self.comments), "type": kind}
        comment = {"id": 100 + len(self.comments), "body": body, "user": user}
        self.comments.append(comment)
        return comment

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if method == "POST" and path == COMMENTS:
            return 201, self.add(body["body"], "User" if self.owner else "Bot", self.owner)
        if method == "GET" and path == "/user":
            return (200, {"id": self.owner, "type": "User"}) if self.owner else (403, {"message": "Not accessible"})
        if method == "PATCH" and (found := re.fullmatch(r"/repos/owner/kernels/issues/comments/(\d+)", path)):
            (comment,) = [c for c in self.comments if c["id"] == int(found[1])]
            comment["body"] = body["body"]
            return 200, comment
        if found := re.fullmatch(rf"{COMMENTS}\?per_page=(\d+)&page=(\d+)", path):
            size, page = int(found[1]), int(found[2])
            return 200, self.comments[size * (page - 1) : size * page]
        return 404, {"message": "Not Found"}


def handler_of(api: Api) -> type[BaseHTTPRequestHandler]:
    """What answers for ``api``: a refusal, or what it has."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            api.requests.append((self.command, self.path))
            api.tokens.add(self.headers.get("Authorization"))
            status, answer = api.answer(self.command, self.path, body)
            if api.refusal is not None:
                status, answer = api.refusal, {"message": f"refused {self.headers.get('Authorization')}"}
            data = json.dumps(answer).encode()
            self.send_response(status, f"because of {self.headers.get('Authorization')}")
            self.send_header("Content-Length", str(len(data)))
            if api.elsewhere:
                self.send_header("Location", api.elsewhere)
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PATCH = do_GET

        def log_message(self, *args: object) -> None:
            pass

    return Handler


def served(api: Api) -> Iterator[Api]:
    """The stand-in while it answers, on a port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(api))
    api.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield api
    server.shutdown()
    thread.join()
    server.server_close()


def event(folder: Path, pull: dict[str, Any] | None) -> None:
    """Write what the job of a pull request, or of another event, is given as ``event.json``."""
    (folder / "event.json").write_text(json.dumps({"action": "opened", **({"pull_request": pull} if pull else {})}))
