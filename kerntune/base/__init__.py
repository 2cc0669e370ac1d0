"""Values that every package shares: configs, devices, policies, recordings, case results, statistics, JSON, messages.

A module lives here if it is data or arithmetic, or carries data to a file or to another process, and nothing else: it
reads no GPU, calls no compiler, imports neither torch nor triton, and knows no other package. What decides something
about a kernel belongs into the package that decides it.
"""
