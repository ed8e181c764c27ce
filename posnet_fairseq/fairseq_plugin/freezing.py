"""Parts of a model that a training leaves as they are: ``--freeze``."""

from typing import Any

from torch import nn

from posnet_fairseq.analog.hardware import parse_parts
from posnet_fairseq.shared.errors import UsageError

PARTS = ("encoder", "decoder", "embeddings")


def freeze(model: Any, text: str | None) -> None:
    """Exclude the parameters of parts of a translation model, with commas between, from training.

    ``embeddings`` are those of words. A weight that two parts share is frozen with either, so that what is named does
    not change.
    """
    parts = parse_parts("--freeze", text, PARTS) if text else ()
    if {"encoder", "decoder"} <= {*parts}:
        raise UsageError(f"--freeze {text}: that is the whole model. Leave out encoder or decoder.")
    modules: list[nn.Module] = [getattr(model, part) for part in parts if part != "embeddings"]
    if "embeddings" in parts:
        modules += [model.encoder.embed_tokens, model.decoder.embed_tokens]
    for module in modules:
        module.requires_grad_(False)


def frozen(model: nn.Module, text: str | None) -> list[str]:
    """Return a sentence that counts what :func:`freeze` has frozen; none if it is nothing."""
    counts = [0, 0]
    for parameter in model.parameters():
        counts[parameter.requires_grad] += parameter.numel()
    return [f"--freeze {text}: {counts[0]:,} of {sum(counts):,} parameters are not trained"] if text else []
