"""The checkpoint whose weights a training begins with: it must have the training's model and dictionaries."""

from pathlib import Path
from typing import Any

from torch import nn

from posnet_fairseq.inference.checkpoints import about, known_options, model_arch, read_checkpoint
from posnet_fairseq.inference.precompute import has_tables
from posnet_fairseq.inference.vocabularies import read_vocabulary, refuse_other_dictionaries
from posnet_fairseq.shared.errors import UsageError, flag

# Options that may differ: they say how a model is trained, where it was, or are looked at with the weights.
FREE = (
    *("dropout", "attention_dropout", "shared_attention_dropout", "activation_dropout"),
    *("weight_noise", "weight_noise_on"),
    *("encoder_layerdrop", "decoder_layerdrop", "encoder_embed_path", "decoder_embed_path"),
    *("checkpoint_activations", "offload_activations", "length_ratio", "max_source_positions", "max_target_positions"),
)


def check_beginning(path: Path, model: nn.Module, cfg: Any) -> None:
    """Refuse a checkpoint whose weights are not those of a training's model.

    Args:
        path: of the checkpoint, averaged or not.
        model: of the training, on the meta device. It is changed.
        cfg: fairseq's whole configuration of the training.

    Raises:
        UsageError: it cannot be read, was trained with other options or dictionaries, or has stored energies.
    """
    state = read_checkpoint(path)
    if has_tables(state["model"]):
        raise UsageError(
            f"{path} has stored energies, which cannot be trained. Give the checkpoint that posnet-precompute made it "
            "of (averaged.pt)."
        )
    theirs, ours = model_arch(state), cfg.model._name
    if theirs != ours:
        raise UsageError(f"{path} is a model of --arch {theirs}, and {ours} is trained. Give its --mixer and --size.")
    names = [option.name for option in known_options(state) if option.name not in FREE]
    saved = state["cfg"]["model"]
    different = [
        f"{flag(name)}: {saved[name]} there, {cfg.model[name]} here"
        for name in names
        if name in saved and str(saved[name]) != str(cfg.model[name])
    ]
    if different:
        raise UsageError(f"{path} was trained with other options ({'; '.join(different)}). Give the same.")
    folder = Path(cfg.task.data)
    vocabulary, _ = read_vocabulary(state, folder)
    advice = (  # where its own dictionaries are gone, their sizes are compared later
        "Prepare the text with its subwords and dictionaries: "
        "posnet-prepare corpus --like {folder} --train FILE FILE ..."
    )
    refuse_other_dictionaries(path, state, vocabulary, folder, advice)
    with about(path):
        model.load_state_dict(state["model"])
