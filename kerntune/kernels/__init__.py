"""The properties of a Triton kernel before it is compiled or run, and the C that launches it afterwards.

Source hashes, specializations, the flattened signature, which arguments are written; ``compat/`` alone depends on
Triton's version, ``dispatch/`` is the prepared launch of a tuned kernel. No timing, no tuning decision and no
compilation belongs here.

``cooperative_launch`` is small because it is late: it imports Triton, and few users' kernels need it.
"""
