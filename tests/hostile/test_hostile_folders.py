"""All that can be wrong with a model folder, and with the place that one is written to."""

import json
import os
import shutil
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file

from posnet_fairseq.inference.model_folder import FORMAT, read_model, write_config
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.records import json_if_whole
from support import commands
from support.damaged import one
from support.hostile import Row, also, play, table
from support.hostile_files import RAW

CONFIG, WEIGHTS, CARD = "model/config.json", "model/model.safetensors", "model/dataset.json"
TRANSLATE = "posnet-translate model/ --input text/test.xx --beam 1 --max-len-b 2"
INNER = "encoder.layers.0.feed_forward.inner.weight"
NO_WEIGHTS = f"{WEIGHTS} is damaged or no file of safetensors"
NO_FILE = "there is no such file. Check the path, or copy it again"


@pytest.fixture(scope="module")
def world(world, tmp_path_factory):
    """The world with the folder model/ of model.pt."""
    place = shutil.copytree(world, tmp_path_factory.mktemp("folders") / "world", symlinks=True)
    patch = pytest.MonkeyPatch()
    patch.chdir(place)
    commands.run_program(patch, "posnet-export", "model.pt", "--out", "model")
    patch.undo()
    return place


def put(name):
    """A function that puts another file or folder of the world in the place of the folder."""

    def before(folder):
        shutil.rmtree(folder / "model")
        (folder / "model").symlink_to(name)

    return before


def config(file=CONFIG, **entries):
    """A function that replaces entries of config.json, or of another file; None removes one."""

    def before(folder):
        content = json.loads((folder / file).read_text()) | entries
        kept = {name: value for name, value in content.items() if value is not None}
        (folder / file).write_text(json.dumps(kept))

    return before


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
        entries = json_if_whole(folder / CONFIG)
        if isinstance(entries, dict) and entries.get("format") == FORMAT:
            write_config(folder / "model", entries)

    return before


def content(name, data):
    return lambda folder: (folder / "model" / name).write_bytes(data)


def gone(name):
    return lambda folder: (folder / "model" / name).unlink()


def weights(change):
    """A function that rewrites the weights after `change` has changed the dict of them."""

    def before(folder):
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS)

    return before


def weight(value):
    """A function that replaces a weight by a function of it."""
    return weights(lambda tensors: tensors.update({INNER: value(tensors[INNER])}))


def of_4_bits(tensor):
    return torch.zeros(tensor.shape, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)


def larger_shape(folder):
    """A shape that the weights in the file are not enough for."""
    data = (folder / WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    described = json.loads(data[8 : 8 + length])
    described[INNER]["shape"] = [10**12, 10**12]
    text = json.dumps(described).encode()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def pickled(folder):
    """A checkpoint in the place of the weights."""
    shutil.copyfile(folder / "model.pt", folder / WEIGHTS)


def pipe(folder):
    (folder / CONFIG).unlink()
    os.mkfifo(folder / CONFIG)


def renamed(folder):
    (folder / "model").rename(folder / RAW)


FOLDERS = [
    ("a newer format", config(format=3), r"it has the format 3, and this posnet \(.*\) reads formats up to 2, so"),
    ("the folder of data", put("data"), "model/? is a directory. Give a checkpoint in it.*, or a model folder"),
    ("a circle of links", put("model"), "model/?: .*(there is no such checkpoint|symbolic links)"),
    ("no JSON", content("config.json", b"format: 1"), "config.json is no JSON as posnet-export writes it"),
    ("no such architecture", config(architecture="bert"), "there is no architecture 'bert'"),
    ("an unknown option", option("rotate", True), "no model of posnet has the option rotate"),
    ("a language that is a path", config(source_lang="../xx"), "the language '../xx' is no name such as de"),
    ("no weights", gone("model.safetensors"), f"model.safetensors: {NO_FILE}"),
    ("a pickle", pickled, NO_WEIGHTS),
    ("a larger shape", larger_shape, NO_WEIGHTS),
    ("a weight too much", weights(lambda w: w.update(new=torch.zeros(2))), r"it has new \(2,\), which the model lacks"),
    ("numbers of 4 bits", weight(of_4_bits), "the weight .* has numbers of the type torch.float4_e2m1fn_x2; those"),
    ("another shape", weight(lambda w: w.T.contiguous()), f"does not fit the options: it has {INNER}"),
    ("no dictionary", gone("dict.xx.txt"), r"model \(the model's folder\) has no dict.xx.txt"),
    (
        "a card without hashes",
        config(CARD, files=None, posnet="0.2.0"),
        "dataset.json is no card .*it lacks the hash of codes",
    ),
    (
        "both kinds of subwords",
        config(CARD, sentencepiece_model="a"),
        "it names both bpe_codes and a sentencepiece_model",
    ),
    ("other codes", content("codes.xx.bpe", b"#version: 0.2\na b\n"), "codes.xx.bpe is not the file that"),
]


OTHER = "is not the file that config.json was written with. Copy the folder again"
NO_HASH = "config.json was changed since posnet-export wrote it, or lacks its hash. Copy"
CHANGED = [
    ("a pipe for its configuration", pipe, "config.json: it is no regular file. Check the path"),
    (
        "too large a configuration",
        lambda folder: os.truncate(folder / CONFIG, 2**26 + 1),
        r"has more than [\d,]+ bytes, which no file of its kind has",
    ),
    ("another dictionary", content("dict.xx.txt", b"a1 1\n"), f"dict.xx.txt {OTHER}"),
    ("changed weights", weight(one(0.125)), f"model.safetensors {OTHER}"),
    ("a changed option", option("decoder_attention_heads", 1), NO_HASH),
    ("no hashes", config(files=None), NO_HASH),
    ("no hashes, of an early version", config(format=1, files=None, sha256=None), NO_HASH),
]
ROWS = [Row(name, TRANSLATE, says, before=resealed(before)) for name, before, says in FOLDERS]
ROWS += [Row(name, TRANSLATE, says, before=before) for name, before, says in CHANGED]
ROWS += also(["posnet-export model --out new", "posnet-plot weights model --out figures"], "another shape", ROWS)
ROWS += [
    Row("a folder and its checkpoint", f"{TRANSLATE.replace('model/', 'model/ model.pt')}", "12 sentences", code=0),
    Row("an output in the folder", f"{TRANSLATE} --output model/config.json", "is the same file as model/config.json"),
    Row("a name that is not UTF-8", TRANSLATE.replace("model/", RAW), "12 sentences", 0, before=renamed),
    Row("precompute", "posnet-precompute model --out new.pt", "model is a model folder, not a checkpoint"),
    Row("other data", "posnet-export model.pt --out new --data text", "text .--data. has no dict.xx.txt"),
]


@table(ROWS)
def test_row(row, folder, monkeypatch, capfd):
    play(row, folder, monkeypatch, capfd)


def test_nothing_but_data_is_read(folder, monkeypatch):
    """No pickle in a folder is opened, whatever its name."""
    pickled(folder)
    monkeypatch.setattr(torch, "load", lambda *arguments, **options: pytest.fail("a pickle was read"))
    with pytest.raises(UsageError, match=NO_WEIGHTS):
        read_model(folder / "model")
