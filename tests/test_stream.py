"""posnet-translate --stream: between two pipes, one line at a time."""

import os
import select
import threading

import pytest

from posnet_fairseq.cli import translate
from support.checkpoints import checkpoint
from support.commands import refused

OPTIONS = "--pretokenized --cpu --beam 2 --max-len-b 6".split()
SOURCES = [
    "w1 w2 w3 w4",
    "w5",
    "",
    "w6 w7 w8",
    "\u200b ",
    "w9 w10",
    "w11 w12 w13 w14 w15 w16 w17 w18 w19",
    "w20",
    "w21",
]
PATIENCE = 120  # seconds until a line that does not come is missed


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return checkpoint(tmp_path_factory.mktemp("stream") / "model.pt", "rposnet")


@pytest.fixture
def stream(model, tmp_path, monkeypatch):
    """Function that runs the command with `talk` at the other ends of its pipes; returns the exit code.

    `talk` is called with three functions: to write bytes (None closes the pipe), to read what comes next, and to close
    the pipe that is read.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("in", "out"):
        os.mkfifo(name)

    def stream(talk, *more):
        failed = []

        def at_the_other_ends():
            writing, reading = os.open("in", os.O_WRONLY), os.open("out", os.O_RDONLY)
            open_ends = {writing, reading}

            def close(end):
                open_ends.discard(end)
                os.close(end)

            def write(data):
                close(writing) if data is None else os.write(writing, data)

            def read():
                assert select.select([reading], [], [], PATIENCE)[0], "nothing comes"
                return os.read(reading, 2**16).decode()

            try:
                talk(write, read, lambda: close(reading))
            except BaseException as error:
                failed.append(error)
            for end in list(open_ends):
                close(end)

        thread = threading.Thread(target=at_the_other_ends)
        thread.start()
        code = 0
        try:
            translate.main([str(model), *OPTIONS, "--stream", "--input", "in", "--output", "out", *more])
        except SystemExit as end:
            code = end.code
        thread.join()
        if failed:
            raise failed[0]
        return code

    return stream


@pytest.fixture(scope="module")
def expected(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected")
    (folder / "in").write_text("".join(f"{line}\n" for line in SOURCES))
    translate.main([str(model), *OPTIONS, "--input", str(folder / "in"), "--output", str(folder / "out")])
    return (folder / "out").read_text().split("\n")[:-1]


def read_all(read):
    text = ""
    while part := read():
        text += part
    return text


def test_each_line_comes_before_the_next_is_given(stream, expected):
    def talk(write, read, _):
        for line, translation in zip(SOURCES, expected, strict=True):
            write(f"{line}\n".encode())
            assert read() == f"{translation}\n"
        write(None)
        assert read() == ""

    assert stream(talk) == 0


@pytest.mark.parametrize("max_tokens", [1, 12, 2000])
def test_what_is_there_is_translated_in_order(stream, expected, max_tokens):
    def talk(write, read, _):
        write("".join(f"{line}\n" for line in SOURCES * 8).encode())
        write(None)
        assert read_all(read).split("\n")[:-1] == expected * 8

    assert stream(talk, "--max-tokens", str(max_tokens)) == 0


def test_a_line_is_cut_anywhere(stream, expected):
    def talk(write, read, _):
        write(b"w5\nw6 ")
        assert read() == f"{expected[1]}\n"
        write(b"w7 w8\nw9 w")
        assert read() == f"{expected[3]}\n"
        write(b"10")
        write(None)
        assert read_all(read) == f"{expected[5]}\n"

    assert stream(talk) == 0


def test_nothing_comes(stream, capfd):
    assert stream(lambda write, read, _: write(None)) == 0
    assert "0 sentences in" in capfd.readouterr().err


def test_lines_in_front_of_one_that_is_refused_are_translated(stream, expected, capfd):
    def talk(write, read, _):
        write(b"w5\nw6 w7 w8\n" + b"w1 " * 200 + b"\nw5\n")
        write(None)
        assert read_all(read) == f"{expected[1]}\n{expected[3]}\n"

    assert stream(talk) == 2
    assert "line 3 has 201 tokens" in capfd.readouterr().err
    said = " ".join(translate._parser().format_help().split())
    assert "anything of a window of 4,000 lines; with --stream, it translates the lines before that one" in said


def test_nobody_reads(stream):
    def talk(write, read, hang_up):
        write(b"w5\n")
        read()
        hang_up()
        write(b"w5\n")

    assert stream(talk) == 141


def test_standard_streams(model, monkeypatch, tmp_path, expected, capfd):
    (tmp_path / "in").write_text("w5\n\nw6 w7 w8")
    with open(tmp_path / "in") as file:
        monkeypatch.setattr("sys.stdin", file)
        translate.main([str(model), *OPTIONS, "--stream"])
    found = capfd.readouterr()
    assert found.out == f"{expected[1]}\n\n{expected[3]}\n"
    assert "2 sentences in" in found.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--output", "file"], "--output file: --stream writes to pipes, line by line. Leave it out"),
        (["--prefix", "./file"], "--prefix ./file with --stream: leave one of the two out"),
        (["--processes", "2"], "--processes 2 with --stream: leave one of the two out"),
        (["--input", "none"], "none: No such file or directory. Check the path"),
    ],
)
def test_refused(model, tmp_path, monkeypatch, capfd, options, says):
    monkeypatch.chdir(tmp_path)
    assert says in refused(capfd, translate.main, model, *OPTIONS, "--stream", *options)
    assert not list(tmp_path.iterdir())
