"""What a mixer remembers between decoding steps."""

import torch

from posnet_fairseq.shared.errors import UsageError


class DecodingState:
    """A view of one mixer's part of fairseq's incremental state.

    Args:
        rows: dict of tensors with a row per hypothesis, (B, ...), or per sentence: moved when the beam is reordered.
        shared: dict of what all rows share: never moved.
    """

    def __init__(self, rows, shared):
        self.rows = rows
        self.shared = shared

    def advance(self, position):
        """Note that the token at a position is the new one of this step.

        Raises:
            UsageError: it is not the one after that of the last step.
        """
        expected = self.shared.get("steps", 0)
        if position != expected:
            raise UsageError(
                f"a step at position {position}: its state has seen {expected} tokens, so the next stands at position "
                f"{expected}. Give all tokens of a hypothesis one after another."
            )
        self.shared["steps"] = expected + 1

    def append(self, name, new):
        """Remember `new`, (B, H, N, d), behind what was appended before. Returns all of it, (B, H, M, d)."""
        if name in self.rows:
            new = torch.cat([self.rows[name], new], dim=2)
        self.rows[name] = new
        return new

    def keep(self, name, make):
        """Make a tensor at the first step, return the same one at all later steps."""
        if name not in self.rows:
            self.rows[name] = make()
        return self.rows[name]

    def keep_table(self, name, rows, make):
        """A table over positions, (H, rows, M), made anew only when more rows are wanted than before."""
        if name not in self.shared or self.shared[name].size(1) < rows:
            self.shared[name] = make()
        return self.shared[name]

    def move(self, reordering):
        """Reorder rows that belong to hypotheses, by a :class:`posnet_fairseq.mixers.bases.hypotheses.Reordering`."""
        for name, tensor in self.rows.items():
            self.rows[name] = tensor.index_select(0, reordering.order)

    def move_sentences(self, reordering):
        """Reorder rows that all hypotheses of a sentence share."""
        before = self.shared.get("hypotheses", 1)
        for name, tensor in self.rows.items():
            order, self.shared["hypotheses"] = reordering.of_sentences(len(tensor), before)
            if order is not None:
                self.rows[name] = tensor.index_select(0, order)
