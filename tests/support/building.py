"""Small models, mixers and batches for tests."""

import dataclasses
from argparse import Namespace
from dataclasses import dataclass

import torch

from posnet_fairseq.mixers.bases.banded import BandedMixer
from posnet_fairseq.mixers.bases.gating import GATES
from posnet_fairseq.mixers.bases.mixer_options import choices
from posnet_fairseq.mixers.bases.mixer_settings import PLACE_OPTIONS, MixerSettings
from posnet_fairseq.mixers.bases.offset_matrices import OffsetMixer
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.models.mixer_language_model import MixerLanguageModel
from posnet_fairseq.models.mixer_transformer import MixerTransformer
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text import synthetic
from posnet_fairseq.transformer.architectures import apply_gpt_arch, options_of

MAX_POSITIONS = 24
WORDS = 40


def model_options(mixer="attention", size="tiny", **options):
    """Options of a small model, as a command line would give them."""
    shape = {"layers": 2, "embed_dim": 16, "ffn_embed_dim": 32}
    small = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in shape.items()}
    return options_of(mixer, size, MAX_POSITIONS, **{**small, "dropout": 0.0, **options})


def language_model_options(mixer, add_bos_token=False, **more):
    """Of a small one, with blocks of MAX_POSITIONS tokens, the first symbol included."""
    shape = {"layers": 2, "embed_dim": 16, "ffn_embed_dim": 32, "attention_heads": 4}
    options = {f"decoder_{name}": value for name, value in shape.items()}
    blocks = {"tokens_per_sample": MAX_POSITIONS - add_bos_token, "add_bos_token": add_bos_token}
    cfg = Namespace(**{**blocks, "dropout": 0.0, **options, **more})
    apply_gpt_arch(cfg, mixer, "a")
    return cfg


def build_language_model(mixer, **options):
    cfg = language_model_options(mixer, **options)
    return spread(MixerLanguageModel.build_model(cfg, synthetic.task(WORDS)).eval())


def build_model(mixer="attention", **options):
    cfg = model_options(mixer, **options)
    return spread(MixerTransformer.build_model(cfg, synthetic.task(WORDS)).eval())


# Of the base classes TokenMixer, ContentBasedMixer, PositionBasedMixer, BandedMixer and OffsetMixer.
ONE_OF_EACH_BASE = ("fouriernet", "attention", "aposnet", "rposnet", "translution")


@dataclass(frozen=True)
class Case:
    """A mixer at one place, with a gate and options other than its default ones."""

    mixer: str
    place: str
    gate: str
    options: tuple = ()

    def __str__(self):
        return "-".join([self.mixer, self.place, self.gate, *(f"{name}={value}" for name, value in self.options)])


def variants(name):
    """Every choice of every option of a mixer that has choices, one option away from the defaults at a time."""
    for option in dataclasses.fields(get_mixer(name).Config):
        yield from (((option.name, choice),) for choice in choices(option) or () if choice != option.default)


def usual_gate(case):
    """The gate that a mixer has in a place unless one is chosen."""
    return "none" if case.place == "cross" else get_mixer(case.mixer).default_gate


def possible(case):
    """Whether the mixer takes this gate with these options."""
    try:
        settings(case.mixer, case.place, case.gate, get_mixer(case.mixer).Config(**dict(case.options)))
    except UsageError:
        return False
    return True


def mixer_cases():
    """Every mixer in every place where it may stand, with its usual gate, and with every choice of its options.

    Gates are applied to values before they are mixed and to the result, alike in all mixers of a base class: other
    gates are those of one mixer of each.
    """
    for name in mixer_names():
        mixer = get_mixer(name)
        for place in mixer.places:
            usual = usual_gate(Case(name, place, "none"))
            yield from (Case(name, place, gate) for gate in GATES if gate == usual or name in ONE_OF_EACH_BASE)
            for options in variants(name):
                case = Case(name, place, usual, options)
                yield case if possible(case) else dataclasses.replace(case, gate="none")


def few_offsets(case):
    """The case with few groups of offsets: torch.compile traces Translution's products of each of them."""
    if not issubclass(get_mixer(case.mixer), OffsetMixer):
        return case
    return dataclasses.replace(case, options=(*case.options, ("translution_clip", 2)))


def build_case(case, **options):
    """A model with a mixer at one place and attention elsewhere; γ is such that ⌊γn⌋ leaves positions out."""
    gates = {"cross_gate": case.gate} if case.place == "cross" else {"gate": case.gate}
    if case.place == "cross" and get_mixer(case.mixer).reads_length_ratio:
        gates["length_ratio"] = "1.25"
    return build_model("attention", **{PLACE_OPTIONS[case.place]: case.mixer}, **gates, **dict(case.options), **options)


def settings(name, place, gate="none", options=None, embed_dim=8, num_heads=2, max_positions=64):
    return MixerSettings(
        mixer=name,
        place=place,
        embed_dim=embed_dim,
        memory_dim=embed_dim,
        num_heads=num_heads,
        max_positions=max_positions,
        dropout=0.0,
        gate=gate,
        options=options or get_mixer(name).Config(),
    )


def build_mixer(name, place="encoder", gate="none", embed_dim=8, num_heads=2, max_positions=64, **options):
    """A mixer alone, in float64, with weights away from their starting point."""
    cls = get_mixer(name)
    chosen = settings(name, place, gate, cls.Config(**options), embed_dim, num_heads, max_positions)
    return spread(cls(chosen).double().eval())


def spread(module):
    """Random values in every parameter: zero biases and unit norms would hide mistakes."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return module


def sentences(*lengths, words=WORDS):
    """Random sentences of the given numbers of tokens, the last of each the end symbol."""
    entries = synthetic.dictionary(words)
    rows = [torch.randint(entries.nspecial, len(entries), (length,)) for length in lengths]
    for row in rows:
        row[-1] = entries.eos()
    return rows


def replaced(tokens, index):
    """The sentence with another word at `index`."""
    changed = tokens.clone()
    changed[index] = 4 + (changed[index] - 3) % 30
    return changed


def pad(rows, left=False, width=None):
    """Sentences as one batch, padded on either side."""
    width = width or max(map(len, rows))
    batch = torch.full((len(rows), width), synthetic.dictionary(WORDS).pad())
    for into, row in zip(batch, rows, strict=True):
        if left:
            into[width - len(row) :] = row
        else:
            into[: len(row)] = row
    return batch


def vectors(count, width=8, dtype=torch.float64):
    """Of more positions than tokens: in cross-attention ⌊γn⌋ is looked up."""
    return {
        name: torch.randn(2 * count, width, dtype=dtype, requires_grad=True)
        for name in ("positions", "memory_positions")
    }


# Every mixer in every place with its usual gate and options, and those of one mixer of each base class.
USUAL = [case for case in mixer_cases() if not case.options and case.gate == usual_gate(case)]
EXAMPLES = [case for case in USUAL if case.mixer in (*ONE_OF_EACH_BASE, "mamba2")]

# Arguments of posnet_fairseq.build_mixer by place, and every mixer in every place where it may stand.
ARGUMENTS = {"encoder": {}, "decoder": {"causal": True}, "cross": {"cross_attention": True}}
IN_PLACES = [(name, place) for name in mixer_names() for place in get_mixer(name).places]

BANDED = [
    (name, options)
    for name in mixer_names()
    if issubclass(get_mixer(name), BandedMixer)
    for options in ([{}, {"lightconv_global_context": True}] if name == "lightconv" else [{}])
]

POSITION_BASED = [name for name in mixer_names() if issubclass(get_mixer(name), PositionBasedMixer)]
POSITION_BASED_IN_PLACES = [(name, place) for name, place in IN_PLACES if name in POSITION_BASED]
