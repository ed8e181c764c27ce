"""Models whose layers have different mixers: the laws of every mixer, and all that is made of a model."""

import pytest
import torch

from posnet_fairseq import api
from posnet_fairseq.cli import average, export
from posnet_fairseq.costs import counting
from posnet_fairseq.inference import checkpoints
from posnet_fairseq.inference.inspection import observe
from posnet_fairseq.inference.precision import prepare_for_inference
from posnet_fairseq.inference.stored_energies import mixers_with_energies, precompute
from posnet_fairseq.shared.errors import UsageError
from support import laws
from support.building import build_language_model, build_model, model_options, pad, sentences
from support.checkpoints import checkpoint, precomputed
from support.searching import assert_same, fairseq_search, search

# By mixers with a band and without, with a shared memory of hypotheses and without, that read positions and that don't.
HYBRIDS = {
    "windows, attention last": {
        "encoder_self_mixer": "lightconv,lightconv,attention",
        "decoder_self_mixer": "lightconv,attention,attention",
    },
    "no weights, attention last": {"encoder_self_mixer": "fouriernet,fouriernet,attention"},
    "all kinds": {
        "encoder_self_mixer": "rope,aposnet,linearnet",
        "decoder_self_mixer": "attention,rposnet,shaw",
        "cross_mixer": "attention,relative,rposnet",
        "length_ratio": "1.25",
        "clip_distance": "3,2,5",
        "decoder_gate": "glu",
        "encoder_position_embedding": "learned",
    },
    "recurrences, attention last": {
        "encoder_self_mixer": "mamba2,gated_deltanet,attention",
        "decoder_self_mixer": "ssru,mamba,forgetting",
        "cross_mixer": "linear_attention,attention,differential",
    },
    "offsets in the middle": {
        "encoder_self_mixer": "attention,translution,alpha_translution",
        "decoder_self_mixer": "transformer_xl,translution,gaussiannet",
        "cross_mixer": "irpe,attention,aposnet",
        "length_ratio": "0.75",
        "translution_clip": 2,
    },
}
every_hybrid = pytest.mark.parametrize("options", HYBRIDS.values(), ids=HYBRIDS)


def build(options, **more):
    return build_model("attention", encoder_layers=3, decoder_layers=3, **options, **more)


def save(path, options, **more):
    torch.manual_seed(more.pop("seed", 1))
    return checkpoint(path, "attention", encoder_layers=3, decoder_layers=3, **options, **more)


@every_hybrid
def test_each_layer_has_its_mixer(options):
    model = build(options)
    for option, owner, name in (
        ("encoder_self_mixer", model.encoder, "self_attn"),
        ("decoder_self_mixer", model.decoder, "self_attn"),
        ("cross_mixer", model.decoder, "cross_attn"),
    ):
        found = [getattr(layer, name).name for layer in owner.layers]
        assert found == options.get(option, "attention,attention,attention").split(",")


@every_hybrid
@pytest.mark.parametrize(
    "law",
    [
        laws.padding_on_either_side_changes_nothing,
        laws.every_token_reaches_every_query,
        laws.every_length_works,
        laws.every_parameter_learns,
        laws.steps_equal_the_full_pass,
    ],
    ids=lambda law: law.__name__,
)
def test_law(options, law):
    law(build(options))


@every_hybrid
def test_saving_and_loading(options):
    laws.saving_and_loading_change_nothing(build(options), build(options))


@every_hybrid
def test_storing_energies(options):
    """Of the layers that have some; positions stay where another layer reads them."""
    model = build(options)
    if mixers_with_energies(model):
        laws.storing_energies_changes_nothing(model, build(options))


@every_hybrid
def test_search_is_that_of_fairseq(options):
    model, sources = build(options), sentences(5, 1, 9, 3)
    for settings in ({"beam": 1}, {"beam": 4, "lenpen": 0.6}):
        assert_same(search([model], sources, **settings), fairseq_search([model], sources, **settings))


@every_hybrid
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_packed_for_inference(options, dtype):
    """8-bit weights are near enough to choose most words alike."""
    model, source, target = build(options), pad(sentences(5, 8)), pad(sentences(6, 9))
    expected = laws.decode(model, source, target)
    packed = prepare_for_inference(model, torch.device("cpu"), dtype)
    found = laws.decode(packed, source, target)
    if dtype == "float32":
        torch.testing.assert_close(found, expected, **laws.TOLERANCE)
    else:
        assert torch.corrcoef(torch.stack([found.flatten(), expected.flatten()]))[0, 1] > 0.98


@every_hybrid
def test_trains_with_layerdrop_and_checkpointed_activations(options):
    """A layer that is left out moves no other to another place, and gradients are those without checkpointing."""
    source, target = pad(sentences(5, 8), left=True), pad(sentences(6, 9))
    gradients = []
    for checkpointed in (False, True):
        torch.manual_seed(1)
        drops = {"encoder_layerdrop": 0.4, "decoder_layerdrop": 0.4, "dropout": 0.1}
        model = build(options, checkpoint_activations=checkpointed, **drops).train()
        torch.manual_seed(2)
        laws.decode(model, source, target).logsumexp(-1).pow(2).mean().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert any(gradient is None for gradient in gradients[0]), "no layer was left out"
    torch.testing.assert_close(gradients[1], gradients[0])


@every_hybrid
def test_pictures_name_the_mixer_of_each_layer(options):
    model, (tokens,) = build(options), sentences(5)
    names = dict.fromkeys(("encoder", "decoder", "cross"), (["w"] * 5, ["w"] * 5))
    found = [mixing.mixer for mixing in observe(model, tokens, tokens, names) if mixing.place == "encoder"]
    assert found == options["encoder_self_mixer"].split(",")


@pytest.mark.parametrize("name", ["windows, attention last", "all kinds"])
def test_averaged_stored_and_exported(tmp_path, name):
    options, folder = HYBRIDS[name], tmp_path / "run"
    for number in (1, 2):
        save(folder / f"checkpoint_1_{number}.pt", options, updates=number, loss=3 - number, seed=number)
    average.main([str(folder), "--num", "2", "--out", str(folder / "averaged.pt")])
    fast = precomputed(folder / "averaged.pt")
    export.main([str(folder / "averaged.pt"), "--out", str(tmp_path / "model"), "--pretokenized"])
    lines = ["w1 w2 w3", "", "w10 w11", "w12"]
    expected, *others = (
        api.load(path, pretokenized=True).translate(lines, beam=3, max_len_b=9)
        for path in (folder / "averaged.pt", fast, tmp_path / "model")
    )
    assert others == [expected, expected]
    facts = (tmp_path / "model/README.md").read_text()
    if name == "windows, attention last":
        assert "encoder: lightconv×2+attention, decoder: lightconv+attention×2, cross: attention" in facts


def test_parameters_are_those_of_the_layers():
    """A layer takes as many as it does in a model of its own."""

    def parameters(**options):
        return counting.parameter_count(counting.build("attention", "tiny", words=100, **options))

    ours = parameters(encoder_self_mixer="lightconv,lightconv,attention")
    attention, lightconv = parameters(), parameters(encoder_self_mixer="lightconv")
    assert ours == attention + (lightconv - attention) * 2 // 3


def test_language_model():
    options = {"decoder_layers": 3, "decoder_self_mixer": "gaussiannet,rposnet,attention"}
    model, tokens = build_language_model("attention", **options), pad(sentences(9, 6))
    expected, state = model.decoder(tokens)[0], {}
    steps = [model.decoder(tokens[:, : n + 1], incremental_state=state)[0] for n in range(6)]
    torch.testing.assert_close(torch.cat(steps, dim=1), expected[:, :6], **laws.TOLERANCE)
    assert model.decoder.positions.learned
    precompute(model)
    torch.testing.assert_close(model.decoder(tokens)[0], expected, **laws.TOLERANCE)


def test_matrices_of_offsets_in_the_first_layers_are_a_case_of_it():
    """Of the same weights, whichever way the options say it."""
    old = build_model("translution", translution_layers=1, translution_clip=3)
    new = build_model(
        "attention",
        encoder_self_mixer="translution,attention",
        decoder_self_mixer=" translution, attention",
        translution_clip=3,
    )
    weights = {name: weight for name, weight in old.state_dict().items() if name != "mixers_version"}
    assert {name: weight.shape for name, weight in new.state_dict().items() if name in weights} == {
        name: weight.shape for name, weight in weights.items()
    }
    new.load_state_dict(weights)
    source, target = pad(sentences(5, 8)), pad(sentences(6, 9))
    assert torch.equal(laws.decode(new, source, target), laws.decode(old, source, target))


def test_an_architectures_number_of_first_layers_is_that_of_places_with_one_mixer():
    """translution_* has matrices of offsets in two layers of the decoder here, not in the listed ones."""
    model = build_model(
        "translution", encoder_layers=3, decoder_layers=3, encoder_self_mixer="attention,shaw,translution"
    )
    assert [layer.self_attn.name for layer in model.encoder.layers] == ["attention", "shaw", "translution"]
    assert [layer.self_attn.name for layer in model.decoder.layers] == ["translution", "translution", "attention"]
    listed, single = (
        side.layers[index].self_attn.settings.options for side, index in ((model.encoder, 2), (model.decoder, 0))
    )
    assert (listed.translution_layers, single.translution_layers) == (None, 2)


def test_mixers_that_set_an_option_to_different_values_keep_their_own():
    """Translution's matrices of every offset in every layer would be 28 times the parameters of a base model."""
    several = build_model("translution", encoder_layers=3, decoder_layers=3, decoder_self_mixer="alpha_translution")
    for side, name in ((several.encoder, "translution"), (several.decoder, "alpha_translution")):
        alone = build_model(name, encoder_layers=3, decoder_layers=3).encoder
        assert [layer.self_attn.settings.options for layer in side.layers] == [
            layer.self_attn.settings.options for layer in alone.layers
        ]
    names = "translution,alpha_translution"
    listed = build_model("attention", encoder_self_mixer=names).encoder
    assert [layer.self_attn.settings.options.translution_clip for layer in listed.layers] == [4, 16]


@pytest.mark.parametrize(
    ("mixers", "learned"),
    [("attention,rposnet", True), ("attention,shaw", False), ("aposnet,rposnet", False), ("lightconv,rposnet", True)],
)
def test_positions_are_of_the_kind_that_the_first_reader_has(mixers, learned):
    positions = build_model("attention", encoder_self_mixer=mixers).encoder.positions
    assert positions.learned == learned
    assert (positions.dropout is not None) == ("posnet" in mixers), "made for mixers that read them, and for no other"


def test_without_readers_the_first_layer_decides_on_positions():
    assert build_model("attention", encoder_self_mixer="translution,attention").encoder.positions.weight is None
    assert build_model("attention", encoder_self_mixer="attention,translution").encoder.positions.weight is not None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"encoder_self_mixer": "rposnet,attention,shaw"},
            r"--encoder-self-mixer rposnet,attention,shaw: these are 3 values for 2 layers\. Give one for all layers "
            r"or one for each\.$",
        ),
        ({"cross_mixer": "attention,"}, r"--cross-mixer attention,: a value beside a comma is missing\."),
        (
            {"decoder_self_mixer": "ssru", "decoder_gate": "glu"},
            r"gate glu: ssru has .* own\. Leave out --gate or --decoder-gate\.",
        ),
        (
            {"decoder_self_mixer": "attention,fouriernet"},
            r"layer 2 of the decoder: --decoder-self-mixer fouriernet: this mixer cannot stand there\. Choose one of",
        ),
        (
            {"encoder_self_mixer": "rposnt,attention"},
            r"layer 1 of the encoder: --encoder-self-mixer rposnt: there .* mean rposnet\?",
        ),
        (
            {"encoder_self_mixer": "lightconv,attention", "irpe_on": "k"},
            r"--irpe-on k: none of the chosen mixers \(attention, lightconv\) reads it",
        ),
        (
            {"encoder_self_mixer": "translution,attention", "translution_layers": 1},
            r"--translution-layers 1: the mixer of each layer is named already\. Leave it out\.",
        ),
        (
            {"decoder_self_mixer": "attention,rposnet", "decoder_position_embedding": "none"},
            r"--decoder-position-embedding none: rposnet computes its weights from position",
        ),
        ({"encoder_gate": "selu"}, r"--encoder-gate selu: choose one of none, gelu, glu"),
        (
            {"gate": "gelu", "encoder_gate": "none", "decoder_gate": "none"},
            r"--gate gelu: --encoder-gate and --decoder-gate are given, too",
        ),
        (
            {"length_ratio": "1.5", "cross_mixer": "attention,attention"},
            "--cross-mixer attention,attention does not read",
        ),
        ({"encoder_layers": 10**9}, "--encoder-layers 1000000000: give 1 or more, and at most 1,000"),
    ],
)
def test_bad_input_is_one_sentence(options, sentence):
    with pytest.raises(UsageError, match=sentence):
        build_model("attention", **options)


def test_checkpoints_name_the_mixers_of_as_many_layers_as_there_may_be():
    names = ",".join(["alpha_translution"] * 1000)
    cfg = vars(model_options()) | {"encoder_self_mixer": names, "_name": "transformer_pos_tiny"}
    assert checkpoints.model_options({"cfg": {"model": cfg, "task": {}}}).encoder_self_mixer == names


def test_gates_and_positions_of_one_side():
    model = build_model("rposnet", decoder_gate="none", encoder_position_embedding="sinusoidal")
    assert [model.encoder.layers[0].self_attn.gating.kind, model.decoder.layers[0].self_attn.gating.kind] == [
        "gelu",
        "none",
    ]
    assert [model.encoder.positions.learned, model.decoder.positions.learned] == [False, True]
    model = build_model("rposnet", gate="glu", decoder_gate="none", position_embedding="sinusoidal")
    assert [side.layers[1].self_attn.gating.kind for side in (model.encoder, model.decoder)] == ["glu", "none"]
