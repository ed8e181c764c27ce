"""The checkpoint whose weights a training begins with: it must have the training's model and dictionaries."""

from pathlib import Path
from typing import Any

from torch import nn

from posnet_fairseq.inference.checkpoints import about, known_options, model_arch, read_checkpoint
from posnet_fairseq.inference.precompute import has_tables
from posnet_fairseq.inference.vocabularies import other_dictionary, read_vocabulary
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
        model: of the training, on the meta device. It is changed.
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
    _refuse_other_dictionaries(path, state, folder)
    with about(path):
        model.load_state_dict(state["model"])


def _refuse_other_dictionaries(path: Path, state: Any, folder: Path) -> None:
    """Refuse data with other dictionaries than the model's. Where its own are gone, their sizes are compared later."""
    vocabulary, _ = read_vocabulary(state, folder)
    found = other_dictionary(state, vocabulary, folder)
    if found:
        own, used = found
        raise UsageError(
            f"{path} was trained with the dictionary {own}, which differs from {used}. Prepare the text with its "
            f"subwords and dictionaries: posnet-prepare corpus --like {own.parent} --train FILE FILE ..."
        )
