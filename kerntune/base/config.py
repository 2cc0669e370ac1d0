"""A config: the constexprs and compile options that a kernel is compiled and launched with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Union

from kerntune.base.strict import SparseStruct
from kerntune.errors import ConfigError

Scalar = Union[bool, int, float, str, None]

DEFAULT_NUM_WARPS = 4
DEFAULT_NUM_STAGES = 3
DEFAULT_NUM_CTAS = 1

COMPILE_FIELDS = ("num_warps", "num_stages", "num_ctas", "maxnreg")

COMPILE_OPTIONS = (*COMPILE_FIELDS, "waves_per_eu", "matrix_instr_nonkdim", "kpack")
"""Launch options that are tuned like a tile size: the fields of a config, and the further ones of AMD's backend."""


class Config(SparseStruct, frozen=True, eq=False):
    """One choice of constexprs and compile options.

    ``kwargs`` are values for the kernel's own parameters (block sizes and other constexprs);
    ``options`` are backend compile options other than the four that every backend has
    (``waves_per_eu``, ``matrix_instr_nonkdim``, ``ir_override`` and so on). The defaults are
    Triton's (``triton.Config``: 4 warps, 3 stages, 1 CTA, no register limit).

    Everything that changes the binary is part of a config's identity (:meth:`key`); hooks are not.
    """

    kwargs: dict[str, Scalar] = {}
    num_warps: int = DEFAULT_NUM_WARPS
    num_stages: int = DEFAULT_NUM_STAGES
    num_ctas: int = DEFAULT_NUM_CTAS
    maxnreg: int | None = None
    options: dict[str, Scalar] = {}

    def key(self) -> str:
        """A canonical text of everything that changes the binary: equal configs have equal keys.

        Python's notation, because JSON has no infinities and a constexpr may be one.
        """
        fields = (self.num_warps, self.num_stages, self.num_ctas, self.maxnreg)
        return repr((sorted(self.kwargs.items()), fields, sorted(self.options.items())))

    def all_kwargs(self) -> dict[str, Scalar]:
        """The keyword arguments of a launch: constexprs, then compile options under Triton's names."""
        out = {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}
        if self.num_ctas != DEFAULT_NUM_CTAS:
            out["num_ctas"] = self.num_ctas
        if self.maxnreg is not None:
            out["maxnreg"] = self.maxnreg
        out.update(self.options)
        return out

    def replace(self, **changes: Any) -> Config:
        """A copy with some kwargs or fields changed; an unknown name is taken as a kwarg."""
        fields = {n: changes.pop(n) for n in (*COMPILE_FIELDS, "options") if n in changes}
        kwargs = dict(changes.pop("kwargs", self.kwargs)) | changes
        return self.but(kwargs=kwargs, **fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.key() == other.key()

    def __ne__(self, other: object) -> bool:
        # msgspec's base has a __ne__ of its own that would be found first.
        return not self == other

    def __hash__(self) -> int:
        return hash(self.key())

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.all_kwargs().items())

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Config:
        """A config from flat keywords, ``{"BLOCK": 128, "num_warps": 8}``.

        Raises :class:`ConfigError` for a value that isn't a number, text or truth value.
        """
        fields = {k: values[k] for k in COMPILE_FIELDS if k in values}
        kwargs = {k: v for k, v in values.items() if k not in COMPILE_FIELDS}
        for name, value in {**fields, **kwargs}.items():
            if isinstance(value, float) and not isfinite(value):
                raise ConfigError(f"config value {name}={value} isn't finite; write it in the kernel instead")
            if value is not None and not isinstance(value, (bool, int, float, str)):
                raise ConfigError(
                    f"config value {name}={value!r} is a {type(value).__name__}; "
                    "a config holds numbers, text and truth values only"
                )
        for name, value in fields.items():
            if (value is None and name != "maxnreg") or isinstance(value, (bool, str, float)):
                raise ConfigError(f"config value {name}={value!r} must be a whole number")
        return cls(kwargs=kwargs, **fields)


def unique_configs(configs: Iterable[Config]) -> tuple[Config, ...]:
    """The configs in order, each identity once."""
    return tuple(dict.fromkeys(configs))


def configs_text(configs: Sequence[Config]) -> str:
    """``BLOCK=64 num_warps=2 and 15 others``: what is said once of all of them; two are both named."""
    first, *others = configs
    return f"{first} and {len(others)} others" if len(others) > 1 else " and ".join(map(str, configs))


def by_text(said: Iterable[tuple[Config, str]]) -> list[tuple[tuple[Config, ...], str]]:
    """Each text about configs once, with all that it is about, in their order."""
    found: dict[str, list[Config]] = {}
    for config, text in said:
        found.setdefault(text, []).append(config)
    return [(unique_configs(configs), text) for text, configs in found.items()]


def changed_settings(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, tuple[str, str]]:
    """The settings that differ between two configs: name to the texts of both values, in the order of ``after``.

    A name that only one side has counts if its value can be a tile size or a count (a whole number above 1). A truth
    value or a 1, which a kernel has as a new parameter, doesn't make it another config.
    """
    names = {**after, **before}
    texts = {n: (_setting(before.get(n)), _setting(after.get(n))) for n in names}
    return {n: (old, new) for n, (old, new) in texts.items() if old != new and _counts(old, new)}


def split_settings(
    changed: Mapping[str, tuple[str, str]], before: Config | None, after: Config | None
) -> tuple[dict[str, tuple[str, str]], dict[str, tuple[str, str]]]:
    """Changed settings in two groups: those that a config of either side has, and those that were written at the launch
    (options first, then constants)."""
    tuned = {name for config in (before, after) if config for name in config.all_kwargs()}
    given = sorted((n for n in changed if n not in tuned), key=lambda n: n not in COMPILE_OPTIONS)
    return {n: v for n, v in changed.items() if n in tuned}, {n: changed[n] for n in given}


def settings_text(changed: Mapping[str, tuple[str, str]]) -> str:
    """``BK 32 -> 64, num_warps 4 -> 8``."""
    return ", ".join(f"{name} {old or 'unset'} -> {new or 'unset'}" for name, (old, new) in changed.items())


def _setting(value: object) -> str:
    return "" if value is None else str(value)


def _counts(old: str, new: str) -> bool:
    only = old or new
    return bool(old and new) or (only.isdecimal() and int(only) > 1)
