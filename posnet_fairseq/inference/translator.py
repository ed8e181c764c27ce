"""Models and beam search between lines of text."""

import torch
from fairseq import utils
from fairseq.data.data_utils import collate_tokens
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator

from posnet_fairseq.shared.errors import UsageError


class Ensemble(EnsembleModel):
    """fairseq's ensemble; but a probability that is no number is an error, which beam search would take for zero."""

    def forward_decoder(self, *arguments):
        """Log probabilities of the next tokens, (B·beam, vocabulary), and attention, as fairseq's.

        Raises:
            UsageError: one is no number.
        """
        log_probabilities, attention = super().forward_decoder(*arguments)
        # Of a row of the softmax, either all or none are: one of each tells, and costs nothing.
        if log_probabilities[:, 0].isnan().any():
            dtype = next(self.parameters()).dtype
            advice = "Take an earlier checkpoint" if dtype == torch.float32 else "Choose --dtype float32"
            raise UsageError(
                f"the numbers that the model computes in {dtype} become infinite or no numbers, so there is no "
                f"translation. {advice}."
            )
        return log_probabilities, attention


class Translator:
    """Models and beam search behind one method from lines to lines.

    Args:
        models: an ensemble.
        vocabulary: their :class:`posnet_fairseq.fairseq_plugin.checkpoints.Vocabulary`.
        pipeline: a :class:`posnet_fairseq.text.pipeline.TextPipeline`.
        beam: hypotheses kept at each step.
        lenpen: hypotheses are scored by log probability over length to this power.
        max_len_a, max_len_b: translations end at a·M + b tokens.
    """

    def __init__(self, models, vocabulary, pipeline, beam=12, lenpen=1.0, max_len_a=0.0, max_len_b=200):
        self.vocabulary = vocabulary
        self.pipeline = pipeline
        self.device = next(models[0].parameters()).device
        self.max_source = min(model.encoder.max_positions() for model in models)
        self.generator = SequenceGenerator(
            Ensemble(models),
            vocabulary.target_dictionary,
            beam_size=beam,
            len_penalty=lenpen,
            max_len_a=max_len_a,
            max_len_b=max_len_b,
        )

    def encode(self, line):
        """Plain text to token ids with the end symbol, (M,)."""
        return self.vocabulary.encode(self.pipeline.encode(line))

    def translate(self, sources):
        """Translations of a batch of encoded sentences, in their order.

        Args:
            sources: list of (M,) token ids.

        Returns:
            plain texts, and how many tokens they have, end symbols counted.
        """
        hypotheses = self.search(sources)
        return [self.text_of(tokens) for tokens in hypotheses], sum(map(len, hypotheses))

    def search(self, sources):
        """The best translations of a batch of encoded sentences: list of (N,) token ids with the end symbol."""
        tokens = collate_tokens(sources, self.vocabulary.source_dictionary.pad()).to(self.device)
        lengths = torch.tensor([len(source) for source in sources], device=self.device)
        sample = {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}
        return [found[0]["tokens"] for found in self.generator.generate(self.generator.model.models, sample)]

    def text_of(self, tokens):
        """Plain text of (N,) token ids."""
        dictionary = self.vocabulary.target_dictionary
        ignore = {dictionary.eos(), dictionary.pad(), dictionary.bos()}
        return self.pipeline.decode(
            dictionary.string(utils.strip_pad(tokens, dictionary.pad()), None, extra_symbols_to_ignore=ignore)
        )
