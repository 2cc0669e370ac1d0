"""Compilation in processes of their own, in which a crash costs one candidate, and the contents of binaries.

The compiler's front end, the farm of workers and forks, Triton's cache on disk, recompilation of stored TTIR;
``binary/`` reads code identity and ELF files. Nothing here is timed or launched. The package imports nothing: a
worker needs little of it, and a first call waits for the start of a worker.

Light are ``compile_worker``, ``fork_server``, ``forking`` and ``protocol``: the processes of workers load nothing else
of this package but ``binary/``.
"""
