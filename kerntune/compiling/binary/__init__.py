"""Compiled kernels as bytes and text: what they are, and when two are the same."""
