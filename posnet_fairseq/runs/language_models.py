"""Language models after the Translution paper (Fan et al., 2025, Table 7), trained on one text and compared."""

import hashlib
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from posnet_fairseq.runs.command_stage import CommandStage, do
from posnet_fairseq.runs.commands import USER_DIR, prepare
from posnet_fairseq.runs.console import say
from posnet_fairseq.runs.devices import gpus
from posnet_fairseq.runs.parsers import names, one_of, whole_number
from posnet_fairseq.runs.record import last_attempt, settings_of
from posnet_fairseq.runs.run import run_attached
from posnet_fairseq.runs.run_settings import folder, short
from posnet_fairseq.runs.settings import Settings, setting
from posnet_fairseq.runs.training import train
from posnet_fairseq.runs.training_log import best_validation, training_speed
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.processes import cores
from posnet_fairseq.shared.records import installed_versions
from posnet_fairseq.shared.user_dir import import_user_dir


def _text_file(text: str) -> Path:
    files = text.split("\0")
    if len(files) > 1:
        raise ValueError(f"{len(files)} files were given. Give one, or none for the default text.")
    path = Path(os.path.abspath(files[0]))
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file. Check the path.")
    return path


@dataclass(frozen=True, kw_only=True)
class LanguageModelSettings(Settings):
    """Settings of language models."""

    text: Path | None = setting(
        "text file, whose end is held out for validation and test (default: English of the quickstart)",
        parse=_text_file,
        positional="*",
        metavar="TEXT",
    )
    mixers: tuple[str, ...] = setting(
        "mixers that may stand in a decoder (default: attention alpha_translution translution)",
        ("attention", "alpha_translution", "translution"),
        names,
    )
    size: str = setting("the paper's GPT-A, -B or -C: a, b or c", "a", one_of("a", "b", "c"))
    updates: int = setting("updates of each training", 200, whole_number, metavar="N")
    seed: int = setting("of everything random", 1, whole_number, metavar="N")
    user_dir: Path | None = setting("folder that registers mixers of your own", parse=folder, metavar="FOLDER")


def check_mixers(names: tuple[str, ...], user_dir: Path | None = None) -> None:
    """Refuse mixers that make no language model."""
    if user_dir:
        import_user_dir(user_dir)
    from posnet_fairseq.registry import get_mixer
    from posnet_fairseq.transformer import model_options  # noqa: F401  (registers the mixers)

    logging.getLogger().setLevel(logging.WARNING)  # importing fairseq has lowered it
    if not names:
        raise UsageError("--mixers is empty. Name mixers between commas, such as attention,translution.")
    for name in names:
        if "decoder" not in get_mixer(name, "--mixers").places:
            raise UsageError(f"--mixers {name}: it cannot stand in a decoder. Leave it out.")


def train_language_models(settings: LanguageModelSettings) -> None:
    """Train, evaluate, and print perplexities side by side."""
    check_mixers(settings.mixers, settings.user_dir)
    os.environ.setdefault("OMP_NUM_THREADS", str(cores()))
    data = _prepared(settings.text)
    device = [] if gpus()[0] else ["--cpu"]
    runs = []
    for mixer in settings.mixers:
        run = Path("runs", data.name, f"gpt_{settings.size}_{mixer}_s{settings.seed}_u{settings.updates}")
        _train_one(run, data, mixer, settings, device)
        runs.append(run)
    print_table(settings.seed, runs)
    say(f"logs and checkpoints are in {Path('runs', data.name)}")


def _train_one(run: Path, data: Path, mixer: str, settings: LanguageModelSettings, device: list[str]) -> None:
    user_dir = ["--user-dir", str(settings.user_dir or short(USER_DIR))]
    places = {"RUN": run, "posnet_fairseq": USER_DIR, "USER_DIR": settings.user_dir or USER_DIR}
    # Blocks of 160 tokens, eight at a time, and clipping, weight decay and cosine schedule as in the paper's App. I.3.
    # Its learning rate is lost in the text: the one here suits the default text.
    blocks = "--task language_modeling --tokens-per-sample 160 --batch-size 8 --required-batch-size-multiple 1".split()
    updates = settings.updates
    arguments = [
        *(str(data), *user_dir, "--arch", f"gpt_{settings.size}_{mixer}", "--seed", str(settings.seed), *device),
        *(*blocks, "--criterion", "chunked_cross_entropy", "--distributed-world-size", "1"),
        *("--optimizer", "fused_adam", "--adam-betas", "(0.9,0.95)", "--weight-decay", "0.05", "--clip-norm", "1.0"),
        *("--lr", "4e-3", "--lr-scheduler", "cosine", "--warmup-updates", str(updates // 6)),
        *("--max-update", str(updates), "--save-dir", str(run / "checkpoints")),
        *("--save-interval-updates", str(-(-updates // 6)), "--no-epoch-checkpoints"),
        *("--log-format", "json", "--log-interval", str(-(-updates // 30))),
    ]
    remedy = "Give --seed or --updates another value, or remove that folder."
    train(run, ["fairseq-train"], arguments, 1, places=places, remedy=remedy)
    best = run / "checkpoints" / "checkpoint_best.pt"
    command = ["fairseq-eval-lm", str(data), *user_dir, *blocks, "--gen-subset", "test", *device, "--path", str(best)]
    do(CommandStage(run, "eval", command, settings=settings_of(command, places=places)))


def _prepared(text: Path | None) -> Path:
    """The folder of the binarized text, which is made if it is not there."""
    name = "quickstart.en"
    if text:
        digest = hashlib.sha256(text.read_bytes()).hexdigest()[:8]
        name = f"{re.sub(r'[^0-9A-Za-z._-]', '_', text.name)}-{digest}"  # fairseq splits paths at colons
    data = Path("data", f"lm.{name}")
    if (data / "dataset.json").exists():
        return data
    say("preparing the data")
    data.parent.mkdir(exist_ok=True)
    if text:
        sets = ["--train", str(text)]
    else:
        source = Path("data", "quickstart.en-de")
        if not (source / "dataset.json").exists():
            run_attached(prepare("quickstart.en-de", source))
        # Its sentences are sorted and do not belong together; in their order each would give the next one away.
        sets = [word for part in ("train", "valid", "test") for word in (f"--{part}", str(source / f"{part}.en"))]
        sets += ["--shuffle", "1"]
    run_attached(prepare("text", data, *sets))
    return data


def perplexities(run: Path) -> tuple[float, float]:
    """The perplexity of the validation set at its best, and of the test set by fairseq-eval-lm; per sentencepiece."""
    log = last_attempt(run / "eval.log")
    if "invalid sizes" in log:
        raise UsageError(f"{run / 'eval.log'}: fairseq-eval-lm left out blocks that are too long for the model.")
    test = re.search(r"Perplexity: ([\d.]+)", log) or _lacks(run / "eval.log", "the perplexity of the test set")
    return best_validation(run / "train.log")[0], float(test[1])


def parameters(run: Path) -> int:
    """The number of parameters, as fairseq-train counted them."""
    log = (run / "train.log").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"num\. shared model params: ([\d,]+)", log) or _lacks(run / "train.log", "the parameters")
    return int(found[1].replace(",", ""))


def _lacks(log: Path, what: str) -> NoReturn:
    raise UsageError(f"{log} lacks {what}: it may have been cut. Remove the folder of the run and run again.")


def print_table(seed: int, runs: Sequence[Path]) -> None:
    """Print the table."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold underline")
    table.add_column("", no_wrap=True)
    for column in ("params", "train\ntokens/s", "perplexity\nvalidation", "perplexity\ntest"):
        table.add_column(column, justify="right", no_wrap=True)
    for run in runs:
        valid, test = perplexities(run)
        speed = training_speed(run / "train.log") or _lacks(run / "train.log", "the speed")
        figures = f"{parameters(run) / 1e6:.2f}M", f"{speed:,.0f}", f"{valid:.1f}", f"{test:.1f}"
        table.add_row(run.name.split("_s")[0], *figures)
    console = Console(highlight=False)
    console.print(table)
    console.print("Perplexity per sentencepiece piece, in blocks of 160 without context from the block before.")
    packages = installed_versions("posnet", "ve-fairseq", "fairseq-fixed", "torch")
    console.print(f"seed {seed}, {', '.join(map(' '.join, packages.items()))}")
