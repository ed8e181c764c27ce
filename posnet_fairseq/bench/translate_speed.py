"""Translation of whole files, from plain text to plain text, by posnet and by CTranslate2.

Every measurement is one of a new process, as a user starts it: caches are cold, and its memory is its own.
"""

import contextlib
import functools
import importlib.util
import operator
import statistics
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from posnet_fairseq.bench.printed_tables import MIB, Measurements
from posnet_fairseq.inference.options import MAX_TOKENS, LoadOptions
from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.shared.errors import UsageError, counted
from posnet_fairseq.shared.failures import how_to_install
from posnet_fairseq.shared.files import is_blank
from posnet_fairseq.shared.processes import elsewhere, resident
from posnet_fairseq.text.card import CARD
from posnet_fairseq.text.dictionary import Vocabulary
from posnet_fairseq.text.pipeline import choose_pipeline
from posnet_fairseq.text.plain import iterate_text

PRECISIONS = ("float32", "int8")
CTRANSLATE2 = "CTranslate2"
EARLY = 300  # lines, after which memory is compared with that at the end
# What CTranslate2 takes at once where it makes batches itself: its own default for files, which is fast for it.
_SENTENCES = 32


class Measured(NamedTuple):
    """One translation of a file."""

    texts: list[str]
    cpu: float  # seconds, of all threads
    wall: float  # seconds
    early: int  # bytes of the process after EARLY lines; 0 where that is not seen
    end: int
    peak: int


@dataclass(frozen=True)
class _File:
    """What is translated, and how."""

    lines: list[str]
    batches: list[list[int]] | None  # numbers of lines; None: CTranslate2 makes its own
    settings: SearchSettings
    longest: int  # translation that models have positions for, without end symbol
    threads: int


def _by_posnet(path: str, dtype: str, file: _File) -> Measured:
    """Translate a file by a trained model, as posnet-translate does."""
    import torch

    from posnet_fairseq.inference.searchable import SearchableModel
    from posnet_fairseq.inference.translator import Batches

    torch.set_num_threads(file.threads)
    translator = SearchableModel([path], LoadOptions(dtype=dtype, fast=True)).translator(file.settings)

    def translate(after_batch: Callable[[int], None]) -> list[str]:
        batches, found = Batches(file.lines, translator), []
        for batch in batches:
            found.append(translator.translate(batch))
            after_batch(len(batch.sources))
        return [best.text for best, *_ in batches.in_order(found)]

    with torch.inference_mode():
        return _measured(translate)


def _by_ctranslate2(folder: str, data: Path, languages: tuple[str, str], dtype: str, file: _File) -> Measured:
    """Translate a file by a converted model: torch is not imported."""
    import ctranslate2

    pipeline, settings, own = choose_pipeline(data, languages), file.settings, file.batches is None
    # Its batches are independent, so that threads need not wait for one another.
    inter, intra = (file.threads, 1) if own else (1, file.threads)
    translator = ctranslate2.Translator(folder, compute_type=dtype, inter_threads=inter, intra_threads=intra)
    search = {
        "beam_size": settings.beam,
        "length_penalty": settings.lenpen,
        "max_batch_size": _SENTENCES if own else 0,
        "min_decoding_length": settings.min_len,
    }

    def translate(after_batch: Callable[[int], None]) -> list[str]:
        sources = [pipeline.encode(line).split() for line in file.lines]
        texts = [""] * len(sources)
        for batch in file.batches or [list(range(len(sources)))]:
            some = [sources[index] for index in batch]
            longest = min(int(settings.max_len_a * (max(map(len, some)) + 1) + settings.max_len_b), file.longest)
            for index, found in zip(
                batch, translator.translate_batch(some, max_decoding_length=longest, **search), strict=True
            ):
                before, _, after = pipeline.parts(file.lines[index])
                texts[index] = f"{before}{pipeline.decode(' '.join(found.hypotheses[0]))}{after}"
            after_batch(0 if own else len(batch))
        return texts

    return _measured(translate)


def _measured(translate: Callable[[Callable[[int], None]], list[str]]) -> Measured:
    """Call a function, which reports the lines of each batch."""
    done = early = 0

    def after_batch(lines: int) -> None:
        nonlocal done, early
        done += lines
        early = early or (resident() if done >= EARLY else 0)

    cpu, wall = time.process_time(), time.perf_counter()
    texts = translate(after_batch)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Measured(texts, cpu, wall, early, resident(), resident("VmHWM"))


def measure_files(
    models: Sequence[str], lines: Sequence[str], threads: int, rounds: int, beam: int
) -> tuple[dict[str, list[Measured]], str]:
    """Translate lines by every engine in turn, by new processes; blank lines are left out.

    Returns:
        dict from engine, a name and a precision, to its measurements, and the path of the model that CTranslate2 has:
        the first that it knows, or "".
    """
    from posnet_fairseq.inference.model_folder import read_model
    from posnet_fairseq.inference.model_loading import load_models
    from posnet_fairseq.inference.translator import batches_by_length
    from posnet_fairseq.inference.vocabularies import data_folder

    folder_of_data = data_folder(read_model(models[0], with_weights=False))
    if not ((folder_of_data / CARD).exists() and any(folder_of_data.glob("dict*.txt"))):
        raise UsageError(
            f"{models[0]}: {folder_of_data} does not have its dictionaries and {CARD}. Give a folder that "
            "posnet-export made of it, which has them."
        )
    trained, vocabulary, data, recorded = load_models(models)
    settings = SearchSettings(**recorded | {"beam": beam})
    lines = [line for line in lines if not is_blank(line)]
    if not lines:
        raise UsageError("FILE has no text. Give one with a sentence a line.")
    pipeline = choose_pipeline(data, vocabulary.languages)
    batches = batches_by_length([len(pipeline.encode(line).split()) + 1 for line in lines], MAX_TOKENS)
    longest = min(model.decoder.max_positions() for model in trained) - 1
    file, own = (_File(lines, each, settings, longest, threads) for each in (batches, None))
    engines: dict[str, tuple[Callable[[_File], Measured], _File]] = {}
    with tempfile.TemporaryDirectory() as folder:
        converted = _convert(dict(zip(models, trained, strict=True)), vocabulary, Path(folder))
        for dtype in PRECISIONS:
            for path in models:
                engines[f"{path}, {dtype}"] = functools.partial(_by_posnet, path, dtype), file
            if converted:
                theirs = functools.partial(_by_ctranslate2, folder, data, vocabulary.languages, dtype)
                engines[f"{CTRANSLATE2}, its batches, {dtype}"] = theirs, own
                engines[f"{CTRANSLATE2}, {dtype}"] = theirs, file
        found: dict[str, list[Measured]] = {name: [] for name in engines}
        for round_ in range(rounds):
            for name in engines if round_ % 2 == 0 else reversed(list(engines)):
                found[name].append(elsewhere(*engines[name]))
    return found, converted


def _convert(trained: dict[str, Any], vocabulary: Vocabulary, folder: Path) -> str:
    """Write the first model that CTranslate2 knows for it; return its path, or "" if there is none."""
    from posnet_fairseq.inference import ctranslate2_export
    from posnet_fairseq.inference.checkpoints import model_options
    from posnet_fairseq.inference.model_folder import read_model

    if importlib.util.find_spec("ctranslate2") is None:
        return ""
    for path, model in trained.items():
        cfg = model_options(read_model(path, with_weights=False))
        with contextlib.suppress(UsageError):
            ctranslate2_export.check_model(cfg, path)
            ctranslate2_export.write(model, cfg, vocabulary, folder)
            return path
    return ""


def tables(options: Namespace) -> Iterator[Measurements | str]:
    """Yield what ``posnet-bench translate`` prints."""
    lines = list(iterate_text(options.file))
    for threads in options.threads:
        results, converted = measure_files(options.models, lines, threads, options.rounds, options.beam)
        title = f"{options.file}, {counted(threads, 'thread')}, medians of {options.rounds}"
        speeds = {"lines\n/CPU s": ".1f", "lines\n/s": ".1f", "× CT2\nCPU": ".2f", "× CT2\nclock": ".2f"}
        sizes = dict.fromkeys((f"after\n{EARLY}", "at\nend", "peak"), ",.1f")
        shown = Measurements(title, speeds | {"equal\nlines": "d"} | sizes)
        for name in results:
            shown.add(name, *_figures(name, results, converted))
        yield shown
    yield (
        "× CT2: how many times as fast as CTranslate2 in the same precision, with its own batches (of "
        f"{_SENTENCES} sentences) or posnet's, whichever is faster. Equal: to posnet's float32 of the same model. "
        f"Memory: MiB of the process, after {EARLY} lines or more, at the end, and at most. Loading is not counted."
    )
    if not converted:
        yield f"CTranslate2 is not installed, or knows none of the models. {how_to_install('bench')}"


def _figures(name: str, results: dict[str, list[Measured]], converted: str) -> Iterator[float | str]:
    """Yield the values of an engine's row."""
    from posnet_fairseq.bench.timing import median_ratio  # imports torch

    measured, (model, _, dtype) = results[name], name.rpartition(", ")
    texts = measured[0].texts
    peers = [each for peer, each in results.items() if peer.startswith(CTRANSLATE2) and peer.endswith(dtype)]
    clocks = [operator.attrgetter(clock) for clock in ("cpu", "wall")]
    for clock in clocks:
        yield len(texts) / statistics.median(map(clock, measured))
    for clock in clocks:
        ratios = [median_ratio([*map(clock, peer)], [*map(clock, measured)]) for peer in peers]
        yield min(ratios) if ratios else ""
    (reference, *_) = results[f"{converted if model.startswith(CTRANSLATE2) else model}, {PRECISIONS[0]}"]
    yield sum(map(operator.eq, texts, reference.texts))
    for memory in ("early", "end", "peak"):
        size = statistics.median(getattr(each, memory) for each in measured)
        yield size / MIB if size else ""
