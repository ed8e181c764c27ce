"""Functions that torch.compile calls as they are, instead of tracing what they do.

A loop over the tokens, traced, is a graph for one number of tokens only. Unlike :func:`torch.library.custom_op`, calls
do not import the compiler, which takes more than a second.
"""

from collections.abc import Callable
from typing import Any

import torch

_LIBRARY = torch.library.Library("posnet", "FRAGMENT")


def operator(schema: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function of tensors without derivatives as the operator of a schema, ``name(Tensor x) -> Tensor``.

    `fake` has the same arguments and returns empty tensors of the same shapes and types.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        name = schema.partition("(")[0]
        _LIBRARY.define(schema)
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"posnet::{name}", fake, lib=_LIBRARY)
        return getattr(torch.ops.posnet, name).default

    return decorate
