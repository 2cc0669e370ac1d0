"""Edits of kernels that reduce rows or columns."""

# ruff: noqa: E501 - texts of kernels stay on their lines

from benchmarks.edit_corpus.edit import Edit

SOFTMAX_LAST = """    x = x - tl.max(x, axis=1)[:, None]
    numerator = tl.exp(x)
    result = numerator / tl.sum(numerator, axis=1)[:, None]
"""

SOFTMAX = (
    Edit("softmax", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("softmax", "num_warps 4 -> 16", "warps", (("num_warps=4", "num_warps=16"),)),
    Edit("softmax", "num_warps 4 -> 2", "warps", (("num_warps=4", "num_warps=2"),)),
    Edit("softmax", "ROWS 1 -> 2", "tile", (('"ROWS": 1', '"ROWS": 2'),)),
    Edit("softmax", "ROWS 1 -> 2, 8 warps", "tile", (('"ROWS": 1}, num_warps=4', '"ROWS": 2}, num_warps=8'),)),
    Edit("softmax", "num_stages 3 -> 1", "stages", (("num_warps=4", "num_warps=4, num_stages=1"),)),
    Edit("softmax", "powers of two", "order", (("tl.exp(x)", "tl.exp2(x * 1.4426950408889634)"),)),
    Edit("softmax", "multiplied by the inverse", "order", (
        ("numerator / tl.sum(numerator, axis=1)[:, None]", "numerator * (1 / tl.sum(numerator, axis=1))[:, None]"),
    )),
    Edit("softmax", "correctly rounded division", "recompute", (
        ("numerator / tl.sum(numerator, axis=1)[:, None]",
         "tl.math.div_rn(numerator, tl.sum(numerator, axis=1)[:, None] + tl.zeros_like(numerator))"),
    )),
    Edit("softmax", "tl.softmax", "helper", ((SOFTMAX_LAST, "    result = tl.softmax(x, 1)\n"),)),
    Edit("softmax", "helper for the sum", "helper", (
        (SOFTMAX_LAST, "    result = normalized(x)\n"),
        ("@triton.autotune", "@triton.jit\ndef normalized(x):\n" + SOFTMAX_LAST.replace("result =", "return")
         + "\n\n@triton.autotune"),
    )),
    Edit("softmax", "read twice", "loads", (
        ("    numerator = tl.exp(x)\n    result = numerator / tl.sum(numerator, axis=1)[:, None]\n",
         "    total = tl.sum(tl.exp(x), axis=1)\n"
         '    again = tl.load(x_ptr + offsets, mask=inside, other=-float("inf"), cache_modifier=".cg")\n'
         "    result = tl.exp(again - largest) / total[:, None]\n"),
        ("x = x - tl.max(x, axis=1)[:, None]", "largest = tl.max(x, axis=1)[:, None]\n    x = x - largest"),
    )),
    Edit("softmax", "evicted first", "hint", (
        ('other=-float("inf"))', 'other=-float("inf"), eviction_policy="evict_first")'),
    )),
    Edit("softmax", "sum in fp64", "dtype", (
        ("tl.sum(numerator, axis=1)", "tl.sum(numerator.to(tl.float64), axis=1).to(tl.float32)"),
    ), planted="double precision"),
    Edit("softmax", "exponential in fp64", "dtype", (("tl.exp(x)", "tl.exp(x.to(tl.float64))"),
         ("offsets, result,", "offsets, result.to(tl.float32),")), planted="double precision"),
    Edit("softmax", "maxnreg=32", "maxnreg", (("num_warps=4", "num_warps=4, maxnreg=32"),), planted="spills"),
    Edit("softmax", "columns rotated", "loads", (
        ("    columns = tl.arange(0, BLOCK)\n",
         "    columns = (tl.arange(0, BLOCK) + tl.program_id(0)) % BLOCK\n"),
    ), planted="accesses of 32 bits instead of 128"),
    Edit("softmax", "ROWS 1 -> 16", "tile", (('"ROWS": 1', '"ROWS": 16'),), planted="spills"),
)  # fmt: skip

RMS_LOAD = "    x = tl.load(x_ptr + row * cols + columns, mask=inside, other=0.0).to(tl.float32)\n"

RMS_NORM = (
    Edit("rms_norm", "num_warps 8 -> 4", "warps", (("num_warps=8", "num_warps=4"),)),
    Edit("rms_norm", "num_warps 8 -> 16", "warps", (("num_warps=8", "num_warps=16"),)),
    Edit("rms_norm", "num_warps 8 -> 32", "warps", (("num_warps=8", "num_warps=32"),)),
    Edit("rms_norm", "num_warps 8 -> 1", "warps", (("num_warps=8", "num_warps=1"),), planted="spills"),
    Edit("rms_norm", "residual added", "input", (
        (RMS_LOAD, RMS_LOAD
         + "    x += tl.load(residual_ptr + row * cols + columns, mask=inside, other=0.0).to(tl.float32)\n"),
    )),
    Edit("rms_norm", "weight loaded first", "loads", (
        ("    weight = tl.load(weight_ptr + columns, mask=inside).to(tl.float32)\n", ""),
        (RMS_LOAD, "    weight = tl.load(weight_ptr + columns, mask=inside).to(tl.float32)\n" + RMS_LOAD),
    )),
    Edit("rms_norm", "weight in fp16", "dtype", (
        ("mask=inside).to(tl.float32)\n    tl.store", "mask=inside)\n    tl.store"),
        ("(x * rstd * weight).to(tl.float16)", "(x * rstd).to(tl.float16) * weight"),
    )),
    Edit("rms_norm", "root and division", "order", (
        ("tl.rsqrt(tl.sum(x * x, axis=0) / cols + eps)", "1.0 / tl.sqrt(tl.sum(x * x, axis=0) / cols + eps)"),
    )),
    Edit("rms_norm", "eight programs more a row", "grid", (
        ("    row = tl.program_id(0)\n", "    row = tl.program_id(0) // 2\n"), ("[(rows,)]", "[(2 * rows,)]"),
    )),
    Edit("rms_norm", "blocks of 1024 in two loops", "order", (
        ("    columns = tl.arange(0, BLOCK)\n    inside = columns < cols\n", "    squares = tl.zeros([BLOCK], tl.float32)\n"),
        (RMS_LOAD, """    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + columns, mask=columns < cols, other=0.0).to(tl.float32)
        squares += x * x
"""),
        ("tl.sum(x * x, axis=0)", "tl.sum(squares, axis=0)"),
        ("    weight = ", """    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < cols
        x = tl.load(x_ptr + row * cols + columns, mask=inside, other=0.0).to(tl.float32)
        weight = """),
        ("    tl.store", "        tl.store"),
        ("BLOCK=triton.next_power_of_2(cols)", "BLOCK=1024"),
    )),
    Edit("rms_norm", "maxnreg=16", "maxnreg", (("num_warps=8", "num_warps=4, maxnreg=24"),), planted="spills"),
    Edit("rms_norm", "in fp64", "dtype", (("x * rstd * weight", "x.to(tl.float64) * rstd * weight"),
         ("tl.sum(x * x, axis=0)", "tl.sum(x.to(tl.float64) * x, axis=0)"), ("/ cols + eps)", "/ cols + eps).to(tl.float32)"),
         ), planted="double precision"),
    Edit("rms_norm", "output rows padded by one", "alignment", (
        ("out = torch.empty_like(x)", "out = torch.empty(rows, cols + 1, device=x.device, dtype=x.dtype)[:, :cols]"),
        ("out, cols,", "out, out.stride(0), cols,"),
        ("out_ptr, cols,", "out_ptr, out_stride, cols,"),
        ("out_ptr + row * cols", "out_ptr + row * out_stride"),
    ), planted="stores of 16 bits instead of 128"),
    Edit("rms_norm", "columns in steps", "loads", (
        ("columns = tl.arange(0, BLOCK)", "columns = (tl.arange(0, BLOCK) % 64) * (BLOCK // 64) + tl.arange(0, BLOCK) // 64"),
    ), planted="accesses of 16 bits instead of 128"),
)  # fmt: skip

LN_LOOP = "for start in range(0, cols, BLOCK):"
LN_FIRST = """    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + columns, mask=columns < cols, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / cols
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + columns, mask=columns < cols, other=0.0).to(tl.float32)
        x = tl.where(columns < cols, x - mean, 0.0)
        squares += x * x
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / cols + eps)
"""

LAYER_NORM = (
    Edit("layer_norm", "BLOCK 1024 -> 2048", "tile", (("BLOCK=1024", "BLOCK=2048"),)),
    Edit("layer_norm", "BLOCK 1024 -> 512", "tile", (("BLOCK=1024", "BLOCK=512"),)),
    Edit("layer_norm", "BLOCK 1024 -> 4096, 8 warps", "tile", (("BLOCK=1024, num_warps=4", "BLOCK=4096, num_warps=8"),)),
    Edit("layer_norm", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("layer_norm", "num_warps 4 -> 1", "warps", (("num_warps=4", "num_warps=1"),)),
    Edit("layer_norm", "one pass for both moments", "loads", (
        (LN_FIRST, """    total = tl.zeros([BLOCK], tl.float32)
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + columns, mask=columns < cols, other=0.0).to(tl.float32)
        total += x
        squares += x * x
    mean = tl.sum(total, axis=0) / cols
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / cols - mean * mean + eps)
"""),
    )),
    Edit("layer_norm", "loops unrolled twice", "unroll", ((LN_LOOP, "for start in tl.range(0, cols, BLOCK, loop_unroll_factor=2):"),)),
    Edit("layer_norm", "loops unrolled four times", "unroll", ((LN_LOOP, "for start in tl.range(0, cols, BLOCK, loop_unroll_factor=4):"),)),
    Edit("layer_norm", "loops unrolled fully", "unroll", ((LN_LOOP, "for start in tl.static_range(0, 12288, BLOCK):"),)),
    Edit("layer_norm", "loops pipelined", "stages", ((LN_LOOP, "for start in tl.range(0, cols, BLOCK, num_stages=3):"),)),
    Edit("layer_norm", "last loop backwards", "order", (
        (LN_LOOP + "\n        columns = start + tl.arange(0, BLOCK)\n        inside",
         LN_LOOP + "\n        columns = cols - BLOCK - start + tl.arange(0, BLOCK)\n        inside"),
    )),
    Edit("layer_norm", "masks removed", "mask", (
        (", mask=columns < cols, other=0.0", ""), (", mask=inside, other=0.0", ""), (", mask=inside", ""),
    )),
    Edit("layer_norm", "statistics not stored", "input", (
        ("    tl.store(mean_ptr + row, mean)\n    tl.store(rstd_ptr + row, rstd)\n",
         "    tl.store(mean_ptr + row, mean, mask=eps > 0)\n    tl.store(rstd_ptr + row, rstd, mask=eps > 0)\n"),
    )),
    Edit("layer_norm", "int64 rows", "dtype", (("row = tl.program_id(0)", "row = tl.program_id(0).to(tl.int64)"),)),
    Edit("layer_norm", "rows kept in registers", "order", (
        ("BLOCK=1024, num_warps=4", "BLOCK=16384, num_warps=16"),
    )),
    Edit("layer_norm", "rows kept in 4 warps", "tile", (("BLOCK=1024", "BLOCK=16384"),), planted="spills"),
    Edit("layer_norm", "output in fp64", "dtype", (("(x - mean) * rstd * weight", "(x - mean).to(tl.float64) * rstd * weight"),),
         planted="double precision"),
    Edit("layer_norm", "rows written one element off", "alignment", (
        ("out = torch.empty_like(x)", "out = torch.empty(rows * cols + 1, device=x.device, dtype=x.dtype)[1:].view(rows, cols)"),
    ), planted="stores of 16 bits instead of 128"),
)  # fmt: skip

BACKWARD_STORES = """    tl.store(dw_ptr + program * cols + columns, dw, mask=inside)
    tl.store(db_ptr + program * cols + columns, db, mask=inside)
"""
BACKWARD_SUMS = """    sum_kernel[(triton.cdiv(cols, 64),)](dws, dw, parts, cols, ROWS=32, COLUMNS=64)
    sum_kernel[(triton.cdiv(cols, 64),)](dbs, db, parts, cols, ROWS=32, COLUMNS=64)
"""

LAYER_NORM_BACKWARD = (
    Edit("layer_norm_backward", "parts 264 -> 528", "grid", (("parts = 264", "parts = 528"),)),
    Edit("layer_norm_backward", "parts 264 -> 132", "grid", (("parts = 264", "parts = 132"),)),
    Edit("layer_norm_backward", "num_warps 8 -> 4", "warps", (("num_warps=8", "num_warps=4"),)),
    Edit("layer_norm_backward", "num_warps 8 -> 16", "warps", (("num_warps=8", "num_warps=16"),)),
    Edit("layer_norm_backward", "num_stages 3 -> 1", "stages", (("num_warps=8", "num_warps=8, num_stages=1"),)),
    Edit("layer_norm_backward", "pipelined loop", "stages", (
        ("in range(program, rows, tl.num_programs(0))", "in tl.range(program, rows, tl.num_programs(0), num_stages=3)"),
    )),
    Edit("layer_norm_backward", "unrolled loop", "unroll", (
        ("in range(program, rows, tl.num_programs(0))", "in tl.range(program, rows, tl.num_programs(0), loop_unroll_factor=2)"),
    )),
    Edit("layer_norm_backward", "atomic additions, one kernel", "launches", (
        (BACKWARD_STORES, "    tl.atomic_add(dw_ptr + columns, dw, mask=inside)\n    tl.atomic_add(db_ptr + columns, db, mask=inside)\n"),
        (BACKWARD_SUMS, ""), ("dx, dws, dbs, rows", "dx, dw, db, rows"), ("torch.empty_like(weight)", "torch.zeros_like(weight)"),
    ), tolerance=0.02),
    Edit("layer_norm_backward", "parts added by torch", "launches", (
        (BACKWARD_SUMS, "    dw, db = dws.sum(0), dbs.sum(0)\n"),
    ), tolerance=0.02),
    Edit("layer_norm_backward", "larger tiles of the sums", "tile", (("ROWS=32, COLUMNS=64", "ROWS=64, COLUMNS=64"),)),
    Edit("layer_norm_backward", "fewer columns a sum", "tile", (
        ("(triton.cdiv(cols, 64),)", "(triton.cdiv(cols, 16),)"), ("ROWS=32, COLUMNS=64", "ROWS=64, COLUMNS=16"),
    )),
    Edit("layer_norm_backward", "statistics loaded first", "loads", (
        ("        mean = tl.load(mean_ptr + row)\n        rstd = tl.load(rstd_ptr + row)\n", ""),
        ("        dy = tl.load", "        mean = tl.load(mean_ptr + row)\n        rstd = tl.load(rstd_ptr + row)\n        dy = tl.load"),
    )),
    Edit("layer_norm_backward", "an addition each row", "recompute", (
        ("        dw += dy * normal\n        db += dy\n",
         "        tl.atomic_add(dw_ptr + program * cols + columns, dy * normal, mask=inside)\n"
         "        tl.atomic_add(db_ptr + program * cols + columns, dy, mask=inside)\n"),
        (BACKWARD_STORES, ""), ("torch.empty(parts,", "torch.zeros(parts,"),
    )),
    Edit("layer_norm_backward", "maxnreg=32", "maxnreg", (("num_warps=8", "num_warps=8, maxnreg=32"),), planted="spills"),
    Edit("layer_norm_backward", "sums in fp64", "dtype", (
        ("dw = tl.zeros([BLOCK], tl.float32)", "dw = tl.zeros([BLOCK], tl.float64)"),
        ("db = tl.zeros([BLOCK], tl.float32)", "db = tl.zeros([BLOCK], tl.float64)"),
    ), planted="double precision"),
)  # fmt: skip

CE_LOAD = 'mask=columns < vocabulary, other=-float("inf"))'

CROSS_ENTROPY = (
    Edit("cross_entropy", "BLOCK 4096 -> 8192", "tile", (("BLOCK=4096", "BLOCK=8192"),)),
    Edit("cross_entropy", "BLOCK 4096 -> 2048", "tile", (("BLOCK=4096", "BLOCK=2048"),)),
    Edit("cross_entropy", "BLOCK 4096 -> 32768, 32 warps", "tile", (("BLOCK=4096, num_warps=8", "BLOCK=32768, num_warps=32"),)),
    Edit("cross_entropy", "num_warps 8 -> 16", "warps", (("num_warps=8", "num_warps=16"),)),
    Edit("cross_entropy", "num_warps 8 -> 4", "warps", (("num_warps=8", "num_warps=4"),)),
    Edit("cross_entropy", "num_stages 3 -> 2", "stages", (("num_warps=8", "num_warps=8, num_stages=2"),)),
    Edit("cross_entropy", "unrolled twice", "unroll", (
        ("in range(0, vocabulary, BLOCK)", "in tl.range(0, vocabulary, BLOCK, loop_unroll_factor=2)"),
    )),
    Edit("cross_entropy", "unrolled eight times", "unroll", (
        ("in range(0, vocabulary, BLOCK)", "in tl.range(0, vocabulary, BLOCK, loop_unroll_factor=8)"),
    )),
    Edit("cross_entropy", "a sum for each lane", "order", (
        ("    total = 0.0\n", "    total = tl.zeros([BLOCK], tl.float32)\n"),
        ("tl.sum(tl.exp(x - larger), axis=0)", "tl.exp(x - larger)"),
        ("tl.log(total)", "tl.log(tl.sum(total, axis=0))"),
    )),
    Edit("cross_entropy", "two passes", "loads", (
        ("""        larger = tl.maximum(largest, tl.max(x, axis=0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(x - larger), axis=0)
        largest = larger
""", """        largest = tl.maximum(largest, tl.max(x, axis=0))
    for start in range(0, vocabulary, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + columns, mask=columns < vocabulary, other=-float("inf")).to(tl.float32)
        total += tl.sum(tl.exp(x - largest), axis=0)
"""),
    )),
    Edit("cross_entropy", "smoothing loaded", "scalar", (
        ("target_ptr, loss_ptr,", "target_ptr, loss_ptr, smoothing_ptr,"),
        ("target, loss,", "target, loss, smoothing,"),
        ("- chosen)", "- chosen * (1 - tl.load(smoothing_ptr)))"),
    )),
    Edit("cross_entropy", "target loaded last", "loads", (
        ("    target = tl.load(target_ptr + row)\n", ""),
        ("    chosen =", "    target = tl.load(target_ptr + row)\n    chosen ="),
    )),
    Edit("cross_entropy", "evicted first", "hint", ((CE_LOAD, CE_LOAD[:-1] + ', eviction_policy="evict_first")'),)),
    Edit("cross_entropy", "logits written back", "input", (
        ("        larger = tl.maximum", "        tl.store(logits_ptr + columns, x.to(tl.bfloat16), mask=columns < vocabulary)\n        larger = tl.maximum"),
    )),
    Edit("cross_entropy", "in fp64", "dtype", (
        (".to(tl.float32)\n        larger", ".to(tl.float64)\n        larger"),
        ('largest = -float("inf")', 'largest = tl.full([], -float("inf"), tl.float64)'),
        ("total = 0.0", "total = tl.full([], 0.0, tl.float64)"),
    ), planted="double precision"),
    Edit("cross_entropy", "maxnreg=24", "maxnreg", (("BLOCK=4096, num_warps=8", "BLOCK=8192, num_warps=8, maxnreg=32"),), planted="spills"),
    Edit("cross_entropy", "BLOCK 4096 -> 65536", "tile", (("BLOCK=4096", "BLOCK=65536"),), planted="spills"),
    Edit("cross_entropy", "vocabulary rotated", "loads", (
        ("columns = start + tl.arange(0, BLOCK)", "columns = start + (tl.arange(0, BLOCK) * 17 + row) % BLOCK"),
    ), planted="loads of 16 bits instead of 128"),
)  # fmt: skip

QUANTIZE = (
    Edit("quantize", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("quantize", "num_warps 4 -> 16", "warps", (("num_warps=4", "num_warps=16"),)),
    Edit("quantize", "num_stages 2 -> 4", "stages", (("num_stages=2", "num_stages=4"),)),
    Edit("quantize", "multiplied by the inverse", "order", (("x / scale + 0.5", "x * (1 / scale) + 0.5"),)),
    Edit("quantize", "clamped", "order", (
        ("tl.floor(x / scale + 0.5)", "tl.minimum(tl.maximum(tl.floor(x / scale + 0.5), -127.0), 127.0)"),
    )),
    Edit("quantize", "rounded by libdevice", "helper", (
        ("tl.floor(x / scale + 0.5)", "libdevice.rint(x / scale)"),
        ("import triton.language as tl\n", "import triton.language as tl\nfrom triton.language.extra import libdevice\n"),
    ), tolerance=0.02),
    Edit("quantize", "maximum in bf16", "dtype", (
        ("other=0.0).to(tl.float32)\n", "other=0.0)\n"),
        ("tl.max(tl.abs(x), axis=0)", "tl.max(tl.abs(x), axis=0).to(tl.float32)"),
        ("tl.floor(x / scale", "tl.floor(x.to(tl.float32) / scale"),
    )),
    Edit("quantize", "read twice", "loads", (
        ("    quantized =", "    x = tl.load(x_ptr + row * cols + columns, mask=inside, other=0.0).to(tl.float32)\n    quantized ="),
    )),
    Edit("quantize", "correctly rounded division", "recompute", (
        ("tl.floor(x / scale + 0.5)", "tl.floor(tl.div_rn(x, scale + tl.zeros_like(x)) + 0.5)"),
    )),
    Edit("quantize", "scale in fp64", "dtype", (("tl.floor(x / scale + 0.5)", "tl.floor(x.to(tl.float64) / scale + 0.5)"),),
         planted="double precision"),
    Edit("quantize", "output rows padded by one", "alignment", (
        ("torch.empty(rows, cols, device=x.device, dtype=torch.int8)", "torch.empty(rows, cols + 1, device=x.device, dtype=torch.int8)[:, :cols]"),
    ), planted="stores of 8 bits instead of 128"),
    Edit("quantize", "masks removed", "mask", ((", mask=inside, other=0.0", ""), (", mask=inside", ""))),
)  # fmt: skip

CUMULATIVE_SUM = (
    Edit("cumulative_sum", "BLOCK 2048 -> 4096", "tile", (('"BLOCK": 2048', '"BLOCK": 4096'),)),
    Edit("cumulative_sum", "BLOCK 2048 -> 1024", "tile", (('"BLOCK": 2048', '"BLOCK": 1024'),)),
    Edit("cumulative_sum", "BLOCK 2048 -> 8192, 8 warps", "tile", (('"BLOCK": 2048}, num_warps=4', '"BLOCK": 8192}, num_warps=8'),)),
    Edit("cumulative_sum", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("cumulative_sum", "num_warps 4 -> 2", "warps", (("num_warps=4", "num_warps=2"),)),
    Edit("cumulative_sum", "associative scan", "helper", (
        ("tl.cumsum(x, axis=0)", "tl.associative_scan(x, 0, plus)"),
        ("@triton.autotune", "@triton.jit\ndef plus(x, y):\n    return x + y\n\n\n@triton.autotune"),
    )),
    Edit("cumulative_sum", "unrolled twice", "unroll", (
        ("in range(0, cols, BLOCK)", "in tl.range(0, cols, BLOCK, loop_unroll_factor=2)"),
    )),
    Edit("cumulative_sum", "masks removed", "mask", ((", mask=inside, other=0.0", ""), (", mask=inside", ""))),
    Edit("cumulative_sum", "in fp64", "dtype", (
        ("other=0.0)", "other=0.0).to(tl.float64)"), ("carry = 0.0", "carry = tl.full([], 0.0, tl.float64)"),
        ("tl.cumsum(x, axis=0) + carry,", "(tl.cumsum(x, axis=0) + carry).to(tl.float32),"),
    ), planted="double precision"),
    Edit("cumulative_sum", "BLOCK 2048 -> 8192, 1 warp", "tile", (('"BLOCK": 2048}, num_warps=4', '"BLOCK": 8192}, num_warps=1'),),
         planted="spills"),
)  # fmt: skip

COLUMN_SUM = (
    Edit("column_sum", "ROWS 512 -> 256", "grid", (("512", "256"),)),
    Edit("column_sum", "ROWS 512 -> 1024", "grid", (("512", "1024"),)),
    Edit("column_sum", "TILE 16 -> 32", "tile", (("TILE=16", "TILE=32"),)),
    Edit("column_sum", "TILE 16 -> 8", "tile", (("TILE=16", "TILE=8"),)),
    Edit("column_sum", "COLUMNS 128 -> 256", "tile", (("128", "256"),)),
    Edit("column_sum", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("column_sum", "unrolled", "unroll", (("in range(0, ROWS, TILE)", "in tl.range(0, ROWS, TILE, loop_unroll_factor=4)"),)),
    Edit("column_sum", "fully unrolled", "unroll", (("in range(0, ROWS, TILE)", "in tl.static_range(0, ROWS, TILE)"),)),
    Edit("column_sum", "sum of each tile at once", "order", (
        ("total = tl.zeros([TILE, COLUMNS], tl.float32)", "total = tl.zeros([COLUMNS], tl.float32)"),
        ("        total += tl.load(x_ptr + row[:, None] * cols + columns[None, :], mask=inside, other=0.0).to(tl.float32)",
         "        total += tl.sum(tl.load(x_ptr + row[:, None] * cols + columns[None, :], mask=inside, other=0.0).to(tl.float32), axis=0)"),
        ("columns, tl.sum(total, axis=0),", "columns, total,"),
    )),
    Edit("column_sum", "in fp64", "dtype", (("tl.zeros([TILE, COLUMNS], tl.float32)", "tl.zeros([TILE, COLUMNS], tl.float64)"),
         ("tl.sum(total, axis=0)", "tl.sum(total, axis=0).to(tl.float32)")), planted="double precision"),
    Edit("column_sum", "COLUMNS 128 -> 8192", "tile", (("TILE=16, COLUMNS=128", "TILE=16, COLUMNS=4096"), ("(cols, 128)", "(cols, 4096)")),
         planted="spills"),
)  # fmt: skip

ROWS = (
    *SOFTMAX, *RMS_NORM, *LAYER_NORM, *LAYER_NORM_BACKWARD, *CROSS_ENTROPY, *QUANTIZE, *CUMULATIVE_SUM, *COLUMN_SUM,
)  # fmt: skip
