"""Small models, mixers and batches for tests."""

from argparse import Namespace
from types import SimpleNamespace

import torch
from fairseq.data import Dictionary

from posnet_fairseq.gating import GATES
from posnet_fairseq.mixers._base import PLACES, MixerSettings
from posnet_fairseq.model_config import PLACE_OPTIONS, apply_arch
from posnet_fairseq.models.mixer_transformer import MixerTransformer
from posnet_fairseq.registry import get_mixer, mixer_names

MAX_POSITIONS = 24


def dictionary(words=40):
    result = Dictionary()
    for index in range(words - result.nspecial):
        result.add_symbol(f"w{index}")
    return result


def task(words=40):
    entries = dictionary(words)
    return SimpleNamespace(source_dictionary=entries, target_dictionary=entries)


def model_options(mixer="attention", size="tiny", **options):
    """Options of a small model, as a command line would give them."""
    small = {
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_embed_dim": 16,
        "decoder_embed_dim": 16,
        "encoder_ffn_embed_dim": 32,
        "decoder_ffn_embed_dim": 32,
        "dropout": 0.0,
        "share_all_embeddings": True,
        "max_source_positions": MAX_POSITIONS,
        "max_target_positions": MAX_POSITIONS,
    }
    cfg = Namespace(**(small | options))
    apply_arch(cfg, mixer, size)
    return cfg


def build_model(mixer="attention", **options):
    cfg = model_options(mixer, **options)
    return _spread(MixerTransformer.build_model(cfg, task()).eval())


def mixer_cases():
    """Every mixer in every place where it may stand, with every gate."""
    for name in mixer_names():
        for place in PLACES:
            if place in get_mixer(name).places:
                yield from ((name, place, gate) for gate in GATES)


def build_case(name, place, gate, **options):
    """A model with a mixer at one place and attention elsewhere."""
    gates = {"cross_gate": gate} if place == "cross" else {"gate": gate}
    return build_model("attention", **{PLACE_OPTIONS[place]: name}, **gates, **options)


def build_mixer(name, place="encoder", gate="none", embed_dim=8, num_heads=2, **options):
    """A mixer alone, in float64, with weights away from their starting point."""
    cls = get_mixer(name)
    settings = MixerSettings(
        place=place,
        embed_dim=embed_dim,
        memory_dim=embed_dim,
        num_heads=num_heads,
        dropout=0.0,
        gate=gate,
        options=cls.Config(**options),
    )
    return _spread(cls(settings).double().eval())


def _spread(module):
    """Random values in every parameter: zero biases and unit norms would hide mistakes."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return module


def sentences(*lengths, words=40):
    """Random sentences of the given numbers of tokens, the last of each the end symbol."""
    entries = dictionary(words)
    rows = [torch.randint(entries.nspecial, len(entries), (length,)) for length in lengths]
    for row in rows:
        row[-1] = entries.eos()
    return rows


def pad(rows, left=False, width=None):
    """Sentences as one batch, padded on either side."""
    width = width or max(map(len, rows))
    batch = torch.full((len(rows), width), dictionary().pad())
    for into, row in zip(batch, rows, strict=True):
        if left:
            into[width - len(row) :] = row
        else:
            into[: len(row)] = row
    return batch
