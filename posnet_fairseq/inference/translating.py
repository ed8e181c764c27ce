"""The work of posnet-translate and posnet-generate: windows of lines read, searched for, and written in their order."""

import argparse
import functools
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from posnet_fairseq import __version__
from posnet_fairseq.inference import outputs
from posnet_fairseq.inference.model_folder import files_of_data, files_of_models
from posnet_fairseq.inference.options import AUTO, LoadOptions, text_options
from posnet_fairseq.inference.parallel_search import (
    Found,
    ParallelSearch,
    SearchOnGPU,
    processes_and_threads,
    timed_search,
)
from posnet_fairseq.inference.precision import check_device, resolve_dtype
from posnet_fairseq.inference.search.search_settings import SearchSettings, given_settings
from posnet_fairseq.inference.searchable import SearchableLanguageModel, SearchableModel
from posnet_fairseq.inference.translation import Printing
from posnet_fairseq.inference.translator import Batch, Batches, Translator
from posnet_fairseq.shared.errors import UsageError, counted, flag
from posnet_fairseq.shared.files import check_place, iterate_lines
from posnet_fairseq.shared.finished_windows import FinishedWindows, Stream, Texts, open_output
from posnet_fairseq.shared.line_stream import IncomingLines
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.records import sealed
from posnet_fairseq.shared.results import leave_result
from posnet_fairseq.text.plain import PlainText, iterate_text
from posnet_fairseq.text.sentences import SplitLines
from posnet_fairseq.text.terms import normal_term, read_terms, targets_of
from posnet_fairseq.text.tokenizers import lost_symbols

WINDOW = 4000  # lines that are sorted into batches together, kept when they are finished, and in memory at once
STREAMED = 32  # with --stream: more would be faster by little, and let the first of them wait for the last
# Options that change no translation, or that are looked at otherwise: the text, the files, the device.
_WITHOUT_EFFECT = set("input prefix constraints output processes resume stream data device checkpoint dtype".split())


@torch.inference_mode()
def translate(options: argparse.Namespace, prog: str = "posnet-translate") -> None:
    """Translate texts, or with ``generates`` continue them, as the options of the command `prog` say."""

    def say(sentence: object) -> None:
        print(f"{prog}: {sentence}", file=sys.stderr)

    outputs.check_places(options)
    terms = read_terms(options.terms) if options.terms else None
    place = _place(options)
    device = place.partition(":")[0]
    dtype = resolve_dtype(options.dtype, device)
    if options.dtype == AUTO:
        say(f"--dtype auto is {dtype}")
    model = _load(options, place, dtype)
    if options.output != "-":
        check_place(options.output, "--output", files_of_data(model.folder))
    scores = bool(options.score_translations)
    known = {name: value for name, value in model.recorded_search.items() if name == "lenpen" or not scores}
    if open_ones := [f"{flag(name)} {value:.15g}" for name, value in known.items() if getattr(options, name) is None]:
        say(f"search settings from the model: {' '.join(open_ones)}")
    settings = SearchSettings(**model.recorded_search | given_settings(options))
    to = None if options.generates else options.to
    arguments = 1 if options.nbest is None else options.nbest, bool(options.print_alignment), scores, to
    translator = model.translator(settings, *arguments)
    translator.encode_constraints((terms or {}).values())  # refuses some before the text is translated
    printing = Printing(options.nbest, options.print_alignment, options.json, options.per_token, scores)

    # Tokens always have spaces between them.
    spaced_as = "" if options.pretokenized else to or model.vocabulary.languages[1]
    unit = "texts" if options.generates else "sentences"
    counts = _Counts(() if scores else translator.pipeline.symbols, options.generates)
    inputs = outputs.second_input(options)
    work = {"device": device, "dtype": dtype, **_work_of(options, model), "second": inputs[0]}
    work["terms"] = terms and sealed(terms)["sha256"]
    text = iterate_text(options.input)
    take: Callable[[], list[str]] = lambda: list(itertools.islice(text, WINDOW))  # noqa: E731
    if options.stream:
        take = functools.partial(IncomingLines(options.input).take, STREAMED)
    if beginning := inputs[2]:
        say(f"--prefix: there is no file {beginning}, so every translation begins with this text")
    with open_output(options.output, work, options.resume, say, at_once=options.stream) as output:
        split = model.splitter(terms) if options.split_sentences else None
        all_windows = _windows(take, inputs, options, split)
        windows = _encoded(all_windows, output, functools.partial(_batches, translator, options, terms), options, say)
        first = list(itertools.islice(windows, 1))
        batches = sum(len(each) for _, each in first)
        processes, threads = processes_and_threads(options.processes, options.input, batches)
        find: Callable[[Batch], Any] = functools.partial(timed_search, translator, threads if processes > 1 else None)
        if processes > 1 and device == "cuda":
            load = replace(model.options, device=device)
            find = SearchOnGPU(type(model), options.checkpoint, load, (settings, *arguments), threads)
        search = ParallelSearch(find, processes, "spawn" if device == "cuda" else "fork")
        with ProgressReporter().bar("scoring" if scores else "translating", unit) as bar:
            for window, found in search(itertools.chain(first, windows), bar):
                if window.split:
                    printed = list(window.split.joined([one.text for one, *_ in found], spaced_as))
                else:
                    of_lines = itertools.starmap(printing.lines, enumerate(found, window.first))
                    printed = list(itertools.chain.from_iterable(of_lines))
                output.add(window.texts, printed)
                counts.add(window, found)
    if counts.lines:
        leave_result(sentences_per_second=round(counts.lines / search.seconds, 1))
    for sentence in counts.sentences(options, unit, search.seconds):
        say(sentence)


def _place(options: argparse.Namespace) -> str:
    """Return the device, refused if it is not there or for too many processes; a GPU or a stream has 1 by default."""
    place: str = options.device or ("cuda" if torch.cuda.device_count() else "cpu")
    is_gpu = place.startswith("cuda")
    if options.device is not None:
        check_device(place)
    if is_gpu or options.stream:
        options.processes = options.processes or 1
    gpus = 1 if ":" in place else torch.cuda.device_count()
    if is_gpu and options.processes > gpus:
        there = f"--device {place} is one GPU" if ":" in place else f"this machine has {counted(gpus, 'GPU')}"
        raise UsageError(f"--processes {options.processes}: {there}. Give at most {gpus}, or --device cpu.")
    return place


def _load(options: argparse.Namespace, device: str, dtype: str) -> SearchableModel:
    """Return the models of a command line."""
    same = {name: getattr(options, name) for name in ("data", "fast", "shortlist")}
    load = LoadOptions(device=device, dtype=dtype, **same, **text_options(options))
    if device == "cuda" and options.processes > 1:  # this process translates nothing, with a model without weights
        load = replace(load, device="meta")
    kind = SearchableLanguageModel if options.generates else SearchableModel
    return kind(options.checkpoint, load)


@dataclass
class _Window:
    """Lines that are translated together, from line `first` on, counted from 0."""

    first: int
    lines: list[str]
    second: list[str] | None = None  # a text for each line
    split: SplitLines | None = None
    constraints: list[list[str]] | None = None  # of each sentence

    @property
    def sentences(self) -> list[str]:
        """Return what is translated: the lines, or their sentences."""
        return self.split.sentences if self.split else self.lines

    @property
    def texts(self) -> Texts:
        """Return lines, and the second texts."""
        return self.lines, self.second


@dataclass
class _Counts:
    """What the best translations have, those without tokens left out, and what they lack."""

    symbols: Sequence[str]
    only_new: bool  # of the tokens: those of the source are left out
    lines: int = 0
    tokens: int = 0
    wanted: int = 0  # terms or constraints
    missed: int = 0
    lost: Counter[str] = field(default_factory=Counter)  # lines whose translation lacks a symbol

    def add(self, window: _Window, found: Found) -> None:
        """Add the translations of a window."""
        self.wanted += sum(map(len, window.constraints or ()))
        for source, (best, *_) in zip(window.sentences, found, strict=True):
            self.missed += len(best.unmet or ())
            if best.tokens:
                self.lines += 1
                self.tokens += len(best.tokens) - (len(best.source_tokens) if self.only_new else 0)
                self.lost.update(lost_symbols(source, best.text, self.symbols))

    def sentences(self, options: argparse.Namespace, unit: str, seconds: float) -> Iterator[str]:
        """Yield what the command says at its end."""
        one = unit.removesuffix("s")
        for symbol, count in self.lost.items():
            have = counted(count, f"{one} has", f"{unit} have")
            yield f"{have} {symbol} more often than the translation: the model lost it"
        if options.terms or options.constraints:
            yield f"{self.missed} of {counted(self.wanted, 'term' if options.terms else 'constraint')} not met"
        rates = ""
        if self.lines:
            new = "new " * self.only_new
            rates = f", {self.lines / seconds:.1f} {unit} and {self.tokens / seconds:.1f} {new}tokens a second"
        yield f"{self.lines} {one if self.lines == 1 else unit} in {seconds:.1f} s{rates}"


def _windows(
    take: Callable[[], list[str]],
    inputs: tuple[str, str | None, str | None],
    options: argparse.Namespace,
    split: Callable[[Sequence[str]], SplitLines] | None,
) -> Iterator[_Window]:
    """Yield windows of lines, split or not, each with those of :func:`outputs.second_input`, if there are any."""
    name, second, beginning = inputs
    read = iterate_lines if options.constraints else iterate_text  # which refuses tables
    prefixes = read(second) if second else itertools.repeat(beginning) if beginning else None
    first = 0
    while True:
        some = take()
        most = len(some) if beginning else WINDOW  # a file may have too many
        begin = None if prefixes is None else list(itertools.islice(prefixes, most))
        if not some and not begin:
            return
        if begin is not None and len(begin) != len(some):
            lines, others = (first + len(each) for each in (some, begin))
            more, fewer = (" or more" * (len(each) == WINDOW) for each in (some, begin))
            raise UsageError(
                f"{name} {second} has {counted(others, 'line')}{fewer}, and --input {options.input} {lines:,}{more}. "
                "Give one line for each, which may be empty."
            )
        yield _Window(first, some, begin, split(some) if split else None)
        first += len(some)


def _encoded(
    windows: Iterator[_Window],
    output: Stream | FinishedWindows,
    batches_of: Callable[[_Window], Batches],
    options: argparse.Namespace,
    say: Callable[[object], None],
) -> Iterator[tuple[_Window, Batches]]:
    """Yield the windows that are not done yet, with their batches."""
    done = 0
    for window in windows:
        texts = [*window.lines, *(window.second or ())]
        if window.first == 0 and not options.pretokenized and PlainText(texts).is_segmented:
            say("the input has subword marks (@@ or ▁) and is split again; --pretokenized keeps it as it is")
        if output.has(window.texts):
            done += len(window.lines)
            continue
        try:
            parts: Iterable[tuple[_Window, Batches]] = [(window, batches_of(window))]
        except UsageError:
            if not options.stream:
                raise
            # The lines in front of the one that is refused are translated. The prefix is one for all of a stream.
            begin = window.second and window.second[:1]
            split = [None] * len(window.lines) if window.split is None else window.split.by_line()
            single = (
                _Window(window.first + index, [line], begin, split[index]) for index, line in enumerate(window.lines)
            )
            parts = ((each, batches_of(each)) for each in single)
        for part, batches in parts:
            for note in batches.notes:
                say(note)
            yield part, batches
    if done:
        say(f"{counted(done, 'line was', 'lines were')} translated before")


def _batches(
    translator: Translator, options: argparse.Namespace, terms: Mapping[str, str] | None, window: _Window
) -> Batches:
    """Return the batches of a window, which notes its constraints; refuse what cannot be translated."""
    first = window.first + 1
    numbers = window.split.numbers(first) if window.split else range(first, first + len(window.lines))
    prefixes = window.second
    if options.constraints:
        of_lines, prefixes = (line.split("\t") for line in prefixes or ()), None
        window.constraints = [[*filter(None, map(normal_term, texts))] for texts in of_lines]
    elif terms is not None:
        window.constraints = targets_of(terms, window.sentences, translator.pipeline.edges)
    how = (options.max_tokens, options.on_long)
    batches = Batches(window.sentences, translator, *how, prefixes, numbers, window.constraints)
    for batch in batches:
        translator.search.check_batch(batch.sources, batch.prefixes)
    return batches


def _work_of(options: argparse.Namespace, model: SearchableModel) -> dict[str, Any]:
    """Return what translations depend on besides the text: options, versions, and sizes and dates of files."""
    paths = [path for name in ("shortlist", "bpe_codes", "sentencepiece_model") if (path := getattr(options, name))]
    data = [path for path in files_of_data(model.folder) if path.suffix not in (".idx", ".bin")]
    files = sorted({Path(path).absolute() for path in (*files_of_models(options.checkpoint), *data, *paths)})
    looks = {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()}
    given = {name: value for name, value in vars(options).items() if name not in _WITHOUT_EFFECT}
    return {"posnet": __version__, "torch": str(torch.__version__), "files": looks, **given}
