"""Launches of the kernels that ``torch.compile`` generates, and of those that it launches for users.

What belongs here: how a launch of Inductor's becomes one of the capture's, what the kernel was generated for, and what
a compiled call does besides launching Triton kernels. What doesn't: private names of torch
(:mod:`kerntune.kernels.compat.inductor_parts`), and how code is generated without a GPU
(:mod:`kerntune.gpu.fake_cuda.compiled_functions`).
"""
