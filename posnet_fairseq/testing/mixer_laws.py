"""What must hold for every token mixer by itself. Each law takes a mixer, in float64, and raises AssertionError."""

import copy
import functools
import io
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import grad
from torch.func import functional_call

from posnet_fairseq.mixers.bases.decoding_state import DecodingState
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.shared.errors import UsageError

Arguments = dict[str, Any]

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
LENGTHS = (7, 3)


def tokens(mixer: TokenMixer, length: int = LENGTHS[0]) -> Tensor:
    """Two sentences, (2, N, D), that ask for gradients."""
    return torch.randn(len(LENGTHS), length, mixer.embed_dim, dtype=torch.float64, requires_grad=True)


def call(mixer: TokenMixer) -> tuple[Tensor, Tensor, Arguments]:
    """Query, memory and other arguments of a padded batch with positions, all asking for gradients."""
    query = tokens(mixer)
    memory = tokens(mixer, LENGTHS[0] + 1) if mixer.place == "cross" else query
    p = torch.randn(2, 20, mixer.embed_dim, dtype=torch.float64)
    keys = memory.size(1)
    return (
        query,
        memory,
        {
            "positions": p[0].requires_grad_(),
            "memory_positions": p[1].requires_grad_(),
            "padding_mask": None if mixer.place == "decoder" else torch.arange(keys) >= torch.tensor([[keys], [3]]),
            "length_ratio": (5, 4) if mixer.place == "cross" else (1, 1),
        },
    )


def inputs_of(query: Tensor, memory: Tensor, arguments: Arguments) -> list[Tensor]:
    """The tensors of a call that ask for gradients."""
    vectors = [arguments["positions"], arguments["memory_positions"]]
    return [query, *([memory] if memory is not query else []), *vectors]


def begin(mixer: TokenMixer, memory: Tensor, arguments: Arguments, batch_size: int = len(LENGTHS)) -> DecodingState:
    """The state before the first step."""
    if mixer.place != "cross":
        return mixer.init_state(batch_size)
    names = ("padding_mask", "memory_positions", "length_ratio")
    return mixer.init_state(batch_size, memory, **{name: arguments[name] for name in names})


def steps(
    mixer: TokenMixer, query: Tensor, memory: Tensor, arguments: Arguments, state: DecodingState | None = None
) -> Tensor:
    """One query after another, (B, N, D)."""
    state = state or begin(mixer, memory, arguments)
    rows = query.split(1, dim=1)
    return torch.cat([mixer.step(row, state, arguments["positions"]) for row in rows], dim=1)


def ways(mixer: TokenMixer) -> list[Callable[[Tensor, Tensor, Arguments], Tensor]]:
    """How the mixer can be called: at once, and step by step."""

    def at_once(query: Tensor, memory: Tensor, arguments: Arguments) -> Tensor:
        return mixer(query, memory, **arguments)

    def in_steps(query: Tensor, memory: Tensor, arguments: Arguments) -> Tensor:
        return steps(mixer, query, memory, arguments)

    return [at_once] if mixer.place == "encoder" else [at_once, in_steps]


def steps_equal_the_full_pass(mixer: TokenMixer) -> None:
    """Also when hypotheses change places, and when a sentence of cross-attention has several."""
    if mixer.place == "encoder":
        return
    query, memory, arguments = call(mixer)
    expected = mixer(query, memory, **arguments)
    torch.testing.assert_close(steps(mixer, query, memory, arguments), expected, **CLOSE)
    order = torch.tensor([1, 1, 0])
    state = begin(mixer, memory, arguments)
    steps(mixer, query[:, :3], memory, arguments, state)
    state.reorder(order)
    rest = steps(mixer, query[order][:, 3:], memory, arguments, state)
    torch.testing.assert_close(rest, expected[order][:, 3:], **CLOSE)
    if mixer.place == "cross":
        several = query.repeat_interleave(3, dim=0) + torch.randn(6, 1, mixer.embed_dim, dtype=query.dtype)
        wide = arguments | {"padding_mask": arguments["padding_mask"].repeat_interleave(3, dim=0)}
        expected = mixer(several, memory.repeat_interleave(3, dim=0), **wide)
        state = begin(mixer, memory, arguments, batch_size=6)
        torch.testing.assert_close(steps(mixer, several, memory, arguments, state), expected, **CLOSE)


def padding_changes_nothing(mixer: TokenMixer) -> None:
    """The result for a padded sentence equals that for the sentence by itself."""
    if mixer.place == "decoder":
        return
    query, memory, arguments = call(mixer)
    keys, together = 3, mixer(query, memory, **arguments)
    queries = query.size(1) if mixer.place == "cross" else keys
    alone = mixer(query[1:, :queries], memory[1:, :keys], **arguments | {"padding_mask": None})
    torch.testing.assert_close(together[1:, :queries], alone, **CLOSE)


def the_future_changes_nothing(mixer: TokenMixer) -> None:
    """A later token changes no earlier result of a causal mixer."""
    if not mixer.causal:
        return
    query, _, arguments = call(mixer)
    before = mixer(query, query, **arguments)
    changed = torch.cat([query[:, :4], torch.randn_like(query[:, 4:])], dim=1)
    torch.testing.assert_close(mixer(changed, changed, **arguments)[:, :4], before[:, :4], rtol=0, atol=0)


def saving_and_loading_change_nothing(mixer: TokenMixer) -> None:
    """Weights loaded into another mixer of the same settings give the same result."""
    query, memory, arguments = call(mixer)
    twin = copy.deepcopy(mixer)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(torch.randn_like(parameter))
    twin.load_state_dict(_saved_and_loaded(mixer.state_dict()))
    expected = mixer(query, memory, **arguments)
    torch.testing.assert_close(twin(query, memory, **arguments), expected, rtol=0, atol=0)


def half_precision_stays_finite(mixer: TokenMixer) -> None:
    """In float16 and bfloat16, also for a sentence of padding only."""
    for dtype in (torch.float16, torch.bfloat16):
        half = copy.deepcopy(mixer).to(dtype)
        query, memory, arguments = call(mixer)
        query, memory = query.detach().to(dtype), (memory if memory is not query else query).detach().to(dtype)
        arguments |= {name: arguments[name].detach().to(dtype) for name in ("positions", "memory_positions")}
        if arguments["padding_mask"] is not None:
            arguments["padding_mask"] = arguments["padding_mask"] | torch.tensor([[False], [True]])
        result = half(query, memory, **arguments)
        assert result.dtype == dtype
        assert result.isfinite().all(), f"not finite in {dtype}"


def every_length_works(mixer: TokenMixer) -> None:
    """One token, and as many as the mixer has positions."""
    for length in (1, mixer.max_positions):
        query = tokens(mixer, length)
        vectors = torch.randn(2, 2 * length, mixer.embed_dim, dtype=torch.float64)
        result = mixer(query, query, positions=vectors[0], memory_positions=vectors[1])
        assert result.shape == query.shape
        assert result.isfinite().all()


def weights_sum_the_values(mixer: TokenMixer) -> None:
    """Asking for the weights changes no result."""
    query, memory, arguments = call(mixer)
    result, weights = mixer(query, memory, **arguments, need_weights=True)
    torch.testing.assert_close(result, mixer(query, memory, **arguments), **CLOSE)
    assert weights is None or weights.shape[-2:] == (query.size(1), memory.size(1))


def retained_dropout_is_that_of_training(mixer: TokenMixer) -> None:
    """fairseq's --retain-dropout: after training, what was dropped in it is dropped still."""
    arguments = call(mixer)
    mixer.dropout.p = 0.5
    for run in ways(mixer):

        def output(seed, run=run):
            torch.manual_seed(seed)
            return run(*arguments)

        trained, plain = (mixer.train(mode) and output(1) for mode in (True, False))
        torch.testing.assert_close(output(2), plain, **CLOSE)
        mixer.apply(lambda module: _retain(module))
        torch.testing.assert_close(output(1), trained, **CLOSE)
        if mixer.name != "fouriernet":  # which has no weights to drop
            assert not torch.allclose(output(1), plain)
            assert not torch.allclose(output(1), output(2))
        mixer.dropout.retained = False


def _retain(module):
    if hasattr(module, "make_generation_fast_"):
        module.make_generation_fast_(name="", retain_dropout=True)


def hypotheses_drop_weights_of_their_own(mixer: TokenMixer) -> None:
    """With dropout retained, hypotheses of a sentence drop different weights, as sentences of a batch do."""
    mixer.dropout.p, mixer.dropout.retained = 0.5, True
    query, memory, context = call(mixer)
    one = query[:, :1].repeat_interleave(4, dim=0)
    output = mixer.step(one, begin(mixer, memory, context, batch_size=8), context["positions"])
    for sentence in output.flatten(1).split(4):
        assert len(sentence.unique(dim=0)) > 1


def second_derivatives_are_right(mixer: TokenMixer) -> None:
    """Against differences of first ones, where the gradient that comes from above is constant and where it is not.

    An error is right, too: torch's own attention has no second derivative.
    """
    query, memory, context = call(mixer)
    inputs = [*inputs_of(query, memory, context), *mixer.parameters()]
    cotangent, directions = torch.randn_like(query), [torch.randn_like(x) for x in inputs]
    step = 1e-5

    def gradient(power, create_graph=False):
        loss = (mixer(query, memory, **context).pow(power) * cotangent).sum()
        return grad(loss, inputs, create_graph=create_graph, allow_unused=True, materialize_grads=True)

    def moved(power, by):
        with torch.no_grad():
            for x, direction in zip(inputs, directions, strict=True):
                x.add_(by * direction)
        moved = gradient(power)
        with torch.no_grad():
            for x, direction in zip(inputs, directions, strict=True):
                x.sub_(by * direction)
        return moved

    for power in (1, 2):
        along = sum((g * d).sum() for g, d in zip(gradient(power, create_graph=True), directions, strict=True))
        try:
            second = grad(along, inputs, allow_unused=True, materialize_grads=True)
        except RuntimeError as error:
            if "is not implemented" in str(error):
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
        results.append((output, grad(output.pow(2).sum(), inputs, allow_unused=True, materialize_grads=True)))
    torch.testing.assert_close(*results, **CLOSE)


def transforms_are_right_or_refused(mixer: TokenMixer) -> None:
    """torch.func.grad gives the gradients of autograd, or an error."""
    query, memory, context = call(mixer)
    own = dict(mixer.named_parameters())
    if not own:
        return

    def loss(parameters):
        return functional_call(mixer, parameters, (query, memory), context).pow(2).sum()

    try:
        transformed = torch.func.grad(loss)({name: p.detach() for name, p in own.items()})
    except RuntimeError:
        return
    expected = grad(loss(own), [*own.values()], allow_unused=True, materialize_grads=True)
    torch.testing.assert_close([*transformed.values()], [*expected], **CLOSE)


def dropout_of_the_backward_pass_is_that_of_the_forward_pass(mixer: TokenMixer) -> None:
    """Also where weights are made again, and the mixer was switched to evaluation before."""
    mixer.train().dropout.p = 0.5
    query, memory, context = call(mixer)
    inputs, gradients = [*inputs_of(query, memory, context), *mixer.parameters()], []
    for switched in (False, True):
        torch.manual_seed(1)
        output = mixer.train()(query, memory, **context)
        mixer.train(not switched)
        gradients.append(grad(output.pow(2).sum(), inputs, allow_unused=True, materialize_grads=True))
    torch.testing.assert_close(*gradients, **CLOSE)


def a_prompt_is_refused(mixer: TokenMixer) -> None:
    """Several tokens in one step, before the first one and after some."""
    query, memory, context = call(mixer)
    for before in (0, 2):
        state = begin(mixer, memory, context)
        if before:
            steps(mixer, query[:, :before], memory, context, state)
        prompt = functools.partial(mixer.step, query[:, before:], state)
        _refused(prompt, "takes one new token of every hypothesis")
    _refused(lambda: mixer.step(query[:1, :1], begin(mixer, memory, context)), "1 queries for a state of 2 hypotheses")


def padding_before_tokens_is_refused(mixer: TokenMixer) -> None:
    """Left padding."""
    query, memory, context = call(mixer)
    keys = memory.size(1)
    left = torch.arange(keys) < torch.tensor([[0], [keys - 3]])
    _refused(lambda: mixer(query, memory, **context | {"padding_mask": left}), "padding before tokens")


def arguments_that_do_not_fit_are_refused(mixer: TokenMixer) -> None:
    """Arguments that broadcasting would silently accept."""
    query, memory, context = call(mixer)
    mask = torch.zeros(memory.shape[:2], dtype=torch.bool)

    def refused(sentence: str, query: Tensor = query, memory: Tensor = memory, **changes: Any) -> None:
        _refused(lambda: mixer(query, memory, **context | {"padding_mask": None} | changes), sentence)

    for wrong in (mask[:1], mask[:, :1], mask.byte()):
        refused("padding_mask", padding_mask=wrong)
    refused("1 × 7 queries", query[:1])
    if mixer.place != "cross":
        refused("2 × 4 queries, memory for 2 × 7", query[:, :4])
    for empty in (query[:0], query[:, :0]):
        refused("nothing to mix", empty, memory if mixer.place == "cross" else empty)
    if mixer.place == "cross":
        refused("nothing to mix", memory=memory[:, :0])
        _refused(lambda: mixer(query), "memory is missing")
    if mixer.reads_positions:
        for positions in (None, context["positions"][:1]):
            refused("positions", positions=positions)
    if mixer.place == "cross" and mixer.reads_memory_positions:
        for positions in (None, context["positions"][:1]):
            refused("memory_positions", memory_positions=positions)


def _refused(run: Callable[[], object], sentence: str) -> None:
    try:
        run()
    except UsageError as error:
        said = str(error)
    else:
        said = "it was not refused"
    assert sentence in said, f"expected a refusal with {sentence!r}: {said}"


def arguments_and_states_are_left_alone(mixer: TokenMixer) -> None:
    """No tensor of the caller's, and none that an earlier step has put into the state, is changed in place."""
    query, memory, context = call(mixer)
    ours = [query, memory, context["positions"], context["memory_positions"], context["padding_mask"]]
    ours = [tensor for tensor in ours if tensor is not None]
    before = [tensor.detach().clone() for tensor in ours]
    output = mixer(query, memory, **context)
    output.sum().backward()
    kept = output.detach().clone()
    if mixer.place != "encoder":
        state = begin(mixer, memory, context)
        steps(mixer, query[:, :4], memory, context, state)
        rows = state.rows
        ours, before = [*ours, *rows.values()], [*before, *(tensor.detach().clone() for tensor in rows.values())]
        mixer.step(query[:, 4:5], state, context["positions"])
    torch.testing.assert_close([tensor.detach() for tensor in ours], before, rtol=0, atol=0)
    torch.testing.assert_close(output.detach(), kept, rtol=0, atol=0)


def layout_in_memory_changes_nothing(mixer: TokenMixer) -> None:
    """Tensors with other strides give the same result and gradients."""
    query, memory, context = call(mixer)
    expected = mixer(query, memory, **context)
    inputs = [*inputs_of(query, memory, context), *mixer.parameters()]
    gradients = grad(expected.pow(2).sum(), inputs, allow_unused=True, materialize_grads=True)

    def strided(x: Tensor) -> Tensor:
        return torch.stack([x, x], dim=-1).permute(-1, *reversed(range(x.dim())))[0].permute(*reversed(range(x.dim())))

    other = strided(query)
    context |= {name: strided(context[name]) for name in ("positions", "memory_positions")}
    output = mixer(other, strided(memory) if mixer.place == "cross" else other, **context)
    torch.testing.assert_close(output, expected, **CLOSE)
    again = grad(output.pow(2).sum(), inputs, allow_unused=True, materialize_grads=True)
    torch.testing.assert_close(again, gradients, **CLOSE)


def what_needs_no_gradient_changes_no_other(mixer: TokenMixer) -> None:
    """Frozen parameters, or tokens without gradients."""
    query, memory, context = call(mixer)
    output = mixer(query, memory, **context)
    inputs, parameters = inputs_of(query, memory, context), [*mixer.parameters()]
    expected = grad(output.pow(2).sum(), [*inputs, *parameters], allow_unused=True, materialize_grads=True)
    frozen = context | {name: context[name].detach() for name in ("positions", "memory_positions")}
    if parameters:
        constant = query.detach()
        output = mixer(constant, memory.detach() if mixer.place == "cross" else constant, **frozen)
        got = grad(output.pow(2).sum(), parameters, allow_unused=True, materialize_grads=True)
        torch.testing.assert_close(got, expected[len(inputs) :], **CLOSE)
    for parameter in parameters:
        parameter.requires_grad_(False)
    output = mixer(query, memory, **context)
    got = grad(output.pow(2).sum(), inputs, allow_unused=True, materialize_grads=True)
    torch.testing.assert_close(got, expected[: len(inputs)], **CLOSE)


def a_copy_is_the_same_mixer_with_a_state_of_its_own(mixer: TokenMixer) -> None:
    """Layers of one decoder may be copies of each other."""
    query, memory, context = call(mixer)
    expected = mixer(query, memory, **context)
    for twin in (copy.deepcopy(mixer), pickle.loads(pickle.dumps(mixer))):
        torch.testing.assert_close(twin(query, memory, **context), expected, rtol=0, atol=0)
        if mixer.place != "encoder":
            stacked = [steps(layer, query, memory, context) for layer in (mixer, twin)]
            torch.testing.assert_close(*stacked, rtol=0, atol=0)


def other_precisions_round_and_nothing_else(mixer: TokenMixer) -> None:
    """Saved in one precision and loaded in another; float32 is close to float64."""
    query, memory, context = call(mixer)
    expected = mixer(query, memory, **context)
    single = copy.deepcopy(mixer).float()
    single.load_state_dict(_saved_and_loaded(mixer.state_dict()))
    assert {p.dtype for p in single.parameters()} <= {torch.float32}
    context |= {name: context[name].float() for name in ("positions", "memory_positions")}
    output = single(query.float(), memory.float() if mixer.place == "cross" else query.float(), **context)
    torch.testing.assert_close(output.double(), expected, rtol=1e-3, atol=1e-4)
    twin = copy.deepcopy(mixer)
    twin.load_state_dict(single.state_dict())
    assert {p.dtype for p in twin.parameters()} <= {torch.float64}
    for name, tensor in twin.state_dict().items():
        torch.testing.assert_close(tensor, mixer.state_dict()[name], rtol=1e-6, atol=1e-6)


def _saved_and_loaded(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    file = io.BytesIO()
    torch.save(weights, file)
    file.seek(0)
    return torch.load(file, weights_only=True)
