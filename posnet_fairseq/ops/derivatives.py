"""Backward passes that are written by hand, and have no derivatives themselves."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from posnet_fairseq.shared.errors import UsageError


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the ``backward`` of a :class:`torch.autograd.Function`: refuse to differentiate its gradients.

    torch's decorator of this name refuses less: where the upstream gradient is a constant, it gives a wrong second
    derivative without an error.
    """

    @functools.wraps(backward)
    def refusing(ctx: Any, *upstream: Any) -> Any:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # compiled, torch refuses create_graph
            raise UsageError("create_graph=True: this layer has no second derivatives. Leave create_graph out.")
        return backward(ctx, *upstream)

    return refusing
