"""Processes that time two recordings in turn: the driver alone, no torch, no Triton, no code of users.

The pool and the messages of the parent's side, the loop and the layout of memory of the worker's side. What the times
mean is never decided here. The package imports nothing: the start of a worker is what a replay waits for.
"""
