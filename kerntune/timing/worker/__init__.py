"""Fresh processes that time two recordings in turn, with the driver alone: no torch, no Triton, no user code.

A process of another kind makes launches that may fault or hang: :mod:`kerntune.timing.worker.first_launch_server`. It
never times. What the tuner or the gate does with the answers belongs there.

Light are ``__main__``, which opens the context while the rest is imported, ``requests``, and ``first_launch_server``,
which loads no timer. ``tests/test_architecture.py`` lists all that each process loads.
"""
