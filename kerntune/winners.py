"""Winners of earlier runs for the tuning sites of one device."""

from __future__ import annotations

from typing import Any

from kerntune import compat
from kerntune.backend.base import Gpu
from kerntune.cache import WinnerCache, WinnerKey
from kerntune.capture import Site
from kerntune.errors import CacheMissError
from kerntune.kernels.source import source_hash
from kerntune.policy import TuneMode


class Winners:
    """Where winners of earlier runs come from and go to, for the sites of one device."""

    def __init__(self, cache: WinnerCache, mode: TuneMode, gpu: Gpu) -> None:
        self._cache, self._mode, self._gpu = cache, mode, gpu

    def find(self, site: Site) -> int | None:
        """The stored winner's index among the candidates; None if there is none or the mode forces a new race."""
        if len(site.candidates) == 1:
            return 0
        found = None if self._mode is TuneMode.FORCE else self._cache.get(self.key(site))
        configs = [c.config for c in site.candidates]
        if found is not None and found.config in configs:
            return configs.index(found.config)
        if self._mode is TuneMode.FROZEN:
            raise CacheMissError(
                f"kernel {site.kernel}: no stored winner for these arguments under --kerntune-tune=frozen; "
                "run once with --kerntune-tune=auto"
            )
        return None

    def keep(self, site: Site, winner: int, time_ns: float) -> None:
        """Store a winner."""
        config = site.candidates[winner].config
        self._cache.put(self.key(site), config, time_ns, self._gpu.environment())

    def key(self, site: Site) -> WinnerKey:
        """What the winner of a site depends on."""
        spec = self._gpu.spec
        return WinnerKey(
            kernel=site.kernel,
            source=source_hash(site.jit),
            target=str(spec.target),
            device=spec.name,
            triton=compat.triton_version(),
            arguments="; ".join(f"{k}={_layout(v)}" for k, v in sorted(site.arguments.items()) if k not in NOT_KEY),
            configs=tuple(c.config for c in site.candidates),
        )


NOT_KEY = frozenset({"grid", "warmup"})


def _layout(value: Any) -> str:
    """An argument as a key: layouts of tensors and descriptors, sources of functions, values of plain ones."""
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_layout, value))})"
    if hasattr(value, "stride") and hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}{tuple(value.shape)}{tuple(value.stride())}"
    if hasattr(value, "block_shape") and hasattr(value, "base"):
        return f"{_layout(value.base)}{tuple(value.shape)}{tuple(value.strides)}{tuple(value.block_shape)}"
    if hasattr(value, "src") and hasattr(value, "params"):
        return source_hash(value)
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value)
    kind = type(value).__name__
    return f"{kind} {value}" if kind == "dtype" else kind
