"""Gradients of gradients through an autograd.Function whose backward pass is written for speed."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Backward = Callable[[Any, Tensor], tuple[Tensor | None, ...]]


def twice_differentiable(formula: Callable[..., Tensor]) -> Callable[[Backward], Backward]:
    """Decorate the ``backward`` of a :class:`torch.autograd.Function` with one result.

    The decorated backward computes ordinary gradients. Where the gradient is differentiated itself
    (``create_graph=True``), autograd derives it from ``formula`` instead: to any order, in more time and memory.
    :func:`torch.autograd.function.once_differentiable` is no substitute: it gives a wrong second derivative without an
    error if the upstream gradient is a constant.

    Args:
        formula: the forward pass in differentiable operations: a function of ``ctx.saved_tensors``, which must be the
            first arguments of the forward pass, and ``ctx.settings``.
    """

    def decorate(backward: Backward) -> Backward:
        @functools.wraps(backward)
        def choose(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
            if not torch.is_grad_enabled() or torch.compiler.is_compiling():  # compiled, torch refuses create_graph
                return backward(ctx, upstream)
            # Aliases: one tensor may be two arguments, each with a gradient of its own.
            inputs = [None if tensor is None else tensor.view_as(tensor) for tensor in ctx.saved_tensors]
            needs_gradient = zip(inputs, ctx.needs_input_grad, strict=False)
            needed = [tensor for tensor, needs in needs_gradient if needs and tensor is not None]
            with torch.autocast(upstream.device.type, enabled=False):
                result = formula(*inputs, *ctx.settings)
            gradients = iter(torch.autograd.grad(result, needed, upstream, create_graph=True))
            return tuple(next(gradients) if needs else None for needs in ctx.needs_input_grad)

        return choose

    return decorate
