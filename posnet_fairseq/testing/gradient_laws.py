"""What must hold for the gradients of every token mixer. Laws as in :mod:`posnet_fairseq.testing.mixer_laws`."""

import copy
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import grad
from torch.func import functional_call

from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.testing.calls import CLOSE, call, inputs_of


def _gradients(output: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return grad(output.pow(2).sum(), inputs, allow_unused=True, materialize_grads=True)


def second_derivatives_are_right_or_refused(mixer: TokenMixer) -> None:
    """Against differences of first ones, where the gradient that comes from above is constant and where it is not.

    Neither torch's own attention nor products by offset have second derivatives, and say so.
    """
    query, memory, context = call(mixer)
    inputs = [*inputs_of(query, memory, context), *mixer.parameters()]
    cotangent, directions = torch.randn_like(query), [torch.randn_like(x) for x in inputs]
    step = 1e-5

    def gradient(power: int, create_graph: bool = False) -> tuple[Tensor, ...]:
        loss = (mixer(query, memory, **context).pow(power) * cotangent).sum()
        return grad(loss, inputs, create_graph=create_graph, allow_unused=True, materialize_grads=True)

    @torch.no_grad()
    def move(by: float) -> None:
        for x, direction in zip(inputs, directions, strict=True):
            x.add_(by * direction)

    def moved(power: int, by: float) -> tuple[Tensor, ...]:
        move(by)
        gradients = gradient(power)
        move(-by)
        return gradients

    for power in (1, 2):
        try:
            pairs = zip(gradient(power, create_graph=True), directions, strict=True)
            along = torch.stack([(g * d).sum() for g, d in pairs]).sum()
            second = grad(along, inputs, allow_unused=True, materialize_grads=True)
        except (RuntimeError, UsageError) as error:
            if re.search(r"derivative for \S+ is not implemented|no second derivatives", str(error)):
                continue
            raise
        for got, after, before in zip(second, moved(power, step), moved(power, -step), strict=True):
            torch.testing.assert_close(got, (after - before) / (2 * step), rtol=1e-4, atol=1e-4)


def gradients_are_those_of_the_call(mixer: TokenMixer) -> None:
    """With other parameters for one call (torch.func.functional_call), gradients are theirs."""
    query, memory, context = call(mixer)
    others = {name: (p + 0.3 * torch.randn_like(p)).detach().requires_grad_() for name, p in mixer.named_parameters()}
    own = copy.deepcopy(mixer)
    own.load_state_dict(others, strict=False)
    results = []
    for output, parameters in (
        (own(query, memory, **context), [*own.parameters()]),
        (functional_call(mixer, others, (query, memory), context), [*others.values()]),
    ):
        inputs = [*inputs_of(query, memory, context), *parameters]
        results.append((output, _gradients(output, inputs)))
    torch.testing.assert_close(*results, **CLOSE)


def transforms_are_right_or_refused(mixer: TokenMixer) -> None:
    """torch.func.grad gives the gradients of autograd, or torch says that it does not know this backward pass."""
    query, memory, context = call(mixer)
    own = dict(mixer.named_parameters())
    if not own:
        return

    def loss(parameters: dict[str, Any]) -> Tensor:
        return functional_call(mixer, parameters, (query, memory), context).pow(2).sum()

    try:
        transformed = torch.func.grad(loss)({name: p.detach() for name, p in own.items()})
    except RuntimeError as error:
        # torch's own words about an autograd.Function as most are, and about weights that are made again.
        if re.search(r"override the setup_context staticmethod|support saved tensor hooks", str(error)):
            return
        raise
    expected = grad(loss(own), [*own.values()], allow_unused=True, materialize_grads=True)
    torch.testing.assert_close([*transformed.values()], [*expected], **CLOSE)


def dropout_of_the_backward_pass_is_that_of_the_forward_pass(mixer: TokenMixer) -> None:
    """Also where weights are made again, and the mixer was switched to evaluation before; against differences."""
    mixer.train().dropout.p = 0.5
    query, memory, context = call(mixer)
    inputs, gradients = [*inputs_of(query, memory, context), *mixer.parameters()], []
    for switched in (False, True):
        torch.manual_seed(1)
        output = mixer.train()(query, memory, **context)
        mixer.train(not switched)
        gradients.append(_gradients(output, inputs))
    torch.testing.assert_close(*gradients, **CLOSE)
    directions, step = [torch.randn_like(x) for x in inputs], 1e-6

    def moved(by: float) -> Tensor:
        with torch.no_grad():
            for x, direction in zip(inputs, directions, strict=True):
                x.add_(by * direction)
        torch.manual_seed(1)
        return mixer.train()(query, memory, **context).pow(2).sum().detach()

    difference = (moved(step) - moved(-2 * step)) / (2 * step)
    along = torch.stack([(g * d).sum() for g, d in zip(gradients[0], directions, strict=True)]).sum()
    torch.testing.assert_close(along, difference, rtol=1e-5, atol=1e-5)


def layout_in_memory_changes_nothing(mixer: TokenMixer) -> None:
    """Tensors with other strides give the same result and gradients."""
    query, memory, context = call(mixer)
    expected = mixer(query, memory, **context)
    inputs = [*inputs_of(query, memory, context), *mixer.parameters()]
    gradients = _gradients(expected, inputs)

    def strided(x: Tensor) -> Tensor:
        return torch.stack([x, x], dim=-1).permute(-1, *reversed(range(x.dim())))[0].permute(*reversed(range(x.dim())))

    other = strided(query)
    context |= {name: strided(context[name]) for name in ("positions", "memory_positions")}
    output = mixer(other, strided(memory) if mixer.place == "cross" else other, **context)
    torch.testing.assert_close(output, expected, **CLOSE)
    again = _gradients(output, inputs)
    torch.testing.assert_close(again, gradients, **CLOSE)


def what_needs_no_gradient_changes_no_other(mixer: TokenMixer) -> None:
    """Frozen parameters, or tokens without gradients."""
    query, memory, context = call(mixer)
    output = mixer(query, memory, **context)
    inputs, parameters = inputs_of(query, memory, context), [*mixer.parameters()]
    expected = _gradients(output, [*inputs, *parameters])
    frozen = context | {name: context[name].detach() for name in ("positions", "memory_positions")}
    if parameters:
        constant = query.detach()
        output = mixer(constant, memory.detach() if mixer.place == "cross" else constant, **frozen)
        got = _gradients(output, parameters)
        torch.testing.assert_close(got, expected[len(inputs) :], **CLOSE)
    for parameter in parameters:
        parameter.requires_grad_(False)
    output = mixer(query, memory, **context)
    got = _gradients(output, inputs)
    torch.testing.assert_close(got, expected[: len(inputs)], **CLOSE)
