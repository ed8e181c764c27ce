import pytest
import torch

from posnet_fairseq.costs import counting
from posnet_fairseq.inference.stored_energies import precompute
from posnet_fairseq.models.mixer_transformer import MixerTransformer
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text import synthetic
from support.building import WORDS, build_model, model_options

# Parameters of the Base model in millions, with a dictionary of 43,650 words and 128 positions, tables stored:
# PosNet (Schmidt and Di Gangi, WMT 2023) Tables 2 and 6.
PAPER = {
    ("attention", "none"): 66.5,
    ("shaw", "none"): 66.7,
    ("fouriernet", "none"): 63.4,
    ("gaussiannet", "none"): 60.2,
    ("linearnet", "none"): 61.8,
    ("lightconv", "glu"): 63.4,
    ("glinearnet", "gelu"): 65.0,
    ("aposnet", "gelu"): 65.0,
    ("rposnet", "gelu"): 63.9,
    ("attention", "gelu"): 69.7,
    ("shaw", "gelu"): 69.9,
    ("relative", "none"): 63.6,
    ("relative", "gelu"): 66.7,
    ("aposnet", "none"): 61.8,
    ("rposnet", "none"): 60.8,
}


@pytest.mark.parametrize(("mixer", "gate", "millions"), [(*which, millions) for which, millions in PAPER.items()])
def test_parameters_of_the_paper(mixer, gate, millions):
    model = counting.build(mixer, "base", words=43650, max_positions=128, gate=gate)
    precompute(model)
    assert counting.parameter_count(model) / 1e6 == pytest.approx(millions, abs=0.1)


@pytest.mark.parametrize(("mixer", "gate"), list(PAPER)[:9])
def test_gate_of_the_paper_is_the_default(mixer, gate):
    assert get_mixer(mixer).default_gate == gate


def test_users_values_win_over_the_arch():
    cfg = model_options("rposnet", "base", clip_distance=3, dropout=0.25, cross_mixer="attention")
    assert (cfg.clip_distance, cfg.dropout, cfg.attention_dropout) == (3, 0.25, 0.25)
    assert model_options("rposnet", "tiny").clip_distance == 8
    assert model_options("rposnet", "big").clip_distance == 16


def test_each_side_has_the_positions_of_its_mixer():
    model = build_model("rposnet", decoder_self_mixer="aposnet")
    assert model.encoder.positions.learned
    assert not model.decoder.positions.learned
    model = build_model("rposnet", position_embedding="sinusoidal")
    assert not model.encoder.positions.learned


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
def test_positions_are_added_as_published(kind):
    """Sinusoidal ones after scaling the words, learned ones before."""
    model = build_model("attention", position_embedding=kind)
    words, scale = torch.randn(1, 3, 16), 4.0
    vectors = model.encoder.positions.weight[:3]
    expected = words * scale + vectors if kind == "sinusoidal" else (words + vectors) * scale
    torch.testing.assert_close(model.encoder.positions.add_to(words)[0], expected[0])


@pytest.mark.parametrize(("gate", "gain"), [("none", 0.5**0.5), ("gelu", 1.0)])
def test_initial_values(gate, gain):
    """As fairseq's Transformer: Xavier's, of values beside queries and keys with the gain of one of three."""
    torch.manual_seed(1)
    embedded = {"share_all_embeddings": False, "position_embedding": "learned"}
    model = MixerTransformer.build_model(model_options("attention", gate=gate, **embedded), synthetic.task(WORDS))
    value = [each for name, each in model.named_parameters() if name.endswith("value_proj.weight")]
    for weights, deviation in (
        (value, gain * 16**-0.5),
        ([model.decoder.output_projection.weight], 16**-0.5),
        ([model.encoder.positions.weight, model.decoder.positions.weight], 16**-0.5),
    ):
        assert torch.cat(weights).std().item() == pytest.approx(deviation, rel=0.1)


def test_layerdrop_trains():
    model = build_model("rposnet", encoder_layerdrop=0.5, decoder_layerdrop=0.5).train()
    tokens = torch.full((2, 3), 5)
    assert model(tokens, None, tokens)[0].shape == (2, 3, 40)


def refused(message, **options):
    with pytest.raises(UsageError, match=message):
        build_model(**options)


def test_bad_options_are_refused():
    refused(r"--encoder-self-mixer rposnt: there is no such mixer.*Did you mean rposnet\?", encoder_self_mixer="rposnt")
    refused(
        r"--cross-mixer rope: this mixer cannot stand there.*"
        r"Choose one of: alibi, aposnet, .*, shaw\.",
        cross_mixer="rope",
    )
    refused(
        r"--arch transformer_pos_tiny is a translation model, which --task language_modeling cannot train",
        task="language_modeling",
        max_source_positions=None,
    )
    refused(r"--alpha-dim 4: none of the chosen mixers \(attention, translution\)", mixer="translution", alpha_dim=4)
    refused(r"--position-embedding none: rposnet computes its weights from", mixer="rposnet", position_embedding="none")
    refused(r"--encoder-attention-heads 3 must divide --encoder-embed-dim 16\. Change", encoder_attention_heads=3)
    refused(r"--encoder-layers 0: give 1 or more", encoder_layers=0)
    refused(r"the encoder is 32 wide and the decoder 16", encoder_embed_dim=32)


def test_an_option_that_nobody_reads_is_refused():
    refused(r"--clip-distance 4: none of the chosen mixers \(attention\) reads it", clip_distance=4)
    refused(r"--irpe-on k: none of the chosen mixers \(attention, rposnet\) reads it", mixer="rposnet", irpe_on="k")
    refused(r"--lambda-init 0: none of the chosen mixers \(attention\) reads it", lambda_init=0)
    assert build_model("attention", decoder_self_mixer="rposnet", clip_distance=4)


def test_shared_embeddings_need_one_dictionary():
    two = synthetic.task(WORDS)
    two.target_dictionary = synthetic.dictionary(30)
    with pytest.raises(UsageError, match="two different dictionaries"):
        MixerTransformer.build_model(model_options(), two)


def test_checkpoint_of_another_dictionary_is_named_as_such():
    state = build_model("attention").state_dict()
    other = MixerTransformer.build_model(model_options(), synthetic.task(50))
    with pytest.raises(UsageError, match=r"dictionary has 50 entries, .* trained with 40"):
        other.load_state_dict(state)


def test_mixers_may_differ_between_layers_in_their_clip_distance():
    model = build_model("rposnet", clip_distance="3,5", cross_mixer="shaw", length_ratio="1")
    assert [layer.self_attn.energies[0].reach for layer in model.encoder.layers] == [3, 5]
    assert [layer.cross_attn.buckets.distance for layer in model.decoder.layers] == [3, 5]


def test_bad_clip_distances_are_refused():
    refused(r"--clip-distance 3,4,5: these are 3 values for 2 layers", mixer="rposnet", clip_distance="3,4,5")
    refused(r"--clip-distance 0: give 1 or more", mixer="rposnet", clip_distance="3,0")
    refused(r"--clip-distance 99999999999999: give a whole number", mixer="shaw", clip_distance="99999999999999")
    refused(r"--clip-distance 3,4: .*encoder and decoder need", mixer="rposnet", clip_distance="3,4", decoder_layers=1)


def test_positions_of_cross_attention():
    """The side on which only cross-attention reads positions has the kind that its mixer has by default."""
    model = build_model("attention", cross_mixer="rposnet", length_ratio="1")
    assert not model.encoder.positions.learned
    assert model.decoder.positions.learned
    assert model.encoder.positions.dropout is None
    model = build_model("rposnet", cross_mixer="aposnet", length_ratio="1", decoder_self_mixer="attention")
    assert model.encoder.positions.learned
    assert not model.decoder.positions.learned


def test_no_position_embedding_leaves_words_alone():
    model = build_model("attention", position_embedding="none")
    words = torch.randn(1, 3, 16)
    assert torch.equal(model.encoder.positions.add_to(words), words * 4)
    assert not any("positions" in name for name, _ in model.named_parameters())


def test_checkpoint_of_another_mixer_names_both():
    state = build_model("rposnet").state_dict()
    with pytest.raises(UsageError, match=r"trained with --encoder-self-mixer rposnet .*, but the options say aposnet"):
        build_model("aposnet").load_state_dict(state)
    with pytest.raises(UsageError, match=r"--decoder-self-mixer rposnet .*, but the options say arposnet"):
        build_model("rposnet", decoder_self_mixer="arposnet").load_state_dict(state)
    state = build_model("attention", cross_mixer="shaw", length_ratio="1").state_dict()
    with pytest.raises(UsageError, match=r"--cross-mixer shaw .*, but the options say relative"):
        build_model("attention", cross_mixer="relative", length_ratio="1").load_state_dict(state)


def test_checkpoint_of_other_options_names_them():
    state = build_model("shaw", clip_distance=3).state_dict()
    with pytest.raises(UsageError, match=r"shaw --clip-distance 3, but the options say shaw --clip-distance 5"):
        build_model("shaw", clip_distance=5).load_state_dict(state)
    with pytest.raises(UsageError, match=r"but the options say shaw --gate gelu --clip-distance 3"):
        build_model("shaw", clip_distance=3, gate="gelu").load_state_dict(state)
    # Nothing but the function differs here.
    state = build_model("irpe").state_dict()
    with pytest.raises(UsageError, match=r"but the options say irpe .*--irpe-index clip"):
        build_model("irpe", irpe_index="clip").load_state_dict(state)
    build_model("irpe", irpe_on="k", irpe_share_heads="shared").load_state_dict(state)


def test_checkpoint_of_another_shape_names_the_first_weight():
    state = build_model("attention").state_dict()
    with pytest.raises(
        UsageError, match=r"does not fit the options: it has .*feed_forward.inner.weight \(32, 16\), the"
    ):
        build_model("attention", encoder_ffn_embed_dim=48).load_state_dict(state)
    with pytest.raises(UsageError, match=r"it lacks encoder.layers.2"):
        build_model("attention", encoder_layers=3).load_state_dict(state)
    with pytest.raises(UsageError, match=r"it lacks encoder.positions.weight"):
        build_model("attention", position_embedding="learned").load_state_dict(state)


def test_choices_are_checked_wherever_they_come_from():
    """As --model-overrides brings them past the command line."""
    refused(r"--irpe-index foo: choose one of piecewise, clip", mixer="irpe", irpe_index="foo")
    refused(r"--irpe-beta 2.5: give a whole number", mixer="irpe", irpe_beta=2.5)


@pytest.mark.parametrize("cross", ["attention", "shaw", "rposnet"])
def test_an_encoder_output_serves_several_searches(cross):
    model = build_model("shaw", cross_mixer=cross, length_ratio="1.2" if cross != "attention" else None).eval()
    source, target = torch.randint(4, 20, (2, 7)), torch.randint(4, 20, (2, 14))
    with torch.no_grad():
        encoded = model.encoder(source)
        expected = model.decoder(target, encoded)[0]
        for order in ([0, 1], [1, 0], [0, 1]):
            moved = model.encoder.reorder_encoder_out(encoded, torch.tensor(order))
            for used, rows in ((encoded, target), (moved, target[order])):
                state = {}
                found = [model.decoder(rows[:, : n + 1], used, incremental_state=state)[0] for n in range(14)]
                torch.testing.assert_close(torch.cat(found, 1), model.decoder(rows, used)[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(model.decoder(target, encoded)[0], expected)
        first, second = {}, {}
        model.decoder(target[:, :1], encoded, incremental_state=first)
        model.decoder(target[:, :1], encoded, incremental_state=second)
        model.decoder(target[:, :2], encoded, incremental_state=second)
        with pytest.raises(UsageError, match="a step at position 1: this output of the encoder was not there at the"):
            model.decoder(target[:, :2], encoded, incremental_state=first)
