"""posnet-translate, stopped and started again."""

import contextlib
import re

import pytest

from posnet_fairseq.cli import export, translate
from posnet_fairseq.inference import translating
from posnet_fairseq.inference.translator import Translator
from posnet_fairseq.shared import finished_windows
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.finished_windows import FinishedWindows
from support.checkpoints import checkpoint

WINDOWS = 4  # of the text, of two lines each, in one batch each
OPTIONS = "--pretokenized --cpu --beam 2 --max-len-b 6 --max-tokens 100".split()
SOURCES = ["w1 w2 w3 w4", "w5", "", "w6 w7 w8", "w9 w10", "w11 w12 w13 w14 w15 w16 w17 w18 w19", "w20", "w21 w22 w23"]


@pytest.fixture
def run(small_model, tmp_path, monkeypatch, capfd):
    """Function from options to what the command says, in a folder with a text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(translating, "WINDOW", 2)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in SOURCES))

    def run(*more, code=0, batches=10**9, model=small_model):
        done = 0

        def interrupted(translator, sources):
            nonlocal done
            done += 1
            if done > batches:
                raise KeyboardInterrupt
            return original(translator, sources)

        original = Translator.translate
        with monkeypatch.context() as patch:
            patch.setattr(Translator, "translate", interrupted)
            arguments = [str(model), *OPTIONS, "--input", "text", "--output", "out", "--processes", "1", *more]
            if code:
                with pytest.raises(SystemExit) as end:
                    translate.main(arguments)
                assert end.value.code == code
            else:
                translate.main(arguments)
        return capfd.readouterr().err

    return run


@pytest.fixture
def whole(run, tmp_path):
    """What an uninterrupted command writes."""
    run()
    data = (tmp_path / "out").read_bytes()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == ["out"]
    (tmp_path / "out").unlink()
    assert [bool(line) for line in data.decode().split("\n")[:-1]] == [bool(line) for line in SOURCES]
    return data


@pytest.mark.parametrize(
    "options",
    [["--nbest", "2", "--print-alignment"], ["--json", "--per-token", "--print-word-alignment"], ["--prefix", "begin"]],
)
def test_lists_and_beginnings_are_kept(run, tmp_path, options):
    (tmp_path / "begin").write_text("".join(f"{line.partition(' ')[0]}\n" for line in SOURCES))
    run(*options)
    expected = (tmp_path / "out").read_bytes()
    run(*options, code=130, batches=2)
    assert "4 lines were translated before" in run(*options, "--resume")
    assert (tmp_path / "out").read_bytes() == expected


@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_interrupted_after_any_window_it_writes_the_same(run, whole, tmp_path, resume):
    for finished in range(WINDOWS):
        run(*resume, code=130, batches=finished)
        assert not (tmp_path / "out").exists()
        assert (tmp_path / "out.partial").exists() == (finished > 0)
        said = run(*resume)
        assert (tmp_path / "out").read_bytes() == whole
        assert not (tmp_path / "out.partial").exists()
        again = re.search(r"(\d+) lines were translated before", said)
        assert int(again[1] if again else 0) == 2 * finished
        (tmp_path / "out").unlink()


@pytest.mark.parametrize("processes", ["1", "2"])
def test_windows_before_a_line_that_is_refused_are_kept(run, tmp_path, processes):
    lines = (tmp_path / "text").read_text().splitlines()
    (tmp_path / "text").write_text("\n".join([*lines[:4], "w1 " * 2000]) + "\n")
    assert "line 5 has 2001 tokens" in run("--processes", processes, code=2)
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    assert "4 lines were translated before" in run()


def test_interrupted_before_the_output_is_written(run, whole, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(finished_windows, "write_lines", interrupt)
        run(code=130)
    said = run(batches=0)
    assert "8 lines were translated before" in said
    assert "0 sentences in 0.0 s" in said
    assert (tmp_path / "out").read_bytes() == whole


@pytest.mark.parametrize(
    ("changed", "says"),
    [("--beam 3", "beam"), ("--max-tokens 13", "max_tokens"), ("--dtype bf16 --fast", "dtype, fast")],
)
def test_other_options(run, whole, tmp_path, changed, says):
    run(code=130, batches=2)
    data = (tmp_path / "out.partial").read_bytes()
    said = run(*changed.split(), "--resume", code=2)
    assert f"out.partial is of other work, with a difference in: {says}. Give the same as then, or remove" in said
    assert (tmp_path / "out.partial").read_bytes() == data
    assert "translated before" in run("--resume")
    assert (tmp_path / "out").read_bytes() == whole


def test_without_resume_other_options_begin_anew(run, whole, tmp_path):
    run("--beam", "3", code=130, batches=2)
    said = run()
    assert "out.partial is of other work, with a difference in: beam; it is replaced" in said
    assert "translated before" not in said
    assert (tmp_path / "out").read_bytes() == whole
    assert not (tmp_path / "out.partial").exists()


def test_another_model(run, tmp_path):
    model = checkpoint(tmp_path / "model.pt", "rposnet")
    run(code=130, batches=2, model=model)
    checkpoint(model, "rposnet", updates=2)
    assert "difference in: files." in run("--resume", code=2, model=model)
    assert "translated before" not in run(model=model)


@pytest.mark.parametrize(("line", "kept"), [(0, 0), (3, 2), (5, 4), (7, 4)])
def test_lines_that_have_changed_are_translated_anew(run, tmp_path, line, kept):
    run(code=130, batches=2)
    lines = [*SOURCES[:line], "w9 w8 w7", *SOURCES[line + 1 :]]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines))
    said = run("--resume")
    assert (f"{kept} lines were translated before" in said) == (kept > 0)
    assert (f"the text has changed, so {4 - kept} lines are replaced" in said) == (kept < 4)
    found = (tmp_path / "out").read_bytes()
    run()
    assert (tmp_path / "out").read_bytes() == found


def test_output_in_a_model_folder(run, small_model, whole, tmp_path):
    """What else lies in the folder is neither the model nor read."""
    export.main([str(small_model), "--out", "folder", "--pretokenized"])
    inside = ("--output", "folder/out.txt")
    run(*inside, code=130, batches=2, model="folder")
    (tmp_path / "folder/README.md").write_text("edited")
    (tmp_path / "folder/encoder.onnx").write_text("a graph")
    assert "translated before" in run(*inside, "--resume", model="folder")
    assert (tmp_path / "folder/out.txt").read_bytes() == whole
    run(*inside, model="folder")
    for name in ("config.json", "model.safetensors", *(path.name for path in tmp_path.glob("folder/dict.*"))):
        assert f"same file as folder/{name}" in run("--output", f"folder/{name}", code=2, model="folder")


def test_what_another_command_keeps_is_no_output(run, whole, tmp_path):
    run(code=130, batches=2)
    kept = (tmp_path / "out.partial").read_bytes()
    assert "out.partial has the finished lines of another command. Give another" in run(
        "--output", "out.partial", code=2
    )
    assert (tmp_path / "out.partial").read_bytes() == kept
    assert "4 lines were translated before" in run("--resume")
    assert (tmp_path / "out").read_bytes() == whole


@pytest.mark.parametrize("first", ["short", "long"])
def test_commands_that_run_at_once_delete_nothing_of_each_other(tmp_path, first):
    """One writes to what the other keeps its lines in."""
    text = ["line"], None
    running = {name: FinishedWindows(str(tmp_path / name), {}, False, print) for name in ("out", "out.partial")}
    short, long = running.values()
    if first == "short":
        short.add(text, ["short"])
    long.add(text, ["long"])
    why = "finished lines of another" if first == "short" else "out.partial: another process writes to it. Wait"
    with pytest.raises(UsageError, match=rf"{why}.* All lines are in .*\.partial\.partial"):
        long.finish()
    if first == "long":
        short.add(text, ["short"])
    (tmp_path / "out.partial").rename(tmp_path / "moved")  # as if somebody replaced it
    (tmp_path / "out.partial").write_text("mine")
    short.finish()
    for each in running.values():
        each.close()
    assert (tmp_path / "out").read_text() == "short\n"
    assert (tmp_path / "out.partial").read_text() == "mine"
    assert (tmp_path / "out.partial.partial").exists()


def test_cut_anywhere_the_whole_windows_stay(tmp_path):
    """Killed while it wrote, the file may end after any byte."""
    texts = [([f"line {number}"], None) for number in range(3)]

    def finished(place):
        return FinishedWindows(str(place), {"beam": 5}, resume=True, say=print)

    whole = finished(tmp_path / "whole")
    for number, each in enumerate(texts):
        whole.add(each, [f"output {number}", "☃"])
    whole.close()
    data = (tmp_path / "whole.partial").read_bytes()
    ends = [end for end in range(1, len(data) + 1) if data[end - 1 : end] == b"\n"]
    for length in range(len(data) + 1):
        (tmp_path / "cut.partial").write_bytes(data[:length])
        cut = finished(tmp_path / "cut")
        kept = max(0, sum(end <= length for end in ends) - 1)
        assert [cut.has(each) for each in texts[:kept]] == [True] * kept
        for number, each in enumerate(texts[kept:], kept):
            assert not cut.has(each)
            cut.add(each, [f"output {number}", "☃"])
        assert (tmp_path / "cut.partial").read_bytes() == data
        cut.finish()
        cut.close()
        assert (tmp_path / "cut").read_text() == "output 0\n☃\noutput 1\n☃\noutput 2\n☃\n"
        assert not (tmp_path / "cut.partial").exists()
    deep = b"[" * 5000 + b"]" * 5000
    for damaged in (b"7", b"{}", b'{"texts": 7, "lines": []}', deep, b'{"texts": "", "lines": [], "more": %b}' % deep):
        (tmp_path / "cut.partial").write_bytes(data[: ends[1]] + damaged + b"\n")
        with contextlib.closing(finished(tmp_path / "cut")) as cut:
            assert [cut.has(each) for each in texts] == [True, False, False]
    (tmp_path / "cut.partial").write_bytes(data[: ends[0] - 2] + b', "more": %b}\n' % deep + data[ends[0] :])
    with contextlib.closing(finished(tmp_path / "cut")) as cut:
        assert not cut.has(texts[0])


def test_no_two_processes_write_the_same(tmp_path):
    first = FinishedWindows(str(tmp_path / "out"), {}, resume=False, say=print)
    with pytest.raises(UsageError, match=r"out\.partial: another process writes to it\. Wait, or give another output"):
        FinishedWindows(str(tmp_path / "out"), {}, resume=False, say=print)
    first.close()
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--output", "-", "--resume"], "--resume goes on with a file: give one by --output"),
        (["--output", "mine"], "mine.partial is there, and posnet did not write it. Move it"),
        (["--input", "mine.partial", "--output", "mine"], "same file as mine.partial, which would be lost"),
    ],
)
def test_refused(run, tmp_path, options, says):
    (tmp_path / "mine.partial").write_text("mine\n")
    assert says in run(*options, code=2)
    assert (tmp_path / "mine.partial").read_text() == "mine\n"
