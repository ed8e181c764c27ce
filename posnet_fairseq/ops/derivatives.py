"""Gradients of gradients through an autograd.Function whose backward pass is made for speed."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor


def twice_differentiable(formula: Callable[..., Tensor]) -> Callable:
    """Decorator of the ``backward`` of a :class:`torch.autograd.Function` with one result.

    The decorated backward serves ordinary gradients. Where the gradient will be differentiated itself
    (``create_graph=True``), it is made by torch from `formula` instead: of any order, in more time and memory.
    :func:`torch.autograd.function.once_differentiable` is no substitute: it gives a wrong second derivative without an
    error if the gradient that comes from above is a constant.

    Args:
        formula: what the forward pass computes, in operations that torch can differentiate: a function of
            ``ctx.saved_tensors``, all of them arguments of the forward pass and its first ones, and ``ctx.settings``.
    """

    def decorate(backward):
        @functools.wraps(backward)
        def choose(ctx, upstream):
            if not torch.is_grad_enabled() or torch.compiler.is_compiling():  # compiled, torch refuses create_graph
                return backward(ctx, upstream)
            # Aliases: one tensor may be two arguments, each with a gradient of its own.
            inputs = [None if tensor is None else tensor.view_as(tensor) for tensor in ctx.saved_tensors]
            needed = [tensor for tensor, needs in zip(inputs, ctx.needs_input_grad, strict=False) if needs]
            with torch.autocast(upstream.device.type, enabled=False):
                result = formula(*inputs, *ctx.settings)
            gradients = iter(torch.autograd.grad(result, needed, upstream, create_graph=True))
            return tuple(next(gradients) if needs else None for needs in ctx.needs_input_grad)

        return choose

    return decorate
