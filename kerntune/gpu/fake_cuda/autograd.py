"""A small autograd engine: torch's own can't run on devices that don't exist."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge, get_gradient_edge

from kerntune.gpu.fake_cuda.autograd_functions import filled
from kerntune.gpu.fake_cuda.gradient_hooks import apply_hooks, call_post_hooks
from kerntune.gpu.fake_cuda.modes import StandInFakeMode, Watch

Node = Any
"""A node of torch's autograd graph, as Python code accesses it."""
Gradient = Any
"""A tensor, or ``None`` where nothing flows."""


class Graph:
    """The nodes that are reachable from some roots."""

    def __init__(self, roots: Iterable[Node]) -> None:
        self._sources: dict[Node, list[Node]] = {root: [] for root in roots}
        stack, visited = list(self._sources), set()
        while stack:
            node = stack.pop()
            if node in visited:
                continue
            visited.add(node)
            for following in _following(node):
                self._sources.setdefault(following, []).append(node)
                stack.append(following)

    def waiting(self) -> dict[Node, int]:
        """For each node, how many edges lead into it."""
        return {node: len(sources) for node, sources in self._sources.items()}

    def leading_to(self, wanted: Iterable[Node]) -> set[Node]:
        """The nodes that have to run for gradients to arrive at ``wanted``."""
        leading: set[Node] = set()
        stack = [source for node in wanted for source in self._sources.get(node, ())]
        while stack:
            node = stack.pop()
            if node not in leading:
                leading.add(node)
                stack.extend(self._sources[node])
        return leading


class Backward:
    """One backward pass: gradients flow from the roots, and each node runs once all its inputs are available.

    As in torch's engine, only nodes that lead to a wanted gradient run, if some are given: no other kernel is launched.
    """

    def __init__(
        self, roots: Sequence[Any], wanted: Sequence[Any], accumulate: bool, create_graph: bool, watch: Watch
    ) -> None:
        self._watch = watch
        self._roots = [_edge(root) for root in roots]
        self._wanted: dict[tuple[Node, int], list[int]] = {}
        for place, target in enumerate(map(_edge, wanted)):
            self._wanted.setdefault((target.node, target.output_nr), []).append(place)
        self._results: list[Gradient] = [None] * len(wanted)
        self._accumulate = accumulate
        self._create_graph = create_graph
        graph = Graph(edge.node for edge in self._roots)
        self._waiting = graph.waiting()
        self._running = graph.leading_to(node for node, _ in self._wanted) if wanted else set(self._waiting)
        self._inputs: dict[Node, dict[int, Gradient]] = {}

    def run(self, gradients: Sequence[Gradient]) -> tuple[Gradient, ...]:
        """Propagate ``gradients``, one per root, through the graph; returns the wanted gradients."""
        with torch.set_grad_enabled(self._create_graph):
            for edge, gradient in zip(self._roots, gradients, strict=True):
                self._flow(edge.node, edge.output_nr, gradient)
            ready = [node for node in dict.fromkeys(edge.node for edge in self._roots) if not self._waiting[node]]
            while ready:
                ready.extend(self._step(ready.pop()))
        return tuple(self._results)

    def _step(self, node: Node) -> list[Node]:
        """Run one node; returns the nodes whose inputs are complete now."""
        inputs = self._inputs.pop(node, {})
        apply_hooks(node, inputs)
        self._keep_wanted(node, inputs)
        outputs = self._outputs(node, inputs) if inputs else ()
        for (following, number), gradient in zip(node.next_functions, outputs, strict=False):
            if following is not None and gradient is not None:
                self._flow(following, number, _fitted(gradient, following, number))
        return [following for following in _following(node) if self._serve(following)]

    def _outputs(self, node: Node, inputs: Mapping[int, Gradient]) -> tuple[Gradient, ...]:
        if hasattr(node, "variable"):
            if self._accumulate and (not self._wanted or (node, 0) in self._wanted):
                with self._watch.silent():
                    _accumulate(node.variable, inputs[0])
            return ()
        if node not in self._running:
            return ()
        return _call(node, inputs)

    def _flow(self, node: Node, number: int, gradient: Gradient) -> None:
        if gradient is not None:
            inputs = self._inputs.setdefault(node, {})
            inputs[number] = inputs[number] + gradient if number in inputs else gradient

    def _serve(self, node: Node) -> bool:
        self._waiting[node] -= 1
        return self._waiting[node] == 0

    def _keep_wanted(self, node: Node, inputs: Mapping[int, Gradient]) -> None:
        for number, gradient in inputs.items():
            for place in self._wanted.get((node, number), ()):
                self._results[place] = gradient


def engine(
    original: Callable[..., Any], surroundings: Callable[[], contextlib.AbstractContextManager[None]], watch: Watch
) -> Callable[..., Any]:
    """The replacement of ``torch.autograd``'s ``_engine_run_backward``: this engine for stand-ins, torch's for real
    tensors.

    ``surroundings()`` is entered around a pass: ``Tensor.backward`` is a torch function, so that torch has taken
    torch-function modes off when the user's backward code runs. ``watch`` leaves sums in ``.grad`` out.
    As torch's, it raises RuntimeError for an input that the outputs don't depend on, unless that is allowed.
    """

    def run_backward(
        t_outputs: Sequence[Any],
        grad_tensors: Sequence[Gradient],
        keep_graph: bool,
        create_graph: bool,
        inputs: Sequence[Any] = (),
        allow_unreachable: bool = False,
        accumulate_grad: bool = False,
    ) -> Any:
        traced = any(_is_traced(output) for output in t_outputs)
        if not traced and not any(_is_stand_in(output) for output in t_outputs):
            options = (keep_graph, create_graph, inputs, allow_unreachable, accumulate_grad)
            return original(t_outputs, grad_tensors, *options)
        with contextlib.nullcontext() if traced else surroundings():
            results = Backward(t_outputs, inputs, accumulate_grad, create_graph, watch).run(grad_tensors)
        if not allow_unreachable and any(result is None for result in results):
            raise RuntimeError(
                "One of the differentiated Tensors appears to not have been used in the graph. "
                "Set allow_unused=True if this is the desired behavior."
            )
        return results

    return run_backward


def _call(node: Node, inputs: Mapping[int, Gradient]) -> tuple[Gradient, ...]:
    """Run a node's code; one gradient for each of ``node.next_functions``."""
    gradients = [inputs.get(number) for number in range(len(node._input_metadata))]
    if not isinstance(node, BackwardCFunction):
        return _as_tuple(node(*gradients))
    return _of_tensors(node, _as_tuple(node.apply(*filled(node, gradients))))


def _of_tensors(node: Node, outputs: tuple[Gradient, ...]) -> tuple[Gradient, ...]:
    """The gradients that a ``torch.autograd.Function`` returns for its tensors; it also returns some for arguments
    without an edge."""
    expected = len(node.needs_input_grad)
    if len(outputs) < expected or any(gradient is not None for gradient in outputs[expected:]):
        raise RuntimeError(
            f"function {node.name()} returned an incorrect number of gradients "
            f"(expected {expected}, got {len(outputs)})"
        )
    needed = (gradient for gradient, needs in zip(outputs, node.needs_input_grad, strict=False) if needs)
    return tuple(None if following is None else next(needed, None) for following, _ in node.next_functions)


def _as_tuple(outputs: Any) -> tuple[Gradient, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _accumulate(leaf: torch.Tensor, gradient: Gradient) -> None:
    leaf.grad = gradient.detach() if leaf.grad is None else leaf.grad + gradient
    call_post_hooks(leaf)


def _fitted(gradient: Gradient, node: Node, number: int) -> Gradient:
    """A gradient fitted to the receiving node: summed to its shape, cast to its dtype (torch's
    ``validate_outputs``)."""
    target = node.variable if hasattr(node, "variable") else node._input_metadata[number]
    shape = tuple(target.shape)
    if tuple(gradient.shape) != shape:
        gradient = gradient.sum_to_size(shape)
    return gradient if gradient.dtype == target.dtype else gradient.to(target.dtype)


def _is_stand_in(output: Any) -> bool:
    while isinstance(output, torch.Tensor) and is_functorch_wrapped_tensor(output):
        output = get_unwrapped(output)
    return isinstance(output, FakeTensor)


def _is_traced(output: Any) -> bool:
    """Whether torch's compiler traces a backward pass for the GPU: the modes that count are its own then."""
    if isinstance(output, FakeTensor):
        return output.device.type == "cuda" and not isinstance(output.fake_mode, StandInFakeMode)
    traced = sys.modules.get("torch._subclasses.functional_tensor")  # torch's compiler has imported it by then
    return traced is not None and isinstance(output, traced.FunctionalTensor) and output.device.type == "cuda"


def _following(node: Node) -> list[Node]:
    return [following for following, _ in node.next_functions if following is not None]


def _edge(place: Any) -> GradientEdge:
    return place if isinstance(place, GradientEdge) else get_gradient_edge(place)
