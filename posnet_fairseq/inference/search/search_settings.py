"""The settings of a search, their limits, and those that a model records: those that it was evaluated with."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict

from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.shared.schema import check_range

RECORDED = ("beam", "lenpen", "max_len_a", "max_len_b")  # what a model can record, for its own searches
ENTRY = "search"  # of a checkpoint's extra_state, and of a folder's configuration, which has these


class SearchArguments(TypedDict, total=False):
    """The settings of a search as keyword arguments, see :class:`SearchSettings`."""

    beam: int
    lenpen: float
    max_len_a: float
    max_len_b: int
    min_len: int
    unkpen: float
    temperature: float
    no_repeat_ngram_size: int
    sampling: bool
    sampling_topk: int
    sampling_topp: float
    sampling_epsilon: float
    seed: int


def _setting(default: float, least: float, most: float, meaning: str) -> Any:
    """Return a field: other values would fill the memory, or overflow where numbers are raised to their power."""
    return field(default=default, metadata={"limits": (least, most), "help": meaning})


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search: of beam search, or with `sampling` of drawing at random.

    Values that are out of range, or do not go together, are a :class:`UsageError`.

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
        sampling_epsilon: sample from the tokens of at least this probability, or the most probable one if there are
            none: ε-sampling, Hewitt et al. (2022); 0 for all.
        seed: of the random numbers. What is drawn for a source depends on the seed and the source, not on its batch,
            up to rounding and where the batch changes the maximum length.
    """

    beam: int = _setting(12, 1, 10_000, "beam size; 1 is greedy search")
    lenpen: float = _setting(1.0, -10, 10, "length penalty")
    max_len_a: float = _setting(
        *(0.0, 0, 10**6),
        "a of the maximum length, a·M + b tokens for M tokens of the longest source of a batch",
    )
    max_len_b: int = _setting(200, 1, 10**9, "b of that length")
    min_len: int = _setting(1, 0, 10**9, "minimum number of tokens, without the end symbol")
    unkpen: float = _setting(0.0, -(10**6), 10**6, "penalty for <unk>")
    temperature: float = _setting(1.0, 0.001, 1_000, "divides scores before softmax")
    no_repeat_ngram_size: int = _setting(0, 0, 10**6, "no n-gram of this size occurs twice; 0 allows it")
    sampling: bool = _setting(False, False, True, "sample --beam hypotheses instead")
    sampling_topk: int = _setting(0, 0, 10**9, "sample from the K most probable tokens; 0 for all")
    sampling_topp: float = _setting(
        *(1.0, 0.000001, 1),
        "sample from the fewest most probable tokens whose probabilities sum to at least this; 1 for all",
    )
    sampling_epsilon: float = _setting(
        *(0.0, 0, 1), "sample from the tokens of at least this probability, such as 0.02; 0 for all"
    )
    seed: int = _setting(1, 0, 2**63 - 1, "random seed of --sampling; equal lines get equal samples")

    def __post_init__(self) -> None:
        for name, setting in SETTINGS.items():
            value, default = getattr(self, name), setting.default
            if not isinstance(default, bool):
                least, most = setting.metadata["limits"]
                check_range(option(name), value, least, most, whole=isinstance(default, int))
            elif not isinstance(value, bool):
                raise UsageError(f"{option(name)} {value!r:.50}: give True or False.")
        cuts = ("sampling_topk", "sampling_topp", "sampling_epsilon")
        given = [f"{option(name)} {value}" for name in cuts if (value := getattr(self, name)) != SETTINGS[name].default]
        if given and not self.sampling:
            raise UsageError(f"{given[0]}: beam search does not read it. Give {option('sampling')} too.")
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)}: give one of them.")

    def check_words(self, number: int, where: str = "the target dictionary has {} entries", advice: str = "") -> None:
        """Refuse to search among no more words than there are hypotheses or samples: `where` there is this `number`."""
        for name in ("beam", "sampling_topk"):
            if getattr(self, name) >= number:
                given = f"{option(name)} {getattr(self, name)}"
                raise UsageError(f"{given}: {where.format(number)}. Give less than that{advice}.")


def check_constrained(constraints: Mapping[str, object], settings: SearchSettings) -> None:
    """Refuse constraints, by the names of their options, beside each other and beside settings that ignore them."""
    given = [name for name, value in constraints.items() if value is not None]
    others = [name for name in ("sampling", "no_repeat_ngram_size") if getattr(settings, name)]
    if given and (beside := [*given[1:], *others]):
        why = {
            "sampling": "samples are drawn without looking for terms",
            "no_repeat_ngram_size": "terms may need to be repeated",
        }
        reason = why.get(beside[0], "both say what a translation must contain")
        raise UsageError(f"{option(given[0])} with {option(beside[0])}: {reason}. Leave one of the two out.")


SETTINGS = {setting.name: setting for setting in fields(SearchSettings)}
# The defaults of a search for texts: a text has at most 100 tokens more than the longest beginning of its batch.
OF_TEXTS = SearchSettings(beam=1, max_len_a=1.0, max_len_b=100)


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of the search on a command line, by name, without those that are open."""
    return {name: value for name in SETTINGS if (value := getattr(options, name, None)) is not None}


def recorded_search(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the search settings that the content of a checkpoint or folder records, by name; {} if it has none."""
    extra = state.get("extra_state")
    found = extra.get(ENTRY, {}) if isinstance(extra, Mapping) else {}
    problem = f"{found!r:.80}, not values of {', '.join(RECORDED)}. Take another checkpoint, or export the model again."
    try:
        if isinstance(found, Mapping) and found.keys() <= set(RECORDED):
            SearchSettings(**found)
            return dict(found)
    except UsageError as error:
        problem = f"not allowed: {error}"
    raise UsageError(f"the search settings that it records are {problem}")
