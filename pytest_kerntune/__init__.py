"""The pytest plugin of kerntune: ``pytest --kerntune``."""
