"""Stores on real services, where their packages are installed: a small version of ``benchmarks/store_outage.py``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import store_outage
from kerntune.tuning.cache import store_client

NEEDS = {"s3": ("moto", "s3fs", "flask"), "sftp": ("paramiko",)}


@pytest.fixture(params=sorted(NEEDS))
def service(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A URL, and the proxy before its service. However slow this machine is, that is no outage."""
    for package in NEEDS[request.param]:
        pytest.importorskip(package)
    if request.param == "sftp" and not os.path.exists(store_outage.SSHD):
        pytest.skip("there is no sshd")
    for name in ("HOME", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setattr(store_outage, "DELAY_S", 0.0)
    monkeypatch.setattr(store_client, "LIMIT_S", 60.0)
    monkeypatch.setattr(store_client, "WAIT_S", 20.0)
    with store_outage.SERVICES[request.param](tmp_path) as found:
        yield found


def test_a_second_machine_finds_all_by_two_requests(service: Any, tmp_path: Path) -> None:
    url, proxy = service
    row = store_outage.first_and_second(url, proxy, tmp_path, keys=5)
    assert row["first"]["tuned"] == 5
    assert (row["second"]["tuned"], row["second"]["differently"], row["second"]["asked"]) == (0, 0, 2)
    assert row["second"]["http_requests"] == (6 if url.startswith("s3") else 0), "a listing and five files"
    assert row["third_process_on_the_second_machine"]["asked"] == 0


def test_of_several_processes_one_creates_a_file(service: Any) -> None:
    row = store_outage.crowd(service[0], processes=2)
    assert row["with_exactly_one_winner"] == row["files"] == 40


def test_nothing_is_lost_when_the_service_goes_away(service: Any, tmp_path: Path) -> None:
    url, proxy = service
    row = store_outage.away(url, proxy, tmp_path, 6, "refuse")
    assert row["errors"] == []
    assert len(row["warnings"]) == 1
    assert (row["lost"], row["differently"]) == (0, 0)
