"""The pytest plugin of kerntune: ``pytest --kerntune``."""

from pytest_kerntune.warning import KerntuneWarning

__all__ = ["KerntuneWarning"]
