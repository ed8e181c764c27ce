"""A task without data and mixers without a model, for benchmarks, counts and tests."""

from types import SimpleNamespace

from fairseq.data import Dictionary

from posnet_fairseq.mixers.bases.token_mixer import MixerSettings


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


def settings(place, gate, options, embed_dim, num_heads, max_positions):
    """How a mixer that stands alone is built, without dropout: a :class:`MixerSettings`."""
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
