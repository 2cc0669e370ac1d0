"""The only package that depends on differences between Triton's versions (3.6 to 3.9).

Whatever asks for Triton's version, or probes whether it has a name, belongs here; what comes out is the same for every
version. Nothing else of a kernel is known here.
"""
