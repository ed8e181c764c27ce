import pytest
import torch
from building import build_model, dictionary, model_options, task

from posnet_fairseq.errors import UsageError
from posnet_fairseq.models.mixer_transformer import MixerTransformer

# Trained parameters of the Base model with a dictionary of 43,650 words and 128 positions, in millions.
PAPER = {"attention": 66.5, "rposnet": 66.9, "aposnet": 69.7}


@pytest.fixture(scope="module")
def german():
    return task(words=43650)


@pytest.mark.parametrize(("mixer", "millions"), PAPER.items())
def test_parameters_of_the_paper(german, mixer, millions):
    cfg = model_options(
        mixer,
        "base",
        max_source_positions=128,
        max_target_positions=128,
        **dict.fromkeys(("encoder_layers", "decoder_layers", "encoder_embed_dim", "decoder_embed_dim")),
        **dict.fromkeys(("encoder_ffn_embed_dim", "decoder_ffn_embed_dim")),
    )
    with torch.device("meta"):
        model = MixerTransformer.build_model(cfg, german)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.1)


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


def test_shared_embeddings_are_one_tensor():
    model = build_model("attention")
    assert model.encoder.embed_tokens is model.decoder.embed_tokens
    assert model.decoder.output_projection.weight is model.decoder.embed_tokens.weight
    apart = build_model("attention", share_all_embeddings=False)
    assert apart.decoder.output_projection.weight is not apart.decoder.embed_tokens.weight


def test_layerdrop_trains():
    model = build_model("rposnet", encoder_layerdrop=0.5, decoder_layerdrop=0.5).train()
    tokens = torch.full((2, 3), 5)
    assert model(tokens, None, tokens)[0].shape == (2, 3, 40)


def refused(message, **options):
    with pytest.raises(UsageError, match=message):
        build_model(**options)


def test_bad_options_are_refused():
    refused(r"--encoder-self-mixer rposnt: there is no such mixer.*Did you mean rposnet\?", encoder_self_mixer="rposnt")
    refused(r"--cross-mixer rposnet: this mixer cannot stand there.*Choose one of: attention", cross_mixer="rposnet")
    refused(r"--clip-distance 0: K must be at least 1", mixer="rposnet", clip_distance=0)
    refused(r"--encoder-attention-heads 3: the width 16 .*does not divide", encoder_attention_heads=3)
    refused(r"--decoder-attention-heads 0: give 1 or more", decoder_attention_heads=0)
    refused(r"--encoder-layers 0: give 1 or more", encoder_layers=0)
    refused(r"--dropout 1.5: give 0 or more and less than 1", dropout=1.5)
    refused(r"the encoder is 32 wide and the decoder 16", encoder_embed_dim=32)


def test_an_option_that_nobody_reads_is_refused():
    refused(r"--clip-distance 4: none of the chosen mixers \(attention\) reads it", clip_distance=4)
    assert build_model("attention", decoder_self_mixer="rposnet", clip_distance=4)


def test_shared_embeddings_need_one_dictionary():
    two = task()
    two.target_dictionary = dictionary(30)
    with pytest.raises(UsageError, match="two different dictionaries"):
        MixerTransformer.build_model(model_options(), two)


def test_checkpoint_of_another_dictionary_is_named_as_such():
    state = build_model("attention").state_dict()
    other = MixerTransformer.build_model(model_options(), task(words=50))
    with pytest.raises(UsageError, match=r"dictionary has 50 entries, .* trained with 40"):
        other.load_state_dict(state)
