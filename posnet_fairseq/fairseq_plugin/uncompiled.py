"""What fairseq 0.12.3 compiles for translation and language models, in numpy: batches, blocks of text, BLEU.

fairseq-fixed installs without compiling if the variable READTHEDOCS is set. Results are those of the compiled code.
"""

import importlib.util
import sys
import types
from collections import Counter
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

import numpy as np
import torch
from fairseq.scoring import bleu

from posnet_fairseq.shared.errors import UsageError


def batches(indices: Any, lengths: Any, max_tokens: int, max_sentences: int, multiple: int) -> list[np.ndarray]:
    """Return the sentences of an order in batches.

    A batch ends where a further sentence would make it too large, at the last place where its sentences were fewer
    than ``multiple`` or a multiple of it.

    Args:
        indices: (N,) sentences.
        lengths: (N,) their tokens.
        max_tokens: times the longest sentence, of a batch with padding; below 1: any.
        max_sentences: of a batch; below 1: any.
        multiple: of sentences.
    """
    assert max_tokens <= 0 or not len(lengths) or max(lengths) <= max_tokens, (
        f"Sentences lengths should not exceed max_tokens={max_tokens}"
    )
    ends: list[int] = []
    start = end = longest = longest_after = 0  # of the batch that grows; the longest before and after its possible end
    for last, length in enumerate(np.asarray(lengths).tolist()):
        longest_after = max(longest_after, length)
        longest_of_all = max(longest, longest_after)
        count = last + 1 - start
        fits = not (0 < max_sentences < count or 0 < max_tokens < count * longest_of_all)
        if not fits:
            if 0 < max_tokens < longest_after * (last + 1 - end):
                ends.append(end)
                end, longest_after = last, length
            ends.append(end)
            start, longest_of_all = end, longest_after
        if not fits or count < multiple or count % multiple == 0:
            end, longest, longest_after = last + 1, longest_of_all, 0
    if end != len(lengths):
        ends.append(end)
    return np.split(indices, ends) if len(indices) else []


def batches_by_function(indices: Any, length: Callable[[int], int], *limits: int) -> list[np.ndarray]:
    """Return :func:`batches` of sentences whose tokens a function returns."""
    return batches(indices, [length(index) for index in indices], *limits)


def fixed_shapes(*_: Any) -> Any:
    """Refuse what needs compiled code, always with a UsageError."""
    raise UsageError("batches of fixed shapes need a compiled fairseq. Leave --num-batch-buckets out.")


def blocks(lengths: np.ndarray, mode: str | None, size: int, separator: int) -> np.ndarray:
    """Return the begins and ends, (B, 2), in a text of the blocks that a language model is trained on.

    Args:
        lengths: (N,) tokens of its sentences.
        mode: blocks are ``none``: of ``size`` tokens; ``eos``: sentences; ``complete``: as many whole sentences as
            fit into ``size`` tokens, at least one; ``complete_doc``: the same, within documents.
        size: of a block in tokens.
        separator: tokens of the sentence that ends a document.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    if mode in (None, "none"):
        begins = np.arange(0, ends[-1], size)
        return np.stack([begins, np.minimum(begins + size, ends[-1])], 1)
    if mode == "eos":
        return np.stack([ends - lengths, ends], 1)
    if mode not in ("complete", "complete_doc"):
        raise ValueError(f"Invalid break_mode: {mode}")
    is_doc, found, begin, end = mode == "complete_doc", [], 0, 0
    for length in [*lengths.tolist(), None]:
        ends_document = is_doc and length == separator
        if length is None or ends_document or (end > begin and end - begin + length > size):
            if end - begin > is_doc:
                found.append((begin, end))
            begin = end = end + separator * ends_document
        if length is not None and not ends_document:
            end += length
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def places(lengths: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Return for each block, (B, 3): its first sentence, the tokens of it before the block, its last sentence."""
    ends = np.cumsum(lengths, dtype=np.int64)
    first = np.searchsorted(ends, found[:, 0], "right")
    last = np.searchsorted(ends, np.maximum(found[:, 1] - 1, found[:, 0]), "right")
    return np.stack([first, found[:, 0] - (ends - lengths)[first], last], 1)


class BleuScorer(bleu.Scorer):
    """fairseq's BLEU of token ids."""

    def __init__(self, cfg: Any) -> None:
        self.stat = bleu.BleuStat()
        self.pad, self.eos, self.unk = cfg.pad, cfg.eos, cfg.unk

    def reset(self, one_init: bool = False) -> None:
        """Forget all sentences."""
        self.stat = bleu.BleuStat(*[0] * 4, *[int(one_init)] * 6)

    def add(self, ref: torch.Tensor, pred: torch.Tensor) -> None:
        """Count a sentence, tokens of a reference and of a translation."""
        reference, translation = self._trimmed(ref.masked_fill(ref == self.unk, -999)), self._trimmed(pred)
        self.stat.reflen += len(reference)
        self.stat.predlen += len(translation)
        for order in range(1, 5):
            known, given = (
                Counter(zip(*(ids[n:] for n in range(order)), strict=False)) for ids in (reference, translation)
            )
            for name, more in ((f"count{order}", given), (f"match{order}", known & given)):
                setattr(self.stat, name, getattr(self.stat, name) + more.total())

    def _trimmed(self, ids: torch.Tensor) -> list[int]:
        """Return ids without padding around them and ends of sentences behind them; at least one is left."""
        left = ids.tolist()
        while left and left[0] == self.pad:
            del left[0]
        while len(left) > 1 and left[-1] in (self.pad, self.eos):
            del left[-1]
        return left


def replace_compiled_code() -> None:
    """Put these functions in the places of compiled ones, where fairseq was not compiled."""
    if importlib.util.find_spec("fairseq.data.data_utils_fast"):
        return
    for name, functions in {
        "data_utils_fast": {
            "batch_by_size_vec": batches,
            "batch_by_size_fn": batches_by_function,
            "batch_fixed_shapes_fast": fixed_shapes,
        },
        "token_block_utils_fast": {"_get_slice_indices_fast": blocks, "_get_block_to_dataset_index_fast": places},
    }.items():
        module = sys.modules[f"fairseq.data.{name}"] = types.ModuleType(f"fairseq.data.{name}")
        vars(module).update(functions, __spec__=ModuleSpec(module.__name__, None))  # which find_spec finds
    vars(bleu)["Scorer"] = BleuScorer
