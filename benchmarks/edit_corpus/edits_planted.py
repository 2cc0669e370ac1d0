"""Edits of kernels that no rule was made for, labelled by argument before the rules of pipelining and of operands were
written: 40 that are slower and 60 that aren't.

Nothing here was timed. ``argument`` says why an edit is slower, or why it can't be. What a finding must say
(``finding``) and which kind of change must be named for it (``cause``) are fixed here, too; a rule isn't made to fit.
"""

# ruff: noqa: E501 - texts of kernels stay on their lines

from dataclasses import dataclass

from benchmarks.edit_corpus.edit import Edit

PIPELINE = r"asynchronous|pipelin|in flight"
OPERANDS = r"operands?\b.*(wider|->)|(wider|->).*operands?\b"
SPILLS = r"spilled|spills \d"
FP64 = r"double precision"
NARROW = r"narrower"
TENSOR = r"tensor core"
WORK = r"more instructions"
ATOMICS = r"atomic"
LIMIT = r"shared memory.*\d{6}.*\d{6}|shared memory.*\d{3},\d{3}.*\d{3},\d{3}"
COMPILES = r"(doesn't|can't be|not) compiled?"


@dataclass(frozen=True)
class Planted(Edit):
    """An edit with its label by argument. A harmful one has ``planted``, and regular expressions that one failing
    finding and one cause of its result must match. ``verdicts``: those that say what must be said of it."""

    finding: str = ""
    cause: str = ""
    argument: str = ""
    label: str = ""
    verdicts: tuple[str, ...] = ("REGRESSED",)

    @property
    def labelled(self) -> str:
        """``harmful``, ``harmless``, or what ``label`` says."""
        return self.label or ("harmful" if self.planted else "harmless")


def harm(
    kernel: str, name: str, kind: str, finding: str, cause: str, argument: str, *changes: tuple[str, str]
) -> Planted:
    """A slower one. A config that a launch is given by hand is called its launch options."""
    named = rf"\b{cause}\b" if cause != "config" else r"\bconfig of\b|\bconfig \(|launch options"
    return Planted(kernel, name, kind, changes, planted=kind, finding=finding, cause=named, argument=argument)


def harmless(kernel: str, name: str, argument: str, *changes: tuple[str, str]) -> Planted:
    """One that isn't slower."""
    return Planted(kernel, name, "harmless", changes, argument=argument)


EXPOSED = "each round of the loop waits for its own loads: the latency of memory isn't hidden by the products any more"
HALF_RATE = "tensor cores multiply wider operands at half the rate, and these take twice the shared memory"
NOT_LAUNCHED = "the fastest config of the baseline is lost, another one is launched or none"
ADDRESSES = "accesses of 16 bits instead of 128: eight times the instructions for the same bytes"

LISTED_FIRST = '        triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_warps=4, num_stages=4),\n'
LISTED_SECOND = '        triton.Config({"BM": 64, "BN": 128, "BK": 64}, num_warps=4, num_stages=3),\n'
LISTED_LAST = '        triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_warps=4, num_stages=2),\n'
SECOND_ONE_STAGE = ("num_stages=3", "num_stages=1")
LAST_ONE_STAGE = ("num_stages=2", "num_stages=1")

HARMFUL = (
    # batched_matmul
    harm("batched_matmul", "one stage in every config", "pipelining", PIPELINE, "config", EXPOSED,
         ("num_stages=4", "num_stages=1"), SECOND_ONE_STAGE, LAST_ONE_STAGE),
    harm("batched_matmul", "the config with stages removed", "pipelining", PIPELINE, "config", EXPOSED,
         (LISTED_FIRST, ""), SECOND_ONE_STAGE, LAST_ONE_STAGE),
    harm("batched_matmul", "num_stages 4 -> 9", "config no longer fits", LIMIT, "config", NOT_LAUNCHED,
         ("num_stages=4", "num_stages=9")),
    harm("batched_matmul", "two steps a round", "config no longer fits", LIMIT, "code", NOT_LAUNCHED,
         ("range(0, k, BK)", "range(0, k, 2 * BK)"), ("        a_ptrs += BK\n", "        total = tl.dot(tl.load(a_ptrs + BK), tl.load(b_ptrs + BK * n), total)\n        a_ptrs += 2 * BK\n"),
         ("b_ptrs += BK * n", "b_ptrs += 2 * BK * n")),
    harm("batched_matmul", "BK 64 -> 96", "config no longer compiles", COMPILES, "config", NOT_LAUNCHED,
         ('"BM": 128, "BN": 128, "BK": 64', '"BM": 128, "BN": 128, "BK": 96')),
    harm("batched_matmul", "operands widened to fp32", "operand width", OPERANDS, "code", HALF_RATE,
         ("tl.dot(a, b, total)", "tl.dot(a.to(tl.float32), b.to(tl.float32), total)")),
    harm("batched_matmul", "b one element off", "alignment", NARROW, "arguments", ADDRESSES + "; copies below 4 bytes can't be asynchronous either",
         ("    (batches, m, k), n = a.shape, b.shape[2]\n", "    (batches, m, k), n = a.shape, b.shape[2]\n    b = torch.cat([b.flatten()[:1], b.flatten()])[1:].view(b.shape)\n")),
    harm("batched_matmul", "in fp32, ieee", "tensor cores", TENSOR, "code", "fp32 products by the ordinary units: a sixteenth of the rate",
         ("tl.dot(a, b, total)", 'tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")')),
    # attention_backward
    harm("attention_backward", "num_stages 3 -> 1", "pipelining", PIPELINE, "config", EXPOSED, ("num_stages=3", "num_stages=1")),
    harm("attention_backward", "a barrier in the loop", "pipelining", PIPELINE, "code", "a barrier each round, over which nothing is loaded ahead",
         ("        dk = tl.dot(ds.to(tl.bfloat16), q, dk)\n", "        dk = tl.dot(ds.to(tl.bfloat16), q, dk)\n        tl.debug_barrier()\n")),
    harm("attention_backward", "score gradients in fp32", "operand width", OPERANDS, "code", HALF_RATE,
         ("tl.dot(ds.to(tl.bfloat16), q, dk)", "tl.dot(ds, q.to(tl.float32), dk)")),
    harm("attention_backward", "maxnreg=64", "spills", SPILLS, "config", "two sums of 32 registers and two of 16 beside operands don't fit in 64",
         ("num_warps=8", "num_warps=8, maxnreg=64")),
    harm("attention_backward", "BN 128 -> 512", "spills", SPILLS, "config", "two sums of 128 registers a thread each",
         ("BN=128", "BN=512"), ("(length, 128)", "(length, 512)")),
    harm("attention_backward", "num_stages 3 -> 16", "config no longer fits", LIMIT, "config", NOT_LAUNCHED, ("num_stages=3", "num_stages=16")),
    # linear_attention
    harm("linear_attention", "num_stages 3 -> 1", "pipelining", PIPELINE, "config", EXPOSED + "; 64 programs leave nobody else to run",
         ("num_stages=3", "num_stages=1")),
    harm("linear_attention", "a loop of one stage", "pipelining", PIPELINE, "code", EXPOSED + "; 64 programs leave nobody else to run",
         ("in range(0, length, C)", "in tl.range(0, length, C, num_stages=1)")),
    harm("linear_attention", "decay in fp64", "fp64", FP64, "code", "an exponential and 32 products a thread in fp64 in the chain from chunk to chunk",
         ("state * tl.exp(decay)", "(state.to(tl.float64) * tl.exp(decay.to(tl.float64))).to(tl.float32)")),
    harm("linear_attention", "state in ieee", "tensor cores", TENSOR, "code", "one of the four products leaves the tensor cores",
         ("tl.dot(k.T, v, state * tl.exp(decay))", 'tl.dot(k.T.to(tl.float32), v.to(tl.float32), state * tl.exp(decay), input_precision="ieee")')),
    harm("linear_attention", "maxnreg=64", "spills", SPILLS, "config", "the state takes 32 registers a thread, scores and a chunk's result 64 more",
         ("num_warps=4", "num_warps=4, maxnreg=64")),
    # matmul_int4
    harm("matmul_int4", "num_stages 3 -> 1", "pipelining", PIPELINE, "config", EXPOSED, ("num_stages=3", "num_stages=1")),
    harm("matmul_int4", "unpacked to fp32", "operand width", OPERANDS, "code", HALF_RATE,
         ("(packed & 15).to(tl.float16)", "(packed & 15).to(tl.float32)"), ("(packed >> 4).to(tl.float16)", "(packed >> 4).to(tl.float32)"),
         ("tl.dot(first,", "tl.dot(first.to(tl.float32),"), ("tl.dot(second,", "tl.dot(second.to(tl.float32),")),
    harm("matmul_int4", "weights one byte off", "alignment", NARROW, "arguments", "weights a byte at a time, and no asynchronous copies of them",
         ("    (m, k), n = x.shape, w.shape[1]\n", "    (m, k), n = x.shape, w.shape[1]\n    w = torch.cat([w.flatten()[:1], w.flatten()])[1:].view(w.shape)\n")),
    # gated_tma
    harm("gated_tma", "num_stages 3 -> 1", "pipelining", PIPELINE, "config", EXPOSED, ("num_stages=3", "num_stages=1")),
    harm("gated_tma", "a loop of one stage", "pipelining", PIPELINE, "code", EXPOSED,
         ("in range(0, k, BK)", "in tl.range(0, k, BK, num_stages=1)")),
    harm("gated_tma", "maxnreg=80", "spills", SPILLS, "config", "two sums of 64 registers a thread each",
         ("num_warps=4", "num_warps=4, maxnreg=80")),
    harm("gated_tma", "operands widened to fp32", "operand width", OPERANDS, "code", HALF_RATE,
         ("tl.dot(x, g, gate)", "tl.dot(x.to(tl.float32), g.to(tl.float32), gate)"), ("tl.dot(x, u, up)", "tl.dot(x.to(tl.float32), u.to(tl.float32), up)")),
    harm("gated_tma", "BN 64 -> 256", "config no longer fits", LIMIT, "config", NOT_LAUNCHED, ("128, 64, 64", "128, 256, 64")),
    # matmul_w8a8
    harm("matmul_w8a8", "through fp16", "operand width", OPERANDS, "code", HALF_RATE,
         ("tl.dot(a, b.T, total)", "tl.dot(a.to(tl.float16), b.T.to(tl.float16), total)"), ("tl.int32)", "tl.float32)")),
    harm("matmul_w8a8", "a while loop", "pipelining", PIPELINE, "code", EXPOSED,
         ("    for start in range(0, k, BK):\n", "    start = 0\n    while start < k:\n"), ("total = tl.dot(a, b.T, total)\n", "total = tl.dot(a, b.T, total)\n        start += BK\n")),
    # syrk
    harm("syrk", "masked each round", "pipelining", PIPELINE, "code", "the sums are read each round: the tensor cores wait until 64 selections a thread are done",
         ("total = tl.dot(left, right.T, total)", "total = tl.where((rows < n)[:, None], tl.dot(left, right.T, total), 0.0)")),
    # kl_divergence
    harm("kl_divergence", "exponentials in fp64", "fp64", FP64, "code", "some 40 operations in fp64 an element",
         ("weight = tl.exp(p)", "weight = tl.exp(p.to(tl.float64)).to(tl.float32)")),
    harm("kl_divergence", "maxnreg=32", "spills", SPILLS, "config", "two rows of 32 registers a thread",
         ("num_warps=8", "num_warps=8, maxnreg=32")),
    harm("kl_divergence", "correctly rounded division", "work", WORK, "code", "a division by an iteration for each element instead of one a row",
         ("weight * (p - q), 0.0), axis=0) / total", "tl.div_rn(weight, total + tl.zeros_like(weight)) * (p - q), 0.0), axis=0)")),
    # group_norm
    harm("group_norm", "normalized in fp64", "fp64", FP64, "code", "a division in fp64 an element",
         ("((x - mean) * factor)", "((x - mean).to(tl.float64) / tl.sqrt((variance + eps).to(tl.float64)))")),
    harm("group_norm", "offsets in steps", "alignment", NARROW, "code", ADDRESSES,
         ("offsets = tl.arange(0, BLOCK)", "offsets = (tl.arange(0, BLOCK) % 16) * (BLOCK // 16) + tl.arange(0, BLOCK) // 16")),
    # residual
    harm("residual", "everything one element off", "alignment", NARROW, "arguments", ADDRESSES,
         ("    out = torch.empty_like(x)\n    n = x.numel()\n", "    x, y, out = x[1:], y[1:], torch.empty_like(x)[1:]\n    n = x.numel()\n")),
    # router
    harm("router", "exponentials in fp64", "fp64", FP64, "code", "some 40 operations in fp64 an element",
         ("weight = tl.exp(logits - largest[:, None])", "weight = tl.exp((logits - largest[:, None]).to(tl.float64)).to(tl.float32)")),
    harm("router", "T 32 -> 256, one warp", "spills", SPILLS, "config", "512 logits a thread",
         ("T=32, num_warps=4", "T=256, num_warps=1"), ("(tokens, 32)", "(tokens, 256)")),
    # segment_sum
    harm("segment_sum", "an addition in memory an element", "atomics", ATOMICS, "code", "an atomic addition of each element instead of one store a column",
         ("total += x.to(tl.float32)", "tl.atomic_add(out_ptr + segment * cols + columns[None, :] + tl.zeros([R, 1], tl.int32), x.to(tl.float32))"),
         ("    result = tl.sum(total, axis=0)\n    tl.store(out_ptr + segment * cols + columns, result)\n", ""), ("torch.empty(segments", "torch.zeros(segments")),
    harm("segment_sum", "columns apart", "alignment", NARROW, "code", ADDRESSES + ", each in a sector of its own",
         ("columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)", "columns = tl.arange(0, BLOCK) * (cols // BLOCK) + tl.program_id(1)")),
)  # fmt: skip

SAME = "the same code is compiled, or the same operations in another order"
UNCHOSEN = "the config that is launched is as it was"
AHEAD = "as many bytes are loaded ahead as before, or more"
FEWER = "fewer operations, or the same"

HARMLESS = (
    # batched_matmul
    harmless("batched_matmul", "variables renamed", SAME, ("a_ptrs", "left"), ("b_ptrs", "right")),
    harmless("batched_matmul", "config added", UNCHOSEN, (LISTED_LAST, LISTED_LAST + '        triton.Config({"BM": 32, "BN": 64, "BK": 64}, num_warps=4, num_stages=4),\n')),
    harmless("batched_matmul", "config added that doesn't fit", UNCHOSEN, (LISTED_LAST, LISTED_LAST + '        triton.Config({"BM": 256, "BN": 256, "BK": 64}, num_warps=8, num_stages=6),\n')),
    harmless("batched_matmul", "configs in another order", UNCHOSEN, (LISTED_FIRST, ""), (LISTED_LAST, LISTED_LAST + LISTED_FIRST)),
    harmless("batched_matmul", "another config removed", UNCHOSEN, (LISTED_SECOND, "")),
    harmless("batched_matmul", "another config loses its stages", UNCHOSEN, LAST_ONE_STAGE),
    harmless("batched_matmul", "a helper", SAME, ("total = tl.dot(a, b, total)", "total = add_product(a, b, total)"),
             ("@triton.autotune(", "@triton.jit\ndef add_product(a, b, total):\n    return tl.dot(a, b, total)\n\n\n@triton.autotune(")),
    harmless("batched_matmul", "bf16 products", "16 bits as before", ("tl.dot(a, b, total)", "tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), total)")),
    # attention_backward
    harmless("attention_backward", "sums loaded first", SAME, ("        lse = tl.load(lse_ptr + at + rows)\n        delta = tl.load(delta_ptr + at + rows)\n", ""),
             ("        q = tl.load", "        lse = tl.load(lse_ptr + at + rows)\n        delta = tl.load(delta_ptr + at + rows)\n        q = tl.load")),
    harmless("attention_backward", "comments", SAME, ("        p = tl.exp2", "        # Probabilities, keys by queries.\n        p = tl.exp2")),
    harmless("attention_backward", "num_stages 3 -> 4", AHEAD, ("num_stages=3", "num_stages=4")),
    harmless("attention_backward", "products exchanged", SAME, ("        dp = tl.dot(v, do.T)\n", ""), ("        dv = tl.dot(p", "        dp = tl.dot(v, do.T)\n        dv = tl.dot(p")),
    harmless("attention_backward", "no delta", FEWER, (" - delta[None, :]", "")),
    # linear_attention
    harmless("linear_attention", "decay loaded first", SAME, ("        decay = tl.load(decay_ptr + tl.program_id(0) * (length // C) + first // C)\n", ""),
             ("        q = tl.load", "        decay = tl.load(decay_ptr + tl.program_id(0) * (length // C) + first // C)\n        q = tl.load")),
    harmless("linear_attention", "names", SAME, ("scores", "weights"), ("state", "memory")),
    harmless("linear_attention", "an assertion at compile time", SAME, ("    dims = tl.arange(0, D)\n", "    tl.static_assert(C >= 16)\n    dims = tl.arange(0, D)\n")),
    harmless("linear_attention", "num_stages 3 -> 4", AHEAD, ("num_stages=3", "num_stages=4")),
    # matmul_int4
    harmless("matmul_int4", "second loaded first", SAME, ("        second = tl.load(x_ptr + rows[:, None] * k + half + inner[None, :])\n", ""),
             ("        first = tl.load", "        second = tl.load(x_ptr + rows[:, None] * k + half + inner[None, :])\n        first = tl.load")),
    harmless("matmul_int4", "tl.range", SAME, ("in range(0, half, BK)", "in tl.range(0, half, BK)")),
    harmless("matmul_int4", "weights evicted first", "they are read once", ("cols[None, :])\n        first", 'cols[None, :], eviction_policy="evict_first")\n        first')),
    harmless("matmul_int4", "a named constant", SAME, ("@triton.jit\n", "ZERO = tl.constexpr(8)\n\n\n@triton.jit\n"), ("to(tl.float16) - 8", "to(tl.float16) - ZERO")),
    # gated_tma
    harmless("gated_tma", "sigmoid written out", SAME, ("gate * tl.sigmoid(gate) * up", "gate / (1 + tl.exp(-gate)) * up")),
    harmless("gated_tma", "up first", SAME, ("        gate = tl.dot(x, g, gate)\n", ""), ("        up = tl.dot(x, u, up)\n", "        up = tl.dot(x, u, up)\n        gate = tl.dot(x, g, gate)\n")),
    harmless("gated_tma", "BK 64 -> 128, 2 stages", AHEAD, ("128, 64, 64", "128, 64, 128"), ("num_stages=3", "num_stages=2")),
    harmless("gated_tma", "output through pointers", "one store a program", ("gate_ptr, up_ptr, n, k,", "gate_ptr, out_ptr, n, k,"), ("x, gate, up, n, k", "x, gate, out, n, k"),
             ("    out_desc.store([row, col], result.to(tl.float16))", "    at = (row + tl.arange(0, BM))[:, None] * n + (col + tl.arange(0, BN))[None, :]\n    tl.store(out_ptr + at, result.to(tl.float16))")),
    # matmul_w8a8
    harmless("matmul_w8a8", "scaled twice", "a product more an element of the output", ("    scale = tl.load(row_scale_ptr + rows)[:, None] * tl.load(col_scale_ptr + cols)[None, :]\n", ""),
             ("(total.to(tl.float32) * scale)", "(total.to(tl.float32) * tl.load(row_scale_ptr + rows)[:, None] * tl.load(col_scale_ptr + cols)[None, :])")),
    harmless("matmul_w8a8", "axes of the grid exchanged", "the matrices are square", ("rows = tl.program_id(0)", "rows = tl.program_id(1)"), ("cols = tl.program_id(1)", "cols = tl.program_id(0)")),
    harmless("matmul_w8a8", "num_stages 3 -> 4", AHEAD, ("num_stages=3", "num_stages=4")),
    harmless("matmul_w8a8", "inner steps added", SAME, ("    inner = tl.arange(0, BK)\n", ""), ("(start + inner)[None, :]", "(start + tl.arange(0, BK))[None, :]")),
    # syrk
    harmless("syrk", "loads became TMA", "the same tiles, one instruction each, and asynchronous", ("import triton.language as tl\n", "import triton.language as tl\nfrom triton.tools.tensor_descriptor import TensorDescriptor\n"),
             ("a_ptr, out_ptr", "a_desc, out_ptr"), ("        inner = start + tl.arange(0, BK)\n", ""),
             ("tl.load(a_ptr + rows[:, None] * k + inner[None, :])", "a_desc.load([tl.program_id(0) * B, start])"), ("tl.load(a_ptr + cols[:, None] * k + inner[None, :])", "a_desc.load([tl.program_id(1) * B, start])"),
             ("(a, out,", "(TensorDescriptor.from_tensor(a, [128, 64]), out,")),
    harmless("syrk", "BK 64 -> 128, 3 stages", AHEAD, ("BK=64", "BK=128"), ("num_stages=4", "num_stages=3")),
    harmless("syrk", "pointers that step", FEWER, ("    for start in range(0, k, BK):\n        inner = start + tl.arange(0, BK)\n", "    inner = tl.arange(0, BK)\n    left_ptrs = a_ptr + rows[:, None] * k + inner[None, :]\n    right_ptrs = a_ptr + cols[:, None] * k + inner[None, :]\n    for start in range(0, k, BK):\n"),
             ("tl.load(a_ptr + rows[:, None] * k + inner[None, :])", "tl.load(left_ptrs)"), ("tl.load(a_ptr + cols[:, None] * k + inner[None, :])", "tl.load(right_ptrs)"),
             ("right.T, total)\n", "right.T, total)\n        left_ptrs += BK\n        right_ptrs += BK\n")),
    harmless("syrk", "bf16 products", "16 bits as before", ("tl.dot(left, right.T, total)", "tl.dot(left.to(tl.bfloat16), right.T.to(tl.bfloat16), total)")),
    harmless("syrk", "a docstring", SAME, ("BK: tl.constexpr):\n", 'BK: tl.constexpr):\n    """A tile of the output."""\n')),
    # kl_divergence
    harmless("kl_divergence", "num_warps 8 -> 16", "half the registers a thread, as many bytes", ("num_warps=8", "num_warps=16")),
    harmless("kl_divergence", "masks removed", FEWER, (", mask=inside, other=-1e30", ""), ("tl.where(inside, weight * (p - q), 0.0)", "weight * (p - q)")),
    harmless("kl_divergence", "one logarithm", FEWER, ("tl.log(other) - tl.log(total)", "tl.log(other / total)")),
    harmless("kl_divergence", "q first", SAME, ("    p -= tl.max(p, axis=0)\n    q -= tl.max(q, axis=0)\n", "    q -= tl.max(q, axis=0)\n    p -= tl.max(p, axis=0)\n")),
    harmless("kl_divergence", "powers of two", FEWER, ("tl.exp(p)", "tl.exp2(p * 1.4426950408889634)"), ("tl.exp(q)", "tl.exp2(q * 1.4426950408889634)")),
    # group_norm
    harmless("group_norm", "loops not pipelined", "other programs hide the latency of a stream: an H200 runs layer_norm's so 1.17 times as fast", (", num_stages=3)", ")")),
    harmless("group_norm", "num_stages 3 -> 2", "other programs hide the latency of a stream", (", num_stages=3)", ", num_stages=2)")),
    harmless("group_norm", "BLOCK 1024 -> 2048", AHEAD, ("BLOCK=1024", "BLOCK=2048")),
    harmless("group_norm", "masks removed", FEWER, (", mask=start + offsets < size, other=0.0", ""), (", mask=inside, other=0.0", ""), (", mask=inside", "")),
    harmless("group_norm", "shift and factor", FEWER, ("(x - mean) * factor", "x * factor + shift"), ("rsqrt(variance + eps)\n", "rsqrt(variance + eps)\n    shift = -mean * factor\n")),
    # jacobi
    harmless("jacobi", "R 2 -> 4", "more rows are shared", ("height // 2", "height // 4"), ("R=2", "R=4")),
    harmless("jacobi", "BLOCK 512 -> 1024", AHEAD, ("(width, 512)", "(width, 1024)"), ("BLOCK=512", "BLOCK=1024")),
    harmless("jacobi", "num_warps 4 -> 8", "as many bytes by more threads", ("R=2, BLOCK=512", "R=2, BLOCK=512, num_warps=8")),
    harmless("jacobi", "sum in another order", SAME, ("up + down + left + right + source", "source + left + right + up + down")),
    harmless("jacobi", "a quarter by division", SAME, ("0.25 * (up + down + left + right + source)", "(up + down + left + right + source) / 4")),
    # router
    harmless("router", "maximum with its place", FEWER, ("    largest = tl.max(logits, axis=1)\n    chosen = tl.argmax(logits, axis=1)\n", "    largest, chosen = tl.max(logits, axis=1, return_indices=True)\n")),
    harmless("router", "T 32 -> 64, 8 warps", "as much a thread", ("T=32, num_warps=4", "T=64, num_warps=8"), ("(tokens, 32)", "(tokens, 64)")),
    harmless("router", "weights stored first", SAME, ("    tl.store(chosen_ptr + token, chosen, mask=token < tokens)\n", ""), ("1.0 / total, mask=token < tokens)\n", "1.0 / total, mask=token < tokens)\n    tl.store(chosen_ptr + token, chosen, mask=token < tokens)\n")),
    # segment_sum
    harmless("segment_sum", "R 8 -> 16", AHEAD, ("R=8", "R=16")),
    harmless("segment_sum", "both ends in one load", SAME, ("    first = tl.load(offsets_ptr + segment)\n    last = tl.load(offsets_ptr + segment + 1)\n", "    ends = offsets_ptr + segment\n    first, last = tl.load(ends), tl.load(ends + 1)\n")),
    harmless("segment_sum", "num_warps 4 -> 8", "as many bytes by more threads", ("num_warps=4", "num_warps=8")),
    # residual
    harmless("residual", "num_warps 8 -> 4", "more bytes a thread", ("num_warps=8", "num_warps=4")),
    harmless("residual", "BLOCK 2048 -> 4096", AHEAD, ("2048", "4096")),
    harmless("residual", "y first", SAME, ("    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)\n", ""), ("    result =", "    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)\n    result =")),
    harmless("residual", "fused", FEWER, ("alpha * x + beta * y", "tl.fma(alpha, x, beta * y)")),
    harmless("residual", "renamed", SAME, ("residual_kernel", "scaled_sum_kernel"), ("alpha", "left_factor"), ("beta", "right_factor")),
)  # fmt: skip

EDITS: tuple[Planted, ...] = (*HARMFUL, *HARMLESS)
