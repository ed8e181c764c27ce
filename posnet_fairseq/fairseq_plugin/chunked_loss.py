"""fairseq's losses over the vocabulary, computed in chunks of tokens: equal sums and gradients in less memory."""

import inspect
import time
from collections.abc import Sequence
from typing import Any

import torch
from fairseq import metrics
from fairseq.criterions import cross_entropy, label_smoothed_cross_entropy, register_criterion
from torch import Tensor, nn

from posnet_fairseq.analog.weight_noise import NoisyLinear
from posnet_fairseq.ops.output_loss import OutputLoss, output_loss
from posnet_fairseq.shared.criterions import PREFIX
from posnet_fairseq.shared.errors import UsageError


class _InChunks:
    """Base class in front of one of fairseq's criterions: the model returns features, the criterion projects them.

    A subclass bears the name of fairseq's class, which checkpoints have in them: fairseq resumes only with a criterion
    of that name, so either criterion goes on where the other was.
    """

    eps = 0.0
    ignore_prefix_size = 0
    padding_idx: int

    def forward(self, model: nn.Module, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict]:
        """Return loss, sample size and logging outputs, as fairseq's criterion does."""
        _check_output_layer(model)
        sample = sample | {"net_input": sample["net_input"] | {"features_only": True}}
        return super().forward(model, sample, reduce=reduce)  # type: ignore[misc]  # fairseq's

    def compute_loss(
        self, model: Any, net_output: tuple[Tensor, Any], sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return the loss with its gradient, and the negative log-likelihood; without `reduce` those of each token."""
        if reduce:
            sums = self._sums(model, net_output[0], sample)
            return sums.loss, sums.nll_loss
        scores = model.decoder.output_layer(net_output[0])
        return super().compute_loss(model, (scores, net_output[1]), sample, reduce=False)  # type: ignore[misc]

    def compute_accuracy(
        self, model: Any, net_output: tuple[Tensor, Any], sample: dict[str, Any]
    ) -> tuple[Tensor, Tensor]:
        """Return the number of targets with the highest score, and of all targets."""
        with torch.no_grad():
            correct = self._sums(model, net_output[0], sample, count_correct=True).correct
        assert correct is not None
        return correct, sample["target"][:, self.ignore_prefix_size :].ne(self.padding_idx).sum()

    @classmethod
    def reduce_metrics(cls, logging_outputs: Sequence[dict[str, Any]]) -> None:
        """Log what fairseq's criterion logs, and as ``cpu`` the CPU seconds of this process since its start.

        On machines that do other work, CPU time says better than elapsed time what a model costs.
        """
        super().reduce_metrics(logging_outputs)  # type: ignore[misc]  # fairseq's
        metrics.log_scalar("cpu", time.process_time(), weight=0, priority=810, round=1)

    def _sums(self, model: Any, features: Tensor, sample: dict[str, Any], count_correct: bool = False) -> OutputLoss:
        features = features[:, self.ignore_prefix_size :].flatten(0, 1)
        targets = sample["target"][:, self.ignore_prefix_size :].flatten()
        projection = model.decoder.output_projection  # forward has checked it
        weight = projection.noisy_weight() if isinstance(projection, NoisyLinear) else projection.weight
        return output_loss(features, weight, targets, self.eps, self.padding_idx, count_correct)


def _check_output_layer(model: Any) -> None:
    """Refuse a model that cannot leave its output layer out."""
    decoder = getattr(model, "decoder", None)
    projection = getattr(decoder, "output_projection", None)
    if (
        not isinstance(projection, nn.Linear)
        or projection.bias is not None
        or not (_returns_features(model) and _returns_features(decoder))
    ):
        raise UsageError(
            f"--criterion {PREFIX}...: the output layer of this model is not one matrix alone that it can leave out, "
            "which chunks need. Give fairseq's criterion of the same name without the prefix."
        )


def _returns_features(module: Any) -> bool:
    """Return whether a module takes ``features_only``, possibly for another to which it passes its arguments."""
    while isinstance(getattr(module, "module", None), nn.Module):  # wrapped for several GPUs
        module = module.module
    taken = inspect.signature(module.forward).parameters.values()
    return any(each.name == "features_only" or each.kind == each.VAR_KEYWORD for each in taken)


@register_criterion(
    f"{PREFIX}label_smoothed_cross_entropy",
    dataclass=label_smoothed_cross_entropy.LabelSmoothedCrossEntropyCriterionConfig,
)
class LabelSmoothedCrossEntropyCriterion(_InChunks, label_smoothed_cross_entropy.LabelSmoothedCrossEntropyCriterion):
    """``label_smoothed_cross_entropy`` in chunks."""


@register_criterion(f"{PREFIX}cross_entropy", dataclass=cross_entropy.CrossEntropyCriterionConfig)
class CrossEntropyCriterion(_InChunks, cross_entropy.CrossEntropyCriterion):
    """``cross_entropy`` in chunks."""
