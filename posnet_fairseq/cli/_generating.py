"""The work of posnet-generate: beginnings of texts continued batch by batch."""

import argparse
import sys
import time
from collections.abc import Iterator

import torch

from posnet_fairseq.cli._search import lines_of, settings_of, take_dtype
from posnet_fairseq.cli._text import files_of_data, files_of_models, text_options
from posnet_fairseq.generation import TextModel
from posnet_fairseq.inference.translator import BLANK, Batches, Translation
from posnet_fairseq.shared.files import check_place, check_stdout, save_lines
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.text.plain import read_text


@torch.inference_mode()
def generate(options: argparse.Namespace) -> None:
    """Continue texts as the options of posnet-generate say.

    Raises:
        UsageError: the model, a text or an option cannot be used.
    """
    if options.output == "-":
        check_stdout()
    else:
        optional = filter(None, (options.sentencepiece_model, options.bpe_codes))
        check_place(options.output, "--output", [options.input, *files_of_models([options.checkpoint]), *optional])
    device = "cuda" if torch.cuda.device_count() and not options.cpu else "cpu"
    take_dtype(options, [options.checkpoint], device, "posnet-generate")
    how, text = (device, options.dtype, options.fast), text_options(options)
    model = TextModel(options.checkpoint, options.data, *how, **text, compile=options.compile)
    generator = model.generator(settings_of(options), 1 if options.nbest is None else options.nbest)
    if options.output != "-":
        check_place(options.output, "--output", files_of_data(model.folder))

    batches = Batches(read_text(options.input), generator, options.max_tokens)
    generator.check(batches)
    start, tokens = time.perf_counter(), 0
    with ProgressReporter().bar("generating", "texts", batches.sentences) as bar:

        def results() -> Iterator[list[list[Translation]]]:
            nonlocal tokens
            for batch in batches:
                found = generator.translate(batch)
                tokens += sum(len(best.tokens) - len(best.source_tokens) for best, *_ in found)
                bar.advance(len(found))
                yield found

        texts = batches.in_order(results(), [BLANK])
    seconds = time.perf_counter() - start
    printed = [line for number, found in enumerate(texts) for line in lines_of(number, found, options.nbest, False)]
    save_lines(options.output, printed)
    rate = f", {tokens / seconds:.1f} new tokens a second" if texts else ""
    print(f"posnet-generate: {len(texts)} texts in {seconds:.1f} s{rate}", file=sys.stderr)
