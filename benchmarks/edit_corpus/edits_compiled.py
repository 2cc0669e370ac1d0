"""Edits of compiled functions, labelled by argument before there was a rule on what such a call moves.

Nothing here was timed. An argument counts bytes: what a further buffer, copy or cast writes and reads. These functions
are bound by memory on a GPU, but for arithmetic in fp64. What a finding must name is fixed here, too.
"""

# ruff: noqa: E501 - an edit's texts stay on their lines

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.edit_corpus.edit import Change, Edit

FUNCTIONS = Path(__file__).parent / "compiled"

FP64 = "all of this kernel's arithmetic is in fp64, at half the rate of fp32 or far less, with casts both ways"
TWICE = "what stayed in registers is written by one kernel and read by the next"
EAGER = "an operator outside of graphs reads and writes whole tensors that were never in memory"
OUTPUT = "a further result is written, which was in registers before"
HOST = "the tensor is made by the CPU and copied over PCIe, at a fiftieth of the memory's rate"
COPIED = "a copy that changes no value reads and writes the whole tensor"


@dataclass(frozen=True)
class CompiledEdit(Edit):
    """An edit of a file of ``compiled/``. Of a loss one failing finding must match ``operator`` and name the line of
    the edited file that has one of the texts ``lines``."""

    argument: str = ""
    operator: str = ""
    lines: tuple[str, ...] = ()

    def before(self) -> str:
        """The function's file."""
        return (FUNCTIONS / f"{self.kernel}.py").read_text()

    def places(self) -> tuple[str, ...]:
        """``.py:12`` for each line that a finding may name."""
        numbered = enumerate(self.after().splitlines(), 1)
        return tuple(f".py:{n}" for n, line in numbered if any(text in line for text in self.lines))


def loss(
    function: str, kind: str, name: str, argument: str, operator: str, lines: tuple[str, ...], *changes: Change
) -> CompiledEdit:
    """An edit that costs time."""
    return CompiledEdit(function, name, kind, changes, kind, argument=argument, operator=operator, lines=lines)


def harmless(function: str, name: str, *changes: Change) -> CompiledEdit:
    """An edit that costs nothing: the same bytes are read and written by as many kernels."""
    return CompiledEdit(function, name, "harmless", changes)


def eager(function: str, name: str, operator: str, definition: str, called: str, line: str) -> CompiledEdit:
    """A function that graphs leave out."""
    change = (f"def {definition}", f"@torch.compiler.disable\ndef {definition}")
    return loss(function, "eager fallback", name, EAGER, operator, (line, called), change)


BREAK = "    torch._dynamo.graph_break()\n"

LOSSES: tuple[CompiledEdit, ...] = (
    loss(
        *("rms_norm", "materialised", "the normed rows are returned", OUTPUT, "mul|rsqrt", ("normed", "return (")),
        ("x.dtype), h", "x.dtype), h, normed"),
    ),
    loss(
        *("rms_norm", "unfused", "a break before the product with the weight", TWICE, "mul", ("graph_break", "return")),
        ("    return", f"{BREAK}    return"),
    ),
    loss(
        *("rms_norm", "fp64", "the variance in double", FP64, "double precision", ("variance =", "normed =")),
        ("h.float().pow", "h.double().pow"),
    ),
    eager("swiglu", "silu is left out of the graph", "silu", "activation", "activation(gate)", "silu"),
    loss(
        *("swiglu", "host-made", "a mask from the host", HOST, r"_to_copy|copy", ("mask = ",)),
        ("    return activated", "    mask = torch.ones(2048, 4096, dtype=torch.float16).to(gate.device)\n    return mask * activated"),
    ),
    loss(
        *("swiglu", "materialised", "the activation is returned", OUTPUT, "silu|mul", ("activat", "silu", "return")),
        ("activated * up", "activated * up, activated"),
    ),
    loss(
        *("softmax_rows", "unfused", "a break before the softmax", TWICE, "softmax|mul", ("graph_break", "return")),
        ("    return rows", f"{BREAK}    return rows"),
    ),
    loss(
        *("softmax_rows", "fp64", "the softmax in double", FP64, "double precision", ("softmax", "return")),
        ("(shifted, -1)", "(shifted, -1, dtype=torch.float64).float()"),
    ),
    eager("softmax_rows", "the softmax is left out of the graph", "softmax", "rows", "rows(shifted)", "softmax"),
    loss(
        *("cross_entropy", "materialised", "all logarithms are returned", OUTPUT, "softmax|sub|log", ("logp", "return")),
        (".mean()", ".mean(), logp"),
    ),
    eager("cross_entropy", "the cap is left out of the graph", "tanh|div|mul", "capped", "capped(logits)", "tanh"),
    loss(
        *("cross_entropy", "fp64", "the softmax in double", FP64, "double precision", ("softmax",)),
        ("(soft, -1)", "(soft.double(), -1).float()"),
    ),
    eager("rope", "the rotation is left out of the graph", "cat|neg", "rotate", "rotate(q)", "torch.cat"),
    loss(
        *("rope", "materialised", "the rotated rows are returned", OUTPUT, "cat", ("turned", "torch.cat", "return")),
        (".to(q.dtype)", ".to(q.dtype), turned"),
    ),
    loss(
        *("rope", "fp64", "tables in double", FP64, "double precision", ("cos", "return")),
        ("q * cos +", "q * cos.double() +"),
    ),
    loss(
        *("dropout", "host-made", "the mask is drawn on the host", HOST, r"_to_copy|copy", ("keep = ", "mask = ")),
        (
            "    return torch.nn.functional.dropout(x, 0.1, training=True)",
            "    keep = torch.full(x.shape, 0.9)\n    mask = keep.bernoulli().to(x.device, x.dtype)\n    return x * mask / 0.9",
        ),
    ),
    eager("dropout", "dropout is left out of the graph", "dropout", "dropped", "dropped(x)", "dropout("),
    loss(
        *("dropout", "fp64", "the sum in double", FP64, "double precision", ("double",)),
        ("y + residual", "(y.double() + residual).half()"),
    ),
    loss(
        *("linear_gelu", "layout", "the weight is laid out anew", COPIED, "clone|copy|t", ("weight",)),
        ("x @ weight", "x @ weight.t().contiguous().t()"),
    ),
    eager("linear_gelu", "GELU is left out of the graph", "gelu", "activation", "activation(y", "gelu"),
    loss(
        *("linear_gelu", "materialised", "the product in fp32", "operands and product in twice the bits", "_to_copy|mm", ("x.float()",)),
        ("x @ weight", "(x.float() @ weight.float()).to(x.dtype)"),
    ),
    loss(
        *("train_step", "materialised", "the norm is returned", OUTPUT, "native_layer_norm|mul|add", ("layer_norm", "return")),
        ("return activation(y)", "return activation(y), y"),
        ("out = compiled", "out, _ = compiled"),
    ),
    loss(
        *("train_step", "unfused", "a break before GELU", TWICE, "gelu|layer_norm|mul", ("graph_break", "gelu", "return")),
        ("    return activation", f"{BREAK}    return activation"),
    ),
    eager("train_step", "GELU is left out of the graph", "gelu", "activation", "activation(y)", "gelu"),
    loss(
        *("quantize", "materialised", "the scaled rows are returned", OUTPUT, "div|round", ("rounded", "return")),
        ("torch.int8), scale", "torch.int8), scale, rounded"),
    ),
    eager("quantize", "the cast is left out of the graph", "_to_copy", "read", "read(x)", "x.float()"),
    loss(
        *("two_functions", "layout", "rows are laid out anew and back", COPIED, "clone|copy", ("second(",)),
        ("return second(y)", "return second(y.t().contiguous().t())"),
    ),
    loss(
        *("two_functions", "copies", "a sum with nothing", COPIED, "add", ("y + 0",)),
        ("    y = first(x)\n", "    y = first(x)\n    y = y + 0\n"),
    ),
    loss(
        *("two_functions", "fp64", "the sum of doubles", f"{COPIED}, to twice the size; {FP64}", "_to_copy|double precision", ("double",)),
        ("    y = first(x)\n", "    y = first(x).double()\n"),
    ),
    loss(
        *("two_functions", "copies", "halves are put together again", COPIED, "cat", ("torch.cat",)),
        ("    y = first(x)\n", "    y = first(x)\n    y = torch.cat([y[:2048], y[2048:]])\n"),
    ),
)  # fmt: skip

HARMLESS: tuple[CompiledEdit, ...] = (
    harmless("rms_norm", "another name", ("variance", "var")),
    harmless("rms_norm", "a product for the square", ("h.float().pow(2)", "(h.float() * h.float())")),
    harmless("rms_norm", "the constant by a name", ("    h = x", "    eps = 1e-6\n    h = x"), ("+ 1e-6", "+ eps")),
    harmless("swiglu", "slices for chunks", ("gate, up = gate_up.chunk(2, -1)", "gate, up = gate_up[:, :4096], gate_up[:, 4096:]")),
    harmless("swiglu", "the other order", ("activated * up", "up * activated")),
    harmless("swiglu", "silu written out", ("torch.nn.functional.silu(gate)", "gate * torch.sigmoid(gate)")),
    harmless("softmax_rows", "a quotient for the product", ("scores * 0.125", "scores / 8")),
    harmless("softmax_rows", "in two lines", ("scores * 0.125 + bias", "scores * 0.125\n    shifted = shifted + bias")),
    harmless("softmax_rows", "as a method", ("torch.softmax(shifted, -1)", "shifted.softmax(dim=-1)")),
    harmless("cross_entropy", "torch's own loss", ("-logp.gather(1, labels[:, None]).mean()", "torch.nn.functional.nll_loss(logp, labels)")),
    harmless("cross_entropy", "a product for the quotient", ("logits / 30.0", "logits * (1 / 30.0)")),
    harmless("cross_entropy", "another name", ("logp", "logarithms")),
    harmless("rope", "slices for chunks", ("a, b = x.chunk(2, -1)", "a, b = x[..., :64], x[..., 64:]")),
    harmless("rope", "the other order", ("q * cos + turned * sin", "turned * sin + q * cos")),
    harmless("rope", "a list for the tuple", ("torch.cat((-b, a), -1)", "torch.cat([-b, a], dim=-1)")),
    harmless("dropout", "the other order", ("y + residual", "residual + y")),
    harmless("dropout", "a tensor that nobody needs", ("    y = dropped", "    _ = torch.empty(4, device=x.device)\n    y = dropped")),
    harmless("dropout", "a name for the share", ("(x, 0.1, training", "(x, p=0.1, training")),
    harmless("linear_gelu", "mm for the sign", ("x @ weight", "torch.mm(x, weight)")),
    harmless("linear_gelu", "torch.add", ("y + bias", "torch.add(y, bias)")),
    harmless("linear_gelu", "a view of the weight and back", ("x @ weight", "x @ weight.t().t()")),
    harmless("train_step", "torch.sum", ("out.sum()", "torch.sum(out)")),
    harmless("train_step", "named arguments", ("weight, bias)\n    return", "weight=weight, bias=bias)\n    return")),
    harmless("train_step", "another name", ("out", "result")),
    harmless("quantize", "max for amax", (".amax(-1, keepdim=True)", ".max(-1, keepdim=True).values")),
    harmless("quantize", "a product for the quotient", ("amax / 127", "amax * (1 / 127)")),
    harmless("quantize", "in two lines", ("(rows / scale).round()", "rows / scale\n    rounded = torch.round(rounded)")),
    harmless("two_functions", "relu of another module", ("torch.relu(x)", "torch.nn.functional.relu(x)")),
    harmless("two_functions", "views between them", ("return second(y)", "return second(y.view(4096, 2, 1024).view(4096, 2048))")),
    harmless("two_functions", "torch.sum", ("y.sum(-1)", "torch.sum(y, dim=-1)")),
)  # fmt: skip

EDITS = LOSSES + HARMLESS
