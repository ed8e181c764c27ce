"""Invented training logs, and values read from real ones."""

import json

from posnet_fairseq.runs.training import records


def training_log(updates=20, start=8.0, gpu=False, end="\n"):
    """A log of fairseq-train with a validation every 5 updates."""
    lines = ["x | INFO | fairseq.utils | rank   0: capabilities =  9.0 ; total memory = 80.000 GB ; name = X"] * gpu
    for number in range(1, updates + 1):
        loss = start - 5 * number / updates
        values = {"nll_loss": loss, "num_updates": number, "wps": 1000 + number, "lr": number / updates}
        values |= {"gb_free": 70 - number % 5} if gpu else {}
        lines.append(f"x | INFO | train_inner | {json.dumps(values)}")
        if number % 5 == 0:
            values = {"valid_nll_loss": loss + 0.2, "valid_ppl": 2 ** (loss + 0.2), "valid_num_updates": number}
            lines.append(f"x | INFO | valid | {json.dumps(values)}")
    return "\n".join(lines) + end


def losses(log):
    """The validation and the training losses; an update that was repeated after resuming counts once."""
    found = {values["valid_num_updates"]: values["valid_nll_loss"] for kind, values in records(log) if kind == "valid"}
    trained = {values["num_updates"]: values["nll_loss"] for kind, values in records(log) if kind == "train_inner"}
    return [*found.values(), *trained.values()]
