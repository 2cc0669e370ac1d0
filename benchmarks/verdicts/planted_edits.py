"""Edits of the examples: regressions that the static gate must find, and edits that change nothing."""

from __future__ import annotations

from dataclasses import dataclass

Edit = tuple[str, str]
"""A text of the example (every place of it) and what replaces it."""

SMALLER: dict[str, tuple[Edit, ...]] = {
    "vector_add": (("[98_432, 2**26]", "[98_432]"),),
    "softmax": (("[4096, 65536]", "[4096]"),),
    "rms_norm": (("[512, 16384]", "[512]"),),
    "layer_norm": (("[2048, 16384]", "[2048]"),),
    "cross_entropy": (("[32_000, 128_256]", "[32_000]"),),
    "matmul": (("[64, 1024, 8192]", "[1024]"), ("@triton.autotune(CONFIGS,", "@triton.autotune(CONFIGS[:1],")),
    "split_k": (
        ("[(1024, 16384), (4096, 14336)]", "[(1024, 16384)]"),
        ("[(32, 256, 4), (64, 128, 4), (64, 128, 6), (128, 64, 6)]", "[(32, 256, 4),]"),
        ("in (4, 8, 16)", "in (4,)"),
    ),
    "attention": (
        ("[(1024, True), (4096, False), (4096, True)]", "[(1024, True)]"),
        (" (128, 64, 8, 2), (128, 64, 8, 3), (64, 128, 4, 2), (64, 32, 4, 4), (64, 64, 4, 3),", ""),
    ),
    "feed_forward": (),
}
"""One shape of each example is enough here, and one config of those that are planted over a limit: of several, one that
can't be launched is passed over, as a tuner would."""


@dataclass(frozen=True)
class Regression:
    """An edit, with texts that one of the findings and one of the causes must contain."""

    name: str
    example: str
    edits: tuple[Edit, ...]
    finding: str
    cause: str


@dataclass(frozen=True)
class Harmless:
    """An edit after which every case passes."""

    name: str
    example: str
    edits: tuple[Edit, ...]


ADD_CALL = "(x, y, out, n, BLOCK=BLOCK)\n    return out"
SOFTMAX_CALL = "    softmax_kernel[(rows,)]"
SOFTMAX_DIVISION = "exponentials / tl.sum(exponentials, axis=0)"

REGRESSIONS = (
    Regression("a tile of 4 rows spills", "rms_norm", (("[(1, 2),", "[(4, 2),"),), "spilled", "config (ROWS 1 -> 4)"),
    Regression(
        "maxnreg=32 spills",
        "rms_norm",
        (("num_warps=warps)", "num_warps=warps, maxnreg=32)"),),
        "spilled",
        "config (maxnreg unset -> 32)",
    ),
    Regression(
        "one warp for 4096 columns",
        "layer_norm",
        (('min(max(args["BLOCK"] // 512, 1), 16)', "1"),),
        "occupancy fell",
        "config (num_warps 8 -> 1)",
    ),
    Regression(
        "a block of 16384 leaves few blocks resident",
        "vector_add",
        (("BLOCK = 1024", "BLOCK = 16384"),),
        "occupancy fell",
        "config (BLOCK 1024 -> 16384)",
    ),
    Regression(
        "a factor in fp64",
        "feed_forward",
        (("gate * tl.sigmoid(gate) * up)", "gate * tl.sigmoid(gate) * up.to(tl.float64))"),),
        "double precision appeared",
        "code (",
    ),
    Regression(
        "a sum in fp64",
        "softmax",
        ((SOFTMAX_DIVISION, "exponentials / tl.sum(exponentials.to(tl.float64), axis=0)"),),
        "double precision appeared",
        "code (",
    ),
    Regression(
        "alignment lost by a slice",
        "vector_add",
        ((ADD_CALL, "(x[1:], y[1:], out[1:], n - 1, BLOCK=BLOCK)\n    return out"),),
        "got narrower",
        "arguments (x_ptr: *fp32, divisible by 16 -> *fp32",
    ),
    Regression(
        "alignment lost by an offset copy",
        "softmax",
        ((SOFTMAX_CALL, "    x = torch.cat([x.flatten()[:1], x.flatten()])[1:].view(rows, cols)\n" + SOFTMAX_CALL),),
        "got narrower",
        "arguments (x_ptr: *fp32, divisible by 16 -> *fp32",
    ),
    Regression(
        "a stride of 2",
        "matmul",
        (("    def grid(meta):", "    b = torch.cat([b, b], 1)[:, ::2]\n\n    def grid(meta):"),),
        "got narrower",
        "b_col: == 1 -> i32",
    ),
    Regression(
        "num_stages over shared memory",
        "matmul",
        (("tile(128, 256, 64, warps=8, stages=3)", "tile(128, 256, 64, warps=8, stages=6)"),),
        "can't be launched on cuda:90: shared memory",
        "config (num_stages 3 -> 6)",
    ),
    Regression(
        "num_stages over shared memory, two dots",
        "attention",
        (("(128, 128, 8, 2),", "(128, 128, 8, 5),"),),
        "can't be launched on cuda:90: shared memory",
        "config (num_stages 2 -> 5)",
    ),
    Regression(
        "a tile over shared memory",
        "split_k",
        (("[(32, 256, 4),", "[(256, 256, 4),"),),
        "can't be launched on cuda:90: shared memory",
        "config (BLOCK_N 32 -> 256)",
    ),
    Regression(
        "a dot without tensor cores",
        "split_k",
        (
            (
                "tl.dot(a, b, total)",
                'tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")',
            ),
        ),
        "no tensor cores are used any more",
        "code (",
    ),
    Regression(
        "int64 offsets",
        "feed_forward",
        (
            (
                "    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    inside = offsets < n\n    gate_ptrs",
                "    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)\n    inside = offsets < n\n"
                "    gate_ptrs",
            ),
        ),
        "more instructions",
        "code (",
    ),
    Regression(
        "unmasked loads masked",
        "attention",
        (("HEAD, BLOCK_N, False, CAUSAL", "HEAD, BLOCK_N, True, CAUSAL"),),
        "more instructions",
        "code (",
    ),
    Regression(
        "a mask that ends anywhere",
        "vector_add",
        (("inside = offsets < n\n", "inside = offsets < n - 1\n"),),
        "got narrower",
        "code (",
    ),
    Regression(
        "rotated columns",
        "softmax",
        (("    columns = tl.arange(0, BLOCK)\n", "    columns = (tl.arange(0, BLOCK) + row) % BLOCK\n"),),
        "got narrower",
        "code (",
    ),
    Regression(
        "a correctly rounded division",
        "softmax",
        ((SOFTMAX_DIVISION, "tl.math.div_rn(exponentials, tl.sum(exponentials, axis=0) + tl.zeros_like(x))"),),
        "more instructions",
        "code (",
    ),
    Regression(
        "a print left behind",
        "vector_add",
        (
            (
                "    tl.store(out_ptr + offsets, x + y, mask=inside)",
                '    tl.device_print("x", x)\n    tl.store(out_ptr + offsets, x + y, mask=inside)',
            ),
        ),
        "more instructions",
        "code (",
    ),
    Regression(
        "a loop unrolled eight times",
        "cross_entropy",
        (("in range(0, vocabulary, BLOCK)", "in tl.range(0, vocabulary, BLOCK, loop_unroll_factor=8)"),),
        "more instructions",
        "code (",
    ),
)

RSTD = "tl.rsqrt(tl.sum(x * x, axis=1) / cols + eps)"
SOFTMAX_WRAPPER = '''def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension of x, shape (rows, cols), contiguous along cols."""
    rows, cols = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(rows,)](x, out, x.stride(0), out.stride(0), cols)
    return out


'''

HARMLESS = (
    Harmless("kernel renamed", "vector_add", (("add_kernel", "sum_kernel"),)),
    Harmless("tuned kernel renamed", "softmax", (("softmax_kernel", "row_kernel"),)),
    Harmless("argument renamed", "vector_add", (("x_ptr", "left_ptr"),)),
    Harmless("variable renamed", "rms_norm", (("rstd", "factor"), ("inside", "valid"))),
    Harmless("helper renamed", "attention", (("def attend(", "def take_keys("), ("= attend(", "= take_keys("))),
    Harmless(
        "comment in a kernel",
        "layer_norm",
        (("    row = tl.program_id(0)\n", "    # A row.\n    row = tl.program_id(0)  # one\n"),),
    ),
    Harmless("comment over a kernel", "split_k", (("@triton.jit\n", "# Adds what it has.\n\n\n@triton.jit\n"),)),
    Harmless(
        "docstring in a kernel",
        "softmax",
        (("BLOCK: tl.constexpr):\n", 'BLOCK: tl.constexpr):\n    """One row."""\n'),),
    ),
    Harmless(
        "blank lines",
        "cross_entropy",
        (("    largest = larger\n", "    largest = larger\n\n"), ("    total = 0.0\n", "\n    total = 0.0\n")),
    ),
    Harmless(
        "lines broken",
        "matmul",
        (("            a = tl.load(a_ptrs)\n", "            a = tl.load(\n                a_ptrs,\n            )\n"),),
    ),
    Harmless(
        "parentheses",
        "softmax",
        (("x_ptr + row * x_stride + columns", "(x_ptr + (row * x_stride)) + (columns)"),),
    ),
    Harmless(
        "functions reordered",
        "softmax",
        ((SOFTMAX_WRAPPER, ""), ("@triton.autotune(", SOFTMAX_WRAPPER + "@triton.autotune(")),
    ),
    Harmless(
        "helper extracted",
        "rms_norm",
        (
            (RSTD, "inverse(x, cols, eps)"),
            (
                "@triton.autotune(",
                f"@triton.jit\ndef inverse(x, cols, eps):\n    return {RSTD}\n\n\n@triton.autotune(",
            ),
        ),
    ),
    Harmless(
        "helper extracted, a tuple returned",
        "vector_add",
        (
            (
                "    x = tl.load(x_ptr + offsets, mask=inside)\n    y = tl.load(y_ptr + offsets, mask=inside)\n",
                "    x, y = both(x_ptr, y_ptr, offsets, inside)\n",
            ),
            (
                "@triton.jit\n",
                "@triton.jit\ndef both(x_ptr, y_ptr, offsets, inside):\n"
                "    x = tl.load(x_ptr + offsets, mask=inside)\n    y = tl.load(y_ptr + offsets, mask=inside)\n"
                "    return x, y\n\n\n@triton.jit\n",
            ),
        ),
    ),
    Harmless(
        "statements reordered",
        "split_k",
        (
            (
                "    inside_m = rows[:, None] < m\n    inside_n = cols[None, :] < n\n",
                "    inside_n = cols[None, :] < n\n    inside_m = rows[:, None] < m\n",
            ),
        ),
    ),
    Harmless("configs reordered", "softmax", (("(1, 2, 4, 8, 16)", "(16, 8, 4, 2, 1)"),)),
    Harmless("config added in front", "rms_norm", (("[(1, 2), ", "[(8, 16), (1, 2), "),)),
    Harmless("constant written otherwise", "rms_norm", (("EPS = 1e-6", "EPS = 0.000001"),)),
    Harmless(
        "host code rewritten",
        "vector_add",
        (("out = torch.empty_like(x)\n    n = out.numel()", "n = x.numel()\n    out = x.new_empty(n)"),),
    ),
    Harmless(
        "a kernel that nobody calls",
        "feed_forward",
        (("def add_scaled(x", "@triton.jit\ndef idle_kernel(x_ptr):\n    tl.store(x_ptr, 1.0)\n\n\ndef add_scaled(x"),),
    ),
)
