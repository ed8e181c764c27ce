"""All that can be given as a checkpoint."""

import math
import zipfile
from argparse import Namespace

import pytest
import torch

from posnet_fairseq.inference.checkpoints import read_checkpoint
from posnet_fairseq.shared.errors import UsageError
from support.damaged import changed, one, tar, weight, zeros
from support.hostile import Row, also, play, table, then

TRANSLATE = "posnet-translate bad.pt --input text/test.xx --pretokenized --beam 1 --max-len-b 2"
NO_CHECKPOINT = "bad.pt is damaged or no checkpoint"
DAMAGED = "bad.pt is damaged: its weight .*inner.weight is not what was written"
EMBEDDING = "encoder.embed_tokens.weight"


def option(name, value):
    return changed(lambda state: state["cfg"]["model"].update({name: value}))


def part(name, value):
    return changed(lambda state: state.update({name: value}))


CONTENTS = [
    ("a tar of an old torch", tar, NO_CHECKPOINT),
    ("a text for a number", option("encoder_layers", "six"), "encoder_layers is 'six', not a whole number"),
    ("no number", option("dropout", math.nan), "dropout is nan, not a number"),
    ("a number for a switch", option("share_all_embeddings", 7), "share_all_embeddings is 7, not a switch"),
    ("an unknown choice", option("gate", "wide"), "gate is 'wide', not one of"),
    ("a missing option", option("encoder_layers", None), "encoder_layers is missing"),
    ("an absurd size", option("encoder_ffn_embed_dim", 10**30), "0, not a whole number of at most 1,000,000,000"),
    (
        "ten million layers",
        option("decoder_layers", 10**7),
        "10,000,000 layers of the decoder, and it has weights of 1",
    ),
    ("an architecture without end", option("_name", "x" * 10**7), "holds the model x{100};"),
    (
        "a task of several languages",
        changed(lambda state: state["cfg"].update(task=Namespace(task="multilingual_translation"))),
        "bad.pt: its task is missing, or none of translation and language_modeling. Take another",
    ),
    ("a ratio without end", option("length_ratio", "1e999999999"), "--length-ratio 1e999999999: give a number from"),
    ("an empty history", part("optimizer_history", [{}]), "its optimizer_history does not tell how many updates"),
    ("a list for weights", part("model", [1]), "bad.pt: it has no weights"),
    ("a tensor for weights", part("model", torch.zeros(2)), "bad.pt: it has no weights"),
    ("whole numbers", weight(torch.Tensor.int), "feed_forward.inner.weight has numbers of the type torch.int32"),
    ("a sparse weight", weight(torch.Tensor.to_sparse), "inner.weight is no dense tensor of real numbers"),
    (
        "a weight that is all one number",
        weight(lambda _: torch.zeros(1).expand(10**9, 64), EMBEDDING),
        "embed_tokens.weight is no dense tensor of real",
    ),
    ("no words", weight(lambda w: w[:0].clone(), EMBEDDING), "the checkpoint was trained with 0"),
    ("a weight that is no number", weight(one(math.nan)), "bad.pt: the weight .*inner.weight is infinite or NaN"),
    (
        "numbers of 8 bits",
        weight(lambda w: w.to(torch.float8_e4m3fn)),
        "has numbers of the type torch.float8_e4m3fn",
    ),
    ("zeros in its middle", then(changed(lambda state: None), zeros("bad.pt")), DAMAGED),
    # A size of which no model can be built.
    ("a giant width", option("decoder_embed_dim", 10**9), "-dim 1000000000: give 1 or more, and at most 32,768"),
]
ROWS = [Row(name, TRANSLATE, says, before=before) for name, before, says in CONTENTS]

OTHERS = [
    "posnet-precompute bad.pt --out out.pt",
    "posnet-export bad.pt --out new",
    "posnet-plot weights bad.pt --sentence 'a1 a2' --pretokenized --out figures",
    "posnet-bench decode --mixers --checkpoints bad.pt --lengths 4 --beams 1 --rounds 1 --size tiny",
]
ROWS += also(OTHERS, "an unknown choice", ROWS)


@table(ROWS)
def test_row(row, folder, monkeypatch, capfd):
    play(row, folder, monkeypatch, capfd)


def test_an_archive_that_is_larger_than_it_looks_is_not_read(folder, monkeypatch):
    """Its parts would be unpacked in memory before anything else is looked at: a hundred times its size."""
    state = torch.load(folder / "model.pt", weights_only=True)
    torch.save(state | {"extra_state": torch.zeros(10**6)}, folder / "large.pt")
    with zipfile.ZipFile(folder / "large.pt") as file, zipfile.ZipFile(folder / "bad.pt", "w") as bad:
        for name in file.namelist():
            bad.writestr(name, file.read(name), zipfile.ZIP_DEFLATED)
    read = []
    monkeypatch.setattr(torch, "load", lambda *arguments, **options: read.append(arguments))
    with pytest.raises(UsageError, match=NO_CHECKPOINT):
        read_checkpoint(folder / "bad.pt")
    assert not read
