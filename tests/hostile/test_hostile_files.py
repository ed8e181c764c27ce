"""Outputs of all commands, used carelessly: where they lead, what they would destroy, and streams that are closed."""

import contextlib
import errno
import io
import os
import re
import resource
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import sentencepiece
import torch

from posnet_fairseq.cli import translate
from posnet_fairseq.shared import files
from posnet_fairseq.shared.errors import UsageError
from support import commands
from support.hostile import Row, play, run, table
from support.training_log import training_log

AVERAGE = "posnet-average run --num 1 --out"
PRECOMPUTE = "posnet-precompute model.pt --out"
TRANSLATE = "posnet-translate model.pt --beam 1 --max-len-b 2 --input text/test.xx"
SCORE = (
    "posnet-score --metrics bleu --resamples 40 --workers 1 --reference text/test.yy --system a=text/test.xx "
    "--cache scores.sqlite"
)
CORPUS = "posnet-prepare corpus --train text/train.xx text/train.yy --valid-every 9 -s xx -t yy --merges 5 --workers 1"
RAW = os.fsdecode(b"\xff\xfe")  # a name that is not UTF-8
SCRIPTS = sorted(re.findall(r'"(posnet-[a-z-]+)=', (commands.ROOT / "setup.py").read_text()))
SCORES = ("scores.sqlite*",)
REPORT = ("report", "report/*", *SCORES)


def linked(name, target):
    return lambda folder: (folder / name).symlink_to(target)


def hard_linked(name, target):
    return lambda folder: os.link(folder / target, folder / name)


def written(name, text="mine"):
    def write(folder):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)

    return write


def after(*commands_before, then=lambda folder: None):
    """What has been done first."""

    def do(folder):
        patch = pytest.MonkeyPatch()
        for command in commands_before:
            assert run(command, "", patch) == 0
        then(folder)

    return do


def is_link(name, target):
    def look(folder):
        assert os.readlink(folder / name) == target
        assert (folder / target).stat().st_size

    return look


def full_node(folder):
    """A device as /dev/full."""
    try:
        os.mknod(folder / "full", 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        (folder / "full").open("rb").close()
    except PermissionError:
        pytest.skip("devices cannot be made here")


def lines_kept(said):
    """Lines that a command says it has put somewhere else."""
    (place,) = re.findall(r"What was to be written is in (\S+)\.(?:\s|$)", said)
    place = Path(place)
    lines = place.read_text().splitlines()
    place.unlink()
    place.parent.rmdir()
    return lines


def other_program(folder):
    """A checkpoint that is none of fairseq's, and one with objects in it."""
    torch.save({"weights": torch.zeros(3)}, folder / "other.pt")
    torch.save(Path("object"), folder / "objects.pt")


def pieces(folder):
    """A model of sentencepiece whose name is not UTF-8."""
    text = str(folder / "text/train.xx")
    sentencepiece.SentencePieceTrainer.train(input=text, model_prefix="pieces", vocab_size=20, minloglevel=2)
    (folder / "pieces.model").rename(folder / f"{RAW}.model")


LINKS = [
    Row(
        "a link to an old result",
        f"{AVERAGE} link.pt",
        "averaged into link.pt",
        0,
        linked("link.pt", "model.pt"),
        ("model.pt",),
        is_link("link.pt", "model.pt"),
    ),
    Row(
        "a link to a link in another folder",
        f"{TRANSLATE} --output link",
        "12 sentences",
        0,
        lambda folder: [(folder / "text/next").symlink_to("new"), (folder / "link").symlink_to("text/next")],
        ("text/new",),
        is_link("link", "text/next"),
    ),
    Row("a link in a circle", f"{PRECOMPUTE} a", "--out a: Too many levels", before=linked("a", "./a")),
    Row(
        "links in a circle", f"{AVERAGE} a", "a: Too many", before=lambda f: [linked("a", "b")(f), linked("b", "a")(f)]
    ),
    Row("a link to a folder", f"{AVERAGE} a", "a is a directory", before=linked("a", "text")),
    Row("a folder that is a circle", f"{AVERAGE} a/b", "a/b: .*(Too many|no folder)", before=linked("a", "a")),
    Row("a link below a missing folder", f"{AVERAGE} a", "the folder no is not there", before=linked("a", "no/b")),
    Row("a report through a linked folder", f"{SCORE} --out link", "", 0, linked("link", "text"), ("text/*", *SCORES)),
    Row("a socket", f"{AVERAGE} socket", "is a disk or a socket", before=lambda folder: _socket(folder / "socket")),
]

LOST = [
    *(
        Row(f"average onto {name}", f"{AVERAGE} {name}", "name of a checkpoint of the training")
        for name in (
            "run/checkpoint_last.pt",
            "run/checkpoint_best.pt",
            "./run//checkpoint_1_5.pt",
            "run/checkpoint99.pt",
        )
    ),
    Row(
        "average onto a copy of a checkpoint", f"{AVERAGE} a.pt", "checkpoint of a training", before=lambda f: _copy(f)
    ),
    Row(
        "precompute onto a copy", f"{PRECOMPUTE} a.pt", "checkpoint of a training", before=lambda folder: _copy(folder)
    ),
    Row("precompute onto the run", f"{PRECOMPUTE} run/checkpoint_last.pt", "checkpoint of a training"),
    Row("average onto another program's", f"{AVERAGE} other.pt", "of another program", before=other_program),
    Row("average onto objects", f"{AVERAGE} objects.pt", "of another program", before=other_program),
    Row(
        "average onto a link to the run",
        f"{AVERAGE} link.pt",
        "same file as run/checkpoint_1_5.pt",
        before=linked("link.pt", "run/checkpoint_1_5.pt"),
    ),
    Row(
        "average onto a hard link of the run",
        f"{AVERAGE} link.pt",
        "same file as run/checkpoint_1_5.pt",
        before=hard_linked("link.pt", "run/checkpoint_1_5.pt"),
    ),
    Row("average onto an old average", f"{AVERAGE} model.pt", "averaged into", 0, makes=("model.pt",)),
    Row("average onto text", f"{AVERAGE} old", "averaged into", 0, written("old"), ("old",)),
    Row(
        "precompute onto an old result",
        f"{PRECOMPUTE} fast.pt",
        "parameters",
        0,
        after(f"{PRECOMPUTE} fast.pt"),
        ("fast.pt",),
    ),
    *(
        Row(f"translate onto data/{name}", f"{TRANSLATE} --output data/{name}", "would be lost")
        for name in ("dict.xx.txt", "dict.yy.txt", "dataset.json", "test.xx-yy.xx.bin", "codes.bpe", "test.yy")
    ),
    Row("translate onto the model", f"{TRANSLATE} --output model.pt", "same file as model.pt, which would be lost"),
    Row(
        "translate onto one of an ensemble",
        TRANSLATE.replace("model.pt", "model.pt run/checkpoint_last.pt") + " --output run/checkpoint_last.pt",
        "would be lost",
    ),
    Row("translate onto its input", f"{TRANSLATE} --output ./text/../text/test.xx", "would be lost"),
    Row("translate onto its codes", f"{TRANSLATE} --bpe-codes data/codes.bpe --output data/codes.bpe", "lost"),
    Row(
        "translate onto an old translation",
        f"{TRANSLATE} --output data/mine",
        "12 sentences",
        0,
        written("data/mine"),
        ("data/mine",),
    ),
    *(
        Row(f"a {name} of one's own", f"{SCORE} --out mine", f"mine/{name} is there", before=written(f"mine/{name}"))
        for name in ("report.html", "report.md", "report.tex", "report.csv", "report.json")
    ),
    Row(
        "a report that was written into",
        f"{SCORE} --out report",
        "report.md is there, and posnet-score did not write it, or it was changed",
        before=after(f"{SCORE} --out report", then=written("report/report.md")),
        makes=SCORES,
    ),
    Row(
        "a report's page is a link",
        f"{SCORE} --out report",
        "report.tex is there",
        before=after(f"{SCORE} --out report", then=lambda folder: _into_link(folder / "report/report.tex")),
    ),
    Row("a report again", f"{SCORE} --seed 3 --out report", "report:", 0, after(f"{SCORE} --out report"), REPORT),
    Row(
        "a report again, without one of its files",
        f"{SCORE} --seed 3 --out report",
        "report:",
        0,
        after(f"{SCORE} --out report", then=lambda folder: (folder / "report/report.csv").unlink()),
        REPORT,
    ),
    Row(
        "the reference is called as a report",
        SCORE.replace("text/test.yy", "mine/report.md") + " --out mine",
        "mine/report.md",
        before=lambda folder: [(folder / "mine").mkdir(), (folder / "text/test.yy").rename(folder / "mine/report.md")],
    ),
    Row(
        "a report in a configuration's folder",
        "posnet-score --config report.json --out .",
        "report.json",
        before=written(
            "report.json",
            '{"systems": ["a"], "test_sets": {"t": {"reference": "text/test.yy", "outputs": {"a": "text/test.xx"}}}}',
        ),
    ),
    *(
        Row(
            f"figures/{name} of one's own",
            "posnet-plot weights model.pt --out figures",
            f"figures/{name} is there, and this posnet-plot did not make it",
            before=written(f"figures/{name}"),
        )
        for name in ("weights.html", "weights.encoder.1.png", "weights.decoder.2.svg", "profile.encoder.png")
    ),
    Row("a curve of one's own", "posnet-plot curves log --out mine", "mine.svg is there", before=written("mine.svg")),
    Row(
        "pictures again",
        "posnet-plot curves log --out again",
        "again.png",
        0,
        after("posnet-plot curves log --out again"),
        ("again.*",),
    ),
    Row(
        "a page again",
        "posnet-plot weights model.pt --sentence 'a1' --out again",
        "again/weights.html",
        0,
        after("posnet-plot weights model.pt --sentence 'a1 a2' --out again"),
        ("again/*",),
    ),
    Row("graphs in an old folder", "posnet-export model.pt --onnx text", "text is there already"),
    Row("graphs in a link", "posnet-export model.pt --onnx a", "a is there already", before=linked("a", "nothing")),
    Row("a dataset around its text", f"{CORPUS} --out text", "exists already, and this posnet-prepare did not make it"),
    Row(
        "a dataset around its text, below",
        CORPUS.replace("text/train", "data/stages/mine/train") + " --out data",
        "train.xx is in data, where files will be replaced",
        before=lambda folder: _move(folder / "text", folder / "data/stages/mine"),
    ),
    Row(
        "a dataset around its text, by a link",
        f"{CORPUS} --out data",
        "is in data, where files will be replaced",
        before=lambda folder: _move(folder / "text", folder / "data/mine", link=True),
    ),
    Row(
        "a text for language models within its dataset",
        "posnet-prepare text --train data/mine/train.xx --out data",
        "is in data, where files will be replaced",
        before=lambda folder: _move(folder / "text", folder / "data/mine"),
    ),
    *(
        Row(f"downloads in {place}", f"posnet-prepare quickstart.en-de --downloads {place} --out data", "is in data")
        for place in ("data", "data/stages", "data/../data/new")
    ),
    Row(
        "a file of one's own in a dataset",
        CORPUS.replace("--merges 5", "--subwords sentencepiece --pieces 20")
        + " --test text/test.xx text/test.yy --out data",
        "data/sentencepiece.model is there, and this posnet-prepare did not make it",
        before=written("data/sentencepiece.model"),
        makes=("data/stages/*", "data/stages/*/*"),
    ),
]

NAMES = [
    Row("a name that is not UTF-8", f"{AVERAGE} {RAW}.pt", r"averaged into \\udcff\\udcfe", 0, makes=(f"{RAW}.pt",)),
    Row("a name of two lines", f"{AVERAGE} 'a\nb.pt'", "averaged into a", 0, makes=("a\nb.pt",)),
    Row("a name in colour", f"{PRECOMPUTE} '\x1b[31mno/x'", r"the folder \\x1b\[31mno is not there"),
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
        "a translation with it",
        f"posnet-translate {RAW}.pt --beam 1 --max-len-b 2 --input {RAW}/test.xx --output {RAW}/new",
        "12 sentences",
        0,
        lambda folder: [
            (folder / "model.pt").rename(folder / f"{RAW}.pt"),
            (folder / "text").rename(folder / RAW),
        ],
        (f"{RAW}/new",),
    ),
    Row(
        "pieces whose name is not UTF-8",
        f"{TRANSLATE} --sentencepiece-model {RAW}.model",
        "12 sentences",
        0,
        before=pieces,
    ),
    Row("a system whose name is not UTF-8", f"{SCORE} --system {RAW} --skip-missing", "no system has an output"),
    Row("a report in a folder that is not UTF-8", f"{SCORE} --out {RAW}", "", 0, makes=(RAW, f"{RAW}/*", *SCORES)),
    Row(
        "a system in a file that is not UTF-8",
        SCORE.replace("a=text/test.xx", f"a=text/test.xx b={RAW}") + " --skip-missing --out report",
        "missing: b",
        0,
        makes=REPORT,
    ),
    Row("a data directory that is not UTF-8", f"posnet-length-ratio {RAW}", "there is no such directory"),
    Row("a log that is not UTF-8", f"posnet-plot curves {RAW}", "there is no such log"),
    Row("an output of 256 letters", f"{AVERAGE} {'x' * 256}", "File name too long"),
    Row("an empty output", f"{TRANSLATE} --output ''", "'' is no path"),
    Row("an empty directory of data", f"{TRANSLATE} --data '' --output x", "'' is no path"),
]


def _socket(path):
    os.mknod(path, 0o666 | stat.S_IFSOCK)


def _copy(folder):
    (folder / "a.pt").write_bytes((folder / "run/checkpoint_last.pt").read_bytes())


def _into_link(path):
    path.symlink_to(path.rename(path.with_name("elsewhere")).name)


def _move(folder, place, link=False):
    place.parent.mkdir(exist_ok=True, parents=True)
    folder.rename(place)
    if link:
        folder.symlink_to(place)


@table([*LINKS, *LOST, *NAMES])
def test_row(row, folder, monkeypatch, capfd):
    (folder / "log").mkdir()
    (folder / "log/train.log").write_text(training_log())
    play(row, folder, monkeypatch, capfd)
    for path in folder.rglob(".*"):
        assert path.name == ".lock", f"{path} was left behind"


def test_permissions_of_an_old_file_stay(tmp_path):
    for mode in (0o600, 0o640, 0o777):
        (tmp_path / "old").write_text("old")
        (tmp_path / "old").chmod(mode)
        files.write_lines(tmp_path / "old", ["new"])
        assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == mode
    mask = os.umask(0o027)
    try:
        files.write_lines(tmp_path / "new", ["new"])
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_another_name_of_an_old_file_keeps_it(tmp_path):
    (tmp_path / "old").write_text("old\n")
    os.link(tmp_path / "old", tmp_path / "other")
    files.write_lines(tmp_path / "old", ["new"])
    assert (tmp_path / "other").read_text() == "old\n"


def test_write_protected(tmp_path):
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(0o444)
    with pytest.raises(UsageError, match="old is write-protected"):
        files.check_place(tmp_path / "old", "--out")


def test_the_file_of_another_user_is_replaced_where_the_folder_allows_it(tmp_path, monkeypatch):
    (tmp_path / "old").write_text("old\n")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may do everything
    files.check_place(tmp_path / "old", "--out")
    files.write_lines(tmp_path / "old", ["new"])
    assert (tmp_path / "old").read_text() == "new\n"


def test_a_finished_dataset_may_lie_on_a_read_only_disk(folder, monkeypatch, capfd):
    command = "posnet-prepare corpus --train text/train.xx text/train.yy --valid text/valid.xx text/valid.yy --test "
    command += "text/test.xx text/test.yy --merges 20 --out data"
    monkeypatch.chdir(folder)

    def refused(*_, **__):
        raise UsageError("cannot write here")

    monkeypatch.setattr("posnet_data_prep.prepare.check_folder", refused)
    assert run(command, "", monkeypatch) == 0
    assert "data is up to date" in capfd.readouterr().err
    assert run(command.replace("--merges 20", "--merges 10"), "", monkeypatch) == 2


def test_data_of_a_training_that_cannot_be_looked_at_tell_nothing(folder, monkeypatch, capfd):
    """As a folder of somebody else: root may look at everything."""
    shutil.copytree(folder / "data", folder / "copy")
    monkeypatch.chdir(folder)
    data = torch.load("model.pt", weights_only=True)["cfg"]["task"]["data"]
    stat_ = Path.stat

    def denied(path, **options):
        if str(path).startswith(f"{data}/"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat_(path, **options)

    monkeypatch.setattr(Path, "stat", denied)
    command = "posnet-translate model.pt --data copy --input text/test.xx --output out --beam 1 --max-len-b 2"
    assert run(command, "", monkeypatch) == 0, capfd.readouterr().err


def test_open_files(tmp_path):
    """/dev/fd/N is written to from where it stands, whatever it is."""
    with open(tmp_path / "file", "w") as file:
        file.write("before\n")
        file.flush()
        files.write_lines(f"/dev/fd/{file.fileno()}", ["a"])
        files.write_lines(f"/proc/self/fd/{file.fileno()}", ["b"])
        file.write("after\n")
    assert (tmp_path / "file").read_text() == "before\na\nb\nafter\n"
    with open(tmp_path / "file") as file, pytest.raises(UsageError, match="open for reading only"):
        files.write_lines(f"/dev/fd/{file.fileno()}", ["a"])


def test_the_old_standard_input_is_not_lost(folder, monkeypatch, capfd):
    """< FILE --output FILE"""
    monkeypatch.chdir(folder)
    before = Path("text/test.xx").read_bytes()
    with open("text/test.xx", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        arguments = TRANSLATE.replace("--input text/test.xx", "--output text/test.xx").split()
        with pytest.raises(SystemExit):
            commands.run_program(monkeypatch, *arguments)
    assert "same file as standard input" in capfd.readouterr().err
    assert Path("text/test.xx").read_bytes() == before


def translated(folder, monkeypatch, *more):
    """Translate the test set in a folder."""
    monkeypatch.chdir(folder)
    commands.run_program(monkeypatch, *TRANSLATE.split(), *more)


def test_pipes_on_both_sides(folder, monkeypatch, capfd):
    translated(folder, monkeypatch, "--output", "expected")
    for name in ("in", "out"):
        os.mkfifo(name)
    received = []
    threads = [
        threading.Thread(target=lambda: Path("in").write_bytes(Path("text/test.xx").read_bytes())),
        threading.Thread(target=lambda: received.append(Path("out").read_text())),
    ]
    for thread in threads:
        thread.start()
    translated(folder, monkeypatch, "--input", "in", "--output", "out")
    for thread in threads:
        thread.join()
    assert received == [Path("expected").read_text()]
    assert stat.S_ISFIFO(os.stat("out").st_mode)


def test_translations_are_kept_when_a_device_is_full(folder, monkeypatch, capfd):
    full_node(folder)
    translated(folder, monkeypatch, "--output", "expected")
    with pytest.raises(SystemExit) as exit:
        translated(folder, monkeypatch, "--output", "full")
    assert exit.value.code == 2
    said = capfd.readouterr().err
    assert "cannot write full: the disk is full" in said
    assert lines_kept(said) == Path("expected").read_text().splitlines()


def test_translations_are_kept_when_their_folder_goes(folder, monkeypatch, capfd):
    """A disk that is taken away while the command works."""
    translated(folder, monkeypatch, "--output", "expected")
    (folder / "gone").mkdir()

    def in_order(*arguments):
        yield from original(*arguments)
        (folder / "gone").rmdir()

    original = translate.in_order
    monkeypatch.setattr(translate, "in_order", in_order)
    with pytest.raises(SystemExit):
        translated(folder, monkeypatch, "--output", "gone/new")
    said = capfd.readouterr().err
    assert "the folder gone is not there" in said
    assert lines_kept(said) == Path("expected").read_text().splitlines()


def test_translations_are_kept_when_standard_output_is_full(folder, monkeypatch, capfd):
    translated(folder, monkeypatch, "--output", "expected")
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as exit:
            translated(folder, monkeypatch)
        monkeypatch.undo()
    assert exit.value.code == 2
    assert lines_kept(capfd.readouterr().err) == (folder / "expected").read_text().splitlines()


def test_translations_are_printed_when_nothing_can_be_written(tmp_path, monkeypatch, capfd):
    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.tempfile, "mkdtemp", fails)
    monkeypatch.setattr(files.tempfile, "mkstemp", fails)
    with pytest.raises(UsageError, match="on standard output instead"):
        files.save_lines(tmp_path / "file", ["a", "b"])
    assert capfd.readouterr().out == "a\nb\n"
    assert not list(tmp_path.iterdir())


@contextlib.contextmanager
def disk(place, size):
    """A small disk, where this user may mount one."""
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("command", [AVERAGE, PRECOMPUTE, f"{TRANSLATE} --output"])
def test_a_full_disk(folder, monkeypatch, capfd, command):
    monkeypatch.chdir(folder)
    with disk(folder / "disk", "64k"):
        (folder / "disk/old").write_text("old")
        with open("disk/ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(4096))
        assert run(f"{command} disk/old", "", monkeypatch) == 2
        said = capfd.readouterr().err
        assert "cannot write disk/old: the disk is full" in said
        assert "Traceback" not in said
        assert sorted(path.name for path in (folder / "disk").iterdir()) == ["ballast", "old"]
        assert (folder / "disk/old").read_text() == "old"
        if command.startswith(TRANSLATE):
            assert len(lines_kept(said)) == 12


def test_a_read_only_disk(folder, monkeypatch, capfd):
    """It is seen before the work."""

    def work(*_, **__):
        raise AssertionError("something was done first")

    for place in (
        *("posnet_fairseq.cli.average.average", "posnet_fairseq.cli.precompute.precompute"),
        *("posnet_fairseq.cli.translate.TranslationModel", "posnet_eval.score.evaluate"),
        "posnet_data_prep.prepare.Preparation",
    ):
        monkeypatch.setattr(place, work)
    monkeypatch.chdir(folder)
    with disk(folder / "disk", "64k"):
        subprocess.run(["mount", "-o", "remount,ro", folder / "disk"], check=True)
        outputs = (f"{TRANSLATE} --output disk/x", f"{SCORE} --out disk/x", f"{CORPUS} --out disk/x")
        for command in (f"{AVERAGE} disk/x", f"{PRECOMPUTE} disk/x", *outputs):
            assert run(command, "", monkeypatch) == 2, command
            assert "Read-only file system" in capfd.readouterr().err, command


def test_a_limit_on_the_size_of_files(folder, monkeypatch, capfd):
    """A write that fails for another reason than a full disk, in the middle of a checkpoint."""
    monkeypatch.chdir(folder)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        code = run(f"{AVERAGE} new.pt", "", monkeypatch)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (code, "cannot write new.pt: File too large" in capfd.readouterr().err) == (2, True)
    assert not list(folder.glob("*new.pt*"))


def no_reader():
    """A pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    return open(writing, "w")


# A line of each command that prints its result.
PRINTING = {
    "posnet-bench": "posnet-bench layers --mixers rposnet --lengths 4 --size tiny --tokens 8 --rounds 1",
    "posnet-doctor": "posnet-doctor",
    "posnet-length-ratio": "posnet-length-ratio data",
    "posnet-mixers": "posnet-mixers rposnet",
    "posnet-prepare": "posnet-prepare --list",
    "posnet-score": SCORE,
    "posnet-translate": TRANSLATE,
}


def ends(monkeypatch, command, **streams):
    """The exit code of a command in this process, with other standard streams."""
    with monkeypatch.context() as patch:
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        try:
            commands.run_program(monkeypatch, *command.split())
        except SystemExit as error:
            return error.code
    return 0


@pytest.mark.parametrize("script", SCRIPTS)
def test_streams_of_every_command(script, monkeypatch, capfd, folder):
    """Nobody reads, nothing can be written, the terminal knows ASCII only, an interrupt."""
    monkeypatch.setattr("tempfile.tempdir", str(folder))  # where translations are kept
    monkeypatch.chdir(folder)
    for command in (f"{script} --help", PRINTING.get(script)):
        if command is None:
            continue
        assert ends(monkeypatch, command, stdout=no_reader()) == 141, command
        assert capfd.readouterr().err.count("rror") == 0
        with open("/dev/full", "w") as full:
            assert ends(monkeypatch, command, stdout=full) == 2, command
        assert re.search("could not be written|the disk is full", capfd.readouterr().err), command
        ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        assert ends(monkeypatch, command, stdout=ascii_only) == 0, command
        assert ascii_only.tell()
    if script in PRINTING:
        assert ends(monkeypatch, PRINTING[script], stdout=None) == 2
        assert "standard output is closed" in capfd.readouterr().err

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("argparse.ArgumentParser.parse_args", interrupt)
    assert ends(monkeypatch, script) == 130
    assert not capfd.readouterr().err


def test_every_command_that_prints_is_among_them():
    writing = {"posnet-average", "posnet-export", "posnet-plot", "posnet-precompute"}
    assert set(PRINTING) | writing == set(SCRIPTS)


def test_notes_do_not_get_into_the_output(folder, monkeypatch, capfd):
    """2>&-"""
    translated(folder, monkeypatch, "--output", "expected")
    capfd.readouterr()
    assert ends(monkeypatch, TRANSLATE, stderr=None) == 0
    assert capfd.readouterr().out == Path("expected").read_text()


def test_standard_input_is_closed(folder, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    command = TRANSLATE.replace("--input text/test.xx", "")
    assert ends(monkeypatch, command, stdin=None) == 2
    assert "standard input is closed" in capfd.readouterr().err


def buffered():
    """The environment, without what would have Python write at once."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


@pytest.mark.parametrize(
    ("redirected", "code", "says"),
    [
        ("posnet-mixers rposnet > /dev/full", 2, "posnet-mixers: error: "),
        ("posnet-mixers --help > /dev/full", 2, "posnet-mixers: error: standard output could not be written"),
        ("PYTHONUNBUFFERED=1 posnet-mixers --help > /dev/full", 2, "standard output could not be written"),
        ("posnet-mixers rposnet >&- <&-", 2, "standard output is closed"),
        ("posnet-mixers nothing 2>&-", 2, ""),
        ("posnet-mixers nothing 2> /dev/full", 2, ""),
    ],
)
def test_redirections(redirected, code, says):
    """In a shell, to its very end: nothing more is said at exit."""
    done = subprocess.run(
        ["bash", "-c", redirected.replace("posnet-mixers", f"{Path(sys.executable).parent}/posnet-mixers")],
        capture_output=True,
        text=True,
        env=buffered(),
    )
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert done.stderr.count("\n") <= 1, done.stderr


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_nobody_reads(arguments):
    """| head, to the very end."""
    with no_reader() as pipe:
        command = [Path(sys.executable).parent / "posnet-mixers", *arguments]
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, env=buffered())
    assert (done.returncode, done.stderr) == (141, "")
