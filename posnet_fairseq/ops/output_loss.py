"""The label-smoothed loss of an output layer, in chunks of tokens.

The scores of all words for all tokens are the largest tensor of a training step. Here they are computed for one chunk
of tokens at a time, together with the gradients of these tokens: no product is computed twice, and only the gradients
are kept for the backward pass. CPUs compute them in memory that stays in the cache, a few tokens at a time.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from posnet_fairseq.ops.derivatives import once_differentiable
from posnet_fairseq.ops.dtypes import float_type
from posnet_fairseq.ops.host_sync import may_look_at
from posnet_fairseq.ops.linear import multiply, onednn_is_faster

MIN_CHUNK = 256  # tokens; with 512, CPUs take up to 8% longer
MAX_CHUNKS = 16  # each one reads and writes the whole gradient of the weight
IN_CACHE = 2**18  # scores that a core's cache has room for in float32: a megabyte
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
        for_features, for_weight = (is_grad_enabled and needed for needed in ctx.needs_input_grad[:2])
        ctx.features_grad = torch.empty_like(features) if for_features else None
        words, width = weight.shape
        size = max(MIN_CHUNK, -(-len(targets) // MAX_CHUNKS))
        # Unless it would be larger than the scores, each chunk computes its own weight gradient, which is added up
        # transposed, in the layout of the product. MKL adds while it multiplies, in 0.7 to 0.9 of the time.
        adds = features.device.type == "cpu" and features.dtype == wide and not onednn_is_faster()
        is_apart = not adds and width <= min(size, len(targets))
        ctx.weight_grad = None
        if for_weight:
            shape = (width, words) if is_apart else (words, width)
            zeros = torch.zeros(shape, dtype=wide, device=weight.device)
            ctx.weight_grad = zeros.T if is_apart else zeros
        ctx.weight_dtype = weight.dtype
        ctx.scale = FLOAT16_SCALE if features.dtype == torch.float16 else 1.0
        # Expected probabilities: of any word, and of the target in addition. The former is the same for all words: its
        # part of the loss and of the gradients follows from sums over the weight and the features, without the scores.
        other = smoothing / (words - 1)
        of_target = 1 - smoothing - other
        weight_sum = weight.sum(0, dtype=wide)
        counts = (targets != padding_idx).unsqueeze(1)
        target_scores, largest, sums = (
            torch.empty(len(targets), 1, dtype=wide, device=features.device) for _ in range(3)
        )
        best = torch.empty_like(targets) if count_correct else None
        rows = max(1, IN_CACHE // words) if features.device.type == "cpu" else size
        # All chunks have the same memory: other memory would not be in the cache.
        all_scores, block = features.new_empty(min(size, len(targets)), words), None
        if features.dtype != wide:
            block = torch.empty(min(rows, len(targets)), words, dtype=wide, device=features.device)

        def exponentiate(scores: Tensor, part: slice) -> None:
            """Replace scores by gradients, times a factor for each token, without the part that all words share."""
            target, powers = targets[part, None], scores if block is None else block[: len(scores)].copy_(scores)
            if best is not None:
                torch.argmax(powers, 1, out=best[part])
            torch.gather(powers, 1, target, out=target_scores[part])
            torch.amax(powers, 1, keepdim=True, out=largest[part])
            torch.sum(powers.sub_(largest[part]).exp_(), 1, keepdim=True, out=sums[part])
            if not (for_features or for_weight):
                return
            multiple = sums[part]
            if scores.dtype == torch.float16:
                powers.mul_(ctx.scale / multiple)
                multiple = torch.full_like(multiple, ctx.scale)
            powers.scatter_add_(1, target, -of_target * multiple)
            if block is not None:
                scores.copy_(powers)

        for start in range(0, len(targets), size):
            part = slice(start, start + size)
            chunk, counted = features[part], counts[part]
            scores = multiply(chunk, weight, all_scores[: len(chunk)])
            for first in range(0, len(chunk), rows):
                of_rows = scores[first : first + rows]
                exponentiate(of_rows, slice(start + first, start + first + len(of_rows)))
            factors = counted if scores.dtype == torch.float16 else counted * ctx.scale / sums[part]
            if ctx.features_grad is not None:
                of_others = ctx.scale * other * weight_sum * counted
                ctx.features_grad[part] = multiply(scores, weight.T) * factors - of_others
            if ctx.weight_grad is not None:
                _add_product(ctx.weight_grad, scores, (chunk * factors).to(chunk.dtype), is_apart, ctx.scale)
        if ctx.weight_grad is not None:
            ctx.weight_grad -= ctx.scale * other * (features * counts).sum(0, dtype=wide)
        normalizers = largest + sums.log()  # log Σ exp
        nll_loss = (normalizers - target_scores).masked_fill_(~counts, 0).sum()
        of_all = (words * normalizers - features.to(wide) @ weight_sum[:, None]).masked_fill_(~counts, 0).sum()
        loss = of_target * nll_loss + other * of_all
        correct = None if best is None else (best.eq(targets) & counts.squeeze(1)).sum()
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


def _add_product(total: Tensor, grad: Tensor, chunk: Tensor, is_apart: bool, scale: float) -> None:
    """Add gradᵀ · chunk to a gradient of the weight."""
    if grad.dtype == torch.float16:
        factor = _factor(chunk, scale)
        total.addcdiv_(grad.T @ (chunk * factor), factor)
    elif is_apart:
        total += multiply(chunk.T, grad.T).T
    elif total.dtype == grad.dtype:
        total.addmm_(grad.T, chunk)
    else:
        total += grad.T @ chunk


def _factor(chunk: Tensor, scale: float) -> Tensor:
    """Return the largest power of two up to 1 by which a chunk's gradient of the weight stays finite in float16.

    It is 1 unless features are large. It stays on the device, so that a GPU is not waited for.
    """
    # Gradients of scores are between -scale and scale.
    bound = scale * chunk.abs().sum(dim=0, dtype=torch.float32).max()
    return (torch.finfo(chunk.dtype).max / bound).log2().floor().clamp(max=0).exp2()
