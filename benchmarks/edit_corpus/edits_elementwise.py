"""Edits of kernels that do the same to every element, or move elements."""

# ruff: noqa: E501 - texts of kernels stay on their lines

from benchmarks.edit_corpus.edit import Edit

ADD_LOADS = """    x = tl.load(x_ptr + offsets, mask=inside)
    y = tl.load(y_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, x + y, mask=inside)
"""
ADD_CALL = "add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)"
ADD_PARAMETERS = "(x_ptr, y_ptr, out_ptr, n, BLOCK"

VECTOR_ADD = (
    Edit("vector_add", "BLOCK 1024 -> 4096", "tile", (("1024", "4096"),)),
    Edit("vector_add", "BLOCK 1024 -> 256", "tile", (("1024", "256"),)),
    Edit("vector_add", "BLOCK 1024 -> 8192, 8 warps", "tile", (
        ("BLOCK=1024", "BLOCK=8192, num_warps=8"),
        ("1024", "8192"),
    )),
    Edit("vector_add", "num_warps 4 -> 8", "warps", (("BLOCK=1024", "BLOCK=1024, num_warps=8"),)),
    Edit("vector_add", "num_warps 4 -> 1", "warps", (("BLOCK=1024", "BLOCK=1024, num_warps=1"),)),
    Edit("vector_add", "a scalar is loaded", "scalar", (
        (ADD_PARAMETERS, "(x_ptr, y_ptr, out_ptr, scale_ptr, n, BLOCK"),
        ("(x, y, out, n,", "(x, y, out, ones, n,"),
        ("x + y, mask", "x * tl.load(scale_ptr) + y, mask"),
    )),
    Edit("vector_add", "a third input", "input", (
        (ADD_PARAMETERS, "(x_ptr, y_ptr, z_ptr, out_ptr, n, BLOCK"),
        ("(x, y, out, n,", "(x, y, zeros, out, n,"),
        ("x + y, mask", "x + y + tl.load(z_ptr + offsets, mask=inside), mask"),
    )),
    Edit("vector_add", "masks removed", "mask", ((", mask=inside", ""), ("    inside = offsets < n\n", ""))),
    Edit("vector_add", "int64 offsets", "dtype", (("tl.program_id(0) *", "tl.program_id(0).to(tl.int64) *"),)),
    Edit("vector_add", "loads evicted first", "hint", (
        ("offsets, mask=inside)\n    y", 'offsets, mask=inside, eviction_policy="evict_first")\n    y'),
    )),
    Edit("vector_add", "alignment hints", "hint", (
        ("    inside =", "    offsets = tl.max_contiguous(tl.multiple_of(offsets, BLOCK), BLOCK)\n    inside ="),
    )),
    Edit("vector_add", "block split in two", "loads", (
        ("    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    inside = offsets < n\n" + ADD_LOADS,
         """    for half in tl.static_range(2):
        offsets = tl.program_id(0) * BLOCK + half * (BLOCK // 2) + tl.arange(0, BLOCK // 2)
        inside = offsets < n
        x = tl.load(x_ptr + offsets, mask=inside)
        y = tl.load(y_ptr + offsets, mask=inside)
        tl.store(out_ptr + offsets, x + y, mask=inside)
"""),
    )),
    Edit("vector_add", "a loop over blocks", "grid", (
        ("    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    inside = offsets < n\n" + ADD_LOADS,
         """    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        inside = offsets < n
        x = tl.load(x_ptr + offsets, mask=inside)
        y = tl.load(y_ptr + offsets, mask=inside)
        tl.store(out_ptr + offsets, x + y, mask=inside)
"""),
        ("(triton.cdiv(n, 1024),)", "(132 * 8,)"),
    )),
    Edit("vector_add", "helper for the sum", "helper", (
        ("x + y, mask", "plus(x, y), mask"),
        ("@triton.jit\n", "@triton.jit\ndef plus(x, y):\n    return x + y\n\n\n@triton.jit\n"),
    )),
    Edit("vector_add", "two launches of half the length", "launches", (
        ("    " + ADD_CALL,
         "    for part in (slice(0, n // 2), slice(n // 2, n)):\n"
         "        add_kernel[(triton.cdiv(n // 2, 1024),)](x[part], y[part], out[part], n // 2, BLOCK=1024)"),
    )),
    Edit("vector_add", "output one element off", "alignment", (
        ("torch.empty_like(x)", "torch.empty(x.numel() + 1, device=x.device)[1:]"),
    ), planted="stores of 32 bits instead of 128"),
    Edit("vector_add", "sum in fp64", "dtype", (
        ("x + y, mask", "(x.to(tl.float64) + y.to(tl.float64)).to(tl.float32), mask"),
    ), planted="double precision"),
    Edit("vector_add", "twice the programs", "grid", (("(triton.cdiv(n, 1024),)", "(2 * triton.cdiv(n, 1024),)"),)),
    Edit("vector_add", "addresses by division", "recompute", (
        (ADD_PARAMETERS, "(x_ptr, y_ptr, out_ptr, n, cols, BLOCK"),
        ("(x, y, out, n,", "(x, y, out, n, n // 4096 + 3,"),
        ("    inside = offsets < n\n",
         "    inside = offsets < n\n    offsets = offsets // cols * cols + offsets % cols\n"),
    ), planted="integer division an element, accesses of 32 bits instead of 128"),
)  # fmt: skip

SWIGLU_OFFSETS = "    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)\n"

SWIGLU = (
    Edit("swiglu", "BLOCK 2048 -> 1024", "tile", (("2048", "1024"),)),
    Edit("swiglu", "BLOCK 2048 -> 4096", "tile", (("2048", "4096"),)),
    Edit("swiglu", "BLOCK 2048 -> 512", "tile", (("2048", "512"),)),
    Edit("swiglu", "num_warps 4 -> 8", "warps", (("BLOCK=2048", "BLOCK=2048, num_warps=8"),)),
    Edit("swiglu", "num_warps 4 -> 2", "warps", (("BLOCK=2048", "BLOCK=2048, num_warps=2"),)),
    Edit("swiglu", "sigmoid written out", "order", (("tl.sigmoid(gate)", "(1 / (1 + tl.exp(-gate)))"),)),
    Edit(
        "swiglu",
        "up in bf16",
        "dtype",
        (
            ("mask=inside).to(tl.float32)\n    result", "mask=inside)\n    result"),
            ("gate * tl.sigmoid(gate) * up", "(gate * tl.sigmoid(gate)).to(tl.bfloat16) * up"),
        ),
        tolerance=0.02,
    ),
    Edit("swiglu", "loads reordered", "loads", (
        ("    gate = tl.load(gate_ptr + row * stride + columns, mask=inside).to(tl.float32)\n", ""),
        ("    result =",
         "    gate = tl.load(gate_ptr + row * stride + columns, mask=inside).to(tl.float32)\n    result ="),
    )),
    Edit("swiglu", "int64 rows", "dtype", (("tl.program_id(0)", "tl.program_id(0).to(tl.int64)"),)),
    Edit("swiglu", "whole rows in a loop", "grid", (
        (SWIGLU_OFFSETS, "    for start in range(0, cols, BLOCK):\n        columns = start + tl.arange(0, BLOCK)\n"),
        ("    inside =", "        inside ="),
        ("    gate =", "        gate ="),
        ("    up =", "        up ="),
        ("    result =", "        result ="),
        ("    tl.store", "        tl.store"),
        ("grid = (rows, triton.cdiv(cols, 2048))", "grid = (rows,)"),
    )),
    Edit("swiglu", "one flat grid", "grid", (
        ("    row = tl.program_id(0)\n" + SWIGLU_OFFSETS,
         "    blocks = tl.cdiv(cols, BLOCK)\n    row = tl.program_id(0) // blocks\n"
         "    columns = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)\n"),
        ("grid = (rows, triton.cdiv(cols, 2048))", "grid = (rows * triton.cdiv(cols, 2048),)"),
    )),
    Edit("swiglu", "row and column by element", "recompute", (
        ("    row = tl.program_id(0)\n" + SWIGLU_OFFSETS,
         "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    row, columns = at // cols, at % cols\n"),
        ("grid = (rows, triton.cdiv(cols, 2048))", "grid = (triton.cdiv(rows * cols, 2048),)"),
    ), planted="integer division an element, accesses of 16 bits instead of 128"),
    Edit("swiglu", "sigmoid in fp64", "dtype", (
        ("tl.sigmoid(gate) * up", "(1 / (1 + tl.exp(-gate.to(tl.float64)))).to(tl.float32) * up"),
    ), planted="double precision"),
    Edit("swiglu", "output rows padded by one", "alignment", (
        ("columns, result", "columns, result"),
        ("(gate_ptr, up_ptr, out_ptr, cols, stride,", "(gate_ptr, up_ptr, out_ptr, cols, stride, out_stride,"),
        ("out_ptr + row * stride", "out_ptr + row * out_stride"),
        ("out = torch.empty_like(gate)",
         "out = torch.empty(rows, cols + 1, device=gate.device, dtype=gate.dtype)[:, :cols]"),
        ("gate.stride(0), BLOCK", "gate.stride(0), out.stride(0), BLOCK"),
    ), planted="stores of 16 bits instead of 128"),
)  # fmt: skip

ROTARY = (
    Edit("rotary", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("rotary", "num_warps 4 -> 2", "warps", (("num_warps=4", "num_warps=2"),)),
    Edit("rotary", "half of the heads a program", "grid", (
        ("heads = tl.arange(0, HEADS)", "heads = tl.program_id(1) * (HEADS // 2) + tl.arange(0, HEADS // 2)"),
        ("[(tokens,)]", "[(tokens, 2)]"),
    )),
    Edit("rotary", "a loop over heads", "order", (
        ("    heads = tl.arange(0, HEADS)\n", ""),
        ("    offsets =", "    for heads in range(HEADS):\n      offsets ="),
        ("heads[:, None]", "heads"),
        ("dims[None, :]", "dims"),
        (")[None, :]\n", ")\n"),
        ("    first = ", "      first = "),
        ("    second = ", "      second = "),
        ("    tl.store", "      tl.store"),
    )),
    Edit("rotary", "computed in bf16", "dtype", (
        (")[None, :]", ").to(tl.bfloat16)[None, :]"), (".to(tl.float32)", ""),
    ), tolerance=0.03),
    Edit("rotary", "cos and sin computed here", "recompute", (
        ("cos = tl.load(cos_ptr + position * HALF + dims)", "cos = tl.cos(tl.load(cos_ptr + position * HALF + dims))"),
        ("sin = tl.load(sin_ptr + position * HALF + dims)", "sin = tl.sin(tl.load(sin_ptr + position * HALF + dims))"),
        ("[(tokens,)](q, cos, sin,", "[(tokens,)](q, angles, angles,"),
    )),
    Edit("rotary", "cos and sin computed for every head", "recompute", (
        ("cos = tl.load(cos_ptr + position * HALF + dims)[None, :]",
         "zero = heads[:, None] * 0.0\n    cos = tl.cos(tl.load(cos_ptr + position * HALF + dims)[None, :] + zero)"),
        ("sin = tl.load(sin_ptr + position * HALF + dims)[None, :]",
         "sin = tl.sin(tl.load(sin_ptr + position * HALF + dims)[None, :] + zero)"),
        ("[(tokens,)](q, cos, sin,", "[(tokens,)](q, angles, angles,"),
    ), planted="the same sines in every head"),
    Edit("rotary", "in fp64", "dtype", (("to(tl.float32)", "to(tl.float64)"),), planted="double precision"),
    Edit("rotary", "bounds checked", "mask", (
        ("offsets).to", "offsets, mask=heads[:, None] < HEADS).to"),
        ("offsets + HALF).to", "offsets + HALF, mask=heads[:, None] < HEADS).to"),
    )),
    Edit("rotary", "one load, then split", "loads", (
        ("""    first = tl.load(q_ptr + offsets).to(tl.float32)
    second = tl.load(q_ptr + offsets + HALF).to(tl.float32)
""", """    pair = tl.arange(0, 2)[None, None, :]
    first, second = tl.split(tl.load(q_ptr + offsets[:, :, None] + pair * HALF).to(tl.float32))
"""),
    )),
    Edit("rotary", "four heads more in flight", "unroll", (
        ("    heads = tl.arange(0, HEADS)\n", ""),
        ("    offsets =", "    for part in tl.static_range(4):\n"
         "      heads = part * (HEADS // 4) + tl.arange(0, HEADS // 4)\n      offsets ="),
        ("    first = ", "      first = "),
        ("    second = ", "      second = "),
        ("    tl.store", "      tl.store"),
    )),
)  # fmt: skip

DEQUANTIZE = (
    Edit("dequantize", "BLOCK 2048 -> 4096", "tile", (("2048", "4096"),)),
    Edit("dequantize", "BLOCK 2048 -> 1024", "tile", (("2048", "1024"),)),
    Edit("dequantize", "BLOCK 2048 -> 16384", "tile", (("2048", "16384"),)),
    Edit("dequantize", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("dequantize", "computed in fp16", "dtype", (("to(tl.float32)", "to(tl.float16)"),)),
    Edit("dequantize", "words loaded once", "loads", (
        ("""    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    packed = tl.load(packed_ptr + offsets // 8, mask=inside)
    values = (packed >> ((offsets % 8) * 4)) & 0xF
""", """    words = tl.program_id(0) * (BLOCK // 8) + tl.arange(0, BLOCK // 8)
    packed = tl.load(packed_ptr + words, mask=words < n // 8)
    values = (packed[:, None] >> (tl.arange(0, 8)[None, :] * 4)) & 0xF
    offsets = words[:, None] * 8 + tl.arange(0, 8)[None, :]
    inside = offsets < n
"""),
    )),
    Edit("dequantize", "masks removed", "mask", ((", mask=inside", ""),)),
    Edit("dequantize", "shifts by division", "recompute", (
        ("(packed >> ((offsets % 8) * 4)) & 0xF", "packed // (1 << ((offsets % 8) * 4)) % 16"),
    ), planted="integer division an element"),
    Edit("dequantize", "group size at run time", "recompute", (("offsets // GROUP", "offsets // group"),),
         planted="integer division an element"),
    Edit("dequantize", "scaled in fp64", "dtype", (("to(tl.float32)", "to(tl.float64)"),), planted="double precision"),
    Edit("dequantize", "scales and shift swapped", "order", (
        ("result = (values - 8).to(tl.float32) * scale", "result = values.to(tl.float32) * scale - 8 * scale"),
    ), tolerance=0.01),
    Edit("dequantize", "output one element off", "alignment", (
        ("torch.empty(n, device", "torch.empty(n + 1, device"),
        ("dtype=torch.float16)\n    dequantize", "dtype=torch.float16)[1:]\n    dequantize"),
    ), planted="stores of 16 bits instead of 128"),
)  # fmt: skip

TRANSPOSE = (
    Edit("transpose", "tile 64 -> 32", "tile", (("64", "32"),)),
    Edit("transpose", "tile 64 -> 128", "tile", (("64", "128"),)),
    Edit("transpose", "BN 64 -> 128", "tile", (("triton.cdiv(cols, 64)", "triton.cdiv(cols, 128)"), ("BN=64", "BN=128"))),
    Edit("transpose", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("transpose", "axes of the grid exchanged", "order", (
        ("tl.program_id(0) * BM", "tl.program_id(1) * BM"),
        ("tl.program_id(1) * BN", "tl.program_id(0) * BN"),
        ("grid = (triton.cdiv(rows, 64), triton.cdiv(cols, 64))", "grid = (triton.cdiv(cols, 64), triton.cdiv(rows, 64))"),
    )),
    Edit("transpose", "masks removed", "mask", ((", mask=inside", ""), (", mask=tl.trans(inside)", ""))),
    Edit("transpose", "addresses transposed instead of the tile", "order", (
        ("n[:, None] * rows + m[None, :], tl.trans(x), mask=tl.trans(inside)",
         "n[None, :] * rows + m[:, None], x, mask=inside"),
    )),
    Edit("transpose", "tile 64 -> 256, 4 warps", "tile", (("64", "256"),)),
    Edit("transpose", "through fp32", "dtype", (("mask=inside)", "mask=inside).to(tl.float32)"),)),
    Edit("transpose", "an element a column", "tile", (
        ("triton.cdiv(cols, 64)", "triton.cdiv(cols, 1)"), ("BN=64", "BN=1"),
        ("triton.cdiv(rows, 64)", "triton.cdiv(rows, 256)"), ("BM=64", "BM=256"),
    ), planted="loads of 16 bits instead of 128"),
)  # fmt: skip

EMBEDDING = (
    Edit("embedding", "num_warps 4 -> 8", "warps", (("BLOCK=4096", "BLOCK=4096, num_warps=8"),)),
    Edit("embedding", "num_warps 4 -> 16", "warps", (("BLOCK=4096", "BLOCK=4096, num_warps=16"),)),
    Edit("embedding", "blocks of 1024 columns", "grid", (
        ("columns = tl.arange(0, BLOCK)", "columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)"),
        ("[(index.numel(),)]", "[(index.numel(), table.shape[1] // 1024)]"),
        ("BLOCK=4096", "BLOCK=1024"),
    )),
    Edit("embedding", "numbers checked", "mask", (
        ("mask=columns < cols)\n    tl.store", "mask=(columns < cols) & (row >= 0), other=0.0)\n    tl.store"),
    )),
    Edit("embedding", "int32 numbers", "dtype", (("tl.load(index_ptr + token)", "tl.load(index_ptr + token).to(tl.int32)"),)),
    Edit("embedding", "four tokens a program", "unroll", (
        ("    token = tl.program_id(0)\n    row", "    for part in tl.static_range(4):\n      token = tl.program_id(0) * 4 + part\n      row"),
        ("    columns", "      columns"),
        ("    x = tl", "      x = tl"),
        ("    tl.store", "      tl.store"),
        ("[(index.numel(),)]", "[(index.numel() // 4,)]"),
    )),
    Edit("embedding", "output one element off", "alignment", (
        ("out = torch.empty(index.numel(), table.shape[1], device=table.device, dtype=table.dtype)",
         "flat = torch.empty(index.numel() * table.shape[1] + 1, device=table.device, dtype=table.dtype)\n"
         "    out = flat[1:].view(index.numel(), table.shape[1])"),
    ), planted="stores of 16 bits instead of 128"),
    Edit("embedding", "cached table", "hint", (
        ("mask=columns < cols)\n    tl.store", 'mask=columns < cols, eviction_policy="evict_last")\n    tl.store'),
    )),
)  # fmt: skip

HISTOGRAM = (
    Edit("histogram", "BLOCK 8192 -> 4096", "tile", (("8192", "4096"),)),
    Edit("histogram", "BLOCK 8192 -> 16384", "tile", (("8192", "16384"),)),
    Edit("histogram", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("histogram", "a loop over blocks", "grid", (
        ("""    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0)
    counts = tl.histogram(x, BINS, mask=offsets < n)
""", """    counts = tl.zeros([BINS], tl.int32)
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=0)
        counts += tl.histogram(x, BINS, mask=offsets < n)
"""),
        ("(triton.cdiv(n, 8192),)", "(132 * 4,)"),
    )),
    Edit("histogram", "relaxed additions", "hint", (("BINS), counts)", 'BINS), counts, sem="relaxed")'),)),
    Edit("histogram", "an addition an element", "recompute", (
        ("    counts = tl.histogram(x, BINS, mask=offsets < n)\n", ""),
        ("tl.atomic_add(counts_ptr + tl.arange(0, BINS), counts)",
         "tl.atomic_add(counts_ptr + x, 1, mask=offsets < n)"),
    )),
    Edit("histogram", "masks removed", "mask", ((", mask=offsets < n, other=0", ""), (", mask=offsets < n", ""))),
)  # fmt: skip

ELEMENTWISE = (*VECTOR_ADD, *SWIGLU, *ROTARY, *DEQUANTIZE, *TRANSPOSE, *EMBEDDING, *HISTOGRAM)
