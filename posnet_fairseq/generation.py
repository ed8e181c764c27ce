"""Language models from Python: beginnings of plain texts in, whole texts out.

Example::

    import posnet_fairseq as posnet

    model = posnet.load_language_model("averaged.pt")
    model.generate("Once upon a time", sampling=True, sampling_topp=0.9)
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack, overload

from posnet_fairseq.inference.inspection import Mixing
from posnet_fairseq.inference.options import MAX_TOKENS, LoadArguments
from posnet_fairseq.inference.search.search_settings import SETTINGS, SearchArguments
from posnet_fairseq.inference.searchable import SearchableLanguageModel, load_searchable
from posnet_fairseq.inference.translation import Translation
from posnet_fairseq.shared.errors import called_from_python, refuse_unknown_arguments

__all__ = ["TextModel", "load_language_model"]


class TextModel(SearchableLanguageModel):
    """A language model, ready to continue texts. :func:`load_language_model` makes it."""

    # A str is a sequence of str, too: for it, the first of two overloads holds.
    @overload
    def generate(  # type: ignore[overload-overlap]
        self, lines: str, *, nbest: None = None, max_tokens: int = ..., **settings: Unpack[SearchArguments]
    ) -> str: ...

    @overload
    def generate(
        self, lines: Sequence[str], *, nbest: None = None, max_tokens: int = ..., **settings: Unpack[SearchArguments]
    ) -> list[str]: ...

    @overload
    def generate(  # type: ignore[overload-overlap]
        self, lines: str, *, nbest: int, max_tokens: int = ..., **settings: Unpack[SearchArguments]
    ) -> list[Translation]: ...

    @overload
    def generate(
        self, lines: Sequence[str], *, nbest: int, max_tokens: int = ..., **settings: Unpack[SearchArguments]
    ) -> list[list[Translation]]: ...

    @refuse_unknown_arguments(SETTINGS)
    def generate(
        self,
        lines: str | Sequence[str],
        *,
        nbest: int | None = None,
        max_tokens: int = MAX_TOKENS,
        **settings: Unpack[SearchArguments],
    ) -> str | list[str] | list[Translation] | list[list[Translation]]:
        """Continue a text, or texts.

        Args:
            lines: beginning of a text, or a sequence of them. A blank one is continued as any other.
            nbest: return as :class:`Translation` the best texts for each beginning, at most this number and at most
                `beam`. Default: return the best one.
            max_tokens: tokens of the texts in a batch, with what they are continued by.
            **settings: of the search, see :class:`SearchSettings`, but with the defaults 1 for `beam` and `max_len_a`
                and 100 for `max_len_b`: a text has at most 100 tokens more than the longest beginning of its batch.

        Returns:
            for a beginning: the whole text, or with `nbest` a list of texts, best first. For a sequence: a list of
            these, in the order of the lines.

        Raises:
            UsageError: `lines` is not text, an argument is out of range, or a beginning is too long.
        """
        with called_from_python():
            return self.results(lines, settings, nbest, max_tokens)

    def weights(self, text: str) -> dict[str, Mixing]:
        """Return the weights with which every layer and head mixes the tokens of a text.

        See :meth:`posnet_fairseq.api.TranslationModel.weights`; all are of the decoder, from "decoder.1" on.
        """
        with called_from_python(sentence="text"):
            return self.mixings(text)


@refuse_unknown_arguments(LoadArguments.__annotations__)
def load_language_model(
    path: str | Path, data: str | Path | None = None, **options: Unpack[LoadArguments]
) -> TextModel:
    """Load a trained language model, a checkpoint or model folder.

    Other arguments are those of :func:`posnet_fairseq.load`, but for `shortlist` and `onnx`.

    Raises:
        UsageError: a file is missing, damaged or of another model, or an argument is not allowed.
    """
    with called_from_python(input="generate"):
        return load_searchable(TextModel, path, {"data": data, **options})
