"""--weight-noise: in training, weights get normally distributed noise as if they were noisy conductances."""

from argparse import Namespace

import pytest
import torch

from posnet_fairseq.analog import weight_noise
from posnet_fairseq.analog.crossbar_parts import linears
from posnet_fairseq.analog.hardware import PARTS
from posnet_fairseq.analog.weight_noise import NoisyLinear, add_weight_noise, make_noisy, noise_of
from posnet_fairseq.fairseq_plugin.chunked_loss import LabelSmoothedCrossEntropyCriterion
from posnet_fairseq.inference.checkpoints import model_options as checkpoint_options
from posnet_fairseq.ops.linear import Linear
from posnet_fairseq.registry import mixer_names
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.model_options import translation_model_fields
from support.building import (
    POSITION_BASED,
    POSITION_BASED_IN_PLACES,
    build_mixer,
    build_model,
    model_options,
    pad,
    sentences,
    vectors,
)

ON_ALL = {"weight_noise": 0.5, "weight_noise_on": ",".join(PARTS)}


def parts_of(mixer):
    return PARTS if mixer in POSITION_BASED else PARTS[1:]


def test_deviation_is_a_share_of_the_largest_weight_of_a_row():
    torch.manual_seed(3)
    weight = torch.tensor([[1.0, -4.0], [0.0, 0.0], [0.5, 0.25]], dtype=torch.float64)
    draws = torch.stack([noise_of(weight, 0.1) for _ in range(20_000)])
    expected = torch.tensor([0.4, 0.0, 0.05], dtype=torch.float64)[:, None].expand(-1, 2)
    torch.testing.assert_close(draws.std(dim=0), expected, rtol=0.03, atol=0)
    torch.testing.assert_close(draws.mean(dim=0), torch.zeros_like(weight), rtol=0, atol=0.01)


def test_linear_layer_multiplies_by_noisy_weights_and_learns_the_weights(monkeypatch):
    monkeypatch.setattr(weight_noise.torch, "randn_like", lambda weight: torch.arange(6.0).reshape(2, 3))
    layer, x = Linear(3, 2), torch.randn(4, 3)
    make_noisy(layer, 0.1)
    y = layer(x)
    for output in range(2):
        largest = max(abs(w) for w in layer.weight[output].tolist())
        noisy = [layer.weight[output, i].item() + 0.1 * largest * (3 * output + i) for i in range(3)]
        for row in range(4):
            sum_of_row = layer.bias[output].item() + sum(noisy[i] * x[row, i].item() for i in range(3))
            assert y[row, output].item() == pytest.approx(sum_of_row, abs=1e-5)
    y.sum().backward()
    torch.testing.assert_close(layer.weight.grad, x.sum(dim=0).expand(2, -1))
    torch.testing.assert_close(layer.eval()(x), torch.nn.functional.linear(x, layer.weight, layer.bias))


@pytest.mark.parametrize(("name", "place"), POSITION_BASED_IN_PLACES, ids=str)
@pytest.mark.parametrize("padded", [False, True])
def test_mixing_weights_are_noisy_alike_in_all_sentences(name, place, padded, monkeypatch):
    """Against sums over pairs of the weights without noise; neither padding nor the future has any."""
    torch.manual_seed(4)
    draws = torch.randn(2, 7, 7, dtype=torch.float64)
    mixer = build_mixer(name, place, embed_dim=8, num_heads=2).train()
    x = torch.randn(3, 7, 8, dtype=torch.float64)
    memory = x if place != "cross" else torch.randn_like(x)
    known = vectors(30, 8)
    lengths = torch.tensor([7, 5, 1] if padded and place != "decoder" else [7, 7, 7])
    mask = torch.arange(7) >= lengths[:, None] if padded and place != "decoder" else None
    monkeypatch.setattr(weight_noise.torch, "randn", lambda *shape, **kind: draws)
    context = {"padding_mask": mask, **known, "need_weights": True}
    _, weights = mixer(x, memory, **context)
    make_noisy(mixer, 0.1)
    _, noisy = mixer(x, memory, **context)
    weights, noisy = weights.expand(3, -1, -1, -1), noisy.expand(3, -1, -1, -1)
    reach = mixer.band if hasattr(mixer, "band") and not mixer.tails else None
    for b in range(3):
        for n in range(7):
            for m in range(7):
                hidden = m >= lengths[b] or (place == "decoder" and m > n)
                hidden = hidden or (reach is not None and abs(n - m) > reach.clip_distance)
                for h in range(2):
                    largest = weights[b, h, n].abs().max()
                    expected = weights[b, h, n, m] + (0 if hidden else 0.1 * largest * draws[h, n, m])
                    torch.testing.assert_close(noisy[b, h, n, m], expected, rtol=0, atol=1e-12)
    mixer.eval()
    torch.testing.assert_close(mixer(x, memory, **context)[1].expand(3, -1, -1, -1), weights)


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("name", mixer_names())
def test_every_part_draws_at_every_pass_and_none_in_evaluation(name):
    source, target = pad(sentences(9, 4)), pad(sentences(8, 5))
    clean = build_model(name).eval()
    for part in parts_of(name):
        model = build_model(name)
        model.load_state_dict(clean.state_dict())
        add_weight_noise(model, Namespace(weight_noise=0.1, weight_noise_on=part))
        model.train()
        first, second = (model(source, None, target)[0] for _ in range(2))
        assert not torch.equal(first, second), part
        assert first.isfinite().all()
        model.eval()
        assert torch.equal(model(source, None, target)[0], clean(source, None, target)[0]), part


def test_options_of_the_model():
    model = build_model("rposnet", **ON_ALL)
    assert all(linear.noise == 0.5 for part in PARTS[1:] for _, _, linear in linears(model, part))
    mixers = model.encoder.layers[0].self_attn, model.decoder.layers[1].self_attn
    assert [mixer.mix.args for mixer in mixers] == [(mixer, 0.5) for mixer in mixers]
    model = build_model("rposnet", weight_noise=0.5, weight_noise_on="mixing")
    assert not any(isinstance(linear, NoisyLinear) for part in PARTS[1:] for _, _, linear in linears(model, part))


def test_the_loss_in_chunks_projects_by_noisy_weights():
    """Over many draws its mean is that without noise, and a single one is not."""
    torch.manual_seed(5)
    model = build_model("rposnet", weight_noise=0.1, weight_noise_on="output").train()
    task = Namespace(target_dictionary=Namespace(pad=lambda: 1))
    criterion = LabelSmoothedCrossEntropyCriterion(task, True, 0.1)
    source, target = pad(sentences(9, 4)), pad(sentences(8, 5))
    sample = {
        "net_input": {"src_tokens": source, "src_lengths": None, "prev_output_tokens": target},
        "target": target,
        "ntokens": 13,
    }
    with torch.no_grad():
        noisy = {criterion(model, sample)[0].item() for _ in range(4)}
    assert len(noisy) == 4
    criterion(model, sample)[0].backward()
    assert model.decoder.output_projection.weight.grad.abs().sum() > 0
    assert len({criterion(model.eval(), sample)[0].item() for _ in range(2)}) == 1


@pytest.mark.parametrize(
    ("mixer", "options", "sentence"),
    [
        ("rposnet", {"weight_noise": float("nan")}, "--weight-noise nan: give 0 or more and less than 1"),
        ("rposnet", {"weight_noise": 0.04}, "--weight-noise 0.04 with --weight-noise-on None: give both"),
        ("rposnet", {"weight_noise": 0.04, "weight_noise_on": "mixin"}, "--weight-noise-on 'mixin': give one or more"),
        ("shaw", ON_ALL, "the weights of attention, shaw cannot be stored"),
    ],
)
def test_bad_options(mixer, options, sentence):
    with pytest.raises(UsageError, match=sentence):
        build_model(mixer, **options)


def test_checkpoints_that_are_older_than_the_options_are_read():
    known = {option.name for option in translation_model_fields()}
    saved = {name: value for name, value in vars(model_options("rposnet")).items() if name in known}
    older = {name: value for name, value in saved.items() if not name.startswith("weight_noise")}
    found = checkpoint_options({"cfg": {"model": older | {"_name": "rposnet_tiny"}}})
    assert found.weight_noise == 0
    assert found.weight_noise_on is None
    with pytest.raises(UsageError, match="weight_noise is missing"):
        checkpoint_options({"cfg": {"model": saved | {"_name": "rposnet_tiny", "weight_noise": None}}})
