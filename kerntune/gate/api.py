"""What the plugin calls: one case, from the user's call to its verdict."""

from kerntune.gate.call import Call, Checked, Settings, compare_reference
from kerntune.gate.session import Session, open_session

__all__ = ["Call", "Checked", "Session", "Settings", "compare_reference", "open_session"]
