"""Launches of the kernels that ``torch.compile`` generates, and of those that it launches for users.

What belongs here: how a launch of Inductor's becomes one of the capture's, what the kernel was generated for, and what
a compiled call does besides launching Triton kernels. Private names of torch never do: they are in
:mod:`kerntune.kernels.compat.inductor_parts`; nor does the generation of code without a GPU
(:mod:`kerntune.gpu.fake_cuda.compiled_functions`).
"""
