"""Sentences for failures that fairseq and torch report with a traceback, also in fairseq's own commands."""

import errno
import logging
import os
import pickle
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from posnet_fairseq.shared.errors import UsageError, unreadable, visible
from posnet_fairseq.shared.results import leave_result

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

# How to install the versions of fairseq that setup.py names: a wheel, or elsewhere the source, without compiling it.
FAIRSEQ_WHEEL = "pip install ve-fairseq==0.12.3"
FAIRSEQ_SOURCE = "READTHEDOCS=1 pip install --no-build-isolation fairseq-fixed==0.12.3.1"
NO_FAIRSEQ = (
    f"this needs fairseq, which is not installed. On x86-64 with Python 3.11 or 3.12: {FAIRSEQ_WHEEL}. Elsewhere: "
    f"{FAIRSEQ_SOURCE}, which compiles nothing, or pip install -e '.[train]' in the posnet folder, which compiles it."
)


def how_to_install(extra: str) -> str:
    """Return the sentence that says how to install an extra of posnet's package, such as "comet", for this Python."""
    return f"Run {shlex.quote(sys.executable)} -m pip install -e '.[{extra}]' in the posnet folder."


# What to do about a damaged checkpoint.
REPLACE = "Copy it again or take another one. If averaged.pt or precomputed.pt is removed, posnet-run makes it again."

_NO_MEMORY = r"(CUDA out of memory|[Cc]an(?:no|')t allocate memory|not enough memory|unable to mmap)"

# Texts of errors that fairseq and others raise, as regular expressions, and the sentences shown instead.
_FAIRSEQ = {
    r"Could not infer language pair": (
        "there is no binarized data in the data directory (fairseq found no dictionary or no train.SRC-TGT files). "
        "Check the path, or make the data with fairseq-preprocess."
    ),
    r"Size of sample #(?P<sample>\d+) is invalid \(=(?P<size>.*?)\) since max_positions=(?P<limit>.*?), skip": (
        "sentence {sample} (counted from 0) has {size} tokens, the limit is {limit}. Shorten it, or leave such "
        "sentences out with --skip-invalid-size-inputs-valid-test (no translation is written for them)."
    ),
    r"Source and target must contain the same number of examples": (
        "the two sides of the binarized data have different numbers of sentences. Make both text files equally long, "
        "line by line, and binarize them again."
    ),
    r"could not parse ModelProto from (?P<path>.*)": (
        "{path} is damaged or no sentencepiece model. Copy it again, or give the file that the training data was made "
        "with."
    ),
    r"No usable temporary directory found in \[(?P<folders>.*)\]": (
        "no folder for temporary files can be written, of {folders}. Make room there, or give another one by the "
        "variable TMPDIR."
    ),
    r"CUDA out of memory": (
        "the GPU has too little memory for this. Give a smaller --max-tokens, --batch-size or --beam, or shorter "
        "sentences; in training a larger --update-freq makes up for smaller batches. posnet-score keeps what it has "
        "computed, and goes on with --device cpu."
    ),
    _NO_MEMORY: "there is not enough memory for this. Give smaller sizes, lengths or batches.",
    r"gradients are Nan/Inf|Minimum loss scale reached|gradients are inconsistent between workers[^$]*= (nan|inf)": (
        "the training diverged: its gradients are infinite or NaN. Train with a lower --lr, a longer "
        "--warmup-updates or --clip-norm 1, from the beginning or from an earlier checkpoint (--restore-file)."
    ),
    r"The dataset is empty\. This could indicate": (
        "a set has no batch. Either it has fewer sentences or blocks than --required-batch-size-multiple (default 8), "
        "which fairseq leaves out: give --required-batch-size-multiple 1. Or each is longer than --max-tokens, "
        "--max-source-positions or --max-target-positions: raise these limits."
    ),
    r"world size is (?P<asked>\d+) but have (?P<there>\d+) available devices": (
        "--distributed-world-size {asked}: number of GPUs of this machine: {there}. Give at most that; processes on "
        "CPUs are started by torchrun, as posnet-run does with --cpus 2."
    ),
    r"Cannot use a fixed learning rate schedule with (?P<name>\w+)": (
        "--lr: give one value, from which --lr-scheduler {name} makes its own."
    ),
    r"(?:Criterion|Optimizer) does not match; please reset": (
        "the checkpoint that the training would go on from was made with another --criterion or --optimizer. Give the "
        "same, or another --save-dir to begin a new training, or --reset-optimizer to go on without its state."
    ),
    r"loaded state dict (has a different number|contains a parameter group that doesn't match the size)": (
        "the checkpoint that the training would go on from has the state of other trained weights. Give the same "
        "--freeze, or another --save-dir to begin a new training, or --reset-optimizer to go on without that state."
    ),
    r"Cannot resume training due to dataloader mismatch": (
        "the checkpoint that the training would go on from was made with other data or batches: an epoch had more of "
        "them. Give the same, or --reset-dataloader to begin with the first epoch's data."
    ),
    r"cannot access local variable 'valid_losses'": (
        "an epoch has not a single update: --skip-remainder-batch leaves out what does not fill --update-freq batches. "
        "Leave it out, or give a smaller --update-freq or --max-tokens."
    ),
}


def explain(error: BaseException) -> str | None:
    """Return one sentence for ``error``, or None if it is no known failure and its traceback should be shown."""
    causes = [*_causes(error)]
    # fairseq wraps errors in others ("Cannot load model parameters ..."), whose texts do not help.
    usage = next((cause for cause in causes if isinstance(cause, UsageError)), None)
    if usage is not None:
        return str(usage)
    # While fairseq looks for the cause of a NaN, it may fail itself.
    said = next((cause for cause in causes if isinstance(cause, FloatingPointError)), error)
    text = "not enough memory" if isinstance(error, MemoryError) else str(said)
    text = re.sub(r"np\.int\d+\((\d+)\)", r"\1", text)  # the form of numbers in numpy 2
    for pattern, sentence in _FAIRSEQ.items():
        match = re.search(pattern, text)
        if match:
            return sentence.format(**match.groupdict())
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return f"the disk is full{f' ({error.filename})' if error.filename else ''}. Make room, and run it again."
    if isinstance(error, FileNotFoundError) and error.filename is None and not _has_working_directory():
        return "the working directory no longer exists. Change to another one."
    if isinstance(error, OSError) and error.strerror and error.filename:
        return str(unreadable(error.filename, error))
    frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, KeyError) and frames[-1:] in (["validate"], ["get_valid_stats"]):
        return (
            f"--best-checkpoint-metric {error.args[0]}: the validation does not measure it. Choose loss, nll_loss or "
            "ppl, or bleu with --eval-bleu."
        )
    if isinstance(error, ModuleNotFoundError) and error.name in ("fairseq", "fairseq_cli"):
        return NO_FAIRSEQ
    if isinstance(error, ImportError):
        return None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name in _READERS and "/fairseq/" in frame.f_code.co_filename:
            argument, explain_file = _READERS[frame.f_code.co_name]
            if isinstance(path := frame.f_locals.get(argument), str):
                return explain_file(error, path)
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield ``error``, its cause or context, the cause of that, and so on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__


def _has_working_directory() -> bool:
    try:
        return bool(os.getcwd())
    except FileNotFoundError:
        return False


def explain_damaged_dictionary(error: BaseException | str, path: str | Path) -> str:
    """Return one sentence for an error of fairseq's ``Dictionary.load`` on ``path``."""
    return (
        f"{path} is no dictionary as fairseq-preprocess writes it ({_first_line(error)}). Copy it again, or binarize "
        "the text again."
    )


def explain_damaged_codes(error: BaseException | str, path: str | Path) -> str:
    """Return one sentence for an error of subword-nmt's ``BPE`` on the codes at ``path``."""
    return (
        f"{path} holds no BPE codes as subword-nmt and posnet-prepare write them ({_first_line(error)}). Copy it "
        "again, or give the file that the training data was made with."
    )


def _first_line(error: BaseException | str) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:120].rstrip(". ")


def explain_unreadable(error: BaseException, path: str | Path) -> str | None:
    """Return one sentence for an error in loading the checkpoint at ``path``, or None if the file is not the cause.

    torch's own text is not shown: it advises to turn off the check that keeps code in files from running.
    """
    text = str(error)
    unsafe = re.search(r"GLOBAL (\S+)", text)
    if isinstance(error, pickle.UnpicklingError) and unsafe:
        return (
            f"{path} was refused: it holds objects that could run code when loaded ({unsafe.group(1)}), which no "
            "posnet or fairseq checkpoint needs. Do not use this file; ask where it comes from for the plain weights."
        )
    # In a damaged file torch seeks beyond the end, which raises an OSError with EINVAL.
    if isinstance(error, OSError) and error.errno != errno.EINVAL:
        return None
    if isinstance(error, ImportError | MemoryError) or re.search(_NO_MEMORY, text):
        return None
    # Any other error may be caused by bytes that begin like a pickle, an archive or an old format.
    return f"{path} is damaged or no checkpoint (it may be cut short). {REPLACE}"


def install_hook() -> None:
    """Make fairseq's commands end with a sentence and exit code 2 on an uncaught error that has a sentence.

    Other errors, and other programs, keep their tracebacks.
    """
    program = Path(sys.argv[0])
    if not (program.name.startswith("fairseq-") or program.parent.name == "fairseq_cli"):
        return
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        sentence = explain(error)
        if sentence is None:
            previous(kind, error, traceback)
            return
        print(f"posnet: error: {visible(sentence)}", file=sys.stderr)
        if any(isinstance(cause, FloatingPointError) for cause in _causes(error)):
            leave_result(diverged=True)
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(2)  # an ordinary exit would be aborted by threads that still load data

    sys.excepthook = hook


# Functions of fairseq that read a file: the argument with its path, and what explains an error in them.
_READERS: dict[str, tuple[str, Callable[[BaseException, str], str | None]]] = {
    "load_checkpoint_to_cpu": ("path", explain_unreadable),
    "add_from_file": ("f", explain_damaged_dictionary),
}
