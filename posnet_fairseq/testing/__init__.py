"""Laws that every token mixer must keep, to run against new ones."""

import inspect
from typing import Any

import torch

from posnet_fairseq.mixers.bases.building import build_mixer
from posnet_fairseq.mixers.bases.gating import GATES
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.testing import full_pass_laws, gradient_laws, mixer_laws, refusals, step_laws

__all__ = ["check_mixer"]

LAWS = [
    law
    for module in (full_pass_laws, step_laws, mixer_laws, refusals, gradient_laws)
    for name, law in vars(module).items()
    if inspect.isfunction(law) and law.__module__ == module.__name__ and not name.startswith("_")
]


def check_mixer(name: str, *, embed_dim: int = 8, num_heads: int = 2, **options: Any) -> None:
    """Run all laws for a registered mixer, in every place where it may stand and with every gate that it takes.

    Its formula is not among them: compare it with a slow reference in a test of your own.

    Args:
        name: one of :func:`posnet_fairseq.mixer_names`.
        embed_dim: D, of a mixer that needs another width than 8.
        num_heads: H, which must divide D.
        options: the mixer's own, as for :func:`posnet_fairseq.build_mixer`.

    Raises:
        AssertionError: a law is broken; the text names it, the place and the gate, and says what holds.
        UsageError: there is no such mixer, it mixes grids only, or it does not take these options or sizes with any
            gate.
    """
    for argument in options.keys() & inspect.signature(build_mixer).parameters.keys():
        raise UsageError(f"{argument}: check_mixer tries all places and gates. Leave it out.")
    places, sizes = get_mixer(name).places, (embed_dim, num_heads)
    if not places:
        raise UsageError(f"{name} mixes grids only, for which there are no laws.")
    for place in places:
        built = 0
        for gate in GATES:
            try:
                _build(name, place, gate, sizes, options)
            except UsageError:
                if gate == GATES[-1] and not built:
                    raise
                continue
            built += 1
            for law in LAWS:
                torch.manual_seed(1)
                try:
                    law(_build(name, place, gate, sizes, options))
                except Exception as error:
                    about = inspect.getdoc(law)
                    raise AssertionError(f"{name}, {place}, gate {gate}: {law.__name__}: {error}\n{about}") from error


def _build(name: str, place: str, gate: str, sizes: tuple[int, int], options: dict[str, Any]) -> TokenMixer:
    """A small mixer in float64, with weights away from where they start: unit norms would hide mistakes."""
    where: dict[str, Any] = {"decoder": {"causal": True}, "cross": {"cross_attention": True}}.get(place, {})
    embed_dim, num_heads = sizes
    mixer = build_mixer(name, embed_dim, num_heads, 64, gate=gate, position_embedding="none", **where, **options)
    mixer = mixer.double().eval()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return mixer
