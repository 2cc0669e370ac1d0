"""One test for all rows of a large table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., None]


def of_each(names: str, values: Iterable[Any]) -> Callable[[Test], Test]:
    """As ``pytest.mark.parametrize``, in one test: it is called with each value, and a failure names the value.

    For tables of many rows that take less than a test of their own does. All rows share the test's fixtures.
    """
    keys = names.split()
    rows = [dict(zip(keys, value if len(keys) > 1 else [value], strict=True)) for value in values]
    assert rows, "a table without rows would test nothing"

    def decorate(test: Test) -> Test:
        def test_of_all(**fixtures: Any) -> None:
            for row in rows:
                try:
                    test(**row, **fixtures)
                except Exception as exc:
                    raise AssertionError(f"{row!a}: {exc}") from exc

        signature = inspect.signature(test)
        others = [p.replace(kind=p.KEYWORD_ONLY) for name, p in signature.parameters.items() if name not in keys]
        assert len(others) == len(signature.parameters) - len(keys)
        for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(test_of_all, attribute, getattr(test, attribute))
        test_of_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return test_of_all

    return decorate
