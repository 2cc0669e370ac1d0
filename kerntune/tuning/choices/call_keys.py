"""What a decision depends on beside the values in its key, and which values can be in one."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import torch

from kerntune.errors import UsageError
from kerntune.kernels import compat
from kerntune.kernels.dispatch.choice_finder import part_of
from kerntune.tuning.choices.call_copies import tensors_in


def require_hashable(values: Mapping[str, Any], key: Container[str], choice: str) -> None:
    """:class:`UsageError` for a value in the key that can't be looked up. Tensors are, by their shapes."""
    for name in (n for n in values if n in key and next(tensors_in(values[n]), None) is None):
        try:
            hash(part_of(values[name], keyed=True))
        except TypeError:
            raise UsageError(
                f"choice {choice}: {name} is in the key, and a {type(values[name]).__name__} can't be looked up: pass "
                f"numbers, texts, tuples or lists of them, or take {name} out of the key"
            ) from None


def settings_texts() -> list[str]:
    """The settings of torch by which its own implementations choose what they launch, and its version."""
    flags = {
        "autocast": str(torch.get_autocast_dtype("cuda")) if torch.is_autocast_enabled() else "off",
        "float32_matmul": torch.get_float32_matmul_precision(),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "torch": compat.torch_version(),
    }
    return [f"{name}={text}" for name, text in flags.items()]
