"""Fresh processes that time two recordings in turn, with the driver alone: no torch, no Triton, no user code.

And a process for launches that may fault or hang (:mod:`kerntune.timing.worker.first_launch_server`). What the tuner or the gate does
with the answers belongs there.
"""
