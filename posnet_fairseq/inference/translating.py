"""The work of posnet-translate and posnet-generate: windows of lines read, searched for, and written in their order."""

import argparse
import functools
import itertools
import math
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from posnet_fairseq import __version__
from posnet_fairseq.inference import outputs
from posnet_fairseq.inference.model_folder import files_of_data, files_of_models
from posnet_fairseq.inference.options import AUTO, LoadOptions, text_options
from posnet_fairseq.inference.precision import check_device, resolve_dtype
from posnet_fairseq.inference.search.search_settings import SearchSettings, given_settings
from posnet_fairseq.inference.searchable import SearchableLanguageModel, SearchableModel
from posnet_fairseq.inference.translation import Printing, Translation
from posnet_fairseq.inference.translator import Batch, Batches, Translator
from posnet_fairseq.shared.errors import UsageError, counted, flag
from posnet_fairseq.shared.files import check_place, iterate_lines
from posnet_fairseq.shared.finished_windows import FinishedWindows, Stream, Texts, open_output
from posnet_fairseq.shared.line_stream import IncomingLines
from posnet_fairseq.shared.processes import in_order, worker_number
from posnet_fairseq.shared.progress import Bar, ProgressReporter
from posnet_fairseq.shared.records import sealed
from posnet_fairseq.shared.results import leave_result
from posnet_fairseq.text.plain import PlainText, iterate_text
from posnet_fairseq.text.sentences import SplitLines
from posnet_fairseq.text.terms import normal_term, read_terms, targets_of
from posnet_fairseq.text.tokenizers import lost_symbols

WINDOW = 4000  # lines that are sorted into batches together, kept when they are finished, and in memory at once
STREAMED = 32  # with --stream: more would be faster by little, and let the first of them wait for the last
MOST = 16  # processes by default: each one needs memory for its batch
# Options that change no translation, or that are looked at otherwise: the text, the files, the device.
_WITHOUT_EFFECT = set("input prefix constraints output processes resume stream data device checkpoint dtype".split())

Found = list[list[Translation]]  # for each source of a batch, best first
_Timed = tuple[Found, float, float]  # with the times at which the search began and ended


@torch.inference_mode()
def translate(options: argparse.Namespace, prog: str = "posnet-translate") -> None:
    """Translate texts, or with ``generates`` continue them, as the options of the command `prog` say."""

    def say(sentence: object) -> None:
        print(f"{prog}: {sentence}", file=sys.stderr)

    outputs.check_places(options)
    terms = read_terms(options.terms) if options.terms else None
    place = options.device or ("cuda" if torch.cuda.device_count() else "cpu")
    device = place.partition(":")[0]
    if options.device is not None:
        check_device(place)
    gpus = 1 if ":" in place else torch.cuda.device_count()
    if device == "cuda" or options.stream:
        options.processes = options.processes or 1
    if device == "cuda" and options.processes > gpus:
        there = f"this machine has {counted(gpus, 'GPU')}" if place == device else f"--device {place} is one GPU"
        raise UsageError(f"--processes {options.processes}: {there}. Give at most {gpus}, or --device cpu.")
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
    lines, tokens, unit = 0, 0, "texts" if options.generates else "sentences"
    lost = Counter[str]()  # lines whose translation lacks a symbol
    wanted, missed = 0, 0  # terms or constraints
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
                best = [translations[0] for translations in found if translations[0].tokens]
                lines += len(best)
                wanted += sum(map(len, window.constraints or ()))
                missed += sum(len(one.unmet or ()) for one, *_ in found)
                if not scores:
                    pairs = [
                        (source, one.text)
                        for source, (one, *_) in zip(window.sentences, found, strict=True)
                        if one.tokens
                    ]
                    lost.update(symbol for pair in pairs for symbol in lost_symbols(*pair, translator.pipeline.symbols))
                tokens += sum(len(one.tokens) - (len(one.source_tokens) if options.generates else 0) for one in best)
    for symbol, count in lost.items():
        have = counted(count, f"{unit.removesuffix('s')} has", f"{unit} have")
        say(f"{have} {symbol} more often than the translation: the model lost it")
    if terms is not None or options.constraints:
        what = "term" if terms is not None else "constraint"
        say(f"{missed} of {counted(wanted, what)} not met")
    rates = ""
    if lines:
        new = "new " * options.generates
        leave_result(sentences_per_second=round(lines / search.seconds, 1))
        rates = f", {lines / search.seconds:.1f} {unit} and {tokens / search.seconds:.1f} {new}tokens a second"
    say(f"{lines} {unit.removesuffix('s') if lines == 1 else unit} in {search.seconds:.1f} s{rates}")


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


@dataclass
class ParallelSearch:
    """Search by `processes`, in the order of the windows.

    Attributes:
        find: is called by each process, by this one if there is 1.
        start: of processes, as in :func:`posnet_fairseq.shared.processes.in_order`.
        seconds: those of all searches of one process, or from the first to the last one of several.
    """

    find: Callable[[Batch], _Timed]
    processes: int
    start: str
    seconds: float = 0.0

    def __call__(self, windows: Iterator[tuple[_Window, Batches]], bar: Bar) -> Iterator[tuple[_Window, Found]]:
        """Yield windows and their translations; processes do not wait for the end of one."""
        drawn, done = deque[tuple[_Window, Batches]](), list[Found]()

        def batches() -> Iterator[Batch]:
            for window, of_window in windows:
                drawn.append((window, of_window))
                yield from of_window or [Batch([])]

        first, last, advice = math.inf, -math.inf, "Run again with fewer --processes."
        for found, begin, end in in_order(self.find, batches(), self.processes, self.start, advice):
            first, last = min(first, begin), max(last, end)
            self.seconds = self.seconds + end - begin if self.processes == 1 else last - first
            done.append(found)
            bar.advance(len(found))
            window, of_window = drawn[0]
            if len(done) >= len(of_window):
                drawn.popleft()
                yield window, of_window.in_order(done[: len(of_window)])
                done.clear()


def _work_of(options: argparse.Namespace, model: SearchableModel) -> dict[str, Any]:
    """Return what translations depend on besides the text: options, versions, and sizes and dates of files."""
    paths = [path for name in ("shortlist", "bpe_codes", "sentencepiece_model") if (path := getattr(options, name))]
    data = [path for path in files_of_data(model.folder) if path.suffix not in (".idx", ".bin")]
    files = sorted({Path(path).absolute() for path in (*files_of_models(options.checkpoint), *data, *paths)})
    looks = {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()}
    given = {name: value for name, value in vars(options).items() if name not in _WITHOUT_EFFECT}
    return {"posnet": __version__, "torch": str(torch.__version__), "files": looks, **given}


def processes_and_threads(given: int | None, path: str, batches: int) -> tuple[int, int]:
    """Return the number of processes that translate a text, and the number of threads of each.

    By default a file has processes with one thread each: threads that share a batch wait for each other at every
    operation. A pipe is read no earlier than its lines are needed, by one process.

    Args:
        given: number of processes; None for the default on a CPU.
        path: of the text; ``-`` is standard input.
        batches: number of batches of the first window.
    """
    threads = torch.get_num_threads()
    if given is not None:
        return given, threads if "OMP_NUM_THREADS" in os.environ else max(1, threads // given)
    is_file = os.path.isfile(0 if path == "-" else path)
    processes = max(1, min(threads, batches, MOST)) if is_file else 1
    return processes, threads if processes == 1 else 1


def timed_search(translator: Translator, threads: int | None, batch: Batch) -> _Timed:
    """Return translations without their weights, and when the search began and ended.

    With a number of `threads`, it is called in a fork of the process, which shares the models' memory.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    begin = time.perf_counter()
    # Weights would reach another process as open files.
    found = [[replace(each, attention=None) for each in several] for several in translator.translate(batch)]
    return found, begin, time.perf_counter()


@dataclass
class SearchOnGPU:
    """Search by one of several processes, each on a GPU of its own, which load the models when they get a batch."""

    kind: type[SearchableModel]
    paths: Sequence[str]
    load: LoadOptions
    arguments: tuple[SearchSettings, int, bool, bool, str | None]  # of the translator
    threads: int
    translator: Translator | None = None

    def __call__(self, batch: Batch) -> _Timed:
        """As :func:`timed_search`."""
        if self.translator is None and batch.sources:
            torch.set_num_threads(self.threads)
            model = self.kind(self.paths, replace(self.load, device=f"cuda:{worker_number()}"))
            self.translator = model.translator(*self.arguments)
        now = time.perf_counter()
        return timed_search(self.translator, None, batch) if self.translator else ([], now, now)
