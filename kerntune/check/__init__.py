"""One case, from the user's call to its verdict."""

from kerntune.check.call import Call, Checked, Settings
from kerntune.check.reference import compare_reference
from kerntune.check.session import Session, open_session

__all__ = ["Call", "Checked", "Session", "Settings", "compare_reference", "open_session"]
