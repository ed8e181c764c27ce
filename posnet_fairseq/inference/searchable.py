"""Trained models that are ready for a search, and calls of it from Python: what translation and generation share."""

import contextlib
import ctypes
import dataclasses
import inspect
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TypedDict

import torch

from posnet_fairseq.inference.arguments import AUTO, MAX_TOKENS_LIMITS, ON_LONG
from posnet_fairseq.inference.packing.pack import assume_packing_speedup, packing_speedup
from posnet_fairseq.inference.precision import (
    check_compile,
    check_device,
    check_dtype,
    choose_dtype,
    prepare_for_inference,
)
from posnet_fairseq.inference.search.beam import BeamSearch
from posnet_fairseq.inference.search.settings import SearchSettings
from posnet_fairseq.inference.shortlist import Shortlist
from posnet_fairseq.inference.translator import BLANK, Batches, Translation, Translator
from posnet_fairseq.shared.errors import UsageError, flag, name_arguments
from posnet_fairseq.shared.schema import check_range
from posnet_fairseq.text.dictionary import Vocabulary
from posnet_fairseq.text.pipeline import choose_pipeline

# Sentences of commands speak of flags; in Python they are arguments.
_ARGUMENTS = {
    flag(name): name
    for name in (
        *"data device dtype fast pretokenized bpe_codes sentencepiece_model max_tokens on_long nbest attention".split(),
        *("prefix", "shortlist", "compile", *(setting.name for setting in dataclasses.fields(SearchSettings))),
    )
}


def _end_threads() -> None:
    """End OpenMP's threads: a fork has none of them, but would wait for them. The next product starts others."""
    with contextlib.suppress(AttributeError):  # another library than GNU's
        ctypes.CDLL(None).omp_pause_resource_all(2)  # omp_pause_hard


os.register_at_fork(before=_end_threads)


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

    Args:
        paths: of the models.
        read: reads the models, their vocabulary and the directory of their data.
        device, dtype, fast, pretokenized, bpe_codes, sentencepiece_model, compile: see :func:`posnet_fairseq.api.load`.

    Attributes:
        vocabulary: languages and dictionaries.
        folder: directory that the dictionaries were read from.
        dtype: precision, also where ``auto`` was asked for.
    """

    _arguments: dict[str, Any]

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        """Keep the arguments for copies."""
        made = super().__new__(cls)
        made._arguments = inspect.signature(made.__init__).bind(*arguments, **named).arguments  # type: ignore[misc]
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies have the same precision and packing, which would be measured anew: they translate alike."""
        return _loaded_again, (type(self), self._arguments | {"dtype": self.dtype}, packing_speedup())

    def __init__(
        self,
        paths: Sequence[str | Path],
        read: Callable[[], tuple[Sequence[Any], Vocabulary, Path]],
        device: str | torch.device,
        dtype: str,
        fast: bool,
        pretokenized: bool,
        bpe_codes: str | Path | None,
        sentencepiece_model: str | Path | None,
        compile: bool,
    ) -> None:
        place = check_device(device)
        check_dtype(dtype, place.type)
        self.dtype = choose_dtype(paths, place.type)[0] if dtype == AUTO else dtype
        if compile and place.type != "meta":  # where nothing is computed
            check_compile(self.dtype, place.type)
        models, self.vocabulary, self.folder = read()
        self._pipeline = choose_pipeline(
            self.folder, self.vocabulary.languages, pretokenized, bpe_codes, sentencepiece_model
        )
        self._models = [prepare_for_inference(model, place, self.dtype, fast, compile) for model in models]

    def _search(
        self, settings: SearchSettings, nbest: int, attention: bool = False, shortlist: Shortlist | None = None
    ) -> BeamSearch:
        """A search with the models.

        Raises:
            UsageError: a setting is out of range.
        """
        dictionary = self.vocabulary.target_dictionary
        settings.check(len(dictionary))
        check_range("--nbest", nbest, 1, settings.beam, whole=True)
        return BeamSearch(self._models, dictionary, settings, nbest, attention, shortlist)


def _loaded_again(kind: type[SearchableModel], arguments: dict[str, Any], speedup: float) -> SearchableModel:
    """A copy of a model; see :meth:`SearchableModel.__reduce__`."""
    assume_packing_speedup(speedup)
    with errors_of_arguments():
        return kind(**arguments)


def results(
    lines: str | Sequence[str],
    translator: Translator,
    nbest: int | None,
    max_tokens: int,
    on_long: str = "error",
    prefix: str | Sequence[str] | None = None,
) -> str | list[str] | list[Translation] | list[list[Translation]]:
    """Translations of a line or lines, in the form that an API method returns them.

    Args:
        lines: a line of plain text, or a sequence of lines.
        translator: translates them.
        nbest: None to return the texts of the best translations only.
        max_tokens, on_long, prefix: see :meth:`posnet_fairseq.api.TranslationModel.translate`.

    Raises:
        UsageError: `lines` or `prefix` is not text, an argument is out of range, or a line is too long.
    """
    check_range("--max-tokens", max_tokens, *MAX_TOKENS_LIMITS, whole=True)
    if on_long not in ON_LONG:
        raise UsageError(f"--on-long {on_long!r:.50}: choose one of {', '.join(ON_LONG)}.")
    prefixes = None if prefix is None else _checked(prefix, "prefix")
    batches = Batches(_checked(lines, "lines"), translator, max_tokens, on_long, prefixes)
    found = batches.in_order(map(translator.translate, batches), [BLANK])
    shaped: list[Any] = found if nbest is not None else [best.text for best, *_ in found]
    return shaped[0] if isinstance(lines, str) else shaped


@contextlib.contextmanager
def errors_of_arguments() -> Iterator[None]:
    """Let every :class:`UsageError` of a block name arguments of Python instead of flags."""
    try:
        yield
    except UsageError as error:
        raise type(error)(name_arguments(str(error), _ARGUMENTS)) from error


def refuse_no_path(value: object, name: str, what: str) -> None:
    """Refuse an argument that is neither a path nor None.

    Raises:
        UsageError: it is something else. The sentence has the `name` of the argument, and of what a path is wanted.
    """
    if value is not None and not isinstance(value, str | Path):
        raise UsageError(f"{name} {value!r:.50}: give the path of {what}.")


def _checked(lines: str | Sequence[str], name: str) -> list[str]:
    """The lines of text that were given by an argument.

    Raises:
        UsageError: they are not text.
    """
    given = [lines] if isinstance(lines, str) else lines
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise UsageError(f"{name} is {given!r:.50}, not text: give a str, or a list of str.")
    for number, line in enumerate(given, start=1):
        if not isinstance(line, str):
            one = name.removesuffix("s")
            raise UsageError(f"{one} {number} is {line!r:.50}, not text: give a str, or a list of str.")
        if half := re.search(r"[\ud800-\udfff]", line):
            raise UsageError(
                f"{name.removesuffix('s')} {number} has half of a surrogate pair, {half[0]!r}, which is no character. "
                "Give text as str that UTF-8 can write."
            )
    return list(given)
