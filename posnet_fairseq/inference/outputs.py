"""What posnet-translate and posnet-generate read and write: the second text for each line, and checks of all paths."""

import argparse
import os

from posnet_fairseq.inference.model_folder import files_of_models
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.files import reading, refuse_half_characters
from posnet_fairseq.shared.finished_windows import check_output


def check_places(options: argparse.Namespace) -> None:
    """Refuse outputs that would overwrite what is read, and what does not go with --stream or --resume."""
    name, second, _ = second_input(options)
    read = {name: second, "--terms": options.terms, "--input": options.input}
    optional = (second, options.terms, options.sentencepiece_model, options.bpe_codes, options.shortlist)
    inputs = [options.input, *files_of_models(options.checkpoint), *filter(None, optional)]
    output = options.output
    is_stream = check_output(output, inputs, options.resume)
    problem = ""
    if len(from_stdin := [n for n, path in read.items() if path == "-"]) > 1:
        problem = f"{' - and '.join(from_stdin)} -: standard input can be one of them. Give a file for the other"
    elif options.stream and not is_stream:
        problem = (
            f"--output {output}: --stream writes to pipes, line by line. Leave it out, or redirect standard output"
        )
    elif options.stream and second:
        problem = f"{name} {second} with --stream: leave one of the two out"
    elif options.stream and options.processes not in (None, 1):
        problem = f"--processes {options.processes} with --stream: leave one of the two out"
    if problem:
        raise UsageError(f"{problem}.")
    for path in [options.input, *([second] if second else [])]:
        if path != "-":  # one that is not there is missed before the model is loaded
            with reading(path):
                os.stat(path)


def second_input(options: argparse.Namespace) -> tuple[str, str | None, str | None]:
    """Return the option that gives a second text for each line, its path, or the text of --prefix for all lines."""
    for name in ("score_translations", "constraints"):
        if path := getattr(options, name):
            return flag(name), path, None
    prefix = options.prefix
    is_text = prefix and prefix != "-" and "/" not in prefix and not os.path.lexists(prefix)
    if not is_text:
        return "--prefix", prefix, None
    refuse_half_characters("--prefix", prefix)
    return "--prefix", None, prefix
