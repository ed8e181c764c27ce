"""Trained models that are ready for a search, and calls of it from Python: what translation and generation share."""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from posnet_fairseq.inference.checkpoints import model_arch
from posnet_fairseq.inference.inspection import Mixing, of_texts
from posnet_fairseq.inference.model_folder import read_model
from posnet_fairseq.inference.model_loading import load_models
from posnet_fairseq.inference.onnx_model import OnnxModel
from posnet_fairseq.inference.options import MAX_TOKENS_LIMITS, ON_LONG, LoadOptions
from posnet_fairseq.inference.precision import check_device, prepare_for_inference, resolve_dtype
from posnet_fairseq.inference.search.beam import BeamSearch, ForcedDecoding
from posnet_fairseq.inference.search.search_settings import (
    OF_TEXTS,
    SearchSettings,
    check_constrained,
    recorded_search,
)
from posnet_fairseq.inference.shortlist import Shortlist
from posnet_fairseq.inference.translator import Batches, Scorer, TextGenerator, Translator
from posnet_fairseq.inference.vocabularies import read_vocabulary
from posnet_fairseq.shared.errors import UsageError, called_from_python, option
from posnet_fairseq.shared.files import refuse_half_characters
from posnet_fairseq.shared.schema import check_choice, check_range
from posnet_fairseq.text.dictionary import Vocabulary
from posnet_fairseq.text.pipeline import choose_pipeline
from posnet_fairseq.text.sentences import SplitLines, split_sentences
from posnet_fairseq.text.terms import across, checked_terms, normal_term, targets_of


class SearchableModel:
    """Models of one vocabulary on a device, in a precision, with the text pipeline of their data.

    A copy, and another process that it is sent to, loads them again from their paths.

    Attributes:
        options: as given, the precision as it was chosen for ``auto``.
        vocabulary: languages and dictionaries.
        folder: directory that the dictionaries were read from.
        recorded_search: settings of a search that the first model records, by name: the defaults of translations.
    """

    generates: ClassVar = False

    def __init__(self, paths: Sequence[str | Path], options: LoadOptions) -> None:
        device = check_device(options.device)
        self.paths, self.options = paths, replace(options, dtype=resolve_dtype(options.dtype, device.type))
        loaded = _graphs(paths, self.options) if options.onnx else load_models(paths, options.data, self.generates)
        models, self.vocabulary, self.folder, self.recorded_search = loaded
        text = (options.pretokenized, options.bpe_codes, options.sentencepiece_model)
        self._pipeline = choose_pipeline(self.folder, self.vocabulary.languages, *text)
        how = (device, self.options.dtype, options.fast)
        self._models = models if options.onnx else [prepare_for_inference(model, *how) for model in models]
        self._shortlist = None
        if options.shortlist is not None:
            self._shortlist = Shortlist.load(options.shortlist, self.vocabulary)

    def __repr__(self) -> str:
        """Return architecture, languages, precision and beam."""
        names = " + ".join(model.arch for model in self._models), "-".join(filter(None, self.vocabulary.languages))
        where = f"{self.options.dtype}{' by onnxruntime' * self.options.onnx} on {self.options.device}"
        return f"{type(self).__name__}({', '.join(filter(None, (*names, where)))}, beam {self.default_settings.beam})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies have the same precision: they translate alike."""
        return _loaded_again, (type(self), self.paths, self.options)

    @property
    def default_settings(self) -> SearchSettings:
        """The settings of a search for which no others are given."""
        return OF_TEXTS if self.generates else SearchSettings(**self.recorded_search)

    def translator(
        self,
        settings: SearchSettings,
        nbest: int = 1,
        attention: bool = False,
        scores: bool = False,
        to: str | None = None,
    ) -> Translator:
        """Return the models with a search between plain texts, for `nbest` translations of a line.

        With `attention` they have cross-attention weights. With `scores` translations are given, and scored: of the
        settings only the length penalty is read. `to` is the target language of a model of several.
        """
        if not isinstance(attention, bool):
            raise UsageError(f"{option('attention')} {attention!r:.50}: give True or False.")
        if attention and self.options.onnx:
            raise UsageError(f"{option('attention')}: the graphs of onnx give no weights. Load the model without them.")
        dictionary, text = self.vocabulary.target_dictionary, (self.vocabulary, self._pipeline.towards(to))
        longest = min(getattr(model, "encoder", model).max_positions() for model in self._models)
        if scores:
            given = SearchSettings(beam=1, lenpen=settings.lenpen)
            longest_target = min(getattr(model, "decoder", model).max_positions() for model in self._models)
            forced = ForcedDecoding(self._models, dictionary, given, attention=attention)
            return Scorer(forced, *text, longest, longest_target)
        settings.check_words(len(dictionary))
        check_range(option("nbest"), nbest, 1, settings.beam, whole=True)
        search = BeamSearch(self._models, dictionary, settings, nbest, attention, self._shortlist, self._pipeline.joins)
        if self.generates:
            return TextGenerator(search, *text, longest - 1, settings.max_len_b)
        return Translator(search, *text, longest)

    def splitter(self, terms: Collection[str] | None) -> Callable[[Sequence[str]], SplitLines]:
        """Return a function that splits lines of the source language into sentences, but no term."""
        source_language, target_language = self.vocabulary.languages
        if self.options.pretokenized and "+" in target_language:
            raise UsageError(
                f"{option('split_sentences')} with {option('pretokenized')}: only the first sentence of a line would "
                "begin with a tag of its target language. Give a sentence a line."
            )
        together = None if terms is None else across(terms, self._pipeline.edges)
        return functools.partial(split_sentences, language=source_language, together=together)

    def mixings(self, source: str, target: str | None = None, to: str | None = None) -> dict[str, Mixing]:
        """Return what :meth:`posnet_fairseq.api.TranslationModel.weights` does."""
        if self.options.onnx or len(self._models) > 1:
            raise UsageError("weights are those of one model, without onnx. Load the model by itself.")
        for name, text in (("sentence", source), ("target", "" if target is None else target)):
            if not isinstance(text, str):
                raise UsageError(f"{option(name)} is {text!r:.50}, not text: give a str.")
            _as_list(text, name)
        texts = self.vocabulary, self._pipeline.towards(to), source, target
        return {mixing.name: mixing for mixing in of_texts(self._models[0], *texts, self.default_settings)[0]}

    def results(
        self,
        lines: str | Sequence[str],
        settings: Mapping[str, Any],
        nbest: int | None,
        max_tokens: int,
        on_long: str = "error",
        prefix: str | Sequence[str] | None = None,
        attention: bool = False,
        scores: bool = False,
        split: bool = False,
        to: str | None = None,
        terms: Mapping[str, str] | None = None,
        constraints: Sequence[str] | Sequence[Sequence[str]] | None = None,
    ) -> Any:
        """Return translations of a line or lines as :meth:`posnet_fairseq.api.TranslationModel.translate` does."""
        chosen = replace(self.default_settings, **settings)
        check_constrained({"terms": terms, "constraints": constraints}, chosen)
        translator = self.translator(chosen, 1 if nbest is None else nbest, attention, scores, to)
        check_range(option("max_tokens"), max_tokens, *MAX_TOKENS_LIMITS, whole=True)
        check_choice(option("on_long"), on_long, ON_LONG)
        texts = _as_list(lines, "lines")
        prefixes = None if prefix is None and not scores else _as_list(prefix, translator.second_input)
        if isinstance(prefix, str) and not scores:  # for all lines, as --prefix
            prefixes = [prefix] * len(texts)
        chosen_terms = None if terms is None else checked_terms(terms)
        lines_of = self.splitter(chosen_terms)(texts) if split else None
        sentences, numbers = (lines_of.sentences, lines_of.numbers()) if lines_of else (texts, None)
        wanted = None if constraints is None else _constraints(constraints, lines)
        if chosen_terms is not None:
            wanted = targets_of(chosen_terms, sentences, self._pipeline.edges)
        batches = Batches(sentences, translator, max_tokens, on_long, prefixes, numbers, wanted)
        translations = batches.in_order(map(translator.translate, batches))
        shaped: list[Any] = translations if nbest is not None else [best.text for best, *_ in translations]
        if lines_of:
            shaped = list(
                lines_of.joined(shaped, "" if self.options.pretokenized else to or self.vocabulary.languages[1])
            )
        return shaped[0] if isinstance(lines, str) else shaped


def _graphs(paths: Sequence[str | Path], options: LoadOptions) -> tuple[list[Any], Vocabulary, Path, dict[str, Any]]:
    """Return the graphs in a model folder as :func:`load_models` does models; refuse options that they don't have."""
    if len(paths) > 1 or options.fast or str(options.device) != "cpu":
        raise UsageError("onnx True: it takes one folder, on the CPU, without fast. Leave the others out.")
    if options.dtype not in ("float32", "int8"):
        raise UsageError(f"onnx True and dtype {options.dtype}: the graphs have float32 and int8. Give one of them.")
    model: Any = OnnxModel(paths[0], options.dtype == "int8")
    state = read_model(paths[0], with_weights=False)
    model.arch = model_arch(state)
    return [model], *read_vocabulary(state, options.data), recorded_search(state)


class SearchableLanguageModel(SearchableModel):
    """A language model in the place of translation models."""

    generates = True


Model = TypeVar("Model", bound=SearchableModel)


def _loaded_again(kind: type[SearchableModel], paths: Sequence[str | Path], options: LoadOptions) -> SearchableModel:
    """Return a copy of a model; see :meth:`SearchableModel.__reduce__`."""
    with called_from_python():
        return kind(paths, options)


def load_searchable(kind: type[Model], paths: object, options: Mapping[str, Any]) -> Model:
    """Return the models of a path, or of translation models of several paths, that a user gave."""
    is_list = isinstance(paths, Sequence) and not isinstance(paths, str) and not kind.generates
    several: Any = paths if is_list else [paths]
    if not several or not all(isinstance(path, str | Path) and path != "" for path in several):
        if kind.generates:
            raise UsageError(f"path {paths!r:.50}: give the path of a checkpoint or model folder.")
        raise UsageError(f"paths {paths!r:.50}: give the path of a model, or a list of paths.")
    if str(options.get("device")).startswith("meta"):  # on which commands load models that compute nothing
        what = f"{option('device')} {options['device']!s:.50}"
        raise UsageError(f"{what}: it computes nothing. Give cpu, or cuda with a GPU.")
    return kind(several, LoadOptions(**options))


def _constraints(constraints: object, lines: str | Sequence[str]) -> list[list[str]]:
    """Return the texts that each translation must contain; refuse what is no text."""
    of_lines = [constraints] if isinstance(lines, str) else constraints
    if not isinstance(of_lines, Sequence) or any(isinstance(each, str) for each in of_lines):
        what = f"{option('constraints')} {constraints!r:.50}"
        raise UsageError(f"{what}: give a list of texts for a line, and for several lines a list of such lists.")
    return [[*filter(None, map(normal_term, _as_list(of_line, "constraints")))] for of_line in of_lines]


def _as_list(lines: object, name: str) -> list[str]:
    """Return the lines of text that were given by an argument; refuse what is no text."""
    name = option(name)
    texts = [lines] if isinstance(lines, str) else lines
    if not isinstance(texts, Sequence) or isinstance(texts, bytes):
        raise UsageError(f"{name} is {texts!r:.50}, not text: give a str, or a list of str.")
    for number, line in enumerate(texts, start=1):
        place = f"{name.removesuffix('s')} {number}"
        if not isinstance(line, str):
            raise UsageError(f"{place} is {line!r:.50}, not text: give a str, or a list of str.")
        refuse_half_characters(place, line)
    return list(texts)
