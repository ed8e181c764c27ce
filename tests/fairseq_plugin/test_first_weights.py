"""The weights that a fine-tuning begins with, where dictionaries or languages are others than the checkpoint's."""

from types import SimpleNamespace

import pytest
import torch

from posnet_fairseq.fairseq_plugin.first_weights import first_weights
from posnet_fairseq.inference.checkpoints import read_checkpoint
from posnet_fairseq.models.mixer_transformer import MixerTransformer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.dictionary import Dictionary
from support.building import model_options
from support.checkpoints import checkpoint

EMBEDDINGS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")
JOINT = {"share_all_embeddings": True}
SEPARATE = {"share_all_embeddings": False}
TIED = SEPARATE | {"share_decoder_input_output_embed": True}
# w0 to w35 are the checkpoint's. <unk> is a word, besides.
SOURCE = Dictionary(["new", "w7", "w35", "<unk>"])
TARGET = Dictionary(["w1", "w99", "w0", "w2", "w3"])


def begun(tmp_path, source, target, languages=("xx", "yy"), mixer="attention", there=None, **options):
    """A checkpoint's weights, a new model as it was drawn, the weights that it begins with, and what is said."""
    there = options if there is None else there
    path = checkpoint(tmp_path / "run/model.pt", mixer, **there)
    cfg = model_options(mixer, **options)
    entries = SimpleNamespace(source_dictionary=source, target_dictionary=target)
    entries.cfg = SimpleNamespace(source_lang=languages[0], target_lang=languages[1])
    model = MixerTransformer.build_model(cfg, entries)
    drawn = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    weights, sentences = first_weights(read_checkpoint(path), model, entries)
    model.load_state_dict(weights)
    return read_checkpoint(path)["model"], drawn, model.state_dict(), sentences


def assert_rows(trained, drawn, now, dictionary, names):
    for name in names:
        for index, symbol in enumerate(dictionary.symbols):
            row = index if index < 4 else int(symbol[1:]) + 4 if symbol in {f"w{i}" for i in range(36)} else None
            expected = drawn[name][index] if row is None else trained[name][row]
            torch.testing.assert_close(now[name][index], expected, rtol=0, atol=0)


@pytest.mark.parametrize("options", [TIED, SEPARATE])
def test_rows_of_words_that_both_have_are_copied_side_by_side(tmp_path, options):
    trained, drawn, now, sentences = begun(tmp_path, SOURCE, TARGET, **options)
    assert_rows(trained, drawn, now, SOURCE, EMBEDDINGS[:1])
    assert_rows(trained, drawn, now, TARGET, EMBEDDINGS[1:])
    for name in trained.keys() - set(EMBEDDINGS) - {"mixers_version"}:
        torch.testing.assert_close(now[name], trained[name], rtol=0, atol=0)
    rows = "begin with their rows of the checkpoint, which has 40"
    assert sentences == [
        f"words of the source: 6 of 8 {rows}, and 2 as drawn",
        f"words of the target: 8 of 9 {rows}, and 1 as drawn",
    ]


def test_a_joint_dictionary_has_one_matrix(tmp_path):
    trained, drawn, now, sentences = begun(tmp_path, SOURCE, SOURCE, **JOINT)
    assert_rows(trained, drawn, now, SOURCE, EMBEDDINGS)
    assert [each.partition(":")[0] for each in sentences] == ["words of both sides"]


def test_a_joint_dictionary_may_become_two_but_not_the_reverse(tmp_path):
    trained, drawn, now, _ = begun(tmp_path, SOURCE, TARGET, there=JOINT, **TIED)
    assert_rows(trained, drawn, now, SOURCE, EMBEDDINGS[:1])
    assert_rows(trained, drawn, now, TARGET, EMBEDDINGS[1:])
    with pytest.raises(UsageError, match=r"the model has encoder.embed_tokens.weight and decoder.embed.* in"):
        begun(tmp_path, SOURCE, SOURCE, there=TIED, **JOINT)


def test_equal_dictionaries_leave_the_weights_as_they_are(tmp_path):
    words = Dictionary(f"w{i}" for i in range(36))
    trained, _, now, sentences = begun(tmp_path, words, words, mixer="rposnet", cross_mixer="rposnet", **TIED)
    assert not sentences
    for name in trained.keys() - {"mixers_version"}:
        torch.testing.assert_close(now[name], trained[name], rtol=0, atol=0)


@pytest.mark.parametrize(("languages", "kept"), [(("xx", "yy"), True), (("yy", "xx"), False), (("xx", "zz"), False)])
def test_another_pair_or_direction_has_a_length_ratio_of_its_own(tmp_path, languages, kept):
    words = Dictionary(f"w{i}" for i in range(36))
    there = {"cross_mixer": "rposnet", "length_ratio": "1.25"}
    ratio = "1.25" if kept else "0.5"
    _, _, now, _ = begun(tmp_path, words, words, languages, there=there, cross_mixer="rposnet", length_ratio=ratio)
    assert now["decoder.length_ratio_version"].tolist() == ([5, 4] if kept else [1, 2])


@pytest.mark.parametrize("languages", [("xx", "yy"), ("xx", "zz")])
def test_without_its_dictionaries_a_checkpoint_must_have_as_many_words_in_the_same_languages(tmp_path, languages):
    path = checkpoint(tmp_path / "run/model.pt")
    for language in ("xx", "yy"):
        (tmp_path / f"run/dict.{language}.txt").write_text("w0 1\n")  # of other data since
    same = languages == ("xx", "yy")
    words = Dictionary(f"v{i}" for i in range(35 if same else 36))
    entries = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    entries.cfg = SimpleNamespace(source_lang=languages[0], target_lang=languages[1])
    model = MixerTransformer.build_model(model_options(), entries)
    side, count = ("source", 39) if same else ("target", 40)
    with pytest.raises(UsageError, match=rf"the {side} dictionary has {count} entries, but .* 40, .* Put it back"):
        first_weights(read_checkpoint(path), model, entries)
