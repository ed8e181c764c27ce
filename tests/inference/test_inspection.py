"""Observed weights, energies and gates are those that the mixers compute."""

import copy
import math

import pytest
import torch

from posnet_fairseq.inference.inspection import observe
from posnet_fairseq.inference.packing import pack
from posnet_fairseq.inference.stored_energies import precompute
from posnet_fairseq.ops.heads import merge_heads
from support.building import build_case, build_language_model, build_model, mixer_cases

SOURCE, TARGET = torch.tensor([7, 8, 9, 10, 11, 12, 13, 2]), torch.tensor([9, 20, 21, 5, 6, 2])
COLUMNS, ROWS = [f"s{i}" for i in range(8)], [f"t{i}" for i in range(6)]
NAMES = {"encoder": (COLUMNS, COLUMNS), "decoder": (ROWS, ROWS), "cross": (ROWS, COLUMNS)}
CASES = [case for case in mixer_cases() if case.gate in ("none", "gelu")]


def look(model, place):
    return [mixing for mixing in observe(model, SOURCE, TARGET, NAMES) if mixing.place == place]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_mixer(case):
    model = build_case(case)
    before = model(SOURCE[None], None, TARGET[None])[0]
    first, second = look(model, case.place)
    assert torch.equal(model(SOURCE[None], None, TARGET[None])[0], before), "observing has changed the model"
    assert not any("energy" in vars(module) or module._forward_pre_hooks for module in model.modules())
    assert (first.layer, second.layer) == (1, 2)
    assert first.mixer == case.mixer
    values_have_matrices = "translution" in case.mixer and dict(case.options).get("translution_on", "qkv").endswith("v")
    assert (first.query_gates is not None) == (case.gate == "gelu" and not values_have_matrices)
    if first.weights is None:  # of transforms, single features, or other values in each direction
        (mixer, _) = (module for module in model.modules() if getattr(module, "place", "") == case.place)
        assert mixer(torch.randn(1, 5, 16), need_weights=True)[1] is None
        return
    N, M = len(NAMES[case.place][0]), len(NAMES[case.place][1])
    for mixing in (first, second):
        assert mixing.weights.shape == (4, N, M)
        if case.place == "decoder":
            assert mixing.hidden.equal(torch.ones(N, N, dtype=torch.bool).triu(1))
        assert mixing.weights.isfinite().all()
        assert not mixing.weights[:, mixing.hidden].any()
        assert mixing.visible.isnan().equal(mixing.hidden.expand(4, -1, -1))
        if mixing.energies is not None and mixing.mixer not in ("gpsa", "differential"):  # of two softmaxes
            softmax = mixing.energies.nan_to_num(-math.inf).softmax(dim=-1)
            torch.testing.assert_close(softmax, mixing.weights)
            torch.testing.assert_close(mixing.weights.sum(dim=-1), torch.ones(4, N))
        if mixing.added is not None:
            assert mixing.added.isnan().equal(mixing.energies.isnan())


@pytest.mark.parametrize("mixer", ["attention", "rope", "rposnet", "linearnet", "lightconv", "linear_attention"])
def test_values_are_mixed_with_these_weights(mixer):
    """In float64, in every place: the sums over the weights are what the mixer projects."""
    others = {"cross_mixer": mixer, "length_ratio": "1.5"} if mixer == "rposnet" else {}
    model = build_model(mixer, **others).double()
    for mixing in observe(model, SOURCE, TARGET, NAMES):
        side = model.encoder if mixing.place == "encoder" else model.decoder
        module = getattr(side.layers[mixing.layer - 1], "cross_attn" if mixing.place == "cross" else "self_attn")
        seen = {}
        handle = module.register_forward_hook(lambda _, given, out, to=seen: to.update(given=given, out=out))
        model(SOURCE[None], None, TARGET.roll(1)[None])
        handle.remove()
        query, memory = seen["given"][0], seen["given"][-1]
        mixed = merge_heads(mixing.weights.double() @ module.project_values(memory))
        torch.testing.assert_close(module.out_proj(module.gating(mixed, query)), seen["out"], atol=1e-6, rtol=1e-5)


def test_a_language_model_has_a_decoder_only():
    first, second = observe(build_language_model("shaw"), None, TARGET, NAMES)
    assert [first.place, second.place] == ["decoder", "decoder"]
    torch.testing.assert_close(first.weights, first.energies.nan_to_num(-math.inf).softmax(dim=-1))


def test_added_energies_are_those_of_shaws_relative_keys():
    """(W^Q x_n)·a_{n-m} / √d: Shaw et al. (2018), here with its table at zero and away from it."""
    model = build_model("shaw")
    mixer = model.encoder.layers[0].self_attn
    (first, _) = look(model, "encoder")
    captured = {}
    handle = mixer.register_forward_pre_hook(lambda _, arguments: captured.update(x=arguments[0][0]))
    model(SOURCE[None], None, TARGET[None])
    handle.remove()
    q = mixer.query_proj(captured["x"]).unflatten(-1, (4, 4)).detach()
    table = mixer.relative_key.detach()
    shared = table.size(-1) == 4
    for head in range(4):
        rows = table if shared else table[:, 4 * head : 4 * head + 4]
        for n in range(8):
            for m in range(8):
                row = rows[max(-first.reach, min(first.reach, n - m)) + first.reach]
                assert float(first.added[head, n, m]) == pytest.approx(float(q[n, head] @ row) / 2, abs=1e-5)
    with torch.no_grad():
        mixer.relative_key.zero_()
    assert look(model, "encoder")[0].added is None
    assert look(build_model("relative"), "encoder")[0].added is None, "without keys there is no product to add to"


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, "encoder") for name in ("rposnet", "attention", "gaussiannet")] + [("rposnet", "cross")],
)
def test_gates_times_weights_are_gradients(name, place):
    """∂ĉ_n / ∂v_m of the mixer with its gates and norms held fixed, for which it is linear in v: Eqs. 5 and 18."""
    options = (
        {"gate": "gelu"} if place == "encoder" else {"cross_gate": "gelu", "cross_mixer": name, "length_ratio": "1"}
    )
    model = build_model(name, **options)
    mixing = look(model, place)[0]
    mixer = (model.encoder if place == "encoder" else model.decoder).layers[0]
    mixer = mixer.self_attn if place == "encoder" else mixer.cross_attn
    seen = {}
    handles = [mixer.register_forward_pre_hook(lambda _, given: seen.update(query=given[0][0], memory=given[-1][0]))]
    model(SOURCE[None], None, TARGET.roll(1)[None])
    handles[0].remove()
    gating = mixer.gating
    with torch.no_grad():
        v = gating.value_proj(seen["memory"])
        z = torch.nn.functional.gelu(v)
        share, gate = z / v, torch.nn.functional.gelu(gating.gate_proj(seen["query"]))
        mean, deviation = z.mean(-1, keepdim=True), (z.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    v = v.clone().requires_grad_()
    values = (v * share - mean) / deviation * gating.value_norm.weight.detach() + gating.value_norm.bias.detach()
    mixed = torch.einsum("hnm,mhd->nhd", mixing.weights, values.unflatten(-1, (4, 4))).flatten(1) * gate
    for n in (0, len(mixed) - 1):
        gradient = torch.stack([torch.autograd.grad(mixed[n, d], v, retain_graph=True)[0][:, d] for d in range(16)])
        effective = (mixing.weights * mixing.gates)[:, n]  # the mean over a head's features
        torch.testing.assert_close(gradient.unflatten(0, (4, 4)).mean(dim=1), effective, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["aposnet", "rposnet", "lightconv", "gaussiannet"])
def test_stored_energies_look_the_same(name):
    model = build_model(name)
    before = observe(model, SOURCE, TARGET, NAMES)
    precompute(model)
    for one, other in zip(before, observe(model, SOURCE, TARGET, NAMES), strict=True):
        torch.testing.assert_close(one.weights, other.weights)
        assert (one.energies is None) == (other.energies is None)
        assert one.reach == other.reach


def test_an_empty_translation():
    end = TARGET[-1:]
    names = {"encoder": (COLUMNS, COLUMNS), "decoder": (["</s>"], ["</s>"]), "cross": (["</s>"], COLUMNS)}
    for mixing in observe(build_model("shaw"), SOURCE, end, names):
        offsets, means = mixing.by_offset(mixing.visible)
        assert means.shape == (4, len(offsets))
        assert mixing.weights.shape[1:] == (len(mixing.queries), len(mixing.keys))


def test_offsets_in_cross_attention_start_at_the_scaled_position():
    model = build_model("attention", cross_mixer="rposnet", length_ratio="1.5")
    mixing = look(model, "cross")[0]
    assert mixing.at.tolist() == [0, 1, 3, 4, 6, 7]
    assert mixing.scaled
    assert not look(build_model("attention"), "cross")[0].scaled
    offsets, means = mixing.by_offset(mixing.visible)
    for offset, mean in zip(offsets.tolist(), means.T, strict=True):
        pairs = [(n, m) for n in range(6) for m in range(8) if mixing.at[n] - m == offset]
        expected = torch.stack([mixing.weights[:, n, m] for n, m in pairs]).mean(dim=0)
        torch.testing.assert_close(mean, expected)


@pytest.mark.parametrize(("place", "expected"), [("encoder", [1 / 8] * 15), ("decoder", None)])
def test_uniform_weights_by_offset(place, expected):
    """Row n of a decoder mixes n + 1 tokens: at offset δ, rows from δ on count."""
    mixing = look(build_model("rposnet"), place)[0]
    size = len(mixing.queries)
    means = [sum(1 / (n + 1) for n in range(offset, size)) / (size - offset) for offset in range(size)]
    _, found = mixing.by_offset(mixing.uniform)
    there = found[0][~found[0].isnan()]
    torch.testing.assert_close(there, torch.tensor(expected or means))
    torch.testing.assert_close(mixing.uniform.nansum(dim=-1), torch.ones(1, size))


@pytest.mark.parametrize("dtype", ["float32", "bf16", "int8"])
def test_gates_of_packed_models_are_the_models(dtype):
    model = build_model("rposnet")
    packed = copy.deepcopy(model)
    pack(packed, dtype)
    for ours, theirs in zip(look(packed, "encoder"), look(model, "encoder"), strict=True):
        for name in ("query_gates", "token_gates"):
            found, expected = getattr(ours, name), getattr(theirs, name)
            assert (found - expected).norm() < 0.03 * expected.norm()
