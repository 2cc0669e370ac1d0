"""Proposed configs under a kernel's own parameter names, without blocks that it doesn't have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kerntune.base.config import Config, Scalar
from kerntune.errors import HintError
from kerntune.heuristics.hints import AXES, BLOCK_NAMES
from kerntune.heuristics.sizing import in_order, rebuilt


def named_blocks(configs: Iterable[Config], names: Mapping[str, str], *, kernel: str = "") -> tuple[Config, ...]:
    """Configs for a kernel whose blocks have other names, by axis: ``{"x": "BLOCK_M", "r0": "BLOCK_N"}``.

    An axis without a name has no block in the kernel, so it must be 1 in every config. Raises :class:`HintError` that
    shows a config where it isn't, because the kernel would skip elements; and for an unknown axis, a config that has
    no block of a named axis, and two axes with one name.
    """
    where = f"kernel {kernel}: " if kernel else ""
    for axis in names:
        if axis not in AXES:
            raise HintError(f"{where}unknown axis {axis!r}: the axes are {', '.join(AXES)}")
    if len(set(names.values())) != len(names):
        raise HintError(f"{where}two axes with one block parameter: {dict(names)}")
    wanted = {BLOCK_NAMES[axis]: name for axis, name in names.items()}
    return in_order(_renamed(config, wanted, where) for config in configs)


def _renamed(config: Config, wanted: Mapping[str, str], where: str) -> Config:
    for block, name in wanted.items():
        if block not in config.kwargs:
            raise HintError(f"{where}{name} is to be {block}, but this family proposes no {block}: {config}")
    kwargs: dict[str, Scalar] = {}
    for block, value in config.kwargs.items():
        if block in wanted:
            kwargs[wanted[block]] = value
        elif block not in BLOCK_NAMES.values():
            kwargs[block] = value
        elif value != 1:
            raise HintError(f"{where}no parameter for {block}, but the config {config} needs it to be other than 1")
    return rebuilt(config, kwargs)
