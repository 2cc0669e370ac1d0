"""Edits of further kernels. No rule and no threshold was chosen with these in sight: they say how far the rules carry."""

# ruff: noqa: E501 - texts of kernels stay on their lines

from benchmarks.edit_corpus.edit import Edit

ADAM = (
    Edit("adam", "BLOCK 1024 -> 4096", "tile", (("1024", "4096"),)),
    Edit("adam", "BLOCK 1024 -> 512", "tile", (("1024", "512"),)),
    Edit("adam", "num_warps 4 -> 8", "warps", (("BLOCK=1024", "BLOCK=1024, num_warps=8"),)),
    Edit("adam", "inverse root", "order", (("m / (tl.sqrt(v) + eps)", "m * tl.rsqrt(v + eps * eps)"),), tolerance=0.02),
    Edit("adam", "correctly rounded", "recompute", (("m / (tl.sqrt(v) + eps)", "tl.div_rn(m, tl.sqrt_rn(v) + eps)"),)),
    Edit("adam", "masks removed", "mask", ((", mask=inside", ""),)),
    Edit("adam", "moments not stored", "input", (
        ("    tl.store(m_out_ptr + offsets, m, mask=inside)\n", "    tl.store(m_out_ptr + offsets, m, mask=inside & (lr > 0))\n"),
    )),
    Edit("adam", "loads evicted first", "hint", (("mask=inside)\n    g", 'mask=inside, eviction_policy="evict_first")\n    g'),)),
    Edit("adam", "loads in another order", "loads", (
        ("    p = tl.load(p_ptr + offsets, mask=inside)\n", ""),
        ("    update =", "    p = tl.load(p_ptr + offsets, mask=inside)\n    update ="),
    )),
    Edit("adam", "update in fp64", "dtype", (("m / (tl.sqrt(v) + eps)", "(m.to(tl.float64) / (tl.sqrt(v.to(tl.float64)) + eps)).to(tl.float32)"),),
         planted="double precision"),
    Edit("adam", "maxnreg=24", "maxnreg", (("1024", "4096"), ("BLOCK=4096", "BLOCK=4096, maxnreg=24")), planted="spills"),
)  # fmt: skip

MATVEC = (
    Edit("matvec", "ROWS 4 -> 8", "tile", (('"ROWS": 4', '"ROWS": 8'),)),
    Edit("matvec", "ROWS 4 -> 1", "tile", (('"ROWS": 4', '"ROWS": 1'),)),
    Edit("matvec", "BLOCK 512 -> 1024", "tile", (('"BLOCK": 512', '"BLOCK": 1024'),)),
    Edit("matvec", "BLOCK 512 -> 256", "tile", (('"BLOCK": 512', '"BLOCK": 256'),)),
    Edit("matvec", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("matvec", "num_warps 4 -> 1", "warps", (("num_warps=4", "num_warps=1"),)),
    Edit("matvec", "num_stages 3 -> 5", "stages", (("num_stages=3", "num_stages=5"),)),
    Edit("matvec", "unrolled four times", "unroll", (("in range(0, cols, BLOCK)", "in tl.range(0, cols, BLOCK, loop_unroll_factor=4)"),)),
    Edit("matvec", "products in fp16", "dtype", ((".to(tl.float32)\n        x =", "\n        x ="), ("(x_ptr + columns).to(tl.float32)", "(x_ptr + columns)")), tolerance=0.02),
    Edit("matvec", "sums in the loop", "order", (
        ("tl.zeros([ROWS, BLOCK], tl.float32)", "tl.zeros([ROWS], tl.float32)"), ("total += w * x[None, :]", "total += tl.sum(w * x[None, :], axis=1)"),
        ("rows, tl.sum(total, axis=1)", "rows, total"),
    )),
    Edit("matvec", "weights evicted first", "hint", (("columns[None, :])", 'columns[None, :], eviction_policy="evict_first")'),)),
    Edit("matvec", "sums in fp64", "dtype", (("[ROWS, BLOCK], tl.float32", "[ROWS, BLOCK], tl.float64"), ("tl.sum(total, axis=1)", "tl.sum(total, axis=1).to(tl.float32)")),
         planted="double precision"),
    Edit("matvec", "columns in steps", "loads", (
        ("columns = start + tl.arange(0, BLOCK)", "columns = start + (tl.arange(0, BLOCK) % 16) * (BLOCK // 16) + tl.arange(0, BLOCK) // 16"),
    ), planted="loads of 16 bits instead of 128"),
    Edit("matvec", "rows by tensor cores", "order", (
        ('"ROWS": 4', '"ROWS": 64'), ("[ROWS, BLOCK], tl.float32", "[ROWS, 16], tl.float32"),
        (".to(tl.float32)\n        x =", "\n        x ="), ("(x_ptr + columns).to(tl.float32)", "(x_ptr + columns)"),
        ("total += w * x[None, :]", "total = tl.dot(w, tl.where(tl.arange(0, 16)[None, :] == 0, x[:, None], 0.0), total)"),
        ('"BLOCK": 512', '"BLOCK": 128'),
    )),
)  # fmt: skip

CONVOLUTION = (
    Edit("convolution", "C 256 -> 128", "tile", (("256", "128"),)),
    Edit("convolution", "C 256 -> 512", "tile", (("256", "512"),)),
    Edit("convolution", "T 16 -> 32", "tile", (("(steps, 16)", "(steps, 32)"), ("T=16", "T=32"))),
    Edit("convolution", "T 16 -> 4", "tile", (("(steps, 16)", "(steps, 4)"), ("T=16", "T=4"))),
    Edit("convolution", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("convolution", "a loop", "unroll", (("in tl.static_range(WIDTH)", "in range(WIDTH)"),)),
    Edit("convolution", "axes exchanged", "order", (
        ("tl.program_id(0) * T", "tl.program_id(1) * T"), ("tl.program_id(1) * C", "tl.program_id(0) * C"),
        ("grid = (triton.cdiv(steps, 16), triton.cdiv(channels, 256))", "grid = (triton.cdiv(channels, 256), triton.cdiv(steps, 16))"),
    )),
    Edit("convolution", "weights first", "loads", (
        ("        weight = tl.load(weight_ptr + i * channels + c)\n", ""), ("        at =", "        weight = tl.load(weight_ptr + i * channels + c)\n        at ="),
    )),
    Edit("convolution", "sum in bf16", "dtype", (("tl.zeros([T, C], tl.float32)", "tl.zeros([T, C], tl.bfloat16)"), ("x.to(tl.float32) * weight[None, :]", "x * weight[None, :].to(tl.bfloat16)")), tolerance=0.05),
    Edit("convolution", "all masked", "mask", (("mask=(at >= 0)[:, None]", "mask=(at >= 0)[:, None] & (c < channels)[None, :]"),)),
    Edit("convolution", "a helper", "helper", (
        ("total += x.to(tl.float32) * weight[None, :]", "total = fused(x, weight, total)"),
        ("@triton.jit\n", "@triton.jit\ndef fused(x, weight, total):\n    return total + x.to(tl.float32) * weight[None, :]\n\n\n@triton.jit\n"),
    )),
    Edit("convolution", "wrapped channels", "recompute", (("c = tl.program_id(1) * C + tl.arange(0, C)", "c = (tl.program_id(1) * C + tl.arange(0, C) + 1) % channels"),),
         planted="accesses of 16 bits instead of 128"),
    Edit("convolution", "in fp64", "dtype", (("tl.float32", "tl.float64"),), planted="double precision"),
)  # fmt: skip

GELU = (
    Edit("gelu_dropout", "BLOCK 2048 -> 1024", "tile", (("2048", "1024"),)),
    Edit("gelu_dropout", "BLOCK 2048 -> 4096", "tile", (("2048", "4096"),)),
    Edit("gelu_dropout", "num_warps 8 -> 4", "warps", (("num_warps=8", "num_warps=4"),)),
    Edit("gelu_dropout", "by tanh", "order", (
        ("(1 + tl.erf(x * 0.7071067811865476))", "2 * tl.sigmoid(1.5957691216 * (x + 0.044715 * x * x * x))"),
    ), tolerance=0.02),
    Edit("gelu_dropout", "a block a program", "grid", (
        ("    for start in range(0, cols, BLOCK):\n        columns = start + tl", "    if True:\n        columns = tl.program_id(1) * BLOCK + tl"),
        ("[(rows,)]", "[(rows, triton.cdiv(cols, 2048))]"),
    )),
    Edit("gelu_dropout", "fewer rounds", "order", (("columns)\n        result = tl.where", "columns, n_rounds=6)\n        result = tl.where"),)),
    Edit("gelu_dropout", "dropout removed", "input", (
        ("        random = tl.rand(seed, row * cols + columns)\n        result = tl.where(random >= p, result / (1 - p), 0.0)\n", ""),
    )),
    Edit("gelu_dropout", "unrolled twice", "unroll", (("in range(0, cols, BLOCK)", "in tl.range(0, cols, BLOCK, loop_unroll_factor=2)"),)),
    Edit("gelu_dropout", "bias loaded after", "loads", (
        ("        bias = tl.load(bias_ptr + columns, mask=inside).to(tl.float32)\n", ""), ("x += bias", "x += tl.load(bias_ptr + columns, mask=inside).to(tl.float32)"),
    )),
    Edit("gelu_dropout", "erf in fp64", "dtype", (("tl.erf(x * 0.7071067811865476)", "tl.erf(x.to(tl.float64) * 0.7071067811865476).to(tl.float32)"),), planted="double precision"),
    Edit("gelu_dropout", "random numbers three times", "recompute", (
        ("random = tl.rand(seed, row * cols + columns)", "random = tl.maximum(tl.rand(seed, row * cols + columns), tl.maximum(tl.rand(seed + 1, row * cols + columns), tl.rand(seed + 2, row * cols + columns)))"),
    ), planted="the same work in many more instructions"),
    Edit("gelu_dropout", "output rows padded by one", "alignment", (
        ("out = torch.empty_like(x)", "out = torch.empty(rows, cols + 1, device=x.device, dtype=x.dtype)[:, :cols]"),
        ("out_ptr, cols,", "out_ptr, out_stride, cols,"), ("out, cols,", "out, out.stride(0), cols,"), ("out_ptr + row * cols", "out_ptr + row * out_stride"),
    ), planted="stores of 16 bits instead of 128"),
)  # fmt: skip

INT8 = (
    Edit("matmul_int8", "BM 64 -> 128", "tile", (("(m, 64)", "(m, 128)"), ("BM=64", "BM=128"))),
    Edit("matmul_int8", "BN 128 -> 256", "tile", (("(n, 128)", "(n, 256)"), ("BN=128", "BN=256"))),
    Edit("matmul_int8", "BK 64 -> 128", "tile", (("BK=64", "BK=128"),)),
    Edit("matmul_int8", "BK 64 -> 32", "tile", (("BK=64", "BK=32"),)),
    Edit("matmul_int8", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("matmul_int8", "num_stages 3 -> 4", "stages", (("num_stages=3", "num_stages=4"),)),
    Edit("matmul_int8", "num_stages 3 -> 1", "stages", (("num_stages=3", "num_stages=1"),)),
    Edit("matmul_int8", "scaled in the loop", "order", (
        ("tl.dot(x, w.to(tl.float16), total)", "tl.dot(x, (w.to(tl.float32) * scale[None, :]).to(tl.float16), total)"),
        ("(total * scale[None, :])", "total"), ("    scale = tl.load(scale_ptr + cols)\n", ""), ("    total = tl.zeros", "    scale = tl.load(scale_ptr + cols)\n    total = tl.zeros"),
    ), tolerance=0.02),
    Edit("matmul_int8", "widened through fp32", "dtype", (("w.to(tl.float16)", "w.to(tl.float32).to(tl.float16)"),)),
    Edit("matmul_int8", "in bf16", "dtype", (("tl.dot(x, w.to(tl.float16)", "tl.dot(x.to(tl.bfloat16), w.to(tl.bfloat16)"),), tolerance=0.02),
    Edit("matmul_int8", "axes of the grid exchanged", "order", (
        ("rows = tl.program_id(0)", "rows = tl.program_id(1)"), ("cols = tl.program_id(1)", "cols = tl.program_id(0)"),
        ("grid = (triton.cdiv(m, 64), triton.cdiv(n, 128))", "grid = (triton.cdiv(n, 128), triton.cdiv(m, 64))"),
    )),
    Edit("matmul_int8", "in fp32, ieee", "precision", (("tl.dot(x, w.to(tl.float16), total)", 'tl.dot(x.to(tl.float32), w.to(tl.float32), total, input_precision="ieee")'),), planted="tensor cores lost"),
    Edit("matmul_int8", "maxnreg=96", "maxnreg", (("num_warps=4", "num_warps=4, maxnreg=96"),), planted="spills"),
)  # fmt: skip

EXPERTS = (
    Edit("matmul_experts", "BN 128 -> 256", "tile", (("(n, 128)", "(n, 256)"), ("BN=128", "BN=256"))),
    Edit("matmul_experts", "BN 128 -> 64", "tile", (("(n, 128)", "(n, 64)"), ("BN=128", "BN=64"))),
    Edit("matmul_experts", "BM 64 -> 32", "tile", (("(tokens, 64)", "(tokens, 32)"), ("BM=64", "BM=32"))),
    Edit("matmul_experts", "BK 64 -> 128, 3 stages", "tile", (("BK=64", "BK=128"), ("num_stages=4", "num_stages=3"))),
    Edit("matmul_experts", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("matmul_experts", "num_stages 4 -> 2", "stages", (("num_stages=4", "num_stages=2"),)),
    Edit("matmul_experts", "weights loaded transposed", "loads", (("cols[:, None] * k + inner[None, :]", "cols[None, :] * k + inner[:, None]"), ("tl.dot(x, w.T, total)", "tl.dot(x, w, total)"))),
    Edit("matmul_experts", "inner dimension masked", "mask", (
        ("k + inner[None, :])\n        w", "k + inner[None, :], mask=inner[None, :] < k, other=0.0)\n        w"),
        ("k + inner[None, :])\n        total", "k + inner[None, :], mask=inner[None, :] < k, other=0.0)\n        total"),
    )),
    Edit("matmul_experts", "unrolled twice", "unroll", (("in range(0, k, BK)", "in tl.range(0, k, BK, loop_unroll_factor=2)"),)),
    Edit("matmul_experts", "a scale loaded", "scalar", (("total.to(tl.bfloat16)", "(total * (tl.load(expert_ptr + block * BM // 64) >= 0)).to(tl.bfloat16)"),)),
    Edit("matmul_experts", "sum of products", "precision", (
        ("tl.dot(x, w.T, total)", "total + tl.sum(x[:, None, :].to(tl.float32) * w[None, :, :].to(tl.float32), 2)"), ("BK=64", "BK=16"), ("BM=64, BN=128", "BM=32, BN=32"), ("(tokens, 64), triton.cdiv(n, 128)", "(tokens, 32), triton.cdiv(n, 32)"),
    ), planted="tensor cores lost"),
    Edit("matmul_experts", "num_stages 4 -> 12", "stages", (("num_stages=4", "num_stages=12"),), planted="doesn't fit"),
)  # fmt: skip

DECODE = (
    Edit("attention_decode", "splits 8 -> 16", "grid", (("splits = 8", "splits = 16"),)),
    Edit("attention_decode", "splits 8 -> 4", "grid", (("splits = 8", "splits = 4"),)),
    Edit("attention_decode", "BN 64 -> 128", "tile", (("BN=64", "BN=128"),)),
    Edit("attention_decode", "BN 64 -> 32", "tile", (("BN=64", "BN=32"),)),
    Edit("attention_decode", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("attention_decode", "num_warps 4 -> 2", "warps", (("num_warps=4", "num_warps=2"),)),
    Edit("attention_decode", "num_stages 3 -> 1", "stages", (("num_warps=4", "num_warps=4, num_stages=1"),)),
    Edit("attention_decode", "both loaded first", "loads", (
        ("        v = tl.load(v_ptr + at).to(tl.float32)\n", ""), ("        scores =", "        v = tl.load(v_ptr + at).to(tl.float32)\n        scores ="),
    )),
    Edit("attention_decode", "powers of two", "order", (("tl.exp(", "tl.exp2("), ("head**-0.5", "head**-0.5 * 1.4426950408889634"))),
    Edit("attention_decode", "products in fp16", "dtype", ((".to(tl.float32)\n        scores", "\n        scores"), ("q[None, :] * k", "q[None, :].to(tl.float16) * k")), tolerance=0.03),
    Edit("attention_decode", "exponential in fp64", "dtype", (("p = tl.exp(scores - larger)", "p = tl.exp((scores - larger).to(tl.float64)).to(tl.float32)"),), planted="double precision"),
    Edit("attention_decode", "BN 64 -> 512", "tile", (("BN=64", "BN=512"),)),
)  # fmt: skip

PERMUTE = (
    Edit("permute", "T 32 -> 64", "tile", (("(tokens, 32)", "(tokens, 64)"), ("T=32", "T=64"))),
    Edit("permute", "T 32 -> 8", "tile", (("(tokens, 32)", "(tokens, 8)"), ("T=32", "T=8"))),
    Edit("permute", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("permute", "all heads a program", "grid", (
        ("    head = tl.program_id(1)\n", ""), ("    x = tl.load", "    for head in range(HEADS):\n      x = tl.load"), ("    tl.store", "      tl.store"),
        ("(triton.cdiv(tokens, 32), heads)", "(triton.cdiv(tokens, 32),)"),
    )),
    Edit("permute", "flat addresses", "recompute", (
        ("    t = tl.program_id(0) * T + tl.arange(0, T)\n    head = tl.program_id(1)\n    dims = tl.arange(0, HEAD)\n    inside = (t < tokens)[:, None]\n",
         "    at = tl.program_id(0) * T * HEAD + tl.arange(0, T * HEAD)\n    dims, head, t = at % HEAD, at // HEAD % HEADS, at // HEAD // HEADS\n    inside = t < tokens\n"),
        ("(t[:, None] * HEADS + head) * HEAD + dims[None, :]", "at"), ("(head * tokens + t[:, None]) * HEAD + dims[None, :]", "(head * tokens + t) * HEAD + dims"),
        ("(triton.cdiv(tokens, 32), heads)", "(triton.cdiv(tokens * heads, 32),)"),
    )),
    Edit("permute", "output one element off", "alignment", (
        ("out = torch.empty(heads, tokens, head, device=x.device, dtype=x.dtype)", "out = torch.empty(x.numel() + 1, device=x.device, dtype=x.dtype)[1:].view(heads, tokens, head)"),
    ), planted="stores of 16 bits instead of 128"),
    Edit("permute", "head dimension backwards", "loads", (("dims = tl.arange(0, HEAD)", "dims = HEAD - 1 - tl.arange(0, HEAD)"),), planted="accesses of 16 bits instead of 128"),
)  # fmt: skip

WELFORD = (
    Edit("welford", "BLOCK 1024 -> 2048", "tile", (('"BLOCK": 1024', '"BLOCK": 2048'),)),
    Edit("welford", "BLOCK 1024 -> 4096, 8 warps", "tile", (('"BLOCK": 1024}, num_warps=4', '"BLOCK": 4096}, num_warps=8'),)),
    Edit("welford", "num_warps 4 -> 2", "warps", (("num_warps=4", "num_warps=2"),)),
    Edit("welford", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("welford", "sums of squares", "order", (
        ("        new = count + 1\n        delta = x - mean\n        mean = tl.where(inside, mean + delta / new, mean)\n        m2 = tl.where(inside, m2 + delta * (x - mean), m2)\n        count = tl.where(inside, new, count)\n    mean, m2, count = tl.reduce((mean, m2, count), 0, combine)\n",
         "        mean += x\n        m2 += x * x\n    count = cols\n    mean = tl.sum(mean, axis=0) / cols\n    m2 = tl.sum(m2, axis=0) - cols * mean * mean\n"),
    ), tolerance=0.02),
    Edit("welford", "count of the loop", "order", (("delta / new", "delta / (start // BLOCK + 1)"),)),
    Edit("welford", "unrolled", "unroll", (("in range(0, cols, BLOCK)", "in tl.range(0, cols, BLOCK, loop_unroll_factor=2)"),)),
    Edit("welford", "correctly rounded division", "recompute", (("delta / new", "tl.div_rn(delta, new)"),)),
    Edit("welford", "in fp64", "dtype", (("tl.zeros([BLOCK], tl.float32)", "tl.zeros([BLOCK], tl.float64)"), ("row, mean)", "row, mean.to(tl.float32))"), ("m2 / count)", "(m2 / count).to(tl.float32))")),
         planted="double precision"),
    Edit("welford", "maxnreg=24", "maxnreg", (('"BLOCK": 1024}, num_warps=4', '"BLOCK": 2048}, num_warps=4, maxnreg=32'),), planted="spills"),
)  # fmt: skip

HELD_OUT = (*ADAM, *MATVEC, *CONVOLUTION, *GELU, *INT8, *EXPERTS, *DECODE, *PERMUTE, *WELFORD)
