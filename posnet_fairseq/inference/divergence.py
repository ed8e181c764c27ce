"""How far the predictions of a model in other precisions are from those in float32."""

import copy
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from posnet_fairseq.inference.packing.pack import pack
from posnet_fairseq.inference.translator import batches_by_length
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.binarised import binarised_set, read_tokens
from posnet_fairseq.text.dictionary import Vocabulary
from posnet_fairseq.transformer.language_model import LanguageModel

# What divergence is measured of. On CPUs weights and what they are multiplied by are bf16, on GPUs all numbers are.
PRECISIONS = ("bf16", "int8", "bf16 on GPUs")
_SENTENCES, _MAX_TOKENS = 100, 1000

# (B, M) sources, None of a language model; (B, N) targets as they are read and as they are to be predicted.
_Batch = tuple[Tensor | None, Tensor, Tensor]


@torch.inference_mode()
def measure_divergence(model: nn.Module, vocabulary: Vocabulary, folder: Path) -> dict[str, float]:
    """The mean Kullback-Leibler divergence D(p || q), in nats a token, of the next tokens' probabilities q in each of
    :data:`PRECISIONS` from p in float32.

    The tokens are those of 100 sentences of the validation set, each predicted from the ones before it.

    Args:
        model: a translation or language model, in evaluation mode and float32.
        vocabulary: of the model.
        folder: directory with binarised data.

    Raises:
        UsageError: the folder has no validation set, or it is empty, damaged, or of another dictionary.
    """
    others = {}
    for precision in PRECISIONS:
        if precision == "int8" and torch.backends.quantized.engine == "none":  # a torch without 8-bit products
            continue
        others[precision] = copy.deepcopy(model)
        if precision == "bf16 on GPUs":
            others[precision].to(torch.bfloat16)
        else:
            pack(others[precision], precision)
    sums, tokens = dict.fromkeys(others, 0.0), 0
    for batch in _batches(model, vocabulary, folder):
        expected = _log_probabilities(model, batch, vocabulary)
        probabilities = expected.exp()
        tokens += len(expected)
        for precision, other in others.items():
            difference = expected - _log_probabilities(other, batch, vocabulary)
            sums[precision] += float((probabilities * difference).sum(dtype=torch.float64))
    if not tokens:
        raise UsageError(f"{folder} has no validation sentences that the model can read.")
    if not all(map(math.isfinite, sums.values())):
        raise UsageError("the model computes infinite numbers or none for the validation set")
    return {precision: each / tokens for precision, each in sums.items()}


def _log_probabilities(model: Any, batch: _Batch, vocabulary: Vocabulary) -> Tensor:
    """(tokens, vocabulary)"""
    source, previous, target = batch
    scores = model(previous) if source is None else model.decoder(previous, model.encoder(source))
    return scores[target != vocabulary.target_dictionary.pad()].float().log_softmax(dim=-1)


def _batches(model: Any, vocabulary: Vocabulary, folder: Path) -> Iterator[_Batch]:
    dictionary = vocabulary.target_dictionary
    if isinstance(model, LanguageModel):
        if not (folder / "valid.idx").exists():
            raise UsageError(f"{folder} holds no binarised validation set (valid.idx and valid.bin).")
        targets = _sentences(folder / "valid", read_tokens(folder / "valid"), len(dictionary))
        sources, limits = targets, (model.max_positions(),) * 2
    else:
        stem = binarised_set(folder, "valid", vocabulary.languages)
        paths = [f"{stem}.{language}" for language in vocabulary.languages]
        sets = [read_tokens(path) for path in paths]
        if len({len(sizes) for _, sizes in sets}) > 1:
            raise UsageError(f"{folder}: its validation set has different numbers of sentences in its two languages.")
        sides = zip(paths, sets, vocabulary.dictionaries, strict=True)
        sources, targets = (_sentences(path, stored, len(entries)) for path, stored, entries in sides)
        limits = model.encoder.max_positions(), model.decoder.max_positions()
    pairs = zip(sources, targets, strict=True)
    short = [pair for pair in pairs if all(len(each) <= limit for each, limit in zip(pair, limits, strict=True))]
    for batch in batches_by_length([max(map(len, pair)) for pair in short], _MAX_TOKENS):
        source, target = (pad_sequence([short[i][side] for i in batch], True, dictionary.pad()) for side in (0, 1))
        previous = getattr(model, "decoder", model).read_before(target)
        yield None if isinstance(model, LanguageModel) else source, previous, target


def _sentences(path: str | Path, stored: tuple[np.ndarray, np.ndarray], words: int) -> list[Tensor]:
    """Token ids, (N,) each, of sentences spread evenly over a set, whose tokens and lengths were read from `path`."""
    tokens, sizes = stored
    ends = np.cumsum(sizes, dtype=np.int64)
    chosen = np.linspace(0, max(len(sizes) - 1, 0), min(_SENTENCES, len(sizes)), dtype=np.int64)
    found = [torch.from_numpy(tokens[ends[i] - sizes[i] : ends[i]].astype(np.int64)) for i in chosen]
    if any(int(sentence.min()) < 0 or int(sentence.max()) >= words for sentence in found if len(sentence)):
        raise UsageError(f"{path}.bin has words that the model's dictionary, of {words} entries, does not have.")
    return found
