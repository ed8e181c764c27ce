"""Loading of weights into a model, with errors that say why a checkpoint does not fit."""

import json
from argparse import Namespace
from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch
from fairseq.models import BaseFairseqModel
from torch import Tensor, nn

from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.shared.errors import UsageError

# Whole numbers under this name are left alone by half precision, averaging and fairseq's moving average.
MIXERS = "mixers_version"
_PLACE_FLAGS = {"encoder": "--encoder-self-mixer", "decoder": "--decoder-self-mixer", "cross": "--cross-mixer"}


class ExplainedLoading(BaseFairseqModel):
    """Mixin, placed before fairseq's model class, that explains why a checkpoint cannot be loaded."""

    def store_mixers(self) -> None:
        """Store the names and options of the mixers with the weights.

        fairseq gives :meth:`load_state_dict` the options of the present run, not those of the checkpoint, and weights
        of other options may have the same shapes.
        """
        text = json.dumps({name: mixer.description for name, mixer in self._mixers().items()})
        self.register_buffer(MIXERS, torch.tensor(list(text.encode())))

    def _mixers(self) -> dict[str, TokenMixer]:
        return {name: module for name, module in self.named_modules() if isinstance(module, TokenMixer)}

    def load_state_dict(
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,
        model_cfg: Any = None,
        args: Namespace | None = None,
    ) -> Any:
        """Load weights, see :meth:`fairseq.models.BaseFairseqModel.load_state_dict`.

        Args:
            state_dict: weights by name.
            strict: whether the names must be those of the model.
            model_cfg: the configuration that the checkpoint was trained with, passed to fairseq.
            args: the command line that the checkpoint was trained with, passed to fairseq.

        Raises:
            UsageError: the checkpoint was trained with a dictionary of another size or with other mixers or options,
                or a weight is infinite or NaN.
        """
        for side, name in (("source", "encoder"), ("target", "decoder")):
            stored = state_dict.get(f"{name}.embed_tokens.weight")
            if stored is not None and hasattr(self, name):
                entries = getattr(self, name).embed_tokens.num_embeddings
                trained = len(stored) if stored.dim() else 0
                if trained != entries:
                    which = f"the {side} dictionary" if hasattr(self, "encoder") else "the dictionary"
                    raise UsageError(
                        f"{which} has {entries} entries, but the checkpoint was trained with {trained}. "
                        "Give the data directory that it was trained on."
                    )
        self._refuse_other_mixers(state_dict)
        ours = self.state_dict()
        state_dict = without_mixer_versions(state_dict) | {MIXERS: ours[MIXERS]}
        for name, tensor in state_dict.items():
            if name in ours and tensor.is_floating_point() != ours[name].is_floating_point():
                raise UsageError(
                    f"the checkpoint's weight {name} has numbers of the type {tensor.dtype}, the model's are "
                    f"{ours[name].dtype}. Take another checkpoint."
                )
        refuse_not_finite(state_dict)
        try:
            return super().load_state_dict(state_dict, strict=strict, model_cfg=model_cfg, args=args)
        except RuntimeError as error:
            raise UsageError(
                f"the checkpoint does not fit the options: {_first_difference(state_dict, self)}"
            ) from error

    def _refuse_other_mixers(self, state_dict: Mapping[str, Any]) -> None:
        """Refuse the weights of other mixers or options before torch complains about names and shapes."""
        stored = _stored_mixers(state_dict)
        for name, mixer in self._mixers().items():
            theirs = stored.get(name, mixer.description)
            if theirs != mixer.description:
                raise UsageError(
                    f"the checkpoint was trained with {_PLACE_FLAGS[mixer.place]} {theirs}, but the options say "
                    f"{mixer.description}. Give the options it was trained with, or another --save-dir to train a new "
                    "model."
                )


def _stored_mixers(state_dict: Mapping[str, Any]) -> dict[str, str]:
    """Names and options of the mixers that a checkpoint's weights are of, by module; older ones have one for each."""

    def text(codes: torch.Tensor) -> str:
        return bytes(codes.tolist()).decode(errors="replace")

    end = ".mixer_version"
    older = {name.removesuffix(end): text(codes) for name, codes in state_dict.items() if name.endswith(end)}
    return json.loads(text(state_dict[MIXERS])) if MIXERS in state_dict else older


def without_mixer_versions(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Weights without the stored names and options of mixers."""
    return {name: tensor for name, tensor in weights.items() if not name.endswith((MIXERS, ".mixer_version"))}


def refuse_not_finite(weights: Mapping[str, Tensor], path: str | PathLike[str] | None = None) -> None:
    """Check that all weights are finite.

    Args:
        weights: tensors by name.
        path: their origin, named in the error.

    Raises:
        UsageError: a weight is infinite or NaN.
    """
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise UsageError(
                f"{f'{path}: ' if path else ''}the weight {name} is infinite or NaN, so the training diverged. "
                "Take an earlier checkpoint, or train again with a lower --lr or a longer --warmup-updates."
            )


def _first_difference(state_dict: Mapping[str, Tensor], model: nn.Module) -> str:
    """A sentence on the first weight that only one of both has, or whose shapes differ."""
    theirs, ours = (
        dict.fromkeys(f"{name} {tuple(tensor.shape)}" for name, tensor in side.items())
        for side in (state_dict, model.state_dict())
    )
    too_much = next((weight for weight in theirs if weight not in ours), None)
    missing = next((weight for weight in ours if weight not in theirs), None)
    if too_much and missing:
        difference = f"it has {too_much}, the model has {missing}"
    else:
        difference = f"it has {too_much}, which the model lacks" if too_much else f"it lacks {missing}"
    return f"{difference}. Give the options it was trained with, or another --save-dir to train a new model."
