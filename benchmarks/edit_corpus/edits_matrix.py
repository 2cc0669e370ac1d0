"""Edits of kernels that multiply matrices."""

# ruff: noqa: E501 - texts of kernels stay on their lines

from benchmarks.edit_corpus.edit import Edit

CONFIG = '{"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}, num_stages=3, num_warps=4'


def config(text: str) -> tuple[tuple[str, str], ...]:
    """The product's config, written otherwise."""
    return ((CONFIG, text),)


MATMUL = (
    Edit("matmul", "BM 128 -> 64", "tile", (('"BM": 128', '"BM": 64'),)),
    Edit("matmul", "BN 128 -> 64", "tile", (('"BN": 128', '"BN": 64'),)),
    Edit("matmul", "BN 128 -> 256, 8 warps", "tile", (*config(CONFIG.replace('"BN": 128', '"BN": 256').replace("warps=4", "warps=8")),)),
    Edit("matmul", "BN 128 -> 256, 4 warps", "tile", (('"BN": 128', '"BN": 256'),), planted="spills"),
    Edit("matmul", "BK 64 -> 32", "tile", (('"BK": 64', '"BK": 32'),)),
    Edit("matmul", "BK 64 -> 128", "tile", (('"BK": 64', '"BK": 128'),)),
    Edit("matmul", "num_stages 3 -> 4", "stages", (("num_stages=3", "num_stages=4"),)),
    Edit("matmul", "num_stages 3 -> 2", "stages", (("num_stages=3", "num_stages=2"),)),
    Edit("matmul", "num_stages 3 -> 8", "stages", (("num_stages=3", "num_stages=8"),), planted="doesn't fit"),
    Edit("matmul", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("matmul", "GROUP 8 -> 1", "order", (('"GROUP": 8', '"GROUP": 1'),)),
    Edit("matmul", "GROUP 8 -> 4", "order", (('"GROUP": 8', '"GROUP": 4'),)),
    Edit("matmul", "inner dimension masked", "mask", (
        ("tl.load(a_ptrs)", "tl.load(a_ptrs, mask=inner[None, :] < k - step * BK, other=0.0)"),
        ("tl.load(b_ptrs)", "tl.load(b_ptrs, mask=inner[:, None] < k - step * BK, other=0.0)"),
    )),
    Edit("matmul", "rows wrapped around", "mask", (
        ("tile_m * BM + tl.arange(0, BM)\n", "(tile_m * BM + tl.arange(0, BM)) % m\n"),
        ("tile_n * BN + tl.arange(0, BN)\n", "(tile_n * BN + tl.arange(0, BN)) % n\n"),
        ("    inside = (rows[:, None] < m) & (cols[None, :] < n)\n", ""), (", mask=inside", ""),
    )),
    Edit("matmul", "bias added", "input", (
        ("    c = total.to(tl.float16)\n", "    total += tl.load(bias_ptr + cols, mask=cols < n, other=0.0)[None, :]\n    c = total.to(tl.float16)\n"),
    )),
    Edit("matmul", "accumulator added outside", "order", (("total = tl.dot(a, b, total)", "total += tl.dot(a, b)"),)),
    Edit("matmul", "accumulator in fp16", "dtype", (
        ("tl.zeros((BM, BN), tl.float32)", "tl.zeros((BM, BN), tl.float16)"),
        ("tl.dot(a, b, total)", "tl.dot(a, b, total, out_dtype=tl.float16)"),
    ), tolerance=0.05),
    Edit("matmul", "unrolled twice", "unroll", (
        ("in range(0, tl.cdiv(k, BK))", "in tl.range(0, tl.cdiv(k, BK), loop_unroll_factor=2)"),
    )),
    Edit("matmul", "pointers from the step", "order", (
        ("tl.load(a_ptrs)", "tl.load(a_ptrs + step * BK)"), ("tl.load(b_ptrs)", "tl.load(b_ptrs + step * BK * b_stride)"),
        ("        a_ptrs += BK\n        b_ptrs += BK * b_stride\n", ""),
    )),
    Edit("matmul", "operands through fp32", "dtype", (("tl.dot(a, b, total)", "tl.dot(a.to(tl.float32), b.to(tl.float32), total)"),)),
    Edit("matmul", "operands in fp32, ieee", "precision", (
        ("tl.dot(a, b, total)", 'tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")'),
    ), planted="tensor cores lost"),
    Edit("matmul", "sum of products", "precision", (
        ("tl.dot(a, b, total)", "total + tl.sum(a[:, :, None].to(tl.float32) * b[None, :, :].to(tl.float32), 1)"),
        ('"BM": 128, "BN": 128, "BK": 64', '"BM": 32, "BN": 32, "BK": 16'),
    ), planted="tensor cores lost", tolerance=0.05),
    Edit("matmul", "maxnreg=96", "maxnreg", (("num_warps=4", "num_warps=4, maxnreg=96"),), planted="spills"),
    Edit("matmul", "b given by columns", "loads", (
        ("inner[:, None] * b_stride + cols[None, :]", "inner[:, None] + cols[None, :] * b_stride"),
        ("b_ptrs += BK * b_stride", "b_ptrs += BK"),
        ("return a, b, torch", "return a, b.T.contiguous(), torch"),
    )),
    Edit("matmul", "column stride not specialized", "alignment", (
        ("@triton.jit\n", '@triton.jit(do_not_specialize=["b_column"])\n'),
        ("a_stride, b_stride, c_stride,\n", "a_stride, b_stride, c_stride, b_column,\n"),
        ("b_stride + cols[None, :]", "b_stride + cols[None, :] * b_column"),
        ("c.stride(0)\n", "c.stride(0), b.stride(1)\n"),
    ), planted="loads of 16 bits instead of 128"),
    Edit("matmul", "c one element off", "alignment", (
        ("c = torch.empty(m, n, device=a.device, dtype=torch.float16)",
         "c = torch.empty(m * n + 1, device=a.device, dtype=torch.float16)[1:].view(m, n)"),
    )),
    Edit("matmul", "two launches of half the rows", "launches", (
        ("    matmul_kernel[lambda meta: (triton.cdiv(m, meta[\"BM\"]) * triton.cdiv(n, meta[\"BN\"]),)](\n        a, b, c, bias, m, n, k,",
         "    m //= 2\n    for half in (slice(0, m), slice(m, 2 * m)):\n"
         "      matmul_kernel[lambda meta: (triton.cdiv(m, meta[\"BM\"]) * triton.cdiv(n, meta[\"BN\"]),)](\n        a[half], b, c[half], bias, m, n, k,"),
    )),
)  # fmt: skip

TMA_LOOP = """        a = a_desc.load([tile_m * BM, start])
        b = b_desc.load([start, tile_n * BN])
"""
POINTER_A = (
    "        a = tl.load(a_ptr + (tile_m * BM + tl.arange(0, BM))[:, None] * k + (start + tl.arange(0, BK))[None, :])\n"
)
POINTER_B = (
    "        b = tl.load(b_ptr + (start + tl.arange(0, BK))[:, None] * n + (tile_n * BN + tl.arange(0, BN))[None, :])\n"
)

MATMUL_TMA = (
    Edit("matmul_tma", "BK 64 -> 32", "tile", (("BM, BN, BK = 128, 128, 64", "BM, BN, BK = 128, 128, 32"),)),
    Edit("matmul_tma", "BM 128 -> 64", "tile", (("BM, BN, BK = 128, 128, 64", "BM, BN, BK = 64, 128, 64"),)),
    Edit("matmul_tma", "BN 128 -> 256, 8 warps", "tile", (("BM, BN, BK = 128, 128, 64", "BM, BN, BK = 128, 256, 64"), ("num_warps=4", "num_warps=8"))),
    Edit("matmul_tma", "BN 128 -> 256", "tile", (("BM, BN, BK = 128, 128, 64", "BM, BN, BK = 128, 256, 64"),), planted="spills"),
    Edit("matmul_tma", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("matmul_tma", "num_stages 3 -> 4", "stages", (("num_stages=3", "num_stages=4"),)),
    Edit("matmul_tma", "num_stages 3 -> 2", "stages", (("num_stages=3", "num_stages=2"),)),
    Edit("matmul_tma", "num_stages 3 -> 1", "stages", (("num_stages=3", "num_stages=1"),)),
    Edit("matmul_tma", "b through pointers", "loads", ((TMA_LOOP, TMA_LOOP.splitlines(True)[0] + POINTER_B),),
         planted="TMA lost for one operand"),
    Edit("matmul_tma", "both through pointers", "loads", ((TMA_LOOP, POINTER_A + POINTER_B),), planted="TMA lost"),
    Edit("matmul_tma", "c through pointers", "loads", (
        ("    c_desc.store([tile_m * BM, tile_n * BN], total.to(tl.float16))",
         "    rows = (tile_m * BM + tl.arange(0, BM))[:, None]\n    cols = (tile_n * BN + tl.arange(0, BN))[None, :]\n"
         "    tl.store(c_ptr + rows * n + cols, total.to(tl.float16))"),
    )),
    Edit("matmul_tma", "grouped order", "order", (
        ("    tile_m = tl.program_id(0)\n    tile_n = tl.program_id(1)\n",
         "    tile_m, tile_n = tl.swizzle2d(tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), 8)\n"),
    )),
    Edit("matmul_tma", "axes of the grid exchanged", "order", (
        ("    tile_m = tl.program_id(0)\n    tile_n = tl.program_id(1)\n", "    tile_m = tl.program_id(1)\n    tile_n = tl.program_id(0)\n"),
        ("grid = (triton.cdiv(m, BM), triton.cdiv(n, BN))", "grid = (triton.cdiv(n, BN), triton.cdiv(m, BM))"),
    )),
    Edit("matmul_tma", "unrolled twice", "unroll", (("in range(0, k, BK)", "in tl.range(0, k, BK, loop_unroll_factor=2)"),)),
    Edit("matmul_tma", "a matrix added", "input", (
        ("a_ptr, b_ptr, c_ptr, m,", "a_ptr, b_ptr, c_ptr, z_desc, m,"), ("a, b, c, m, n, k,", "a, b, c, z_desc, m, n, k,"),
        ("    c_desc.store", "    total += z_desc.load([tile_m * BM, tile_n * BN]).to(tl.float32)\n    c_desc.store"),
        ("    c_desc = ", "    z_desc = TensorDescriptor.from_tensor(zeros, [BM, BN])\n    c_desc = "),
    )),
    Edit("matmul_tma", "stored in halves", "loads", (
        ("c_desc = TensorDescriptor.from_tensor(c, [BM, BN])", "c_desc = TensorDescriptor.from_tensor(c, [BM, BN // 2])"),
        ("    c_desc.store([tile_m * BM, tile_n * BN], total.to(tl.float16))",
         "    left, right = total.reshape(BM, 2, BN // 2).permute(0, 2, 1).split()\n"
         "    c_desc.store([tile_m * BM, tile_n * BN], left.to(tl.float16))\n"
         "    c_desc.store([tile_m * BM, tile_n * BN + BN // 2], right.to(tl.float16))"),
    )),
    Edit("matmul_tma", "persistent", "grid", (
        ("    tile_m = tl.program_id(0)\n    tile_n = tl.program_id(1)\n    total =",
         "    for tile in range(tl.program_id(0), tl.cdiv(m, BM) * tl.cdiv(n, BN), tl.num_programs(0)):\n"
         "      tile_m = tile % tl.cdiv(m, BM)\n      tile_n = tile // tl.cdiv(m, BM)\n      total ="),
        ("    for start", "      for start"), ("    c_desc.store", "      c_desc.store"),
        ("grid = (triton.cdiv(m, BM), triton.cdiv(n, BN))", "grid = (264,)"),
    )),
    Edit("matmul_tma", "num_stages 3 -> 8", "stages", (("num_stages=3", "num_stages=8"),), planted="doesn't fit"),
)  # fmt: skip

PERSISTENT = (
    Edit("matmul_persistent", "programs 132 -> 264", "grid", (("programs = 132", "programs = 264"),)),
    Edit("matmul_persistent", "a program a tile", "grid", (("programs = 132", "programs = triton.cdiv(m, 128) * triton.cdiv(n, 128)"),)),
    Edit("matmul_persistent", "loops flattened", "unroll", (("tl.num_programs(0)):", "tl.num_programs(0), flatten=True):"),)),
    Edit("matmul_persistent", "BK 64 -> 32, 4 stages", "tile", (("BK=64, num_warps=8, num_stages=3", "BK=32, num_warps=8, num_stages=4"),)),
    Edit("matmul_persistent", "BN 128 -> 256", "tile", (("BN=128", "BN=256"),)),
    Edit("matmul_persistent", "BM 128 -> 64, 4 warps", "tile", (("BM=128, BN=128, BK=64, num_warps=8", "BM=64, BN=128, BK=64, num_warps=4"),)),
    Edit("matmul_persistent", "num_warps 8 -> 4", "warps", (("num_warps=8", "num_warps=4"),)),
    Edit("matmul_persistent", "columns first", "order", (
        ("tile // tiles_n * BM", "tile % tl.cdiv(m, BM) * BM"), ("tile % tiles_n * BN", "tile // tl.cdiv(m, BM) * BN"),
    )),
    Edit("matmul_persistent", "BN 128 -> 512", "tile", (("BN=128", "BN=512"), ("BK=64", "BK=32")), planted="spills"),
    Edit("matmul_persistent", "one stage", "stages", (("num_stages=3", "num_stages=1"),)),
)  # fmt: skip

TF32 = (
    Edit("matmul_tf32", "tile 64 -> 128", "tile", (("64", "128"),)),
    Edit("matmul_tf32", "BK 32 -> 64", "tile", (("BK=32", "BK=64"),)),
    Edit("matmul_tf32", "BK 32 -> 16", "tile", (("BK=32", "BK=16"),)),
    Edit("matmul_tf32", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("matmul_tf32", "num_stages 3 -> 4", "stages", (("num_stages=3", "num_stages=4"),)),
    Edit("matmul_tf32", "masks removed", "mask", (
        (", mask=inner[None, :] < k, other=0.0", ""), (", mask=inner[:, None] < k, other=0.0", ""),
    )),
    Edit("matmul_tf32", "in bf16", "dtype", (("tl.dot(a, b,", "tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16),"),), tolerance=0.02),
    Edit("matmul_tf32", "tf32 three times", "precision", (("allow_tf32=True", 'input_precision="tf32x3"'),)),
    Edit("matmul_tf32", "tf32 forbidden", "precision", (("allow_tf32=True", "allow_tf32=False"),), planted="tensor cores lost"),
    Edit("matmul_tf32", "ieee", "precision", (("allow_tf32=True", 'input_precision="ieee"'),), planted="tensor cores lost"),
    Edit("matmul_tf32", "in fp64", "dtype", (
        ("tl.dot(a, b, allow_tf32=True)", "tl.sum(a[:, :, None].to(tl.float64) * b[None, :, :], 1).to(tl.float32)"),
        ("64", "16"), ("float16", "float64"), ("BK=32", "BK=8"),
    ), planted="tensor cores lost, double precision"),
    Edit("matmul_tf32", "precision asked by name", "helper", (("allow_tf32=True", 'input_precision="tf32"'),)),
)  # fmt: skip

FP8 = (
    Edit("matmul_fp8", "BK 128 -> 64", "tile", (('"BK": 128', '"BK": 64'),)),
    Edit("matmul_fp8", "BN 128 -> 256, 8 warps", "tile", (
        ('"BN": 128, "BK": 128}, num_stages=3, num_warps=4', '"BN": 256, "BK": 128}, num_stages=3, num_warps=8'),
    )),
    Edit("matmul_fp8", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("matmul_fp8", "num_stages 3 -> 4", "stages", (("num_stages=3", "num_stages=4"),)),
    Edit("matmul_fp8", "products in fp16", "dtype", (("tl.dot(a, b, total)", "tl.dot(a.to(tl.float16), b.to(tl.float16), total)"),)),
    Edit("matmul_fp8", "exact accumulation", "precision", (("tl.dot(a, b, total)", "tl.dot(a, b, total, max_num_imprecise_acc=128)"),)),
    Edit("matmul_fp8", "scales in the loop", "recompute", (
        ("total = tl.dot(a, b, total)", "total += tl.dot(a, b) * tl.load(a_scale_ptr + rows)[:, None] * tl.load(b_scale_ptr + cols)[None, :]"),
        ("    total *= tl.load(a_scale_ptr + rows)[:, None]\n    total *= tl.load(b_scale_ptr + cols)[None, :]\n", ""),
    )),
    Edit("matmul_fp8", "products in fp32, ieee", "precision", (
        ("tl.dot(a, b, total)", 'tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")'),
        ('"BM": 128, "BN": 128, "BK": 128', '"BM": 64, "BN": 64, "BK": 64'),
    ), planted="tensor cores lost"),
)  # fmt: skip

SPLIT_K = (
    Edit("split_k", "SPLIT 4 -> 8", "grid", (("SPLIT = 4", "SPLIT = 8"),)),
    Edit("split_k", "SPLIT 4 -> 2", "grid", (("SPLIT = 4", "SPLIT = 2"),)),
    Edit("split_k", "BN 64 -> 32", "tile", (("(n, 64)", "(n, 32)"), ("BN=64", "BN=32"))),
    Edit("split_k", "BN 64 -> 128", "tile", (("(n, 64)", "(n, 128)"), ("BN=64", "BN=128"))),
    Edit("split_k", "BK 128 -> 64", "tile", (("BK=128", "BK=64"),)),
    Edit("split_k", "num_stages 4 -> 3", "stages", (("num_stages=4", "num_stages=3"),)),
    Edit("split_k", "num_stages 4 -> 6", "stages", (("num_stages=4", "num_stages=6"),)),
    Edit("split_k", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("split_k", "rows not masked", "mask", ((", mask=rows[:, None] < m, other=0.0", ""),)),
    Edit("split_k", "parts, then a sum", "launches", (
        ("tl.atomic_add(c_ptr + rows", "tl.store(c_ptr + tl.program_id(1) * m * n + rows"),
        ("c = torch.zeros(m, n, device=a.device)", "c = torch.empty(SPLIT, m, n, device=a.device)"),
        ("    return c\n\n\ndef inputs", "    return c.sum(0)\n\n\ndef inputs"),
    )),
    Edit("split_k", "parts, then a kernel of sums", "launches", (
        ("tl.atomic_add(c_ptr + rows", "tl.store(c_ptr + tl.program_id(1) * m * n + rows"),
        ("c = torch.zeros(m, n, device=a.device)", "c = torch.empty(SPLIT, m, n, device=a.device)"),
        ("    return c\n\n\ndef inputs",
         "    out = torch.empty(m, n, device=a.device)\n    sum_kernel[(triton.cdiv(m * n, 1024),)](c, out, m * n, SPLIT=SPLIT, BLOCK=1024)\n"
         "    return out\n\n\ndef inputs"),
        ("def run(", """@triton.jit
def sum_kernel(parts_ptr, out_ptr, n, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(parts_ptr + part * n + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, total, mask=offsets < n)


def run("""),
    )),
    Edit("split_k", "inner dimension in one run each", "order", (
        ("inner = tl.program_id(1) * BK + tl.arange(0, BK)", "inner = tl.program_id(1) * (k // SPLIT) + tl.arange(0, BK)"),
        ("range(0, k, BK * SPLIT)", "range(0, k // SPLIT, BK)"), ("+= BK * SPLIT * n", "+= BK * n"), ("+= BK * SPLIT\n", "+= BK\n"),
    )),
    Edit("split_k", "BM 16 -> 64", "tile", (("BM=16", "BM=64"),)),
    Edit("split_k", "in fp32, ieee", "precision", (
        ("tl.dot(a, b, total)", 'tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")'),
    ), planted="tensor cores lost"),
    Edit("split_k", "a sum of products", "precision", (
        ("tl.dot(a, b, total)", "total + tl.sum(a[:, :, None].to(tl.float32) * b[None, :, :].to(tl.float32), 1)"),
        ("BK=128", "BK=16"),
    ), planted="tensor cores lost"),
)  # fmt: skip

ATTENTION = (
    Edit("attention", "BN 64 -> 128", "tile", (("BN=64", "BN=128"),)),
    Edit("attention", "BN 64 -> 32", "tile", (("BN=64", "BN=32"),)),
    Edit("attention", "BM 128 -> 64", "tile", (("(length, 128)", "(length, 64)"), ("BM=128", "BM=64"))),
    Edit("attention", "num_warps 4 -> 8", "warps", (("num_warps=4", "num_warps=8"),)),
    Edit("attention", "num_stages 3 -> 2", "stages", (("num_stages=3", "num_stages=2"),)),
    Edit("attention", "num_stages 3 -> 4", "stages", (("num_stages=3", "num_stages=4"),)),
    Edit("attention", "num_stages 3 -> 1", "stages", (("num_stages=3", "num_stages=1"),)),
    Edit("attention", "powers of two", "order", (
        ("tl.exp(", "tl.exp2("), ("head**-0.5", "head**-0.5 * 1.4426950408889634"),
    )),
    Edit("attention", "queries scaled once", "order", (
        ("dims[None, :])\n    total", "dims[None, :])\n    q = (q * scale).to(tl.bfloat16)\n    total"), ("tl.dot(q, k) * scale", "tl.dot(q, k)"),
    ), tolerance=0.03),
    Edit("attention", "both tiles loaded first", "loads", (
        ("        v = tl.load(v_ptr + base + keys[:, None] * HEAD + dims[None, :])\n", ""),
        ("        scores =", "        v = tl.load(v_ptr + base + keys[:, None] * HEAD + dims[None, :])\n        scores ="),
    )),
    Edit("attention", "keys backwards", "order", (("keys = first + tl.arange(0, BN)", "keys = length - BN - first + tl.arange(0, BN)"),)),
    Edit("attention", "keys masked", "mask", (
        ("        larger =", '        scores = tl.where(keys[None, :] < length, scores, -float("inf"))\n        larger ='),
        ("dims[:, None])", "dims[:, None], mask=keys[None, :] < length, other=0.0)"),
    )),
    Edit("attention", "logarithms stored", "input", (
        ("out_ptr, length, scale,", "out_ptr, lse_ptr, length, scale,"), ("(q, k, v, out, length,", "(q, k, v, out, lse, length,"),
        ("    out = total /", "    tl.store(lse_ptr + tl.program_id(1) * length + rows, largest + tl.log(weight))\n    out = total /"),
    )),
    Edit("attention", "axes of the grid exchanged", "order", (
        ("tl.program_id(1).to", "tl.program_id(9).to"), ("tl.program_id(0) * BM", "tl.program_id(1) * BM"), ("program_id(9)", "program_id(0)"),
        ("grid = (triton.cdiv(length, 128), heads)", "grid = (heads, triton.cdiv(length, 128))"),
    )),
    Edit("attention", "unrolled twice", "unroll", (("in range(0, length, BN)", "in tl.range(0, length, BN, loop_unroll_factor=2)"),)),
    Edit("attention", "helper for the softmax", "helper", (
        ("        larger = tl.maximum(largest, tl.max(scores, axis=1))\n        p = tl.exp(scores - larger[:, None])\n        shrink = tl.exp(largest - larger)\n",
         "        p, shrink, larger = weights(scores, largest)\n"),
        ("@triton.jit\n", "@triton.jit\ndef weights(scores, largest):\n    larger = tl.maximum(largest, tl.max(scores, axis=1))\n"
         "    return tl.exp(scores - larger[:, None]), tl.exp(largest - larger), larger\n\n\n@triton.jit\n"),
    )),
    Edit("attention", "maxnreg=128", "maxnreg", (("num_warps=4", "num_warps=4, maxnreg=128"),), planted="spills"),
    Edit("attention", "weights in fp32, ieee", "precision", (
        ("tl.dot(p.to(tl.bfloat16), v, total)", 'tl.dot(p, v.to(tl.float32), total, input_precision="ieee")'),
    ), planted="tensor cores lost for one product"),
    Edit("attention", "weights in tf32", "precision", (("tl.dot(p.to(tl.bfloat16), v, total)", "tl.dot(p, v.to(tl.float32), total)"),)),
    Edit("attention", "exponential in fp64", "dtype", (
        ("p = tl.exp(scores - larger[:, None])", "p = tl.exp((scores - larger[:, None]).to(tl.float64)).to(tl.float32)"),
    ), planted="double precision"),
    Edit("attention", "BM 128 -> 256", "tile", (("(length, 128)", "(length, 256)"), ("BM=128", "BM=256")), planted="spills"),
    Edit("attention", "num_stages 3 -> 9", "stages", (("num_stages=3", "num_stages=9"),), planted="doesn't fit"),
)  # fmt: skip

MATRIX = (*MATMUL, *MATMUL_TMA, *PERSISTENT, *TF32, *FP8, *SPLIT_K, *ATTENTION)
