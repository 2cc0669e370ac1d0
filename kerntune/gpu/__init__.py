"""What executes kernels, or stands in for a GPU that does; with the prepared launch, all that calls a driver.

The backends (CUDA, scripted, compile-only), memory and programs on them, ``fake_cuda/`` for hosts without a GPU and
``interpreter/`` for kernels on the CPU. How often something is executed and what its time means is never decided
here. The package imports nothing: a worker process pays for what it loads.

Some modules are small. ``early_context`` is light: it loads before all else. ``script`` is light too:
processes that a scripted device starts load it. ``operator_mode`` is late: it needs torch, and only a capture on a GPU
needs it. ``fake_cuda.static_backend`` is late: no run on a GPU needs it.
"""
