"""All that can be wrong with a model folder, and with the place that one is written to."""

import os
import shutil
import struct

import pytest
import torch

from posnet_fairseq.inference.model_folder import read_model
from posnet_fairseq.shared.errors import UsageError
from support import commands, hostile
from support.damaged import one
from support.damaged_folders import (
    card,
    circle,
    config,
    content,
    gone,
    header,
    option,
    pickled,
    resealed,
    weight,
    weights,
)
from support.hostile import Row, play, table

TRANSLATE = "posnet-translate model/ --input text/test.xx --beam 1 --max-len-b 2"
INNER = "encoder.layers.0.feed_forward.inner.weight"
NO_WEIGHTS = "model/model.safetensors is damaged or no file of safetensors"
NO_FILE = "there is no such file. Check the path, or copy it again"


@pytest.fixture(scope="module")
def world(world, tmp_path_factory):
    """The world with the folder model/ of model.pt."""
    place = hostile.copy_of(world, tmp_path_factory.mktemp("folders") / "world")
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


def pipe(name):
    def before(folder):
        (folder / "model" / name).unlink()
        os.mkfifo(folder / "model" / name)

    return before


def words(folder):
    """A dictionary with a word more."""
    with open(folder / "model/dict.yy.txt", "a") as file:
        file.write("new 1\n")


FOLDERS = [
    ("a newer format", config(format=3), r"has the format 3, and this posnet \(.*\) reads formats up to 2. Install"),
    (
        "no format",
        config(format=None),
        "config.json is no JSON as posnet-export writes it: it lacks format",
    ),
    ("the folder of data", put("data"), "model/? is a directory. Give a checkpoint in it.*, or a model folder"),
    ("the folder of a run", put("run"), "model/? is a directory. Give a checkpoint in it"),
    ("a circle of links", put("model"), "model/?: .*(there is no such checkpoint|symbolic links)"),
    ("no JSON", content("config.json", b"format: 1"), "config.json is no JSON as posnet-export writes it"),
    ("no UTF-8", content("config.json", b'{"format": "\xff"}'), "config.json is no JSON"),
    ("a link to itself", circle("config.json"), "model/? is a directory. Give a checkpoint"),
    ("no such architecture", config(architecture="bert"), "there is no architecture 'bert'"),
    ("an unknown option", option("rotate", True), "no model of posnet has the option rotate"),
    ("a text for a number", option("encoder_layers", "six"), "encoder_layers is 'six', not a whole number"),
    ("a width without weights", option("encoder_ffn_embed_dim", 2**17), "does not fit the options: it has encoder.lay"),
    ("a language that is a path", config(source_lang="../xx"), "the language '../xx' is no name such as de"),
    ("no language", config(target_lang=None), "the language None is no name such as de"),
    ("another language", config(target_lang="zz"), r"model \(the model's folder\) has no dict.zz.txt"),
    ("no weights", gone("model.safetensors"), f"model.safetensors: {NO_FILE}"),
    ("weights that are a circle of links", circle("model.safetensors"), f"model.safetensors: {NO_FILE}"),
    ("a pickle", pickled, NO_WEIGHTS),
    ("a header without end", content("model.safetensors", struct.pack("<Q", 2**63) + b"{}"), NO_WEIGHTS),
    ("a larger shape", header(lambda h: h[INNER].update(shape=[10**12, 10**12])), NO_WEIGHTS),
    ("a type that is none", header(lambda h: h[INNER].update(dtype="PY")), NO_WEIGHTS),
    ("numbers beyond the end", header(lambda h: h[INNER].update(data_offsets=[0, 10**15])), NO_WEIGHTS),
    ("a missing weight", weights(lambda w: w.pop(INNER)), f"does not fit the options: it lacks {INNER}"),
    ("a weight too much", weights(lambda w: w.update(new=torch.zeros(2))), r"it has new \(2,\), which the model lacks"),
    ("a weight that is no number", weight(one(float("nan"))), "inner.weight is infinite or NaN"),
    ("another shape", weight(lambda w: w.T.contiguous()), f"does not fit the options: it has {INNER}"),
    ("whole numbers", weight(torch.Tensor.int), "inner.weight has numbers of the type torch.int32"),
    ("no dictionary", gone("dict.xx.txt"), r"model \(the model's folder\) has no dict.xx.txt"),
    ("a dictionary of another size", words, "one dictionary for both languages, and those that are there differ"),
    ("no rules of tokenization", gone("dataset.json"), "model has no dataset.json, which says how its text was split"),
    ("rules that are none", content("dataset.json", b"[]"), "dataset.json is no card of a dataset"),
    ("a card without hashes", card(files=None, posnet="0.2.0"), "dataset.json is no card .*it lacks the hash of codes"),
    ("both kinds of subwords", card(sentencepiece_model="a"), "it names both bpe_codes and a sentencepiece_model"),
    ("no codes", gone("codes.xx.bpe"), "codes.xx.bpe: there is no such file"),
    ("other codes", content("codes.xx.bpe", b"#version: 0.2\na b\n"), "codes.xx.bpe is not the file that"),
]


def linked(target):
    """A function that puts a link in the place of a file."""

    def damage(name):
        def before(folder):
            (folder / "model" / name).unlink()
            (folder / "model" / name).symlink_to(target)

        return before

    return damage


def sparse(name):
    return lambda folder: os.truncate(folder / "model" / name, 2**26 + 1)


def directory(name):
    def before(folder):
        (folder / "model" / name).unlink()
        (folder / "model" / name).mkdir()

    return before


def reordered(folder):
    """A dictionary with two entries exchanged: each word is translated as the other."""
    path = folder / "model/dict.xx.txt"
    first, second, *others = path.read_text().splitlines(keepends=True)
    path.write_text("".join([second, first, *others]))


OTHER = "is not the file that config.json was written with. Copy the folder again"
NO_HASH = "config.json was changed since posnet-export wrote it, or lacks its hash. Copy"
CHANGED = [
    ("swapped words", reordered, f"dict.xx.txt {OTHER}"),
    ("changed weights", weight(one(0.125)), f"model.safetensors {OTHER}"),
    ("changed rules", card(words={"xx": {"tokenizer": "none"}, "yy": {}}), f"dataset.json {OTHER}"),
    ("a changed option", option("decoder_attention_heads", 1), NO_HASH),
    ("a changed search", config(search={"beam": 1}), NO_HASH),
    ("no hashes", config(files=None), NO_HASH),
    ("an older format with hashes", config(format=1), NO_HASH),
]
# What no small file may be; the memory of a process is a file that ends in an error of input and output.
SMALL = ("config.json", "dict.xx.txt", "dataset.json", "codes.xx.bpe")
ODD = {
    "a pipe": (pipe, "it is no regular file. Check the path"),
    "a device without end": (linked("/dev/zero"), "it is no regular file. Check the path"),
    "too large a file": (sparse, r"has more than [\d,]+ bytes, which no file of its kind has"),
    "a disk that fails": (linked("/proc/self/mem"), "Input/output error. Check the disk, or copy the file again"),
    "a folder": (directory, "is a directory. Give a file in it"),
}
ROWS = [Row(name, TRANSLATE, says, before=resealed(before)) for name, before, says in FOLDERS]
ROWS += [Row(name, TRANSLATE, says, before=before) for name, before, says in CHANGED]
ROWS += [
    Row(f"{what} for {name}", TRANSLATE, f"{name}:? {says}", before=damage(name))
    for what, (damage, says) in ODD.items()
    for name in SMALL
]
# The other commands that read a model; each is given what differs most from the rest.
COMMANDS = {
    "export": "posnet-export model --out new",
    "plot": "posnet-plot weights model --out figures",
    "plot of a sentence": "posnet-plot weights model --sentence 'a1 a2' --out figures",
}
SAMPLE = ("a newer format", "a pickle", "another shape")
ROWS += [
    Row(f"{row.name}: {name}", command, row.says, before=row.before)
    for row in ROWS
    if row.name in SAMPLE
    for name, command in COMMANDS.items()
]
AFTER = ("figures", "figures/*")
ROWS += [
    Row("an older folder", TRANSLATE, "12 sentences", 0, before=config(format=1, files=None, sha256=None)),
    Row("a whole folder", TRANSLATE, "12 sentences", code=0),
    Row("a folder and its checkpoint", f"{TRANSLATE.replace('model/', 'model/ model.pt')}", "12 sentences", code=0),
    Row("an output in the folder", f"{TRANSLATE} --output model/config.json", "is the same file as model/config.json"),
    Row("plot of a folder", "posnet-plot weights model --out figures", "shows every head", code=0, makes=AFTER),
    Row("precompute", "posnet-precompute model --out new.pt", "model is a model folder, not a checkpoint"),
    Row("average", "posnet-average model --num 1 --out new.pt", "model holds no numbered checkpoints"),
    Row("an output that is there", "posnet-export model.pt --out data", "--out data is there already"),
    Row("an output in no folder", "posnet-export model.pt --out none/new", "none is not there. Make it first"),
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
