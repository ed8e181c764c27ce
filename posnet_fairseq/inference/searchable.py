"""Trained models that are ready for a search, and calls of it from Python: what translation and generation share."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypedDict

from posnet_fairseq.inference.arguments import MAX_TOKENS_LIMITS, ON_LONG, LoadOptions
from posnet_fairseq.inference.checkpoints import model_arch
from posnet_fairseq.inference.model_folder import read_model
from posnet_fairseq.inference.model_loading import load_models
from posnet_fairseq.inference.onnx_model import OnnxModel
from posnet_fairseq.inference.precision import check_device, prepare_for_inference, resolve_dtype
from posnet_fairseq.inference.search.beam import BeamSearch, ForcedDecoding
from posnet_fairseq.inference.search.search_settings import OF_TEXTS, SearchSettings, recorded_search
from posnet_fairseq.inference.shortlist import Shortlist
from posnet_fairseq.inference.translator import Batches, Scorer, TextGenerator, Translator
from posnet_fairseq.inference.vocabularies import read_vocabulary
from posnet_fairseq.shared.errors import UsageError, called_from_python, option
from posnet_fairseq.shared.schema import check_range
from posnet_fairseq.text.dictionary import Vocabulary
from posnet_fairseq.text.pipeline import choose_pipeline


class SearchArguments(TypedDict, total=False):
    """The settings of a search as keyword arguments, see :class:`SearchSettings`."""

    beam: int
    lenpen: float
    max_len_a: float
    max_len_b: int
    min_len: int
    unkpen: float
    temperature: float
    no_repeat_ngram_size: int
    sampling: bool
    sampling_topk: int
    sampling_topp: float
    seed: int


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
        beam = (OF_TEXTS if self.generates else SearchSettings(**self.recorded_search)).beam
        return f"{type(self).__name__}({', '.join(filter(None, (*names, where)))}, beam {beam})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies have the same precision: they translate alike."""
        return _loaded_again, (type(self), self.paths, self.options)

    def translator(
        self, settings: SearchSettings, nbest: int = 1, attention: bool = False, scores: bool = False
    ) -> Translator:
        """Return the models with a search between plain texts, for `nbest` translations of a line.

        With `attention` they have cross-attention weights. With `scores` translations are given, and scored.
        """
        if not isinstance(attention, bool):
            raise UsageError(f"{option('attention')} {attention!r:.50}: give True or False.")
        if attention and self.options.onnx:
            raise UsageError(f"{option('attention')}: the graphs of onnx give no weights. Load the model without them.")
        dictionary = self.vocabulary.target_dictionary
        settings.check(None if scores else len(dictionary))  # nothing is searched for scores
        check_range(option("nbest"), nbest, 1, settings.beam, whole=True)
        longest = min(getattr(model, "encoder", model).max_positions() for model in self._models)
        if scores:
            forced = ForcedDecoding(self._models, dictionary, settings, attention=attention)
            longest_target = min(getattr(model, "decoder", model).max_positions() for model in self._models)
            return Scorer(forced, self.vocabulary, self._pipeline, longest, longest_target)
        search = BeamSearch(self._models, dictionary, settings, nbest, attention, self._shortlist)
        if self.generates:
            return TextGenerator(search, self.vocabulary, self._pipeline, longest - 1, settings.max_len_b)
        return Translator(search, self.vocabulary, self._pipeline, longest)


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


def _loaded_again(kind: type[SearchableModel], paths: Sequence[str | Path], options: LoadOptions) -> SearchableModel:
    """Return a copy of a model; see :meth:`SearchableModel.__reduce__`."""
    with called_from_python():
        return kind(paths, options)


def results(
    lines: str | Sequence[str],
    translator: Translator,
    nbest: int | None,
    max_tokens: int,
    on_long: str = "error",
    prefix: str | Sequence[str] | None = None,
) -> Any:
    """Return translations of a line or lines as :meth:`posnet_fairseq.api.TranslationModel.translate` does."""
    check_range(option("max_tokens"), max_tokens, *MAX_TOKENS_LIMITS, whole=True)
    if on_long not in ON_LONG:
        raise UsageError(f"{option('on_long')} {on_long!r:.50}: choose one of {', '.join(ON_LONG)}.")
    texts = _checked(lines, "lines")
    is_prefix = translator.second_input == "prefix"
    prefixes = None if prefix is None and is_prefix else _checked(prefix, translator.second_input)
    if isinstance(prefix, str) and is_prefix:  # for all lines, as --prefix
        prefixes = [prefix] * len(texts)
    batches = Batches(texts, translator, max_tokens, on_long, prefixes)
    found = batches.in_order(map(translator.translate, batches))
    shaped: list[Any] = found if nbest is not None else [best.text for best, *_ in found]
    return shaped[0] if isinstance(lines, str) else shaped


def _checked(lines: str | Sequence[str] | None, name: str) -> list[str]:
    """Return the lines of text that were given by an argument; refuse what is no text."""
    name = option(name)
    given, one, problem = [lines] if isinstance(lines, str) else lines, name.removesuffix("s"), ""
    no_text = "not text: give a str, or a list of str"
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        given, problem = [], f"{name} is {given!r:.50}, {no_text}"
    for number, line in enumerate(given, start=1):
        if not isinstance(line, str):
            problem = f"{one} {number} is {line!r:.50}, {no_text}"
        elif half := re.search(r"[\ud800-\udfff]", line):
            problem = f"{one} {number} has half of a surrogate pair, {half[0]!r}, which is no character that UTF-8 has"
        if problem:
            break
    if problem:
        raise UsageError(f"{problem}.")
    return list(given)
