"""Language models from Python: beginnings of plain texts in, whole texts out.

Example::

    import posnet_fairseq as posnet

    model = posnet.load_language_model("averaged.pt")
    model.generate("Once upon a time", sampling=True, sampling_topp=0.9)
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack, overload

import torch

from posnet_fairseq.inference.arguments import MAX_TOKENS
from posnet_fairseq.inference.models import load_language_model as read_language_model
from posnet_fairseq.inference.search.settings import OF_TEXTS, SearchSettings
from posnet_fairseq.inference.searchable import (
    SearchableModel,
    SearchArguments,
    errors_of_arguments,
    refuse_no_path,
    results,
)
from posnet_fairseq.inference.text_generator import TextGenerator
from posnet_fairseq.inference.translator import Translation
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.dictionary import Vocabulary
from posnet_fairseq.transformer.language_model import LanguageModel

__all__ = ["TextModel", "load_language_model"]


class TextModel(SearchableModel):
    """A language model, ready to continue texts. :func:`load_language_model` makes it.

    Errors of the constructor and of :meth:`generator` name arguments as posnet-generate does: ``--beam``.

    Args:
        path, data, device, dtype, fast, pretokenized, bpe_codes, sentencepiece_model, compile: see
            :func:`load_language_model`.

    Attributes:
        vocabulary: the dictionary, in both places.
        folder: directory that it was read from.
    """

    def __init__(
        self,
        path: str | Path,
        data: str | Path | None = None,
        device: str | torch.device = "cpu",
        dtype: str = "float32",
        fast: bool = False,
        pretokenized: bool = False,
        bpe_codes: str | Path | None = None,
        sentencepiece_model: str | Path | None = None,
        compile: bool = False,
    ) -> None:

        def read() -> tuple[list[LanguageModel], Vocabulary, Path]:
            model, vocabulary, folder = read_language_model(path, data)
            return [model], vocabulary, folder

        super().__init__([path], read, device, dtype, fast, pretokenized, bpe_codes, sentencepiece_model, compile)

    def generator(self, settings: SearchSettings, nbest: int = 1) -> TextGenerator:
        """The model with a search.

        Args:
            settings: of the search.
            nbest: most texts for a beginning.

        Raises:
            UsageError: a setting is out of range.
        """
        search = self._search(settings, nbest)
        longest = self._models[0].max_positions() - 1
        return TextGenerator(search, self.vocabulary, self._pipeline, longest, settings.max_len_b)

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

    @torch.inference_mode()
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
        with errors_of_arguments():
            chosen = dataclasses.replace(OF_TEXTS, **settings)
            generator = self.generator(chosen, 1 if nbest is None else nbest)
            return results(lines, generator, nbest, max_tokens)


def load_language_model(
    path: str | Path,
    data: str | Path | None = None,
    *,
    device: str | torch.device = "cpu",
    dtype: str = "float32",
    fast: bool = False,
    pretokenized: bool = False,
    bpe_codes: str | Path | None = None,
    sentencepiece_model: str | Path | None = None,
    compile: bool = False,
) -> TextModel:
    """A trained language model, ready to continue texts.

    Args:
        path: checkpoint or model folder.
        data: directory with the dictionary and the card. Default: the one that the model was trained on.
        device: device of torch, such as ``cuda``.
        dtype: precision: ``float32``, ``bf16``, ``fp16``, or, on CPUs, ``int8``; or ``auto``, the fastest that
            is near to float32, as posnet-export has measured.
        fast: store position-based energies as tables, as posnet-precompute does.
        pretokenized: text is tokens between spaces already, and texts stay so.
        bpe_codes: split Moses words by these codes of subword-nmt.
        sentencepiece_model: split text by this model.
        compile: compile the layers with ``torch.compile``, as :func:`posnet_fairseq.api.load` does.

    Raises:
        UsageError: a file is missing, damaged or of another model, or an argument is not allowed.
    """
    with errors_of_arguments():
        if not isinstance(path, str | Path):
            raise UsageError(f"path {path!r:.50}: give the path of a checkpoint or model folder.")
        refuse_no_path(data, "data", "a directory")
        return TextModel(path, data, device, dtype, fast, pretokenized, bpe_codes, sentencepiece_model, compile)
