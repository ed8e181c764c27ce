"""What a mixer is made of: base classes, options, settings. Gates and the state of decoding are in here, too."""

from posnet_fairseq.mixers.bases.banded import BandedMixer
from posnet_fairseq.mixers.bases.content_based import ContentBasedMixer
from posnet_fairseq.mixers.bases.context import Mixed, MixingContext
from posnet_fairseq.mixers.bases.energies import Energy, enough
from posnet_fairseq.mixers.bases.mixer_options import ClipDistance, Options, option
from posnet_fairseq.mixers.bases.mixer_settings import PLACES, MixerSettings
from posnet_fairseq.mixers.bases.offset_matrices import OffsetMixer, OffsetOptions
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.recurrent import Expand, RecurrentMixer, gated
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer

__all__ = [
    "PLACES", "BandedMixer", "ClipDistance", "ContentBasedMixer", "Energy", "Expand", "Mixed", "MixerSettings",
    "MixingContext", "OffsetMixer", "OffsetOptions", "Options", "PositionBasedMixer", "RecurrentMixer", "TokenMixer",
    "enough", "gated", "option",
]  # fmt: skip
