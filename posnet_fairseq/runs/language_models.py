"""Language models after the Translution paper (Fan et al., 2025, Table 7), trained on one text and compared."""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posnet_fairseq.runs import earlier_records
from posnet_fairseq.runs.command_stage import CommandStage, Work, do
from posnet_fairseq.runs.commands import USER_DIR, prepare
from posnet_fairseq.runs.comparison import Model
from posnet_fairseq.runs.devices import gpus
from posnet_fairseq.runs.evaluation import evaluating
from posnet_fairseq.runs.parsers import accepting, folder, one_of, several, whole_number
from posnet_fairseq.runs.run_settings import short
from posnet_fairseq.runs.settings import Settings, refuse, setting
from posnet_fairseq.runs.single_run import run_or_exit, say
from posnet_fairseq.runs.training import Training, best_validation, train, training_speed
from posnet_fairseq.shared.common_options import versions
from posnet_fairseq.shared.processes import cores
from posnet_fairseq.shared.progress import plain_console, plain_table, print_table
from posnet_fairseq.shared.records import Record
from posnet_fairseq.shared.user_dir import import_user_dir
from posnet_fairseq.text.card import CARD


@dataclass(frozen=True, kw_only=True)
class LanguageModelSettings(Settings):
    """Settings of language models."""

    text: Path | None = setting(
        "text file, whose end is held out for validation and test (default: English of the quickstart)",
        parse=accepting(os.path.isfile, "there is no such file. Check the path", folder),
        positional="?",
        metavar="TEXT",
    )
    mixers: tuple[str, ...] = setting(
        "mixers that may stand in a decoder (default: attention alpha_translution translution)",
        ("attention", "alpha_translution", "translution"),
        several(str),
    )
    size: str = setting("the paper's GPT-A, -B or -C: a, b or c", "a", one_of("a", "b", "c"))
    updates: int = setting("updates of each training", 200, whole_number)
    seed: int = setting("random seed (default: 1)", 1, whole_number)
    user_dir: Path | None = setting("folder with mixers of your own", parse=folder)


def check_mixers(names: Sequence[str], user_dir: Path | None = None) -> None:
    """Refuse mixers that make no language model."""
    if user_dir:
        import_user_dir(user_dir)
    from posnet_fairseq.registry import get_mixer
    from posnet_fairseq.transformer import model_options  # noqa: F401  (registers the mixers)

    for name in names:
        if "decoder" not in get_mixer(name, "--mixers").places:
            refuse("mixers", name, "it cannot stand in a decoder. Leave it out.")


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
    print_figures(settings.seed, runs)
    say(f"logs and checkpoints are in {Path('runs', data.name)}")


def _train_one(run: Path, data: Path, mixer: str, settings: LanguageModelSettings, device: list[str]) -> None:
    user_dir = ["--user-dir", str(settings.user_dir or short(USER_DIR))]
    # Blocks of 160 tokens, eight at a time, and clipping, weight decay and cosine schedule as in the paper's App. I.3.
    # Its learning rate is lost in the text: the one here suits the default text.
    blocks = "--task language_modeling --tokens-per-sample 160 --batch-size 8 --required-batch-size-multiple 1".split()
    updates = settings.updates
    arguments = [
        *(data, *user_dir, "--arch", f"gpt_{settings.size}_{mixer}", "--seed", settings.seed, *device),
        *(*blocks, "--criterion", "chunked_cross_entropy", "--distributed-world-size", 1),
        *("--optimizer", "fused_adam", "--adam-betas", "(0.9,0.95)", "--weight-decay", "0.05", "--clip-norm", "1.0"),
        *("--lr", "4e-3", "--lr-scheduler", "cosine", "--warmup-updates", updates // 6),
        *("--max-update", updates, "--save-dir", run / "checkpoints"),
        *("--save-interval-updates", -(-updates // 6), "--no-epoch-checkpoints"),
        *("--log-format", "json", "--log-interval", -(-updates // 30)),
    ]
    remedy = "Give --seed or --updates another value, or remove that folder."
    stage = CommandStage(run, "train", [], settings={"--updates": updates}, remedy=remedy, growing=("--updates",))
    train(stage, Training(["fairseq-train"], list(map(str, arguments))), 1, Work())
    best = run / "checkpoints" / "checkpoint_best.pt"
    command = evaluating([str(data), *user_dir, *blocks, "--gen-subset", "test", *device, "--path", str(best)])
    do(CommandStage(run, "eval", command, run / "eval.log", best))


def _prepared(text: Path | None) -> Path:
    """Return the folder of the binarized text, which is made if it is not there."""
    name = "quickstart.en"
    if text:
        digest = hashlib.sha256(text.read_bytes()).hexdigest()[:8]
        name = f"{re.sub(r'[^0-9A-Za-z._-]', '_', text.name)}-{digest}"  # fairseq splits paths at colons
    data = Path("data", f"lm.{name}")
    if (data / CARD).exists():
        return data
    say("preparing the data")
    data.parent.mkdir(exist_ok=True)
    if text:
        sets = ["--train", str(text)]
    else:
        source = Path("data", "quickstart.en-de")
        if not (source / CARD).exists():
            run_or_exit(prepare("quickstart.en-de", source))
        # Its sentences are sorted and do not belong together; in their order each would give the next one away.
        sets = [word for part in ("train", "valid", "test") for word in (f"--{part}", str(source / f"{part}.en"))]
        sets += ["--shuffle", "1", "--no-bytes"]  # as its published figures
    run_or_exit(prepare("text", data, *sets))
    return data


def figures(run: Path) -> tuple[str, str, str, str]:
    """Return texts of parameters, target tokens a second, the least validation perplexity and that of the test set."""
    log, (*_, attempt) = run / "train.log", Record(run / "eval.json").content["attempts"]
    parameters = Model.of(run / "checkpoints" / "checkpoint_best.pt").parameters
    test = attempt["result"]["perplexity"] if "result" in attempt else earlier_records.perplexity(run / "eval.log")
    speed = training_speed(log)
    shown_speed = "" if speed is None else f"{speed:,.0f}"
    return f"{parameters / 1e6:.2f}M", shown_speed, f"{best_validation(log)[0]:.1f}", f"{test:.1f}"


def print_figures(seed: int, runs: Sequence[Path]) -> None:
    """Print the figures of runs."""
    table = plain_table()
    table.add_column("", no_wrap=True)
    for column in ("params", "train\ntokens/s", "perplexity\nvalidation", "perplexity\ntest"):
        table.add_column(column, justify="right", no_wrap=True)
    for run in runs:
        table.add_row(run.name.rpartition("_s")[0], *figures(run))
    console = plain_console()
    print_table(table, console)
    console.print("Perplexity per sentencepiece piece, in blocks of 160 without context from the block before.")
    console.print(f"seed {seed}, {versions()}")
