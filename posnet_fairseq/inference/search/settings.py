"""The settings of a search, and their limits."""

import dataclasses
from dataclasses import dataclass

from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.shared.schema import check_range

# The least and the most of each setting. The rest would fill the memory, or overflow where numbers are raised to it.
LIMITS: dict[str, tuple[float, float]] = {
    "beam": (1, 10_000),
    "lenpen": (-10, 10),
    "max_len_a": (0, 1_000_000),
    "max_len_b": (1, 1_000_000_000),
    "min_len": (0, 1_000_000_000),
    "unkpen": (-1_000_000, 1_000_000),
    "temperature": (0.001, 1_000),
    "no_repeat_ngram_size": (0, 1_000_000),
    "sampling_topk": (0, 1_000_000_000),
    "sampling_topp": (0.000001, 1),
    "seed": (0, 2**63 - 1),
}

# Settings that a model can record, for its own searches, and what --help says of them.
RECORDED = {
    "beam": "hypotheses kept at each step; 1 is greedy",
    "lenpen": "length penalty",
    "max_len_a": "hypotheses end at a·M + b tokens, where M tokens are the longest source of a batch: a",
    "max_len_b": "b of --max-len-a",
}


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search: of beam search, or with `sampling` of drawing at random.

    Attributes:
        beam: hypotheses that are kept at each step; with `sampling`, those that are drawn. 1 is greedy search.
        lenpen: length penalty; a hypothesis is scored by its log probability over its length to this power.
        max_len_a, max_len_b: a translation ends after at most a·M + b tokens, where M tokens are the longest source of
            its batch.
        min_len: fewest tokens of a translation, the end symbol not counted.
        unkpen: is subtracted from the log probability of ``<unk>``.
        temperature: scores are divided by it before the softmax; below 1, likely tokens become more likely.
        no_repeat_ngram_size: no sequence of this number of tokens comes twice in a translation; 0 allows it.
        sampling: draw each next token at random, as likely as it is.
        sampling_topk: draw among this number of the likeliest tokens; 0 for all.
        sampling_topp: draw among the fewest likeliest tokens whose probabilities sum to this at least; 1 for all.
        seed: of the random numbers. What is drawn for a source depends on the seed and the source, not on its batch.
    """

    beam: int = 12
    lenpen: float = 1.0
    max_len_a: float = 0.0
    max_len_b: int = 200
    min_len: int = 1
    unkpen: float = 0.0
    temperature: float = 1.0
    no_repeat_ngram_size: int = 0
    sampling: bool = False
    sampling_topk: int = 0
    sampling_topp: float = 1.0
    seed: int = 1

    def check(self, words: int | None = None) -> None:
        """Refuse settings that are out of range, or do not go together.

        Args:
            words: entries of the target dictionary, if known: the beam must be smaller.

        Raises:
            UsageError: a setting is no number, out of range, or is not read by this kind of search.
        """
        for setting in dataclasses.fields(self):
            value = getattr(self, setting.name)
            if isinstance(setting.default, bool):
                if not isinstance(value, bool):
                    raise UsageError(f"{option(setting.name)} {value!r:.50}: give True or False.")
            else:
                whole = isinstance(setting.default, int)
                check_range(option(setting.name), value, *LIMITS[setting.name], whole=whole)
        for name, rest in (("sampling_topk", 0), ("sampling_topp", 1)):
            if getattr(self, name) != rest and not self.sampling:
                raise UsageError(
                    f"{option(name)} {getattr(self, name)}: beam search does not read it. Give {option('sampling')} "
                    "too."
                )
        if self.sampling_topk and self.sampling_topp < 1:
            names = option("sampling_topk"), option("sampling_topp")
            raise UsageError(f"{names[0]} {self.sampling_topk} and {names[1]} {self.sampling_topp}: give one of them.")
        for name in ("beam", "sampling_topk"):
            if words is not None and getattr(self, name) >= words:
                raise UsageError(
                    f"{option(name)} {getattr(self, name)}: the target dictionary has {words} entries. Give less than "
                    "that."
                )


# The defaults of a search for texts: a text has at most 100 tokens more than the longest beginning of its batch.
OF_TEXTS = SearchSettings(beam=1, max_len_a=1.0, max_len_b=100)
