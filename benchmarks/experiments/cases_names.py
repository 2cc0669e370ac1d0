"""Names of the cases, for processes that don't bring in torch; tests compare them with cases.py."""

ADDRESSES = (
    "decode", "cublas_gemm", "cublas_gemm_split", "grouped_by_pointers", "foreach_add", "attention",
    "grouped_mm", "nvrtc",
)  # fmt: skip
TMA = ("cuda_tma", "cute_tma")
LIGER = "RMSNorm LayerNorm SiLUMul GELUMul Softmax CrossEntropy KLDivLoss JSD TVDLoss GroupNorm DyT Rope"
CONTENTS = tuple(f"liger_{name}" for name in LIGER.split())
PLANTED = ("planted_cache", "planted_branch")
TIMED = ("timed_5", "timed_10", "timed_50")
GROUPS = {"addresses": ADDRESSES, "tma": TMA, "contents": CONTENTS + PLANTED, "timed": TIMED}
"""Cases that are recorded in one process, one after the other."""
