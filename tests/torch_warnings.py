"""Warnings that torch's compiler raises about torch itself, which are no errors of a test that uses it."""

from __future__ import annotations

import pytest

TORCHS_OWN = (
    "ignore:`torch.jit.*is deprecated:DeprecationWarning",  # Inductor's imports, from Python 3.12 on
    "ignore:.*should not be instantiated:DeprecationWarning",  # Dynamo makes an autograd.Function to trace one
    "ignore:.*LeafSpec:FutureWarning",  # AOTInductor copies a tree specification of the deprecated class
    "ignore:TypedStorage is deprecated:UserWarning",  # max-autotune's own look at a tensor's storage, in torch 2.11
    "ignore:TensorFloat32 tensor cores:UserWarning",  # advice for products of float32
    "ignore:.*Profiler clears events:UserWarning",  # at the first profile of a process
    "ignore:The CUDA Graph is empty:UserWarning",  # a pool's first graph holds nothing, nor does one that was given up
)
"""torch hides most of them by ``warnings.catch_warnings(record=True)``, which doesn't help where they are errors."""

ignore_torchs_own = [pytest.mark.filterwarnings(text) for text in TORCHS_OWN]
"""For ``pytestmark``."""
