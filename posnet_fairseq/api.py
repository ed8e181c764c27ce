"""Translation from Python: plain text in, plain text out.

Example::

    import posnet_fairseq as posnet

    model = posnet.load("model/")
    model.translate("A line of text.")
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict, Unpack, overload

from posnet_fairseq.inference.inspection import Mixing
from posnet_fairseq.inference.options import MAX_TOKENS, TranslationLoadArguments
from posnet_fairseq.inference.search.search_settings import SETTINGS, SearchArguments
from posnet_fairseq.inference.searchable import SearchableModel, load_searchable
from posnet_fairseq.inference.translation import Translation
from posnet_fairseq.shared.errors import UsageError, called_from_python, option, refuse_unknown_arguments
from posnet_fairseq.text.sentences import check_splitting

__all__ = ["Translation", "TranslationModel", "load"]


class _Settings(SearchArguments, total=False):
    """Optional arguments of :meth:`TranslationModel.translate` that do not change what it returns."""

    prefix: str | Sequence[str] | None
    terms: Mapping[str, str] | None
    constraints: Sequence[str] | Sequence[Sequence[str]] | None
    max_tokens: int
    on_long: str
    split_sentences: bool
    to: str | None


class _Scoring(TypedDict, total=False):
    """Optional arguments of :meth:`TranslationModel.score`."""

    lenpen: float | None
    attention: bool
    max_tokens: int
    on_long: str
    to: str | None


class TranslationModel(SearchableModel):
    """A trained model, or an ensemble, ready to translate. :func:`load` makes it."""

    # A str is a sequence of str, too: for it, the first of two overloads holds.
    @overload
    def translate(  # type: ignore[overload-overlap]
        self, lines: str, *, nbest: None = None, attention: Literal[False] = False, **settings: Unpack[_Settings]
    ) -> str: ...

    @overload
    def translate(
        self,
        lines: Sequence[str],
        *,
        nbest: None = None,
        attention: Literal[False] = False,
        **settings: Unpack[_Settings],
    ) -> list[str]: ...

    @overload
    def translate(  # type: ignore[overload-overlap]
        self, lines: str, *, nbest: int, attention: bool = False, **settings: Unpack[_Settings]
    ) -> list[Translation]: ...

    @overload
    def translate(
        self, lines: Sequence[str], *, nbest: int, attention: bool = False, **settings: Unpack[_Settings]
    ) -> list[list[Translation]]: ...

    @refuse_unknown_arguments(SETTINGS)
    def translate(
        self,
        lines: str | Sequence[str],
        *,
        nbest: int | None = None,
        attention: bool = False,
        prefix: str | Sequence[str] | None = None,
        terms: Mapping[str, str] | None = None,
        constraints: Sequence[str] | Sequence[Sequence[str]] | None = None,
        max_tokens: int = MAX_TOKENS,
        on_long: str = "error",
        split_sentences: bool = False,
        to: str | None = None,
        **settings: Unpack[SearchArguments],
    ) -> str | list[str] | list[Translation] | list[list[Translation]]:
        """Translate a line, or lines.

        Args:
            lines: a line of plain text, or a sequence of lines. A blank line is translated to "". Spaces around a line
                are not translated, and stand around its translation.
            nbest: return as :class:`Translation` the best translations of each line, at most this number and at most
                `beam`. Default: return the text of the best one.
            attention: with `nbest`, return cross-attention weights.
            prefix: plain text of the target language that the translation must begin with: one for all lines, or a
                sequence of one for each line, "" for none.
            terms: target terms by source term. The translation of a line contains the target term of each source term
                in it, as written, where the maximum length allows. :attr:`Translation.unmet` are those that it lacks.
            constraints: texts that the translation must contain in place of `terms`, for a sequence of lines a list of
                such texts for each.
            max_tokens: source tokens in a batch, padding included.
            on_long: what to do with a line of more tokens than the model takes: ``error``, ``truncate`` to cut it, or
                ``skip`` to translate it to "".
            split_sentences: split lines into sentences, translate each, and join the translations; spaces between
                sentences stay as they are. Only texts are returned, so not with `nbest` or `prefix`. Needs the package
                sentencex.
            to: target language, of a model that translates into several. It must be given for such a model only.
            **settings: of the search, see :class:`posnet_fairseq.inference.search.search_settings.SearchSettings`.
                Defaults: those that the model records, then those of the class.

        Returns:
            for a line: its text, or with `nbest` a list of its translations, best first. For a sequence: a list of
            these, in the order of the lines.

        Raises:
            UsageError: `lines` is not text, an argument is out of range, or a line is too long.
        """
        with called_from_python():
            if attention and nbest is None:
                raise UsageError(
                    f"{option('attention')} is returned with translations: give {option('nbest')} too, for instance 1."
                )
            if not isinstance(split_sentences, bool):
                raise UsageError(f"{option('split_sentences')} {split_sentences!r:.50}: give True or False.")
            if split_sentences:
                check_splitting({"nbest": nbest, "prefix": prefix, "constraints": constraints})
            search = (settings, nbest, max_tokens, on_long, prefix, attention)
            return self.results(lines, *search, split=split_sentences, to=to, terms=terms, constraints=constraints)

    @overload
    def score(  # type: ignore[overload-overlap]
        self, sources: str, translations: str, **settings: Unpack[_Scoring]
    ) -> Translation: ...

    @overload
    def score(
        self, sources: Sequence[str], translations: Sequence[str], **settings: Unpack[_Scoring]
    ) -> list[Translation]: ...

    @refuse_unknown_arguments()
    def score(
        self,
        sources: str | Sequence[str],
        translations: str | Sequence[str],
        *,
        lenpen: float | None = None,
        attention: bool = False,
        max_tokens: int = MAX_TOKENS,
        on_long: str = "error",
        to: str | None = None,
    ) -> Translation | list[Translation]:
        """Score given translations: how likely the model is to produce them (forced decoding).

        Args:
            sources: a line of plain text, or a sequence of lines; they may be blank, as may the translations.
            translations: plain text of the target language, one line per source. Tokens that are not in the vocabulary
                are scored as ``<unk>``, and spaces around a line are not scored.
            lenpen: length penalty. Default: as the model records it, else 1, which makes scores means over tokens. With
                0, a score is the log probability of the whole translation.
            attention: return cross-attention weights.
            max_tokens: tokens in a batch, of sources as of translations, padding included.
            on_long: what to do with a line of more tokens than the model takes: ``error``, ``truncate`` to cut it, or
                ``skip`` to give it the score NaN.
            to: target language, as for :meth:`translate`.

        Returns:
            the translation with its score and those of its tokens, or a list of these in the order of the lines. All
            words of the vocabulary can follow, also with a shortlist.

        Raises:
            UsageError: an argument is not text or out of range, a line is too long, or the numbers of lines differ.
        """
        with called_from_python(lines="sources", score_translations="translations"):
            settings = {} if lenpen is None else {"lenpen": lenpen}
            scored = self.results(
                sources, settings, 1, max_tokens, on_long, translations, attention, scores=True, to=to
            )
            return scored[0] if isinstance(sources, str) else [one for (one,) in scored]

    def weights(self, source: str, target: str | None = None, to: str | None = None) -> dict[str, Mixing]:
        """Return the weights with which every layer and head mixes the tokens of a sentence and its translation.

        They are those of one pass over the translation, and equal those of a search that finds it.

        Args:
            source: plain text of the source language.
            target: plain text of the target language that the decoder is given. Default: the model's own translation,
                with the settings of the search that it records.
            to: as in :meth:`translate`.

        Returns:
            what each mixer computes, by place and layer, from "encoder.1", "encoder.2", ... over "decoder.1" to
            "cross.1": the mixing weights (H, N, M) of H heads, N mixing and M mixed tokens, with the names of these.

        Raises:
            UsageError: a text has no words or more tokens than the model takes, or this is an ensemble, or of onnx.
        """
        with called_from_python(sentence="source"):
            return self.mixings(source, target, to)


@refuse_unknown_arguments(TranslationLoadArguments.__annotations__)
def load(
    paths: str | Path | Sequence[str | Path],
    data: str | Path | None = None,
    **options: Unpack[TranslationLoadArguments],
) -> TranslationModel:
    """Load a trained translation model.

    Text is tokenized as described by the data card that posnet-prepare wrote (``dataset.json``), unless `pretokenized`,
    `bpe_codes` or `sentencepiece_model` is given.

    Args:
        paths: checkpoint, or model folder of posnet-export; several make an ensemble.
        data: directory with the dictionaries and the card. Default: the first model's folder, or the directory that it
            was trained on.
        device: device of torch, such as ``cuda``. Default: ``cpu``.
        dtype: precision: ``float32`` (default), ``bf16``, ``fp16``, or, on CPUs, ``int8``; or ``auto``: ``bf16`` on
            GPUs that compute in it, else ``float32``.
        fast: store position-based energies as tables, as posnet-precompute does.
        pretokenized: input and output are tokens separated by spaces.
        bpe_codes: apply these codes of subword-nmt after Moses tokenization. Refused if the card names others.
        sentencepiece_model: split text by this model. Refused if the card names another.
        shortlist: file that posnet-export wrote: restrict the search to likely translations of the source words.
        onnx: translate with the graphs that ``posnet-export --onnx`` wrote into the folder, by onnxruntime.

    Raises:
        UsageError: a file is missing, damaged or of another model, or an argument is not allowed.
    """
    with called_from_python(input="translate"):
        return load_searchable(TranslationModel, paths, {"data": data, **options})
