"""What is said when a checkpoint's weights do not fit a model."""

import json
from typing import Any

import torch

from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.shared.errors import UsageError

# Whole numbers under this name are left alone by half precision, averaging and fairseq's moving average.
MIXERS = "mixers_version"
_PLACE_FLAGS = {"encoder": "--encoder-self-mixer", "decoder": "--decoder-self-mixer", "cross": "--cross-mixer"}


class ExplainedLoading:
    """A part of fairseq models, before fairseq's own class: loading that names what does not fit."""

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
        self, state_dict: dict[str, Any], strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """Load weights as fairseq does; what does not fit is named.

        Raises:
            UsageError: the checkpoint was trained with a dictionary of another size, with other mixers or options, or
                its weights are infinite or no numbers.
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

    def _refuse_other_mixers(self, state_dict: dict[str, Any]) -> None:
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


def _stored_mixers(state_dict: dict[str, Any]) -> dict[str, str]:
    """Names and options of the mixers that a checkpoint's weights are of, by module; older ones have one for each."""

    def text(codes: torch.Tensor) -> str:
        return bytes(codes.tolist()).decode(errors="replace")

    end = ".mixer_version"
    older = {name.removesuffix(end): text(codes) for name, codes in state_dict.items() if name.endswith(end)}
    return json.loads(text(state_dict[MIXERS])) if MIXERS in state_dict else older


def without_mixer_versions(weights: dict[str, Any]) -> dict[str, Any]:
    """Weights without the stored names and options of mixers."""
    return {name: tensor for name, tensor in weights.items() if not name.endswith((MIXERS, ".mixer_version"))}


def refuse_not_finite(weights: dict[str, Any], path: object = None) -> None:
    """Refuse weights that are infinite or no numbers.

    Args:
        weights: {name: tensor}.
        path: where they come from, for the error's text.

    Raises:
        UsageError: a weight is not finite.
    """
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise UsageError(
                f"{f'{path}: ' if path else ''}the weight {name} is infinite or no number, so the training diverged. "
                "Take an earlier checkpoint, or train again with a lower --lr or a longer --warmup-updates."
            )


def _first_difference(state_dict: dict[str, Any], model: Any) -> str:
    """A sentence on the first weight that one has and the other has not, or that differs in shape."""
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
