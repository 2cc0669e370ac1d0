"""What executes kernels, or stands in for a GPU that does; with the prepared launch, all that calls a driver.

The backends (CUDA, scripted, compile-only), memory and programs on them, ``fake_cuda/`` for hosts without a GPU and
``interpreter/`` for Triton's interpreter. How often something is executed and what its time means is never decided
here. The package imports nothing: a worker process pays for what it loads.
"""
