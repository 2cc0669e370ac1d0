"""Judges a candidate kernel against a reference: right, and faster? By recordings that are replayed without its code.

The process that decides imports no code of users. What a candidate's process sends is hostile data
(``hostile_recording``). Baselines, tests and their verdicts are the gate's, in ``gate/``.
"""
