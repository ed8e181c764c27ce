"""Versions this package works with, and what it mends in them. One place, each with the reason it is there."""

import functools
import sys


def check_fairseq():
    """Say how to mend an installation in which fairseq does not import.

    Raises:
        ImportError: fairseq is missing or does not run on this Python.
    """
    try:
        import fairseq  # noqa: F401
    except Exception as error:  # fairseq 0.12.2 raises ValueError on Python 3.11 and later
        raise ImportError(
            f"fairseq does not import on Python {sys.version.split()[0]} ({type(error).__name__}: {error}). "
            "posnet needs a fairseq mended for Python 3.11: pip install ve-fairseq==0.12.3"
        ) from error


def allow_checkpoint_types():
    """Let torch's safe loader read what fairseq writes into checkpoints besides tensors and plain values.

    torch 2.6 and later load with weights_only=True and refuse every type that is not listed.
    """
    import torch

    from posnet_fairseq.inference.checkpoints import data_types

    torch.serialization.add_safe_globals(data_types())


def restore_long_integers():
    """Give numpy 2 back the name of its integers that fairseq 0.12.3 looks up, ``numpy.compat.long``.

    Without it fairseq fails on a language model's sentences (``--sample-break-mode eos``, fairseq-interactive). It can
    go when fairseq writes ``int``.
    """
    import types

    import numpy

    if not hasattr(numpy, "compat"):
        numpy.compat = types.SimpleNamespace(long=int)


def merge_large_indexes():
    """Let fairseq-preprocess write more than 2 GiB with several workers under numpy 2.

    Where it merges what its workers wrote, fairseq 0.12.3 adds up positions in the file from sizes that are numpy's
    32-bit integers. numpy 1 made longer ones of them; under numpy 2 they begin again below zero, or raise
    OverflowError. It can go when fairseq adds up Python's integers.
    """
    from fairseq.data import indexed_dataset

    builder = indexed_dataset.MMapIndexedDatasetBuilder
    merge = builder.merge_file_
    if getattr(merge, "merges_large", False):
        return

    def merge_file(self, another_file):
        before = len(self._sizes)
        merge(self, another_file)
        self._sizes[before:] = [int(size) for size in self._sizes[before:]]

    merge_file.merges_large = True
    builder.merge_file_ = merge_file


def check_data_when_it_is_loaded():
    """Refuse binarised text that is not whole when it is loaded.

    fairseq 0.12.3 fails, with a traceback, at the first sentence that the data file lacks, hours into a training. It
    can go when fairseq compares what the index says with the data file.
    """
    from fairseq.data import indexed_dataset

    from posnet_fairseq.fairseq_plugin.binarised import check
    from posnet_fairseq.shared.errors import UsageError

    make = indexed_dataset.make_dataset
    if getattr(make, "checks", False):
        return

    @functools.wraps(make)
    def make_dataset(path, impl, *args, **kwargs):
        if impl in ("cached", "lazy", "mmap") and indexed_dataset.IndexedDataset.exists(path):
            sizes = check(path)
            if sizes is not None and not len(sizes):
                raise UsageError(f"{path}.idx: this set has no sentences. Binarise a text that has some.")
        return make(path, impl, *args, **kwargs)

    make_dataset.checks = True
    indexed_dataset.make_dataset = make_dataset


def save_at_ends_of_epochs():
    """Let ``--save-interval-updates`` write ``checkpoint_E_U.pt`` also at updates that end an epoch.

    fairseq 0.12.3 leaves them out, for the sake of the file of the epoch, which ``--no-epoch-checkpoints`` and
    ``--save-interval`` may have switched off and ``--keep-last-epochs`` may remove: with 10 updates an epoch, every
    tenth update would leave nothing. It can go when fairseq writes both.
    """
    from fairseq import checkpoint_utils

    save = checkpoint_utils.save_checkpoint
    if getattr(save, "saves_at_ends", False):
        return

    @functools.wraps(save)
    def save_checkpoint(cfg, trainer, epoch_itr, val_loss):
        is_due = cfg.save_interval_updates > 0 and trainer.get_num_updates() % cfg.save_interval_updates == 0
        if is_due and epoch_itr.end_of_epoch():
            path = save(cfg, trainer, _AsIfWithin(epoch_itr), val_loss)
            if cfg.no_epoch_checkpoints or epoch_itr.epoch % cfg.save_interval:
                return path
        return save(cfg, trainer, epoch_itr, val_loss)

    save_checkpoint.saves_at_ends = True
    checkpoint_utils.save_checkpoint = save_checkpoint


class _AsIfWithin:
    """The iterator of an epoch that has ended, as if it had not: all else is said by the iterator itself."""

    def __init__(self, epoch_itr):
        self._epoch_itr = epoch_itr

    def __getattr__(self, name):
        return getattr(self._epoch_itr, name)

    def end_of_epoch(self):
        """No."""
        return False


def resume_with_the_same_batches():
    """Let a training that resumes in a later epoch go on with the batches that it had before.

    fairseq 0.12.3 makes the batches once, when the training begins, and only shuffles them for each epoch. Which
    sentences of the same length share a batch is drawn from the seed plus the epoch in which they are made: 1 in a
    training that is not interrupted, another one in a training that resumes later, whose batches are others from then
    on: sentences of the epoch are seen twice or not at all. It can go when fairseq leaves the epoch out where batches
    are made once.
    """
    from fairseq.tasks import FairseqTask

    make = FairseqTask.get_batch_iterator
    if getattr(make, "makes_the_same", False):
        return

    @functools.wraps(make)
    def get_batch_iterator(self, dataset, *args, epoch=1, **kwargs):
        for_each_epoch = kwargs.get("disable_iterator_cache") or kwargs.get("update_epoch_batch_itr")
        if for_each_epoch or not self.can_reuse_epoch_itr(dataset) or dataset in self.dataset_to_epoch_iter:
            return make(self, dataset, *args, epoch=epoch, **kwargs)
        iterator = make(self, dataset, *args, epoch=1, **kwargs)
        iterator.epoch = max(epoch, 1)
        dataset.set_epoch(iterator.epoch)
        return iterator

    get_batch_iterator.makes_the_same = True
    FairseqTask.get_batch_iterator = get_batch_iterator


def check_options_of_trainings():
    """Let a training begin with a look at its options; see :mod:`posnet_fairseq.fairseq_plugin.training_options`."""
    from fairseq.trainer import Trainer

    from posnet_fairseq.fairseq_plugin.training_options import check_training_options

    begin = Trainer.__init__
    if getattr(begin, "checks", False):
        return

    @functools.wraps(begin)
    def check_and_begin(self, cfg, *args, **kwargs):
        check_training_options(cfg)
        begin(self, cfg, *args, **kwargs)

    check_and_begin.checks = True
    Trainer.__init__ = check_and_begin


def exempt_from_weight_decay():
    """Let all optimisers of fairseq leave parameters alone that ask for no weight decay.

    A parameter asks with ``optim_overrides = {"optimizer": {"weight_decay_scale": 0}}``, fairseq's own convention,
    which none of its optimisers follows (the composite one looks for it in vain in 0.12.3). This hands them two groups
    of parameters, and keeps the 16-bit optimiser from making one flat tensor of all of them. It can go when fairseq
    follows its convention.
    """
    from fairseq import optim
    from fairseq.optim import composite
    from omegaconf import open_dict

    build = optim._build_optimizer
    if getattr(build, "exempts", False):
        return

    def build_with_groups(cfg, params, *args, **kwargs):
        exempt = [p for p in params if _without_decay(p)]
        if exempt and getattr(cfg, "_name", None) != "composite":  # which builds an optimiser for each of its groups
            rest = [p for p in params if not _without_decay(p)]
            params = [{"params": rest}, {"params": exempt, "weight_decay": 0.0}]
        return build(cfg, params, *args, **kwargs)

    build_with_groups.exempts = True
    optim._build_optimizer = composite._build_optimizer = build_with_groups
    build_16_bit = optim.FP16Optimizer.build_optimizer.__func__

    def build_16_bit_in_groups(cls, cfg, params, **kwargs):
        if any(map(_without_decay, params)):
            with open_dict(cfg):
                cfg.common.fp16_no_flatten_grads = True
        return build_16_bit(cls, cfg, params, **kwargs)

    optim.FP16Optimizer.build_optimizer = classmethod(build_16_bit_in_groups)


def _without_decay(parameter):
    overrides = getattr(parameter, "optim_overrides", None) or {}
    return overrides.get("optimizer", {}).get("weight_decay_scale") == 0
