"""Kernels as their users write and tune them, and what measures how tuners do on them."""
