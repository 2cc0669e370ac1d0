"""A 3x3 convolution of images with channels last as a product, with bias and ReLU: configs under triton.autotune."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_warps=8, num_stages=4),
        triton.Config({"BM": 64, "BN": 128, "BK": 64}, num_warps=4, num_stages=3),
        triton.Config({"BM": 64, "BN": 64, "BK": 64}, num_warps=4, num_stages=3),
    ],
    key=["pixels", "channels", "filters"],
)
@triton.jit
def image_kernel(
    x_ptr, w_ptr, bias_ptr, out_ptr, pixels, side, channels, filters,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0) * BM + tl.arange(0, BM)
    filter = tl.program_id(1) * BN + tl.arange(0, BN)
    channel = tl.arange(0, BK)
    image, place = pixel // (side * side), pixel % (side * side)
    corner = (image * (side + 2) + place // side) * (side + 2) + place % side
    inside = (pixel < pixels)[:, None]
    total = tl.zeros([BM, BN], tl.float32)
    for start in range(0, 9 * channels, BK):
        tap, first = start // channels, start % channels
        at = corner + tap // 3 * (side + 2) + tap % 3
        x = tl.load(x_ptr + at[:, None] * channels + (first + channel)[None, :], mask=inside, other=0.0)
        w = tl.load(w_ptr + (start + channel)[:, None] * filters + filter[None, :])
        total = tl.dot(x, w, total)
    total = tl.maximum(total + tl.load(bias_ptr + filter)[None, :], 0.0)
    tl.store(out_ptr + pixel[:, None] * filters + filter[None, :], total.to(tl.float16), mask=inside)


def run(x, w, bias):
    images, padded, _, channels = x.shape
    side, filters = padded - 2, w.shape[1]
    pixels = images * side * side
    out = torch.empty(images, side, side, filters, device=x.device, dtype=x.dtype)

    def grid(meta):
        return triton.cdiv(pixels, meta["BM"]), triton.cdiv(filters, meta["BN"])

    image_kernel[grid](x, w, bias, out, pixels, side, channels, filters)
    return out


def inputs(device):
    x = torch.randn(32, 58, 58, 256, device=device, dtype=torch.float16)
    w = torch.randn(9 * 256, 256, device=device, dtype=torch.float16) * 0.02
    return x, w, torch.randn(256, device=device)


def reference(x, w, bias):
    kernel = w.view(3, 3, 256, 256).permute(3, 2, 0, 1)
    out = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), kernel, bias.half())
    return out.relu().permute(0, 2, 3, 1)
