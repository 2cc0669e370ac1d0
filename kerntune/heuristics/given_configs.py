"""Configs that are given, not derived: templates, fixed and user configs, foreach, and a table of known ones.

The table finds a kernel's config by the hash of its source and size hints.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kerntune.base.codec import from_json, to_json, write_atomic
from kerntune.base.config import COMPILE_FIELDS, Config, unique_configs
from kerntune.errors import ConfigError, StoreError
from kerntune.heuristics.hints import Modes
from kerntune.heuristics.presets import INDUCTOR_2_13, Preset

BACKEND_OPTIONS = frozenset({"num_consumer_groups", "num_buffers_warp_spec"})
"""Options of torch's configs besides warps and stages; they are never kernel parameters."""

HIP_OPTIONS = frozenset({"waves_per_eu", "matrix_instr_nonkdim", "kpack"})
"""AMD compile options that people write among the constexprs; a kernel that declares one of them receives it."""

FOREACH_WARPS = 8
FOREACH_TUNED_WARPS = (1, 2, 4, 8)


def template(num_warps: int, num_stages: int) -> tuple[Config, ...]:
    """The one config of a kernel generated for its blocks; :class:`ConfigError` for a count below 1."""
    if num_warps < 1 or num_stages < 1:
        raise ConfigError(f"a template needs at least one warp and stage, got {num_warps} and {num_stages}")
    return (Config(num_warps=num_warps, num_stages=num_stages),)


def fixed_config(values: Mapping[str, Any], parameters: Collection[str] | None = None) -> tuple[Config, ...]:
    """One config decided before, as flat keywords: ``{"XBLOCK": 64, "num_warps": 8}``.

    A warp, stage, CTA or register count of None means Triton's default. With ``parameters``, the names of the
    kernel's parameters, an AMD option that is none of them becomes a compile option.
    """
    return (flat_config(values, parameters),)


def user_autotune(
    configs: Iterable[Mapping[str, Any] | Config], parameters: Collection[str] | None = None
) -> tuple[Config, ...]:
    """A user's configs, each once; Triton's defaults if there are none.

    Two configs that differ in anything that changes the binary are two (torch 2.13 takes those that differ only in
    ``num_ctas``, ``maxnreg`` or warp-specialisation counts for one).
    """
    found = [c if isinstance(c, Config) else flat_config(c, parameters) for c in configs]
    return unique_configs(found) or (Config(),)


def foreach(modes: Modes = Modes(), preset: Preset = INDUCTOR_2_13) -> tuple[Config, ...]:  # noqa: B008 (frozen)
    """Kernels that walk a list of tensors: 8 warps, or 1 to 8 under max-autotune, without pipelining."""
    tuned = modes.max_autotune and preset.foreach_candidates
    warps = FOREACH_TUNED_WARPS if tuned else (FOREACH_WARPS,)
    return tuple(Config(num_warps=w, num_stages=1) for w in warps)


def flat_config(values: Mapping[str, Any], parameters: Collection[str] | None = None) -> Config:
    """Flat keywords as a config; see :func:`fixed_config`."""
    given = {k: v for k, v in values.items() if not (v is None and k in COMPILE_FIELDS)}
    ours = BACKEND_OPTIONS if parameters is None else BACKEND_OPTIONS | HIP_OPTIONS.difference(parameters)
    options = {k: given.pop(k) for k in list(given) if k in ours}
    config = Config.from_mapping(given)
    return config.replace(options={k: v for k, v in options.items() if v is not None})


SCHEMA = "kerntune.lookup/1"

HASHED_ORDER = ("z", "y", "x", "r0", "r1")
"""The order in which Inductor writes size hints; ours may come in any."""

_NAME = re.compile(r"\Adef [^(]+\(")


def kernel_hash(source: str, sizes: Mapping[str, int]) -> str:
    """SHA-256 over the size hints and the source without the function's name: a renamed kernel keeps its hash.

    ``source`` starts with ``def`` (as ``JITFunction.src`` does). The text hashed is torch 2.13's
    (generate_lookup_hash_from_source_code), reduced axes spelled ``r0_``, so the keys of its tables are valid here.
    """
    named = {f"{axis}_" if axis[0] == "r" else axis: sizes[axis] for axis in HASHED_ORDER if axis in sizes}
    nameless = _NAME.sub("(", source.strip(), count=1)
    return hashlib.sha256(f"{named}{nameless}".encode()).hexdigest()


class LookupTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configs by :func:`kernel_hash`."""

    entries: dict[str, Config] = {}

    def find(self, source: str, sizes: Mapping[str, int]) -> Config | None:
        """The config in the table for a kernel of these sizes, or None."""
        return self.entries.get(kernel_hash(source, sizes))

    def with_entry(self, source: str, sizes: Mapping[str, int], config: Config) -> LookupTable:
        """A copy of the table with one more entry."""
        return LookupTable({**self.entries, kernel_hash(source, sizes): config})


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    entries: dict[str, Config]


def read_table(path: Path) -> LookupTable:
    """A table from a JSON file; :class:`~kerntune.errors.StoreError` names the file and what is wrong with it."""
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise StoreError(f"{path}: the look-up table can't be read ({exc.strerror})") from exc
    found = from_json(data, _File, SCHEMA, where=str(path))
    for key, config in found.entries.items():
        if not re.fullmatch(r"[0-9a-f]{64}", key):
            raise StoreError(f"{path}: {key!r} is no kernel hash (64 hex digits)")
        if config.num_warps < 1 or config.num_stages < 0 or config.num_ctas < 1:
            raise StoreError(f"{path}: entry {key[:12]} has an impossible config: {config}")
    return LookupTable(found.entries)


def write_table(path: Path, table: LookupTable) -> None:
    """Write a table as JSON, atomically, entries sorted."""
    write_atomic(path, to_json(_File(SCHEMA, table.entries)))
