"""The parts of a model that can be on crossbars, and a model with some of them there."""

from collections.abc import Collection
from typing import Any

from posnet_fairseq.analog.crossbar_matrix import on_crossbars
from posnet_fairseq.analog.crossbar_parts import linears
from posnet_fairseq.analog.hardware import PARTS
from posnet_fairseq.analog.mixing import StoredMixing, put_mixing_on_crossbars
from posnet_fairseq.inference.stored_energies import mixers_with_energies
from posnet_fairseq.mixers.bases.context import MixingContext
from posnet_fairseq.mixers.bases.energies import StoredEnergy
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.model import Transformer


def put_on_crossbars(
    model: Transformer,
    parts: Collection[str],
    configuration: Any,
    longest: tuple[int, int],
    renormalise: bool = False,
) -> dict[str, int]:
    """Replace parts of a model by simulated crossbars.

    Args:
        model: in evaluation mode. It is changed.
        parts: of :data:`PARTS`: ``mixing``, the mixing weights of position-based mixers; ``projections``, of mixers to
            queries, keys, values, gates and out of them; ``feed-forward``; ``output``, to the scores of words. All else
            stays digital: products of queries with keys and of their weights with values, embeddings, sums, norms,
            activations.
        configuration: of the crossbars, see :meth:`Hardware.configuration`.
        longest: most tokens of a source and of a target, for which mixing weights are stored.
        renormalise: see :class:`StoredMixing`.

    Returns:
        the number of weights of each part that are on crossbars.
    """
    if "mixing" in parts:
        _check_mixing(model)
    placed = dict.fromkeys(parts, 0)
    for part in PARTS[1:]:
        if part in parts:
            for owner, name, linear in list(linears(model, part)):
                setattr(owner, name, on_crossbars(linear, configuration))
                placed[part] += linear.weight.numel()
    if "mixing" in parts:
        placed["mixing"] = _put_mixing(model, configuration, longest, renormalise)
    return placed


def _check_mixing(model: Transformer) -> None:
    """Refuse a model without stored mixing weights."""
    if not _position_based(model):
        names = ", ".join(sorted({module.name for module in model.modules() if isinstance(module, TokenMixer)}))
        raise UsageError(
            f"--on mixing: the weights of {names} cannot be stored, they depend on tokens or on the sentence's length. "
            f"Give one or more of {', '.join(PARTS[1:])}, or another model."
        )
    for mixer in mixers_with_energies(model):
        energies: Any = mixer.energies
        if not all(isinstance(energy, StoredEnergy) for energy in energies):
            raise UsageError(
                f"--on mixing: the energies of {mixer.name} are not stored in this model. Give the model that "
                "posnet-precompute makes of it."
            )


def _position_based(model: Transformer) -> list[PositionBasedMixer]:
    return [module for module in model.modules() if isinstance(module, PositionBasedMixer)]


def _put_mixing(model: Transformer, configuration: Any, longest: tuple[int, int], renormalise: bool) -> int:
    stored = 0
    source, target = longest
    for mixer in _position_based(model):
        queries, keys = (source if mixer.place == "encoder" else target), (target if mixer.causal else source)
        context = MixingContext(length_ratio=model.decoder.length_ratio if mixer.place == "cross" else (1, 1))
        put_mixing_on_crossbars(mixer, StoredMixing(mixer, queries, keys, context, configuration, renormalise))
        stored += mixer.num_heads * queries * keys
    return stored
