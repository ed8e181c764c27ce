"""Models of checkpoints without fairseq: equal to fairseq's, and loaded with torch and little else."""

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble

from posnet_fairseq.inference.checkpoints import read_checkpoint
from posnet_fairseq.inference.model_loading import build_model
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.shared.errors import UsageError
from support.building import WORDS, pad, sentences
from support.building import build_language_model as fairseq_language_model
from support.checkpoints import checkpoint, fairseqs_model, language_model_checkpoint, precomputed
from support.commands import modules_of, python

HEAVY = {"fairseq", "fairseq_cli", "hydra", "omegaconf", "scipy", "pandas", "matplotlib", "sklearn", "sympy"}


@pytest.mark.parametrize("mixer", mixer_names())
@torch.no_grad()
def test_scores_are_those_of_fairseqs_model(tmp_path, mixer):
    options = {"cross_mixer": mixer} if "cross" in get_mixer(mixer).places else {}
    if options and get_mixer(mixer).reads_length_ratio:
        options["length_ratio"] = "1.25"
    path = checkpoint(tmp_path / "model.pt", mixer, **options)
    sources, targets = pad(sentences(5, 9, 1)), pad(sentences(7, 3, 4))
    for chosen in (path, precomputed(path, "--or-copy")):
        state = read_checkpoint(chosen)
        expected, _ = fairseqs_model(state)(sources, None, targets)
        assert torch.equal(build_model(state)(sources, targets), expected)


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
@torch.no_grad()
def test_embeddings_of_two_dictionaries_and_learned_positions(tmp_path, kind):
    options = {"share_all_embeddings": False, "share_decoder_input_output_embed": kind == "learned"}
    state = read_checkpoint(checkpoint(tmp_path / "model.pt", "aposnet", position_embedding=kind, **options))
    sources, targets = pad(sentences(5, 9)), pad(sentences(7, 3))
    expected, _ = fairseqs_model(state)(sources, None, targets)
    model = build_model(state)
    assert torch.equal(model(sources, targets), expected)
    tied = model.decoder.output_projection.weight is model.decoder.embed_tokens.weight
    assert tied == options["share_decoder_input_output_embed"]


def test_options_of_earlier_releases_are_passed_over(tmp_path):
    """By fairseq and without it: --shared-attention-dropout said how weights were dropped in training."""
    path = checkpoint(tmp_path / "model.pt", "rposnet", shared_attention_dropout=True)
    state = torch.load(path, weights_only=True)
    assert state["cfg"]["model"]["shared_attention_dropout"] is True
    (of_fairseq,), _ = load_model_ensemble([str(path)])
    source, target = pad(sentences(5, 9)), pad(sentences(7, 3))
    with torch.no_grad():
        expected = of_fairseq.eval()(source, None, target)[0]
        assert torch.equal(build_model(read_checkpoint(path))(source, target), expected)


@pytest.mark.parametrize("mixer", ["attention", "rposnet", "lightconv"])
@torch.no_grad()
def test_language_models(tmp_path, mixer):
    model = fairseq_language_model(mixer)
    tokens = pad(sentences(9, 4, 1))
    ours = build_model(read_checkpoint(language_model_checkpoint(tmp_path / "model.pt", mixer, model)))
    assert torch.equal(ours(tokens), model(tokens)[0])


def test_options_that_are_the_tasks(tmp_path):
    """As hydra's trainings leave them: the task has the value."""
    path = language_model_checkpoint(tmp_path / "model.pt", "rposnet", add_bos_token=True)
    state = torch.load(path, weights_only=True)
    state["cfg"]["task"]["add_bos_token"] = True
    for left in ("${task.add_bos_token}", None):
        state["cfg"]["model"]["add_bos_token"] = left
        torch.save(state, path)
        assert build_model(read_checkpoint(path)).first_symbol == 0


def test_a_model_of_one_dictionary_takes_no_two(tmp_path):
    from posnet_fairseq.text.dictionary import Dictionary, Vocabulary

    state = read_checkpoint(checkpoint(tmp_path / "model.pt", "rposnet"))
    one, other = (Dictionary(f"{letter}{number}" for number in range(WORDS - 4)) for letter in "ab")
    with pytest.raises(UsageError, match="one dictionary for both languages"):
        build_model(state, Vocabulary("xx", "yy", one, other))


def test_a_length_ratio_that_is_none(tmp_path):
    state = read_checkpoint(checkpoint(tmp_path / "model.pt", "rposnet", cross_mixer="rposnet", length_ratio="1.25"))
    state["model"]["decoder.length_ratio_version"] = torch.tensor([5, 0])
    with pytest.raises(UsageError, match="length ratio of 5 to 0"):
        build_model(state)
    state["model"]["decoder.length_ratio_version"] = torch.tensor([4, 3])
    with pytest.raises(UsageError, match=r"--length-ratio says 1\.25"):
        build_model(state)


@pytest.mark.parametrize("name", ["model.pt", "model"])
@pytest.mark.quick_cases(1)
def test_translating_loads_torch_and_nothing_else_that_is_large(tmp_path, name):
    from posnet_fairseq.cli import export

    path = checkpoint(tmp_path / "model.pt", "rposnet", cross_mixer="arposnet", length_ratio="1.25")
    export.main([str(path), "--out", str(tmp_path / "model"), "--pretokenized"])
    program = "import sys; from posnet_fairseq.cli.translate import main; main(sys.argv[1:])"
    arguments = [tmp_path / name, "--pretokenized", "--beam", "2", "--max-len-b", "3"]
    loaded = modules_of(program, *arguments, input="w1 w2\n")
    assert "torch" in loaded
    assert not HEAVY & {module.partition(".")[0] for module in loaded}
    assert not {"torch._dynamo", "torch._inductor", "torch.onnx", "onnxruntime"} & loaded


def test_no_mixer_imports_the_compiler_when_it_is_loaded(tmp_path):
    """It would take as long as torch itself."""
    program = (
        "import sys\n"
        "from posnet_fairseq.inference.checkpoints import read_checkpoint\n"
        "from posnet_fairseq.inference.model_loading import build_model\n"
        "for path in sys.argv[1:]:\n"
        "    build_model(read_checkpoint(path))\n"
        "    assert 'torch._dynamo' not in sys.modules, path\n"
    )
    python(program, *(checkpoint(tmp_path / f"{mixer}.pt", mixer) for mixer in mixer_names()), check=True)
