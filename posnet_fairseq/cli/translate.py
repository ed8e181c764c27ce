"""posnet-translate: plain text in, plain text out, a line for a line."""

import argparse
import collections
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from posnet_fairseq.api import TranslationModel
from posnet_fairseq.cli._search import add_search_options, add_translation_options, lines_of, settings_of
from posnet_fairseq.cli._text import add_text_options, files_of_data, files_of_models, text_options
from posnet_fairseq.inference.precision import DTYPES, check_dtype
from posnet_fairseq.inference.translator import (
    BLANK,
    MAX_TOKENS,
    MAX_TOKENS_LIMITS,
    ON_LONG,
    Batch,
    Batches,
    Translation,
    Translator,
)
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_place, check_stdout, path_text, read_lines, save_lines
from posnet_fairseq.shared.numbers import check_numbers
from posnet_fairseq.shared.processes import in_order, worker_number


class Work:
    """Translates batches in this process, or in others, each of which loads the models again.

    Args:
        options: of the command line.
        device: type of the devices, ``cuda`` or ``cpu``.

    Attributes:
        model: None until it is loaded.
    """

    def __init__(self, options: argparse.Namespace, device: str) -> None:
        self._options, self._device = options, device
        self.model: TranslationModel | None = None
        self._translator: Translator | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Models do not travel to other processes."""
        return {**self.__dict__, "model": None, "_translator": None}

    @torch.inference_mode()
    def __call__(self, batch: Batch) -> tuple[list[list[Translation]], int, float]:
        """See :meth:`Translator.translate`; also the number of the process that did it, and its seconds."""
        if self._translator is None and "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(max(1, torch.get_num_threads() // self._options.processes))
        translator = self.load()
        start = time.perf_counter()
        found = translator.translate(batch)
        # What is printed does without the weights, each of which would reach another process as an open file.
        found = [[replace(each, attention=None) for each in translations] for translations in found]
        return found, worker_number(), time.perf_counter() - start

    def load(self) -> Translator:
        """The translator, on the device that is this process's own."""
        if self._translator is None:
            options = self._options
            device = f"cuda:{worker_number()}" if self._device == "cuda" else self._device
            text = text_options(options)
            self.model = TranslationModel(options.checkpoint, options.data, device, options.dtype, options.fast, **text)
            nbest = 1 if options.nbest is None else options.nbest
            self._translator = self.model.translator(settings_of(options), nbest, options.print_alignment)
        return self._translator


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posnet-translate", description="Translate plain text: a line in, a line out, in the same order."
    )
    parser.add_argument(
        "checkpoint", type=path_text, nargs="+", help="checkpoint or model folder; several make an ensemble"
    )
    parser.add_argument("--input", type=path_text, default="-", help="file to translate (default: standard input)")
    parser.add_argument("--output", type=path_text, default="-", help="file to write (default: standard output)")
    add_text_options(parser)
    add_search_options(parser)
    add_translation_options(parser)
    parser.add_argument(
        "--max-tokens", type=int, default=MAX_TOKENS, help=f"source tokens in a batch (default: {MAX_TOKENS})"
    )
    parser.add_argument(
        "--on-long",
        choices=ON_LONG,
        default="error",
        help="a line longer than the model takes stops the command before it translates anything (default), is cut, "
        "or is left empty",
    )
    parser.add_argument("--fast", action="store_true", help="store position-based energies first: posnet-precompute")
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default="float32",
        help="precision (default: float32). The others are faster where the hardware has them, and less exact; int8 is "
        "for CPUs",
    )
    parser.add_argument("--cpu", action="store_true", help="leave a GPU alone")
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        help="number of processes that share the work, each on a GPU of its own or on the CPU (default: 1). "
        "Translations do not depend on it",
    )
    return parser


@command
@torch.inference_mode()
def main(arguments: list[str] | None = None) -> None:
    """Entry point of posnet-translate."""
    options = _parser().parse_args(arguments)
    settings_of(options).check()
    check_numbers(options, max_tokens=MAX_TOKENS_LIMITS, processes=(1, 1_000))
    if options.output == "-":
        check_stdout()
    else:
        given = [options.input, options.prefix, options.sentencepiece_model, options.bpe_codes]
        given += files_of_models(options.checkpoint)
        check_place(options.output, "--output", [path for path in given if path])
    device = "cuda" if torch.cuda.device_count() and not options.cpu else "cpu"
    check_dtype(options.dtype, device)
    if device == "cuda" and options.processes > torch.cuda.device_count():
        raise UsageError(
            f"--processes {options.processes}: there are {torch.cuda.device_count()} GPUs. Give at most that, or --cpu."
        )
    work = Work(options, device)
    reader = work if options.processes == 1 else Work(options, "cpu")
    translator = reader.load()
    if options.output != "-" and reader.model:
        check_place(options.output, "--output", files_of_data(reader.model.folder))

    if options.prefix == "-" == options.input:
        raise UsageError("--prefix - and --input -: standard input can be one of them. Give a file for the other.")
    lines = read_lines(options.input)
    prefixes = read_lines(options.prefix) if options.prefix else None
    batches = Batches(lines, translator, options.max_tokens, options.on_long, prefixes)
    for note in batches.notes:
        print(f"posnet-translate: {note}", file=sys.stderr)
    tokens, busy = 0, collections.defaultdict[int, float](float)
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task_id = progress.add_task("translating", total=batches.sentences)

        def results() -> Iterator[list[list[Translation]]]:
            nonlocal tokens
            processes = min(options.processes, max(1, len(batches)))
            for found, worker, seconds in in_order(
                work, batches, processes, "spawn", "Run again with fewer --processes."
            ):
                busy[worker] += seconds
                tokens += sum(len(best.tokens) for best, *_ in found)
                progress.advance(task_id, len(found))
                yield found

        translations = batches.in_order(results(), [BLANK])
    printed = [
        line
        for number, found in enumerate(translations)
        for line in lines_of(number, found, options.nbest, options.print_alignment)
    ]
    save_lines(options.output, printed)
    # Without the seconds in which other processes start, which say nothing about the model.
    seconds = max(busy.values(), default=0.0)
    rate = (
        f", {batches.sentences / seconds:.1f} sentences and {tokens / seconds:.1f} tokens a second"
        if batches.sentences
        else ""
    )
    print(f"posnet-translate: {batches.sentences} sentences in {seconds:.1f} s{rate}", file=sys.stderr)
