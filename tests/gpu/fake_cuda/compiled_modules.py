"""Forty modules and functions that torch compiles, in as many ways, for any device.

Each is a function of the device that returns what is called, and its arguments. What torch says of them on CPU tensors
is what it must say of stand-ins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Made = tuple[Callable[..., Any], tuple[Any, ...]]
MODULES: dict[str, Callable[[str], Made]] = {}
ROWS, WIDTH = 32, 128


def module(made: Callable[[str], Made]) -> Callable[[str], Made]:
    MODULES[made.__name__] = made
    return made


def rows(device: str, **options: Any) -> torch.Tensor:
    return torch.randn(ROWS, WIDTH, device=device, **options)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    """A normalisation and a child, both called through ``nn.Module.__call__``."""

    def __init__(self, child: nn.Module) -> None:
        super().__init__()
        self.norm, self.child = nn.LayerNorm(WIDTH), child

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.child(self.norm(x))


class Pair(nn.Module):
    """Two children; between them something that Dynamo doesn't put into a graph."""

    def __init__(self, between: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.between = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.between(self.first(x).relu())).sigmoid()


def normed() -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.GELU())


# plain


def on_rows(made: Callable[[str], Any]) -> Callable[[str], Made]:
    """What is made for a device, and the rows that it is called with."""
    return lambda device: (made(device), (rows(device),))


def in_place(
    made: Callable[[], nn.Module], parts: Any = lambda model: [model], **options: Any
) -> Callable[[str], Made]:
    """A module of which these parts, or all of it, are compiled where they are."""

    def model_on(device: str) -> nn.Module:
        model = made().to(device)
        for part in parts(model):
            part.compile(**options)
        return model

    return on_rows(model_on)


MODULES |= {
    "pointwise": on_rows(lambda device: torch.compile(lambda x: torch.sin(x) * 2 + x.cos())),
    "mlp": on_rows(lambda device: torch.compile(Mlp().to(device))),
    "sequential": on_rows(lambda device: torch.compile(normed().to(device))),
    "dynamic": on_rows(lambda device: torch.compile(lambda x: F.layer_norm(x, (WIDTH,)) * x.shape[0], dynamic=True)),
}


@module
def training_step(device: str) -> Made:
    model = torch.compile(Mlp().to(device))

    def step(x: torch.Tensor) -> None:
        model(x).square().mean().backward()

    return step, (rows(device),)


@module
def two_functions(device: str) -> Made:
    first, second = torch.compile(lambda x: x.sigmoid() * x), torch.compile(lambda x: x.softmax(-1) + 1)
    return lambda x: second(first(x) + 1), (rows(device),)


@module
def two_shapes(device: str) -> Made:
    compiled = torch.compile(lambda x: x.exp().sum(-1))
    return lambda x: (compiled(x), compiled(x[: ROWS // 2])), (rows(device),)


@module
def factories(device: str) -> Made:
    def function(x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[-1], device=x.device)
        return x * torch.ones(WIDTH, device=device) + torch.where(places > 3, 1.0, x.new_zeros(()))

    return torch.compile(function), (rows(device),)


@module
def autograd_function(device: str) -> Made:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.sin() * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return grad * x.cos() * 2

    compiled = torch.compile(lambda x: Double.apply(x).exp())
    return lambda x: compiled(x).sum().backward(), (rows(device, requires_grad=True),)


# Module.compile()

MODULES |= {
    "sequential_in_place": in_place(normed),
    "mlp_in_place": in_place(Mlp),
    "child_in_place": in_place(lambda: Block(Mlp()), lambda model: [model.child]),
    "children_in_place": in_place(lambda: nn.Sequential(Mlp(), Mlp()), list),
}


@module
def in_place_in_compiled(device: str) -> Made:
    model = Block(Mlp()).to(device)
    model.child.compile()
    return torch.compile(model), (rows(device),)


@module
def hooked_in_place(device: str) -> Made:
    model = Mlp().to(device)
    model.up.register_forward_hook(lambda module, args, out: out * 2)
    model.compile()
    return model, (rows(device),)


# fullgraph

MODULES |= {
    "whole": on_rows(lambda device: torch.compile(lambda x: torch.sin(x).softmax(-1), fullgraph=True)),
    "whole_module": on_rows(lambda device: torch.compile(Block(Mlp()).to(device), fullgraph=True)),
    "whole_sequential_in_place": in_place(normed, fullgraph=True),
    "whole_mlp_in_place": in_place(Mlp, fullgraph=True),
}


@module
def whole_with_a_break(device: str) -> Made:
    def function(x: torch.Tensor) -> torch.Tensor:
        x = x.sin()
        torch._dynamo.graph_break()
        return x.cos()

    return torch.compile(function, fullgraph=True), (rows(device),)


@module
def whole_in_a_function(device: str) -> Made:
    inner = torch.compile(lambda x: x.sigmoid() * x, fullgraph=True)
    return torch.compile(lambda x: inner(x.exp()) + inner(x)), (rows(device),)


# breaks in loops, in try, in with


@module
def break_in_a_loop(device: str) -> Made:
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x.sin() * 2
            torch._dynamo.graph_break()
        return x.cos()

    return torch.compile(function), (rows(device),)


@module
def break_in_a_function_in_a_loop(device: str) -> Made:
    def inner(x: torch.Tensor) -> torch.Tensor:
        x = x.sin() * 2
        torch._dynamo.graph_break()
        return x + 1

    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = inner(x)
        return x.cos()

    return torch.compile(function), (rows(device),)


@module
def break_in_a_layer_in_a_loop(device: str) -> Made:
    class Layer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = F.layer_norm(x, (WIDTH,))
            torch._dynamo.graph_break()
            return x.sigmoid()

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x) + x
            return x

    return torch.compile(Stack().to(device)), (rows(device),)


@module
def break_in_try(device: str) -> Made:
    def function(x: torch.Tensor) -> torch.Tensor:
        try:
            x = x.sin() * 2
            torch._dynamo.graph_break()
        finally:
            x = x + 1
        return x.cos()

    return torch.compile(function), (rows(device),)


@module
def break_in_a_function_in_try(device: str) -> Made:
    def inner(x: torch.Tensor) -> torch.Tensor:
        x = x.exp()
        torch._dynamo.graph_break()
        return x.log1p()

    def function(x: torch.Tensor) -> torch.Tensor:
        try:
            x = inner(x.sin())
        except ValueError:
            x = x + 1
        return x.cos()

    return torch.compile(function), (rows(device),)


@module
def break_in_with(device: str) -> Made:
    @contextlib.contextmanager
    def entered() -> Iterator[None]:
        yield

    def function(x: torch.Tensor) -> torch.Tensor:
        with entered():
            x = x.sin()
            torch._dynamo.graph_break()
            x = x.cos()
        return x + 1

    return torch.compile(function), (rows(device),)


@module
def break_without_gradients(device: str) -> Made:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = x.sin() * 2
            torch._dynamo.graph_break()
            return x.cos().sum(-1)

    return torch.compile(function), (rows(device),)


# compiler.disable


@module
def disabled_function(device: str) -> Made:
    @torch.compiler.disable
    def between(x: torch.Tensor) -> torch.Tensor:
        return x.exp().cumsum(-1)

    return torch.compile(lambda x: between(x.sin()).cos()), (rows(device),)


@module
def disabled_child(device: str) -> Made:
    model = Block(Mlp()).to(device)
    model.child.forward = torch.compiler.disable(model.child.forward)
    return torch.compile(model), (rows(device),)


@module
def disabled_but_not_below(device: str) -> Made:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x.exp().log1p()

    @torch.compiler.disable(recursive=False)
    def between(x: torch.Tensor) -> torch.Tensor:
        return inner(x * 2)

    return torch.compile(lambda x: between(x.sin()).cos()), (rows(device),)


# eager between graphs


@module
def eager_between(device: str) -> Made:
    def between(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return F.gelu(F.layer_norm(x, (WIDTH,)))

    return torch.compile(Pair(between).to(device)), (rows(device),)


@module
def compiled_child_in_a_function(device: str) -> Made:
    child = torch.compile(Mlp().to(device))
    return torch.compile(lambda x: child(x.sin()).cos()), (rows(device),)


@module
def skipped_frame_between(device: str) -> Made:
    @torch.compiler.disable(recursive=False)
    def between(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x.flip(0)])[:ROWS].contiguous()

    return torch.compile(Pair(between).to(device)), (rows(device),)


@module
def function_of_autograd_between(device: str) -> Made:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.exp() * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad.sin() * 2

    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            torch._dynamo.graph_break()
            x = Double.apply(x)  # in a frame that isn't compiled, so that its code is a frame of its own
        return x.cos()

    compiled = torch.compile(function)
    return lambda x: compiled(x).sum().backward(), (rows(device, requires_grad=True),)


@module
def backward_between(device: str) -> Made:
    @torch.compile
    def step(x: torch.Tensor) -> torch.Tensor:
        (x.sin() * 2).sum().backward()
        return x.detach().cos()

    return step, (rows(device, requires_grad=True),)


# optimizers


def stepped(device: str, kind: Any, once: bool = False, **options: Any) -> Any:
    """An optimizer whose parameters have gradients; it has taken ``once`` a step."""
    model = nn.Linear(WIDTH, WIDTH, device=device)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer = kind(model.parameters(), foreach=True, **options)
    if once:
        optimizer.step()
    return optimizer


MODULES |= {
    "adamw": lambda device: (torch.compile(stepped(device, torch.optim.AdamW).step), ()),
    # its states are there, and their counts of steps are on the CPU
    "adamw_that_has_stepped": lambda device: (torch.compile(stepped(device, torch.optim.AdamW, once=True).step), ()),
    "momentum": lambda device: (torch.compile(stepped(device, torch.optim.SGD, lr=0.1, momentum=0.9).step), ()),
}


@module
def clipped_step(device: str) -> Made:
    model = Mlp().to(device)
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)

    @torch.compile
    def update() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()

    def step(x: torch.Tensor) -> None:
        model(x).square().mean().backward()
        update()
        optimizer.zero_grad()

    return step, (rows(device),)
