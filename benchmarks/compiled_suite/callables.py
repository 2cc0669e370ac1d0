"""Twenty functions for ``torch.compile``, planted regressions of some, and edits that change nothing.

A case is made by a function without arguments: it gives the compiled callable and its arguments, all on ``cuda``.
``EDITS`` has, by name, the case that an edit replaces and what makes it instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention

Made = tuple[Callable[..., Any], tuple[Any, ...]]
Maker = Callable[[], Made]

CHAIN = 48
"""Values that the long chain keeps at once when its order is planted: more than a thread has registers for."""


def data(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=grad)


def compiled(function: Callable[..., Any], *args: Any, **options: Any) -> Made:
    return torch.compile(function, **options), args


def trained(model: Callable[..., Any], *args: Any, **options: Any) -> Made:
    """Forward and backward of a compiled model."""
    run = torch.compile(model, **options)

    def step(*inputs: Any) -> Any:
        run(*inputs).sum().backward()

    return step, args


def gelu_mul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.gelu(x) * y


def broadcast(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x * scale + shift)


def row_sum(x: torch.Tensor) -> torch.Tensor:
    return (torch.sin(x) * 2).sum(-1)


def column_sum(x: torch.Tensor) -> torch.Tensor:
    return (x * x).sum(0)


def mean_and_variance(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    variance, mean = torch.var_mean(x, -1)
    return mean, torch.rsqrt(variance + 1e-5)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 0.125, -1)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


def capped_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention with soft-capped scores (tanh), for which torch's pattern matcher has no library call: the plain form
    becomes ``scaled_dot_product_attention`` on a GPU, which launches no Triton kernel."""
    return torch.softmax(torch.tanh(q @ k.transpose(-1, -2) * 0.125 / 30) * 30, -1) @ v


def mlp(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return x + F.gelu(x @ up) @ down


def chain(x: torch.Tensor) -> torch.Tensor:
    """A long sum, each value added as it comes."""
    total = x
    for i in range(CHAIN):
        total = total + torch.exp(x * (i + 1))
    return total


def matmul_gelu(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.gelu(x @ w)


class Block(torch.nn.Module):
    """A transformer's layer: attention and a feed-forward part, each after a norm."""

    def __init__(self, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.between(self.norm2(x))

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


def two_blocks() -> Any:
    return torch.nn.Sequential(Block(), Block()).cuda()


def heads() -> tuple[torch.Tensor, ...]:
    return tuple(data(2, 4, 128, 64, dtype=torch.float16) for _ in range(3))


def labelled(grad: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    return data(512, 4096, grad=grad), torch.randint(0, 4096, (512,), device="cuda")


CASES: dict[str, Maker] = {
    "pointwise": lambda: compiled(gelu_mul, data(1024, 1024), data(1024, 1024)),
    "broadcast_bf16": lambda: compiled(broadcast, *(data(n, 768, dtype=torch.bfloat16) for n in (2048, 1, 1))),
    "row_sum": lambda: compiled(row_sum, data(1024, 4096)),
    "column_sum": lambda: compiled(column_sum, data(8192, 256)),
    "var_mean": lambda: compiled(mean_and_variance, data(512, 3072)),
    "softmax": lambda: compiled(softmax, data(512, 1000)),
    "layer_norm": lambda: compiled(torch.nn.LayerNorm(1024).cuda(), data(256, 1024)),
    "layer_norm_backward": lambda: trained(torch.nn.LayerNorm(1024).cuda(), data(256, 1024, grad=True)),
    "rms_norm": lambda: compiled(rms_norm, data(512, 2048, dtype=torch.float16), data(2048, dtype=torch.float16)),
    "attention": lambda: compiled(capped_attention, *heads()),
    "flex_attention": lambda: compiled(lambda q, k, v: flex_attention(q, k, v), *heads()),
    "mlp": lambda: compiled(mlp, data(256, 512), data(512, 2048), data(2048, 512)),
    "mlp_backward": lambda: trained(mlp, data(256, 512, grad=True), data(512, 2048, grad=True), data(2048, 512)),
    "cross_entropy": lambda: compiled(F.cross_entropy, *labelled()),
    "cross_entropy_backward": lambda: trained(F.cross_entropy, *labelled(grad=True)),
    "transformer": lambda: trained(two_blocks(), data(2, 64, 256)),
    "chain": lambda: compiled(chain, data(1 << 20)),
    "dynamic": lambda: compiled(rms_norm, data(500, 1000), data(1000), dynamic=True),
    "template_matmul": lambda: compiled(
        matmul_gelu, *(data(1024, 1024, dtype=torch.float16),) * 2, mode="max-autotune"
    ),
    "template_mlp": lambda: compiled(mlp, data(256, 512), data(512, 2048), data(2048, 512), mode="max-autotune"),
}

TIMED = frozenset({"template_matmul", "template_mlp"})
"""Cases of which code generation times candidates: without a GPU they are refused by name."""


# planted regressions: what was one kernel becomes several, or a kernel keeps more than its registers hold


def _split_mlp(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    product = x @ up
    torch._dynamo.graph_break()
    hidden = product * 0.5
    torch._dynamo.graph_break()
    return x + (hidden * (1 + torch.erf(product * 0.7071067811865476))) @ down


def _split_pointwise(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    left = F.gelu(x)
    torch._dynamo.graph_break()
    return left * y


def _split_softmax(x: torch.Tensor) -> torch.Tensor:
    scaled = x * 0.125
    torch._dynamo.graph_break()
    return torch.softmax(scaled, -1)


def _split_rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    factor = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    torch._dynamo.graph_break()
    return x * factor * weight


def _kept_values(x: torch.Tensor) -> torch.Tensor:
    """Values that are all used after the last of them was made, and again in the other order."""
    values = [torch.exp(x * (i + 1)) for i in range(CHAIN)]
    total = x
    for value in [*reversed(values), *values]:
        total = total * value + x
    return total


class _SplitBlock(Block):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.up(x)
        torch._dynamo.graph_break()
        return self.down(F.gelu(hidden))


def _double_broadcast(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x.double() * scale + shift).to(x.dtype)


def _double_sum(x: torch.Tensor) -> torch.Tensor:
    return (torch.sin(x.double()) * 2).sum(-1).float()


def _spilling_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return _kept_values(x) * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


PLANTED: dict[str, tuple[str, Maker]] = {
    "lost fusion: pointwise": (
        "pointwise",
        lambda: compiled(_split_pointwise, data(1024, 1024), data(1024, 1024)),
    ),
    "lost fusion: softmax": ("softmax", lambda: compiled(_split_softmax, data(512, 1000))),
    "lost fusion: rms_norm": (
        "rms_norm",
        lambda: compiled(_split_rms_norm, data(512, 2048, dtype=torch.float16), data(2048, dtype=torch.float16)),
    ),
    "spills: chain": ("chain", lambda: compiled(_kept_values, data(1 << 20))),
    "spills: dynamic": ("dynamic", lambda: compiled(_spilling_norm, data(500, 1000), data(1000), dynamic=True)),
    "fp64: broadcast": (
        "broadcast_bf16",
        lambda: compiled(_double_broadcast, *(data(n, 768, dtype=torch.bfloat16) for n in (2048, 1, 1))),
    ),
    "fp64: row_sum": ("row_sum", lambda: compiled(_double_sum, data(1024, 4096))),
    "lost fusion: mlp": (
        "mlp",
        lambda: compiled(_split_mlp, data(256, 512), data(512, 2048), data(2048, 512)),
    ),
    "lost fusion: transformer": (
        "transformer",
        lambda: trained(torch.nn.Sequential(_SplitBlock(), _SplitBlock()).cuda(), data(2, 64, 256)),
    ),
    "lost fusion: var_mean": ("var_mean", lambda: compiled(_split_mean, data(512, 3072))),
}


def _split_mean(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    variance, mean = torch.var_mean(x, -1)
    torch._dynamo.graph_break()
    return mean, torch.rsqrt(variance + 1e-5)


# edits that change nothing that runs


def _renamed(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Other names, a docstring, and a statement that has no effect."""
    activated = F.gelu(left)
    assert activated.shape == right.shape
    return activated * right


def _scaled(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * scale


def _with_helper(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(_scaled(x, scale) + shift)


class _AsModule(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return column_sum(x)


def _unused(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    _ = torch.cos(weight)
    return rms_norm(x, weight)


def _in_two_steps(x: torch.Tensor) -> torch.Tensor:
    scaled = x * 0.125
    return F.softmax(scaled, dim=-1)


def _methods(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x.mul(x.mul(x).mean(dim=-1, keepdim=True).add(1e-6).rsqrt()).mul(weight)


def _looped(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    out = x
    for w1, w2 in [(up, down)]:
        out = out + F.gelu(out @ w1) @ w2
    return out


def _keywords(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    variance, mean = torch.var_mean(x, dim=-1, correction=1)
    return mean, (variance + 1e-5).rsqrt()


# of a function each, so that one process checks all of them
HARMLESS: dict[str, tuple[str, Maker]] = {
    "renamed": ("pointwise", lambda: compiled(_renamed, data(1024, 1024), data(1024, 1024))),
    "helper": (
        "broadcast_bf16",
        lambda: compiled(_with_helper, *(data(n, 768, dtype=torch.bfloat16) for n in (2048, 1, 1))),
    ),
    "module": ("column_sum", lambda: compiled(_AsModule(), data(8192, 256))),
    "unused": ("dynamic", lambda: compiled(_unused, data(500, 1000), data(1000), dynamic=True)),
    "two steps": ("softmax", lambda: compiled(_in_two_steps, data(512, 1000))),
    "methods": (
        "rms_norm",
        lambda: compiled(_methods, data(512, 2048, dtype=torch.float16), data(2048, dtype=torch.float16)),
    ),
    "loop": ("mlp", lambda: compiled(_looped, data(256, 512), data(512, 2048), data(2048, 512))),
    "keywords": ("var_mean", lambda: compiled(_keywords, data(512, 3072))),
    "wrapped": ("row_sum", lambda: compiled(lambda x: row_sum(x), data(1024, 4096))),
    "full graph": ("cross_entropy", lambda: compiled(F.cross_entropy, *labelled(), fullgraph=True)),
}

EDITS = {**PLANTED, **HARMLESS}


def made(case: str, edits: Sequence[str] = ()) -> Made:
    """A case, or what one of some edits makes of it."""
    makers = [maker for edit in edits for changed, maker in [EDITS[edit]] if changed == case]
    return (makers or [CASES[case]])[0]()
