"""Arguments that would give wrong numbers are refused."""

from numbers import Integral
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from posnet_fairseq.mixers.bases.context import check_padding, check_tensors
from posnet_fairseq.mixers.bases.decoding_state import DecodingState
from posnet_fairseq.mixers.bases.mixer_settings import MixerSettings
from posnet_fairseq.ops.dtypes import dtype_name
from posnet_fairseq.shared.errors import UsageError, counted


def check_state(
    settings: MixerSettings,
    max_memory: int | None,
    batch_size: int,
    memory: Tensor | None,
    padding_mask: Tensor | None,
    memory_positions: Tensor | None,
) -> None:
    """Refuse arguments of :meth:`TokenMixer.init_state` that do not fit together."""
    if not _is_whole(batch_size) or batch_size < 0:
        raise UsageError(f"init_state: batch_size {batch_size!r:.50}: give the number of hypotheses, 0 or more.")
    place = settings.place
    if settings.cells is not None:
        raise UsageError("init_state: a mixer on a grid cannot decode. Build one without grid, with causal=True.")
    if place == "encoder":
        raise UsageError("init_state: a mixer that sees the future cannot decode. Build one with causal=True.")
    if (memory is None) == (place == "cross"):
        needed = "needs the memory" if memory is None else "takes no memory: its tokens come with the steps"
        raise UsageError(f"init_state: a mixer for {place} attention {needed}.")
    for name, of_memory in (("padding_mask", padding_mask), ("memory_positions", memory_positions)):
        if memory is None and of_memory is not None:
            raise UsageError(f"init_state: {name} is of the memory, which only cross-attention has. Leave it out.")
    if memory is not None:
        check_tensors(memory=memory)
        if memory.dim() != 3 or memory.size(2) != settings.memory_dim or (memory.size(0) and not memory.size(1)):
            raise UsageError(
                f"init_state: memory of the shape {tuple(memory.shape)}: give tokens of sentences, (S, M, "
                f"{settings.memory_dim}), with M 1 or more."
            )
        if batch_size % max(1, memory.size(0)) or bool(batch_size) != bool(memory.size(0)):
            raise UsageError(
                f"init_state: {batch_size} hypotheses for a memory of {memory.size(0)} sentences: give every "
                "sentence the same number of hypotheses, 1 or more."
            )
        if padding_mask is not None:
            check_padding(padding_mask, memory.shape[:2])
        _check_length("memory tokens", memory, padding_mask, max_memory)


def check_call(
    settings: MixerSettings, max_memory: int | None, query: Tensor, memory: Tensor, padding_mask: Tensor | None
) -> None:
    """Refuse tokens of :meth:`TokenMixer.forward` that do not fit together or are too many, and padding before them."""
    check_tensors(query=query, memory=memory)
    if settings.place != "cross" and memory is not query:
        raise UsageError("memory: self-attention mixes the queries themselves. Leave it out.")
    # No len(): it would make a number of what is open in an exported graph.
    fits = (
        (query.dim(), memory.dim()) == (3, 3)
        and (0 in query.shape or 0 not in memory.shape)
        and query.size(0) == memory.size(0)
        and (query.size(2), memory.size(2)) == (settings.embed_dim, settings.memory_dim)
    )
    if not fits and settings.place != "cross":
        raise UsageError(
            f"query of the shape {tuple(query.shape)}: give tokens of sentences, (B, N, {settings.embed_dim})."
        )
    if not fits:
        raise UsageError(
            f"query and memory of the shapes {tuple(query.shape)} and {tuple(memory.shape)}: give tokens of sentences, "
            f"(B, N, {settings.embed_dim}) and (B, M, {settings.memory_dim}), with M 1 or more."
        )
    if padding_mask is not None:
        check_padding(padding_mask, memory.shape[:2], anywhere=settings.cells is not None)
    if settings.cells is not None and query.size(1) != settings.cells.tokens:
        raise UsageError(
            f"query of {query.size(1)} tokens: the {settings.cells} of this mixer are {settings.cells.tokens}. Give "
            "all of them, the cells row by row, with a padding_mask for those that are not there."
        )
    if settings.place == "cross":
        _check_length("queries", query, None, settings.max_positions)
        _check_length("memory tokens", memory, padding_mask, max_memory)
    else:
        _check_length("tokens", query, padding_mask, settings.max_positions)


def hidden_pairs(mixer: Any, attn_mask: Tensor, query: Tensor, memory: Tensor) -> Tensor:
    """Return an ``attn_mask`` as (B, H or 1, N, M).

    Raises:
        UsageError: it has another shape or type, or the mixer cannot leave out pairs.
    """
    if not mixer.hides_pairs:
        does = "mixes all tokens of a sentence. Leave it out."
        if mixer.causal:
            does = "hides the future, and nothing else. Leave it out or, in torch's modules, give is_causal=True too."
        raise UsageError(f"attn_mask: {mixer.name} {does}")
    check_tensors(attn_mask=attn_mask)
    pairs, batch = (query.size(1), memory.size(1)), query.size(0)
    shapes = {2: pairs, 3: (batch, *pairs), 4: (batch, mixer.num_heads, *pairs)}
    if attn_mask.dtype != torch.bool or attn_mask.shape != shapes.get(attn_mask.dim()):
        given = f"{tuple(attn_mask.shape)} of {dtype_name(attn_mask)}"
        *others, last = shapes.values()
        allowed = f"{', '.join(map(str, others))} or {last}"
        raise UsageError(f"attn_mask {given}: give bool, True at pairs that are not mixed, {allowed}.")
    return (attn_mask.unsqueeze(-3) if attn_mask.dim() < 4 else attn_mask).expand(batch, -1, -1, -1)


def _check_length(name: str, tokens: Tensor, padding_mask: Tensor | None, most: int | None) -> None:
    """Refuse sentences of more real tokens than positions. Only batches that padding makes wider are looked at."""
    count = tokens.size(1)
    if most is None or count <= most:
        return
    if padding_mask is not None and padding_mask.numel():
        if torch.compiler.is_compiling():
            return
        count = int((~padding_mask).sum(dim=1).max())
    if count > most:
        raise UsageError(
            f"{count} {name}: this mixer was built for {counted(most, 'position')}. Give shorter sentences, or build "
            "it with a larger max_positions."
        )


def refuse_other_dtype(mixer: nn.Module, query: Tensor, **others: Tensor | None) -> None:
    """Refuse tokens and vectors, by name, of another type than the parameters.

    Called when torch has refused them, so that it costs nothing. Under autocast, and with packed weights, types may
    differ.
    """
    kind = query.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return
    own = next(mixer.parameters(), query)
    for name, vectors in {"query": query, **others}.items():
        if vectors is not None and vectors.dtype != own.dtype:
            raise UsageError(
                f"{name} of {dtype_name(vectors)}: the parameters of this mixer are {dtype_name(own)}. Convert either, "
                f"as with {name}.to(torch.{dtype_name(own)})."
            )


def check_length_ratio(place: str, length_ratio: tuple[int, int]) -> None:
    """Refuse a length ratio that is no pair of positive numbers, and any but 1 to 1 outside cross-attention."""
    fits = isinstance(length_ratio, tuple | list) and len(length_ratio) == 2
    fits = fits and all(_is_whole(number) and number > 0 for number in length_ratio)
    if not fits or (place != "cross" and length_ratio[0] != length_ratio[1]):
        raise UsageError(
            f"length_ratio {length_ratio!r:.50}: give source tokens and target tokens in cross-attention, such as "
            "(6, 5), nothing elsewhere."
        )


def _is_whole(number: object) -> TypeGuard[int]:
    return isinstance(number, Integral) and not isinstance(number, bool)


def check_vectors(name: str, vectors: Tensor | None, width: int) -> None:
    """Refuse vectors of positions that are not (P, width)."""
    if vectors is None:
        return
    check_tensors(**{name: vectors})
    if vectors.dim() != 2 or vectors.size(1) != width:
        raise UsageError(f"{name} of the shape {tuple(vectors.shape)}: give a vector of every position, (P, {width}).")


def check_step(mixer: Any, query: Tensor, state: DecodingState, rows: int | None) -> None:
    """Refuse another mixer's state, a query that is not one token of every hypothesis, and more than all positions."""
    check_tensors(query=query)
    if not isinstance(state, DecodingState):
        raise UsageError(f"a step with a state of the type {type(state).__name__}: give what init_state returned.")
    # Not in graphs, which layers alike share.
    if not torch.compiler.is_compiling() and state.mixer not in (None, id(mixer)):
        raise UsageError(
            "a step with the state of another mixer: each one, and so each layer, has its own. Give what init_state of "
            "this mixer returned."
        )
    batch_size = state.batch_size  # None in an exported graph, where it is open
    max_positions = mixer.max_positions
    fits = query.dim() == 3 and query.shape[1:] == (1, mixer.embed_dim)
    if not fits or (batch_size is not None and query.size(0) != batch_size):
        raise UsageError(
            f"a step with a query of the shape {tuple(query.shape)}: it takes one new token of every hypothesis, "
            f"({'B' if batch_size is None else batch_size}, 1, {mixer.embed_dim}). Give a prompt one token at a "
            "time, or use the full pass."
        )
    if torch.is_grad_enabled() and state.in_place:
        raise UsageError(
            "a step with gradients: its state began without them, and is overwritten. Begin a new one, or go on under "
            "torch.no_grad()."
        )
    if batch_size is not None and state.position >= max_positions:
        raise UsageError(
            f"position {state.position}: this mixer was built for {counted(max_positions, 'position')}. Build it with "
            "a larger max_positions."
        )
    if batch_size is not None and rows is not None and rows <= state.position:
        raise UsageError(f"rows {rows}: tables for position {state.position} need {state.position + 1} or more.")
