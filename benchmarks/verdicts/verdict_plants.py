"""What ``verdict_causes.py`` plants: small test files, and one slowdown of a known cause for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import dedent

HEAD = """\
import pytest
import torch
import triton
import triton.language as tl


"""

SOFTMAX = """
@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0) % rows
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * cols + columns, mask=inside, other=-float("inf"))
    exponentials = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * cols + columns, exponentials / tl.sum(exponentials, axis=0), mask=inside)


def run(x):
    out, (rows, cols) = torch.empty_like(x), x.shape
    softmax_kernel[(rows,)](x, out, rows, cols, BLOCK=cols, num_warps=4)
    return out


@pytest.mark.autotune
def test_it(autotune):
    autotune(run, torch.randn(8192, 1024, device=autotune.device))
"""

POINTWISE = """
@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    out = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=inside)


def run(x):
    out, n = torch.empty_like(x), x.numel()
    gelu_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, BLOCK=1024)
    return out


@pytest.mark.autotune
def test_it(autotune):
    autotune(run, torch.randn(2**23, device=autotune.device, dtype=torch.float16))
"""

ROW_SUM = """
@triton.jit
def sum_kernel(x_ptr, out_ptr, cols, STEP: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((STEP,), tl.float32)
    for start in range(0, cols, STEP):
        col = start + tl.arange(0, STEP)
        total += tl.load(x_ptr + row * cols + col, mask=col < cols, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, axis=0))


def run(x):
    rows, cols = x.shape
    out = torch.empty(rows, device=x.device)
    sum_kernel[(rows,)](x, out, cols, STEP=1024)
    return out


@pytest.mark.autotune
def test_it(autotune):
    autotune(run, torch.randn(2048, 8192, device=autotune.device))
"""

MATMUL = """
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, m, n, k, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * k + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * n + cols[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for _ in range(0, k, BLOCK_K):
        total = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), total)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * n
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], total.to(c_ptr.dtype.element_ty))


def run(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, device=a.device, dtype=a.dtype)
    matmul_kernel[lambda meta: (m // meta["BLOCK"], n // meta["BLOCK"])](
        a, b, c, m, n, k, BLOCK=128, BLOCK_K=64, num_warps=8, num_stages=3
    )
    return c


@pytest.mark.autotune
def test_it(autotune):
    autotune(run, *torch.randn(2, 2048, 2048, device=autotune.device, dtype=torch.float16))
"""

POLYNOMIAL = """
DEGREE = tl.constexpr(128)


@triton.jit
def polynomial_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
    out = x
    for _ in range(DEGREE):
        out = out * x + 0.125
    tl.store(out_ptr + offsets, out, mask=inside)


def run(x):
    out, n = torch.empty_like(x), x.numel()
    polynomial_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out


@pytest.mark.autotune
def test_it(autotune):
    autotune(run, torch.rand(2**22, device=autotune.device))
"""


@dataclass(frozen=True)
class Plant:
    """One case: its test file as it is recorded, and what makes it slower.

    ``cause`` is its kind; ``share`` is what must be named where that isn't called the same.

    ``first`` are edits that the recorded file has too; ``edits`` those of the file that is then judged, under the
    environment variables ``flags``. ``busy`` is whether another process works on the GPU meanwhile.
    """

    name: str
    cause: str
    template: str
    edits: Sequence[tuple[str, str]] = ()
    first: Sequence[tuple[str, str]] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
    busy: bool = False
    share: str = ""

    @property
    def file(self) -> str:
        """The test file's name."""
        return f"test_{self.name}.py"

    def text(self, planted: bool) -> str:
        """The test file before or after; an error if an edit has no place."""
        text = HEAD + dedent(self.template).lstrip()
        for old, new in [*self.first, *(self.edits if planted else ())]:
            if old not in text:
                raise SystemExit(f"{self.name}: there is no {old!r} to edit")
            text = text.replace(old, new, 1)
        return text


def _code(name: str, template: str, *edits: tuple[str, str]) -> Plant:
    return Plant(f"code_{name}", "code", template, edits)


def _call(name: str, template: str, *edits: tuple[str, str]) -> Plant:
    """The kernel's text stays, its launch is edited: options, constants, grid."""
    return Plant(f"code_{name}", "code", template, edits, share="launch")


CHAIN = (
    "    program = tl.program_id(0)\n",
    "    state = tl.program_id(0) * 2\n"
    "    for _ in range(n // 8192):\n"
    "        state = state * 1664525 + 2\n"
    "    program = tl.program_id(0) + tl.where(state == 1, 1, 0)\n",
)
"""Work that depends on itself; an even number stays even, so nothing is ever added."""

CODE = (
    _call("softmax_more_rows", SOFTMAX, ("[(rows,)]", "[(rows + rows // 8,)]")),
    _code("softmax_reads_another_row", SOFTMAX, (
        "    exponentials",
        "    x += 0.0 * tl.load(x_ptr + (rows - 1 - row) * cols + columns, mask=inside, other=0.0)\n    exponentials",
    )),
    _call("softmax_too_many_warps", SOFTMAX, ("num_warps=4", "num_warps=32")),
    _call("gelu_small_blocks", POINTWISE, ("BLOCK=1024", "BLOCK=32")),
    _code("gelu_reads_twice", POINTWISE, (
        "    out = 0.5", "    x += tl.load(x_ptr + n - 1 - offsets, mask=inside).to(tl.float32)\n    out = 0.5",
    )),
    _code("gelu_strided", POINTWISE, (
        "program * BLOCK + tl.arange(0, BLOCK)", "program + tl.arange(0, BLOCK) * tl.num_programs(0)",
    )),
    _code("gelu_waits", POINTWISE, CHAIN),
    _code("gelu_computes_more", POINTWISE, (
        "    tl.store", "    for _ in range(32):\n        out = tl.exp(-out * out)\n    tl.store",
    )),
    _call("sum_small_steps", ROW_SUM, ("STEP=1024", "STEP=64")),
    _code("sum_two_passes", ROW_SUM, ("range(0, cols, STEP)", "range(0, 2 * cols, STEP)"), (
        "col = start + tl.arange(0, STEP)", "col = start % cols + tl.arange(0, STEP)",
    )),
    _call("matmul_no_pipeline", MATMUL, ("num_stages=3", "num_stages=1")),
    _call("matmul_short_steps", MATMUL, ("BLOCK_K=64", "BLOCK_K=16")),
    _code("matmul_twice", MATMUL, (
        "        a_ptrs +=", "        total = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), total)\n        a_ptrs +=",
    )),
)  # fmt: skip


def _tuned(template: str, configs: str, key: str, written: str, more: str = "") -> list[tuple[str, str]]:
    """Edits that put a config list over a template's kernel and take the meta-parameters out of its call."""
    decorator = f"CONFIGS = [\n{configs}]\n\n\n@triton.autotune(CONFIGS, key=[{key!r}]{more})\n@triton.jit\n"
    if template.count("@triton.jit\n") != 1:
        raise SystemExit("a template has one kernel")
    return [(written, ""), ("@triton.jit\n", decorator)]


def _config(**meta: int) -> str:
    kwargs = {k: v for k, v in meta.items() if k.isupper()}
    options = "".join(f", {k}={v}" for k, v in meta.items() if not k.isupper())
    return f"    triton.Config({kwargs!r}{options}),\n"


SOFT_FAST, SOFT_SLOW = _config(num_warps=4), _config(num_warps=32)
GELU_FAST, GELU_SLOW = _config(BLOCK=1024), _config(BLOCK=32)
SUM_FAST, SUM_SLOW = _config(STEP=1024), _config(STEP=64)
MM_FAST = _config(BLOCK=128, BLOCK_K=64, num_warps=8, num_stages=3)
MM_SLOW = _config(BLOCK=32, BLOCK_K=32, num_warps=4, num_stages=1)
SOFT = _tuned(SOFTMAX, SOFT_FAST + SOFT_SLOW, "cols", ", num_warps=4")
GELU = _tuned(POINTWISE, GELU_FAST + GELU_SLOW, "n", ", BLOCK=1024")
SUMS = _tuned(ROW_SUM, SUM_FAST + SUM_SLOW, "cols", ", STEP=1024")
MM = _tuned(MATMUL, MM_FAST + MM_SLOW, "k", ", BLOCK=128, BLOCK_K=64, num_warps=8, num_stages=3")
PRUNED = (
    "key=['{}'])",
    "key=['{}'], prune_configs_by={{'early_config_prune': lambda configs, args, **_: configs[1:]}})",
)


def _pruned(key: str) -> tuple[str, str]:
    return PRUNED[0].format(key), PRUNED[1].format(key)


GIVEN = [
    ("@pytest.mark.autotune\n",
     "@pytest.mark.autotune(candidates={'gelu_kernel': [{'BLOCK': 2048, 'num_warps': 8}, {'BLOCK': 32}]})\n"),
]  # fmt: skip


def _config_list(name: str, template: str, first: list[tuple[str, str]], *edits: tuple[str, str]) -> Plant:
    return Plant(f"config_{name}", "config", template, edits, first)


CONFIG = (
    _config_list("softmax_removed", SOFTMAX, SOFT, (SOFT_FAST, "")),
    _config_list("softmax_changed", SOFTMAX, SOFT, (SOFT_FAST, _config(num_warps=16)), (SOFT_SLOW, "")),
    _config_list("softmax_pruned", SOFTMAX, SOFT, _pruned("cols")),
    _config_list("gelu_removed", POINTWISE, GELU, (GELU_FAST, "")),
    _config_list("gelu_changed", POINTWISE, GELU, (GELU_FAST, _config(BLOCK=64))),
    _config_list("gelu_pruned", POINTWISE, GELU, _pruned("n")),
    _config_list("gelu_marker", POINTWISE, GIVEN, ("{'BLOCK': 2048, 'num_warps': 8}, ", "")),
    _config_list("sum_removed", ROW_SUM, SUMS, (SUM_FAST, "")),
    _config_list("sum_changed", ROW_SUM, SUMS, (SUM_FAST, _config(STEP=32))),
    _config_list("matmul_removed", MATMUL, MM, (MM_FAST, "")),
    _config_list("matmul_pruned", MATMUL, MM, _pruned("k")),
    _config_list("matmul_stages", MATMUL, MM, (MM_FAST, MM_FAST.replace("num_stages=3", "num_stages=1"))),
)

NO_FUSION = {"TRITON_DEFAULT_FP_FUSION": "0"}
NO_OPT = {"PTXAS_OPTIONS": "--opt-level 0"}
NO_PTXAS_OPT = {"DISABLE_PTXAS_OPT": "1"}
WIDE = ("8192, 1024, device", "2048, 8192, device")


def _compiler(name: str, template: str, flags: Mapping[str, str], *first: tuple[str, str]) -> Plant:
    return Plant(f"compiler_{name}", "compiler", template, first=first, flags=flags)


COMPILER = (
    _compiler("no_fusion_128", POLYNOMIAL, NO_FUSION),
    _compiler("no_fusion_96", POLYNOMIAL, NO_FUSION, ("constexpr(128)", "constexpr(96)")),
    _compiler("no_fusion_256", POLYNOMIAL, NO_FUSION, ("constexpr(128)", "constexpr(256)")),
    _compiler("options_softmax", SOFTMAX, NO_OPT, WIDE),
    _compiler("options_sum", ROW_SUM, NO_OPT, ("STEP=1024", "STEP=4096")),
    _compiler("options_matmul", MATMUL, NO_OPT),
    _compiler("no_ptxas_opt_softmax", SOFTMAX, NO_PTXAS_OPT),
    _compiler("no_ptxas_opt_gelu", POINTWISE, NO_PTXAS_OPT),
    _compiler("no_ptxas_opt_polynomial", POLYNOMIAL, NO_PTXAS_OPT),
    _compiler("no_ptxas_opt_matmul", MATMUL, NO_PTXAS_OPT),
)


def _busy(name: str, template: str, *first: tuple[str, str]) -> Plant:
    return Plant(f"environment_{name}", "environment", template, first=first, busy=True)


OFTEN = ("softmax_kernel[(rows,)]", "softmax_kernel[(rows * 512,)]")
GELU_OFTEN = (
    ("program = tl.program_id(0)\n", "program = tl.program_id(0) % tl.cdiv(n, BLOCK)\n"),
    ('(triton.cdiv(n, meta["BLOCK"]),)', '(1024 * triton.cdiv(n, meta["BLOCK"]),)'),
)
SUM_OFTEN = (
    ("range(0, cols, STEP)", "range(0, 512 * cols, STEP)"),
    ("col = start + tl.arange(0, STEP)", "col = start % cols + tl.arange(0, STEP)"),
)

ENVIRONMENT = (
    _busy("softmax", SOFTMAX, OFTEN),
    _busy("softmax_wide", SOFTMAX, OFTEN, WIDE),
    _busy("gelu", POINTWISE, *GELU_OFTEN),
    _busy("sum", ROW_SUM, *SUM_OFTEN),
    _busy("matmul", MATMUL, ("2, 2048, 2048", "2, 12288, 12288")),
    _busy("polynomial", POLYNOMIAL, ("constexpr(128)", "constexpr(65536)")),
    _busy("polynomial_large", POLYNOMIAL, ("constexpr(128)", "constexpr(16384)"), ("2**22", "2**24")),
)
"""Each takes some 5 to 10 ms on an H200. A GPU serves processes in turns of a few milliseconds: a kernel that is timed
within one turn isn't slower beside others, and then there is nothing to name."""

PLANTS = (*CODE, *CONFIG, *COMPILER, *ENVIRONMENT)
