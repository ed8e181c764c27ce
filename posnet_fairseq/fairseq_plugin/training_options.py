"""Checks of options of fairseq-train that fairseq would refuse late, end with a traceback or silently misread."""

import ast
import logging
from collections.abc import Iterator
from numbers import Real
from typing import Any

import torch
from fairseq.file_io import PathManager

from posnet_fairseq.ops.linear import SLOW_BF16, multiplies_bf16
from posnet_fairseq.shared.criterions import PREFIX
from posnet_fairseq.shared.errors import UsageError, counted, flag
from posnet_fairseq.shared.processes import cores
from posnet_fairseq.transformer.compiling import check_compiler

# The least sensible values of options that fairseq does not check; of each value in lists such as --lr 0.1,0.01.
_LEAST: dict[str, dict[str, int]] = {
    "common": {"log_interval": 1},
    "dataset": {"num_workers": 0, "required_batch_size_multiple": 1, "validate_interval": 1, "max_valid_steps": 1}
    | dict.fromkeys(("max_tokens", "max_tokens_valid", "batch_size", "batch_size_valid"), 1),  # 0: without a limit
    "optimization": {"lr": 0, "max_epoch": 0, "max_update": 0, "update_freq": 1},
    "checkpoint": {"save_interval": 1},
    "lr_scheduler": {"warmup_updates": 0},
}
_WORKERS = 16  # of --num-workers that machines with fewer cores may have, too


def check_training_options(cfg: Any) -> None:
    """Check the options in fairseq's complete configuration of a training."""
    for problem in _problems(cfg):
        raise UsageError(f"{problem}.")
    is_on_gpu = _is_on_gpu(cfg.common)
    if cfg.common.bf16 and not is_on_gpu and not multiplies_bf16():
        logging.getLogger(__name__).warning(f"--bf16: {SLOW_BF16}")
    if getattr(cfg.model, "compile", False):
        check_compiler("cuda" if is_on_gpu else "cpu")


def _problems(cfg: Any) -> Iterator[str]:
    """Yield what is wrong with the options."""
    optimizer, scheduler = (str(getattr(section, "_name", None)) for section in (cfg.optimizer, cfg.lr_scheduler))
    for section, options in _LEAST.items():
        for name, least in options.items():
            value = getattr(cfg[section], name, None)
            least = 1 if name == "warmup_updates" and scheduler == "inverse_sqrt" else least
            for each in [value] if value is None or isinstance(value, Real) else value:
                if isinstance(each, Real) and not float(each) >= least:
                    yield f"{flag(name)} {each}: give {least} or more"
    workers = max(_WORKERS, cores())
    if cfg.dataset.num_workers > workers:
        yield (
            f"--num-workers {cfg.dataset.num_workers}: give at most {workers}: each is a process, and this machine has "
            f"{counted(cores(), 'core')}"
        )
    yield from _problems_of_precision(cfg.common)
    path, other = cfg.checkpoint.restore_file, cfg.checkpoint.finetune_from_model
    if path != "checkpoint_last.pt" and not cfg.checkpoint.checkpoint_suffix and not PathManager.isfile(path):
        yield f"--restore-file {path}: there is no such checkpoint. Check the path"
    if other and PathManager.exists(other) and not PathManager.isfile(other):  # fairseq would begin without weights
        yield f"--finetune-from-model {other} is a directory. Give a checkpoint in it"
    betas = getattr(cfg.optimizer, "adam_betas", None)
    if optimizer in ("adam", "fused_adam") and not _are_betas(betas):
        yield f"--adam-betas {betas}: give two numbers of 0 or more and less than 1, such as '(0.9,0.98)'"
    if optimizer == "fused_adam" and cfg.optimizer.fp16_adam_stats:
        yield "--fp16-adam-stats: --optimizer fused_adam has no such state. Leave it out, or give adam"
    name, distributed = str(getattr(cfg.criterion, "_name", None)), cfg.distributed_training
    tied = ("share_all_embeddings", "share_decoder_input_output_embed")
    if (
        name.startswith(PREFIX)
        and distributed.distributed_world_size > 1
        and distributed.ddp_backend in ("pytorch_ddp", "c10d")
        and distributed.find_unused_parameters
        and not any(getattr(cfg.model, each, False) for each in tied)
    ):
        # torch's wrapper of models takes the output layer for unused, as chunks read it outside of it.
        yield (
            f"--criterion {name}: an output layer that is not an embedding too cannot be trained in chunks with "
            f"--ddp-backend {distributed.ddp_backend} --find-unused-parameters. Give --ddp-backend legacy_ddp, or the "
            "criterion without the prefix"
        )
    plain = name.removesuffix("_with_alignment")
    if plain != name and hasattr(cfg.model, "decoder_self_mixer"):
        yield f"--criterion {name}: the models of posnet give no alignments in training. Give {plain}"
    for name in ("checkpoint_activations", "offload_activations"):
        if getattr(cfg.model, "compile", False) and getattr(cfg.model, name, False):
            yield f"--compile with {flag(name)}: torch compiles no such layers. Leave out one of them"
    smoothing = getattr(cfg.criterion, "label_smoothing", None) or 0
    if not 0 <= smoothing < 1:
        yield f"--label-smoothing {smoothing}: give 0 or more and less than 1"


def _problems_of_precision(common: Any) -> Iterator[str]:
    is_on_gpu = _is_on_gpu(common)
    for name in ("fp16", "amp"):
        if getattr(common, name) and not is_on_gpu:
            where = "--cpu was given" if common.cpu else "there is none"
            yield f"--{name}: fairseq trains with it on a GPU, and {where}. Leave it out"
    if common.bf16 and is_on_gpu and not torch.cuda.is_bf16_supported(including_emulation=False):
        yield (
            f"--bf16: {torch.cuda.get_device_name()} does not multiply in bf16, which takes compute capability 8.0. "
            "Give --fp16 instead"
        )


def _is_on_gpu(common: Any) -> bool:
    return torch.cuda.is_available() and not common.cpu


def _are_betas(betas: Any) -> bool:
    try:
        found = ast.literal_eval(betas) if isinstance(betas, str) else tuple(betas)
        return len(found) == 2 and all(0 <= beta < 1 for beta in found)
    except (SyntaxError, TypeError, ValueError):
        return False
