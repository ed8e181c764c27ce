"""The settings of a search, their limits, and those that a model records: those that it was evaluated with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.shared.schema import check_range

# The least and the most of each setting, and what --help says of it. Other values would fill the memory, or overflow
# where numbers are raised to their power.
SETTINGS: dict[str, tuple[float, float, str]] = {
    "beam": (1, 10_000, "beam size; 1 is greedy search"),
    "lenpen": (-10, 10, "length penalty"),
    "max_len_a": (0, 10**6, "a of the maximum length, a·M + b tokens for M tokens of the longest source of a batch"),
    "max_len_b": (1, 10**9, "b of that length"),
    "min_len": (0, 10**9, "minimum number of tokens, without the end symbol"),
    "unkpen": (-(10**6), 10**6, "penalty for <unk>"),
    "temperature": (0.001, 1_000, "divides scores before softmax"),
    "no_repeat_ngram_size": (0, 10**6, "no n-gram of this size occurs twice; 0 allows it"),
    "sampling": (False, True, "sample --beam hypotheses instead"),
    "sampling_topk": (0, 10**9, "sample from the K most probable tokens; 0 for all"),
    "sampling_topp": (
        *(0.000001, 1),
        "sample from the fewest most probable tokens whose probabilities sum to at least this; 1 for all",
    ),
    "seed": (0, 2**63 - 1, "random seed of --sampling; equal lines get equal samples"),
}
RECORDED = ("beam", "lenpen", "max_len_a", "max_len_b")  # what a model can record, for its own searches
ENTRY = "search"  # of a checkpoint's extra_state, and of a folder's configuration, which has these


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
        no_repeat_ngram_size: no sequence of this number of tokens is repeated in a translation; 0 allows it.
        sampling: sample each next token from the model's distribution.
        sampling_topk: sample from this number of most probable tokens; 0 for all.
        sampling_topp: sample from the smallest set of most probable tokens whose probabilities sum to at least this; 1
            for all.
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
        """
        for name, (least, most, _) in SETTINGS.items():
            value, default = getattr(self, name), getattr(SearchSettings, name)
            if not isinstance(default, bool):
                check_range(option(name), value, least, most, whole=isinstance(default, int))
            elif not isinstance(value, bool):
                raise UsageError(f"{option(name)} {value!r:.50}: give True or False.")
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


def recorded_search(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the search settings that the content of a checkpoint or folder records, by name; {} if it has none."""
    extra = state.get("extra_state")
    found = extra.get(ENTRY, {}) if isinstance(extra, Mapping) else {}
    problem = f"{found!r:.80}, not values of {', '.join(RECORDED)}. Take another checkpoint, or export the model again."
    try:
        if isinstance(found, Mapping) and found.keys() <= set(RECORDED):
            SearchSettings(**found).check()
            return dict(found)
    except UsageError as error:
        problem = f"not allowed: {error}"
    raise UsageError(f"the search settings that it records are {problem}")
