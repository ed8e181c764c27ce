"""posnet-translate --stream: between two pipes, one line at a time."""

import contextlib
import io
import os
import select
from concurrent.futures import ThreadPoolExecutor

import pytest

from posnet_fairseq.cli import translate
from support.commands import refused

OPTIONS = "--pretokenized --cpu --beam 2 --max-len-b 6".split()
SOURCES = [
    *("w1 w2 w3 w4", "w5", "", "w6 w7 w8", "\u200b ", "w9 w10", "w11 w12 w13 w14 w15 w16 w17 w18 w19", "w20", "w21")
]
PATIENCE = 120  # seconds until a line that does not come is missed


class Stream:
    """The command in a thread, between two pipes."""

    def __init__(self, model, folder, *more):
        paths = [str(folder / name) for name in ("in", "out")]
        for path in paths:
            os.mkfifo(path)
        arguments = [str(model), *OPTIONS, "--stream", "--input", paths[0], "--output", paths[1], *more]
        self._command = ThreadPoolExecutor().submit(translate.main, arguments)
        self._input, self.output = io.FileIO(paths[0], "w"), io.FileIO(paths[1])

    def write(self, text):
        self._input.write(text.encode())

    def read(self):
        """What comes next."""
        assert select.select([self.output], [], [], PATIENCE)[0], "nothing comes"
        return self.output.read(2**16).decode()

    def end(self):
        """All that comes when nothing more is given, and the exit code."""
        self._input.close()
        text = "" if self.output.closed else "".join(iter(self.read, ""))
        error = self._command.exception()
        return text, error.code if error else 0

    def close(self):
        self._input.close()
        self.output.close()


@pytest.fixture
def begin(small_model, tmp_path):
    """Function that starts the command, with more options."""
    with contextlib.ExitStack() as stack:
        yield lambda *more: stack.enter_context(contextlib.closing(Stream(small_model, tmp_path, *more)))


@pytest.fixture(scope="module")
def expected(small_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected")
    (folder / "in").write_text("".join(f"{line}\n" for line in SOURCES))
    translate.main([str(small_model), *OPTIONS, "--input", str(folder / "in"), "--output", str(folder / "out")])
    return (folder / "out").read_text().split("\n")[:-1]


def test_each_line_comes_before_the_next_is_given(begin, expected):
    stream = begin()
    for line, translation in zip(SOURCES, expected, strict=True):
        stream.write(f"{line}\n")
        assert stream.read() == f"{translation}\n"
    assert stream.end() == ("", 0)


@pytest.mark.parametrize("max_tokens", [1, 12, 2000])
def test_what_is_there_is_translated_in_order(begin, expected, max_tokens):
    stream = begin("--max-tokens", str(max_tokens))
    stream.write("".join(f"{line}\n" for line in SOURCES * 8))
    text, code = stream.end()
    assert (text.split("\n")[:-1], code) == (expected * 8, 0)


def test_a_line_is_cut_anywhere(begin, expected):
    stream = begin()
    stream.write("w5\nw6 ")
    assert stream.read() == f"{expected[1]}\n"
    stream.write("w7 w8\nw9 w")
    assert stream.read() == f"{expected[3]}\n"
    stream.write("10")
    assert stream.end() == (f"{expected[5]}\n", 0)


def test_nothing_comes(begin, capfd):
    stream = begin()
    assert stream.end() == ("", 0)
    assert "0 sentences in" in capfd.readouterr().err


def test_lines_in_front_of_one_that_is_refused_are_translated(begin, expected, capfd):
    stream = begin()
    stream.write("w5\nw6 w7 w8\n" + "w1 " * 200 + "\nw5\n")
    assert stream.end() == (f"{expected[1]}\n{expected[3]}\n", 2)
    assert "line 3 has 201 tokens" in capfd.readouterr().err
    said = " ".join(translate._parser().format_help().split())
    assert "anything of a window of 4,000 lines; with --stream, it translates the lines before that one" in said


def test_lines_in_front_of_one_that_is_refused_begin_with_the_prefix(begin):
    stream = begin("--prefix", "w9")
    stream.write("w5\n" + "w1 " * 200 + "\n")
    text, code = stream.end()
    assert (text.split()[0], code) == ("w9", 2)


def test_terms_of_lines_in_front_of_one_that_is_refused(begin, expected, tmp_path, capfd):
    (tmp_path / "terms").write_text("w7 w8\tw1\n")
    stream = begin("--terms", str(tmp_path / "terms"))
    stream.write("w6 w7 w8\nw5\n" + "w1 " * 200 + "\n")
    text, code = stream.end()
    lines = text.split("\n")
    assert ("w1" in lines[0].split(), lines[1], code) == (True, expected[1], 2)


def test_nobody_reads(begin):
    stream = begin()
    stream.write("w5\n")
    stream.read()
    stream.output.close()
    stream.write("w5\n")
    assert stream.end() == ("", 141)


def test_standard_streams(small_model, monkeypatch, tmp_path, expected, capfd):
    (tmp_path / "in").write_text("w5\n\nw6 w7 w8")
    with open(tmp_path / "in") as file:
        monkeypatch.setattr("sys.stdin", file)
        translate.main([str(small_model), *OPTIONS, "--stream"])
    found = capfd.readouterr()
    assert found.out == f"{expected[1]}\n\n{expected[3]}\n"
    assert "2 sentences in" in found.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--output", "file"], "--output file: --stream writes to pipes, line by line. Leave it out"),
        (["--prefix", "./file"], "--prefix ./file with --stream: leave one of the two out"),
        (["--constraints", "file"], "--constraints file with --stream: leave one of the two out"),
        (["--processes", "2"], "--processes 2 with --stream: leave one of the two out"),
        (["--input", "none"], "none: No such file or directory. Check the path"),
    ],
)
def test_refused(small_model, tmp_path, monkeypatch, capfd, options, says):
    monkeypatch.chdir(tmp_path)
    assert says in refused(capfd, translate.main, small_model, *OPTIONS, "--stream", *options)
    assert not list(tmp_path.iterdir())


def test_sentences_of_a_line_are_translated_one_by_one(begin, small_model, tmp_path):
    """As lines of their own."""
    lines = ["W1 w2 w3. W4 w5! W6 w7.", "", "w8"]
    for name, text in (("lines", lines), ("sentences", ["W1 w2 w3.", "W4 w5!", "W6 w7.", "", "w8"])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in text))
    options = [str(small_model), *OPTIONS, "--output", str(tmp_path / "translated"), "--input"]
    translate.main([*options, str(tmp_path / "sentences")])
    first, second, third, *rest = (tmp_path / "translated").read_text().splitlines()
    expected = [f"{first} {second} {third}", *rest]
    translate.main([*options, str(tmp_path / "lines"), "--split-sentences"])
    assert (tmp_path / "translated").read_text().splitlines() == expected
    stream = begin("--split-sentences", "--on-long", "skip")
    stream.write("".join(f"{line}\n" for line in lines))
    assert stream.end() == ("".join(f"{line}\n" for line in expected), 0)
