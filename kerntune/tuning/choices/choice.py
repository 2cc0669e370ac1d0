"""``kerntune.choice``: several implementations of one operation as one function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerntune.errors import UsageError
from kerntune.tuning.choices.operation import Operation
from kerntune.tuning.tune_options import isolate_mode, tune_mode
from kerntune.tuning.verification import names_of, verify_mode


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
        raise UsageError("kerntune.choice: give a list of candidates, or none: kerntune.choice(key=[...])(one, other)")

    def decorate(*functions: Callable[..., Any]) -> Any:
        if not functions or (candidates is not None and len(functions) > 1):
            raise UsageError("kerntune.choice: give the candidates either as a list or to what it returns, not both")
        return Operation(functions[0], functions if candidates is None else list(candidates), **words).front

    return decorate
