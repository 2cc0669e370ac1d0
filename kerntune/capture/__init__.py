"""What one call of the user's function launched: every launch as it was called, and those whose config was open."""

from kerntune.capture.capture import Capture, current
from kerntune.capture.launch import LAUNCH_WORDS, Pending, Probe
from kerntune.capture.site import Candidate, Site

__all__ = ["LAUNCH_WORDS", "Candidate", "Capture", "Pending", "Probe", "Site", "current"]
