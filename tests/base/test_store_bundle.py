"""Bundles: what goes in comes out, and nothing else does."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base import store_bundle
from kerntune.base.store_bundle import pack, unpack
from kerntune.errors import StoreError


@given(st.dictionaries(st.text("abc0.", min_size=1), st.integers(), max_size=8))
def test_members_come_out_as_they_went_in(members: dict[str, int]) -> None:
    given_ = {name: b"%d" % number for name, number in members.items()}
    assert unpack(pack(given_), "here") == given_


def test_equal_members_give_equal_bytes() -> None:
    assert pack({"a": b"[1, 2]", "b": b"2"}) == pack({"b": b"2", "a": b"[1,2]"})


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", gzip.compress(b"{}"), gzip.compress(b'{"schema": "other/1", "members": {}}'), pack({"a": b"1"})[:-3]],
    ids=["empty", "not packed", "no schema", "another schema", "cut off"],  # gzip's bytes have the time in them
)
def test_what_is_no_bundle_is_refused(data: bytes) -> None:
    with pytest.raises(StoreError, match="here"):
        unpack(data, "here")


def test_what_goes_on_behind_its_end_is_refused() -> None:
    with pytest.raises(StoreError, match="behind its end"):
        unpack(pack({"a": b"1"}) + b"x", "here")


def test_a_bundle_that_unpacks_to_more_than_it_may_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack({"a": b'"%s"' % (b"x" * 5000)})
    monkeypatch.setattr(store_bundle, "MAX_UNPACKED", 1000)
    with pytest.raises(StoreError, match="too long"):
        unpack(packed, "here")


def test_a_bundle_stays_within_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_bundle, "MAX_UNPACKED", 2000)
    members = {f"{n:02}": b'"%s"' % (b"x" * 100) for n in range(40)}
    kept = unpack(pack(members), "here")
    assert 0 < len(kept) < 20
    assert kept.items() <= members.items()
