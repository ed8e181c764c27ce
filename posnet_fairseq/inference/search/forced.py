"""Given translations in the place of found ones: forced decoding."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from posnet_fairseq.inference.search.beam import BeamSearch
from posnet_fairseq.inference.search.ensemble import Ensemble
from posnet_fairseq.inference.search.hypotheses import Hypothesis
from posnet_fairseq.inference.search.restrictions import refuse_ends


class ForcedDecoding(BeamSearch):
    """A search whose only hypothesis is given. Of the settings, the length penalty is read; there is no shortlist."""

    def check(
        self, sources: Sequence[Tensor], prefixes: Sequence[Tensor] | None = None
    ) -> tuple[int, Sequence[Tensor]]:
        """Return the most tokens of a hypothesis, without end symbol, and the translations; refuse what is no text."""
        translations = prefixes or []
        refuse_ends(self._dictionary, [each[:-1] for each in translations], "translation")
        return self._max_positions - 1, translations

    @torch.inference_mode()
    def __call__(self, sources: Sequence[Tensor], prefixes: Sequence[Tensor] | None = None) -> list[list[Hypothesis]]:
        """Return the hypothesis of each source: `prefixes` are the translations, (N,) token ids with end symbols."""
        _, translations = self.check(sources, prefixes)
        pad, device = self._dictionary.pad(), next(self._models[0].parameters()).device
        source, target = (
            pad_sequence(list(side), batch_first=True, padding_value=pad).to(device) for side in (sources, translations)
        )
        found, weights = Ensemble(self._models, source, self._attention).forced(target, self._first_symbol, pad)
        if not found.isfinite().all():
            raise self._broken()
        attention = None if weights is None else weights.cpu()
        hypotheses = []
        for row, (tokens, log_probabilities) in enumerate(zip(translations, found.tolist(), strict=True)):
            size = len(tokens)
            token_scores = tuple(log_probabilities[:size])
            score = sum(token_scores) / size**self._settings.lenpen
            of_row = None if attention is None else attention[row, :size, : len(sources[row])]
            hypotheses.append([Hypothesis(tokens, score, of_row, token_scores)])
        return hypotheses
