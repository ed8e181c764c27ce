"""Beam search keeps several hypotheses of a sentence. What depends on the source alone is kept once for all of them."""

import torch


class Reordering:
    """How beam search moves hypotheses: hypothesis ``order[i]`` comes to place i.

    Args:
        order: (R,) numbers of hypotheses, those of one sentence after each other.
    """

    def __init__(self, order):
        self.order = order
        self._of_sentences = {}

    def of_sentences(self, sentences, hypotheses):
        """The same for what all hypotheses of a sentence share.

        It is found out once for all layers: every comparison makes a GPU wait.

        Args:
            sentences: how many there are before.
            hypotheses: of each sentence, before.

        Returns:
            (S,) numbers of sentences, None if they stay as they are; and the hypotheses of each of them, 1 if those of
            a sentence no longer stand together.
        """
        key = (sentences, hypotheses)
        if key not in self._of_sentences:
            self._of_sentences[key] = self._find(sentences, hypotheses)
        return self._of_sentences[key]

    def _find(self, sentences, hypotheses):
        count, unmoved = len(self.order), torch.arange(sentences, device=self.order.device)
        if hypotheses == 1 and count > sentences > 0 and count % sentences == 0:
            times = count // sentences
            if torch.equal(self.order, unmoved.repeat_interleave(times)):  # the beginning of a search
                return None, times
        of_hypotheses = torch.div(self.order, hypotheses, rounding_mode="floor")
        order = of_hypotheses[::hypotheses]
        if count % hypotheses or not torch.equal(of_hypotheses, order.repeat_interleave(hypotheses)):
            return of_hypotheses, 1
        return (None if torch.equal(order, unmoved) else order), hypotheses
