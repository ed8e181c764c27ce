"""Functions that damage checkpoints in the folder of a row."""

import io
import pickle
import tarfile
import zipfile

import torch


def changed(change, source="model.pt", target="bad.pt"):
    """A function that rewrites a checkpoint after `change` has changed its content."""

    def before(folder):
        state = torch.load(folder / source, weights_only=True)
        change(state)
        torch.save(state, folder / target)

    return before


def weight(value, name="encoder.layers.0.feed_forward.inner.weight", target="bad.pt"):
    """A function that replaces a weight by a function of it."""
    return changed(lambda state: state["model"].update({name: value(state["model"][name])}), target=target)


def one(number):
    def with_number(tensor):
        tensor[0, 0] = number
        return tensor

    return with_number


def zeros(*names):
    """A function that writes zeros into a part of a file of torch, in the middle of its weights: a copy that failed."""

    def before(folder):
        for name in names:
            with zipfile.ZipFile(folder / name) as archive:
                parts = [part for part in archive.infolist() if "/data/" in part.filename]
            largest = max(parts, key=lambda part: part.file_size)
            with open(folder / name, "r+b") as file:
                file.seek(largest.header_offset + largest.file_size // 2)
                file.write(bytes(largest.file_size // 4))

    return before


def tar(folder):
    with tarfile.open(folder / "bad.pt", "w") as file:
        for name in ("sys_info", "storages", "tensors", "pickle"):
            data = pickle.dumps({})
            about = tarfile.TarInfo(name)
            about.size = len(data)
            file.addfile(about, io.BytesIO(data))


def put(*keys_and_value, name="run/checkpoint_3_15.pt"):
    """A function that sets a value of a checkpoint, found by the keys."""
    *keys, key, value = keys_and_value

    def change(state):
        for each in keys:
            state = state[each]
        state[key] = value

    return changed(change, name, name)
