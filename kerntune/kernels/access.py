"""What a kernel does with memory, as far as its code tells."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Access(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a kernel does with the memory behind its pointer-like parameters.

    Numbers count pointers and tensor descriptors only, in the order of the parameters that are left after
    specialization (constexprs and ``None`` removed): match them with the k-th ``*`` or ``tensordesc`` entry of the
    signature. Names in TTIR don't serve: ``p = a`` in a kernel's body renames the parameter.

    If ``unknown`` says anything, the sets are everything that the kernel could reach, never less than the truth.
    ``float_atomics``: it may add floats atomically, so two runs may differ in the last bits. ``follows``: it may
    touch memory that no parameter points to, through an address that it loads or makes from an integer. ``beyond`` says
    why it may even write there.
    """

    reads: frozenset[int]
    writes: frozenset[int]
    atomics: frozenset[int]
    float_atomics: bool
    unknown: tuple[str, ...]
    pointer_count: int
    follows: bool = False
    beyond: tuple[str, ...] = ()

    @property
    def in_place(self) -> frozenset[int]:
        """Arguments both read and written: replaying the launch needs their content restored."""
        return self.reads & self.writes

    @classmethod
    def everything(
        cls, pointer_count: int, unknown: Iterable[str], *, follows: bool = False, beyond: Iterable[str] = ()
    ) -> Access:
        """The safe answer when a kernel can't be read: each argument is read, written and updated atomically."""
        every, why, more = frozenset(range(pointer_count)), tuple(dict.fromkeys(unknown)), tuple(dict.fromkeys(beyond))
        return cls(every, every, every, True, why, pointer_count, follows or bool(more), more)
