"""Beam search of fairseq, as the search of a translator."""

from collections.abc import Sequence
from typing import Any

import torch
from fairseq.data.data_utils import collate_tokens
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from torch import Tensor

from posnet_fairseq.inference.translator import Hypothesis, SearchSettings
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.dictionary import Vocabulary


class Ensemble(EnsembleModel):
    """fairseq's ensemble, which refuses probabilities that are NaN; fairseq's beam search takes them for zero."""

    def forward_decoder(self, *arguments: Any) -> tuple[Tensor, Tensor | None]:
        """Log probabilities of the next tokens, (B·beam, vocabulary), and attention over the source, (B·beam, M).

        Raises:
            UsageError: a probability is NaN.
        """
        log_probabilities, attention = super().forward_decoder(*arguments)
        # Of a row of the softmax, either all or none are NaN: one of each tells, and costs nothing.
        if log_probabilities[:, 0].isnan().any():
            dtype = next(self.parameters()).dtype
            advice = "Take an earlier checkpoint" if dtype == torch.float32 else "Choose --dtype float32"
            raise UsageError(
                f"the numbers that the model computes in {dtype} become infinite or no numbers, so there is no "
                f"translation. {advice}."
            )
        return log_probabilities, attention


class BeamSearch:
    """fairseq's beam search with an ensemble.

    Args:
        models: fairseq models in evaluation mode, on one device.
        vocabulary: their dictionaries.
        settings: of the search.
        nbest: most hypotheses to return for each source.
        attention: also return the cross-attention weights.
    """

    def __init__(
        self,
        models: Sequence[Any],
        vocabulary: Vocabulary,
        settings: SearchSettings,
        nbest: int = 1,
        attention: bool = False,
    ) -> None:
        self._models, self._nbest, self._attention = models, nbest, attention
        self._pad = vocabulary.source_dictionary.pad()
        self._generator = SequenceGenerator(
            Ensemble(models),
            vocabulary.target_dictionary,
            beam_size=settings.beam,
            len_penalty=settings.lenpen,
            max_len_a=settings.max_len_a,
            max_len_b=settings.max_len_b,
        )

    def __call__(self, sources: Sequence[Tensor]) -> list[list[Hypothesis]]:
        """The best hypotheses of each source, best first.

        Args:
            sources: (M,) token ids with the end symbol, each.
        """
        device = next(self._models[0].parameters()).device
        tokens = collate_tokens(sources, self._pad).to(device)
        lengths = torch.tensor([len(source) for source in sources], device=device)
        for model in self._models:
            model.decoder.need_attn = self._attention
        sample = {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}
        found = self._generator.generate(self._models, sample)
        return [
            [self._hypothesis(each, len(source)) for each in hypotheses[: self._nbest]]
            for source, hypotheses in zip(sources, found, strict=True)
        ]

    def _hypothesis(self, found: dict[str, Tensor], source_length: int) -> Hypothesis:
        """A hypothesis of fairseq's, whose attention is (M, N) or empty."""
        attention = found["attention"] if self._attention and found["attention"].numel() else None
        if attention is not None:
            attention = attention[:source_length].T.cpu()
        return Hypothesis(found["tokens"].cpu(), float(found["score"]), attention)
