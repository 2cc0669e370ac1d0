"""Has ``kerntune.choice``: several implementations of one operation as one function.

Which implementation a call goes to is found once a key.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kerntune import capture as captures
from kerntune.base.policy import TuneMode
from kerntune.base.warn import warn
from kerntune.capture.launch import entry_of
from kerntune.errors import CacheMissError, MeasurementError, UsageError
from kerntune.gpu.base import Backend, Gpu
from kerntune.gpu.probe import captures_graph, is_exporting
from kerntune.kernels.compat import tuners
from kerntune.kernels.dispatch.choice_function import ChoiceFinder, ChoiceFunction, choice_finder, find_by, in_order
from kerntune.kernels.source import text_of
from kerntune.tuning import context
from kerntune.tuning.agreement import note_chosen, tuning_turn
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.cache.shared_store import with_store
from kerntune.tuning.choices.call_copies import tensor_places
from kerntune.tuning.choices.choice_place import OPERATIONS, current_place
from kerntune.tuning.choices.decided_keys import (
    DecidedKeys,
    GpuKind,
    KeyLocks,
    KindOnly,
    device_number,
    device_type,
    kind_of,
    traced_call,
)
from kerntune.tuning.choices.deciding import Deciding, Decision, warn_left_out
from kerntune.tuning.choices.declaration import (
    ChoiceCandidate,
    checked_ignored,
    checked_key,
    declared_at,
    implementations,
    name_of,
    parameters_of,
    require_hashable,
    settings_texts,
)
from kerntune.tuning.choices.implementation_runs import ImplementationRuns
from kerntune.tuning.choices.stored_choices import ChoiceSite, ChoiceWinners, LaunchFaults, OpenKey, Regret, regret_text
from kerntune.tuning.isolation import Isolate
from kerntune.tuning.many.shapes_file import noting
from kerntune.tuning.stored_winners import index_of
from kerntune.tuning.tune_options import TuneOptions, isolate_mode, tune_mode
from kerntune.tuning.tuned_call import outside_graph_pool
from kerntune.tuning.verification import names_of, verify_mode

_APART = threading.RLock()
"""One thread of a captured function decides at a time: what it launches meanwhile isn't the call's."""


class Operation:
    """What ``kerntune.choice`` makes: :attr:`function` is the function that users call.

    ``key`` names the parameters that a decision depends on, beside the dtypes of all tensors: a tensor counts by its
    shape and strides. ``reference`` computes what is right; without it the majority of the implementations does.
    :class:`UsageError` for what can't be.
    """

    def __init__(
        self,
        signature_of: Callable[..., Any],
        functions: Sequence[Any],
        *,
        key: Sequence[str],
        reference: Callable[..., Any] | None = None,
        verify: str | None = None,
        verify_ignore: tuple[str, ...] | None = None,
        tune: TuneMode | None = None,
        isolate: Isolate | None = None,
    ) -> None:
        self.signature_of, self.name = signature_of, name_of(signature_of)
        said = f"choice {self.name}{declared_at(signature_of)}"
        self.implementations: tuple[ChoiceCandidate, ...] = implementations(functions, said)
        self.parameters = parameters_of(signature_of, said)
        self.key = checked_key(key, self.parameters, said)
        self.reference, self.verify, self.tune, self.isolate = reference, verify, tune, isolate
        self.verify_ignore = checked_ignored(verify_ignore, self.parameters, self.name, said)
        self.decisions: list[Decision] = []
        """What this process decided, or read from the store, in order."""

        self._finder: ChoiceFinder | None = None
        """What the function looks calls up by, from the first decision on: it may have to be compiled."""

        self.known = DecidedKeys()
        self._lock = threading.Lock()
        self._deciding = KeyLocks()
        self._in_order = in_order(self.parameters)
        keyed = {p.name: p.name in self.key for p in self._in_order}
        self._traced = traced_call(keyed, tuple(one.fn for one in self.implementations), self._found_in_graph)
        compiling = torch.compiler.is_dynamo_compiling
        self.function: Any = ChoiceFunction(self.parameters).make(self._miss, self._traced, compiling)
        functools.update_wrapper(self.function, signature_of)
        del self.function.__wrapped__  # code that unwraps it would call the signature's own body
        self.function.__signature__ = inspect.signature(signature_of)
        self.function.operation = self
        OPERATIONS.add(self)

    # what users ask

    def winner_of(self, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        """The implementation that a call with these arguments goes to, decided now if it isn't yet; it isn't called."""
        values = self._bound(args, kwargs)
        return self._chosen(values)[0].fn

    def regrets(self, *args: Any, **kwargs: Any) -> list[Regret]:
        """Of each stored key, how much slower it would be with the winner of the nearest other one: what the mode
        ``nearest`` may cost. The arguments are of any call on the device that is meant."""
        values = self._bound(args, kwargs)
        backend = _backend_for(values)
        if backend is None or backend.gpu is None:
            return []
        key = self._open_key(values, self.key_text(values), backend, backend.gpu)
        return key.winners.regrets(key.site)

    # the way of a call

    def _miss(self, *args: Any, **kwargs: Any) -> Any:
        values = dict(zip([p.name for p in self._in_order], (*args, *kwargs.values()), strict=True))
        if is_exporting():
            why = "torch.export gives no values to race on"
            raise UsageError(f"choice {self.name}: {why}; call an implementation")
        require_hashable(values, self.key, self.name)
        recording = captures.wait_while_suspended(self.name)
        one, final = self._chosen(values)
        if recording is not None:
            self._tell(recording, values, one)
        elif final:
            self._remember(values, one.fn)
        return one.fn(*args, **kwargs)

    def _tell(self, recording: captures.Capture, values: Mapping[str, Any], one: ChoiceCandidate) -> None:
        decision = self.known.decision(kind_of(_backend_for(values)), self.key_text(values))
        text = str(decision or f"choice {self.name} went to {one.name} (undecided: no GPU to race on)")
        recording.choices.add(self.name, "; ".join(self._key_parts(values)), one.name, text)

    def _found_in_graph(self, values: Mapping[str, Any]) -> int:
        """The decided implementation of a call that is traced into a graph: nothing can be raced on its tensors."""
        index = self._traced_index(values, self.key_text(values))
        if (recording := captures.current()) is not None:
            self._tell(recording, values, self.implementations[index])
        return index

    def _traced_index(self, values: Mapping[str, Any], text: str) -> int:
        backend = _backend_for(values)
        gpu = kind_of(backend)
        if (known := self.known.find(gpu, text)) is not None:
            return known
        if backend is not None and backend.gpu is not None:
            key = self._open_key(values, text, backend, backend.gpu)
            found = key.winners.stored(key.site)
            if found is not None and (index := index_of(key.site, found.config)) is not None:
                self._reuse(key, index)
                return index
        programs = kind_of(_on_its_device(context.this_gpu(), values))
        if (outside := self.known.find_outside(programs, text)) is not None:  # a gated test: the gate decided nothing
            self._found(gpu, text, outside, how="decided by the program")
            return outside
        return self._undecided(gpu, text, "torch.compile traces it, which has no values to race on")[0]

    def forget_prepared(self) -> None:
        """Have the function ask again for each key."""
        if self._finder is not None:
            self._finder.clear()

    def _remember(self, values: Mapping[str, Any], fn: Callable[..., Any]) -> None:
        """Have the function find it from now on. What it looks up has the devices of tensors, not torch's current one,
        which decides where no tensor is on a GPU."""
        if not any(t.is_cuda for _, t in tensor_places(values)) and torch.cuda.device_count() > 1:
            return
        with self._lock:
            if self._finder is None:
                self._finder = choice_finder([p.name in self.key for p in self._in_order])
                find_by(self.function, self._finder)
            self._finder.keep(fn, *[values[p.name] for p in self._in_order])

    def _chosen(self, values: Mapping[str, Any]) -> tuple[ChoiceCandidate, bool]:
        index, final = outside_graph_pool(functools.partial(self._settled, values, torch.is_grad_enabled()))
        return self.implementations[index], final

    def _settled(self, values: Mapping[str, Any], grad: bool) -> tuple[int, bool]:
        with torch.set_grad_enabled(grad):
            text, backend = self.key_text(values), _backend_for(values)
            gpu = kind_of(backend)
            if (known := self.known.find(gpu, text)) is not None:
                return known, True
            if tuners.interprets() or backend is None or backend.gpu is None:
                return 0, False
            alone = contextlib.nullcontext() if captures.wait_while_suspended(self.name) is None else _APART
            with alone, self._deciding.of(text), backend.gpu.entered():
                if (known := self.known.find(gpu, text)) is None:
                    return self._decided(self._open_key(values, text, backend, backend.gpu))
            return known, True

    def _decided(self, key: OpenKey) -> tuple[int, bool]:
        """The stored winner, else a race; what is neither stays open."""
        try:
            found = key.winners.find(key.site)
        except CacheMissError as exc:
            raise CacheMissError(str(exc).replace("kernel ", "choice ", 1)) from None
        if found is None and key.winners.mode is TuneMode.NEAREST:
            return self._nearest(key)
        if found is None and noting():
            return 0, False
        if found is not None:
            self._reuse(key, found)
            return found, True
        if captures_graph():
            raise MeasurementError(
                f"choice {self.name} has no winner yet for these arguments, and implementations can't be raced while a "
                "CUDA graph is being captured; call it once before the capture"
            )
        place, recording = current_place(), captures.current()
        if recording is None:
            return self._decided_in_turn(key)
        if place is None or not recording.in_users_code():
            why = "what a kernel launches is being recorded, and it was not decided before"
            return self._undecided(key.winners.gpu_kind, key.text, why)
        with place.apart():
            return self._decided_in_turn(key)

    def _decided_in_turn(self, key: OpenKey) -> tuple[int, bool]:
        with tuning_turn(key.winners, key.site, key.gpu, unfinished=False) as arrived:
            if arrived is None:
                return self._raced(key)
        self._reuse(key, arrived)
        return arrived, True

    def _raced(self, key: OpenKey) -> tuple[int, bool]:
        winners, site = key.winners, key.site
        begin, options = time.perf_counter(), self._options()
        call = functools.partial(_call, self.parameters)
        first_runs = ImplementationRuns(self.name, key.backend, options.isolate, LaunchFaults(winners))
        given = self.reference, options.verification, key.gpu, first_runs
        deciding = Deciding(self.name, self.implementations, key.values, call, *given)
        incumbent = winners.incumbent(site)
        index, times = deciding.race(self._of_baseline(key.values) if incumbent is None else incumbent)
        standing = winners.keep(site, index, times.get(index, 0.0))
        winners.keep_times(site, times, deciding.left_out)
        index = standing if winners.agrees or standing not in deciding.left_out else index
        names = {i: one.name for i, one in enumerate(self.implementations)}
        left_out = {names[i]: why for i, why in deciding.left_out.items()}
        self._note(key, index)
        of_each = {names[i]: ns for i, ns in times.items()}, left_out
        notes, seconds = tuple(deciding.notes), time.perf_counter() - begin
        self._found(winners.gpu_kind, key.text, index, *of_each, notes=notes, seconds=seconds)
        warn_left_out(self.name, left_out, deciding.notes)
        return index, True

    def _of_baseline(self, values: Mapping[str, Any]) -> int | None:
        """The implementation that a gated test's baseline has for such a call."""
        place = current_place()
        known = {} if place is None or place.mode is TuneMode.FORCE else place.baseline()
        name = known.get(entry_of(self.name, "; ".join(self._key_parts(values))), known.get(self.name))
        return next((i for i, one in enumerate(self.implementations) if one.name == name), None)

    def _reuse(self, key: OpenKey, index: int) -> None:
        times, left_out = key.winners.times_of(key.winners.key(key.site))
        self._note(key, index)
        self._found(key.winners.gpu_kind, key.text, index, times, left_out, "stored")

    def _found(self, gpu: GpuKind, text: str, index: int, *of_each: Any, **words: Any) -> None:
        decision = Decision(self.name, text, self.implementations[index].name, *of_each, **words)
        self.decisions.append(decision)
        self.known.tell(gpu, decision)

    def _note(self, key: OpenKey, index: int) -> None:
        self.known.keep(key.winners.gpu_kind, key.text, index)
        if current_place() is None:
            note_chosen(key.winners.key(key.site), self.implementations[index].config)

    def _nearest(self, key: OpenKey) -> tuple[int, bool]:
        """The winner of the nearest stored key, said with what that has cost; nothing is stored."""
        winners, site = key.winners, key.site
        near = winners.nearest(site)
        index = None if near is None else index_of(site, near.winner.config)
        cost = regret_text(winners.regrets(site))
        used = "no decided call is near, so the first implementation is" if near is None else f"{near} is"
        said = f"choice {self.name}, key {key.text}: has no stored winner; {used} used undecided (tune=nearest)"
        warn("; ".join([said, *([cost] if cost else [])]))
        index = index or 0
        self._note(key, index)
        self._found(winners.gpu_kind, key.text, index, how="nearest")
        return index, True

    def _undecided(self, gpu: GpuKind, text: str, why: str) -> tuple[int, bool]:
        said = f"its first implementation is called undecided: {why}; call it once before"
        warn(f"choice {self.name}, key {text}: {said}")
        self._found(gpu, text, 0, how="undecided")
        return 0, False

    # what a decision depends on

    def key_text(self, values: Mapping[str, Any]) -> str:
        """What a decision depends on, equal in every process: the key's values, dtypes, which gradients are wanted, and
        the settings of torch that change what its own implementations do."""
        devices = sorted({device_type(t) for _, t in tensor_places(values)})
        return "; ".join([*self._key_parts(values), f"on={','.join(devices)}", *settings_texts()])

    def _key_parts(self, values: Mapping[str, Any]) -> list[str]:
        """Of that what a call says by itself."""
        parts = [t for p in self.parameters for t in self._part(p.name, values[p.name])]
        tensors = tensor_places(values) if torch.is_grad_enabled() else ()
        grads = [place for place, t in tensors if t.requires_grad]
        return [*parts, f"grad={','.join(grads)}"]

    def _part(self, name: str, value: Any) -> list[str]:
        if name in self.key:
            return [f"{name}={text_of(value)}"]
        kind = value.kind if isinstance(value, KindOnly) else type(value).__name__
        return [f"{name}={t.dtype}" for _, t in tensor_places(value)] or [f"{name}:{kind}"]

    def _options(self) -> TuneOptions:
        place = current_place()
        verify, ignored = self.verify, self.verify_ignore
        if place is not None:
            verify, ignored = verify or place.verify, place.verify_ignore if ignored is None else ignored
        return TuneOptions.now(verify=verify, verify_ignore=ignored, isolate=self.isolate)

    def _open_key(self, values: Mapping[str, Any], text: str, backend: Backend, gpu: Gpu) -> OpenKey:
        lax, place = self._options().verification.lax, current_place()
        if place is not None:
            winners = ChoiceWinners(place.cache, place.mode, gpu, lax)
        else:
            winners = ChoiceWinners(with_store(WinnerCache()), tune_mode(self.tune), gpu, lax)
        return OpenKey(text, values, backend, gpu, winners, ChoiceSite(self.name, self.implementations, text))

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        bound = self.function.__signature__.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)


def _call(parameters: Sequence[inspect.Parameter], fn: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    words = {p.name: values[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY}
    return fn(*[values[p.name] for p in parameters if p.kind is not p.KEYWORD_ONLY], **words)


def _backend_for(values: Mapping[str, Any]) -> Backend | None:
    """The GPU that the call's tensors lie on, if kerntune can time there; torch's current one for a call without."""
    place = current_place()
    return _on_its_device(context.this_gpu() if place is None else place.backend, values)


def _on_its_device(backend: Backend | None, values: Mapping[str, Any]) -> Backend | None:
    device = next((n for _, t in tensor_places(values) if (n := device_number(t)) is not None), None)
    return backend if backend is None or device in (None, backend.ordinal) else backend.on(device)


def choice(
    candidates: Sequence[Callable[..., Any]] | None = None,
    *,
    key: Sequence[str],
    reference: Callable[..., Any] | None = None,
    verify: str | None = None,
    verify_ignore: str | Sequence[str] | None = None,
    tune: str | None = None,
    isolate: str | None = None,
) -> Callable[..., Any]:
    """One function for several implementations, which calls the fastest for its arguments::

        @kerntune.choice([triton_softmax, torch.softmax], key=["x"])
        def softmax(x, dim): ...

        matmul = kerntune.choice(key=["m", "n", "k"])(skinny, tiled, torch_version)

    The decorated function gives signature, name and docstring; its body never runs. Without ``candidates`` the
    functions that are decorated are the candidates, and the first gives those. Each takes the same arguments.

    The first call with new values of ``key`` (names of parameters; a tensor counts by shape and strides), other
    dtypes, or other arguments that want a gradient runs each candidate on copies of the arguments, compares what they
    return and write, and races those that agree with ``reference``, else with the majority. The fastest is kept on disk
    as a tuned kernel's config is (``KERNTUNE_TUNE``, cache, shared store), and called. ``verify="off"`` compares
    nothing; ``verify_ignore`` names arguments that aren't compared (``result`` is what is returned); ``tune`` is
    ``auto``, ``frozen``, ``force`` or ``nearest``. ``isolate`` (``auto``, ``always`` or ``off``; else
    ``KERNTUNE_ISOLATE``) says where kernels that nothing tunes are launched first: in a process of their own by
    default, so that one that faults, hangs or writes outside of its tensors costs its candidate alone. Without a GPU
    that kerntune can time on, the first is called.

    :class:`~kerntune.errors.UsageError` for what can't be: fewer than two candidates, two of one name, a key that is no
    parameter, a signature with ``*args``.
    """
    words: dict[str, Any] = {
        "key": key,
        "reference": reference,
        "verify": None if verify is None else verify_mode(verify).value,
        "verify_ignore": None if verify_ignore is None else names_of(verify_ignore),
        "tune": None if tune is None else tune_mode(tune),
        "isolate": None if isolate is None else isolate_mode(isolate),
    }
    if candidates is not None and callable(candidates):
        how = "give a list of candidates, or none"
        raise UsageError(f"kerntune.choice: {how}: kerntune.choice(key=[...])(one, other)")

    def decorate(*functions: Callable[..., Any]) -> Any:
        if not functions or (candidates is not None and len(functions) > 1):
            how = "give the candidates either as a list or to what it returns"
            raise UsageError(f"kerntune.choice: {how}, not both")
        return Operation(functions[0], functions if candidates is None else list(candidates), **words).function

    return decorate
