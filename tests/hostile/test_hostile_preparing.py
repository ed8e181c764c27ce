"""posnet-prepare and the data it makes, used carelessly and with hostile text."""

import json
import shutil

from support.hostile import Row, play, table, then, write

CORPUS = "posnet-prepare corpus --workers 1 --merges 20 --out out"
TRAIN = f"{CORPUS} --train text/train.xx text/train.yy"
EVERY = f"{TRAIN} --valid-every 9"
MADE = ("out", "out/*", "out/stages/*", "out/stages/*/*")


def append(pairs):
    """What adds pairs of lines to the training text."""

    def add(folder):
        for name, lines in zip(("xx", "yy"), zip(*pairs, strict=True), strict=True):
            with open(folder / f"text/train.{name}", "ab") as file:
                file.writelines(f"{line}\n".encode() for line in lines)

    return add


def card(folder):
    return json.loads((folder / "out/dataset.json").read_text())


def notes(*expected):
    """What looks for sentences among the notes of the card."""

    def look(folder):
        found = "\n".join(card(folder)["notes"])
        for text in expected:
            assert text in found, found
        assert len(card(folder)["notes"]) == len(expected), found

    return look


def dropped(why, count):
    """What looks how many pairs were left out of training."""

    def look(folder):
        assert card(folder)["stages"]["apply"]["counts"]["train"][f"dropped, {why}"] == count

    return look


def unpublished(folder):
    """A dataset whose card is lost."""
    shutil.copytree(folder / "data", folder / "out")
    (folder / "out/dataset.json").unlink()


def damaged_in_the_middle(name, data):
    """What leaves a dataset as an interrupted run does, with a damaged note."""

    def change(folder):
        unpublished(folder)
        shutil.rmtree(folder / "out/stages/binarise")
        partial = folder / "out/stages/apply.partial"
        (folder / "out/stages/apply").rename(partial)
        (partial / "stage.json").write_text((partial / "stage.json").read_text().replace("true", "false"))
        (partial / name).write_bytes(data)

    return change


def whole(folder):
    """The dataset is as the one beside it."""
    for name in json.loads((folder / "data/dataset.json").read_text())["files"]:
        assert (folder / "out" / name).read_bytes() == (folder / "data" / name).read_bytes(), name


AGAIN = f"{TRAIN} --valid text/valid.xx text/valid.yy --test text/test.xx text/test.yy"
HIDDEN = [("\u200b", "a"), ("a1 a2", "\u00ad \u2060"), ("\ufeff", "\ufeff"), ("\u200b\u200e", "\u200b"), ("", "b1")]

ROWS = [
    # names that fairseq cannot be given
    Row("a colon", EVERY.replace("--out out", "--out a:b"), r"--out a:b: fairseq takes a colon for the end"),
    Row("a leading dash", EVERY.replace("--out out", "--out=-out"), "--out -out: other commands take it for an option"),
    Row("braces", EVERY.replace("--out out", "--out '${out}'"), r"--out \$\{out\}: fairseq reads \$\{"),
    Row("a last backslash", EVERY.replace("--out out", "--out 'out\\'"), "and a last backslash in its own way"),
    # numbers
    Row("a ratio that is none", f"{EVERY} --max-ratio nan", "--max-ratio nan: give 1 or more"),
    Row("long and short", f"{EVERY} --min-length 9 --max-length 3", "--min-length 9 is more than --max-length 3"),
    # said: fewer pieces, pairs twice, normal forms
    Row(
        "more pieces than the text has", f"{EVERY.replace('--merges 20', '')} --subwords sentencepiece --pieces 100000",
        r"note: only \d+ of 100,000 pieces could be learned", 0, makes=MADE,
        after=notes("of 100,000 pieces could be learned from the training", "repeat an earlier", "of the valid set"),
    ),
    Row(
        "another normal form", f"{EVERY}", "pairs that are not in Unicode normal form NFC: 2 train", 0,
        before=append([("a1 e\u0301 a2", "b1 b2 b3"), ("a1 a2", "b1 u\u0308"), ("\u00e9", "\u00fc")]), makes=MADE,
        after=lambda folder: (folder / "out/train.xx").read_text().index("e\u0301"),
    ),
    # what is an empty line, and what ends a line
    Row(
        "lines that show nothing", f"{EVERY} --max-ratio 9", "lines: 267 train, 33 valid", 0, before=append(HIDDEN),
        makes=MADE, after=dropped("empty", 5),
    ),
    # inputs that are none
    Row(
        "sides of unequal length", EVERY, "text/train.xx has 300 lines, text/train.yy has more", makes=MADE,
        before=lambda folder: (folder / "text/train.yy").open("a").write("b1\n") and None,
    ),
    Row(
        "huge lines", f"{EVERY} --max-ratio 9", "lines: 267 train", 0,
        before=append([("a" * 2_000_000, "b1"), ("a1 " * 200_000, "b")]), makes=MADE, after=dropped("length", 1),
    ),
    # damaged companions of stages: what is damaged is made anew
    *(
        Row(
            f"a damaged {name}", AGAIN, "lines: 300 train", 0, before=then(unpublished, write(f"out/{name}", data)),
            makes=MADE, after=whole,
        )
        for name, data in {
            "dataset.json": "[" * 100_000,
            "stages/apply/stage.json": '{"key": "x", "files": {"../../text/train.xx": '
            '{"bytes": 1, "changed": 1, "sha256": ""}}}',
        }.items()
    ),
    Row(
        "a note of progress beyond the files", AGAIN, "lines: 300 train", 0, makes=MADE, after=whole,
        before=damaged_in_the_middle(
            "train.progress",
            b'{"read": [1, 1, 1, 1, 1], "written": [999999, 9, 9, 9], "lines": 7, "counts": {}}',
        ),
    ),
    Row("a record of a stage that is no text", AGAIN, "lines: 300 train", 0, makes=MADE, after=whole,
        before=damaged_in_the_middle("stage.json", b"\xff")),
    Row(
        "a file in place of a stage's folder", AGAIN, "lines: 300 train", 0, makes=MADE, after=whole,
        before=then(
            unpublished, lambda folder: shutil.rmtree(folder / "out/stages/apply"), write("out/stages/apply", "x"),
        ),
    ),
]  # fmt: skip


@table(ROWS)
def test_row(row, folder, monkeypatch, capfd):
    play(row, folder, monkeypatch, capfd)
