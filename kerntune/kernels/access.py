"""The memory accesses of a kernel, as far as its code determines them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Access(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which pointer-like parameters' memory a kernel reads and writes.

    Numbers count pointers and tensor descriptors only, in the order of the parameters that are left after
    specialization (constexprs and ``None`` removed): match them with the k-th ``*`` or ``tensordesc`` entry of the
    signature. Names in TTIR can't be used: ``p = a`` in a kernel's body renames the parameter.

    If ``unknown`` isn't empty, the sets hold everything that the kernel could reach: more than the truth, never less.
    ``float_atomics``: it may add floats atomically, so two runs may differ in the last bits. ``follows``: it may touch
    memory that no parameter points to, through an address that it loads or computes from an integer. ``beyond`` is the
    reason why it may even write there.
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
        """The safe assumption for a kernel that can't be analysed: each argument is read, written and updated
        atomically."""
        every, why, more = frozenset(range(pointer_count)), tuple(dict.fromkeys(unknown)), tuple(dict.fromkeys(beyond))
        return cls(every, every, every, True, why, pointer_count, follows or bool(more), more)
