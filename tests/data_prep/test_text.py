"""Text of one language, for language models."""

import json

import pytest

from posnet_data_prep import prepare
from posnet_fairseq.text.pipeline import pipeline_of


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def sentence(number):
    return f"This is sentence {number} of the text."


def make(folder, *arguments):
    out = folder / "data"
    prepare.main(["text", "--pieces", "40", "--workers", "1", "--out", str(out), *map(str, arguments)])
    return out


def lines_of(data):
    return {name: (data / f"{name}.txt").read_text().splitlines() for name in ("train", "valid", "test")}


def test_the_end_of_a_text_is_held_out(tmp_path):
    lines = [sentence(n) for n in range(60)]
    data = make(tmp_path, "--train", write(tmp_path / "my.txt", *lines[:30], "", " ", *lines[30:]))
    assert lines_of(data) == {"train": lines[:54], "valid": lines[54:57], "test": lines[57:]}
    card = json.loads((data / "dataset.json").read_text())
    assert card["sentences"] == {"train": 54, "valid": 3, "test": 3}
    pieces = (data / "test.bpe.txt").read_text().splitlines()
    assert [pipeline_of(data, ("", "")).decode(line) for line in pieces] == lines[57:]
    for name in ("train.bin", "valid.idx", "dict.txt"):
        assert (data / name).exists()
    # fairseq takes a file of such a name for the data
    assert not (data / "train").exists()


def test_sets_of_ones_own_in_random_but_known_order(tmp_path):
    sets = {name: [f"{name}: {sentence(n)}" for n in range(30)] for name in ("train", "valid", "test")}
    files = [part for name, lines in sets.items() for part in (f"--{name}", write(tmp_path / name, *lines))]
    first, again = tmp_path / "first", tmp_path / "again"
    for folder in (first, again):
        folder.mkdir()
        make(folder, *files, "--shuffle", 1)
    shuffled = lines_of(first / "data")
    assert shuffled == lines_of(again / "data")
    assert shuffled != sets
    assert {name: sorted(lines) for name, lines in shuffled.items()} == {
        name: sorted(lines) for name, lines in sets.items()
    }


def test_long_lines_and_little_text(tmp_path):
    """Nothing is left out, and there are no more pieces than the text has."""
    lines = [f"{sentence(n)} {'word ' * 2000}日本" if n % 3 == 0 else sentence(n) for n in range(40)]
    data = make(tmp_path, "--train", write(tmp_path / "my.txt", *lines), "--pieces", 4000)
    assert "日" in (data / "dict.txt").read_text()
    assert 20 < len((data / "dict.txt").read_text().splitlines()) < 400


def refused(capsys, folder, *arguments):
    with pytest.raises(SystemExit) as error:
        make(folder, *arguments)
    assert error.value.code == 2
    assert not (folder / "data/dataset.json").exists()
    return capsys.readouterr().err


def test_bad_input(capsys, tmp_path):
    short = write(tmp_path / "short.txt", "one", "two")
    long = write(tmp_path / "long.txt", *map(sentence, range(40)))
    empty = write(tmp_path / "empty.txt", "", " ")
    split = write(tmp_path / "split.txt", *(sentence(n).replace("se", "s@@ e") for n in range(40)))
    latin = tmp_path / "latin.txt"
    latin.write_bytes("Müll\n".encode("latin-1"))
    for arguments, message in {
        ("--train", short): "short.txt has 2 lines with text, too few",
        ("--train", tmp_path / "none.txt"): "none.txt: there is no such file. Check the path.",
        ("--train", tmp_path): "is a folder or a pipe",
        ("--train", split): "split.txt is split into subwords (36 of 36 lines",
        ("--train", latin): "latin.txt is not UTF-8: line 1",
        ("--train", long, "--valid", long): "--valid and --test belong together",
        ("--train", long, "--valid", long, "--test", empty): "empty.txt has no text",
        (
            "--train",
            long,
            "--pieces",
            3,
        ): "--pieces 3: they cannot be learnt from this text. Vocabulary size is smaller",
        ("--train", long, "--pieces", 0): "--pieces 0: give 1 or more",
        ("--train", long, "--workers", 0): "--workers 0: give 1 or more",
    }.items():
        assert message in refused(capsys, tmp_path, *arguments), message


def test_made_again_only_if_something_has_changed(capsys, tmp_path):
    text = write(tmp_path / "my.txt", *map(sentence, range(40)))
    data = make(tmp_path, "--train", text)
    before = (data / "dataset.json").read_bytes()
    make(tmp_path, "--train", text)
    assert "is up to date" in capsys.readouterr().err
    assert (data / "dataset.json").read_bytes() == before
    write(text, *map(sentence, range(60)))
    make(tmp_path, "--train", text)
    assert len(lines_of(data)["train"]) == 54
