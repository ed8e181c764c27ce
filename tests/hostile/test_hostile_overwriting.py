"""Outputs that would destroy an input, a checkpoint, or a file that posnet did not write, and links and odd names."""

import errno
import os
import shutil
import stat
from pathlib import Path

import torch

from posnet_fairseq.shared.errors import UsageError
from support.hostile import Row, play, run, table, write
from support.hostile_files import AVERAGE, CORPUS, PRECOMPUTE, RAW, REPORT, SCORE, TRANSLATE, after, linked


def _copy(folder):
    (folder / "a.pt").write_bytes((folder / "run/checkpoint_last.pt").read_bytes())


def _into_link(path):
    path.symlink_to(path.rename(path.with_name("elsewhere")).name)


def _move_and_link(folder, place):
    folder.rename(place)
    folder.symlink_to(place)


def works(name, command, says, makes, before=lambda folder: None):
    """A row that replaces what posnet wrote before, or what is nobody's."""
    return Row(name, command, says, 0, before, makes)


REPORTED = after(f"{SCORE} --out report")
CONFIG = '{"systems": ["a"], "test_sets": {"t": {"reference": "text/test.yy", "outputs": {"a": "text/test.xx"}}}}'
PRINTED = {"json": {"systems": [], "labels": {}, "test_sets": [], "files": {}}, "tex": "mine"}
LOST = [
    *(
        Row(f"average onto {name}", f"{AVERAGE} {name}", "name of a checkpoint of the training")
        for name in ("./run//checkpoint_1_5.pt", "run/checkpoint99.pt")
    ),
    Row("average onto a copy of a checkpoint", f"{AVERAGE} a.pt", "a.pt is no checkpoint that posnet-", before=_copy),
    Row("precompute onto the run", f"{PRECOMPUTE} run/checkpoint_last.pt", "and would be lost"),
    Row(
        "average onto another program's",
        f"{AVERAGE} other.pt",
        "other.pt is no checkpoint that posnet-average or posnet-precompute made, and would be lost",
        before=lambda folder: torch.save({"weights": torch.zeros(3)}, folder / "other.pt"),
    ),
    *(
        Row(f"average onto {what}", f"{AVERAGE} link.pt", "same file as run/checkpoint_1_5.pt", before=before)
        for what, before in {
            "a link to the run": linked("link.pt", "run/checkpoint_1_5.pt"),
            "a hard link": lambda folder: os.link(folder / "run/checkpoint_1_5.pt", folder / "link.pt"),
        }.items()
    ),
    works("average onto an old average", f"{AVERAGE} model.pt", "averaged into", ("model.pt",)),
    works("precompute again", f"{PRECOMPUTE} fast.pt", "parameters", ("fast.pt",), after(f"{PRECOMPUTE} fast.pt")),
    *(
        Row(f"translate onto {name}", f"{TRANSLATE} --output {name}", "would be lost")
        for name in ("data/dict.xx.txt", "data/dataset.json")
    ),
    Row(
        "translate onto one of an ensemble",
        TRANSLATE.replace("model.pt", "model.pt run/checkpoint_last.pt") + " --output run/checkpoint_last.pt",
        "would be lost",
    ),
    Row(
        "a report's page is a link",
        f"{SCORE} --out report",
        "report.tex is there",
        before=after(f"{SCORE} --out report", then=lambda folder: _into_link(folder / "report/report.tex")),
    ),
    Row(
        "a file of one's own beside what --json printed",
        f"{SCORE} --out report",
        "report/report.tex is there",
        before=lambda folder: [write(f"report/report.{end}", text)(folder) for end, text in PRINTED.items()],
    ),
    works("a report again", f"{SCORE} --seed 3 --out report", "report:", REPORT, REPORTED),
    Row(
        "a report in a configuration's folder",
        "posnet-score --config report.json --out .",
        "report.json",
        before=write("report.json", CONFIG),
    ),
    Row(
        "a dataset around its text, by a link",
        f"{CORPUS} --out data",
        "is in data, where files will be replaced",
        before=lambda folder: _move_and_link(folder / "text", folder / "data/mine"),
    ),
    Row(
        "downloads in the dataset",
        "posnet-prepare quickstart.en-de --downloads data/../data/new --out data",
        "is in data",
    ),
    Row(
        "a file of one's own in a dataset",
        CORPUS.replace("--merges 5", "--subwords sentencepiece --pieces 20")
        + " --test text/test.xx text/test.yy --out data",
        "data/sentencepiece.model is there, and this posnet-prepare did not make it",
        before=write("data/sentencepiece.model"),
        makes=("data/stages/*", "data/stages/*/*"),
    ),
]


LINKS = [
    Row(
        "a link to a link in another folder",
        f"{TRANSLATE} --output link",
        "12 sentences",
        0,
        lambda folder: [(folder / "text/next").symlink_to("new"), (folder / "link").symlink_to("text/next")],
        ("text/new",),
    ),
    # Names that are not UTF-8 or have two lines: test_hostile_paths.py.
    Row("a name in color", f"{PRECOMPUTE} '\x1b[31mno/x'", r"cannot write in \\x1b\[31mno: No such"),
    Row("a missing name that is not UTF-8", f"posnet-precompute {RAW} --out x", r"\\udcff\\udcfe: there is no such"),
    Row(
        "a system whose name is not UTF-8",
        f"{SCORE.replace('a=text/test.xx', RAW)} --skip-missing",
        "no system has an output",
    ),
    Row(
        "a socket",
        f"{AVERAGE} socket",
        "is a disk or a socket",
        before=lambda folder: os.mknod(folder / "socket", 0o666 | stat.S_IFSOCK),
    ),
]


@table(LOST + LINKS)
def test_row(row, folder, monkeypatch, capfd):
    play(row, folder, monkeypatch, capfd)


def test_a_finished_dataset_may_lie_on_a_read_only_disk(folder, monkeypatch, capfd):
    command = "posnet-prepare corpus --train text/train.xx text/train.yy --valid text/valid.xx text/valid.yy --test "
    command += "text/test.xx text/test.yy --merges 20 --out data"
    monkeypatch.chdir(folder)

    def refused(*_, **__):
        raise UsageError("cannot write here")

    monkeypatch.setattr("posnet_data_prep.prepare.check_folder", refused)
    assert run(command, monkeypatch) == 0
    assert "data is up to date" in capfd.readouterr().err
    assert run(command.replace("--merges 20", "--merges 10"), monkeypatch) == 2


def test_data_of_a_training_that_cannot_be_looked_at_tell_nothing(folder, monkeypatch, capfd):
    """As if the folder belonged to another user; root can read every folder."""
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
    assert run(command, monkeypatch) == 0, capfd.readouterr().err
