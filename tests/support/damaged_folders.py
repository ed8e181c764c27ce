"""Functions that damage the model folder `model/` of a row."""

import json
import struct

import torch
from safetensors.torch import load_file, save_file

from posnet_fairseq.inference.model_folder import FORMAT, write_config
from posnet_fairseq.shared.records import read_json

CONFIG, WEIGHTS, CARD = "model/config.json", "model/model.safetensors", "model/dataset.json"


def config(file=CONFIG, **entries):
    """A function that replaces entries of config.json, or of another file; None removes one."""

    def before(folder):
        content = json.loads((folder / file).read_text()) | entries
        kept = {name: value for name, value in content.items() if value is not None}
        (folder / file).write_text(json.dumps(kept))

    return before


def card(**entries):
    """A function that replaces entries of dataset.json; None removes one."""
    return config(CARD, **entries)


def option(name, value):
    """A function that sets an option of the model."""

    def before(folder):
        options = json.loads((folder / CONFIG).read_text())["options"]
        config(options=options | {name: value})(folder)

    return before


def resealed(change):
    """A function that writes new hashes into config.json after `change`, as whoever means harm would."""

    def before(folder):
        change(folder)
        entries = read_json(folder / CONFIG)
        if isinstance(entries, dict) and entries.get("format") == FORMAT:
            write_config(folder / "model", entries)

    return before


def content(name, data):
    """A function that writes bytes into a file of the folder."""
    return lambda folder: (folder / "model" / name).write_bytes(data)


def gone(name):
    """A function that removes a file of the folder."""
    return lambda folder: (folder / "model" / name).unlink()


def circle(name):
    """A function that puts a link that leads in a circle in the place of a file."""

    def before(folder):
        path = folder / "model" / name
        path.unlink()
        (folder / "model/other").symlink_to(name)
        path.symlink_to("other")

    return before


def weights(change):
    """A function that rewrites the weights after `change` has changed the dict of them."""

    def before(folder):
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS)

    return before


def weight(value, name="encoder.layers.0.feed_forward.inner.weight"):
    """A function that replaces a weight by a function of it."""
    return weights(lambda tensors: tensors.update({name: value(tensors[name])}))


def header(change):
    """A function that changes the text in front of the weights, not the weights."""

    def before(folder):
        data = (folder / WEIGHTS).read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        described = json.loads(data[8 : 8 + length])
        change(described)
        text = json.dumps(described).encode()
        (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])

    return before


def pickled(folder):
    """A checkpoint in the place of the weights."""
    torch.save(torch.load(folder / "model.pt", weights_only=True), folder / WEIGHTS)
