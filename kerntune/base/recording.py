"""A recording: what one call of a user's function launched, as data.

A recording holds everything that is needed to run its launches again with the GPU's driver alone:
the launches in order, each with the binary it runs and its arguments flattened to what the binary
takes, and the memory plan (storages, the views into them, which launches read and write them, what they held).
It holds no Python, no pointers and no user code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Union

import msgspec

from kerntune.base.config import Config
from kerntune.base.device import Target
from kerntune.base.strict import SparseStruct, StrictStruct

Artifacts = Mapping[str, bytes]
"""Bytes by SHA-256: binaries, TTIR and stored contents."""

MAX_BYTES = 1 << 44
"""Bytes of one storage, or of a kernel's scratch memory: 16 TiB, more than any device has."""

MAX_COUNT = 1 << 31
"""Warps, CTAs, blocks along an axis and the like: none has as many."""

Nbytes = Annotated[int, msgspec.Meta(ge=0, le=MAX_BYTES)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
"""A checksum, and so no path."""


class Zeros(StrictStruct, frozen=True, tag="zeros", tag_field="kind"):
    """Nothing but zero bytes."""


class Normal(StrictStruct, frozen=True, tag="normal", tag_field="kind"):
    """Normally distributed numbers of the storage's first dtype, from a fixed seed."""

    mean: float = 0.0
    std: float = 1.0
    seed: int = 0


class Uniform(StrictStruct, frozen=True, tag="uniform", tag_field="kind"):
    """Whole numbers in ``[low, high]`` (both included) of the storage's first dtype, from a fixed seed."""

    low: int
    high: int
    seed: int = 0


class Stored(StrictStruct, frozen=True, tag="stored", tag_field="kind"):
    """The exact bytes, stored as the artifact with this SHA-256."""

    sha256: Sha256


Content = Union[Zeros, Normal, Uniform, Stored]


class Storage(SparseStruct, frozen=True):
    """An allocation of device memory: ``nbytes`` bytes that held ``content`` before the first launch that uses it."""

    nbytes: Nbytes
    dtype: str
    content: Content
    read: bool = False
    written: bool = False


class View(SparseStruct, frozen=True):
    """A tensor as the kernel received it. ``offset`` and ``strides`` count elements of ``dtype``; ``offset_bytes``
    bytes."""

    storage: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset_bytes: Nbytes = 0


class TensorMap(SparseStruct, frozen=True):
    """The arguments, except the address, that a host-side TMA descriptor is encoded from (``cuTensorMapEncodeTiled``).

    ``shape`` and ``strides`` count elements, outermost first; ``block`` is the box.
    """

    swizzle: int
    elem_size: int
    elem_type: int
    block: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    fp4_padded: bool = False
    nan_padding: bool = False
    tf32: bool = False


class Param(SparseStruct, frozen=True):
    """One parameter of the binary, in its order, after constexprs are gone and tuples and descriptors expanded.

    ``type`` is Triton's name of the type (``*fp16``, ``i32``, ``fp32``, ``nvTmaDesc``). A pointer has ``view`` (an
    index into the recording's views), or neither view nor value for a null pointer; a scalar has ``value`` (as text
    where it isn't finite: ``inf``, ``-inf``, ``nan``).
    """

    name: str
    type: str
    view: int | None = None
    value: Union[bool, int, float, str, None] = None
    tensor_map: TensorMap | None = None


class Scratch(StrictStruct, frozen=True):
    """Bytes of scratch memory per CTA, and their alignment. Size 0: the pointer is null."""

    size: Nbytes = 0
    align: Positive = 1


class Binary(SparseStruct, frozen=True):
    """A compiled kernel and everything that a launch of it needs besides arguments and grid.

    ``arch`` carries its suffix (``sm_90a``). ``sha256`` names the artifact with the binary, ``ttir_sha256`` the one
    with its TTIR, or with the GLIR of a Gluon kernel. ``code`` is the code identity (see
    :mod:`kerntune.compiling.binary.identity`), ``text`` that of the machine code alone. ``constexprs`` are for display
    only: nothing is matched by them. ``settings`` are the compiler settings from the environment, which are in no
    option (:func:`kerntune.kernels.compat.launch_environment.compiler_settings`).
    """

    kind: Literal["cubin", "hsaco"]
    arch: Annotated[str, msgspec.Meta(pattern=r"^(?:sm_[0-9]{2,3}[a-z]?|gfx[0-9a-f]+)\Z")]
    symbol: str
    sha256: Sha256
    ttir_sha256: Sha256
    code: str
    text: str
    triton: str
    assembler: str
    options: dict[str, Any]
    constexprs: dict[str, str]
    num_warps: Positive
    num_ctas: Positive = 1
    warp_size: Positive = 32
    shared: Count = 0
    tmem: Count = 0
    cooperative: bool = False
    pdl: bool = False
    global_scratch: Scratch = Scratch()
    profile_scratch: Scratch = Scratch()
    unreplayable: str = ""
    settings: dict[str, str] = {}


class Launch(SparseStruct, frozen=True):
    """One kernel call. ``binary`` and ``Param.view`` are indices into the recording's lists.

    ``reads`` and ``writes`` are indices of storages. ``config`` is the choice that the tuner made or was given;
    None for a kernel whose meta-parameters are written at the call. ``source`` is the kernel's source hash. ``origins``
    are the ATen operators that a generated kernel computes, sorted; a kernel that a person wrote has none.
    """

    kernel: str
    source: str
    binary: int
    grid: tuple[Count, Count, Count]
    params: tuple[Param, ...]
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    config: Config | None = None
    float_atomics: bool = False
    origins: tuple[str, ...] = ()


class Recording(SparseStruct, frozen=True):
    """The launches of one call with their binaries and memory plan; see the module's text."""

    target: Target
    launches: tuple[Launch, ...]
    binaries: tuple[Binary, ...]
    storages: tuple[Storage, ...]
    views: tuple[View, ...]
    hidden_pointers: bool = False
    """Whether launches use addresses that they load or compute, or an integer argument may be an address. The memory at
    these addresses must not move, and another process has it at other addresses."""

    choices: dict[str, str] = {}
    """By the name of each ``kerntune.choice`` that the call went through, the implementation that it went to."""

    @property
    def working(self) -> tuple[Launch, ...]:
        """The launches that run at least one block, that is, whose grid isn't empty."""
        return tuple(x for x in self.launches if 0 not in x.grid)

    def binary_of(self, launch: Launch) -> Binary:
        """The binary that a launch runs."""
        return self.binaries[launch.binary]

    def pointed_at(self, launch: Launch) -> frozenset[int]:
        """The storages that a launch has pointers to."""
        return frozenset(self.views[p.view].storage for p in launch.params if p.view is not None)

    def only(self, index: int) -> Recording:
        """The same memory plan with one launch left."""
        return self.but(launches=(self.launches[index],))

    def with_launch(self, index: int, launch: Launch, binary: Binary) -> Recording:
        """A copy whose launch ``index`` is another one, running ``binary``."""
        binaries = self.binaries if binary in self.binaries else (*self.binaries, binary)
        launch = launch.but(binary=binaries.index(binary))
        launches = (*self.launches[:index], launch, *self.launches[index + 1 :])
        return self.but(launches=launches, binaries=binaries).pruned()

    def pruned(self) -> Recording:
        """Without binaries that no launch runs."""
        used = sorted({launch.binary for launch in self.launches})
        at = {old: new for new, old in enumerate(used)}
        launches = tuple(x.but(binary=at[x.binary]) for x in self.launches)
        return self.but(launches=launches, binaries=tuple(self.binaries[i] for i in used))


def same_work(a: Recording, b: Recording) -> bool:
    """Whether two recordings run the same code on the same grids, scalars and layouts in the same order.

    Code is the same if both its identity and its machine code are: settings that only the assembler reads
    (``DISABLE_PTXAS_OPT``) are in no option.
    """
    return [work_of(a, x) for x in a.launches] == [work_of(b, x) for x in b.launches]


def same_arguments(a: Recording, b: Recording) -> bool:
    """Whether both launch the same number of kernels with equal arguments; the kernels themselves may differ."""
    return [work_of(a, x).arguments for x in a.launches] == [work_of(b, x).arguments for x in b.launches]


LOWEST_ADDRESS = 1 << 32
"""Smaller integers are sizes and strides: device memory is mapped far above."""


def scalar_addresses(recording: Recording) -> list[str]:
    """Names of integer arguments that are addresses. Those are of the recorded process, so such launches can't be
    replayed."""
    if not recording.hidden_pointers:
        return []
    return [p.name for x in recording.launches for p in x.params if _is_address(p)]


def _is_address(param: Param) -> bool:
    return isinstance(param.value, int) and param.value >= LOWEST_ADDRESS


class LaunchWork(NamedTuple):
    """What determines the time of a launch: two launches of equal work are equally fast.

    ``code`` is the code identity and that of the machine code, ``flags`` the launch options; an argument has its type,
    its value, its tensor map and its :class:`View`.
    """

    code: tuple[str, str]
    flags: tuple[object, ...]
    grid: tuple[int, int, int]
    arguments: tuple[tuple[object, object, TensorMap | None, View | None], ...]


def work_of(recording: Recording, launch: Launch) -> LaunchWork:
    """The work of one of a recording's launches."""
    binary = recording.binary_of(launch)
    flags = (binary.num_warps, binary.num_ctas, binary.shared, binary.cooperative, binary.pdl)
    arguments = tuple(
        (
            p.type,
            None if recording.hidden_pointers and _is_address(p) else p.value,
            p.tensor_map,
            None if p.view is None else recording.views[p.view],
        )
        for p in launch.params
    )
    return LaunchWork((binary.code, binary.text), flags, launch.grid, arguments)
