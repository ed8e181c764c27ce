"""The label-smoothed loss of an output layer, in chunks of tokens.

The scores of all words for all tokens are the largest tensor of a training step. Here they are computed for one chunk
of tokens at a time, together with the gradients of these tokens: no product is computed twice, and only the gradients
are kept for the backward pass.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from posnet_fairseq.ops.derivatives import once_differentiable
from posnet_fairseq.ops.dtypes import float_type
from posnet_fairseq.ops.host_sync import may_look_at
from posnet_fairseq.ops.linear import multiply

# Tokens. Chunks of 64, 128, 256 and 512 tokens take 0.89, 0.84, 0.83 and 0.87 of the time of fairseq's loss.
MIN_CHUNK = 256
MAX_CHUNKS = 16  # each one reads and writes the whole gradient of the weight
# float16 rounds the smallest probabilities to 0: gradients are computed in multiples, and scaled back in float32.
FLOAT16_SCALE = 16.0


class OutputLoss(NamedTuple):
    """Sums over the tokens of a batch.

    Attributes:
        loss: label-smoothed cross-entropy in nats; has a gradient.
        nll_loss: cross-entropy in nats, without a gradient.
        correct: number of targets that have the highest score, without a gradient; None unless asked for.
    """

    loss: Tensor
    nll_loss: Tensor
    correct: Tensor | None


def output_loss(
    features: Tensor, weight: Tensor, targets: Tensor, smoothing: float, padding_idx: int, count_correct: bool = False
) -> OutputLoss:
    """Return the label-smoothed cross-entropy of the scores ``features @ weight.T``.

    The target is expected with probability 1 - ε, each other word with ε / (V - 1), as in fairseq. Scores are computed
    in the dtype of the features, or in that of autocast, all else in float32 (float64 for features in float64).

    Args:
        features: (T, D).
        weight: (V, D).
        targets: (T,) ids of words; tokens whose target is padding do not count; on CPUs, their scores are not computed.
        smoothing: ε, 0 or more and less than 1.
        padding_idx: id of padding.
        count_correct: also count the targets that have the highest score.

    Raises:
        RuntimeError: in a second backward pass.
    """
    device = features.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        features, weight = features.to(dtype), weight.to(dtype)
    if may_look_at(targets):
        counted = (targets != padding_idx).nonzero().squeeze(1)
        features, targets = features[counted], targets[counted]
    with torch.autocast(device, enabled=False):
        sums = _OutputLoss.apply(
            features, weight, targets, smoothing, padding_idx, count_correct, torch.is_grad_enabled()
        )
    return OutputLoss(*sums)


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        targets: Tensor,
        smoothing: float,
        padding_idx: int,
        count_correct: bool,
        is_grad_enabled: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        wide = float_type(features)
        loss, nll_loss = (torch.zeros((), dtype=wide, device=features.device) for _ in range(2))
        correct = torch.zeros((), dtype=torch.long, device=features.device) if count_correct else None
        for_features, for_weight = (is_grad_enabled and needed for needed in ctx.needs_input_grad[:2])
        ctx.features_grad = torch.empty_like(features) if for_features else None
        words, width = weight.shape
        size = max(MIN_CHUNK, -(-len(targets) // MAX_CHUNKS))
        # Unless it would be larger than the scores, each chunk computes its own weight gradient, which is added up
        # transposed, in the layout of the product.
        is_apart = width <= min(size, len(targets))
        ctx.weight_grad = None
        if for_weight:
            shape = (width, words) if is_apart else (words, width)
            zeros = torch.zeros(shape, dtype=wide, device=weight.device)
            ctx.weight_grad = zeros.T if is_apart else zeros
        ctx.weight_dtype = weight.dtype
        ctx.scale = FLOAT16_SCALE if features.dtype == torch.float16 else 1.0
        other = smoothing / (words - 1)  # expected probability of a word that is not the target

        def add(chunk: Tensor, target: Tensor, features_grad: Tensor | None) -> None:
            nonlocal loss, nll_loss, correct
            scores, padding = multiply(chunk, weight), target == padding_idx
            if scores.device.type == "cpu":
                scores = scores.to(wide)  # a softmax from bf16 to float32 takes six times as long there
            if correct is not None:
                correct += (scores.argmax(dim=1, keepdim=True).eq(target) & ~padding).sum()
            of_target, largest = scores.gather(1, target).to(wide), scores.amax(dim=1, keepdim=True)
            of_all = scores.sum(dim=1, keepdim=True, dtype=wide) if smoothing else None
            probs = _softmax(scores, largest, wide)
            del scores
            normalizer = largest - probs.amax(dim=1, keepdim=True).log()  # log Σ exp
            nll = (normalizer - of_target).masked_fill_(padding, 0).sum()
            nll_loss += nll
            loss += (1 - smoothing - other) * nll
            if of_all is not None:
                loss += other * (words * normalizer - of_all).masked_fill_(padding, 0).sum()
            if not (for_features or for_weight):
                return
            # The gradient of the scores: their probabilities, less the expected ones.
            if smoothing:
                probs -= other
            probs.scatter_add_(1, target, probs.new_full((1, 1), smoothing + other - 1).expand_as(target))
            grad = probs.mul_(ctx.scale * ~padding).to(chunk.dtype)
            del probs
            if features_grad is not None:
                features_grad.copy_(multiply(grad, weight.T))
            if ctx.weight_grad is not None and grad.dtype == torch.float16:
                factor = _factor(chunk, ctx.scale)
                ctx.weight_grad.addcdiv_(grad.T @ (chunk * factor), factor)
            elif ctx.weight_grad is not None and is_apart:
                ctx.weight_grad += multiply(chunk.T, grad.T).T
            elif ctx.weight_grad is not None and ctx.weight_grad.dtype == grad.dtype:
                ctx.weight_grad.addmm_(grad.T, chunk)
            elif ctx.weight_grad is not None:
                ctx.weight_grad += grad.T @ chunk

        for start in range(0, len(targets), size):
            part = slice(start, start + size)
            add(features[part], targets[part, None], None if ctx.features_grad is None else ctx.features_grad[part])
        ctx.mark_non_differentiable(nll_loss, *([] if correct is None else [correct]))
        return loss, nll_loss, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        features_grad, weight_grad = ctx.features_grad, ctx.weight_grad
        if features_grad is None and weight_grad is None:
            raise RuntimeError("output_loss keeps its gradients for one backward pass only. Compute the loss again.")
        ctx.features_grad = ctx.weight_grad = None
        factor = upstream / ctx.scale
        if features_grad is not None:
            features_grad = (features_grad * factor).to(features_grad.dtype)
        if weight_grad is not None:
            weight_grad = weight_grad.mul_(factor).to(ctx.weight_dtype)
        return features_grad, weight_grad, None, None, None, None, None


def _softmax(scores: Tensor, largest: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the softmax over words; on CPUs in place of the scores: allocating memory takes longer there."""
    if scores.device.type != "cpu":
        return torch.softmax(scores, dim=1, dtype=dtype)
    powers = scores.sub_(largest).exp_()
    return powers.div_(powers.sum(dim=1, keepdim=True))


def _factor(chunk: Tensor, scale: float) -> Tensor:
    """Return the largest power of two up to 1 by which a chunk's gradient of the weight stays finite in float16.

    It is 1 unless features are large. It stays on the device, so that a GPU is not waited for.
    """
    # Gradients of scores are between -scale and scale.
    bound = scale * chunk.abs().sum(dim=0, dtype=torch.float32).max()
    return (torch.finfo(chunk.dtype).max / bound).log2().floor().clamp(max=0).exp2()
