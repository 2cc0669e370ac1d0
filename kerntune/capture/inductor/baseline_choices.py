"""What Inductor chooses by timing, held to what it chose when the baseline was recorded."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerntune.base.config import COMPILE_FIELDS, Config
from kerntune.capture.launch import config_of
from kerntune.errors import ConfigError
from kerntune.kernels.compat import inductor_parts
from kerntune.kernels.compat.torch_compiler import without_graph_caches
from kerntune.kernels.source import (
    GeneratedKernel,
    generated,
    kernel_name,
    mark_generated,
    name_without_number,
    source_hash,
)

Times = Mapping[str, "float | None"]
"""Milliseconds of candidates that Inductor has timed, by a hash of the candidate; None for one that can't run."""


@dataclass(frozen=True)
class BaselineChoices:
    """What a baseline has of Inductor's choices. ``configs`` are those of a kernel's launches in order, by its name and
    the hash of its source; ``times`` are those that decided which templates were taken, what was fused or combined,
    which kernels of ``multi_kernel`` were launched and which matrix products were padded."""

    configs: Mapping[tuple[str, str], Sequence[Config]] = field(default_factory=dict)
    times: Times = field(default_factory=dict)


@dataclass
class InductorChoices:
    """Inductor's choices while one call is captured on a GPU.

    Its times differ from run to run, so that with empty caches it may choose other configs, templates and fusions for
    the same function. Where ``load()`` has the choice, and Inductor still has it among its candidates, that one is
    taken; else Inductor times them, and ``anew`` has a sentence. ``times`` are those by which this call was compiled.
    """

    load: Callable[[], BaselineChoices] = BaselineChoices
    times: dict[str, float | None] = field(default_factory=dict)
    anew: list[str] = field(default_factory=list)
    recorded: bool = False
    """Whether a baseline may be made of the call. What has no known times is timed then, though Inductor's cache has a
    choice: it has some without their times."""

    def __post_init__(self) -> None:
        self._known = BaselineChoices()
        self._launched: Counter[tuple[str, str]] = Counter()
        self._chosen: list[Any] = []

    def install(self, stack: contextlib.ExitStack) -> None:
        """Until ``stack`` closes, code is generated anew, by the times that are known. Where this torch has moved a
        part, Inductor times what is chosen there."""
        self._known = self.load()
        stack.enter_context(without_graph_caches())
        following: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
            "candidate_times": self._candidate_times,
            "fused_time": self._fused_time,
            "combo_time": self._combo_time,
            "bench_kernels": self._kernel_times,
            "load_choice": _noting_free,
            "multi_kernel": self._kernel_choice,
            "padding_known": self._padding_known,
            "padding_times": self._padding_times,
        }
        for word, replacing in following.items():
            part = inductor_parts.INDUCTOR[word]
            if part.exists():
                inductor_parts.replace_part(stack, word, replacing(part.get()))

    def follow(self, tuner: Any, jit: Any) -> None:
        """Settle ``tuner`` on the config that the baseline has of this launch of its kernel."""
        if not self._known.configs:
            return
        name = kernel_name(jit)
        key = name, source_hash(jit)
        configs, number = self._known.configs.get(key, ()), self._launched[key]
        self._launched[key] += 1
        if not configs:
            return
        wanted = configs[min(number, len(configs) - 1)]

        def is_wanted(config: Any) -> bool:
            try:
                return config_of(config, name) == wanted
            except ConfigError:
                return False

        if not inductor_parts.keep_config(tuner, is_wanted, lambda like: _config_like(like, wanted)):
            what = f"the baseline's config of {name} ({wanted})"
            self._say(f"Inductor can't choose {what} any more: it has chosen anew")

    def _say(self, text: str) -> None:
        if text not in self.anew:
            self.anew.append(text)

    def _candidate_times(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def lookup(
            cache: Any, choices: Any, op: str, inputs: str, benchmark: Any, hint_override: Any = None, **more: Any
        ) -> Any:
            about = [op, inputs, str(hint_override), inductor_parts.matmul_precision()]
            keys = {choice: _hashed([*about, choice.hash_key()]) for choice in choices}
            known = self._known.times
            if keys and all(key in known for key in keys.values()):
                found = {choice: _milliseconds(known[key]) for choice, key in keys.items()}
            else:
                hint = {} if hint_override is None else {"hint_override": hint_override}
                found = original(cache, choices, op, inputs, benchmark, **hint, **more)
                if known and benchmark is not None:  # else Inductor only asks whether there is something to compile
                    self._say(f"Inductor has timed the candidates for {op} anew: the baseline has no times of them all")
            self.times.update({keys[choice]: _stored(ms) for choice, ms in found.items() if choice in keys})
            return found

        return lookup

    def _fused_time(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def benchmark(scheduling: Any, mod: Any, *args: Any, **kwargs: Any) -> Any:
            key = _hashed(["module", Path(mod.__file__).stem])  # which Inductor makes of the module's source
            if key in self._known.times:
                ms, path = _milliseconds(self._known.times[key]), mod.__file__
            else:
                ms, path = original(scheduling, mod, *args, **kwargs)
                if self._known.times:
                    self._say("Inductor has timed kernels anew to decide on their fusion: the baseline has no times")
            self.times[key] = _stored(ms)
            return ms, path

        return benchmark

    def _combo_time(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def benchmark(scheduling: Any, nodes: Any, alone: Any, *args: Any, **kwargs: Any) -> Any:
            modules = [Path(str(alone[node][1])).stem for node in nodes if node in alone]
            about = [*inductor_parts.combo_settings(), *modules]
            keys = [_hashed(["combo", what, *about]) for what in ("kernel", "copies")]
            known = self._times_of(keys)
            if known is None:
                self._say_anew("combo kernels")
                kernel, copies, files = original(scheduling, nodes, alone, *args, **kwargs)
            else:
                (kernel, copies), files = known, []
            self._keep(keys, [kernel, copies])
            return kernel, copies, files

        return benchmark

    def _kernel_times(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def benchmark(call: Any, *args: Any, **kwargs: Any) -> Any:
            keys = _kernel_keys(call)
            found = self._times_of(keys)
            if found is None:
                self._say_anew("the kernels of multi_kernel")
                found = original(call, *args, **kwargs)
            self._keep(keys, found)
            return found

        return benchmark

    def _kernel_choice(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(call: Any, *args: Any, **kwargs: Any) -> Any:
            fresh = all(call is not other for other in self._chosen)
            if fresh and (self._times_all or self._times_of(_kernel_keys(call)) is not None):
                self._chosen.append(call)
                inductor_parts.choose_anew(call)
            return original(call, *args, **kwargs)

        return run

    def _padding_known(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def lookup(key: str) -> Any:
            times = self._times_of(_padding_keys(key))
            if times is not None:
                return inductor_parts.inductor_part("padding_times")(key, *times)
            return None if self._times_all else original(key)

        return lookup

    def _padding_times(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def faster(key: str, ori_time: float, pad_time: float) -> Any:
            keys = _padding_keys(key)
            if self._times_of(keys) is None:
                self._say_anew("the padding of a matrix product")
            self._keep(keys, [ori_time, pad_time])
            return original(key, ori_time, pad_time)

        return faster

    @property
    def _is_first(self) -> bool:
        return not self._known.configs and not self._known.times

    @property
    def _times_all(self) -> bool:
        """Whether all that has no known times is timed now, and kept with the baseline to be recorded."""
        return self.recorded or self._is_first

    def _times_of(self, keys: Sequence[str]) -> list[float] | None:
        known = self._known.times
        there = keys and all(key in known for key in keys)
        return [_milliseconds(known[key]) for key in keys] if there else None

    def _keep(self, keys: Sequence[str], times: Sequence[float]) -> None:
        self.times.update({key: _stored(ms) for key, ms in zip(keys, times, strict=True)})

    def _say_anew(self, what: str) -> None:
        if not self._is_first:
            self._say(f"Inductor has timed {what} anew: the baseline has no times")


def _kernel_keys(call: Any) -> list[str]:
    tuners = inductor_parts.listed_kernels(call)
    return [_hashed(["kernel", _source(tuner), inductor_parts.size_hints_text(tuner)]) for tuner in tuners]


def _noting_free(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(call: Any) -> Any:
        inductor_parts.mark_free(call)
        return original(call)

    return load


def _source(tuner: Any) -> str:
    """The hash of a generated kernel's source, in which its name and its number don't count."""
    jit = inductor_parts.loaded_kernel(tuner)
    if generated(jit) is None:
        word = inductor_parts.kernel_word(tuner)
        mark_generated(jit, GeneratedKernel(name_without_number(word), jit.fn.__name__))
    return source_hash(jit)


def _padding_keys(key: str) -> list[str]:
    precision = inductor_parts.matmul_precision()
    return [_hashed(["padding", what, str(key), precision]) for what in ("plain", "padded")]


def _hashed(parts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()[:16]


def _milliseconds(stored: float | None) -> float:
    return math.inf if stored is None else stored


def _stored(ms: float) -> float | None:
    return float(ms) if math.isfinite(ms) else None


def _config_like(like: Any, wanted: Config) -> Any:
    """A config object of Inductor's with other values; None if its parameters have other names."""
    if set(like.kwargs) != set(wanted.kwargs) or wanted.options:
        return None
    made = copy.copy(like)
    made.kwargs = dict(wanted.kwargs)
    for name in COMPILE_FIELDS:
        setattr(made, name, getattr(wanted, name))
    return made
