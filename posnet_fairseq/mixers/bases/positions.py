"""Position vectors of one side of the model, over real tokens counted from 0."""

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from posnet_fairseq.mixers.bases.recomputed import RecomputedBuffer
from posnet_fairseq.ops.dropout import Dropout
from posnet_fairseq.ops.layout import front_order, reorder
from posnet_fairseq.ops.sinusoids import sinusoidal_embedding
from posnet_fairseq.shared.errors import UsageError

PositionEmbedding = Literal["sinusoidal", "learned", "none"]
POSITION_EMBEDDINGS: tuple[PositionEmbedding, ...] = get_args(PositionEmbedding)


class Positions(RecomputedBuffer):
    """Position embeddings, added to the words and handed to the mixers.

    Sinusoidal ones (Vaswani et al., 2017) are added to scaled words, x√D + p; learned ones (Gehring et al.,
    2017) before scaling, (x + p)√D: the two ways in which the results of the PosNet paper were made.
    Mixers get the sinusoidal ones as they are and the learned ones through one LayerNorm that all layers of
    a side share, in both cases after dropout. One draw of that dropout serves all sentences of a batch. With ``none``
    the words are left alone.

    Args:
        kind: one of :data:`POSITION_EMBEDDINGS`.
        max_positions: L, the longest sentence.
        embed_dim: D.
        dropout: on the vectors handed to mixers.
        option: what sets `max_positions`, for the error's text.
        for_mixers: whether any mixer of this side reads positions.
    """

    def __init__(
        self, kind: str, max_positions: int, embed_dim: int, dropout: float, option: str, for_mixers: bool
    ) -> None:
        super().__init__()
        self.max_positions = max_positions
        self.scale = math.sqrt(embed_dim)
        self.option = option
        self.embed_dim = embed_dim
        self.learned = kind == "learned"
        self.weight: Any  # a parameter, a buffer or None
        if kind == "none":
            self.weight = None
        elif self.learned:
            self.weight = nn.Parameter(torch.empty(max_positions, embed_dim).normal_(std=embed_dim**-0.5))
        else:
            vectors = self._sinusoids().to(torch.get_default_device(), torch.get_default_dtype())
            self.register_buffer("weight", vectors, persistent=False)
        self.norm = nn.LayerNorm(embed_dim) if self.learned and for_mixers else None
        self.dropout = Dropout(dropout, module_name=self.__class__.__name__) if for_mixers else None

    def _sinusoids(self) -> Tensor:
        # On the CPU: products on the meta device would import all of torch's compiler.
        return sinusoidal_embedding(self.max_positions, self.embed_dim, torch.device("cpu"))

    def computed_buffer(self) -> tuple[str, Tensor]:
        """Return the sinusoidal vectors: learned ones are no buffer."""
        return "weight", self._sinusoids()

    def add_to(self, words: Tensor, first: int = 0) -> Tensor:
        """Return scaled words (B, N, D) plus the positions first ... first + N - 1."""
        return self._add(words, None if self.weight is None else self._vectors(first + words.size(1))[first:])

    def add_at(self, words: Tensor, positions: Tensor) -> Tensor:
        """Return scaled words (B, N, D) plus the positions that an index (N,) names."""
        return self._add(words, None if self.weight is None else self.weight.index_select(0, positions))

    def _add(self, words: Tensor, vectors: Tensor | None) -> Tensor:
        if vectors is None:
            return words * self.scale
        return (words + vectors) * self.scale if self.learned else words * self.scale + vectors

    def for_mixers(self, count: int) -> Tensor | None:
        """Return the vectors of positions 0 ... count - 1 for mixers, (count, D); None if no mixer reads them."""
        if self.dropout is None:
            return None
        vectors = self._vectors(count)
        return self.dropout(vectors if self.norm is None else self.norm(vectors))

    def serve_words_only(self) -> None:
        """Drop what only mixers need: their energies are stored."""
        self.norm = self.dropout = None

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        if self.norm is not None and f"{prefix}weight" in state_dict and f"{prefix}norm.weight" not in state_dict:
            self.serve_words_only()
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def in_front(self, tokens: Tensor, padding_mask: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Move padding behind the tokens, and cut off what is beyond L.

        Returns tokens and mask, (B, N), N at most L, and their order: :func:`posnet_fairseq.ops.layout.front_order`.
        """
        wider = tokens.size(1) > self.max_positions
        order = front_order(padding_mask, always=wider)
        tokens, padding_mask = reorder(tokens, order), reorder(padding_mask, order)
        if wider:
            self.check_length(int((~padding_mask).sum(dim=1).max()))
            tokens, padding_mask = tokens[:, : self.max_positions], padding_mask[:, : self.max_positions]
        return tokens, padding_mask, order

    def check_length(self, longest: int) -> None:
        """Refuse sentences of more than L real tokens."""
        if longest > self.max_positions:
            raise UsageError(
                f"a sentence of {longest} tokens (its end symbol counted) is longer than the {self.max_positions} "
                f"positions of this model. Shorten or leave out such sentences, or train with a larger {self.option}."
            )

    def _vectors(self, count: int) -> Tensor:
        """Return the vectors of positions 0 ... count - 1, (count, D), where count may be more than L.

        Batches padded to a multiple may be wider than L, and cross-attention may look up ⌊γn⌋ beyond it. Sinusoids
        are computed for any position; learned vectors beyond L are those of the last position.
        """
        if count <= self.max_positions:
            return self.weight[:count]
        if self.learned:
            return self.weight[torch.arange(count, device=self.weight.device).clamp(max=self.max_positions - 1)]
        return sinusoidal_embedding(count, self.weight.size(1), self.weight.device).to(self.weight)
