"""Repairs of fairseq 0.12.3, each with the reason for it and the condition under which it can be removed.

Importing this module does all of them.
"""

import argparse
import dataclasses
import functools
import itertools
import logging
import math
import os
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy
import torch
from fairseq import checkpoint_utils, optim, options, tasks, utils
from fairseq.data import indexed_dataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.optim import composite
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer
from omegaconf import open_dict

from posnet_fairseq.fairseq_plugin.freezing import frozen
from posnet_fairseq.fairseq_plugin.training_options import check_training_options
from posnet_fairseq.inference.checkpoints import data_types
from posnet_fairseq.inference.weights import MIXERS
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.processes import end_orphan, has_semaphores
from posnet_fairseq.text.binary_format import lengths_and_type
from posnet_fairseq.text.dictionary import Dictionary, dictionary_file
from posnet_fairseq.text.pipeline import check_dictionary

logger = logging.getLogger(__name__)


def replaces(owner: Any, name: str) -> Callable[[Callable], Callable]:
    """Replace a function of a module or class of fairseq; the new one gets the original as first argument."""

    def replace(repaired: Callable) -> Callable:
        original = getattr(owner, name)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            return repaired(original, *args, **kwargs)

        setattr(owner, name, replacement)
        return replacement

    return replace


# fairseq writes these into checkpoints; torch's safe loader refuses all that is not registered.
torch.serialization.add_safe_globals(data_types())

# fairseq 0.12.3 uses ``numpy.compat.long`` for sentences of language models, and numpy 2 lacks it. Remove this when it
# uses ``int``.
if not hasattr(numpy, "compat"):
    vars(numpy)["compat"] = types.SimpleNamespace(long=int)


@replaces(indexed_dataset, "make_dataset")
def check_data_when_it_is_loaded(make: Callable, path: str, impl: str, *args: Any, **kwargs: Any) -> Any:
    """Refuse incomplete binarized text when it is loaded.

    fairseq 0.12.3 fails with a traceback at the first sentence that is missing, possibly hours into a training. Remove
    this when fairseq compares the index with the size of the data file.
    """
    if impl in ("cached", "lazy", "mmap") and indexed_dataset.IndexedDataset.exists(path):
        sizes, _ = lengths_and_type(path)
        if sizes is not None and impl != "mmap":
            raise UsageError(f"--dataset-impl {impl}: {path} was binarized as mmap. Leave the option out.")
        if sizes is not None and not len(sizes):
            raise UsageError(f"{path}.idx: this set has no sentences. Binarize a text that has some.")
    return make(path, impl, *args, **kwargs)


@replaces(tasks, "setup_task")
def refuse_dictionaries_of_other_data(setup: Callable, cfg: Any, **kwargs: Any) -> Any:
    """Refuse data whose dictionaries are not those that it was binarized with, before it is read.

    fairseq 0.12.3 takes the numbers of all directories of ``DATA:MORE`` for words of the first one's dictionaries.
    Remove this when fairseq compares the dictionaries.
    """
    task = setup(cfg, **kwargs)
    known = task.cfg or getattr(task, "args", None)  # of a legacy task, as language models have
    languages = [getattr(known, f"{side}_lang", None) for side in ("source", "target")]
    if all(languages):
        read = {languages[0]: task.source_dictionary, languages[1]: task.target_dictionary}
    else:  # a language model's, or a task without words
        read = {"": task.dictionary} if hasattr(task, "dictionary") else {}
    folders = [Path(folder) for folder in utils.split_paths(getattr(known, "data", None) or "") if folder]
    for folder, (language, dictionary) in itertools.product(folders, read.items()):
        check_dictionary(folder, language)
        path, first = (each / dictionary_file(language) for each in (folder, folders[0]))
        # A task may append symbols of its own.
        if (
            path != first
            and path.is_file()
            and (own := Dictionary.load(path).symbols) != dictionary.symbols[: len(own)]
        ):
            raise UsageError(
                f"{path} differs from {first}, so its data have other numbers for words. Prepare the text with the "
                f"first: posnet-prepare corpus --like {folders[0]} --train FILE FILE ..."
            )
    return task


@replaces(checkpoint_utils, "load_checkpoint_to_cpu")
def refuse_overrides_of_other_models(
    load: Callable, path: str, arg_overrides: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Refuse ``--model-overrides`` of options that fairseq's Transformers have and the models of posnet have not.

    fairseq 0.12.3 passes over what the checkpoint's model does not know: ``encoder_layers_to_keep`` would keep all.
    Remove this when fairseq refuses it.
    """
    state = load(path, arg_overrides, *args, **kwargs)
    if arg_overrides and MIXERS in state["model"]:
        known = {name for section in state["cfg"].values() if hasattr(section, "keys") for name in section}
        for name in arg_overrides.keys() - known & options_of_transformers():
            raise UsageError(f"--model-overrides {name}: the models of posnet have no such option. Leave it out.")
    return state


def options_of_transformers() -> set[str]:
    """Return the names of the options of fairseq's own Transformers and of their language models."""
    from fairseq.models.transformer import TransformerModelBase
    from fairseq.models.transformer_lm import TransformerLanguageModelConfig

    parser = argparse.ArgumentParser()
    TransformerModelBase.add_args(parser)
    fields = dataclasses.fields(TransformerLanguageModelConfig)
    return {action.dest for action in parser._actions} | {field.name for field in fields}


@replaces(checkpoint_utils, "save_checkpoint")
def save_at_ends_of_epochs(save: Callable, cfg: Any, trainer: Any, epoch_itr: Any, val_loss: float | None) -> Any:
    """Let ``--save-interval-updates`` write ``checkpoint_E_U.pt`` also at updates that end an epoch.

    There fairseq 0.12.3 writes the checkpoint of the epoch only, which ``--no-epoch-checkpoints`` and
    ``--save-interval`` may have disabled and ``--keep-last-epochs`` may remove. Remove this when fairseq writes both.
    """
    is_due = cfg.save_interval_updates > 0 and trainer.get_num_updates() % cfg.save_interval_updates == 0
    if is_due and epoch_itr.end_of_epoch():
        within_epoch = {"epoch": epoch_itr.epoch, "end_of_epoch": lambda: False, "state_dict": epoch_itr.state_dict}
        path = save(cfg, trainer, types.SimpleNamespace(**within_epoch), val_loss)
        if cfg.no_epoch_checkpoints or epoch_itr.epoch % cfg.save_interval:
            return path
    return save(cfg, trainer, epoch_itr, val_loss)


@replaces(FairseqTask, "get_batch_iterator")
def resume_with_the_same_batches(
    make: Callable, task: Any, dataset: Any, *args: Any, epoch: int = 1, **kwargs: Any
) -> Any:
    """Let a training that resumes in a later epoch use the batches that it would have had without the interruption.

    fairseq 0.12.3 makes the batches once, when a training starts, and groups sentences of equal length by the seed plus
    the current epoch: 1, or in a training that resumes a later one. That would have other batches, and see sentences of
    its epoch twice or not at all. Remove this when fairseq omits the epoch from the seed of batches made only once.
    """
    for_each_epoch = kwargs.get("disable_iterator_cache") or kwargs.get("update_epoch_batch_itr")
    if for_each_epoch or not task.can_reuse_epoch_itr(dataset) or dataset in task.dataset_to_epoch_iter:
        return make(task, dataset, *args, epoch=epoch, **kwargs)
    iterator = make(task, dataset, *args, epoch=1, **kwargs)
    iterator.epoch = max(epoch, 1)
    dataset.set_epoch(iterator.epoch)
    return iterator


@replaces(checkpoint_utils, "load_checkpoint")
def resume_fine_tuning_with_other_batches(load: Callable, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
    """Let a fine-tuning resume with ``--reset-dataloader``, which other batches need.

    fairseq 0.12.3 refuses it with ``--finetune-from-model`` also where that is not used any more, since there is a last
    checkpoint. Remove this when fairseq checks them together only at the beginning.
    """
    if Path(cfg.save_dir, "checkpoint_last.pt").exists():
        cfg.finetune_from_model = None
    return load(cfg, trainer, **kwargs)


@replaces(checkpoint_utils, "load_checkpoint")
def leave_finished_trainings(load: Callable, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
    """Let a training that is finished and started again, as by a queue of jobs, end as it is.

    fairseq 0.12.3 asks whether to stop after an update only: each start would make one more, and other checkpoints.
    Remove this when it asks before the first.
    """
    extra_state, batches = load(cfg, trainer, **kwargs)
    updates, limits = trainer.get_num_updates(), trainer.cfg.optimization
    without_better = 0 if cfg.reset_meters else (extra_state or {}).get("patience", {}).get("num_runs", 0)
    reasons = {
        f"--max-update {limits.max_update}": 0 < limits.max_update <= updates,
        f"--stop-time-hours {limits.stop_time_hours}": 0
        < limits.stop_time_hours
        < trainer.cumulative_training_time() / 3600,
        f"--patience {cfg.patience}": 0 < cfg.patience <= without_better,
    }
    if updates and (found := [reason for reason, is_met in reasons.items() if is_met]):
        logger.info(f"the training is finished: {updates} updates, {', '.join(found)}")
        return extra_state, types.SimpleNamespace(next_epoch_idx=math.nan)  # there is no next epoch
    return extra_state, batches


@replaces(checkpoint_utils, "load_checkpoint")
def validate_the_beginning_of_a_fine_tuning(load: Callable, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
    """Validate and save the weights that a fine-tuning begins with, as ``checkpoint_1_0.pt``.

    fairseq 0.12.3 first validates after some updates, so what a fine-tuning makes worse is not noticed, and the best
    checkpoint may be worse than the beginning. Remove this when fairseq validates before the first update.
    """
    from fairseq_cli.train import should_stop_early, validate

    extra_state, batches = load(cfg, trainer, **kwargs)
    whole = trainer.cfg
    if cfg.finetune_from_model and not trainer.get_num_updates() and not whole.dataset.disable_validation:
        value = validate(whole, trainer, trainer.task, batches, whole.dataset.valid_subset.split(","))[0]
        should_stop_early(whole, value)
        state = {"version": 2, "epoch": batches.epoch, "iterations_in_epoch": 0, "shuffle": True}
        not_begun = {"epoch": batches.epoch, "end_of_epoch": lambda: False, "state_dict": lambda: state}
        checkpoint_utils.save_checkpoint(cfg, trainer, types.SimpleNamespace(**not_begun), value)
    return extra_state, batches


@replaces(TranslationTask, "reduce_metrics")
def measure_blank_translations(
    reduce: Callable, task: TranslationTask, logged: Sequence[dict[str, Any]], criterion: Any
) -> None:
    """Let ``--eval-bleu`` measure a BLEU of 0 where all translations are blank, as after the first few updates.

    fairseq 0.12.3 measures none there, and fails if the best checkpoint goes by it. Remove this when it measures 0.
    """
    words = [log["_bleu_totals_0"] for log in logged if "_bleu_totals_0" in log]
    as_if = [{"_bleu_totals_0": 1e-9}] if words and not any(words) else []  # fairseq asks for more than 0 words
    reduce(task, [*logged, *as_if], criterion)


@replaces(EpochBatchIterator, "_get_iterator_for_epoch")
def fork_workers(make: Callable, batches: EpochBatchIterator, *args: Any, **kwargs: Any) -> Any:
    """Let Python 3.14 fork the workers that read batches, as earlier versions do, and end those of a killed training.

    By default it has fairseq 0.12.3 start them by a process that imports the script again, which would begin a second
    training, and that stays when the training is killed. Remove this when fairseq gives its loaders a context, and
    torch's workers no longer wait for good if the training is killed while they start: they look for their parent late,
    and take whoever adopts orphans for it.

    Without a /dev/shm that can be written the training reads the batches itself: workers need it.
    """
    if batches.num_workers and not has_semaphores():
        logger.warning("/dev/shm cannot be written: batches are read without workers, as with --num-workers 0")
        batches.num_workers, batches.persistent_workers = 0, False
    context = "fork" if batches.num_workers else None
    end = functools.partial(end_orphan, os.getpid())
    forking = functools.partial(torch.utils.data.DataLoader, multiprocessing_context=context, worker_init_fn=end)
    with mock.patch.object(torch.utils.data, "DataLoader", forking):
        return make(batches, *args, **kwargs)


@replaces(Trainer, "save_checkpoint")
def save_patience(save: Callable, trainer: Any, filename: str, extra_state: dict[str, Any]) -> None:
    """Let ``--patience`` count the validations of a training that resumes.

    fairseq 0.12.3 keeps the best value and the number of validations without a better one in memory only. Remove this
    when fairseq writes both into checkpoints.
    """
    from fairseq_cli.train import should_stop_early

    counted = {name: value for name, value in vars(should_stop_early).items() if name in ("best", "num_runs")}
    save(trainer, filename, {**extra_state, "patience": counted} if counted else extra_state)


@replaces(Trainer, "load_checkpoint")
def load_patience(load: Callable, trainer: Any, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
    """Go on counting from what :func:`save_patience` wrote."""
    from fairseq_cli.train import should_stop_early

    extra_state = load(trainer, *args, **kwargs)
    if extra_state and not kwargs.get("reset_meters"):  # as the first weights of a fine-tuning are loaded
        vars(should_stop_early).update(extra_state.get("patience", {}))
    return extra_state


@replaces(Trainer, "__init__")
def check_options_of_trainings(initialize: Callable, trainer: Any, cfg: Any, *args: Any, **kwargs: Any) -> None:
    """Check the options of a training when it starts; see :mod:`posnet_fairseq.fairseq_plugin.training_options`."""
    check_training_options(cfg)
    initialize(trainer, cfg, *args, **kwargs)
    if parts := getattr(cfg.model, "freeze", None):
        logger.info(*frozen(trainer.get_model(), parts))


@replaces(options, "parse_args_and_arch")
def train_in_bf16_without_tpus(parse: Callable, *args: Any, **kwargs: Any) -> Any:
    """Let ``--bf16`` train on GPUs and CPUs.

    fairseq 0.12.3 takes it for a request to train on TPUs, and fails without torch_xla. Remove this when fairseq does
    not.
    """
    parsed = parse(*args, **kwargs)
    known = parsed[0] if isinstance(parsed, tuple) else parsed
    if getattr(known, "bf16", False) and utils.xm is None:
        known.tpu = False
    return parsed


@replaces(utils, "load_align_dict")
def refuse_to_replace_unknown_words(load: Callable, replace_unk: str | None) -> Any:
    """Refuse ``--replace-unk``.

    fairseq 0.12.3 takes the option without a value for a file of the name "@@ ", and at the first unknown word of a
    translation it ends in an IndexError: it looks up an alignment that it no longer computes. Remove this when it does.
    """
    if replace_unk is not None:
        raise UsageError(
            "--replace-unk: fairseq 0.12.3 has no alignments to find the words by, and fails at the first unknown one. "
            "Leave it out."
        )
    return load(replace_unk)


def total_norm(gradients: list[torch.Tensor]) -> torch.Tensor:
    """Return the Euclidean norm of gradients taken together, in float32, on the device of the first."""
    norms = torch._foreach_norm(gradients, 2, dtype=torch.float32)
    return torch.linalg.vector_norm(torch.stack([norm.to(norms[0].device) for norm in norms]))


# Without apex, fairseq 0.12.3 launches a kernel on GPUs for the norm of each parameter's gradient, and warns. Remove
# this when it uses torch's functions of many tensors.
utils.multi_tensor_l2norm_available, utils.multi_tensor_total_norm = True, total_norm


@replaces(optim, "_build_optimizer")
def exempt_from_weight_decay(build: Callable, cfg: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
    """Let all optimizers of fairseq exempt parameters from weight decay that ask for it.

    A parameter asks with ``optim_overrides = {"optimizer": {"weight_decay_scale": 0}}``: fairseq's own convention,
    which no optimizer of fairseq 0.12.3 follows. The optimizers get two groups of parameters. Remove this when fairseq
    follows its convention.
    """
    exempt = [p for p in params if _without_decay(p)]
    if exempt and getattr(cfg, "_name", None) != "composite":  # which builds an optimizer for each of its groups
        rest = [p for p in params if not _without_decay(p)]
        params = [{"params": rest}, {"params": exempt, "weight_decay": 0.0}]
    return build(cfg, params, *args, **kwargs)


composite._build_optimizer = exempt_from_weight_decay


@replaces(optim.FP16Optimizer, "build_optimizer")
def keep_groups_in_16_bit(build: Callable, cfg: Any, params: Any, **kwargs: Any) -> Any:
    """Let the 16-bit optimizer not flatten into one tensor what :func:`exempt_from_weight_decay` puts into groups."""
    if any(map(_without_decay, params)):
        with open_dict(cfg):
            cfg.common.fp16_no_flatten_grads = True
    return build(cfg, params, **kwargs)


def _without_decay(parameter: Any) -> bool:
    overrides = getattr(parameter, "optim_overrides", None) or {}
    return overrides.get("optimizer", {}).get("weight_decay_scale") == 0
