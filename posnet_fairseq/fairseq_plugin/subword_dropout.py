"""Training text whose words are split into other subwords in every epoch: ``--subword-dropout``."""

import itertools
import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.data import BaseWrapperDataset, LanguagePairDataset
from fairseq.trainer import Trainer
from torch import Tensor

from posnet_fairseq.fairseq_plugin.repairs import replaces
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.card import CARD
from posnet_fairseq.text.pipeline import Pipeline, pipeline_of
from posnet_fairseq.text.subwords import Subwords, words_of_pieces

logger = logging.getLogger(__name__)
_MEASURED = 2000  # sentences by which lengths are foretold
_SHARE = 0.95  # of the sentences that are as foretold or shorter


@dataclass(frozen=True)
class _Side:
    """One language of a training set."""

    dictionary: Any
    subwords: Subwords
    dropout: float
    tags: frozenset[str] = frozenset()  # of which one may stand in front of a sentence, and is no part of its text

    def draw(self, sentences: Sequence[Tensor], seed: int) -> list[Tensor]:
        """Return (N,) ids of sentences split anew. A word stays as it is if the dictionary lacks one of its pieces.

        So does a sentence with an unknown word, or with other symbols around it than ``</s>`` at its end.
        """
        special, drawn = self.dictionary.nspecial, list(sentences)
        plain = {
            number: [self.dictionary[index] for index in ids[:-1].tolist()]
            for number, ids in enumerate(sentences)
            if len(ids) > 1 and ids[:-1].min() >= special and ids[-1] == self.dictionary.eos()
        }
        tags = {number: pieces[:1] if pieces[0] in self.tags else [] for number, pieces in plain.items()}
        texts = [self.subwords.join(" ".join(pieces[len(tags[number]) :])) for number, pieces in plain.items()]
        lines = self.subwords.sample(texts, self.dropout, seed)
        for (number, pieces), line in zip(plain.items(), lines, strict=True):
            tag = tags[number]
            chosen = tag + self._known(line.split(" "), pieces[len(tag) :])
            drawn[number] = torch.tensor([*map(self.dictionary.index, chosen), self.dictionary.eos()])
        return drawn

    def _known(self, drawn: list[str], plain: list[str]) -> list[str]:
        if all(map(self.dictionary.indices.__contains__, drawn)):
            return drawn
        both = [_by_word(drawn), _by_word(plain)]
        if len(both[0]) != len(both[1]):
            return plain
        pairs = zip(*both, strict=True)
        return [*itertools.chain(*(a if all(map(self.dictionary.indices.__contains__, a)) else b for a, b in pairs))]

    def room(self, dataset: Any, sizes: np.ndarray, longest: int) -> np.ndarray:
        """Return the (N,) tokens that sentences, of (N,) tokens, have at most after drawing.

        Most drawn ones are shorter, and none is longer than `longest`, unless the sentence itself is.
        """
        chosen = np.arange(0, len(sizes), max(1, len(sizes) // _MEASURED))
        lengths = np.array([*map(len, self.draw([dataset[index] for index in chosen], seed=1))])
        growth = lengths.sum() / sizes[chosen].sum()
        spread = np.quantile((lengths - growth * sizes[chosen]) / np.sqrt(sizes[chosen]), _SHARE)
        foretold = np.ceil(growth * sizes + spread * np.sqrt(sizes)).astype(sizes.dtype)
        logger.info(f"--subword-dropout {self.dropout}: {growth:.2f} times the number of tokens without it")
        return np.maximum(sizes, np.minimum(foretold, longest))


def _by_word(pieces: list[str]) -> list[list[str]]:
    words: list[list[str]] = []
    for number, piece in zip(words_of_pieces(pieces)[1], pieces, strict=True):
        words += [[]] * (number == len(words))
        words[number] = [*words[number], piece]
    return words


class SampledSubwords(BaseWrapperDataset):
    """A training set whose batches are split into subwords when they are read, by seed, epoch and sentences.

    Batches are made for the length that 95% of sampled sentences do not exceed; a longer sample is replaced by the
    plain sentence, so limits on tokens hold.
    """

    def __init__(self, dataset: Any, pipeline: Pipeline, dropout: float, seed: int, longest: Any) -> None:
        super().__init__(dataset)
        self.seed, self.epoch = seed, 1
        tags = frozenset(pipeline.tags.values())
        self.sides = {
            "source": _Side(dataset.src_dict, pipeline.source_pieces, dropout, tags),
            "target": _Side(dataset.tgt_dict, pipeline.target_pieces, dropout),
        }
        texts = (dataset.src, dataset.src_sizes), (dataset.tgt, dataset.tgt_sizes)
        rooms = (side.room(*text, most) for side, text, most in zip(self.sides.values(), texts, longest, strict=True))
        dataset.src_sizes, dataset.tgt_sizes = rooms
        dataset.sizes = np.vstack((dataset.src_sizes, dataset.tgt_sizes)).T
        self.rooms = {"source": dataset.src_sizes, "target": dataset.tgt_sizes}

    def set_epoch(self, epoch: int) -> None:
        """Let batches from now on be those of an epoch."""
        super().set_epoch(epoch)
        self.epoch = epoch

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Return a batch of sentences, each in subwords that are drawn."""
        samples = [dict(sample) for sample in samples]
        for name, side in self.sides.items() if samples else ():
            seed = zlib.crc32(f"{self.seed} {self.epoch} {samples[0]['id']} {name}".encode())
            for sample, drawn in zip(samples, side.draw([sample[name] for sample in samples], seed), strict=True):
                if len(drawn) <= self.rooms[name][sample["id"]]:
                    sample[name] = drawn
        return self.dataset.collater(samples)


@replaces(Trainer, "get_train_iterator")
def draw_subwords_of_the_training_set(get: Callable, trainer: Any, *args: Any, **kwargs: Any) -> Any:
    """Let ``--subword-dropout`` split the training text anew in every epoch, other sets not."""
    dropout = getattr(trainer.cfg.model, "subword_dropout", 0)
    if not dropout:
        return get(trainer, *args, **kwargs)
    task, load = trainer.task, trainer.task.load_dataset

    def load_and_sample(split: str, **options: Any) -> None:
        load(split, **options)
        limits = utils.resolve_max_positions(
            task.max_positions(), trainer.model.max_positions(), trainer.cfg.dataset.max_tokens
        )
        seed, found = trainer.cfg.common.seed, task.datasets[split]
        task.datasets[split] = SampledSubwords(found, _pipeline(dropout, task, found), dropout, seed, limits)

    task.load_dataset = load_and_sample
    try:
        batches = get(trainer, *args, **kwargs)
    finally:
        del task.load_dataset  # its class has the usual one
    batches.persistent_workers = False  # they would not be told of the next epoch
    return batches


def _pipeline(dropout: float, task: Any, dataset: Any) -> Pipeline:
    """Return what splits text of both languages, as the card of the data says."""
    folder, name = Path(utils.split_paths(task.cfg.data)[0]), f"--subword-dropout {dropout}"
    if type(dataset) is not LanguagePairDataset or dataset.buckets is not None or dataset.align_dataset is not None:
        raise UsageError(
            f"{name}: only pairs of --task translation can be split anew, without --num-batch-buckets and "
            "--load-alignments. Leave it out."
        )
    if not (folder / CARD).exists():
        raise UsageError(
            f"{name}: {folder} has no {CARD}, which says how words are split. Prepare the text with posnet-prepare."
        )
    return pipeline_of(folder, (task.cfg.source_lang, task.cfg.target_lang))
