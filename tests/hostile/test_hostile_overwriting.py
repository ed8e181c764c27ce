"""Outputs of all commands that would destroy an input, a checkpoint, or a file that posnet did not write."""

import errno
import os
import shutil
from pathlib import Path

import torch

from posnet_fairseq.shared.errors import UsageError
from support.hostile import Row, run, table
from support.hostile_files import (
    AVERAGE,
    CORPUS,
    PRECOMPUTE,
    REPORT,
    SCORE,
    SCORES,
    TRANSLATE,
    after,
    linked,
    play_and_find_no_temporary_files,
    written,
)
from support.training_log import training_log


def hard_linked(name, target):
    return lambda folder: os.link(folder / target, folder / name)


def other_program(folder):
    """A checkpoint of another program, and one that contains objects."""
    torch.save({"weights": torch.zeros(3)}, folder / "other.pt")
    torch.save(Path("object"), folder / "objects.pt")


def _copy(folder):
    (folder / "a.pt").write_bytes((folder / "run/checkpoint_last.pt").read_bytes())


def _into_link(path):
    path.symlink_to(path.rename(path.with_name("elsewhere")).name)


def _move(folder, place, link=False):
    place.parent.mkdir(exist_ok=True, parents=True)
    folder.rename(place)
    if link:
        folder.symlink_to(place)


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
    Row("a model in an old folder", "posnet-export model.pt --out text", "text is there already"),
    Row("a model in a link", "posnet-export model.pt --out a", "a is there already", before=linked("a", "nothing")),
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


@table(LOST)
def test_row(row, folder, monkeypatch, capfd):
    (folder / "log").mkdir()
    (folder / "log/train.log").write_text(training_log())
    play_and_find_no_temporary_files(row, folder, monkeypatch, capfd)


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
    assert run(command, "", monkeypatch) == 0, capfd.readouterr().err
