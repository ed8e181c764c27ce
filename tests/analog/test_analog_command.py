"""posnet-analog: translations after several programmings, and their scores."""

import json
import re
import shutil

import pytest

from posnet_fairseq.analog import hardware
from posnet_fairseq.analog.experiment import RECORD
from posnet_fairseq.analog.hardware import PARTS
from posnet_fairseq.cli import analog, translate
from posnet_fairseq.plots import crossbar_pictures
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.text.card import DatasetCard
from posnet_fairseq.text.tokenizers import Tokenizer
from support.checkpoints import checkpoint, precomputed
from support.commands import ROOT, fails


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A stored rPosNet with a Transformer beside it, and a test set of letters."""
    folder = tmp_path_factory.mktemp("a world")
    path = checkpoint(folder / "model.pt", "rposnet")
    precomputed(path)
    checkpoint(folder / "attention.pt")
    (folder / "x.xx").write_text("a b c d\nb c\n\nd d a b c a\n")
    (folder / "x.yy").write_text("c d e\nb\na\nc c c\n")
    return folder


def words(folder, out, *more, model="fast.pt", on="mixing,output"):
    """The arguments of the command."""
    test = ["--test", str(folder / "x.xx"), str(folder / "x.yy")]
    return [str(folder / model), "--pretokenized", "--on", on, *test, "--out", str(out), *more]


def run(*arguments, **options):
    analog.main(words(*arguments, **options))


def report(out):
    return json.loads((out / "report.json").read_text())


def files(out):
    return {path.name: path.read_text() for path in out.glob("*.txt")}


IDEAL = "--noise none --adc-bits 24 --dac-bits 24".split()


@pytest.mark.parametrize(
    ("model", "on", "search"), [("fast.pt", ",".join(PARTS), ["--beam", "1"]), ("attention.pt", "output", [])]
)
def test_without_noise_and_with_enough_bits_translations_are_the_digital_ones(
    folder, tmp_path, capsys, model, on, search
):
    run(folder, tmp_path / "out", *IDEAL, *search, model=model, on=on)
    assert "=" in capsys.readouterr().out
    assert (report(tmp_path / "out")["search"]["beam"] == 1) == bool(search)
    translated = files(tmp_path / "out")
    assert translated["1d.adc24.1.txt"] == translated["digital.txt"]
    text = ["--pretokenized", "--input", str(folder / "x.xx"), "--out", str(tmp_path / "y")]
    translate.main([str(folder / model), *text, *search])
    assert (tmp_path / "y").read_text() == translated["digital.txt"]


@pytest.mark.thorough  # 7 s: 17 translations
def test_the_same_seed_gives_the_same_report(folder, tmp_path):
    options = "--programmings 2 --time 25s 1h --adc-bits 6 8".split()
    for name in ("one", "two"):
        run(folder, tmp_path / name, *options)
    assert report(tmp_path / "one") == report(tmp_path / "two")
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert len(files(tmp_path / "one")) == 1 + 2 * 2 * 2
    run(folder, tmp_path / "three", *options, "--seed", "2")
    assert files(tmp_path / "one") != files(tmp_path / "three")


def test_the_report_has_all_parameters_and_scores(folder, tmp_path):
    run(folder, tmp_path / "out", *"--programmings 3 --time 25s 1h --renormalise".split())
    found = report(tmp_path / "out")
    assert found["hardware"]["noise model"] == "PCMLikeNoiseModel"
    assert found["hardware"]["tile_size"] == 256
    assert found["renormalize"] is True
    assert set(found["weights on crossbars"]) == {"mixing", "output"}
    assert {(row["system"], row["metric"]) for row in found["scores"]} == {
        (system, metric) for system in ("digital", "25s", "1h") for metric in ("BLEU", "chrF")
    }
    hour = next(row for row in found["scores"] if row["system"] == "1h")
    assert (hour["seconds"], hour["adc_bits"], hour["runs"], hour["baseline"]) == (3600, 8, 3, "digital")


def test_scores_ignore_case_if_the_data_does(folder, tmp_path):
    rules = {name: Tokenizer(name, lowercase=True) for name in ("xx", "yy")}
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    DatasetCard(source_lang="xx", target_lang="yy", words=rules).save(tmp_path)
    run(folder, tmp_path / "first", *IDEAL)
    (tmp_path / "x.yy").write_text(files(tmp_path / "first")["digital.txt"].upper())
    run(tmp_path, tmp_path / "out", *IDEAL, "--data", str(tmp_path))
    digital = [row for row in report(tmp_path / "out")["scores"] if row["system"] == "digital"]
    assert [row["score"] for row in digital] == pytest.approx([100, 100])
    assert all("case:lc" in row["signature"] for row in digital)


def test_it_goes_on_with_the_same_experiment_and_more_programmings_are_added(folder, tmp_path, capsys):
    out = tmp_path / "out"
    run(folder, out, "--programmings", "2", "--json")
    assert {row["system"] for row in json.loads(capsys.readouterr().out)} == {"digital", "1d"}
    before = files(out)
    (out / "1d.adc8.2.txt").unlink()
    kept = (out / "1d.adc8.1.txt").stat().st_mtime_ns
    run(folder, out, "--programmings", "3")
    assert before.items() < files(out).items()
    assert (out / "1d.adc8.1.txt").stat().st_mtime_ns == kept
    assert report(out)["programmings"] == 3
    capsys.readouterr()
    for more in (["--tile-size", "64"], ["--seed", "2"], ["--renormalize"], ["--beam", "2"]):
        assert "is of another experiment" in fails(capsys, analog.main, *words(folder, out, *more))
    content = json.loads((out / RECORD).read_text())
    old = {name: value for name, value in content.items() if name not in ("vocabulary", "renormalize")}
    (out / RECORD).write_text(json.dumps(old | {"renormalise": False}))
    run(folder, out, "--programmings", "3")  # as earlier versions wrote it
    capsys.readouterr()
    (out / RECORD).write_text(json.dumps(content | {"vocabulary": ["other", "other"]}))
    assert "with a difference in: vocabulary" in fails(capsys, analog.main, *words(folder, out))


def test_another_model_at_the_same_place_is_refused(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    arguments = words(tmp_path, tmp_path / "out", on="output")
    analog.main([*arguments, "--programmings", "1"])
    capsys.readouterr()
    (tmp_path / "attention.pt").rename(tmp_path / "fast.pt")
    assert "with a difference in: weights" in fails(capsys, analog.main, *arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--on mixin", "--on 'mixin': give one or more of mixing, projections, feed-forward, output"),
        ("--on mixing,mixing", "--on 'mixing,mixing': give one or more of"),
        ("--on output --time 25", "--time '25': give a number and a unit"),
        ("--on output --adc-bits 1", "--adc-bits 1: give 2 or more"),
        ("--on output --noise none --programmings 3", "--programmings 3 with --noise none: all would be equal."),
        ("--on output --noise reram --time 1h", "--noise reram was measured 1s, 1d and 2d after programming"),
        ("--on output --pretokenized --beam 0", "--beam 0: give 1 or more"),
        ("--on mixing --pretokenized", "the weights of attention cannot be stored"),
    ],
)
def test_bad_input(folder, tmp_path, capsys, arguments, sentence):
    test = ["--test", str(folder / "x.xx"), str(folder / "x.yy"), "--out", str(tmp_path / "out")]
    assert sentence in fails(capsys, analog.main, str(folder / "attention.pt"), *test, *arguments.split())
    assert not (tmp_path / "out").exists()


def test_an_empty_reference_is_refused_before_the_work(folder, tmp_path, capsys):
    (tmp_path / "empty").write_text("\n" * 4)
    test = ["--test", str(folder / "x.xx"), str(tmp_path / "empty")]
    assert "empty is empty. Give one with text" in fails(capsys, analog.main, *words(folder, tmp_path / "out"), *test)
    assert not (tmp_path / "out").exists()


def test_a_model_that_was_not_precomputed(folder, tmp_path, capsys):
    said = fails(capsys, analog.main, *words(folder, tmp_path / "out", model="model.pt"))
    assert "Give the model that posnet-precompute makes of it." in said


@pytest.mark.parametrize(
    ("python", "machine", "sentence"),
    [
        (("3", "15"), "x86_64", "has no wheel for Python"),
        (("3", "11"), "aarch64", "has no wheel for Python"),
        (("3", "11"), "x86_64", "is not installed. Run"),
    ],
)
def test_no_aihwkit(folder, tmp_path, capsys, monkeypatch, python, machine, sentence):
    monkeypatch.setattr(hardware.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(hardware.platform, "machine", lambda: machine)
    monkeypatch.setattr(hardware.platform, "python_version_tuple", lambda: (*python, "0"))
    assert sentence in fails(capsys, analog.main, *words(folder, tmp_path / "out"))


# The reports that docs/crossbars.md shows.
FOLDERS = {kind: sorted((ROOT / "results" / "crossbars" / kind).iterdir()) for kind in ("time", "bits")}
NOISE = sorted((ROOT / "results" / "crossbars" / "noise").iterdir())


@pytest.mark.parametrize("kind", FOLDERS)
def test_committed_reports_are_drawn(tmp_path, kind):
    made = crossbar_pictures.draw(list(map(str, FOLDERS[kind])), tmp_path / kind)
    assert {path.name for path in made} == {f"{kind}.png", f"{kind}.svg"}


def test_a_picture_says_what_it_leaves_out(tmp_path):
    """Scores of two times and of two numbers of bits, of which a panel has one."""
    rows = [
        {"system": "x", "metric": "BLEU", "score": 20.0 + bits, "seconds": seconds, "adc_bits": bits}
        for seconds in (25, 3600)
        for bits in (6, 8)
    ]
    write_lines(tmp_path / "report.json", [json.dumps({"scores": [{**rows[0], "system": "digital"}, *rows]})])
    _, picture = crossbar_pictures.draw([str(tmp_path)], tmp_path / "scores")
    assert "time since programming, with 8 bits<" in picture.read_text()
    assert "bits of the converters of outputs, after 1 h<" in picture.read_text()


@pytest.mark.parametrize("folder", [*FOLDERS["time"], *NOISE], ids=lambda folder: folder.name)
def test_the_tables_have_the_scores_of_the_reports(folder):
    text = (ROOT / "docs/crossbars.md").read_text(encoding="utf-8")
    rows = json.loads((folder / "report.json").read_text(encoding="utf-8"))["scores"]
    scores = [f"{row['score']:.1f}" for row in rows if row["metric"] == "BLEU"]
    (line,) = re.findall(rf"^\| `{folder.name}` \| (.*) \|$", text, re.M)
    assert line.split(" | ") == scores
