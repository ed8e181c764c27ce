"""``posnet_fairseq.build_mixer``: a mixer in any PyTorch model."""

import copy
import dataclasses
import functools

import numpy
import pytest
import torch
from torch import nn

import posnet_fairseq as posnet
from posnet_fairseq.ops import chunks
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.decoder import DecoderState
from support.building import ARGUMENTS, IN_PLACES, settings
from support.building import build_mixer as alone


def build(name, place, **options):
    torch.manual_seed(1)
    return posnet.build_mixer(name, embed_dim=16, num_heads=4, max_positions=32, **ARGUMENTS[place], **options)


def batch(place):
    """Tokens, memory (None in self-attention) and the mask of its padding."""
    torch.manual_seed(2)
    x, memory = torch.randn(2, 7, 16), torch.randn(2, 9, 16)
    keys = 9 if place == "cross" else 7
    mask = None if place == "decoder" else torch.arange(keys) >= torch.tensor([[keys], [4]])
    return x, memory if place == "cross" else None, mask


@pytest.mark.quick_cases(10)
@pytest.mark.parametrize(("name", "place"), IN_PLACES)
def test_it_learns_in_a_plain_training_loop(name, place):
    """Copying the third token to all positions, or its like in the memory, cannot be learned without mixing."""
    mixer, (x, memory, mask) = build(name, place, dropout=0.1), batch(place)
    norm, optimizer = nn.LayerNorm(16), torch.optim.Adam(mixer.parameters(), lr=1e-2)
    if not [*mixer.parameters()]:
        pytest.skip("nothing to train")
    wanted = (x if memory is None else memory)[:, :1].expand_as(x)
    losses = []
    for _ in range(30):
        loss = (norm(x + mixer(x, memory, padding_mask=mask)) - wanted).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


def test_options_are_those_of_the_architectures():
    assert build("rposnet", "encoder").energies[0].reach == 16
    assert build("rposnet", "encoder").gating.kind == "gelu"
    assert build("rposnet", "encoder", gate="none").gating.kind == "none"
    assert build("rposnet", "cross").gating.kind == "none"
    assert (
        build("translution", "encoder").matrices.reaches[-1]
        == get_mixer("translution").arch_options["translution_clip"]
    )
    assert build("rposnet", "encoder").own_positions.learned
    assert not build("aposnet", "cross").own_memory_positions.learned


def test_memory_of_another_width():
    mixer = posnet.build_mixer("aposnet", 16, 4, 32, cross_attention=True, memory_dim=24)
    assert mixer(torch.randn(2, 5, 16), torch.randn(2, 6, 24)).shape == (2, 5, 16)


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("rposnett", {}, "name rposnett: there is no such mixer. .* Did you mean rposnet"),
        ("transformer_pos", {}, r"name transformer_pos: there is no such mixer. .* Did you mean attention\?"),
        ("rposnet", {"gate": "sigmoid"}, "gate sigmoid: choose one of none, gelu, glu"),
        ("rposnet", {"num_heads": 3}, r"num_heads 3 must divide embed_dim 16\. Change one of the two"),
        ("rposnet", {"memory_dim": 8}, "memory_dim 8: self-attention mixes its queries"),
        ("rposnet", {"clip_distanc": 4}, "clip_distanc 4: rposnet does not read it; .* Did you mean clip_distance"),
        ("rposnet", {"clip_distance": 0}, "^clip_distance 0: give 1 or more"),
        ("irpe", {"irpe_mode": "bias", "irpe_on": "k"}, "^irpe_on k: .* or give irpe_mode contextual"),
        (
            "fouriernet",
            {"causal": True},
            "causal True: fouriernet stands in encoder only. Choose one of: .*, aposnet, .*, translution",
        ),
        ("attention", {"max_positions": None}, "^max_positions is missing: give the most tokens that a sentence may"),
        ("rposnet", {"causal": True, "cross_attention": True}, "causal True: cross-attention sees the whole memory"),
        ("rposnet", {"position_embedding": "sine"}, "position_embedding sine: choose one of sinusoidal, learned, none"),
        ("linearnet", {"max_positions": 5000}, "^max_positions 5000: linearnet trains a matrix"),
        ("lightconv", {"lightconv_global_context": 1}, "^lightconv_global_context 1: choose one of False, True"),
        ("rope", {"embed_dim": 12}, "^num_heads 4: heads of 3 features cannot be turned in pairs .* embed_dim 12"),
        ("rposnet", {"dropout": 1}, "dropout 1: give 0 or more and less than 1"),
        ("rposnet", {"dropout": "0.1"}, "dropout '0.1': give 0 or more and less than 1"),
        ("gated_deltanet", {"no_decay": "True"}, "no_decay 'True': choose one of False, True"),
        ("mamba2", {"gate": "gelu"}, r"^gate gelu: mamba2 has a gate of its own\. Leave out gate\.$"),
        ("rposnet", {"embed_dim": True}, "embed_dim True: give a whole number"),
        ("attention", {"position_embedding": "learned"}, "position_embedding learned: attention reads no positions"),
        ("rposnet", {"name": ["a"]}, "there is no such mixer"),
    ],
    ids=str,
)
def test_mistakes_are_told_in_the_words_of_arguments(name, arguments, sentence):
    with pytest.raises(UsageError, match=sentence) as error:
        posnet.build_mixer(**{"name": name, "embed_dim": 16, "num_heads": 4, "max_positions": 32} | arguments)
    assert "--" not in str(error.value)


def test_wrong_calls_are_told():
    x = torch.randn(2, 5, 16)
    mixer = build("rposnet", "encoder", position_embedding="none")
    with pytest.raises(UsageError, match="positions: give the vectors of 5 positions; there are none"):
        mixer(x)
    with pytest.raises(UsageError, match=r"\(2, 5, 8\): give tokens of sentences, \(B, N, 16\)"):
        build("rposnet", "encoder")(x[..., :8])
    left = torch.tensor([[True, False, False, False, False]] * 2)
    sentence = (
        r"padding before tokens\. Move it behind them with front_order and reorder of posnet_fairseq\.ops\.layout"
        r".* if yours is True at tokens, give ~padding_mask"
    )
    with pytest.raises(UsageError, match=sentence):
        build("rposnet", "encoder")(x, padding_mask=left)
    with pytest.raises(UsageError, match=r"^query of the shape \(5, 16\): give tokens of sentences, \(B, N, 16\)\.$"):
        build("rposnet", "encoder")(x[0])
    with pytest.raises(UsageError, match=r"^attn_mask .* \(5, 5\), \(2, 5, 5\) or \(2, 4, 5, 5\)\.$"):
        build("rposnet", "encoder")(x, attn_mask=torch.zeros(3, 3, dtype=torch.bool))
    with pytest.raises(UsageError, match=r"is_causal True: cross-attention sees the whole memory\. Leave it out"):
        posnet.as_attention(build("rposnet", "cross"))(x, x, x, is_causal=True)
    with pytest.raises(UsageError, match="memory is missing"):
        build("rposnet", "cross")(x)
    with pytest.raises(UsageError, match="40 tokens: this mixer was built for 32 positions"):
        build("rposnet", "encoder")(torch.randn(1, 40, 16))
    with pytest.raises(UsageError, match="batch_size -1: give the number of hypotheses, 0 or more"):
        build("rposnet", "decoder").init_state(-1)
    with pytest.raises(UsageError, match="order: give the numbers of hypotheses"):
        build("rposnet", "decoder").init_state(2).reorder(torch.tensor([0.0, 1.0]))
    with pytest.raises(UsageError, match="3 hypotheses for a memory of 2 sentences"):
        build("rposnet", "cross").init_state(3, x)
    for of_memory in ({"padding_mask": left}, {"memory_positions": x[0]}):
        with pytest.raises(UsageError, match=f"init_state: {next(iter(of_memory))} is of the memory, which only cross"):
            build("rposnet", "decoder").init_state(2, **of_memory)
    mixer = posnet.build_mixer("rposnet", 16, 4, 2, causal=True)
    state = mixer.init_state(2)
    for _ in range(2):
        mixer.step(x[:, :1], state)
    with pytest.raises(UsageError, match="position 2: this mixer was built for 2 positions"):
        mixer.step(x[:, :1], state)
    with pytest.raises(UsageError, match=r"\(2, 1, 8\): it takes one new token of every hypothesis, \(2, 1, 16\)"):
        mixer.step(x[:, :1, :8], mixer.init_state(2))
    with pytest.raises(UsageError, match=r"the state of another mixer.*Give what init_state of this mixer returned"):
        mixer.step(x[:, :1], build("rposnet", "decoder").init_state(2))
    mixer = build("rposnet", "decoder")
    state = mixer.init_state(numpy.int64(2))
    mixer.step(x[:, :1], state)
    with pytest.raises(UsageError, match="rows 1: tables for position 1 need 2 or more"):
        mixer.step(x[:, :1], state, rows=1)
    for other in (None, {}):
        with pytest.raises(UsageError, match=f"a state of the type {type(other).__name__}: give what init_state"):
            mixer.step(x[:, :1], other)
    mixer, vectors = build("rposnet", "encoder", position_embedding="none"), torch.randn(32, 16, dtype=torch.float64)
    with pytest.raises(UsageError, match=r"^positions of float64: the parameters of this mixer are float32"):
        mixer(x, positions=vectors)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("query", lambda mixer, x: mixer(x.numpy())),
        (
            "query",
            lambda mixer, x: build("rposnet", "decoder").step(x.numpy(), build("rposnet", "decoder").init_state(2)),
        ),
        ("positions", lambda mixer, x: mixer(x, positions=x[0].numpy())),
        ("memory_positions", lambda mixer, x: build("rposnet", "cross")(x, x, memory_positions=x[0].numpy())),
        ("memory", lambda mixer, x: build("rposnet", "cross").init_state(2, x.tolist())),
        ("padding_mask", lambda mixer, x: mixer(x, padding_mask=[[False] * 5] * 2)),
        ("attn_mask", lambda mixer, x: mixer(x, attn_mask=[[False] * 5] * 5)),
        ("tokens", lambda mixer, x: posnet.as_attention(mixer)(array := x.numpy(), array, array)),
        ("attn_mask", lambda mixer, x: posnet.as_attention(mixer)(x, x, x, attn_mask=[[False] * 5] * 5)),
    ],
)
def test_what_is_no_tensor_is_refused(name, call):
    with pytest.raises(UsageError, match=f"^{name} of the type (list|ndarray): give a torch.Tensor"):
        call(build("rposnet", "encoder"), torch.zeros(2, 5, 16))


@pytest.mark.parametrize("memory", [(2, 0, 16), (2, 3, 8), (2, 16), (16,)], ids=str)
def test_memory_of_another_shape_is_refused(memory):
    with pytest.raises(UsageError, match=r"init_state: memory of the shape .*: give tokens of sentences, \(S, M, 16\)"):
        build("rposnet", "cross").init_state(2, torch.zeros(memory))


@pytest.mark.parametrize("vectors", [(32, 8), (32,)], ids=str)
def test_vectors_of_positions_have_the_width_of_tokens(vectors):
    x, vectors = torch.zeros(2, 5, 16), torch.zeros(vectors)
    mixer = build("aposnet", "cross")
    with pytest.raises(UsageError, match=r"^positions of the shape .*: give a vector of every position, \(P, 16\)"):
        mixer(x, x, positions=vectors)
    with pytest.raises(UsageError, match=r"^memory_positions of the shape"):
        mixer(x, x, memory_positions=vectors)
    with pytest.raises(UsageError, match=r"^memory_positions of the shape"):
        mixer.init_state(2, x, memory_positions=vectors)
    with pytest.raises(UsageError, match=r"^positions of the shape"):
        mixer.step(x[:, :1], mixer.init_state(2, x), positions=vectors)


@pytest.mark.parametrize("name", ["rposnet", "shaw", "mamba2", "linear_attention"])
@pytest.mark.parametrize("place", ["decoder", "cross"])
def test_a_copied_state_with_gradients_goes_on_by_itself(name, place):
    if place not in get_mixer(name).places:
        return
    mixer = posnet.build_mixer(name, 8, 2, 16, causal=place == "decoder", cross_attention=place == "cross")
    tokens, memory = torch.randn(3, 2, 1, 8), torch.randn(2, 5, 8, requires_grad=True) * 2
    begin = {"memory": memory} if place == "cross" else {}
    states = [mixer.init_state(2, **begin) for _ in range(2)]
    states.append(copy.copy(states[1]))  # before the first step, too
    for state in states:
        mixer.step(tokens[0], state)
    forked = copy.copy(states[0])
    mixer.step(tokens[1], forked)
    expected = mixer.step(tokens[2], states[1])
    assert expected.requires_grad
    for state in (states[0], states[2]):
        torch.testing.assert_close(mixer.step(tokens[2], state), expected)
    (gradient,) = torch.autograd.grad(mixer.step(tokens[2], forked).sum(), mixer.out_proj.weight)
    assert gradient.any()


def test_a_state_says_where_it_is():
    state = build("rposnet", "decoder").init_state(6)
    assert repr(state) == "DecodingState(position 0, 6 hypotheses)"
    for name, place, given in (("rposnet", "decoder", {}), ("shaw", "cross", {"memory": torch.randn(2, 5, 16)})):
        for gradients in (True, False):
            with torch.set_grad_enabled(gradients):
                mixer = build(name, place)
                state = mixer.init_state(6, **given)
                mixer.step(torch.randn(6, 1, 16), state)
            of = " of 2 sentences" if given else ""
            assert repr(state) == f"DecodingState(position 1, 6 hypotheses{of}, float32)"
    layers = DecoderState(1, [state, state])
    assert repr(layers) == f"DecoderState(position 1, 2 layers, each {state})"


# Mixers that are built by the settings of a model's options, whose sentences name flags.
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"place": "decoder_self"}, "place decoder_self: choose one of encoder, decoder, cross"),
        ({"embed_dim": 8.0}, r"--encoder-embed-dim 8\.0: give a whole number"),
        ({"num_heads": 0}, "--encoder-attention-heads 0: give 1 or more"),
        ({"dropout": float("nan")}, "--attention-dropout nan"),
    ],
    ids=str,
)
def test_settings_of_no_mixer_are_refused(change, sentence):
    with pytest.raises(UsageError, match=sentence):
        dataclasses.replace(settings("rposnet", "encoder"), **change)


def test_options_of_another_mixer_are_refused():
    with pytest.raises(UsageError, match=r"options of the type Config: .* RPosNet\.Config\(\)"):
        settings("rposnet", "encoder", options=get_mixer("irpe").Config())


ABSURD = [
    ("shaw", {"clip_distance": 65537}, "--clip-distance 65537: give 1 or more, and at most 65,536"),
    (
        "alpha_translution",
        {"alpha_dim": 60_000},
        "--translution-clip left out: .* more than 2147483648 numbers. Choose a smaller clip or --alpha-dim.",
    ),
]


@pytest.mark.parametrize(("name", "options", "sentence"), ABSURD, ids=str)
def test_distances_that_fill_the_memory_are_refused_before_they_do(name, options, sentence):
    with pytest.raises(UsageError, match=sentence):
        alone(name, **options)


def test_parameters_that_change_before_the_backward_pass_are_refused(monkeypatch):
    """As autograd does where nothing is made again."""
    monkeypatch.setattr(chunks, "CPU_LIMIT", 1)
    mixer = alone("shaw")
    monkeypatch.setattr(mixer, "should_recompute", lambda keys: True)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    output = mixer(x, x)
    with torch.no_grad():
        mixer.relative_key.add_(1)
    with pytest.raises(RuntimeError, match="relative_key of Shaw has been modified by an inplace operation"):
        output.sum().backward()


def test_positions_may_be_as_many_as_tokens_where_none_are_looked_up_by_length_ratio():
    """As of rPosNet; aPosNet looks its own up at ⌊γn⌋."""
    mixer = posnet.build_mixer("rposnet", 8, 2, 32, cross_attention=True).eval()
    x, memory = torch.rand(1, 32, 8), torch.rand(1, 32, 8)
    whole = mixer(x, memory, length_ratio=(6, 5))
    with torch.no_grad():
        state = mixer.init_state(1, memory, length_ratio=(6, 5))
        steps = torch.cat([mixer.step(x[:, n : n + 1], state) for n in range(32)], 1)
    torch.testing.assert_close(steps, whole)


def test_errors_of_torch_are_passed_on_unless_types_differ():
    mixer = posnet.build_mixer("shaw", 8, 2, 32)

    def fail(*_):
        raise error

    mixer.mix = fail
    half = torch.rand(1, 3, 8, dtype=torch.bfloat16)
    error = torch.OutOfMemoryError("no memory")
    with pytest.raises(torch.OutOfMemoryError):
        mixer(half)
    error = RuntimeError("another")
    with pytest.raises(UsageError, match="query of bfloat16"):
        mixer(half)
    with torch.autocast("cpu"), pytest.raises(RuntimeError, match="another"):
        mixer(half)


def test_the_default_type_is_that_of_all_weights(request):
    request.addfinalizer(functools.partial(torch.set_default_dtype, torch.get_default_dtype()))
    torch.set_default_dtype(torch.float64)
    for name in posnet.mixer_names():
        mixed = posnet.build_mixer(name, 8, 2, 16, position_embedding=None)(torch.rand(2, 4, 8))
        assert mixed.dtype == torch.float64, name


def test_sizes_of_a_grid_may_be_numpys():
    mixer = posnet.build_mixer("irpe", 8, 2, grid=tuple(numpy.array([6, 4]) // 2))
    assert mixer(torch.rand(1, 6, 8)).shape == (1, 6, 8)
