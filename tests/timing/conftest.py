"""How many executions are timed, and on how many copies, is tested here."""

import pytest


@pytest.fixture(autouse=True)
def few_executions() -> None:
    """As many as users' runs have."""
