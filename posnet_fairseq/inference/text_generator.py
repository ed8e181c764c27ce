"""Beginnings of plain texts to whole texts: a language model's counterpart of the translator."""

from collections.abc import Sequence

from torch import Tensor

from posnet_fairseq.inference.search.beam import BeamSearch
from posnet_fairseq.inference.translator import Translator
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.dictionary import Vocabulary
from posnet_fairseq.text.pipeline import TextPipeline


class TextGenerator(Translator):
    """A search between beginnings and texts; a blank line is the beginning of any text.

    Args:
        search: finds continuations.
        vocabulary: dictionary of the model, in both places.
        pipeline: splits text into tokens and joins them.
        max_tokens: most tokens of a text, the end symbol not counted.
        new_tokens: tokens that a text is continued by at most, about: what a text counts for in a batch.
    """

    def __init__(
        self, search: BeamSearch, vocabulary: Vocabulary, pipeline: TextPipeline, max_tokens: int, new_tokens: int
    ) -> None:
        super().__init__(search, vocabulary, pipeline, max_tokens)
        self._new_tokens = new_tokens

    def encode(self, line: str) -> Tensor:
        """(P,) token ids of a line of plain text, without the end symbol."""
        return super().encode(line)[:-1]

    def skips(self, line: str) -> bool:
        """Whether a line is left empty."""
        return False

    def size(self, source: Tensor) -> int:
        """Tokens that the text counts for in a batch."""
        return min(len(source) + self._new_tokens, self.max_source)

    def fit(self, encoded: Sequence[Tensor], on_long: str, first: int = 1) -> tuple[dict[int, Tensor], list[str]]:
        """Return the beginnings by index of line, from 0 on, and a sentence on those with unknown parts, if any.

        Raises:
            UsageError: a beginning has more tokens than the model's texts.
        """
        for number, tokens in enumerate(encoded, start=first):
            if len(tokens) > self.max_source:
                raise UsageError(
                    f"line {number} has {len(tokens)} tokens, and the model's texts have {self.max_source} at most. "
                    "Shorten it."
                )
        unk = self.vocabulary.target_dictionary.unk()
        unknown = [str(first + index) for index, tokens in enumerate(encoded) if unk in tokens]
        if not unknown:
            return dict(enumerate(encoded)), []
        which = f"{'line' if len(unknown) == 1 else 'lines'} {', '.join(unknown[:10])}{' ...' * (len(unknown) > 10)}"
        return dict(enumerate(encoded)), [f"{which}: the model's vocabulary lacks a part, which becomes <unk>"]
