"""posnet-generate: beginnings of plain texts in, whole texts out, a line for a line."""

import argparse
import sys
import time
from collections.abc import Iterator

import torch

from posnet_fairseq.cli._search import add_model_options, add_search_options, lines_of, settings_of, take_dtype
from posnet_fairseq.cli._text import add_text_options, files_of_data, files_of_models, text_options
from posnet_fairseq.generation import BEAM, MAX_LEN_A, MAX_LEN_B, TextModel
from posnet_fairseq.inference.translator import BLANK, MAX_TOKENS, MAX_TOKENS_LIMITS, Batches, Translation
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.files import check_place, check_stdout, path_text, read_lines, save_lines
from posnet_fairseq.shared.numbers import check_numbers
from posnet_fairseq.shared.progress import ProgressReporter


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posnet-generate",
        description="Continue texts with a language model: the beginning of a text in, the whole text out, a line for "
        "a line, in the same order.",
    )
    parser.add_argument("checkpoint", type=path_text, help="language model to use")
    parser.add_argument("--input", type=path_text, default="-", help="file of beginnings (default: standard input)")
    parser.add_argument("--output", type=path_text, default="-", help="file to write (default: standard output)")
    add_text_options(parser)
    add_search_options(parser)
    parser.set_defaults(beam=BEAM, max_len_a=MAX_LEN_A, max_len_b=MAX_LEN_B)
    parser.add_argument(
        "--max-tokens", type=int, default=MAX_TOKENS, help=f"tokens of the texts in a batch (default: {MAX_TOKENS})"
    )
    add_model_options(parser)
    return parser


@command
@torch.inference_mode()
def main(arguments: list[str] | None = None) -> None:
    """Entry point of posnet-generate."""
    options = _parser().parse_args(arguments)
    settings = settings_of(options)
    settings.check()
    check_numbers(options, max_tokens=MAX_TOKENS_LIMITS)
    if options.output == "-":
        check_stdout()
    else:
        optional = filter(None, (options.sentencepiece_model, options.bpe_codes))
        check_place(options.output, "--output", [options.input, *files_of_models([options.checkpoint]), *optional])
    device = "cuda" if torch.cuda.device_count() and not options.cpu else "cpu"
    take_dtype(options, [options.checkpoint], device, "posnet-generate")
    how, text = (device, options.dtype, options.fast), text_options(options)
    model = TextModel(options.checkpoint, options.data, *how, **text, compile=options.compile)
    generator = model.generator(settings, 1 if options.nbest is None else options.nbest)
    if options.output != "-":
        check_place(options.output, "--output", files_of_data(model.folder))

    batches = Batches(read_lines(options.input), generator, options.max_tokens)
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
