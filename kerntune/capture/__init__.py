"""What one call of the user's function launched: every launch as it was called, and those whose config was open.

The hook around launches, the memory plan that grows during the call, and the recorder that makes a
:class:`~kerntune.base.recording.Recording` of both. It changes no launch and takes no time; the tuner and the gate
do.
"""

from kerntune.capture.capture import Capture, current, wait_while_suspended
from kerntune.capture.launch import LAUNCH_WORDS, Candidate, Pending, Probe, Site

__all__ = ["LAUNCH_WORDS", "Candidate", "Capture", "Pending", "Probe", "Site", "current", "wait_while_suspended"]
