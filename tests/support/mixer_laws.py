"""What must hold for every token mixer by itself. Each law takes a mixer, in float64, and raises AssertionError."""

import copy
import io
import pickle
from dataclasses import replace

import torch
from torch.autograd import grad
from torch.func import functional_call

from posnet_fairseq.mixers.bases.token_mixer import MixingContext
from posnet_fairseq.shared.errors import UsageError

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
LENGTHS = (7, 3)


def tokens(mixer, length=LENGTHS[0]):
    return torch.randn(len(LENGTHS), length, mixer.embed_dim, dtype=torch.float64, requires_grad=True)


def call(mixer):
    """Query, memory and context of a padded batch with positions, all of them asking for gradients."""
    query = tokens(mixer)
    memory = tokens(mixer, LENGTHS[0] + 1) if mixer.place == "cross" else query
    p = torch.randn(2, 20, mixer.embed_dim, dtype=torch.float64)
    keys = memory.size(1)
    context = MixingContext(
        positions=p[0].requires_grad_(),
        memory_positions=p[1].requires_grad_(),
        padding_mask=None if mixer.place == "decoder" else torch.arange(keys) >= torch.tensor([[keys], [3]]),
        length_ratio=(5, 4) if mixer.place == "cross" else (1, 1),
    )
    return query, memory, context


def inputs_of(query, memory, context):
    return [query, *([memory] if memory is not query else []), context.positions, context.memory_positions]


def steps(mixer, query, memory, context, state=None):
    """The same as a full pass, one query after another, (B, N, D)."""
    state, outputs = {} if state is None else state, []
    for n in range(query.size(1)):
        new = query[:, n : n + 1]
        here = replace(context, first=n, ahead=query.size(1), state=mixer.decoding_state(state))
        outputs.append(mixer(new, memory if mixer.place == "cross" else new, here)[0])
    return torch.cat(outputs, dim=1)


def ways(mixer):
    """How the mixer can be called, functions of query, memory and context: at once, and step by step."""
    return [mixer] if mixer.place == "encoder" else [mixer, lambda *arguments: (steps(mixer, *arguments), None)]


def retained_dropout_is_that_of_training(mixer):
    """fairseq's --retain-dropout: after training, what was dropped in it is dropped still."""
    arguments = call(mixer)
    mixer.dropout.p = 0.5
    for run in ways(mixer):

        def output(seed, run=run):
            torch.manual_seed(seed)
            return run(*arguments)[0]

        trained, plain = (mixer.train(mode) and output(1) for mode in (True, False))
        torch.testing.assert_close(output(2), plain, **CLOSE)
        mixer.apply(lambda module: _retain(module))
        torch.testing.assert_close(output(1), trained, **CLOSE)
        if mixer.name != "fouriernet":  # which has no weights to drop
            assert not torch.allclose(output(1), plain)
            assert not torch.allclose(output(1), output(2))
        mixer.dropout.apply_during_inference = False


def _retain(module):
    if hasattr(module, "make_generation_fast_"):
        module.make_generation_fast_(name="", retain_dropout=True)


def hypotheses_drop_weights_of_their_own(mixer):
    """As in training, where each is a sentence of the batch."""
    mixer.dropout.p, mixer.dropout.apply_during_inference = 0.5, True
    query, memory, context = call(mixer)
    one = query[:, :1].repeat_interleave(4, dim=0)
    output, _ = mixer(one, memory, replace(context, hypotheses=4, ahead=9, state=mixer.decoding_state({})))
    for sentence in output.flatten(1).split(4):
        assert len(sentence.unique(dim=0)) > 1


def second_derivatives_are_right(mixer):
    """Against differences of first ones, where the gradient that comes from above is constant and where it is not.

    An error is right, too: torch's own attention has no second derivative.
    """
    query, memory, context = call(mixer)
    inputs = [*inputs_of(query, memory, context), *mixer.parameters()]
    cotangent, directions = torch.randn_like(query), [torch.randn_like(x) for x in inputs]
    step = 1e-5

    def gradient(power, create_graph=False):
        loss = (mixer(query, memory, context)[0].pow(power) * cotangent).sum()
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


def gradients_are_those_of_the_call(mixer):
    """With other parameters and buffers for one call (torch.func.functional_call), their gradients are those that a
    mixer has whose own they are."""
    query, memory, context = call(mixer)
    others = {name: (p + 0.3 * torch.randn_like(p)).detach().requires_grad_() for name, p in mixer.named_parameters()}
    own = copy.deepcopy(mixer)
    own.load_state_dict(others, strict=False)
    results = []
    for run, parameters in (
        (own, [*own.parameters()]),
        (lambda *arguments: functional_call(mixer, others, arguments), [*others.values()]),
    ):
        output, _ = run(query, memory, context)
        inputs = [*inputs_of(query, memory, context), *parameters]
        results.append((output, grad(output.pow(2).sum(), inputs, allow_unused=True, materialize_grads=True)))
    torch.testing.assert_close(*results, **CLOSE)


def transforms_are_right_or_refused(mixer):
    """torch.func.grad gives the gradients of autograd, or an error."""
    query, memory, context = call(mixer)
    own = dict(mixer.named_parameters())
    if not own:
        return

    def loss(parameters):
        return functional_call(mixer, parameters, (query, memory, context))[0].pow(2).sum()

    try:
        transformed = torch.func.grad(loss)({name: p.detach() for name, p in own.items()})
    except RuntimeError:
        return
    expected = grad(loss(own), [*own.values()], allow_unused=True, materialize_grads=True)
    torch.testing.assert_close([*transformed.values()], [*expected], **CLOSE)


def dropout_of_the_backward_pass_is_that_of_the_forward_pass(mixer):
    """Also where weights are made again, and the mixer was switched to evaluation before."""
    mixer.train().dropout.p = 0.5
    query, memory, context = call(mixer)
    inputs, gradients = [*inputs_of(query, memory, context), *mixer.parameters()], []
    for switched in (False, True):
        torch.manual_seed(1)
        output, _ = mixer.train()(query, memory, context)
        mixer.train(not switched)
        gradients.append(grad(output.pow(2).sum(), inputs, allow_unused=True, materialize_grads=True))
    torch.testing.assert_close(*gradients, **CLOSE)


def a_prompt_is_refused_or_right(mixer):
    """Several tokens at once, with a state: before the first step, and after some."""
    query, memory, context = call(mixer)
    expected, _ = mixer(query, memory, context)
    for before in (0, 2):
        state = {}
        if before:
            steps(mixer, query[:, :before], memory, context, state)
        here = replace(context, first=before, ahead=query.size(1), state=mixer.decoding_state(state))
        prompt = query[:, before:]
        result = _result(mixer, prompt, memory if mixer.place == "cross" else prompt, here)
        if torch.is_tensor(result):
            torch.testing.assert_close(result, expected[:, before:], **CLOSE)
        else:
            assert "takes one new token of every hypothesis" in result


def a_step_that_was_left_out_is_refused_or_right(mixer):
    query, memory, context = call(mixer)
    expected, _ = mixer(query, memory, context)
    state = {}
    steps(mixer, query[:, :2], memory, context, state)
    here = replace(context, first=4, ahead=query.size(1), state=mixer.decoding_state(state))
    new = query[:, 4:5]
    result = _result(mixer, new, memory if mixer.place == "cross" else new, here)
    if torch.is_tensor(result):
        torch.testing.assert_close(result, expected[:, 4:5], **CLOSE)
    else:
        assert "its state has seen 2 tokens" in result


def padding_before_tokens_is_refused(mixer):
    query, memory, context = call(mixer)
    keys = memory.size(1)
    left = torch.arange(keys) < torch.tensor([[0], [keys - 3]])
    _refused(mixer, query, memory, replace(context, padding_mask=left), "padding before tokens")


def arguments_that_do_not_fit_are_refused(mixer):
    """Broadcasting would make something of them."""
    query, memory, context = call(mixer)
    mask = torch.zeros(memory.shape[:2], dtype=torch.bool)
    for wrong in (mask[:1], mask[:, :1], mask.byte()):
        _refused(mixer, query, memory, replace(context, padding_mask=wrong), "padding_mask")
    plain = replace(context, padding_mask=None)
    _refused(mixer, query[:1], memory, plain, "1 × 7 queries")
    _refused(mixer, query, memory, replace(plain, first=2), "first 2")
    if mixer.place != "cross":
        _refused(mixer, query[:, :4], memory, plain, "2 × 4 queries, memory for 2 × 7")
    for empty in (query[:0], query[:, :0]):
        _refused(mixer, empty, memory if mixer.place == "cross" else empty, plain, "nothing to mix")
    if mixer.place == "cross":
        _refused(mixer, query, memory[:, :0], plain, "nothing to mix")
    if mixer.reads_positions:
        for positions in (None, context.positions[:1]):
            _refused(mixer, query, memory, replace(plain, positions=positions), "positions")
    if mixer.place == "cross" and mixer.reads_memory_positions:
        for positions in (None, context.positions[:1]):
            _refused(mixer, query, memory, replace(plain, memory_positions=positions), "memory_positions")


def _refused(mixer, query, memory, context, sentence):
    result = _result(mixer, query, memory, context)
    assert not torch.is_tensor(result), f"not refused: {sentence}"
    assert sentence in result


def _result(mixer, *arguments):
    """What a call returns, or the sentence with which it is refused."""
    try:
        return mixer(*arguments)[0]
    except UsageError as error:
        return str(error)


def arguments_and_states_are_left_alone(mixer):
    """No tensor of the caller's, and none that an earlier step has put into the state, is changed in place."""
    query, memory, context = call(mixer)
    ours = [query, memory, context.positions, context.memory_positions, context.padding_mask]
    ours = [tensor for tensor in ours if tensor is not None]
    before = [tensor.detach().clone() for tensor in ours]
    output, _ = mixer(query, memory, context)
    output.sum().backward()
    kept = output.detach().clone()
    if mixer.place != "encoder":
        state = {}
        steps(mixer, query[:, :4], memory, context, state)
        rows = mixer.decoding_state(state).rows
        ours, before = [*ours, *rows.values()], [*before, *(tensor.detach().clone() for tensor in rows.values())]
        here = replace(context, first=4, ahead=7, state=mixer.decoding_state(state))
        new = query[:, 4:5]
        mixer(new, memory if mixer.place == "cross" else new, here)
    torch.testing.assert_close([tensor.detach() for tensor in ours], before, rtol=0, atol=0)
    torch.testing.assert_close(output.detach(), kept, rtol=0, atol=0)


def layout_in_memory_changes_nothing(mixer):
    query, memory, context = call(mixer)
    expected, _ = mixer(query, memory, context)
    inputs = [*inputs_of(query, memory, context), *mixer.parameters()]
    gradients = grad(expected.pow(2).sum(), inputs, allow_unused=True, materialize_grads=True)

    def strided(x):
        return torch.stack([x, x], dim=-1).permute(-1, *reversed(range(x.dim())))[0].permute(*reversed(range(x.dim())))

    other = strided(query)
    context = replace(context, positions=strided(context.positions), memory_positions=strided(context.memory_positions))
    output, _ = mixer(other, strided(memory) if mixer.place == "cross" else other, context)
    torch.testing.assert_close(output, expected, **CLOSE)
    again = grad(output.pow(2).sum(), inputs, allow_unused=True, materialize_grads=True)
    torch.testing.assert_close(again, gradients, **CLOSE)


def what_needs_no_gradient_changes_no_other(mixer):
    """Frozen parameters, or tokens without gradients."""
    query, memory, context = call(mixer)
    output, _ = mixer(query, memory, context)
    inputs, parameters = inputs_of(query, memory, context), [*mixer.parameters()]
    expected = grad(output.pow(2).sum(), [*inputs, *parameters], allow_unused=True, materialize_grads=True)
    constant = [None if x is None else x.detach() for x in (query, memory, context.positions, context.memory_positions)]
    frozen = replace(context, positions=constant[2], memory_positions=constant[3])
    if parameters:
        output, _ = mixer(constant[0], constant[1] if mixer.place == "cross" else constant[0], frozen)
        got = grad(output.pow(2).sum(), parameters, allow_unused=True, materialize_grads=True)
        torch.testing.assert_close(got, expected[len(inputs) :], **CLOSE)
    for parameter in parameters:
        parameter.requires_grad_(False)
    output, _ = mixer(query, memory, context)
    got = grad(output.pow(2).sum(), inputs, allow_unused=True, materialize_grads=True)
    torch.testing.assert_close(got, expected[: len(inputs)], **CLOSE)


def a_copy_is_the_same_mixer_with_a_state_of_its_own(mixer):
    """Layers of one decoder may be copies of each other."""
    query, memory, context = call(mixer)
    expected, _ = mixer(query, memory, context)
    for twin in (copy.deepcopy(mixer), pickle.loads(pickle.dumps(mixer))):
        torch.testing.assert_close(twin(query, memory, context)[0], expected, rtol=0, atol=0)
        if mixer.place != "encoder":
            state, stacked = {}, []
            for layer in (mixer, twin):
                stacked.append(steps(layer, query, memory, context, state))
            torch.testing.assert_close(*stacked, rtol=0, atol=0)


def other_precisions_round_and_nothing_else(mixer):
    """Saved in one precision and loaded in another; float32 is close to float64."""
    query, memory, context = call(mixer)
    expected, _ = mixer(query, memory, context)
    single = copy.deepcopy(mixer).float()
    file = io.BytesIO()
    torch.save(mixer.state_dict(), file)
    file.seek(0)
    single.load_state_dict(torch.load(file, weights_only=True))
    assert {p.dtype for p in single.parameters()} <= {torch.float32}
    context = replace(context, positions=context.positions.float(), memory_positions=context.memory_positions.float())
    output, _ = single(query.float(), memory.float() if mixer.place == "cross" else query.float(), context)
    torch.testing.assert_close(output.double(), expected, rtol=1e-3, atol=1e-4)
    twin = copy.deepcopy(mixer)
    twin.load_state_dict(single.state_dict())
    assert {p.dtype for p in twin.parameters()} <= {torch.float64}
    for name, tensor in twin.state_dict().items():
        torch.testing.assert_close(tensor, mixer.state_dict()[name], rtol=1e-6, atol=1e-6)
