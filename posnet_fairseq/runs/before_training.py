"""Checks and repairs before a training: its options are tried out, a run that was killed while it saved is made to
resume, and the disk must have room for its checkpoints.

    python -m posnet_fairseq.runs.before_training SAVE_DIR AVERAGE PROCESSES ARGUMENT ...
    python -m posnet_fairseq.runs.before_training --options ARGUMENT ...

prints a line with more arguments for fairseq-train, and remarks. With --options, its options are parsed only.
"""

import argparse
import contextlib
import io
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import posnet_fairseq
from posnet_fairseq.runs.beginning import check_beginning
from posnet_fairseq.runs.checkpoints_kept import most_kept
from posnet_fairseq.runs.repair import repair
from posnet_fairseq.runs.settings import recipe
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.criterions import fairseq_name
from posnet_fairseq.shared.errors import UsageError, flag, last_error
from posnet_fairseq.shared.progress import amount, shown

# Options that a run must leave as they are by default, and why.
FIXED: dict[str, dict[str, tuple[str, ...]]] = {
    "the best checkpoint on the validation set is averaged with those that follow": {
        "dataset": ("disable_validation", "validate_after_updates", "validate_interval", "valid_subset"),
        "checkpoint": ("maximize_best_checkpoint_metric",),
    },
    "a run ends after UPDATES, and goes on from its own last checkpoint": {
        "optimization": ("max_epoch", "stop_min_lr", "stop_time_hours"),
        "checkpoint": (
            *("restore_file", "no_last_checkpoints", "reset_dataloader", "reset_lr_scheduler", "reset_meters"),
            "reset_optimizer",
        ),
    },
    "the recipe itself removes the checkpoints that are no longer needed": {
        "checkpoint": (
            *("no_save", "keep_interval_updates", "keep_interval_updates_pattern", "keep_last_epochs"),
            *("keep_best_checkpoints", "checkpoint_suffix", "write_checkpoints_asynchronously"),
        ),
    },
}
BYTES = 12  # of a parameter in a checkpoint: itself and Adam's two moments, in float32


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options that fairseq-train makes of its arguments.

    Raises:
        UsageError: fairseq-train would refuse them.
    """
    from fairseq import options
    from fairseq.models import import_models

    # fairseq registers no architectures of a --user-dir that has been imported before.
    import_models(str(Path(posnet_fairseq.__file__).parent / "models"), "posnet_fairseq.models")
    complaints = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaints), contextlib.redirect_stdout(io.StringIO()):
            return options.parse_args_and_arch(options.get_training_parser(), input_args=list(arguments))
    except SystemExit as error:
        sentence = last_error(complaints.getvalue())
        if sentence.startswith("argument --arch"):
            sentence = f"{sentence.partition(' (choose')[0]} (posnet-mixers lists the mixers)"
        raise UsageError(f"fairseq-train: {sentence or 'its options were not understood'}.") from error


def build(arguments: Sequence[str]) -> tuple[torch.nn.Module, Any]:
    """The model, on the meta device, and the configuration that fairseq-train makes of its arguments.

    Raises:
        UsageError: fairseq-train would refuse them.
    """
    from fairseq import tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    cfg = convert_namespace_to_omegaconf(parse(arguments))
    task = tasks.setup_task(cfg.task)
    with torch.device("meta"):
        return task.build_model(cfg.model), cfg


def refuse_other_endings(cfg: Any) -> None:
    """Refuse options that would end a run elsewhere, or leave it without the checkpoints that are averaged.

    Args:
        cfg: fairseq's whole configuration.

    Raises:
        UsageError: there is one.
    """
    from fairseq.dataclass.configs import FairseqConfig

    defaults = FairseqConfig()
    for reason, sections in FIXED.items():
        for section, names in sections.items():
            for name in names:
                if getattr(cfg[section], name) != getattr(getattr(defaults, section), name):
                    raise UsageError(f"{_options()} with {flag(name)}: in a recipe, {reason}. Leave it out.")
    metric = cfg.checkpoint.best_checkpoint_metric
    # Without label smoothing the loss orders checkpoints as the perplexity does, by which checkpoints_kept keeps them.
    without_smoothing = fairseq_name(cfg.criterion._name) == "cross_entropy"
    if metric != "ppl" and not (metric == "loss" and without_smoothing):
        raise UsageError(
            f"{_options()} with --best-checkpoint-metric {metric}: in a recipe, the best checkpoint is that of the "
            "lowest perplexity (ppl). Leave it out."
        )


def _options() -> str:
    return "OPTIONS" if recipe() else "--options"


def resumed(folder: Path) -> dict[str, Any] | None:
    """fairseq's configuration in the checkpoint that a training goes on from, None if there is none."""
    from posnet_fairseq.inference.checkpoints import read_checkpoint

    last = folder / "checkpoint_last.pt"
    return read_checkpoint(last)["cfg"] if last.exists() else None


def refuse_other_schedule(before: Mapping[str, Any], cfg: Any) -> None:
    """Refuse to lengthen a training whose learning rates depend on its length: they would jump.

    Args:
        before: configuration of the checkpoint that the training goes on from.
        cfg: fairseq's whole configuration.

    Raises:
        UsageError: the schedule is another one.
    """
    from omegaconf import OmegaConf

    earlier, length = before["optimization"]["max_update"], cfg.optimization.max_update
    if earlier != length and before["lr_scheduler"] != OmegaConf.to_container(cfg.lr_scheduler, resolve=True):
        updates = f"UPDATES={length}" if recipe() else f"--updates {length}"
        name = "another NAME" if recipe() else "another --name"
        raise UsageError(
            f"{updates}: the training was begun with {earlier}, and the learning rates of --lr-scheduler "
            f"{cfg.lr_scheduler._name} depend on that number. Train anew, under {name}."
        )


def other_batches(cfg: Mapping[str, Any], processes: int, tokens: int) -> bool:
    """Whether a checkpoint counted batches of another size, or of another number of processes.

    fairseq remembers how many batches of the epoch each process has had: it would skip other batches, or fail.

    Args:
        cfg: configuration of the checkpoint.
        processes: number of processes now.
        tokens: of a batch now, at most.
    """
    before = cfg["distributed_training"]["distributed_world_size"], cfg["dataset"]["max_tokens"]
    return before != (processes, tokens)


def check_disk(folder: Path, parameters: int, checkpoints: int, others: Sequence[Path] = ()) -> None:
    """Refuse a training whose checkpoints would not fit on the disk.

    Args:
        folder: of the checkpoints.
        parameters: number of them in the model.
        checkpoints: most checkpoints that are there at a time.
        others: folders of checkpoints of runs whose training has not ended, which are taken to need equal room.

    Raises:
        UsageError: the disk has less room.
    """
    size, folders = BYTES * parameters, [folder, *others]
    here = sum(path.stat().st_size for each in folders for path in each.glob("*.pt"))
    need, free = size * checkpoints * len(folders) - here, shutil.disk_usage(folder).free
    if need > free:
        runs = f"{len(folders)} runs, each with " if others else ""
        raise UsageError(
            f"{shown(folder)} may need {amount(need, 'bytes')} more ({runs}{checkpoints} checkpoints of "
            f"{amount(size, 'bytes')}), and its disk has {amount(free, 'bytes')} left. Make room, choose another disk "
            f"by {'RUNS=FOLDER' if recipe() else '--runs FOLDER'}, or keep less (a smaller "
            f"{'AVERAGE' if recipe() else '--average'})."
        )


def parameters(model: torch.nn.Module) -> int:
    """The number of parameters; a shared one counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """Check the training, and repair what a killed one left."""
    from posnet_fairseq.fairseq_plugin.training_options import check_training_options

    first, *rest = sys.argv[1:] if arguments is None else arguments
    if first == "--options":
        parse(rest)
        return
    folder, (average, processes, *training) = Path(first), rest
    model, cfg = build(training)
    refuse_other_endings(cfg)
    check_training_options(cfg)
    size = parameters(model)
    folder.mkdir(parents=True, exist_ok=True)
    remark = repair(folder)
    before = resumed(folder)
    if before:
        refuse_other_schedule(before, cfg)
    elif cfg.checkpoint.finetune_from_model:
        check_beginning(Path(cfg.checkpoint.finetune_from_model), model, cfg)
    if before and other_batches(before, int(processes), cfg.dataset.max_tokens):
        print("--reset-dataloader")
        print(f"{shown(folder)}: other batches than before, so the data begin again with the first epoch's.")
    else:
        print()
    print(remark)
    numbered = cfg.optimization.max_update // cfg.checkpoint.save_interval_updates
    others = [Path(run, "checkpoints") for run in os.environ.get("POSNET_OTHER_RUNS", "").split(":") if run]
    check_disk(folder, size, most_kept(int(average), numbered), others)


if __name__ == "__main__":
    main()
