"""posnet-average, used carelessly, and given what does not belong together."""

import torch

from support.damaged import changed, put, zeros
from support.hostile import Row, play, table, then, write

TWO = "posnet-average run --num 2 --out out.pt"
FIRST, SECOND, THIRD = (f"run/checkpoint_{name}.pt" for name in ("1_5", "2_10", "3_15"))
BEST = "run/checkpoint_best.pt"
NAME = "encoder.positions.norm.bias"


def averaged(name, says, before):
    """A row of which the average is written."""
    return Row(name, TWO, f"(?s){says}", 0, before, ("out.pt",))


def refused(name, says, before):
    return Row(name, TWO, says, before=before)


def filled(name, number, dtype=torch.float32):
    def change(state):
        state["model"][NAME] = torch.full_like(state["model"][NAME], number, dtype=dtype)

    return changed(change, name, name)


def add_averages(state):
    state["extra_state"]["ema"] = {name: tensor.to(torch.float8_e5m2) for name, tensor in state["model"].items()}


ROWS = [
    Row("a folder without checkpoints", "posnet-average text --num 2 --out out.pt", "text holds no numbered"),
    averaged("the best is damaged", r"\A(?!.*posnet-average:).*averaged into out.pt", write(BEST, b"PK")),
    # Several runs in one folder.
    refused(
        "another direction",
        "checkpoint_3_15.pt was trained with the source language yy and .*checkpoint_2_10.pt with xx",
        then(put("cfg", "task", "source_lang", "yy"), put("cfg", "task", "target_lang", "xx")),
    ),
    averaged(
        "another seed",
        "averaged into out.pt.*2_10.pt was trained with --seed 1 and .*3_15.pt was trained with --seed 2: average",
        put("cfg", "common", "seed", 2),
    ),
    refused("another option", "differ in the option dropout", put("cfg", "model", "dropout", 0.5)),
    refused(
        "another metric",
        "checkpoint_1_5.pt was validated by ppl and .*checkpoint_3_15.pt by bleu",
        put("cfg", "checkpoint", "best_checkpoint_metric", "bleu"),
    ),
    refused(
        "another run with the same number of updates",
        r"checkpoint_2_10.pt and .*checkpoint_4_10.pt both have 10 updates and different weights",
        changed(lambda state: state["optimizer_history"][-1].update(num_updates=10), THIRD, "run/checkpoint_4_10.pt"),
    ),
    # Weights.
    refused("no numbers", f"checkpoint_3_15.pt: the weight {NAME} is infinite or NaN", filled(THIRD, torch.nan)),
    refused(
        "too large a sum",
        f"the mean of .*: the weight {NAME} is infinite",
        then(*(filled(name, 1.7e308, torch.float64) for name in (FIRST, SECOND, THIRD))),
    ),
    # Damaged and invented files.
    refused(
        "zeros in one of them", "checkpoint_2_10.pt is damaged: its weight .* is not what was written", zeros(SECOND)
    ),
    refused(
        "moving averages of 8 bits",
        "checkpoint_3_15.pt: among its moving averages .*, the weight .* has numbers of the type torch.float8_e5m2;",
        changed(add_averages, THIRD, THIRD),
    ),
    refused("a folder of that name", "is a directory", lambda folder: (folder / "run/checkpoint7.pt").mkdir()),
    refused("no state", "does not say its intervals and its validation", put("extra_state", None)),
    refused("a link to nowhere", "there is no such checkpoint", lambda f: (f / "run/checkpoint7.pt").symlink_to("no")),
]


@table(ROWS)
def test_row(row, folder, monkeypatch, capfd):
    play(row, folder, monkeypatch, capfd)
