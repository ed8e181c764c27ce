"""Checks of options of fairseq-train that fairseq would refuse late, end with a traceback or silently misread."""

import ast
from numbers import Real
from typing import Any

import torch

from posnet_fairseq.shared.criterions import is_chunked
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.transformer.compiling import check_compiler

# The least sensible values of options that fairseq does not check; of each value in lists such as --lr 0.1,0.01.
_LEAST: dict[str, dict[str, int]] = {
    "common": {"log_interval": 1},
    "dataset": {"num_workers": 0, "required_batch_size_multiple": 1, "validate_interval": 1},
    "optimization": {"lr": 0, "max_epoch": 0, "max_update": 0, "update_freq": 1},
    "checkpoint": {"save_interval": 1},
    "lr_scheduler": {"warmup_updates": 0},
}


def check_training_options(cfg: Any) -> None:
    """Check the options in fairseq's complete configuration of a training."""
    for section, options in _LEAST.items():
        for name, least in options.items():
            _check_least(name, getattr(cfg[section], name, None), least)
    _check_precision(cfg.common)
    _check_restore_file(cfg.checkpoint)
    if getattr(cfg.lr_scheduler, "_name", None) == "inverse_sqrt":
        _check_least("warmup_updates", cfg.lr_scheduler.warmup_updates, 1)
    if getattr(cfg.optimizer, "_name", None) in ("adam", "fused_adam"):
        _check_betas(cfg.optimizer.adam_betas)
    if getattr(cfg.optimizer, "_name", None) == "fused_adam" and cfg.optimizer.fp16_adam_stats:
        raise UsageError("--fp16-adam-stats: --optimizer fused_adam has no such state. Leave it out, or give adam.")
    _check_chunked_loss(cfg)
    _check_compile(cfg)
    smoothing = getattr(cfg.criterion, "label_smoothing", None) or 0
    if not 0 <= smoothing < 1:
        raise UsageError(f"--label-smoothing {smoothing}: give 0 or more and less than 1.")


def _check_least(name: str, value: Any, least: int) -> None:
    values = [value] if value is None or isinstance(value, Real) else value
    for each in values:
        if isinstance(each, Real) and not float(each) >= least:
            raise UsageError(f"{flag(name)} {each}: give {least} or more.")


def _check_precision(common: Any) -> None:
    on_gpu = torch.cuda.is_available() and not common.cpu
    for name in ("fp16", "bf16"):
        if getattr(common, name) and not on_gpu:
            where = "--cpu was given" if common.cpu else "there is none"
            raise UsageError(f"--{name}: fairseq trains with it on a GPU, and {where}. Leave it out.")
    if common.bf16 and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise UsageError(
            f"--bf16: {torch.cuda.get_device_name()} does not multiply in bf16, which takes compute capability 8.0. "
            "Give --fp16 instead."
        )


def _check_chunked_loss(cfg: Any) -> None:
    """Refuse output layers that torch's wrapper of models takes for unused, as chunks read them outside of it."""
    name, distributed = str(getattr(cfg.criterion, "_name", None)), cfg.distributed_training
    tied = ("share_all_embeddings", "share_decoder_input_output_embed")
    if (
        is_chunked(name)
        and distributed.distributed_world_size > 1
        and distributed.ddp_backend in ("pytorch_ddp", "c10d")
        and distributed.find_unused_parameters
        and not any(getattr(cfg.model, each, False) for each in tied)
    ):
        raise UsageError(
            f"--criterion {name}: an output layer that is not an embedding too cannot be trained in chunks with "
            f"--ddp-backend {distributed.ddp_backend} --find-unused-parameters. Give --ddp-backend legacy_ddp, or the "
            "criterion without the prefix."
        )


def _check_compile(cfg: Any) -> None:
    if not getattr(cfg.model, "compile", False):
        return
    for name in ("checkpoint_activations", "offload_activations"):
        if getattr(cfg.model, name, False):
            raise UsageError(f"--compile with {flag(name)}: torch compiles no such layers. Leave out one of them.")
    check_compiler("cuda" if torch.cuda.is_available() and not cfg.common.cpu else "cpu")


def _check_restore_file(checkpoint: Any) -> None:
    from fairseq.file_io import PathManager

    path = checkpoint.restore_file
    if path != "checkpoint_last.pt" and not checkpoint.checkpoint_suffix and not PathManager.exists(path):
        raise UsageError(f"--restore-file {path}: there is no such checkpoint. Check the path.")


def _check_betas(betas: Any) -> None:
    try:
        found = ast.literal_eval(betas) if isinstance(betas, str) else tuple(betas)
        fine = len(found) == 2 and all(0 <= beta < 1 for beta in found)
    except (SyntaxError, TypeError, ValueError):
        fine = False
    if not fine:
        raise UsageError(f"--adam-betas {betas}: give two numbers of 0 or more and less than 1, such as '(0.9,0.98)'.")
