"""Reading checkpoints safely and writing them whole."""

import zipfile
from pathlib import Path

import torch
from fairseq import checkpoint_utils

from posnet_fairseq.errors import UsageError
from posnet_fairseq.failures import explain_unreadable
from posnet_fairseq.files import replacing
from posnet_fairseq.models.mixer_transformer import arch_names


def read_checkpoint(path):
    """The content of a posnet checkpoint, its tensors read from disk only when they are used.

    Only data is read; a file with objects that could run code is refused.

    Raises:
        UsageError: the file is missing, damaged, unsafe, or the checkpoint of another model.
    """
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"{path}: there is no such checkpoint. Check the path.")
    try:
        # Files of old torch versions are no zip archives and cannot be mapped into memory.
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:
        sentence = explain_unreadable(error, path)
        if sentence is None:
            raise
        raise UsageError(sentence) from error
    arch = model_arch(state)
    if arch not in arch_names():
        what = f"the model {arch}" if arch else "no fairseq model"
        raise UsageError(f"{path} holds {what}; posnet's commands work with the models of posnet only.")
    return state


def model_arch(state):
    """The ``--arch`` of a checkpoint's content, or None if it has none."""
    config = state.get("cfg") if isinstance(state, dict) else None
    model = config.get("model") if isinstance(config, dict) else None
    return model.get("_name") if isinstance(model, dict) else None


def write_checkpoint(state, path):
    """Write a checkpoint, all of it or nothing."""
    with replacing(path) as temporary:
        torch.save(state, temporary)


def load_models(paths, data=None):
    """The models of checkpoints, in evaluation mode, with the task they were trained for.

    Args:
        paths: checkpoints; several make an ensemble.
        data: directory with the dictionaries. Default: the one the checkpoint was trained on.

    Returns:
        list of models, configuration of the last one, task.

    Raises:
        UsageError: see :func:`read_checkpoint`; or there are no dictionaries, or they do not fit.
    """
    states = [read_checkpoint(path) for path in paths]
    folder = Path(data or states[0]["cfg"]["task"]["data"])
    if not list(folder.glob("dict.*.txt")):
        given = "--data" if data else "the directory the checkpoint was trained on"
        raise UsageError(f"{folder} ({given}) has no dictionaries (dict.LANG.txt). Give the right one with --data.")
    models, config, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(path) for path in paths], arg_overrides={"data": str(folder)}
    )
    for model in models:
        model.eval()
    return models, config, task
