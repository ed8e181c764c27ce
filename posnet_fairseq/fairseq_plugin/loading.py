"""What is said when a checkpoint's weights do not fit a model."""

from posnet_fairseq.shared.errors import UsageError


class ExplainedLoading:
    """Part of a fairseq model, in front of fairseq's own class: loading that names what does not fit."""

    def load_state_dict(self, state_dict, strict=True, model_cfg=None, args=None):
        """As fairseq's, but what does not fit is named as what it is.

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
        ours = self.state_dict()
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


def refuse_not_finite(weights, path=None):
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


def _first_difference(state_dict, model):
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
