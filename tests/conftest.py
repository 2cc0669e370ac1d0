"""Shared by all tests."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester"]

settings.register_profile("kerntune", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kerntune")
"""No test here asserts a time, so a slow machine must not fail one."""
