"""Types of the heuristics: hints about a kernel before it is compiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from math import prod

import msgspec

from kerntune.errors import HintError

POINTWISE_AXES = ("x", "y", "z")
REDUCTION_AXES = ("r0", "r1")
AXES = POINTWISE_AXES + REDUCTION_AXES

BLOCK_NAMES: dict[str, str] = {"x": "XBLOCK", "y": "YBLOCK", "z": "ZBLOCK", "r0": "R0_BLOCK", "r1": "R1_BLOCK"}
"""The kernel parameter that holds an axis' block size, as Inductor's kernels name it."""

MAX_BLOCK: dict[str, int] = {"x": 4096, "y": 1024, "z": 1024, "r0": 65536, "r1": 32768}
"""Largest block an axis may get (torch 2.13, ``runtime/hints.py``, TRITON_MAX_BLOCK)."""

MAX_BLOCK_X_HIP = 8192
"""The same limit of X on AMD GPUs."""

MAX_RSPLIT = 64
"""Most blocks that share one cooperative reduction (the same file, TRITON_MAX_RSPLIT)."""

MAX_TENSOR_NUMEL = 1 << 20
"""Most elements of one Triton tensor (``triton.language.core.TRITON_MAX_TENSOR_NUMEL``)."""

MIX_ORDER_SPLIT = "RSPLIT_SIZE"
"""The constexpr of a mix-order reduction that holds the rows of one program."""

MIN_DOT_BLOCK = 16
"""Smallest side that ``tl.dot`` takes."""


class ReductionHint(Enum):
    """How a reduction walks memory: along contiguous elements (inner), across them (outer), or unknown."""

    INNER = "inner"
    OUTER = "outer"
    OUTER_TINY = "outer_tiny"
    DEFAULT = "default"


class TileHint(Enum):
    """Whether a 2-D pointwise kernel is a plain transpose-like copy, best served by a square tile."""

    SQUARE = "square"
    DEFAULT = "default"


class AutotuneHint(Enum):
    """A wish of the kernel's author for extra candidates."""

    ONE_ELEMENT_PER_THREAD = "one_element_per_thread"
    SCALAR_ACCUMULATORS = "scalar_accumulators"
    """A looped reduction keeps one number a row, so that registers are left for long steps (torch 2.15)."""


class HeuristicType(Enum):
    """The families."""

    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    PERSISTENT_REDUCTION = "persistent_reduction"
    COOPERATIVE_REDUCTION = "cooperative_reduction"
    SPLIT_SCAN = "split_scan"
    TEMPLATE = "template"
    FOREACH = "foreach"
    USER_AUTOTUNE = "user_autotune"
    FIXED = "fixed"


class Modes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much to try and what must not vary.

    ``deterministic`` leaves one config to a reduction, so that its order of additions never depends on a race, and
    forbids later tuning of it; ``single_reduction_config`` does the first half only. ``batch_invariant`` makes a
    persistent reduction's config independent of a batch below 4096 rows. ``autotune_pointwise=False`` leaves one
    config to 1-D and 2-D pointwise kernels. ``dynamic_scale_rblock`` allows halved reduction blocks once register
    counts are known. A descent takes steps along all fields at once, too, with ``descent_all_directions``, up to
    ``descent_radius`` along each.
    """

    max_autotune: bool = False
    autotune_pointwise: bool = True
    deterministic: bool = False
    single_reduction_config: bool = False
    batch_invariant: bool = False
    dynamic_scale_rblock: bool = True
    multi_stage_mix_order: bool = True
    descent_radius: int = 1
    descent_all_directions: bool = False

    @property
    def one_reduction(self) -> bool:
        """Whether a reduction is left exactly one config."""
        return self.deterministic or self.single_reduction_config


def named_kernel(kernel: str) -> str:
    """``kernel softmax: `` for the start of an error message; nothing for a kernel without a name."""
    return f"kernel {kernel}: " if kernel else ""


def require_known_axes(axes: Iterable[str], where: str) -> None:
    """:class:`HintError` for an axis that there isn't."""
    for axis in axes:
        if axis not in AXES:
            raise HintError(f"{where}unknown axis {axis!r}: the axes are {', '.join(AXES)}")


def is_power_of_two(n: int) -> bool:
    """1, 2, 4, 8 and so on."""
    return n > 0 and n & (n - 1) == 0


class KernelHints(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The hints about a kernel that heuristics use; every family reads the fields that it needs.

    ``sizes`` maps an axis (``x y z`` of the output, ``r0 r1`` reduced) to its number of elements; a size that is no
    power of two is rounded up to the next, as Inductor's compiler does before it calls its heuristics. Counts are of
    the kernel's source: ``loads``, ``stores``, ``reductions``, and ``dynamic_sizes``, the size arguments that are only
    known at launch.

    Raises :class:`~kerntune.errors.HintError` that names the axis and the value for an unknown axis, a size that is
    no positive integer, a negative count, or a minimum for an axis that the kernel doesn't have.
    """

    sizes: dict[str, int]
    kernel: str = ""
    reduction: ReductionHint = ReductionHint.DEFAULT
    tile: TileHint = TileHint.DEFAULT
    loads: int = 0
    stores: int = 0
    reductions: int = 0
    dynamic_sizes: int = 0
    min_elements_per_thread: int = 0
    autotune: tuple[AutotuneHint, ...] = ()
    atomic_add: bool = False
    no_x_block: bool = False
    """The kernel has no ``XBLOCK``: a reduction that works on one output at a time."""
    contiguous_reduction_access: bool = True
    """Some load or store walks the reduced axis with stride 1."""
    tiling_scores: dict[str, float] = {}
    """Bytes of memory traffic that each axis coalesces: the more, the longer its block.

    A tie goes to x before y in a persistent reduction, and to the axis that the mapping lists first in a looped one.
    """
    tma_minimums: dict[str, int] = {}
    """By axis: the shortest block that a tensor descriptor of the kernel can take."""
    makes_descriptors: bool = False
    """The kernel makes its tensor descriptors itself, so a loop around them can't be pipelined (torch 2.15)."""
    min_x_block: int | None = None
    min_r_block: int | None = None
    rsplit_size: int | None = None
    """Rows that one program of a mix-order reduction walks through."""
    add_persistent_rblock: bool = False
    max_persistent_rblock: int = 0
    min_scan_rblock: int = 256
    native_matmul: bool = False
    native_matmul_rblock: int | None = None
    operand_bytes: int = 0
    """Bytes of an element of a product's operands, the smaller if they differ; 0 if they aren't known."""
    spill_threshold: int | None = None
    modes: Modes = Modes()

    def __post_init__(self) -> None:
        if not self.sizes:
            raise HintError(f"{self.where}no size hint: give sizes by axis, for example {{'x': 1024}}")
        require_known_axes(self.sizes, self.where)
        for axis, size in self.sizes.items():
            if type(size) is not int or size <= 0:
                raise HintError(
                    f"{self.where}size hint {axis}={size!r} is no positive integer; an empty launch needs no config"
                )
        if not all(map(is_power_of_two, self.sizes.values())):
            rounded = {axis: 1 << (size - 1).bit_length() for axis, size in self.sizes.items()}
            msgspec.structs.force_setattr(self, "sizes", rounded)
        for count in ("loads", "stores", "reductions", "dynamic_sizes", "min_elements_per_thread", "operand_bytes"):
            if getattr(self, count) < 0:
                raise HintError(f"{self.where}{count}={getattr(self, count)} can't be negative")
        for table, what in ((self.tiling_scores, "tiling score"), (self.tma_minimums, "TMA minimum")):
            if table and not table.keys() <= self.sizes.keys():
                unknown = ", ".join(sorted(table.keys() - self.sizes.keys()))
                raise HintError(
                    f"{self.where}{what} for {unknown}, but the kernel has the axes {', '.join(self.sizes)}"
                )

    @property
    def where(self) -> str:
        """See :func:`named_kernel`."""
        return named_kernel(self.kernel)

    @property
    def reduction_numel(self) -> int:
        """Product of the reduced axes; :class:`HintError` if there is none."""
        numels = [size for axis, size in self.sizes.items() if axis[0] == "r"]
        if not numels:
            raise HintError(f"{self.where}a reduction needs a size hint for r0, got {', '.join(self.sizes)}")
        return prod(numels)

    @property
    def loads_and_reductions(self) -> int:
        """How many values a thread must hold: loads bring them in, reductions keep an accumulator each."""
        return self.loads + self.reductions

    def with_sizes(self, sizes: Mapping[str, int]) -> KernelHints:
        """A copy with other sizes."""
        return msgspec.structs.replace(self, sizes=dict(sizes))
