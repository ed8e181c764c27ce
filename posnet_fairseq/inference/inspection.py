"""Weights, energies and gates of the mixers of a model for one sentence and its translation."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posnet_fairseq.inference.search.beam import BeamSearch
from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.mixers.bases.content_based import ContentBasedMixer
from posnet_fairseq.mixers.bases.energies import Energy
from posnet_fairseq.mixers.bases.mixer_settings import PLACES
from posnet_fairseq.mixers.bases.offset_matrices import OffsetMixer
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops.offsets import scaled
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import UsageError, counted, option
from posnet_fairseq.shared.files import is_blank, replacing
from posnet_fairseq.text.dictionary import Dictionary, Vocabulary
from posnet_fairseq.text.pipeline import TextPipeline
from posnet_fairseq.transformer.decoder import LanguageModel
from posnet_fairseq.transformer.model import Transformer

Names = tuple[Sequence[str], Sequence[str]]  # of queries and of keys
_Call = tuple[tuple[Tensor, ...], dict[str, Any]]  # arguments of a mixer: query, and memory or not; and the others
_OBSERVING = threading.Lock()  # mixers are watched for one caller at a time


@dataclass(frozen=True)
class Mixing:
    """What one mixer computes for one sentence. Tensors are of float32, on the CPU.

    Attributes:
        place: "encoder", "decoder" or "cross".
        layer: number of the layer, from 1.
        mixer: name of the mixer.
        queries: N tokens that mix, end symbols included: in the decoder what it reads, which begins with ``</s>``, in
            cross-attention the tokens that it predicts.
        keys: M tokens that are mixed.
        weights: α, (H, N, M), 0 where nothing is mixed. Rows of a softmax sum to 1; those of other mixers are the
            coefficients of the values. None if the mixer has no such weights.
        hidden: (N, M), True where nothing is mixed, which in a decoder is the future.
        energies: α̂ before the softmax, (H, N, M), NaN where nothing is mixed; None without a softmax.
        added: what is added to the product of query and key, as :attr:`energies`; None if nothing is, or keys are not
            of tokens.
        reach: R if offsets of R and beyond share a vector, weight or matrix.
        at: where each query stands among the keys, ⌊γn⌋, (N,).
        query_gates: g_n, (N, H, d), of a gate of the kind gelu; None without one, and if values have matrices of
            offsets, which stand between the two parts of a weight.
        token_gates: a ⊙ f_1(z_m) Φ(v_m), (M, H, d), of such a gate.
    """

    place: str
    layer: int
    mixer: str
    queries: list[str]
    keys: list[str]
    weights: Tensor | None
    hidden: Tensor
    energies: Tensor | None
    added: Tensor | None
    reach: int | None
    at: Tensor
    query_gates: Tensor | None
    token_gates: Tensor | None

    @property
    def name(self) -> str:
        """Place and layer, such as "encoder.1"."""
        return f"{self.place}.{self.layer}"

    @property
    def visible(self) -> Tensor:
        """The weights, (H, N, M), NaN where nothing is mixed."""
        assert self.weights is not None
        return self.weights.masked_fill(self.hidden, torch.nan)

    @property
    def scaled(self) -> bool:
        """Whether offsets are ⌊γn⌋ - m."""
        return self.place == "cross" and get_mixer(self.mixer).reads_length_ratio

    @property
    def gates(self) -> Tensor:
        """β_nm, the mean of a head's features: (H, N, M), NaN as in :attr:`visible`. PosNet (WMT 2023) Eq. 19.

        Of GELU(v) = v Φ(v) it takes Φ itself, of which the paper's σ(1.702 v) is an approximation, and it contains the
        gain a of the LayerNorm, which the paper's Eq. 18 writes before the sum.
        """
        assert self.query_gates is not None
        products = torch.einsum("nhd,mhd->hnm", self.query_gates, self.token_gates) / self.query_gates.size(-1)
        return products.masked_fill(self.hidden, torch.nan)

    @property
    def uniform(self) -> Tensor:
        """Weights that are equal within each row, (1, N, M), NaN as in :attr:`visible`: rows of a decoder differ."""
        mixed = ~self.hidden[None]
        return (1 / mixed.sum(dim=-1, keepdim=True)).where(mixed, torch.nan)

    def by_offset(self, matrices: Tensor) -> tuple[Tensor, Tensor]:
        """Return offsets ⌊γn⌋ - m, (K,), ascending, and means over their pairs of (H, N, M), (H, K); NaN: no pair."""
        offsets = self.at[:, None] - torch.arange(len(self.keys))
        found = torch.arange(int(offsets.min()), int(offsets.max()) + 1)
        return found, torch.stack([matrices[:, offsets == offset].nanmean(dim=1) for offset in found], dim=1)


def of_texts(
    model: Transformer | LanguageModel,
    vocabulary: Vocabulary,
    text: TextPipeline,
    source: str,
    target: str | None,
    settings: SearchSettings,
) -> tuple[list[Mixing], str | None]:
    """Return the mixers of a model on a plain text and its translation, and that translation.

    Without `target` it is the one that the model finds with `settings`. A language model only reads the text; its
    translation is None. The two options that errors name are ``sentence`` and ``target``.
    """
    dictionary, device = vocabulary.target_dictionary, next(model.parameters()).device
    if isinstance(model, LanguageModel):
        ids = _encoded("sentence", source, text.encode(source), dictionary, model.max_positions()).to(device)
        read = _named(model.read_before(ids[None])[0], dictionary)
        return observe(model, None, ids, {"decoder": (read, read)}), None
    limit = model.encoder.max_positions()
    ids = _encoded("sentence", source, text.encode(source), vocabulary.source_dictionary, limit)
    if target is None:
        ((best,),) = BeamSearch([model], dictionary, settings)([ids])
        translation = best.tokens
    else:
        tokens = text.encode_target(text.parts(target)[1])
        translation = _encoded("target", target, tokens, dictionary, model.decoder.max_positions())
    columns, rows = _named(ids, vocabulary.source_dictionary), _named(translation, dictionary)
    read = _named(model.decoder.read_before(translation[None])[0], dictionary)
    names = {"encoder": (columns, columns), "decoder": (read, read), "cross": (rows, columns)}
    mixings = observe(model, ids.to(device), translation.to(device), names)
    return mixings, text.decode(dictionary.string(translation)) if target is None else target


def _encoded(name: str, line: str, tokens: str, dictionary: Dictionary, limit: int) -> Tensor:
    """Return (N,) token ids of a line, with the end symbol; refuse one without words, and more than `limit` tokens."""
    ids = dictionary.encode_line(tokens)
    if is_blank(line) or len(ids) > limit:
        raise UsageError(
            f"{option(name)} has {counted(len(ids), 'token')} (its end symbol counted). Give text with words in it, "
            f"and {limit} tokens at most."
        )
    return ids


def _named(tokens: Iterable[Any], dictionary: Dictionary) -> list[str]:
    return [dictionary[int(token)] for token in tokens]


def save(path: str | Path, mixings: Iterable[Mixing]) -> None:
    """Write weights to a file of numpy's format ``.npz``; mixers without weights are left out.

    Its arrays are the weights of each mixer, (H, N, M), by :attr:`Mixing.name`, and for each place the N queries and M
    keys as texts, such as ``cross.queries`` and ``cross.keys``.
    """
    arrays: dict[str, Any] = {}
    for mixing in mixings:
        if mixing.weights is not None:
            arrays |= {f"{mixing.place}.queries": mixing.queries, f"{mixing.place}.keys": mixing.keys}
            arrays[mixing.name] = mixing.weights.numpy()
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)


def observe(model: nn.Module, source: Tensor | None, target: Tensor, names: Mapping[str, Names]) -> list[Mixing]:
    """Return the work of every mixer of a model in evaluation mode, of the encoder, then in self- and cross-attention.

    Source (M,) and target (N,) are token ids with the end symbol; a language model has no source. Names of queries and
    of keys are by place.
    """
    mixers = {name: module for name, module in model.named_modules() if isinstance(module, TokenMixer)}
    calls: dict[nn.Module, _Call] = {}
    caller = threading.get_ident()

    def note(mixer: nn.Module, *call: Any) -> None:
        if threading.get_ident() == caller:  # others may be translating
            calls[mixer] = call

    with torch.no_grad(), _OBSERVING:
        with contextlib.ExitStack() as stack:
            for mixer in mixers.values():
                stack.callback(mixer.register_forward_pre_hook(note, with_kwargs=True).remove)
            decoder: Any = getattr(model, "decoder", model)
            encoded = [] if source is None else [model.get_submodule("encoder")(source[None])]
            decoder(decoder.read_before(target[None]), *encoded)
        layers = {name: int(name.partition("layers.")[2].partition(".")[0]) + 1 for name in mixers}
        found = [_mixing(mixer, calls[mixer], layers[name], names[mixer.place]) for name, mixer in mixers.items()]
    return sorted(found, key=lambda mixing: (PLACES.index(mixing.place), mixing.layer))


def _mixing(mixer: TokenMixer, call: _Call, layer: int, names: Names) -> Mixing:
    """Return the work of a mixer in a call."""
    arguments, options = call
    query, memory = arguments[0], arguments[-1]
    queries, keys = names
    weights, energies, added = _weights_and_energies(mixer, call)
    at = scaled(torch.arange(len(queries)), options.get("length_ratio", (1, 1)))
    offsets = at[:, None] - torch.arange(len(keys))
    hidden = offsets < 0 if mixer.causal else torch.zeros_like(offsets, dtype=torch.bool)
    if isinstance(mixer, PositionBasedMixer) and (own := mixer.hidden(offsets)) is not None:
        hidden = own

    def seen(matrices: Tensor | None) -> Tensor | None:
        return None if matrices is None else matrices.float().cpu().masked_fill(hidden, torch.nan)

    query_gates, token_gates = _gates(mixer, query, memory)
    return Mixing(
        place=mixer.place,
        layer=layer,
        mixer=mixer.name,
        queries=list(queries),
        keys=list(keys),
        weights=None if weights is None else weights.float().cpu(),
        hidden=hidden,
        energies=seen(energies),
        added=seen(added),
        reach=_reach(mixer),
        at=at,
        query_gates=query_gates,
        token_gates=token_gates,
    )


def _weights_and_energies(mixer: TokenMixer, call: _Call) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return weights, energies, and what is added to products of query and key, each (H, N, M): see :class:`Mixing`."""
    arguments, options = call
    with _recorded_energies(mixer) as recorded:
        _, weights = mixer(*arguments, **options | {"need_weights": True})
    weights = None if weights is None else weights[0]
    for energy, arguments in recorded:
        if isinstance(mixer, PositionBasedMixer):
            return weights, energy if mixer.softmax else None, None
        if isinstance(mixer, ContentBasedMixer):
            q, k, _ = arguments  # (1, H, N, d), (1, H, M, d)
            if k is None or isinstance(mixer, OffsetMixer):  # matrices of offsets stand within the product
                return weights, energy[0], None
            added = (energy - q @ k.mT)[0]
            return weights, energy[0], added if added.abs().max() > 1e-5 * energy.abs().max() else None
    return weights, None, None


@contextlib.contextmanager
def _recorded_energies(mixer: TokenMixer) -> Iterator[list[tuple[Tensor, tuple[Any, ...]]]]:
    """Record what a mixer's method `energy` returns, with its arguments."""
    recorded: list[tuple[Tensor, tuple[Any, ...]]] = []
    if isinstance(mixer, PositionBasedMixer | ContentBasedMixer):
        method: Callable[..., Tensor] = mixer.energy
        caller = threading.get_ident()

        def energy(*arguments: Any) -> Tensor:
            found = method(*arguments)
            if threading.get_ident() == caller:
                recorded.append((found, arguments))
            return found

        vars(mixer)["energy"] = energy  # of this instance, in front of the class's method
    try:
        yield recorded
    finally:
        vars(mixer).pop("energy", None)


def _gates(mixer: TokenMixer, query: Tensor, memory: Tensor) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Return the two parts of the latent weights of a gate, see :class:`Mixing`."""
    gating = mixer.gating
    between = isinstance(mixer, OffsetMixer) and mixer.matrices.values is not None
    if gating is None or gating.gate_proj is None or gating.value_norm is None or between:
        return None, None
    # Layers that are packed for inference compute the activation, too.
    product = getattr(gating.value_proj, "product", gating.value_proj)
    norm, v = gating.value_norm, product(memory[0])
    z = F.gelu(v)
    share = torch.special.ndtr(v)  # Φ(v), where z = v Φ(v)
    scale = norm.weight * (z.var(dim=-1, unbiased=False, keepdim=True) + norm.eps).rsqrt()
    heads = (mixer.num_heads, -1)
    gates = gating.activation(gating.gate_proj(query[0]))
    return gates.unflatten(-1, heads).float().cpu(), (scale * share).unflatten(-1, heads).float().cpu()


def _reach(mixer: TokenMixer) -> int | None:
    """Return R if offsets of R and beyond share a vector, weight or matrix, else None."""
    if isinstance(mixer, PositionBasedMixer):
        reaches = {energy.reach for energy in mixer.energies if isinstance(energy, Energy)}
        return reaches.pop() if len(reaches) == 1 else None
    if isinstance(mixer, OffsetMixer):
        return mixer.matrices.reaches[-1]
    buckets = getattr(mixer, "buckets", None)
    if buckets is None:
        return None
    return 4 * buckets.distance if buckets.kind == "piecewise" else buckets.distance
