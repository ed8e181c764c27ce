"""posnet-score with BLEURT and COMET: a report, and the same one again without any model."""

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import posnet_fairseq as posnet
from posnet_eval.score import main
from support.scoring import FILES, SIZE, USUAL, refused, write

ARGUMENTS = (*USUAL, "--metrics", "comet,bleurt,bleu", "--cpu")


@pytest.fixture(autouse=True)
def models(data, comet, comet_kiwi, encoder, bleurt):
    for name, folder in {"comet": comet, "kiwi": comet_kiwi, "encoder": encoder, "bleurt": bleurt}.items():
        shutil.copytree(folder, data / name)


MODELS = ("--comet-model", "comet", "--comet-encoder", "encoder", "--bleurt-model", "bleurt")


def test_again_without_models(capsys):
    main([*ARGUMENTS, *MODELS, "--out", "first"])
    first = capsys.readouterr().out
    signatures = Path("first/report.md").read_text()
    assert "COMET: nrefs:1|bs:200|seed:12345|model:comet|id:" in signatures
    assert "|precision:fp32|scale:100" in signatures
    content = json.loads(Path("first/report.json").read_text())["test_sets"][0]
    assert [info["label"] for info in content["metrics"]] == ["COMET", "BLEURT", "BLEU"]
    mean = sum(content["segments"]["comet"]["good"]) / SIZE
    assert content["scores"]["good"]["comet"]["value"] == pytest.approx(mean, abs=1e-3)
    for folder in ("comet", "encoder", "bleurt"):
        Path(folder, "config.json").unlink(missing_ok=True)
        Path(folder, "hparams.yaml").unlink(missing_ok=True)
    main([*ARGUMENTS, *MODELS, "--out", "second", "--cached-only"])
    assert capsys.readouterr().out == first
    for name in FILES:
        assert Path("first", name).read_bytes() == Path("second", name).read_bytes()
    assert "is not a COMET model: there is no hparams.yaml" in refused(capsys, *ARGUMENTS, *MODELS)


def test_lines_that_are_longer_than_models_read_are_remarked(capsys):
    """Of any of the texts, once for all systems; also when the scores are cached, and no model is there."""
    main([*ARGUMENTS, *MODELS])
    assert "longer than" not in capsys.readouterr().out
    for name, numbers in {"good.txt": (4, 9), "test.en": (9, 20), "test.de": (31,)}.items():
        lines = Path(name).read_text().splitlines()
        for number in numbers:
            lines[number - 1] = "the cat sat on the old bridge " * 60
        write(Path(name), lines)
    main([*ARGUMENTS, *MODELS])
    found = capsys.readouterr()
    of = "test: {} than {} reads: the end of a {} does not count ({})\n"
    comet = of.format("4 lines are longer", "COMET", "source, reference or translation", "4, 9, 20, 31")
    bleurt = of.format("3 lines are longer", "BLEURT", "reference or translation", "4, 9, 31")
    assert f"note: {comet}" in found.out
    assert f"note: {bleurt}" in found.out
    assert found.out.count(" reads: the end of ") == 2
    assert "Token indices" not in found.err
    Path("comet", "hparams.yaml").unlink()
    main([*ARGUMENTS, *MODELS, "--cached-only"])
    assert capsys.readouterr().out == found.out


def test_long_lines_of_one_test_set_beside_another_without_outputs(capsys):
    lines = Path("good.txt").read_text().splitlines()
    write(Path("good.txt"), ["the cat sat on the old bridge " * 60, *lines[1:]])
    texts = {"source": "test.en", "reference": "test.de"}
    sets = {"there": {**texts, "outputs": "{system}.txt"}, "later": {**texts, "outputs": "later/{system}.txt"}}
    write(Path("c.yaml"), [json.dumps({"systems": ["good", "base"], "test_sets": sets})])
    main(["--config", "c.yaml", "--skip-missing", "--metrics", "comet", "--cpu", *MODELS])
    assert "note: there: 1 line is longer than COMET reads" in capsys.readouterr().out


KIWI = ("--metrics", "comet-kiwi", "--comet-kiwi-model", "kiwi", "--comet-encoder", "encoder", "--cpu")
NO_REFERENCE = ("--source", "test.en", "--system", "good=good.txt", "base=base.txt", "--resamples", "200", *KIWI)


def test_estimates_without_a_reference(capsys):
    """The scores are those of a run with references, and of the cache; nothing is said of a reference."""
    write(Path("groups"), ["some", "others"] * (SIZE // 2))
    lines = Path("base.txt").read_text().splitlines()
    write(Path("base.txt"), ["", "the cat sat on the old bridge " * 60, *lines[2:]])
    main([*NO_REFERENCE, "--groups", "groups", "--out", "first"])
    printed = capsys.readouterr().out
    assert printed.startswith(f"test, en, {SIZE} lines\n")
    assert "note: base on test: 1 line is empty (1)\n" in printed
    assert "note: test: 1 line is longer than COMETKiwi reads: the end of a source or translation" in printed
    assert printed.count("note: ") == 2
    assert "COMETKiwi: nrefs:0|bs:200|seed:12345|model:kiwi|id:" in Path("first/report.md").read_text()
    (alone,) = json.loads(Path("first/report.json").read_text())["test_sets"]
    Path("kiwi/hparams.yaml").unlink()
    main([*NO_REFERENCE, "--reference", "test.de", "other.txt", "--cached-only", "--out", "second"])
    (beside,) = json.loads(Path("second/report.json").read_text())["test_sets"]
    assert beside["segments"] == alone["segments"]
    assert [group["size"] for group in alone["by_group"]] == [SIZE // 2] * 2


def test_what_a_text_without_a_reference_lacks(capsys):
    said = refused(capsys, *NO_REFERENCE, "--metrics", "comet-kiwi,bleu")
    assert "BLEU reads the reference, of which test has none. Give --reference, or --metrics comet-kiwi alone" in said
    write(Path("base.txt"), Path("base.txt").read_text().splitlines()[1:])
    assert f"base.txt has {SIZE - 1} lines, the source {SIZE}; line " in refused(capsys, *NO_REFERENCE)


def test_what_cannot_run_is_said_before_anything_is_computed(capsys):
    said = refused(capsys, *ARGUMENTS, "--comet-model", "~nobody/at/all", "--bleurt-model", "no/where/else")
    for name in ("~nobody/at/all", "no/where/else"):
        assert f"{name}: there is no such folder" in said
    assert "BLEU " not in said


def test_several_references(data):
    """The mean or the largest of the scores by each reference that a line has, which are cached one by one."""
    systems = {name: Path(f"{name}.txt") for name in ("base", "good")}
    options = {"sources": Path("test.en"), "metrics": "comet,bleurt", "resamples": 100, "device": "cpu"}
    options |= {"comet_model": "comet", "comet_encoder": "encoder", "bleurt_model": "bleurt"}
    one, other = Path("test.de"), Path("other.txt")
    first, second = (posnet.score(systems, each, **options).test_sets[0] for each in (one, other))
    gaps = ["", *other.read_text().splitlines()[1:-1], " "]
    shutil.rmtree("comet/checkpoints")
    cached = options | {"cached_only": True}
    for how, join in {"mean": np.mean, "max": np.max}.items():
        found = posnet.score(systems, [one, gaps], multi_reference=how, **cached).test_sets[0]
        whole = posnet.score(systems, [one, other], multi_reference=how, **cached).test_sets[0]
        for metric, name in itertools.product(("comet", "bleurt"), systems):
            expected = join([first.segments[metric][name], second.segments[metric][name]], axis=0)
            assert whole.segments[metric][name] == pytest.approx(expected, abs=1e-9)
            expected[[0, -1]] = first.segments[metric][name][[0, -1]]
            assert found.segments[metric][name] == pytest.approx(expected, abs=1e-9)
            assert found.scores[name][metric].value == pytest.approx(expected.mean(), abs=1e-9)
        assert found.metrics[0].signature.startswith(f"nrefs:var|bs:100|seed:12345|refs:{how}|model:comet|")
        assert whole.metrics[1].signature.startswith(f"nrefs:2|bs:100|seed:12345|refs:{how}|model:bleurt|")
    assert posnet.score(systems, [one, other], **cached).rows()[0]["signature"].count("refs:mean") == 1
    assert "refs:m" not in first.metrics[0].signature
