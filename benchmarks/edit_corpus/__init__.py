"""Ordinary edits of ordinary kernels, each with its times on an H200."""
