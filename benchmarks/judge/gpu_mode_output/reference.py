"""A task in the layout of GPU MODE's reference-kernels that hands out memory for results, which its reference doesn't
read or write; its results are float64, that memory is float32."""

import torch
from task import input_t, output_t


def generate_input(size: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    x = torch.randn(size, device="cuda", dtype=torch.float32, generator=gen).contiguous()
    return x, torch.empty(size, device="cuda", dtype=torch.float32)


def ref_kernel(data: input_t) -> output_t:
    x, output = data
    output = torch.cumsum(x.to(torch.float64), dim=0)
    return output


def check_implementation(data: input_t, output: output_t) -> str:
    close = torch.allclose(output.double(), ref_kernel(data), rtol=1e-3, atol=1e-3)
    return "" if close else "mismatch"
