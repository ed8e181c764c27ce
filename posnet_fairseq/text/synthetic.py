"""Dictionaries and a task without data, for benchmarks, counts and tests."""

from types import SimpleNamespace

from posnet_fairseq.text.dictionary import Dictionary


def dictionary(words: int) -> Dictionary:
    """Return a dictionary of invented words, with `words` entries, the four special symbols included."""
    return Dictionary(f"w{index}" for index in range(words - Dictionary.nspecial))


def task(words: int) -> SimpleNamespace:
    """Return the dictionaries that models ask of a fairseq task: one of `words` entries for source and target."""
    entries = dictionary(words)
    return SimpleNamespace(source_dictionary=entries, target_dictionary=entries)
