"""All that can be given as a checkpoint."""

import json
import math
import os
import pickle
import struct
import zipfile
from argparse import Namespace

import pytest
import torch

from posnet_fairseq.inference.checkpoints import read_checkpoint
from posnet_fairseq.shared.errors import UsageError
from support.damaged import changed, one, tar, weight
from support.hostile import Row, play, table, write

TRANSLATE = "posnet-translate bad.pt --input text/test.xx --pretokenized --beam 1 --max-len-b 2"
NO_CHECKPOINT = "bad.pt is damaged or no checkpoint"
EMBEDDING = "encoder.embed_tokens.weight"


def option(name, value, **more):
    return changed(lambda state: state["cfg"]["model"].update({name: value} | more))


def part(name, value):
    return changed(lambda state: state.update({name: value}))


def script(folder):
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), folder / "bad.pt")


def archive(folder):
    with zipfile.ZipFile(folder / "bad.pt", "w") as file:
        file.writestr("a/text", "hello")


def compressed(folder):
    """A checkpoint that is a hundredth of what it would be in memory."""
    state = torch.load(folder / "model.pt", weights_only=True)
    torch.save(state | {"extra_state": torch.zeros(10**6)}, folder / "bad.pt")
    with zipfile.ZipFile(folder / "bad.pt") as file:
        parts = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(folder / "bad.pt", "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in parts.items():
            file.writestr(name, data)


def safetensors():
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


class Foreign:
    """An object that only a pickle that runs code would bring back."""


def foreign(folder):
    state = torch.load(folder / "model.pt", weights_only=True)
    torch.save(state | {"extra_state": Foreign()}, folder / "bad.pt")


FILES = [
    ("a directory", lambda folder: (folder / "bad.pt").mkdir(), "bad.pt is a directory. Give a checkpoint in it"),
    ("a pipe", lambda folder: os.mkfifo(folder / "bad.pt"), "bad.pt: it is no regular file"),
    ("a device", lambda folder: (folder / "bad.pt").symlink_to("/dev/null"), "bad.pt: it is no regular file"),
    ("a link to nothing", lambda folder: (folder / "bad.pt").symlink_to("x"), "bad.pt: there is no such checkpoint"),
    ("random bytes", write("bad.pt", bytes(range(256)) * 50), NO_CHECKPOINT),
    ("a tar of an old torch", tar, NO_CHECKPOINT),
    ("a TorchScript archive", script, NO_CHECKPOINT),
    ("a zip of something else", archive, NO_CHECKPOINT),
    ("a zip that is larger than it looks", compressed, NO_CHECKPOINT),
    ("safetensors", write("bad.pt", safetensors()), "bad.pt (is damaged or no checkpoint|holds no fairseq model)"),
    ("a pickle", write("bad.pt", pickle.dumps({"model": 1})), NO_CHECKPOINT),
    ("a class of somebody's own", foreign, "bad.pt was refused: it holds objects that could run code"),
]
CONTENTS = [
    ("a text for a number", option("encoder_layers", "six"), "encoder_layers is 'six', not a whole number"),
    ("a fraction for a whole number", option("decoder_layers", 2.5), "decoder_layers is 2.5, not a whole number"),
    ("no number", option("dropout", math.nan), "dropout is nan, not a number"),
    ("a number for a switch", option("share_all_embeddings", 7), "share_all_embeddings is 7, not a switch"),
    ("a list", option("gate", ["relu"]), "gate is a list, not a plain value"),
    ("an unknown choice", option("gate", "wide"), "gate is 'wide', not one of"),
    ("a number for a name", option("cross_mixer", 3), "cross_mixer is 3, not a text"),
    ("a missing option", option("encoder_layers", None), "encoder_layers is missing"),
    ("an absurd size", option("encoder_ffn_embed_dim", 10**30), "is too large a number, not a whole number"),
    ("ten million layers", option("decoder_layers", 10**7), "10000000 layers of the decoder, and it has weights of 2"),
    ("an architecture without end", option("_name", "x" * 10**7), "holds the model x{100};"),
    ("a model of fairseq's", changed(lambda s: s["cfg"].update(model=Namespace(arch="lstm"))), "holds the model lstm;"),
    (
        "a task of several languages",
        changed(lambda state: state["cfg"].update(task=Namespace(task="multilingual_translation"))),
        "bad.pt was trained with --task multilingual_translation; posnet's commands work with models of the tasks tr",
    ),
    ("no task", changed(lambda state: state["cfg"].pop("task")), "bad.pt lacks its task"),
    ("a folder that is none", changed(lambda s: s["cfg"]["task"].update(data=5)), "its task's data is no text"),
    ("a ratio without end", option("length_ratio", "1e999999999"), "--length-ratio 1e999999999: give a number from"),
    ("an empty history", part("optimizer_history", [{}]), "its optimizer_history does not tell how many updates"),
    ("a list for weights", part("model", [1]), "its model is a list"),
    ("a number for a weight", weight(lambda _: 5), "the weight encoder.* is a int"),
    ("whole numbers", weight(torch.Tensor.int), "feed_forward.inner.weight has numbers of the type torch.int32"),
    (
        "a sparse weight",
        weight(torch.Tensor.to_sparse),
        "inner.weight is a sparse, nested, quantized or complex tensor",
    ),
    ("a weight without values", weight(lambda w: w.to("meta")), "inner.weight has a size, but not the numbers"),
    (
        "a weight that is all one number",
        weight(lambda _: torch.zeros(1).expand(10**9, 64), EMBEDDING),
        "embed_tokens.weight has a size, but not the numbers",
    ),
    ("no words", weight(lambda w: w[:0].clone(), EMBEDDING), "the checkpoint was trained with 0"),
    ("a missing weight", changed(lambda s: s["model"].pop(EMBEDDING)), f"it lacks {EMBEDDING}"),
    ("a weight that is no number", weight(one(math.nan)), "bad.pt: the weight .*inner.weight is infinite or NaN"),
]
# Sizes and options of which no model can be built.
OPTIONS = [
    ("no layers", option("encoder_layers", 0), "0 layers of the encoder, and it has weights of 2"),
    ("a giant width", option("decoder_embed_dim", 10**9), "-dim 1000000000: give 1 or more, and at most 32,768"),
    ("no heads", option("encoder_attention_heads", 0), "--encoder-attention-heads 0: give 1 or more"),
    ("heads in parts", option("encoder_attention_heads", 5), "5: the width 64 of the encoder does not divide by it"),
    ("a billion positions", option("max_source_positions", 10**9), "1000000000: give 1 or more, and at most"),
    ("no distance", option("clip_distance", "0"), "--clip-distance 0: give 1 or more"),
    ("far distances", option("clip_distance", "100000000"), "100000000: give 1 or more, and at most 65,536"),
    ("a long distance", option("clip_distance", "1000000000"), "give a whole number of at most 9 digits"),
    ("distances of 3 layers", option("clip_distance", "4,8,16"), "4,8,16: these are 3 values for 2 layers"),
    ("half a list of distances", option("clip_distance", "4,"), "--clip-distance 4,: give a whole number"),
    ("more dropout than there is", option("dropout", 2.0), r"--dropout 2\.0: give 0 or more and less than 1"),
    ("an unknown mixer", option("encoder_self_mixer", "mamba"), "-mixer mamba: there is no such mixer"),
    ("a mixer elsewhere", option("decoder_self_mixer", "fouriernet"), "fouriernet: this mixer cannot stand there"),
    ("a distance below 0", option("decoder_self_mixer", "irpe", irpe_beta=-1), "--irpe-beta -1: give 1 or more"),
    (
        "as many matrices as positions",
        option("encoder_self_mixer", "translution", max_source_positions=10**6),
        "--translution-clip left out: 1999999 matrices",
    ),
    (
        "giant matrices",
        option("encoder_self_mixer", "alpha_translution", alpha_dim=10**4, translution_clip=4),
        "--translution-clip 4: 9 matrices of 40000 × 40000",
    ),
]
ROWS = [Row(name, TRANSLATE, says, before=before) for name, before, says in FILES + CONTENTS + OPTIONS]
ROWS += [
    Row(f"trained with {options}", f"train {options}", says, makes=("trained",))
    for options, says in {
        "--encoder-layers 10000000": "--encoder-layers 10000000: give 1 or more, and at most 1,000",
        "--clip-distance 100000000": "--clip-distance 100000000: give 1 or more, and at most 65,536",
    }.items()
]

# The other commands that read a model; each is given what differs most from the rest.
COMMANDS = {
    "precompute": "posnet-precompute bad.pt --out out.pt",
    "export": "posnet-export bad.pt --out new",
    "plot": "posnet-plot weights bad.pt --out figures",
    "plot of a sentence": "posnet-plot weights bad.pt --sentence 'a1 a2' --pretokenized --out figures",
    "bench": "posnet-bench decode --mixers --checkpoints bad.pt --lengths 4 --beams 1 --rounds 1 --size tiny",
}
SAMPLE = ("a directory", "a tar of an old torch", "a text for a number", "ten million layers", "an unknown choice")
ROWS += [
    Row(f"{row.name}: {name}", command, row.says, before=row.before)
    for row in ROWS
    if row.name in SAMPLE
    for name, command in COMMANDS.items()
]


@table(ROWS)
def test_row(row, folder, monkeypatch, capfd):
    play(row, folder, monkeypatch, capfd)


def test_an_archive_that_is_larger_than_it_looks_is_not_read(folder, monkeypatch):
    """Its parts would be unpacked in memory before anything else is looked at."""
    compressed(folder)
    read = []
    monkeypatch.setattr(torch, "load", lambda *arguments, **options: read.append(arguments))
    with pytest.raises(UsageError, match=NO_CHECKPOINT):
        read_checkpoint(folder / "bad.pt")
    assert not read
