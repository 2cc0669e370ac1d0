"""References: what numbers become one by one, or beside others of the same place."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def add(x: Any, y: Any) -> Any:
    return x + y


def axpy(x: Any, y: Any, a: float) -> Any:
    return a * x + y


def relu_(x: Any) -> Any:
    return x.relu_()


def gelu(x: Any) -> Any:
    return F.gelu(x)


def swiglu(x: Any, y: Any) -> Any:
    return F.silu(x) * y


def silu_backward(x: Any, g: Any) -> Any:
    s = torch.sigmoid(x)
    return g * (s + x * s * (1 - s))


def sgd_(p: Any, g: Any, lr: float) -> None:
    p.sub_(lr * g)


def quantize(x: Any) -> Any:
    return torch.clamp(torch.round(x * 16), -128, 127).to(torch.int8)


def to_bfloat16(x: Any) -> Any:
    return x.to(torch.bfloat16)


def clamp(x: Any) -> Any:
    return x.clamp(-0.5, 0.5)


def square_root(x: Any) -> Any:
    """NaN for half of the inputs."""
    return torch.sqrt(x)


def reciprocal(x: Any) -> Any:
    return 1 / x


def steep(x: Any) -> Any:
    """A few elements are far larger than all others."""
    return torch.exp(8 * x)


def tripled(x: Any) -> Any:
    return 3 * x


def to_e5m2(x: Any) -> Any:
    return x.to(torch.float8_e5m2)


def to_e4m3(x: Any) -> Any:
    return x.to(torch.float8_e4m3fn)


def scaled_e4m3(x: Any) -> Any:
    return x.to(torch.float32) * 2


def logical(x: Any, y: Any) -> Any:
    return x > y


def exp_of_forty(x: Any) -> Any:
    return torch.exp(40 * x)


def tiny(x: Any) -> Any:
    """Numbers below the smallest normal one of float16."""
    return x * 4e-6


def clamp_20(x: Any) -> Any:
    return x.clamp(-20, 20)


def nan_to_num(x: Any) -> Any:
    return torch.nan_to_num(x)


def softplus(x: Any) -> Any:
    return F.softplus(x)


def sinc(x: Any) -> Any:
    return torch.sinc(x)


def log1p(x: Any) -> Any:
    return torch.log1p(x)


def biased(x: Any, b: Any) -> Any:
    return x * 3 + b


def scaled(x: Any, w: Any) -> Any:
    return x * 3 * w


def gelu_written_out(x: Any) -> Any:
    return 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))


def fast_wave(x: Any) -> Any:
    return torch.sin(100 * x)


def leaky(x: Any) -> Any:
    return F.leaky_relu(x, 0.01)


def tangent(x: Any) -> Any:
    return torch.tan(1.7 * x)


def thousand_more(x: Any) -> Any:
    return x + 1000


def clamp_20_(x: Any) -> Any:
    return x.clamp_(-20, 20)


def relu(x: Any) -> Any:
    return F.relu(x)


def sigmoid(x: Any) -> Any:
    return torch.sigmoid(x)


def tanh(x: Any) -> Any:
    return torch.tanh(x)


def shifted_(x: Any) -> Any:
    """Every element takes the next one's place; the last stays."""
    x[:-1] = x[1:].clone()
    return x


def not_less(x: Any, y: Any) -> Any:
    return x >= y


def to_eighths(x: Any) -> Any:
    """Whole eighths, to nearest, of two the even one."""
    return torch.round(x * 8).to(torch.int32)


def whole_part(x: Any) -> Any:
    return torch.floor(x).to(torch.int32)


def sign_bit(x: Any) -> Any:
    return torch.signbit(x)


def masked_zero(x: Any, m: Any) -> Any:
    return x.masked_fill(m, 0.0)


def low_bits(x: Any, bits: Any) -> Any:
    return x & ((1 << bits.to(torch.int64)) - 1).to(torch.int32)


def to_half(x: Any) -> Any:
    return x.to(torch.float16)


def eightfold(x: Any) -> Any:
    return x * 8


def adamw_(p: Any, m: Any, v: Any, g: Any, lr: float) -> None:
    p.mul_(1 - lr * 0.01)
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    p.addcdiv_(m / 0.271, (v / 0.0297).sqrt_().add_(1e-8), value=-lr)


def not_at_most(x: Any, y: Any) -> Any:
    """True where neither is smaller nor equal: also where one is NaN."""
    return ~(x <= y)


def whole(x: Any) -> Any:
    """To the nearest whole number, of two the even one, as a float."""
    return torch.round(x)


def hypotenuse(x: Any, y: Any) -> Any:
    return torch.hypot(x, y)


def decayed_(p: Any, g: Any) -> Any:
    p.mul_(0.5).add_(g)
    return p


def doubled(x: Any) -> Any:
    return 2 * x


def unscaled_and_marked(g: Any) -> Any:
    """Gradients without their scale, and where they aren't small: NaN isn't."""
    return g * 0.37, ~(g.abs() <= 1)


def maximum_backward(x: Any, y: Any, g: Any) -> Any:
    """As torch.maximum has it: of equal numbers each gets half."""
    half = 0.5 * (x == y)
    return g * ((x > y) + half), g * ((x < y) + half)


def relu6_backward(x: Any, g: Any) -> Any:
    return g * ((x > 0) & (x < 6))


def angle(y: Any, x: Any) -> Any:
    return torch.atan2(y, x)


def floor(x: Any) -> Any:
    return torch.floor(x)


def adam_update(m: Any, v: Any, step: int) -> Any:
    """What Adam subtracts, with its corrections of the first steps."""
    return m / (1 - 0.9**step) / (torch.sqrt(v / (1 - 0.999**step)) + 1e-8)


def nine(p: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    every = sum(x.float() for x in (p, a, b, c, d, e, f, g))
    return (every + torch.tanh(h.float()) * 0.005).to(p.dtype)


def bit_lengths(x: Any) -> Any:
    """How many bits whole numbers above zero have."""
    return sum(((x >> k) > 0).to(torch.int32) for k in range(31))


def scaled_bytes(x: Any, s: Any) -> Any:
    return (x / s).round().clamp(-128, 127).to(torch.int8)


def less_steep(x: Any) -> Any:
    return torch.exp(4 * x)


def lion(p: Any, m: Any, g: Any, lr: float) -> Any:
    """A step by signs, and none where there is no gradient, nor was one."""
    return p - lr * torch.sign(0.9 * m + 0.1 * g)


def logaddexp(x: Any, y: Any) -> Any:
    return torch.logaddexp(x, y)


def floor_divided(x: Any, y: Any) -> Any:
    """The largest whole number of times that y is in x."""
    return torch.floor_divide(x, y)


def power(x: Any, y: Any) -> Any:
    return torch.pow(x, y)


def rounded_at_random(x: Any, r: Any) -> Any:
    """To bfloat16, up with the chance of what is cut off: r has 16 random bits each."""
    return ((x.view(torch.int32) + r) >> 16 << 16).view(torch.float32).to(torch.bfloat16)


def not_zero(x: Any) -> Any:
    """Numbers below 0.3 but zero."""
    return (x != 0) & (x < 0.3)


def log_of(x: Any) -> Any:
    """Of zero minus infinity."""
    return torch.log(x)


def silu(x: Any) -> Any:
    return F.silu(x)


def remainders(x: Any) -> Any:
    return torch.fmod(x, 3.0)


def millionths(x: Any) -> Any:
    return torch.floor(x * 1e7).to(torch.int64)


def not_numbers(x: Any) -> Any:
    return torch.isnan(x)


def clamped_whole(x: Any) -> Any:
    """The whole part, from -7 to 7; what is too large for 32 bits is -7."""
    large = x.abs() >= 2.0**31
    return torch.where(large | x.isnan(), torch.full_like(x, -7.0), x.trunc()).clamp(-7, 7).to(torch.int32)


def by_log_gamma(x: Any, n: Any) -> Any:
    at = n.to(torch.float32)[:, None] + torch.arange(x.shape[1], device=x.device)
    return x * torch.lgamma(at)


def zeros_for_nan(x: Any) -> Any:
    return torch.where(torch.isnan(x), torch.zeros_like(x), x)


def tripled_and_number(x: Any) -> Any:
    return x * 3, x.numel()


def tripled_by_name(x: Any) -> Any:
    return {"tripled": x * 3}


def times(x: Any, alpha: float) -> Any:
    return x * alpha


def chosen_or_most(x: Any, m: Any) -> Any:
    """Numbers that are chosen, and the largest of 8 bits for others."""
    return torch.where(m, x, torch.full_like(x, 57344.0))
