"""What users call: decorators, tuners, install()."""
