"""Ordinary edits of ordinary kernels, each with what an H200 says of its time."""
