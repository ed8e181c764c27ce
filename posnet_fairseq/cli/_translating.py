"""The work of posnet-translate: batches translated in one process or several."""

import argparse
import collections
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from posnet_fairseq.api import TranslationModel
from posnet_fairseq.cli._resume import FinishedBatches, place_beside, work_of
from posnet_fairseq.cli._search import lines_of, settings_of, take_dtype, unless_given
from posnet_fairseq.cli._stream import as_they_come, check_stream, writer_to
from posnet_fairseq.cli._text import files_of_data, files_of_models, text_options
from posnet_fairseq.inference.packing.pack import (
    assume_packing_speedup,
    describe_packing,
    packing_speedup,
    weights_are_packed,
)
from posnet_fairseq.inference.translator import BLANK, Batch, Batches, Translation, Translator
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_place, check_stdout, save_lines
from posnet_fairseq.shared.incoming import IncomingLines
from posnet_fairseq.shared.processes import in_order, worker_number
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.text.plain import PlainText, read_text


class Work:
    """Translates batches in this process, or in others, each of which loads the models again.

    Args:
        options: of the command line.
        device: type of the devices, ``cuda`` or ``cpu``.

    Attributes:
        options: of the command line.
        model: None until it is loaded.
    """

    def __init__(self, options: argparse.Namespace, device: str) -> None:
        self.options, self._device = options, device
        self.model: TranslationModel | None = None
        self._translator: Translator | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Models do not travel to other processes. The measurement does by which weights are packed or not."""
        speedup = packing_speedup() if self.measures_packing else None
        return {**self.__dict__, "model": None, "_translator": None, "packing_speedup": speedup}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In another process, which would measure anew: translations must not depend on the process."""
        speedup = state.pop("packing_speedup")
        if speedup is not None:
            assume_packing_speedup(speedup)
        self.__dict__.update(state)

    @property
    def measures_packing(self) -> bool:
        """Whether a measurement decides if weights are packed, which changes the rounding."""
        return self._device == "cpu" and self.options.dtype == "float32" and not self.options.compile

    @torch.inference_mode()
    def __call__(self, batch: Batch) -> tuple[list[list[Translation]], int, float]:
        """See :meth:`Translator.translate`; also the number of the process that did it, and its seconds."""
        if self._translator is None and "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(max(1, torch.get_num_threads() // self.options.processes))
        translator = self.load()
        start = time.perf_counter()
        found = translator.translate(batch)
        # What is printed does without the weights, each of which would reach another process as an open file.
        found = [[replace(each, attention=None) for each in translations] for translations in found]
        return found, worker_number(), time.perf_counter() - start

    def load(self) -> Translator:
        """The translator, on the device that is this process's own."""
        if self._translator is None:
            options = self.options
            device = f"cuda:{worker_number()}" if self._device == "cuda" else self._device
            text = text_options(options)
            self.model = TranslationModel(
                *(options.checkpoint, options.data, device, options.dtype, options.fast),
                **text,
                shortlist=options.shortlist,
                compile=options.compile,
            )
            nbest = 1 if options.nbest is None else options.nbest
            self._translator = self.model.translator(
                settings_of(options, self.model.recorded_search), nbest, options.print_alignment
            )
        return self._translator


class Speed:
    """Sentences and tokens a second."""

    def __init__(self) -> None:
        self._sentences = self._tokens = 0
        self._busy = collections.defaultdict[int, float](float)

    def add(self, found: Sequence[Sequence[Translation]], worker: int, seconds: float) -> None:
        """Add a batch: its translations, the number of the process that made them, and how long that took."""
        self._sentences += len(found)
        self._tokens += sum(len(best.tokens) for best, *_ in found)
        self._busy[worker] += seconds

    def __str__(self) -> str:
        # Without the seconds in which other processes start, which say nothing about the model.
        seconds = max(self._busy.values(), default=0.0)
        text = f"{self._sentences} sentences in {seconds:.1f} s"
        if not self._sentences:
            return text
        return f"{text}, {self._sentences / seconds:.1f} sentences and {self._tokens / seconds:.1f} tokens a second"


@torch.inference_mode()
def translate(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Translate as the options of posnet-translate say.

    Args:
        options: of the command line.
        parser: which read them.

    Raises:
        UsageError: a model, a text or an option cannot be used.
    """
    optional = (options.prefix, options.sentencepiece_model, options.bpe_codes, options.shortlist)
    inputs = [options.input, *files_of_models(options.checkpoint), *filter(None, optional)]
    if options.output == "-":
        check_stdout()
    else:
        check_place(options.output, "--output", inputs)
    if options.stream:
        check_stream(options)
    beside = place_beside(options.output, inputs)
    if options.resume and beside is None:
        raise UsageError("--resume goes on with a file: give one by --output, of a name that is not too long.")
    device = "cuda" if torch.cuda.device_count() and not options.cpu else "cpu"
    take_dtype(options, options.checkpoint, device, "posnet-translate")
    if device == "cuda" and options.processes > torch.cuda.device_count():
        raise UsageError(
            f"--processes {options.processes}: there are {torch.cuda.device_count()} GPUs. Give at most that, or --cpu."
        )
    work = Work(options, device)
    reader = work
    if device == "cuda" and options.processes > 1:  # this process translates nothing, with a model without weights
        reader = Work(argparse.Namespace(**vars(options) | {"dtype": "float32"}), "meta")
    translator = reader.load()
    assert reader.model is not None
    if options.output != "-":
        check_place(options.output, "--output", files_of_data(reader.model.folder))
    if recorded := unless_given(options, reader.model.recorded_search):
        print(f"posnet-translate: {recorded}, which the model records", file=sys.stderr)
    if options.stream:
        _translate_stream(work)
        return
    if options.prefix == "-" == options.input:
        raise UsageError("--prefix - and --input -: standard input can be one of them. Give a file for the other.")
    lines = read_text(options.input)
    if not options.pretokenized and PlainText(lines).is_segmented:
        print(
            "posnet-translate: the input has marks of subwords (@@ or ▁), and is split again. With --pretokenized it "
            "stays as it is",
            file=sys.stderr,
        )
    prefixes = read_text(options.prefix) if options.prefix else None
    batches = Batches(lines, translator, options.max_tokens, options.on_long, prefixes)
    translator.check(batches)
    for note in batches.notes:
        print(f"posnet-translate: {note}", file=sys.stderr)
    finished = None
    if beside is not None:
        packed = weights_are_packed() if work.measures_packing else None
        about = work_of(options, parser, reader.model.folder, device, packed, lines, prefixes)
        finished = FinishedBatches(beside, about, options.resume)
    speed = Speed()
    try:
        translations = _translate(work, batches, finished, speed)
        save_lines(options.output, _printed(translations, 0, options))
    except BaseException:
        if finished is not None:
            finished.close()
        raise
    if finished is not None:
        finished.remove()
    _say(speed, work)


def _say(speed: Speed, work: Work) -> None:
    """Print how fast it was, and with which weights."""
    if work.measures_packing:
        print(f"posnet-translate: {describe_packing()}", file=sys.stderr)
    print(f"posnet-translate: {speed}", file=sys.stderr)


def _translate(work: Work, batches: Batches, finished: FinishedBatches | None, speed: Speed) -> list[list[Translation]]:
    """The translations of all lines, in their order.

    Args:
        work: of a batch.
        batches: of the lines.
        finished: translations of the first batches; those of the others are added.
        speed: of the work, to which that of each batch is added.
    """
    done = [] if finished is None else finished.done
    sentences = sum(map(len, done))
    if done:
        print(f"posnet-translate: {sentences} of {batches.sentences} sentences were done before", file=sys.stderr)
    left = list(batches)[len(done) :]
    processes = min(work.options.processes, max(1, len(left)))
    with ProgressReporter().bar("translating", "sentences", batches.sentences) as bar:
        bar.go_on_from(sentences)

        def results() -> Iterator[list[list[Translation]]]:
            yield from done
            for found, worker, seconds in in_order(work, left, processes, "spawn", "Run again with fewer --processes."):
                if finished is not None:
                    finished.add(found)
                speed.add(found, worker, seconds)
                bar.advance(len(found))
                yield found

        return batches.in_order(results(), [BLANK])


def _translate_stream(work: Work) -> None:
    """Translate lines as they come."""
    options, speed = work.options, Speed()

    def translate(batch: Batch) -> list[list[Translation]]:
        found, worker, seconds = work(batch)
        speed.add(found, worker, seconds)
        return found

    lines, number = IncomingLines(options.input), 0
    with writer_to(options.output) as write:
        for found in as_they_come(lines, work.load(), translate, options.max_tokens, options.on_long):
            write(_printed(found, number, options))
            number += len(found)
    _say(speed, work)


def _printed(translations: Sequence[Sequence[Translation]], first: int, options: argparse.Namespace) -> list[str]:
    """The lines of output for lines of input, of which the first has the number `first`."""
    return [
        line
        for number, found in enumerate(translations, first)
        for line in lines_of(number, found, options.nbest, options.print_alignment)
    ]
