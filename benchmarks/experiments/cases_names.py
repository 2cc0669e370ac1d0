"""Names of the cases, for processes that don't bring in torch; tests compare them with cases.py."""

Q4 = (
    "cublas_gemm", "cublas_gemm_split", "cute_tma", "cuda_tma", "grouped_by_pointers", "grouped_mm", "foreach_add",
    "decode", "attention", "nvrtc",
)  # fmt: skip
LIGER = "RMSNorm LayerNorm SiLUMul GELUMul Softmax CrossEntropy KLDivLoss JSD TVDLoss GroupNorm DyT Rope"
CONTENTS = tuple(f"liger_{name}" for name in LIGER.split())
PLANTED = ("planted_cache", "planted_branch")
TIMED = ("timed_5", "timed_10", "timed_50")
