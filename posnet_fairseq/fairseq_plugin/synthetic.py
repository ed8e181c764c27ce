"""Dictionaries, a task without data, and settings of mixers without a model, for benchmarks, counts and tests."""

from types import SimpleNamespace

from posnet_fairseq.mixers.bases.token_mixer import MixerSettings
from posnet_fairseq.text.dictionary import Dictionary


def dictionary(words: int) -> Dictionary:
    """A dictionary of invented words, with `words` entries, the four special symbols included."""
    return Dictionary(f"w{index}" for index in range(words - Dictionary.nspecial))


def task(words: int) -> SimpleNamespace:
    """The dictionaries that models ask of a fairseq task: one of `words` entries for source and target."""
    entries = dictionary(words)
    return SimpleNamespace(source_dictionary=entries, target_dictionary=entries)


def settings(
    place: str, gate: str, options: object, embed_dim: int, num_heads: int, max_positions: int
) -> MixerSettings:
    """The settings of a mixer that stands alone, without dropout.

    Args:
        place: ``encoder``, ``decoder`` or ``cross``.
        gate: kind of gate.
        options: of the mixer, its ``Config``.
        embed_dim: width D, of the memory too.
        num_heads: heads H.
        max_positions: longest sentence.
    """
    return MixerSettings(
        place=place,
        embed_dim=embed_dim,
        memory_dim=embed_dim,
        num_heads=num_heads,
        max_positions=max_positions,
        dropout=0.0,
        gate=gate,
        options=options,
    )
