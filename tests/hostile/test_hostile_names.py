"""Names of files that are not UTF-8, have control characters, or are too long or empty."""

import os

import sentencepiece

from support.hostile import Row, table
from support.hostile_files import (
    AVERAGE,
    PRECOMPUTE,
    REPORT,
    SCORE,
    SCORES,
    TRANSLATE,
    play_and_find_no_temporary_files,
)

RAW = os.fsdecode(b"\xff\xfe")  # a name that is not UTF-8


def pieces(folder):
    """A model of sentencepiece whose name is not UTF-8."""
    text = str(folder / "text/train.xx")
    sentencepiece.SentencePieceTrainer.train(input=text, model_prefix="pieces", vocab_size=20, minloglevel=2)
    (folder / "pieces.model").rename(folder / f"{RAW}.model")


NAMES = [
    Row("a name that is not UTF-8", f"{AVERAGE} {RAW}.pt", r"averaged into \\udcff\\udcfe", 0, makes=(f"{RAW}.pt",)),
    Row("a name of two lines", f"{AVERAGE} 'a\nb.pt'", "averaged into a", 0, makes=("a\nb.pt",)),
    Row("a name in color", f"{PRECOMPUTE} '\x1b[31mno/x'", r"the folder \\x1b\[31mno is not there"),
    Row("a missing name that is not UTF-8", f"posnet-precompute {RAW} --out x", r"\\udcff\\udcfe: there is no such"),
    Row(
        "a model whose name is not UTF-8",
        f"posnet-precompute {RAW}.pt --out fast.pt",
        "parameters",
        0,
        lambda folder: (folder / "model.pt").rename(folder / f"{RAW}.pt"),
        ("fast.pt",),
    ),
    Row(
        "a picture of it",
        f"posnet-plot weights {RAW}.pt --out {RAW}",
        "weights.html",
        0,
        lambda folder: (folder / "model.pt").rename(folder / f"{RAW}.pt"),
        (RAW, f"{RAW}/*"),
    ),
    Row(
        "pieces whose name is not UTF-8",
        f"{TRANSLATE} --sentencepiece-model {RAW}.model",
        "12 sentences",
        0,
        before=pieces,
    ),
    Row(
        "a system whose name is not UTF-8",
        f"{SCORE.replace('a=text/test.xx', RAW)} --skip-missing",
        "no system has an output",
    ),
    Row("a report in a folder that is not UTF-8", f"{SCORE} --out {RAW}", "", 0, makes=(RAW, f"{RAW}/*", *SCORES)),
    Row(
        "a system in a file that is not UTF-8",
        SCORE.replace("a=text/test.xx", f"a=text/test.xx b={RAW}") + " --skip-missing --out report",
        "missing: b",
        0,
        makes=REPORT,
    ),
    Row("a data directory that is not UTF-8", f"posnet-length-ratio {RAW}", "there is no such directory"),
]


@table(NAMES)
def test_row(row, folder, monkeypatch, capfd):
    play_and_find_no_temporary_files(row, folder, monkeypatch, capfd)
