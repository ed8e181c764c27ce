"""Sentences for failures that fairseq and torch report with a traceback."""

import pickle
import re
import zipfile

from posnet_fairseq.errors import usage_error_in

_UNSAFE = "Weights only load failed"

# Text that fairseq raises, and what a user should read instead. {0} is the original's first line.
_FAIRSEQ = (
    (
        r"Could not infer language pair",
        "there is no binarised data in the data directory (fairseq found no dictionary or no train.SRC-TGT files). "
        "Check the path, or make the data with fairseq-preprocess.",
    ),
    (
        r"Dataset not found: (?P<split>\S+) \((?P<path>.*)\)",
        "{path} holds no binarised data for the subset {split!r}. Check the data directory and --gen-subset, "
        "or make the data with fairseq-preprocess.",
    ),
    (
        r"Size of sample #(?P<sample>\d+) is invalid \(=(?P<size>.*?)\) since max_positions=(?P<limit>.*?), skip",
        "sentence {sample} (counted from 0) has {size} tokens, the limit is {limit}. Shorten it, or leave such "
        "sentences out with --skip-invalid-size-inputs-valid-test (no translation is written for them).",
    ),
    (
        r"Model file not found: (?P<path>.*)",
        "{path}: there is no such checkpoint. Check the path.",
    ),
)


def explain(error):
    """One sentence for `error`, or None if its traceback is the best there is."""
    usage = usage_error_in(error)
    if usage is not None:
        return str(usage)
    text = str(error)
    for pattern, sentence in _FAIRSEQ:
        match = re.search(pattern, text)
        if match:
            return sentence.format(**match.groupdict())
    return explain_unreadable(error, "a checkpoint")


def explain_unreadable(error, path):
    """One sentence for what torch.load raised on `path`, or None if it is something else."""
    text = str(error)
    if isinstance(error, pickle.UnpicklingError) and _UNSAFE in text:
        named = re.search(r"GLOBAL (\S+)", text)
        what = f" ({named.group(1)})" if named else ""
        return (
            f"{path} was refused: it holds objects that could run code when loaded{what}, which no posnet or fairseq "
            "checkpoint needs. Do not use this file unless you trust its source; ask there for the plain weights."
        )
    if isinstance(error, EOFError | zipfile.BadZipFile | pickle.UnpicklingError) or (
        isinstance(error, RuntimeError) and re.search(r"PytorchStreamReader|archive|unexpected pos", text)
    ):
        return f"{path} is damaged or no checkpoint (it may be cut short). Copy it again or take another one."
    return None
