"""Which tokens hypotheses descend from, where those of a sentence share one memory of keys and values.

The tokens of a step are appended to the memory of their sentence, a slot for each hypothesis. When hypotheses move,
they stay where they are: energies of -inf hide the slots that a hypothesis does not descend from. When the memory is
full or sentences leave it, the slots that no hypothesis descends from are dropped. The hypotheses of a sentence have
most tokens in common, so there is a fraction to move, and to multiply by.
"""

import torch
from torch import Tensor

# Steps for which there is room when the memory is copied.
_STEPS = 4


class Lineage:
    """The slots of the layers of a decoder, or of one mixer, in step-by-step decoding without gradients.

    Attributes:
        hidden: (S, W, slots) for the W hypotheses of each sentence, which follow one another: 0 at slots of tokens that
            a hypothesis descends from, -inf at others; None before the first step.
    """

    def __init__(self) -> None:
        self.hidden: Tensor | None = None
        self._room, self._position = 0, -1
        self._left: Tensor | None = None  # (S,) numbers in the memory of the sentences that are left
        self._kept: tuple[Tensor, Tensor] | None = None  # if this step copies: (S,) sentences, (S, slots) slots

    def reorder(self, order: Tensor, sentences: Tensor | None = None, beam: int = 0) -> None:
        """Continue with the hypotheses `order`, (R,): `beam` of each of the `sentences`, (S,), None for all.

        Without `beam` each of them becomes a sentence of its own.
        """
        if self.hidden is None:
            return
        if not beam:
            sentences, beam = torch.div(order, self.hidden.size(1), rounding_mode="floor"), 1
        self.hidden = self.hidden.flatten(0, 1).index_select(0, order).unflatten(0, (len(order) // beam, beam))
        if sentences is not None:
            self._left = sentences if self._left is None else self._left[sentences]

    def append(self, memory: Tensor | None, key: Tensor, value: Tensor, position: int) -> Tensor:
        """Return the memory of a layer, (2, S, H, room, d), with keys and values of a step, (R, H, 1, d) each."""
        if position != self._position:  # the first layer of a step
            self._position = position
            self._extend(key)
        assert self.hidden is not None
        sentences, beam, slots = self.hidden.shape
        if memory is None:
            _, heads, _, width = key.shape
            memory = key.new_empty(2, sentences, heads, self._room, width)
        elif self._kept is not None:
            _, before, heads, room, width = memory.shape
            of_sentence, kept = self._kept
            blocks = torch.arange(2 * before * heads, device=key.device).view(2, before, heads, 1)
            rows = blocks.index_select(1, of_sentence) * room + kept[:, None]
            memory = memory.view(-1, width).index_select(0, rows.view(-1)).view(*rows.shape, width)
        elif memory.is_inference() and not torch.is_inference_mode_enabled():
            memory = memory.clone()
        for place, new in zip(memory, (key, value), strict=True):
            place[:, :, slots - beam : slots] = new.view(sentences, beam, *new.shape[1:]).squeeze(3).transpose(1, 2)
        return memory

    def _extend(self, tokens: Tensor) -> None:
        """Give tokens of each hypothesis, (R, ...), slots."""
        hidden = tokens.new_zeros(len(tokens), 1, 0) if self.hidden is None else self.hidden
        sentences, beam, slots = hidden.shape
        self._kept = None
        if self._left is not None or slots + beam > self._room:
            seen = hidden.eq(0).any(dim=1)
            most = int(seen.sum(dim=1).max()) if sentences else 0
            kept = seen.byte().argsort(dim=1, descending=True, stable=True)[:, :most]
            # What is copied to the room for more is never read.
            places = torch.nn.functional.pad(kept, (0, _STEPS * beam))
            self._kept = (torch.arange(sentences, device=hidden.device) if self._left is None else self._left), places
            self._left, self._room = None, places.size(1)
            hidden = hidden.gather(2, kept[:, None].expand(-1, beam, -1))
        own = hidden.new_full((beam, beam), -torch.inf).fill_diagonal_(0)
        self.hidden = torch.cat([hidden, own.expand(sentences, -1, -1)], dim=2)
