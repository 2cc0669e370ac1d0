"""Entries of a mapping, of ``os.environ`` say, that are others for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def changed_items(mapping: MutableMapping[str, Any], changes: Mapping[str, Any]) -> Iterator[None]:
    """Meanwhile ``mapping`` has ``changes``; then what was there before, or nothing."""
    before = {name: mapping[name] for name in changes if name in mapping}
    mapping.update(changes)
    try:
        yield
    finally:
        for name in changes:
            mapping.pop(name, None)
        mapping.update(before)
