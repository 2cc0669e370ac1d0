"""The compile farm: persistent compiling processes in which a crash costs one candidate.

Exports nothing: a worker needs little of it, and its start is what a first call waits for.
"""
