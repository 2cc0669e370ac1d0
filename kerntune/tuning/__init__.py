"""From a launch whose config is open to its winner: candidates, compilation, race, verification, what is remembered.

``cache/`` stores trials and winners, ``api/`` has what users call (decorators, ``install()``). Baselines and verdicts
never appear here: a library without pytest needs none.
"""
