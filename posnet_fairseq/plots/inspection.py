"""What the mixers of a model do with a sentence, for people to look at."""

import contextlib
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from posnet_fairseq.mixers.bases.content_based import ContentBasedMixer
from posnet_fairseq.mixers.bases.offset_matrices import OffsetMixer
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.token_mixer import PLACES, TokenMixer
from posnet_fairseq.ops.offsets import scaled
from posnet_fairseq.registry import get_mixer


@dataclass(frozen=True)
class Mixing:
    """One mixer's work on one sentence. Tensors are of float32, on the CPU.

    Attributes:
        place: ``encoder``, ``decoder`` or ``cross``.
        layer: counted from 1.
        mixer: its name.
        queries, keys: names of the N and M tokens.
        weights: α, (H, N, M), NaN where nothing is mixed; None if the mixer has none.
        energies: α̂ before the softmax, (H, N, M), NaN as there; None if there is no softmax.
        added: what is added to the product of query and key, (H, N, M), NaN as there; None if nothing is, or if there
            are no keys of tokens.
        reach: R if offsets of R and beyond share what belongs to them, else None.
        at: where each query stands among the keys, ⌊γn⌋, (N,).
        query_gates: g_n of the gate, (N, H, d); None without ``--gate gelu``, and where values have matrices of
            offsets, which stand between the two parts of a latent weight.
        token_gates: a ⊙ f_1(z_m) Φ(v_m), (M, H, d); None as there.
    """

    place: str
    layer: int
    mixer: str
    queries: list
    keys: list
    weights: Tensor | None
    energies: Tensor | None
    added: Tensor | None
    reach: int | None
    at: Tensor
    query_gates: Tensor | None
    token_gates: Tensor | None

    @property
    def scaled(self):
        """Whether offsets are ⌊γn⌋ - m."""
        return self.place == "cross" and get_mixer(self.mixer).reads_length_ratio

    @property
    def gates(self):
        """β_nm, the mean of a head's features: (H, N, M), NaN as in :attr:`weights`. PosNet (WMT 2023) Eq. 19.

        Of GELU(v) = v Φ(v) it takes Φ itself, of which the paper's σ(1.702 v) is an approximation, and it contains the
        gain a of the LayerNorm, which the paper's Eq. 18 writes before the sum.
        """
        products = torch.einsum("nhd,mhd->hnm", self.query_gates, self.token_gates) / self.query_gates.size(-1)
        return products.masked_fill(self.weights.isnan(), torch.nan)

    def by_distance(self, matrices):
        """Means over the pairs of each distance m - ⌊γn⌋.

        Args:
            matrices: (H, N, M).

        Returns:
            distances (K,), ascending, and (H, K); NaN where there are no pairs.
        """
        distances = torch.arange(len(self.keys)) - self.at[:, None]
        found = torch.arange(int(distances.min()), int(distances.max()) + 1)
        means = [matrices[:, distances == distance].nanmean(dim=1) for distance in found]
        return found, torch.stack(means, dim=1)


def observe(model, source, target, names):
    """Run a model on a sentence and its translation, and look at every mixer.

    Args:
        model: a translation model or a language model of posnet in evaluation mode.
        source: (M,) token ids with the end symbol; None for a language model.
        target: (N,) token ids with the end symbol.
        names: {place: names of the queries, names of the keys}.

    Returns:
        list of :class:`Mixing`: the encoder's layers, then self- and cross-attention of the decoder's.
    """
    watchers = {name: _Watcher(module) for name, module in model.named_modules() if isinstance(module, TokenMixer)}
    with torch.no_grad():
        with contextlib.ExitStack() as stack:
            for watcher in watchers.values():
                stack.enter_context(watcher)
            read = target.roll(1)[None]  # the decoder begins with the end symbol
            if source is None:
                model(read)
            else:
                model(source[None], torch.tensor([len(source)], device=source.device), read)
        found = [watcher.mixing(_layer_of(name), *names[watcher.mixer.place]) for name, watcher in watchers.items()]
    return sorted(found, key=lambda mixing: (PLACES.index(mixing.place), mixing.layer))


def _layer_of(name):
    return int(name.partition("layers.")[2].partition(".")[0]) + 1


class _Watcher:
    """Notes what a mixer is given, what its energies are and what it returns, while it is entered."""

    def __init__(self, mixer):
        self.mixer = mixer
        self._energy = self._added = None

    def __enter__(self):
        self._hooks = [
            self.mixer.register_forward_pre_hook(self._ask_for_weights, with_kwargs=True),
            self.mixer.register_forward_hook(self._note),
        ]
        if isinstance(self.mixer, PositionBasedMixer) and self.mixer.softmax:
            self._wrap(self._note_energy)
        elif isinstance(self.mixer, ContentBasedMixer):
            self._wrap(self._note_energy_of_tokens)
        return self

    def __exit__(self, *_):
        for hook in self._hooks:
            hook.remove()
        self.mixer.__dict__.pop("energy", None)

    def _wrap(self, note):
        energy = self.mixer.energy

        def noted(*arguments):
            result = energy(*arguments)
            note(result, *arguments)
            return result

        self.mixer.energy = noted  # of this instance; popped on the way out

    def _ask_for_weights(self, mixer, arguments, options):
        self._query, self._memory = (*arguments, *arguments)[:2]
        self._length_ratio, self._asked = options.get("length_ratio", (1, 1)), options.get("need_weights", False)
        return arguments, options | {"need_weights": True}

    def _note(self, mixer, arguments, result):
        mixed, self._weights = result
        return result if self._asked else mixed

    def _note_energy(self, energy, *_):
        self._energy = energy

    def _note_energy_of_tokens(self, energy, q, k, index):
        self._energy = energy[0]
        # Matrices of offsets are no addition to a product of query and key, they stand in it.
        if not isinstance(self.mixer, OffsetMixer):
            added = None if k is None else energy - q @ k.mT
            if added is not None and added.abs().max() > 1e-5 * energy.abs().max():
                self._added = added[0]

    def mixing(self, layer, queries, keys):
        """A :class:`Mixing`."""
        mixer, at = self.mixer, scaled(torch.arange(len(queries)), self._length_ratio)
        offsets = at[:, None] - torch.arange(len(keys))
        if isinstance(mixer, PositionBasedMixer):
            hidden = mixer.hidden(offsets)
        else:
            hidden = offsets < 0 if mixer.causal else None

        def seen(matrices):
            if matrices is None:
                return None
            matrices = matrices.float().cpu()
            return matrices if hidden is None else matrices.masked_fill(hidden, torch.nan)

        query_gates, token_gates = self._gates()
        return Mixing(
            place=mixer.place,
            layer=layer,
            mixer=mixer.name,
            queries=list(queries),
            keys=list(keys),
            weights=None if self._weights is None else seen(self._weights[0]),
            energies=seen(self._energy),
            added=seen(self._added),
            reach=_reach(mixer),
            at=at,
            query_gates=query_gates,
            token_gates=token_gates,
        )

    def _gates(self):
        gating = self.mixer.gating
        between = isinstance(self.mixer, OffsetMixer) and self.mixer.matrices.values is not None
        if gating is None or gating.kind != "gelu" or between:
            return None, None
        norm, v = gating.value_norm, gating.value_proj(self._memory[0])
        z = F.gelu(v)
        share = torch.special.ndtr(v)  # Φ(v), where z = v Φ(v)
        scale = norm.weight * (z.var(dim=-1, unbiased=False, keepdim=True) + norm.eps).rsqrt()
        by_head = (self.mixer.num_heads, -1)
        query = F.gelu(gating.gate_proj(self._query[0]))
        return query.unflatten(-1, by_head).float().cpu(), (scale * share).unflatten(-1, by_head).float().cpu()


def _reach(mixer):
    """R where offsets of R and beyond are treated alike, None if each stands for itself."""
    if isinstance(mixer, PositionBasedMixer):
        reaches = {energy.reach for energy in mixer.energies}
        return reaches.pop() if len(reaches) == 1 else None
    if isinstance(mixer, OffsetMixer):
        return mixer.matrices.reach
    reach = getattr(mixer, "clip_distance", getattr(mixer, "beta", None))
    return 4 * reach if getattr(mixer, "index_kind", "clip") == "piecewise" else reach
