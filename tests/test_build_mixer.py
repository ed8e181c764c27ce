"""``posnet_fairseq.build_mixer``: a mixer in any PyTorch model."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import posnet_fairseq as posnet
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.causal import DecoderState

PLACES = {"encoder": {}, "decoder": {"causal": True}, "cross": {"cross_attention": True}}
CASES = [(name, place) for name in posnet.mixer_names() for place in get_mixer(name).places]
every_mixer = pytest.mark.parametrize(("name", "place"), CASES, ids=lambda part: part)


def build(name, place, **options):
    torch.manual_seed(1)
    return posnet.build_mixer(name, embed_dim=16, num_heads=4, max_positions=32, **PLACES[place], **options)


def batch(place):
    """Tokens, memory (None in self-attention) and the mask of its padding."""
    torch.manual_seed(2)
    x, memory = torch.randn(2, 7, 16), torch.randn(2, 9, 16)
    keys = 9 if place == "cross" else 7
    mask = None if place == "decoder" else torch.arange(keys) >= torch.tensor([[keys], [4]])
    return x, memory if place == "cross" else None, mask


@every_mixer
def test_it_learns_in_a_plain_training_loop(name, place):
    """Copying the third token to all positions, or its like in the memory, cannot be learnt without mixing."""
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


@pytest.mark.thorough  # 6 s and more
def test_compiled_without_a_break_with_padding():
    """All mixers: test_compiled_layers."""
    mixer, (x, memory, mask) = build("rposnet", "encoder").eval(), batch("encoder")
    torch._dynamo.reset()
    compiled = torch.compile(mixer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, memory, padding_mask=mask), mixer(x, memory, padding_mask=mask))


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
        ("rposnet", {"gate": "sigmoid"}, "gate sigmoid: choose one of none, gelu, glu"),
        ("rposnet", {"num_heads": 3}, r"num_heads 3 must divide embed_dim 16\. Change one of the two"),
        ("rposnet", {"memory_dim": 8}, "memory_dim 8: self-attention mixes its queries"),
        ("rposnet", {"clip_distanc": 4}, "clip_distanc 4: rposnet does not read it; .* Did you mean clip_distance"),
        ("attention", {"clip_distance": 4}, "clip_distance 4: attention does not read it; it has no options"),
        ("rposnet", {"clip_distance": 0}, "^clip_distance 0: give 1 or more"),
        ("rposnet", {"clip_distance": "far"}, "^clip_distance far: give a whole number"),
        ("irpe", {"irpe_mode": "bias", "irpe_on": "k"}, "^irpe_on k: .* or give irpe_mode contextual"),
        ("translution", {"translution_layers": 1}, "translution_layers 1: translution does not read it"),
        ("fouriernet", {"causal": True}, "causal True: fouriernet stands in encoder only"),
        ("rope", {"cross_attention": True}, "cross_attention True: rope stands in encoder and decoder only"),
        ("rposnet", {"causal": True, "cross_attention": True}, "causal True: cross-attention sees the whole memory"),
        ("rposnet", {"position_embedding": "sine"}, "position_embedding sine: choose one of sinusoidal, learned, none"),
        ("linearnet", {"max_positions": 5000}, "^max_positions 5000: linearnet trains a matrix"),
        ("rope", {"embed_dim": 12}, "^num_heads 4: heads of 3 features cannot be turned in pairs .* embed_dim 12"),
        ("rposnet", {"dropout": 1}, "dropout 1: give 0 or more and less than 1"),
        ("rposnet", {"dropout": "0.1"}, "dropout 0.1: give 0 or more"),
        ("rposnet", {"embed_dim": True}, "embed_dim True: give a whole number"),
        ("rposnet", {"memory_dim": 0}, "memory_dim 0: give 1 or more"),
        ("rposnet", {"gate": ""}, "gate : choose one of"),
        ("rposnet", {"causal": "no"}, "causal 'no': give True or False"),
        ("rposnet", {"clip_distance": None}, "clip_distance None: give a whole number"),
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
    )
    with pytest.raises(UsageError, match=sentence):
        build("rposnet", "encoder")(x, padding_mask=left)
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
    mixer = posnet.build_mixer("rposnet", 16, 4, 2, causal=True)
    state = mixer.init_state(2)
    for _ in range(2):
        mixer.step(x[:, :1], state)
    with pytest.raises(UsageError, match="position 2: this mixer was built for 2 positions"):
        mixer.step(x[:, :1], state)


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


def test_it_costs_torch_and_nothing_else():
    program = """
import sys, torch
torch.nn.TransformerEncoderLayer(16, 4)
before = set(sys.modules)
from posnet_fairseq import build_mixer, mixer_names
for name in mixer_names():
    build_mixer(name, 16, 4, 32)(torch.randn(1, 5, 16))
heavy = "fairseq hydra omegaconf scipy pandas matplotlib sklearn sacrebleu sacremoses rich".split()
print(sorted({name.partition(".")[0] for name in set(sys.modules) - before} & set(heavy)))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.stdout.strip(), run.returncode) == ("[]", 0), run.stderr
