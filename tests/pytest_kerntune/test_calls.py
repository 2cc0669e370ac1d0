"""Calls of ``autotune`` from elsewhere than a test's body, on the scripted engine."""

from __future__ import annotations

import pytest

TEARDOWN = """
@pytest.fixture
def late(autotune):
    yield
    autotune(kernel({verdict!r}), name="late")

def test_a(autotune, late):
    autotune(kernel({body!r}))
"""


@pytest.mark.parametrize(
    ("body", "verdict", "outcomes"),
    [
        ("PASS", "PASS", {"passed": 1}),
        ("PASS", "REGRESSED", {"passed": 1, "errors": 1}),
        ("REGRESSED", "PASS", {"failed": 1}),
    ],
)
def test_a_call_in_a_fixtures_teardown_is_a_case_like_others(project, body, verdict, outcomes):
    project.file(TEARDOWN.format(body=body, verdict=verdict))
    result = project.run("--kerntune-json=run.json")
    result.assert_outcomes(**outcomes)
    assert [r["verdict"] for r in project.json()["results"]] == [body, verdict]
    if verdict == "REGRESSED":
        result.stdout.fnmatch_lines(["REGRESSED test_it.py::test_a::late: scripted"])
        result.stdout.fnmatch_lines(["ERROR test_it.py::test_a - +12.1 % (±0.5)"])


def test_calls_from_several_threads_wait_for_each_other(project):
    project.file(
        "import threading, time\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "busy = threading.Lock()\n"
        "def alone():\n"
        "    assert busy.acquire(blocking=False)\n"
        "    time.sleep(0.01)\n"
        "    busy.release()\n"
        "alone.script = kernel().script\n"
        "def test_a(autotune):\n"
        "    with ThreadPoolExecutor(4) as pool:\n"
        "        list(pool.map(lambda i: autotune(alone, name=f'c{i}'), range(8)))\n"
        "def test_unnamed(autotune):\n"
        "    with ThreadPoolExecutor(4) as pool:\n"
        "        list(pool.map(lambda i: autotune(alone), range(8)))\n"
    )
    result = project.run("--kerntune-json=run.json")
    result.assert_outcomes(passed=2)
    cases = {r["case"]["call"] for r in project.json()["results"]}
    assert cases == {*(f"c{i}" for i in range(8)), *map(str, range(8))}


INSIDE = """
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed, wait

def in_a_thread(pool, inner):
    thread = threading.Thread(target=inner)
    thread.start()
    thread.join()

WAYS = {
    "result": lambda pool, inner: pool.submit(inner).result(),
    "map": lambda pool, inner: list(pool.map(lambda i: inner(), range(2))),
    "wait": lambda pool, inner: wait([pool.submit(inner)]),
    "as_completed": lambda pool, inner: list(as_completed([pool.submit(inner)])),
    "thread": in_a_thread,
}

@pytest.mark.parametrize("way", WAYS)
def test_a(autotune, way):
    def inner():
        autotune(kernel(), name="inner")
    def outer():
        WAYS[way](pool, inner)
    outer.script = kernel().script
    with ThreadPoolExecutor(1) as pool:
        autotune(outer, name="outer")

def test_b(autotune):
    autotune(kernel())
"""


@pytest.mark.slow
def test_a_call_in_a_thread_that_another_call_waits_for_is_an_error(project):
    project.file(INSIDE)
    result = project.run()
    result.assert_outcomes(failed=5, passed=1)
    said = "autotune(...) was called in a thread that the function of another*waits for*"
    for way in ("result", "map", "wait", "as_completed", "thread"):
        result.stdout.fnmatch_lines([f"*test_it.py::test_a[[]{way}]: {said}"])


def test_a_call_that_fails_in_a_thread_fails_its_test(project):
    project.file(
        "import threading\n"
        "def test_a(autotune):\n"
        "    thread = threading.Thread(target=lambda: autotune(None))\n"
        "    thread.start(); thread.join()\n"
        "    autotune(kernel())\n"
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*autotune takes a function that launches kernels, not None*"])
    assert "commit" not in project.log
