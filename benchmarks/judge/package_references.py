"""What the kernels of liger-kernel and flash-linear-attention compute, by torch."""

import torch
from torch.nn import functional


def _root_norm(x, epsilon):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)


def rms_norm(x, w):
    return w * _root_norm(x.float(), 1e-6).to(x.dtype)


def rms_norm_of_gemma(x, w):
    return (_root_norm(x.float(), 1e-6) * (1.0 + w.float())).to(x.dtype)


def swiglu(a, b):
    return functional.silu(a) * b


def geglu(a, b):
    return functional.gelu(a, approximate="tanh") * b


def layer_norm(x, w, b):
    return functional.layer_norm(x, x.shape[-1:], w, b, 1e-5)


def softmax(x):
    return torch.softmax(x, -1)


def kl_divergence(p, q):
    return functional.kl_div(p, q, reduction="none", log_target=True)


def total_variation(p, q):
    return 0.5 * (p - q).abs()


def add_and_norm(x, r, w):
    both = x + r
    return rms_norm(both, w), both


def dynamic_tanh(x, a, g, b):
    return torch.tanh(x * a) * g + b


def poly_norm(x, w, b):
    cubes, squares, plain = (_root_norm(x.float() ** power, 1e-6) for power in (3, 2, 1))
    return (w[0] * cubes + w[1] * squares + w[2] * plain + b).to(x.dtype)


def gated_attention(q, k, v, g):
    state, results = torch.zeros_like(q[:, 0, :, :, None] * v[:, 0, :, None]), []
    for i in range(q.shape[1]):
        state = state * g[:, i].exp()[..., None] + k[:, i, :, :, None] * v[:, i, :, None]
        results.append((q[:, i, :, :, None] * q.shape[-1] ** -0.5 * state).sum(-2))
    return torch.stack(results, 1), None


def delta_rule(q, k, v, b):
    state, results = torch.zeros_like(q[:, 0, :, :, None] * v[:, 0, :, None]), []
    for i in range(q.shape[1]):
        key, beta = k[:, i, :, :, None], b[:, i, :, None]
        state = state + key * ((v[:, i] - (state * key).sum(-2)) * beta)[:, :, None]
        results.append((q[:, i, :, :, None] * q.shape[-1] ** -0.5 * state).sum(-2))
    return torch.stack(results, 1)


def _in_chunks(g):
    return g.float().unflatten(1, (-1, 16))


def sums_of_chunks(g):
    return _in_chunks(g).cumsum(2).flatten(1, 2)


def sums_of_chunks_backwards(g):
    return _in_chunks(g).flip(2).cumsum(2).flip(2).flatten(1, 2)


def running_sums(g):
    return g.float().cumsum(1)


def l2_norm(x):
    return (x.float() * torch.rsqrt(x.float().pow(2).sum(-1, keepdim=True) + 1e-6)).to(x.dtype)


def l2_norm_backward(x, g):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(l2_norm(x), x, g)[0]


def root_norm(x, w):
    return (_root_norm(x.float(), 1e-5) * w).to(x.dtype)


def add_and_root_norm(x, w, r):
    both = x.float() + r.float()
    return root_norm(both, w).to(x.dtype), both.to(x.dtype)


def rotary(x, c, s):
    first, second = x.chunk(2, -1)
    c, s = c[None, :, None], s[None, :, None]
    return torch.cat((first * c - second * s, second * c + first * s), -1)


def logsigmoid(x):
    return functional.logsigmoid(x)


def token_shift(x):
    before = torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1)
    return before - x


def gated_recurrence(x, g):
    state, results = torch.zeros_like(x[:, 0]), []
    for i in range(x.shape[1]):
        state = g[:, i].exp() * state + x[:, i]
        results.append(state)
    return torch.stack(results, 1)


def attention(q, k, v):
    found = functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True)
    return found.transpose(1, 2).contiguous()


def pooled(x):
    return x.unflatten(1, (-1, 16)).mean(2)


def divergence(p, q):
    both = torch.log(0.5 * (p.exp() + q.exp()))
    parts = (functional.kl_div(both, one, log_target=True, reduction="batchmean") for one in (p, q))
    return 0.5 * sum(parts)


def _gradients(function, g, *given):
    own = [x.detach().requires_grad_() for x in given]
    return torch.autograd.grad(function(*own), own, g)


def rms_norm_gradients(x, w, g):
    return _gradients(lambda x, w: (w.float() * _root_norm(x.float(), 1e-6)).to(x.dtype), g, x, w)


def layer_norm_gradients(x, w, b, g):
    return _gradients(layer_norm, g, x, w, b)


def dynamic_tanh_gradients(x, a, g, b, d):
    return _gradients(dynamic_tanh, d, x, a, g, b)
