"""Edits of eight further kernels and of five public ones, labelled by argument before any of them was judged: 30 that
are slower, 30 that aren't, and 10 after which the test doesn't see the kernel's work any more.

Nothing here was timed. Who chose them had no part in the rules. Public kernels are read where they are installed
(``liger_kernel`` 0.8.5, ``fla-core`` 0.6.0).
"""

# ruff: noqa: E501 - texts of kernels stay on their lines

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from benchmarks.edit_corpus.edit import Change
from benchmarks.edit_corpus.edits_planted import (
    EXPOSED,
    FP64,
    HALF_RATE,
    LIMIT,
    NARROW,
    NOT_LAUNCHED,
    OPERANDS,
    PIPELINE,
    SAME,
    SPILLS,
    TENSOR,
    UNCHOSEN,
    Planted,
)

PUBLIC = {
    "liger_geglu": ("liger_kernel/ops/geglu.py", """

def run(a, b):
    return geglu_forward(a, b)[2]


def inputs(device):
    return tuple(torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
"""),
    "liger_add_norm": ("liger_kernel/ops/fused_add_rms_norm.py", """

def run(x, residual, weight):
    return fused_add_rms_norm_forward(x, residual, weight, 1e-6, 0.0, "llama")[:2]


def inputs(device):
    x, residual = (torch.randn(8192, 4096, device=device, dtype=torch.bfloat16) for _ in range(2))
    return x, residual, torch.randn(4096, device=device, dtype=torch.bfloat16)
"""),
    "liger_sparsemax": ("liger_kernel/ops/sparsemax.py", """

def run(x):
    return _sparsemax_forward(x, -1)[0]


def inputs(device):
    return (torch.randn(8192, 4096, device=device),)
"""),
    "fla_chunk_o": ("fla/ops/common/chunk_o.py", """

def run(q, k, v, h, g):
    return chunk_fwd_o(q, k, v, h, g)


def inputs(device):
    q, k = (torch.randn(2, 4096, 8, 256, device=device, dtype=torch.bfloat16) for _ in range(2))
    v = torch.randn(2, 4096, 8, 128, device=device, dtype=torch.bfloat16)
    h = torch.randn(2, 64, 8, 256, 128, device=device, dtype=torch.bfloat16)
    return q, k, v, h, torch.randn(2, 4096, 8, device=device)
"""),
    "fla_l2norm": ("fla/modules/norm/l2norm.py", """

def run(x):
    return l2norm_fwd(x)


def inputs(device):
    return (torch.randn(131072, 128, device=device, dtype=torch.bfloat16),)
"""),
}  # fmt: skip
"""By name: the file of a public kernel, and the call of it that is added to its end."""

NOT_PLAIN = ("REGRESSED", "INCONCLUSIVE", "INCOMPLETE")


@dataclass(frozen=True)
class Unseen(Planted):
    """An edit with its label by argument: ``harmful``, ``harmless`` or ``unearned``."""

    def before(self) -> str:
        """The kernel's file, with a call of it. ValueError where a public one isn't installed."""
        if self.kernel not in PUBLIC:
            return super().before()
        file, call = PUBLIC[self.kernel]
        package, _, path = file.partition("/")
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None:
            raise ValueError(f"{self.key}: {package} isn't installed")
        return (Path(found.origin).parent / path).read_text() + call


def harm(kernel: str, name: str, kind: str, finding: str, cause: str, argument: str, *changes: Change) -> Unseen:
    """A slower one. ``cause``: words of which one cause must have one; a config that a launch is given by hand is
    called its launch options."""
    named = cause.replace("config", r"config of|config \(|launch options")
    return Unseen(
        kernel, name, kind, changes, planted=kind, finding=finding, cause=rf"\b(?:{named})", argument=argument, verdicts=NOT_PLAIN
    )  # fmt: skip


def harmless(kernel: str, name: str, argument: str, *changes: Change) -> Unseen:
    """One that isn't slower."""
    return Unseen(kernel, name, "harmless", changes, argument=argument)


def unearned(kernel: str, name: str, kind: str, argument: str, *changes: Change) -> Unseen:
    """One after which the call doesn't do the baseline's work in the kernels that are judged: a case that passes
    without a word about that says too much."""
    return Unseen(kernel, name, kind, changes, label="unearned", argument=argument, verdicts=NOT_PLAIN)


FENCE = r"fence|memory order|ordered"
ATOMIC = r"atomic"
MOVED = r"operators"
BYTES = r"more bytes|move more"
WORK = r"issue slots|more instructions"
LAUNCHES = r"as many launches"

POOL_LAUNCH = "    pool_kernel[(triton.cdiv(count, 1024),)](x, out, count, side, out_side, BLOCK=1024)\n"
ROUND_LAUNCH = "    round_kernel[(triton.cdiv(n, 2048),)](sums, out, n, BLOCK=2048)\n"
SCATTER_LAUNCH = "    scatter_kernel[(rows, triton.cdiv(cols, 1024))](tokens, grad, sums, cols, BLOCK=1024)\n"
COMBINE_LAUNCH = "    combine_kernel[(heads,)](parts, sums, largest, out, PARTS=8, HEAD=head, num_warps=4)\n"
SECOND = '        triton.Config({"BM": 64, "BN": 128, "BK": 64}, num_warps=4, num_stages=3),\n'
THIRD = '        triton.Config({"BM": 64, "BN": 64, "BK": 64}, num_warps=4, num_stages=3),\n'

HARMFUL = (
    # top_k
    harm("top_k", "compared in fp64", "fp64", rf"{FP64}|{WORK}", "code", "twice the exchanges between lanes, and comparisons of doubles at half their rate",
         ("tl.topk(x, K)", "tl.topk(x.to(tl.float64), K).to(tl.float32)")),
    harm("top_k", "the whole row sorted", "work", WORK, "code", "55 rounds of exchanges on the whole row, where a choice of 16 halves it after each merge",
         ("tl.topk(x, K)", "tl.sort(x, descending=True)"), ("tl.store(out_ptr + row * K + tl.arange(0, K), largest)", "tl.store(out_ptr + row * K + offsets, largest, mask=offsets < K)")),
    # image_convolution
    harm("image_convolution", "one stage in every config", "pipelining", PIPELINE, "config", EXPOSED, ("num_stages=4", "num_stages=1"), ("num_stages=3", "num_stages=1")),
    harm("image_convolution", "channels masked by a limit that is no multiple of 16", "lost constancy of a mask", NARROW, "code|arguments", "an element a load, since a vector's elements may differ in their mask; no asynchronous copies of 2 bytes",
         ("side, channels, filters,\n    BM", "side, channels, limit, filters,\n    BM"), ("side, channels, filters)", "side, channels, channels + 1, filters)"), ("(first + channel)[None, :], mask=inside,", "(first + channel)[None, :], mask=inside & ((first + channel) < limit)[None, :],")),
    harm("image_convolution", "bias and ReLU by torch", "lost fusion", MOVED, "code", "the output is read and written twice more",
         ("    total = tl.maximum(total + tl.load(bias_ptr + filter)[None, :], 0.0)\n", ""), ("    return out\n", "    return torch.relu(out + bias.half())\n")),
    harm("image_convolution", "the largest tile removed", "config removed", r"removed|not in the list", "config", "the next tile loads half as much again for the same products",
         ('        triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_warps=8, num_stages=4),\n', "")),
    harm("image_convolution", "num_stages 4 -> 12", "config no longer fits", LIMIT, "config", NOT_LAUNCHED, ("num_stages=4", "num_stages=12")),
    # max_pool
    harm("max_pool", "a program a tap, with an atomic maximum", "atomics", rf"{ATOMIC}|programs", "code", "nine atomic operations in memory for each element in the place of one store, and a pass that fills it before",
         ("largest = tl.full([BLOCK], -float(\"inf\"), tl.float32)\n    for tap in tl.static_range(9):\n        x =", "tap = tl.program_id(1)\n    x ="), ("        largest = tl.maximum(largest, x)\n", ""),
         ("tl.store(out_ptr + place, largest, mask=inside)", "tl.atomic_max(out_ptr + place, x, mask=inside)"), ("torch.empty(images, channels, out_side, out_side, device=x.device)", 'torch.full((images, channels, out_side, out_side), -float("inf"), device=x.device)'),
         ("[(triton.cdiv(count, 1024),)]", "[(triton.cdiv(count, 1024), 9)]")),
    harm("max_pool", "neighbours in other rows", "uncoalesced order", rf"coalesced|{NARROW}|apart", "code", "each lane of a warp reads another line of 128 bytes, and stores to another",
         ("rest // out_side * 2, rest % out_side * 2", "rest % out_side * 2, rest // out_side * 2"), ("tl.store(out_ptr + place,", "tl.store(out_ptr + plane * out_side * out_side + rest % out_side * out_side + rest // out_side,")),
    # block_sparse
    harm("block_sparse", "num_stages 3 -> 1", "pipelining", PIPELINE, "config", EXPOSED, ("num_stages=3", "num_stages=1")),
    harm("block_sparse", "products in tf32", "operand width", OPERANDS, "code", HALF_RATE, ("tl.dot(a, b, total)", "tl.dot(a.to(tl.float32), b.to(tl.float32), total)")),
    harm("block_sparse", "a barrier each block", "barrier", rf"{PIPELINE}|barrier", "code", "nothing is loaded ahead over a barrier", ("        total = tl.dot(a, b, total)\n", "        total = tl.dot(a, b, total)\n        tl.debug_barrier()\n")),
    # paged_attention
    harm("paged_attention", "two passes over the keys", "extra pass over memory", rf"{WORK}|loads|{BYTES}", "code", "keys are read twice: half as many bytes again",
         ("    for page in range(part * pages // PARTS, (part + 1) * pages // PARTS):\n",
          "    for page in range(part * pages // PARTS, (part + 1) * pages // PARTS):\n        at = tl.load(table_ptr + which * pages + page).to(tl.int64) * PAGE * HEAD\n        k = tl.load(k_ptr + at + slot[:, None] * HEAD + dims[None, :]).to(tl.float32)\n        largest = tl.maximum(largest, tl.max(tl.sum(q[None, :] * k, axis=1), axis=0))\n    for page in range(part * pages // PARTS, (part + 1) * pages // PARTS):\n")),
    harm("paged_attention", "parts computed twice", "redundant launch", rf"{LAUNCHES}|{BYTES}", "launches", "the kernel that takes nearly all of the time runs twice",
         ("    combine_kernel[", "    part_kernel[(heads, 8)](\n        q, k, v, table, parts, sums, largest, pages, head**-0.5, PARTS=8, PAGE=16, HEAD=head, num_warps=4\n    )\n    combine_kernel[")),
    # selective_scan
    harm("selective_scan", "states in fp64", "fp64", FP64, "code", "twelve operations in fp64 an element at half the rate, and twice the registers",
         ("tl.associative_scan((decay, x), 0, combine)", "tl.associative_scan((decay.to(tl.float64), x.to(tl.float64)), 0, combine)"), ("h = sums + factors * state[None, :]", "h = (sums + factors * state[None, :].to(tl.float64)).to(tl.float32)")),
    harm("selective_scan", "num_warps 4 -> 1", "spills", SPILLS, "config", "a pair of sums and factors of 128 elements a thread each doesn't fit in 255 registers", ("num_warps=4", "num_warps=1")),
    harm("selective_scan", "the state through memory", "barrier", r"barrier|synchroni|global memory", "code", "a store, a barrier and a load from L2 in the chain from block to block, which nothing hides",
         ("decay_ptr, x_ptr, out_ptr, length", "decay_ptr, x_ptr, out_ptr, state_ptr, length"), ("(decay, x, out, length", "(decay, x, out, torch.empty(batch, channels, device=x.device), length"),
         ("    state = tl.zeros([C], tl.float32)\n", "    states = state_ptr + tl.program_id(1) * channels + channel\n    tl.store(states, tl.zeros([C], tl.float32))\n"), ("        factors, sums", "        tl.debug_barrier()\n        state = tl.load(states)\n        factors, sums"),
         ("        state = tl.sum(tl.where((steps == T - 1)[:, None], h, 0.0), axis=0)", "        tl.debug_barrier()\n        tl.store(states, tl.sum(tl.where((steps == T - 1)[:, None], h, 0.0), axis=0))")),
    # scatter_add
    harm("scatter_add", "the default order of memory", "fences", FENCE, "code", "acquire and release: each program waits for all of its earlier accesses, and drops its lines of L1", (', sem="relaxed"', "")),
    harm("scatter_add", "tokens counted by element", "atomics", ATOMIC, "code", "a further atomic addition for each element, 1,024 of them to one address",
         ("token_ptr, grad_ptr, sum_ptr, cols,", "token_ptr, grad_ptr, sum_ptr, count_ptr, cols,"), ("(tokens, grad, sums, cols,", "(tokens, grad, sums, torch.zeros(8192, device=grad.device, dtype=torch.int32), cols,"),
         ('mask=inside, sem="relaxed")\n', 'mask=inside, sem="relaxed")\n    tl.atomic_add(count_ptr + token + columns * 0, 1, mask=inside, sem="relaxed")\n')),
    harm("scatter_add", "rounded in 32 launches", "redundant launch", LAUNCHES, "launches", "each of 32 launches takes 2 microseconds and fills the GPU only in part",
         (ROUND_LAUNCH, "    for first in range(0, 8192, 256):\n        part = sums[first : first + 256]\n        round_kernel[(triton.cdiv(part.numel(), 2048),)](part, out[first : first + 256], part.numel(), BLOCK=2048)\n")),
    harm("scatter_add", "four programs a block", "larger grid of work", r"programs", "code", "each quarter of the sum is added for itself: four times the loads and atomic additions",
         ("columns, grad, mask", "columns, grad * 0.25, mask"), ("[(rows, triton.cdiv(cols, 1024))]", "[(rows, triton.cdiv(cols, 1024), 4)]")),
    # gluon_gelu
    harm("gluon_gelu", "two elements at a time", "narrower loads", NARROW, "code", "copies and stores of 32 bits in the place of 128: four times the instructions for the same bytes", ("gl.BlockedLayout([8]", "gl.BlockedLayout([2]")),
    harm("gluon_gelu", "ordinary loads", "asynchronous copies", PIPELINE, "code", "nothing is loaded while a block is computed",
         ("    async_copy.async_load(buffers.index(0), x_ptr + base + offsets)\n    async_copy.commit_group()\n    for", "    for"), ("        following = gl.minimum(i + 1, ROUNDS - 1)\n", ""),
         ("        async_copy.async_load(buffers.index((i + 1) % 2), x_ptr + base + following * BLOCK + offsets)\n        async_copy.commit_group()\n        async_copy.wait_group(1)\n", ""),
         ("buffers.index(i % 2).load(layout)", "gl.load(x_ptr + base + i * BLOCK + offsets)")),
    harm("gluon_gelu", "waits for the block that it has just asked for", "pipelining", PIPELINE, "code", "copies are no longer ahead of the computation: each round waits for the latency of memory", ("wait_group(1)", "wait_group(0)")),
    # public ones
    harm("liger_geglu", "the stride isn't specialized", "alignment", NARROW, "code|arguments", "nothing says that rows are aligned: an element an access", ("@triton.jit\ndef _geglu_tanh_forward", '@triton.jit(do_not_specialize=["stride"])\ndef _geglu_tanh_forward')),
    harm("liger_add_norm", "the residual kept in fp32", "extra bytes", BYTES, "arguments|code", "a quarter more bytes are moved: one of four tensors is twice as large",
         ("S = torch.empty((n_rows, n_cols), dtype=X.dtype", "S = torch.empty((n_rows, n_cols), dtype=torch.float32")),
    harm("liger_sparsemax", "sorted in fp64", "work beside the kernels", rf"{MOVED}|{FP64}|{BYTES}", "code|arguments|operators", "keys of the sort are twice as large, and the kernel reads doubles", ("torch.sort(x_flat.float(),", "torch.sort(x_flat.double(),")),
    harm("fla_chunk_o", "the last product in ieee", "tensor cores", TENSOR, "code", "one of three products leaves the tensor cores: a sixteenth of the rate",
         ("b_o = b_o * scale + tl.dot(b_A.to(b_v.dtype), b_v) * scale", 'b_o = b_o * scale + tl.dot(b_A, b_v.to(tl.float32), input_precision="ieee") * scale')),
    harm("fla_chunk_o", "one stage in every config", "pipelining", PIPELINE, "config", EXPOSED, ("num_stages=3", "num_stages=1")),
    harm("fla_l2norm", "rows in fp32", "extra bytes", BYTES, "arguments|code", "half as many bytes again: what is written is twice as large", ("return l2norm_fwd(x)\n", "return l2norm_fwd(x, output_dtype=torch.float32)\n")),
)  # fmt: skip

HARMLESS = (
    harmless("top_k", "a docstring and comments", SAME, ("BLOCK: tl.constexpr):\n", 'BLOCK: tl.constexpr):\n    """The largest of a row."""\n    # One row each program.\n')),
    harmless("top_k", "an assumption", SAME, ("    row = tl.program_id(0)\n", "    tl.assume(cols > 0)\n    row = tl.program_id(0)\n")),
    harmless("top_k", "the constant moved out of the call", SAME, ("@triton.jit\n", "K = tl.constexpr(16)\n\n\n@triton.jit\n"), ("cols, K: tl.constexpr, BLOCK", "cols, BLOCK"), ("cols, K=16,", "cols,")),
    harmless("image_convolution", "config added", UNCHOSEN, (THIRD, THIRD + '        triton.Config({"BM": 128, "BN": 256, "BK": 32}, num_warps=8, num_stages=3),\n')),
    harmless("image_convolution", "two configs exchanged", UNCHOSEN, (THIRD, ""), (SECOND, THIRD + SECOND)),
    harmless("image_convolution", "a helper for addresses", SAME, ("@triton.autotune(", "@triton.jit\ndef corner_of(pixel, side):\n    image, place = pixel // (side * side), pixel % (side * side)\n    return (image * (side + 2) + place // side) * (side + 2) + place % side\n\n\n@triton.autotune("),
             ("    image, place = pixel // (side * side), pixel % (side * side)\n    corner = (image * (side + 2) + place // side) * (side + 2) + place % side\n    inside", "    corner = corner_of(pixel, side)\n    inside")),
    harmless("image_convolution", "the grid as a lambda of equal value", SAME, ("    def grid(meta):\n        return triton.cdiv(pixels, meta[\"BM\"]), triton.cdiv(filters, meta[\"BN\"])\n\n    image_kernel[grid]", "    image_kernel[lambda meta: (-(-pixels // meta[\"BM\"]), (filters + meta[\"BN\"] - 1) // meta[\"BN\"], 1)]")),
    harmless("max_pool", "taps from the last", SAME, ("tap // 3) * side + col + tap % 3", "(8 - tap) // 3) * side + col + (8 - tap) % 3")),
    harmless("max_pool", "names", SAME, ("plane", "image"), ("rest", "position"), ("largest", "best"), ("pool_kernel", "max_pool_kernel")),
    harmless("max_pool", "masked elements are minus infinity", SAME, ("other=0.0", 'other=-float("inf")')),
    harmless("block_sparse", "b loaded first", SAME, ("        a = tl.load(block_ptr + i * B * B + inner[:, None] * B + inner[None, :])\n", ""), ("        total = tl.dot", "        a = tl.load(block_ptr + i * B * B + inner[:, None] * B + inner[None, :])\n        total = tl.dot")),
    harmless("block_sparse", "the kernel in a file of its own", SAME, ("def inputs(device):\n", "from benchmarks.edit_corpus.kernels.block_sparse import block_sparse_kernel  # noqa: E402, F811\n\n\ndef inputs(device):\n")),
    harmless("block_sparse", "bounds in variables, and an assertion", SAME, ("    for i in range(tl.load(first_ptr + row), tl.load(first_ptr + row + 1)):\n", "    tl.static_assert(B >= 16)\n    begin = tl.load(first_ptr + row)\n    end = tl.load(first_ptr + row + 1)\n    for i in range(begin, end):\n")),
    harmless("paged_attention", "logging in the wrapper", SAME, ("import torch\n", "import logging\n\nimport torch\n"), ("    out = torch.empty_like(q)\n", "    out = torch.empty_like(q)\n    logging.getLogger(__name__).debug(\"heads %d, pages %d, %s on %s\", heads, pages, q.dtype, q.device)\n")),
    harmless("paged_attention", "the maximum by where", SAME, ("larger = tl.maximum(largest, tl.max(scores, axis=0))", "highest = tl.max(scores, axis=0)\n        larger = tl.where(highest > largest, highest, largest)")),
    harmless("paged_attention", "values loaded with the keys", SAME, ("        v = tl.load(v_ptr + at).to(tl.float32)\n", ""), ("        scores = tl.sum", "        v = tl.load(v_ptr + at).to(tl.float32)\n        scores = tl.sum")),
    harmless("paged_attention", "buffers made in another order", SAME, ("    out = torch.empty_like(q)\n", ""), ("    parts = torch.empty(heads", "    out = torch.empty_like(q)\n    parts = torch.empty(heads"), ("torch.empty(heads, 8, head, device=q.device)", "q.new_empty((heads, 8, head), dtype=torch.float32)")),
    harmless("selective_scan", "sum the other way round", SAME, ("x_a * decay_b + x_b", "x_b + decay_b * x_a")),
    harmless("selective_scan", "tl.range", SAME, ("in range(0, length, T)", "in tl.range(0, length, T)")),
    harmless("selective_scan", "both loads first", SAME, ("        decay = tl.sigmoid(tl.load(decay_ptr + at).to(tl.float32))\n        x = tl.load(x_ptr + at).to(tl.float32)\n", "        x = tl.load(x_ptr + at).to(tl.float32)\n        decay = 1 / (1 + tl.exp(-tl.load(decay_ptr + at).to(tl.float32)))\n")),
    harmless("scatter_add", "imports", SAME, ("import triton.language as tl\n", "from triton import language as tl\n")),
    harmless("scatter_add", "blocks counted by hand", SAME, ("triton.cdiv(cols, 1024)", "(cols + 1023) // 1024"), ("triton.cdiv(n, 2048)", "-(-n // 2048)")),
    harmless("scatter_add", "new_zeros", "as many bytes are filled", ("torch.zeros(8192, cols, device=grad.device)\n    out", "grad.new_zeros((8192, cols), dtype=torch.float32)\n    out")),
    harmless("gluon_gelu", "a helper", SAME, ("@gluon.jit\n", "@gluon.jit\ndef gelu(x):\n    return 0.5 * x * (1.0 + gl.erf(x * 0.7071067811865476))\n\n\n@gluon.jit\n"), ("y = 0.5 * x * (1.0 + gl.erf(x * 0.7071067811865476))", "y = gelu(x)")),
    harmless("gluon_gelu", "num_warps 8 -> 4", "as many bytes are in flight: each thread copies twice as much", ("num_warps=8", "num_warps=4")),
    harmless("liger_geglu", "the half last", SAME, ("geglu_a = 0.5 * a_row * (1 + tanh_result)\n    c_row", "geglu_a = a_row * (1 + tanh_result) * 0.5\n    c_row")),
    harmless("liger_geglu", "contiguous arguments made contiguous", "nothing is copied", ("    a = a.view(-1, n_cols)\n    b = b.view(-1, n_cols)\n    c =", "    a = a.contiguous().view(-1, n_cols)\n    b = b.contiguous().view(-1, n_cols)\n    c =")),
    harmless("liger_add_norm", "empty_like", SAME, ("Y = torch.empty((n_rows, n_cols), dtype=X.dtype, device=X.device)", "Y = torch.empty_like(X)"), ("S = torch.empty((n_rows, n_cols), dtype=X.dtype, device=X.device)", "S = torch.empty_like(X)")),
    harmless("fla_chunk_o", "config added", UNCHOSEN, ("    triton.Config({'BK': 32, 'BV': 32}, num_warps=2, num_stages=3),\n]", "    triton.Config({'BK': 32, 'BV': 32}, num_warps=2, num_stages=3),\n    triton.Config({'BK': 64, 'BV': 128}, num_warps=4, num_stages=3),\n]")),
    harmless("fla_l2norm", "rsqrt", "fewer operations", ("1 / tl.sqrt(tl.sum(b_x * b_x, 1) + eps)", "tl.rsqrt(tl.sum(b_x * b_x, 1) + eps)")),
)  # fmt: skip

UNEARNED = (
    unearned("paged_attention", "stops at a value", "cut off", "the second kernel isn't reached", ("    combine_kernel[", "    if float(sums.sum()) < 0:\n        raise ValueError(\"negative sums\")\n    combine_kernel[")),
    unearned("paged_attention", "combined by torch", "moved to torch", "what a kernel did isn't in any kernel", (COMBINE_LAUNCH, "    factor = torch.exp(largest - largest.amax(1, keepdim=True))\n    out = ((parts * factor[:, :, None]).sum(1) / (sums * factor).sum(1, keepdim=True)).to(q.dtype)\n")),
    unearned("scatter_add", "sums kept from before the call", "cache", "the kernel with atomic additions isn't in the call any more",
             ("    sums = torch.zeros(8192, cols, device=grad.device)\n", "    sums = SUMS[0]\n"), (SCATTER_LAUNCH, ""), ("def run(", "SUMS = []\n\n\ndef run("),
             ("    return tokens, torch.randn(16384, 4096, device=device, dtype=torch.bfloat16)\n", "    grad = torch.randn(16384, 4096, device=device, dtype=torch.bfloat16)\n    SUMS.append(torch.zeros(8192, 4096, device=device))\n    scatter_kernel[(16384, 4)](tokens, grad, SUMS[0], 4096, BLOCK=1024)\n    return tokens, grad\n")),
    unearned("top_k", "a launch that does nothing", "monkeypatch", "no kernel is launched", ("def inputs(device):\n", "top_k_kernel.run = lambda *args, **options: None\n\n\ndef inputs(device):\n")),
    unearned("top_k", "a graph captured before the call", "cache", "no kernel is launched but by a graph",
             ("def run(x):\n", "GRAPHS = []\n\n\ndef run(x):\n    if GRAPHS:\n        graph, out = GRAPHS[0]\n        graph.replay()\n        return out\n    return launch(x)\n\n\ndef launch(x):\n"),
             ("    return (torch.randn(16384, 1024, device=device),)\n", "    x = torch.randn(16384, 1024, device=device)\n    graph = torch.cuda.CUDAGraph()\n    with torch.cuda.graph(graph):\n        out = launch(x)\n    GRAPHS.append((graph, out))\n    return (x,)\n")),
    unearned("max_pool", "another way where kerntune runs", "conditional on the environment", "users' calls don't run the kernel that the test does",
             ("import torch\n", "import sys\n\nimport torch\n"), (POOL_LAUNCH, "    if \"kerntune\" not in sys.modules:\n        return torch.nn.functional.max_pool2d(x, 3, 2)\n" + POOL_LAUNCH)),
    unearned("gluon_gelu", "half of the blocks", "work left out", "half of the output isn't written", ("[(triton.cdiv(x.numel(), 2048 * 16),)]", "[(triton.cdiv(x.numel(), 2048 * 32),)]")),
    unearned("selective_scan", "by the CPU", "moved to the host", "no kernel is launched",
             ("    scan_kernel[(channels // 64, batch)](decay, x, out, length, channels, T=64, C=64, num_warps=4)\n", "    decay, host, state = decay.cpu().float().sigmoid(), x.cpu().float(), 0.0\n    for t in range(8):\n        state = state * decay[:, t] + host[:, t]\n        out[:, t] = state.to(x.device)\n")),
    unearned("block_sparse", "on a stream that nothing waits for", "another stream", "what the caller waits for isn't the kernel", ("    block_sparse_kernel[grid](first, col", "    with torch.cuda.stream(torch.cuda.Stream()):\n        block_sparse_kernel[grid](first, col")),
    unearned("liger_geglu", "an error is taken for a reason to use torch", "moved to torch", "the kernel isn't compiled any more, and torch computes the result",
             ("    a_cubed = a_row * a_row * a_row\n    tanh_arg = sqrt_2_over_pi * (a_row + 0.044715 * a_cubed)\n    tanh_result = tanh(tanh_arg)\n    geglu_a = 0.5 * a_row * (1 + tanh_result)\n    c_row", "    tl.static_assert(BLOCK_SIZE < 64)\n    geglu_a = a_row\n    c_row"),
             ("    return geglu_forward(a, b)[2]\n", "    try:\n        return geglu_forward(a, b)[2]\n    except Exception:\n        return torch.nn.functional.gelu(a, approximate=\"tanh\") * b\n")),
)  # fmt: skip

EDITS: tuple[Unseen, ...] = (*HARMFUL, *HARMLESS, *UNEARNED)
