"""Tunes Triton kernels and guards their speed."""
