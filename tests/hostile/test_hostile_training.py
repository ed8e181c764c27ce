"""fairseq-train with invalid options, trainings that fail, and posnet-average of what does not belong together."""

import shutil

import torch

from support.damaged import changed, put
from support.hostile import Row, play, table, then, write

MADE = ("trained", "trained/*")


def refused(options, says, before=lambda folder: None, makes=("trained",)):
    """A row whose options are refused before the first update, or whose training writes no checkpoint."""
    return Row(options, f"train {options}", says, before=before, makes=makes)


def trains(options):
    """A row with unusual but valid options."""
    return Row(options, f"train {options}", code=0, makes=MADE)


def begun(folder):
    """A training of 15 updates to resume."""
    shutil.copytree(folder / "run", folder / "trained")


ROWS = [
    # It diverges; fairseq keeps crash.pt.
    refused("--lr 1e30", "posnet: error: the training diverged", makes=MADE),
    # Half precision without a GPU.
    refused("--fp16", "--fp16: fairseq trains with it on a GPU, and --cpu was given"),
    # Nothing to train on.
    refused("--max-tokens 1", "a set has no batch. .*longer than --max-tokens"),
    refused("--required-batch-size-multiple 4096", "a set has no batch. .*give --required-batch-size-multiple 1"),
    refused("--skip-remainder-batch --update-freq 9", "an epoch has not a single update"),
    # Out of range.
    refused("--lr 0.1,-0.1", "--lr -0.1: give 0 or more"),
    refused("--lr 0.1,0.01", "--lr: give one value, from which --lr-scheduler inverse_sqrt makes its own"),
    refused("--adam-betas '(0.9,1)'", r"--adam-betas \(0.9,1\): give two numbers"),
    refused("--optimizer fused_adam --fp16-adam-stats", "--fp16-adam-stats: --optimizer fused_adam has no such state"),
    # What is not there.
    refused("--best-checkpoint-metric bleu", "--best-checkpoint-metric bleu: the validation does not measure it"),
    refused("--restore-file none.pt", "--restore-file none.pt: there is no such checkpoint"),
    refused("--distributed-world-size 2000", "this machine has .* GPUs", makes=()),
    # What was begun otherwise.
    refused(
        "--arch aposnet_tiny", "trained with --encoder-self-mixer rposnet .* but the options say aposnet", begun, ()
    ),
    refused("--encoder-embed-dim 32 --decoder-embed-dim 32", "the checkpoint does not fit the options", begun, ()),
    refused("--optimizer sgd", "made with another --criterion or --optimizer", begun, ()),
    refused(
        "--max-update 20",
        "made with other data or batches",
        then(begun, put("extra_state", "train_iterator", "iterations_in_epoch", 99, name="trained/checkpoint_last.pt")),
        (),
    ),
    # These are right.
    trains("--lr-scheduler cosine --warmup-updates 0"),
    trains("--restore-file run/checkpoint_1_5.pt --max-update 7"),
    trains("--finetune-from-model run/checkpoint_1_5.pt"),
    trains("--adam-betas '[0.9, 0.98]' --amp"),
]

TWO = "posnet-average run --num 2 --out out.pt"
FIRST, SECOND, THIRD = (f"run/checkpoint_{name}.pt" for name in ("1_5", "2_10", "3_15"))
BEST = "run/checkpoint_best.pt"
NAME = "encoder.positions.norm.bias"


def averaged(name, says, before):
    """A row of which the average is written."""
    return Row(name, TWO, f"(?s){says}", 0, before, ("out.pt",))


def rejects(name, says, before):
    return Row(name, TWO, says, before=before)


def filled(name, number, dtype=torch.float32):
    def change(state):
        state["model"][NAME] = torch.full_like(state["model"][NAME], number, dtype=dtype)

    return changed(change, name, name)


AVERAGES = [
    Row("a folder without checkpoints", "posnet-average text --num 2 --out out.pt", "text holds no numbered"),
    averaged("the best is damaged", r"\A(?!.*posnet-average:).*averaged into out.pt", write(BEST, b"PK")),
    # Several runs in one folder.
    rejects(
        "another direction",
        "checkpoint_3_15.pt was trained with the source language yy and .*checkpoint_2_10.pt with xx",
        then(put("cfg", "task", "source_lang", "yy"), put("cfg", "task", "target_lang", "xx")),
    ),
    averaged(
        "another seed",
        "averaged into out.pt.*2_10.pt was trained with --seed 1 and .*3_15.pt was trained with --seed 2: average",
        put("cfg", "common", "seed", 2),
    ),
    rejects("another option", "differ in the option dropout", put("cfg", "model", "dropout", 0.5)),
    rejects(
        "another metric",
        "checkpoint_1_5.pt was validated by ppl and .*checkpoint_3_15.pt by bleu",
        put("cfg", "checkpoint", "best_checkpoint_metric", "bleu"),
    ),
    rejects(
        "as many updates of another run",
        r"checkpoint_2_10.pt and .*checkpoint_4_10.pt both have 10 updates and different weights",
        changed(lambda state: state["optimizer_history"][-1].update(num_updates=10), THIRD, "run/checkpoint_4_10.pt"),
    ),
    # Weights.
    rejects("no numbers", f"checkpoint_3_15.pt: the weight {NAME} is infinite or NaN", filled(THIRD, torch.nan)),
    rejects(
        "too large a sum",
        f"the mean of .*: the weight {NAME} is infinite",
        then(*(filled(name, 1.7e308, torch.float64) for name in (FIRST, SECOND, THIRD))),
    ),
    # Damaged and invented files.
    rejects("a folder of that name", "is a directory", lambda folder: (folder / "run/checkpoint7.pt").mkdir()),
    rejects("no state", "does not say its intervals and its validation", put("extra_state", None)),
    rejects("a link to nowhere", "there is no such checkpoint", lambda f: (f / "run/checkpoint7.pt").symlink_to("no")),
]


@table(ROWS + AVERAGES)
def test_row(row, folder, monkeypatch, capfd):
    play(row, folder, monkeypatch, capfd)
