"""A small autograd engine: torch's own can't run on devices that don't exist.

Torch stores gradient hooks of non-leaf tensors where Python can't read them, so they are noted when they are
registered. A ``torch.autograd.Function``'s backward gets None, or zeros, for outputs without a gradient.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import BackwardCFunction, FunctionCtx
from torch.autograd.graph import GradientEdge, get_gradient_edge

from kerntune.gpu.fake_cuda.modes import EnterModes, Handler, StandInFakeMode, Watch
from kerntune.gpu.fake_cuda.patches import replace
from kerntune.kernels.compat.torch_compiler import calls_users_code

_HOOKS = "kerntune.hooks"
_RETAINED = "kerntune.retained"
"""Keys in a node's ``metadata``: by output number, the hooks of a tensor and the tensor whose ``grad`` is retained."""


def replace_engine(stack: ExitStack, backward: Callable[..., Any]) -> None:
    """Until ``stack`` closes, torch calls ``backward`` instead of its engine."""
    replace(stack, torch.autograd, "_engine_run_backward", backward)
    replace(stack, torch.autograd.graph, "_engine_run_backward", backward)


def hook_handlers() -> dict[Any, Handler]:
    """Handlers of torch functions that register a hook: torch registers it, and the graph's node records it for this
    engine."""
    return {torch.Tensor.register_hook: _register_hook, torch.Tensor.retain_grad: _retain_grad}


def apply_hooks(node: Any, inputs: dict[int, Any]) -> None:
    """Call a node's hooks with the gradients in ``inputs`` (by output number), replacing them in place."""
    for number, gradient in inputs.items():
        for hook in _hooks(node, number):
            changed = hook(gradient)
            gradient = gradient if changed is None else changed
        inputs[number] = gradient
        _keep(node, number, gradient)


def _register_hook(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    handle = func(*args, **kwargs)
    if args[0].grad_fn is not None:
        _record(_HOOKS, args[0], args[0]._backward_hooks)  # torch's own dict: the handle removes from it
    return handle


def _retain_grad(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    func(*args, **kwargs)
    if args[0].grad_fn is not None:
        _record(_RETAINED, args[0], ref(args[0]))


def _record(key: str, tensor: torch.Tensor, what: Any) -> None:
    edge = get_gradient_edge(tensor)
    edge.node.metadata.setdefault(key, {})[edge.output_nr] = what


def _hooks(node: Any, number: int) -> tuple[Callable[[Any], Any], ...]:
    if hasattr(node, "variable"):
        return tuple((node.variable._backward_hooks or {}).values())
    return tuple(node.metadata.get(_HOOKS, {}).get(number, {}).values())


def _keep(node: Any, number: int, gradient: Any) -> None:
    reference = None if hasattr(node, "variable") else node.metadata.get(_RETAINED, {}).get(number)
    tensor = reference() if reference is not None else None
    if tensor is not None:
        tensor.grad = gradient if tensor.grad is None else tensor.grad + gradient


_OUTPUTS = "kerntune.outputs"
"""Key in a node's ``metadata``: the layout of each output, ``None`` for one that is no tensor."""
_MATERIALIZES = "_kerntune_materializes"
"""Attribute of a node: the value given to its ``ctx.set_materialize_grads`` (torch's own attribute can't be read)."""


class Layout(NamedTuple):
    """The layout of an output, from which zeros for it are made."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def install_functions(stack: ExitStack) -> None:
    """Record for every ``torch.autograd.Function`` the data that torch's own engine has, until ``stack`` closes."""
    apply = inspect.getattr_static(torch.autograd.Function, "apply")  # a classmethod, from torch 2.14 on one in C
    replace(stack, torch.autograd.Function, "apply", classmethod(_recording(apply)))
    replace(stack, FunctionCtx, "set_materialize_grads", _recording_layouts(FunctionCtx.set_materialize_grads))


def filled(node: Any, gradients: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """The gradients that a function's backward is called with (torch's ``PyNode::apply``).

    An output that is no tensor gets ``None``, and so does every one without a gradient if the function called
    ``ctx.set_materialize_grads(False)``; any other without a gradient gets zeros, not differentiable ones too.
    """
    if not getattr(node, _MATERIALIZES, True):
        return list(gradients)
    layouts = node.metadata.get(_OUTPUTS) or [_of_metadata(meta) for meta in node._input_metadata]
    pairs = zip(gradients, layouts, strict=True)
    return [_zeros(layout) if given is None else given for given, layout in pairs]


def _zeros(layout: Layout | None) -> torch.Tensor | None:
    return None if layout is None else torch.zeros(layout.shape, dtype=layout.dtype, device=layout.device)


def _of_metadata(meta: Any) -> Layout | None:
    """The layout for a function that was applied without being recorded. torch's metadata of an output that is no
    tensor are those of a number on the CPU."""
    shape = tuple(meta.shape)
    return None if not shape and meta.device.type == "cpu" else Layout(shape, meta.dtype, meta.device)


def _recording(apply: Any) -> Callable[..., Any]:
    @calls_users_code
    def applied(cls: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = apply.__get__(None, cls)(*args, **kwargs)
        items = outputs if isinstance(outputs, tuple) else (outputs,)
        node = next((x.grad_fn for x in items if isinstance(x, torch.Tensor) and _is_of(x.grad_fn, cls)), None)
        if node is not None and len(node._input_metadata) == len(items):
            node.metadata[_OUTPUTS] = [_layout(item) for item in items]
        return outputs

    return applied


def _is_of(node: Any, function: Any) -> bool:
    return isinstance(node, BackwardCFunction) and node._forward_cls is function


def _layout(item: Any) -> Layout | None:
    return Layout(tuple(item.shape), item.dtype, item.device) if isinstance(item, torch.Tensor) else None


def _recording_layouts(set_materialize_grads: Callable[[Any, bool], None]) -> Callable[[Any, bool], None]:
    def noted(ctx: Any, value: bool) -> None:
        set_materialize_grads(ctx, value)
        setattr(ctx, _MATERIALIZES, value)

    return noted


Node = Any
"""A node of torch's autograd graph, as Python code accesses it."""
Gradient = Any
"""A tensor, or ``None`` where nothing flows."""


def sources_of(roots: Iterable[Node]) -> dict[Node, list[Node]]:
    """For each node that is reachable from some roots, those from which an edge leads to it, as often as one does."""
    sources: dict[Node, list[Node]] = {root: [] for root in roots}
    stack, visited = list(sources), set()
    while stack:
        node = stack.pop()
        if node not in visited:
            visited.add(node)
            for following in _following(node):
                sources.setdefault(following, []).append(node)
                stack.append(following)
    return sources


def leading_to(wanted: Iterable[Node], sources: Mapping[Node, Sequence[Node]]) -> set[Node]:
    """The nodes that have to run for gradients to arrive at ``wanted``."""
    leading: set[Node] = set()
    stack = [source for node in wanted for source in sources.get(node, ())]
    while stack:
        node = stack.pop()
        if node not in leading:
            leading.add(node)
            stack.extend(sources[node])
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
        sources = sources_of(edge.node for edge in self._roots)
        self._waiting = {node: len(above) for node, above in sources.items()}
        self._running = leading_to((node for node, _ in self._wanted), sources) if wanted else set(sources)
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
        inputs = self._inputs.pop(node, {})
        apply_hooks(node, inputs)
        for number, gradient in inputs.items():
            for place in self._wanted.get((node, number), ()):
                self._results[place] = gradient
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


def engine(original: Callable[..., Any], entered_modes: EnterModes, watch: Watch) -> Callable[..., Any]:
    """The replacement of ``torch.autograd``'s ``_engine_run_backward``: this engine for stand-ins, torch's for real
    tensors.

    ``entered_modes()`` is entered around a pass: ``Tensor.backward`` is a torch function, so that torch has taken
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
        with nullcontext() if traced else entered_modes():
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
    outputs = _as_tuple(node.apply(*filled(node, gradients)))
    expected = len(node.needs_input_grad)
    if len(outputs) < expected or any(gradient is not None for gradient in outputs[expected:]):
        raise RuntimeError(
            f"function {node.name()} returned an incorrect number of gradients "
            f"(expected {expected}, got {len(outputs)})"
        )
    needed = (gradient for gradient, n in zip(outputs, node.needs_input_grad, strict=False) if n)
    return tuple(None if f is None else next(needed, None) for f, _ in node.next_functions)


def _as_tuple(outputs: Any) -> tuple[Gradient, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _accumulate(leaf: torch.Tensor, gradient: Gradient) -> None:
    leaf.grad = gradient.detach() if leaf.grad is None else leaf.grad + gradient
    for hook in tuple((getattr(leaf, "_post_accumulate_grad_hooks", None) or {}).values()):
        hook(leaf)


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
