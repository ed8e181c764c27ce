"""Loading of weights by fairseq, with errors that say why a checkpoint does not fit."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import torch
from fairseq.models import BaseFairseqModel

from posnet_fairseq.inference.weights import MIXERS, check_weights, describe_mixers, other_weights


class ExplainedLoading(BaseFairseqModel):
    """Mixin, placed before fairseq's model class, that explains why a checkpoint cannot be loaded."""

    def store_mixers(self) -> None:
        """Store the names and options of the mixers with the weights.

        fairseq gives :meth:`load_state_dict` the options of the present run, not those of the checkpoint, and weights
        of other options may have the same shapes.
        """
        self.register_buffer(MIXERS, torch.tensor(list(describe_mixers(self).encode())))

    def load_state_dict(
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,
        model_cfg: Any = None,
        args: Namespace | None = None,
    ) -> Any:
        """Load weights as fairseq does, and refuse those of another model with a sentence."""
        state_dict = check_weights(self, state_dict) | {MIXERS: self.state_dict()[MIXERS]}
        try:
            return super().load_state_dict(state_dict, strict=strict, model_cfg=model_cfg, args=args)
        except RuntimeError as error:
            raise other_weights(state_dict, self) from error
