"""Checks and repairs before a training. :func:`check_trainings` imports fairseq: it is called in another process."""

import argparse
import contextlib
import io
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from posnet_fairseq.inference.checkpoints import load_content, read_checkpoint
from posnet_fairseq.inference.stored_energies import parameter_count
from posnet_fairseq.runs.training import Training, most_kept
from posnet_fairseq.shared.disk import refuse_too_little_disk
from posnet_fairseq.shared.errors import DamagedError, UsageError, about, counted, flag, last_error
from posnet_fairseq.shared.failures import explain
from posnet_fairseq.shared.files import replacing
from posnet_fairseq.shared.progress import amount, shown
from posnet_fairseq.shared.user_dir import import_user_dir
from posnet_fairseq.text.card import CARD

# Options in which a training may differ from the checkpoint that it begins with: they say how a model is trained, where
# it was, or are looked at with the weights.
FREE = (
    *("dropout", "attention_dropout", "activation_dropout"),
    *("weight_noise", "weight_noise_on", "subword_dropout", "freeze"),
    *("encoder_layerdrop", "decoder_layerdrop", "encoder_embed_path", "decoder_embed_path"),
    *("checkpoint_activations", "offload_activations", "compile", "length_ratio"),
    *("max_source_positions", "max_target_positions"),
    *("share_all_embeddings", "share_decoder_input_output_embed"),
)
BYTES = 12  # of a parameter in a checkpoint: itself and Adam's two moments, in float32


@dataclass(frozen=True)
class Checked:
    """What fairseq makes of the options of a training: the parameters of its model, and its learning rates.

    Attributes:
        remarks: sentences on the weights that a training begins with.
    """

    parameters: int
    schedule: Mapping[str, Any]
    remarks: Sequence[str] = ()


def check_trainings(trainings: Mapping[str, Sequence[str]]) -> dict[str, Checked]:
    """Refuse arguments of fairseq-train, by system, that it would refuse; return what it makes of the others.

    Where the data are not prepared yet, only the options are checked, and nothing is returned.
    """
    checked = {}
    for name, arguments in trainings.items():
        with about(name), _silence():
            from posnet_fairseq.fairseq_plugin.freezing import frozen
            from posnet_fairseq.fairseq_plugin.training_options import check_training_options

            # isort: split
            from omegaconf import OmegaConf  # comes with fairseq, which may be missing

            cfg = configuration(arguments)
            check_training_options(cfg)
            if (Path(cfg.task.data) / CARD).exists():
                model, task = meta_model(cfg)
                beginning = cfg.checkpoint.finetune_from_model
                remarks = check_beginning(Path(beginning), model, task, cfg) if beginning else []
                remarks += frozen(model, getattr(cfg.model, "freeze", None))
                schedule: Any = OmegaConf.to_container(cfg.lr_scheduler, resolve=True)
                checked[name] = Checked(parameter_count(model), schedule, remarks)
    return checked


def make_ready(
    training: Training, checked: Checked, average: int, others: Sequence[Path]
) -> tuple[list[str], list[str]]:
    """Repair what a killed training left, and refuse to go on as it cannot; return more arguments, and remarks.

    ``others`` are folders of checkpoints of runs that train on the same disk.
    """
    folder, updates = Path(training.value("--save-dir")), int(training.value("--max-update"))
    interval, tokens = int(training.value("--save-interval-updates")), training.value("--max-tokens")
    added, remarks, last = [], repair(folder), folder / "checkpoint_last.pt"
    if last.exists():
        before = read_checkpoint(last, with_weights=False)["cfg"]
        refuse_other_schedule(before, checked.schedule, updates)
        # fairseq remembers how many batches of the epoch each process has had: it would skip others, or fail.
        batches = before["distributed_training"]["distributed_world_size"], before["dataset"]["max_tokens"]
        if batches != (training.world, int(tokens) if tokens else None):
            added = ["--reset-dataloader"]
            again = "other batches than before, so the data begin again with the first epoch's."
            remarks.append(f"{shown(folder)}: {again}")
    else:
        remarks += [f"{shown(folder)}: {remark}" for remark in checked.remarks]
    # The beginning of a fine-tuning is saved, too.
    numbered = updates // interval + ("--finetune-from-model" in training.arguments)
    check_disk(folder, checked.parameters, most_kept(average, numbered), others)
    return added, remarks


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Drop what fairseq prints and warns of: the training says it again. Turn its known failures into sentences."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            yield
    except Exception as error:
        sentence = explain(error)
        if sentence is None:
            raise
        raise UsageError(sentence) from error
    finally:
        logging.disable(logging.NOTSET)


def register_models(arguments: Sequence[str]) -> None:
    """Import fairseq, and register posnet's models with it, and those of a ``--user-dir`` among its arguments."""
    import posnet_fairseq.fairseq_plugin  # imports fairseq as this Python needs it

    # isort: split
    from fairseq.models import import_models

    folders = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    folders.add_argument("--user-dir", default=str(Path(posnet_fairseq.__file__).parent))
    user_dir = Path(folders.parse_known_args(list(arguments))[0].user_dir).absolute()
    if user_dir != Path(posnet_fairseq.__file__).parent:
        import_user_dir(user_dir)  # before posnet's models: their architectures are made of all mixers
    # fairseq registers no architectures of a --user-dir that has been imported before.
    import_models(str(Path(posnet_fairseq.__file__).parent / "models"), "posnet_fairseq.models")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options that fairseq-train makes of its arguments."""
    register_models(arguments)
    from fairseq import options

    complaints = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaints), contextlib.redirect_stdout(io.StringIO()):
            return options.parse_args_and_arch(options.get_training_parser(), input_args=list(arguments))
    except SystemExit as error:
        sentence = last_error(complaints.getvalue())
        if sentence.startswith("argument --arch"):
            sentence = f"{sentence.partition(' (choose')[0]} (posnet-mixers lists the mixers)"
        raise UsageError(f"fairseq-train: {sentence or 'its options were not understood'}.") from error


def configuration(arguments: Sequence[str]) -> Any:
    """Return the configuration that fairseq-train makes of its arguments."""
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    return convert_namespace_to_omegaconf(parse(arguments))


def meta_model(cfg: Any) -> tuple[torch.nn.Module, Any]:
    """Return the model of a configuration, on the meta device, and its task."""
    from fairseq import tasks

    task = tasks.setup_task(cfg.task)
    with torch.device("meta"):
        return task.build_model(cfg.model), task


def repair(folder: Path) -> list[str]:
    """Replace a checkpoint_last.pt that is gone or damaged by the newest other one; put it aside if there is none.

    fairseq writes numbered checkpoints whole but copies them to checkpoint_last.pt, from which alone it resumes; a kill
    during the copy leaves half a file. A sentence about it is returned, if something was done.
    """
    last = folder / "checkpoint_last.pt"
    found = damage(last) if last.exists() else f"{shown(last)} is gone."
    if not found:
        return []
    others = sorted(set(folder.glob("checkpoint*.pt")) - {last}, key=lambda path: -path.stat().st_mtime_ns)
    newest = next((path for path in others if not damage(path)), None)
    if newest is None and not last.exists():
        return []  # nothing was trained yet
    if newest is None:
        aside = last.with_name("checkpoint_last.pt.damaged")
        last.replace(aside)
        return [f"{found} There is no other: the training begins again. The file is now {aside.name}."]
    with replacing(last) as temporary:
        shutil.copyfile(newest, temporary)
    return [f"{found} {newest.name} has taken its place."]


def damage(checkpoint: Path) -> str:
    """Return a sentence about damage to the bytes of a checkpoint, "" if there is none."""
    try:
        load_content(checkpoint, with_tensors=True)
    except DamagedError as error:
        return str(error)
    return ""


def check_beginning(path: Path, model: torch.nn.Module, task: Any, cfg: Any) -> list[str]:
    """Refuse a checkpoint whose weights do not fit a training's model, on the meta device, which is changed.

    Sentences on its words are returned, if the training has others.
    """
    from posnet_fairseq.fairseq_plugin.first_weights import first_weights
    from posnet_fairseq.inference.checkpoints import known_options, model_arch
    from posnet_fairseq.inference.stored_energies import has_tables
    from posnet_fairseq.registry import option_fields

    state = read_checkpoint(path)
    # What an earlier version had no option of is as by default, except what its mixers read.
    saved = {each.name: each.default for each in known_options(state) if each.name not in option_fields()}
    saved |= state["cfg"]["model"]
    names = {option.name for option in known_options(state)} - set(FREE)
    pairs = {name: (saved[name], cfg.model.get(name)) for name in sorted(names & saved.keys())}
    pairs["arch"] = model_arch(state), cfg.model._name
    different = [
        f"{flag(name)}: {there} there, {here} here" for name, (there, here) in pairs.items() if str(there) != str(here)
    ]
    with about(path):
        if has_tables(state["model"]):
            raise UsageError("it has stored energies, which cannot be trained. Give the averaged.pt beside it.")
        if different:
            raise UsageError(f"it was trained with other options ({'; '.join(different)}). Give the same.")
        weights, sentences = first_weights(state, model, task)
        model.load_state_dict(weights)
    return sentences


def refuse_other_schedule(before: Mapping[str, Any], schedule: Mapping[str, Any], length: int) -> None:
    """Refuse to lengthen a training, configured ``before``, if its learning rates depend on its length: they jump."""
    earlier = before["optimization"]["max_update"]
    if earlier != length and before["lr_scheduler"] != schedule:
        raise UsageError(
            f"--updates {length}: the training was begun with {earlier}, and the learning rates of --lr-scheduler "
            f"{schedule['_name']} depend on that number. Train anew, under another --name."
        )


def check_disk(folder: Path, parameters: int, checkpoints: int, others: Sequence[Path] = ()) -> None:
    """Refuse a training whose checkpoints, `checkpoints` at a time, don't fit on the disk.

    Others, folders of checkpoints of runs whose training has not ended, are taken to need equal room.
    """
    size, folders = BYTES * parameters, [folder, *others]
    here = sum(path.stat().st_size for each in folders for path in each.glob("*.pt"))
    runs = f"{len(folders)} runs, each with " if others else ""
    with about(f"{runs}{counted(checkpoints, 'checkpoint')} of {amount(size, 'bytes')}"):
        refuse_too_little_disk(folder, size * checkpoints * len(folders) - here)
