"""A task without data, to build models of a size for benchmarks, counts and tests."""

from types import SimpleNamespace

from fairseq.data import Dictionary


def dictionary(words):
    """A dictionary of that many entries, fairseq's own symbols counted."""
    entries = Dictionary()
    for index in range(words - entries.nspecial):
        entries.add_symbol(f"w{index}")
    return entries


def task(words):
    """What models ask of a fairseq task: one dictionary for source and target."""
    entries = dictionary(words)
    return SimpleNamespace(source_dictionary=entries, target_dictionary=entries)
