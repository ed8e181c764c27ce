"""Text of one language, for language models."""

import json

import pytest

from posnet_data_prep import prepare
from posnet_fairseq.text.dictionary import Dictionary
from posnet_fairseq.text.pipeline import pipeline_of
from support.commands import refused
from support.scoring import write


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
    data = make(tmp_path, "--train", write(tmp_path / "my.txt", [*lines[:30], "", " ", *lines[30:]]))
    assert lines_of(data) == {"train": lines[:54], "valid": lines[54:57], "test": lines[57:]}
    card = json.loads((data / "dataset.json").read_text())
    assert card["sentences"] == {"train": 54, "valid": 3, "test": 3}
    pieces = (data / "test.bpe.txt").read_text().splitlines()
    assert [pipeline_of(data, ("", "")).decode(line) for line in pieces] == lines[57:]
    for name in ("train.bin", "valid.idx", "dict.txt"):
        assert (data / name).exists()
    # fairseq takes a file of such a name for the data
    assert not (data / "train").exists()


def test_notes_count_the_lines_of_the_whole_file(tmp_path):
    lines = [sentence(n).replace(".", " .") for n in range(60)]
    data = make(tmp_path, "--train", write(tmp_path / "my.txt", lines))
    (note,) = json.loads((data / "dataset.json").read_text())["notes"][-1:]
    assert note.startswith("my.txt looks tokenized: 60 lines end in a space and a period")


@pytest.mark.parametrize("options", [(), ("--no-bytes",)])
def test_any_character_comes_back(tmp_path, capsys, options):
    """Unless that is not wanted, as published figures were made without."""
    lines = [sentence(n) for n in range(60)]
    odd = " 🐟  \u0e1b\u0e25\u0e32 "
    data = make(tmp_path, "--train", write(tmp_path / "my.txt", [*lines, odd]), *options)
    pipeline = pipeline_of(data, ("", ""))
    line = (data / "test.bpe.txt").read_text().splitlines()[-1]
    dictionary = Dictionary.load(data / "dict.txt")
    assert (dictionary.unk() in map(dictionary.index, line.split())) == bool(options)
    assert (pipeline.decode(pipeline.encode(odd)) == pipeline.decode(line) == odd) == (not options)
    said = "1 of 3 lines of test.txt is not restored from its" if options else "every line of valid and test comes back"
    assert said in capsys.readouterr().err


def test_sets_of_ones_own_in_random_but_known_order(tmp_path):
    sets = {name: [f"{name}: {sentence(n)}" for n in range(30)] for name in ("train", "valid", "test")}
    files = [part for name, lines in sets.items() for part in (f"--{name}", write(tmp_path / name, lines))]
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
    data = make(tmp_path, "--train", write(tmp_path / "my.txt", lines), "--pieces", 4000)
    assert "<0xE6> 24\n" in (data / "dict.txt").read_text(), "the first byte of 日 and of 本 in 12 lines"
    assert 20 < len((data / "dict.txt").read_text().splitlines()) < 400


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--train short", "no sentences are left in the train set (0 train, 1 valid, 1 test)"),
        ("--train long --valid long", "--valid and --test belong together"),
        ("--train long --pieces 3", "--pieces 3: this text has more characters. Give "),
    ],
)
def test_bad_input(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "short", ["one", "two"])
    write(tmp_path / "long", map(sentence, range(40)))
    assert message in refused(capsys, lambda words: make(tmp_path, *words), *arguments.split())
    assert not (tmp_path / "data/dataset.json").exists()
