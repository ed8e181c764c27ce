"""posnet-translate: plain text in, plain text out, a line for a line."""

import argparse
import collections
import os
import sys
import time

import torch
from rich.console import Console
from rich.progress import Progress

from posnet_fairseq.cli._text import add_text_options, files_of_data, pipeline
from posnet_fairseq.fairseq_plugin.checkpoints import load_models
from posnet_fairseq.inference.precision import DTYPES, ready
from posnet_fairseq.inference.translator import Translator
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_place, check_stdout, is_blank, path_text, read_lines, save_lines
from posnet_fairseq.shared.numbers import check_numbers
from posnet_fairseq.shared.processes import in_order, worker_number

# The least and the most of each number. The rest would fill the memory, or overflow where lengths are raised to it.
LIMITS = {
    "beam": (1, 10_000),
    "lenpen": (-10, 10),
    "max_len_a": (0, 1_000_000),
    "max_len_b": (1, 1_000_000_000),
    "max_tokens": (1, 1_000_000_000),
    "processes": (1, 1_000),
}


class Work:
    """Translates batches, in this process or in others, each of which loads the models again.

    Args:
        options: of the command line.
        device: type of the devices, ``cuda`` or ``cpu``.
    """

    def __init__(self, options, device):
        self._options, self._device = options, device
        self.translator = self.folder = None

    def __getstate__(self):
        """Models do not travel to other processes."""
        return {**self.__dict__, "translator": None}

    @torch.inference_mode()
    def __call__(self, sources):
        """See :meth:`Translator.translate`; and which process did it, in how many seconds."""
        if self.translator is None:
            if "OMP_NUM_THREADS" not in os.environ:
                torch.set_num_threads(max(1, torch.get_num_threads() // self._options.processes))
            self.load()
        start = time.perf_counter()
        return *self.translator.translate(sources), worker_number(), time.perf_counter() - start

    def load(self):
        """Make the translator, on the device that is this process's own."""
        options = self._options
        device = torch.device(self._device, worker_number() if self._device == "cuda" else None)
        models, vocabulary, self.folder = load_models(options.checkpoint, options.data)
        words = len(vocabulary.target_dictionary)
        if options.beam >= words:
            raise UsageError(f"--beam {options.beam}: the target dictionary has {words} entries. Give less than that.")
        models = [ready(model, device, options.dtype, options.fast) for model in models]
        text = pipeline(options, vocabulary, self.folder)
        lengths = options.max_len_a, options.max_len_b
        self.translator = Translator(models, vocabulary, text, options.beam, options.lenpen, *lengths)


def batches_by_length(lengths, max_tokens):
    """Indices in batches of similar length, the longest first, none of more than `max_tokens` with padding."""
    batches, batch = [], []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > max_tokens:
            batches.append(batch)
            batch = []
        batch.append(index)
    return batches + [batch] if batch else batches


def fit_lengths(encoded, limit, on_long):
    """Deal with sentences of more tokens than the model takes.

    Args:
        encoded: list of (M,) token ids with the end symbol.
        limit: the most tokens a source may have.
        on_long: ``error``; ``truncate`` to the limit; ``skip``, which leaves the line empty.

    Returns:
        list of token ids, None for skipped lines; and a list of sentences to warn with.

    Raises:
        UsageError: with ``error``, if there is a long line.
    """
    fitted, notes = [], []
    for number, tokens in enumerate(encoded, start=1):
        if len(tokens) > limit:
            note = f"line {number} has {len(tokens)} tokens (its end symbol counted), the model takes {limit}"
            if on_long == "error":
                raise UsageError(f"{note}. Split it, or choose --on-long truncate or --on-long skip.")
            notes.append(f"{note}: {'cut' if on_long == 'truncate' else 'left empty'}.")
            tokens = torch.cat([tokens[: limit - 1], tokens[-1:]]) if on_long == "truncate" else None
        fitted.append(tokens)
    return fitted, notes


def _parser():
    parser = argparse.ArgumentParser(
        prog="posnet-translate", description="Translate plain text: a line in, a line out, in the same order."
    )
    parser.add_argument("checkpoint", type=path_text, nargs="+", help="model to use; several make an ensemble")
    parser.add_argument("--input", type=path_text, default="-", help="file to translate (default: standard input)")
    parser.add_argument("--output", type=path_text, default="-", help="file to write (default: standard output)")
    add_text_options(parser)
    parser.add_argument("--beam", type=int, default=12, help="default: 12")
    parser.add_argument("--lenpen", type=float, default=1.0, help="length penalty (default: 1)")
    parser.add_argument("--max-len-a", type=float, default=0.0, help="translations end at a·M + b tokens (default: 0)")
    parser.add_argument("--max-len-b", type=int, default=200, help="b of --max-len-a (default: 200)")
    parser.add_argument("--max-tokens", type=int, default=2000, help="source tokens in a batch (default: 2000)")
    parser.add_argument(
        "--on-long",
        choices=("error", "truncate", "skip"),
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
        help="share the work among so many: GPUs, one for each, or processes on the CPU (default: 1). The translations "
        "are the same",
    )
    return parser


@command
@torch.inference_mode()
def main(arguments=None):
    """Entry point of posnet-translate."""
    options = _parser().parse_args(arguments)
    check_numbers(options, **LIMITS)
    if options.output == "-":
        check_stdout()
    else:
        given = [options.input, *options.checkpoint, options.sentencepiece_model, options.bpe_codes]
        check_place(options.output, "--output", [path for path in given if path])
    device = "cuda" if torch.cuda.device_count() and not options.cpu else "cpu"
    if options.dtype == "int8" and device != "cpu":
        raise UsageError("--dtype int8: torch multiplies 8-bit numbers on CPUs only. Add --cpu, or choose bf16.")
    if device == "cuda" and options.processes > torch.cuda.device_count():
        raise UsageError(
            f"--processes {options.processes}: there are {torch.cuda.device_count()} GPUs. Give at most that, or --cpu."
        )
    work = Work(options, device)
    reader = work if options.processes == 1 else Work(options, "cpu")
    reader.load()
    translator = reader.translator
    if options.output != "-":
        check_place(options.output, "--output", files_of_data(reader.folder))

    lines = read_lines(options.input)
    encoded, notes = fit_lengths([translator.encode(line) for line in lines], translator.max_source, options.on_long)
    for note in notes:
        print(f"posnet-translate: {note}", file=sys.stderr)
    # A blank line has nothing to translate: it stays empty.
    chosen = [index for index, line in enumerate(lines) if not is_blank(line) and encoded[index] is not None]
    lengths = [len(encoded[index]) for index in chosen]
    batches = [[chosen[i] for i in batch] for batch in batches_by_length(lengths, options.max_tokens)]

    tokens, busy = 0, collections.Counter()
    translations = [""] * len(lines)
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task_id = progress.add_task("translating", total=len(chosen))
        sources = ([encoded[index] for index in batch] for batch in batches)
        processes = min(options.processes, max(1, len(batches)))
        results = in_order(work, sources, processes, "spawn", "Run again with fewer --processes.")
        for batch, (texts, count, worker, seconds) in zip(batches, results, strict=True):
            busy[worker] += seconds
            for index, text in zip(batch, texts, strict=True):
                translations[index] = text
            tokens += count
            progress.advance(task_id, len(batch))
    save_lines(options.output, translations)
    # Without the seconds in which other processes start, which say nothing about the model.
    seconds = max(busy.values(), default=0.0)
    rate = f", {len(chosen) / seconds:.1f} sentences and {tokens / seconds:.1f} tokens a second" if chosen else ""
    print(f"posnet-translate: {len(chosen)} sentences in {seconds:.1f} s{rate}", file=sys.stderr)
