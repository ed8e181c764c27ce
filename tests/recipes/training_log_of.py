"""What tests ask of the log of a training."""

from posnet_fairseq.training_log import records


def losses(log):
    """Validation losses by updates, those of an update that was done again once."""
    found = {values["valid_num_updates"]: values["valid_nll_loss"] for kind, values in records(log) if kind == "valid"}
    trained = {values["num_updates"]: values["nll_loss"] for kind, values in records(log) if kind == "train_inner"}
    return [*found.values(), *trained.values()]
