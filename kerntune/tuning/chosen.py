"""The configs that this process goes on with, so that ranks can see whether they agree."""

from __future__ import annotations

import hashlib
import threading

from kerntune.base.config import Config
from kerntune.tuning.cache import WinnerKey

_chosen: dict[str, str] = {}
_lock = threading.Lock()


def note(key: WinnerKey, config: Config) -> None:
    """A key is launched with this config from now on."""
    with _lock:
        _chosen[key.digest()] = config.key()


def fingerprint() -> str:
    """SHA-256, as 64 hexadecimal digits, of the configs that this process launches tuned kernels with.

    It covers every key that was called so far (kernel by name and source, target, kind of device, Triton's version,
    arguments, list of configs) with the config that it goes on with: raced, stored or, where nothing can be raced, the
    first. The order of calls doesn't count, nor do times. So it is equal in two processes that have called the same
    keys on equal GPUs and go on with the same configs, and differs otherwise::

        prints = [None] * world_size
        torch.distributed.all_gather_object(prints, kerntune.fingerprint())
        assert len(set(prints)) == 1

    It doesn't cover kernels of a single config, nor what a test with ``--kerntune`` tunes.
    """
    with _lock:
        lines = sorted(f"{digest} {config}\n" for digest, config in _chosen.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()
