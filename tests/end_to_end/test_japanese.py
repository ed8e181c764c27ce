"""From text in a language without spaces to scores, with the defaults of posnet-prepare and posnet-score."""

import importlib.util
import itertools
import json
import random

import pytest

from posnet_data_prep import prepare
from posnet_fairseq import api
from posnet_fairseq.cli import export, run, translate
from support.scoring import write

SUBJECTS = {"The cat": "猫", "A dog": "犬", "My teacher": "先生", "Mr. Tanaka": "田中さん", "She": "彼女"}
PLACES = {"at home": "家", "in the park": "公園", "at school": "学校", "in Tokyo": "東京", "on the train": "電車"}
OBJECTS = {"a fish": "魚", "the book": "本", "a letter ✉": "手紙✉", "water": "水", "<b>the code</b>": "<b>コード</b>"}
VERBS = {"likes": "が好きです。", "sees": "を見ます。", "buys": "を買います！", "forgets": "を忘れます。"}
SETTINGS = (
    "--size tiny --mixer shaw --updates 90 --interval 30 --average 1 --warmup 30 --tokens 1500 --max-positions 64 "
    "--cpus 1 --max-len-a 0 --max-len-b 40"
)
NARROW = "--encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 96 --decoder-embed-dim 96 --dropout 0 --lr 0.003"


def pairs():
    """Every sentence that can be made, in random order."""
    words = list(itertools.product(SUBJECTS, VERBS, OBJECTS, PLACES))
    random.Random(1).shuffle(words)
    for subject, verb, what, where in words:
        yield (
            f"{subject} {verb} {what} {where}.",
            f"{SUBJECTS[subject]}は{PLACES[where]}で{OBJECTS[what]}{VERBS[verb]}",
        )


@pytest.mark.slow
def test_japanese(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    every = list(pairs())
    for name, part in (("train", every[:400]), ("valid", every[400:440]), ("test", every[440:])):
        for side, language in enumerate(("en", "ja")):
            write(tmp_path / f"{name}.{language}", [pair[side] for pair in part])
    files = [word for name in ("train", "valid", "test") for word in (f"--{name}", f"{name}.en", f"{name}.ja")]
    prepare.main(["corpus", *files, "--pieces", "200", "--workers", "1", "--out", "data"])
    assert "every line of valid and test comes back" in capsys.readouterr().err
    run.main(["corpus", "--data", "data", "--runs", "runs", *SETTINGS.split(), f"--options={NARROW}"])
    (checkpoint,) = tmp_path.glob("runs/*/*/averaged.pt")
    (report,) = tmp_path.glob("runs/*/*/report/report.json")
    scores = json.loads(report.read_text())["test_sets"][0]
    assert {name: of["value"] > 60 for name, of in scores["scores"]["shaw"].items()} == {"bleu": True, "chrf": True}
    if not importlib.util.find_spec("MeCab"):
        assert "BLEU counts characters, as ja-mecab, sacreBLEU's tokenizer for ja, is not" in str(scores["remarks"])
    export.main([str(checkpoint), "--data", "data", "--out", "folder"])
    unseen = "Mr. Tanaka sees \u0e1b\u0e25\u0e32 🐟 at home."
    write(tmp_path / "new.en", [unseen, *(pair[0] for pair in every[440:450])])
    found = []
    for words in ([str(checkpoint), "--data", "data"], ["folder"], ["folder", "--stream"]):
        capsys.readouterr()
        translate.main([*words, "--cpu", "--input", "new.en"])
        found.append(capsys.readouterr().out.split("\n"))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 12
    assert "▁" not in "".join(found[0])
    assert "<unk>" not in found[0][0]
    assert "<0x" not in found[0][0]
    best, _ = api.load("folder").translate(unseen, nbest=2)
    assert "<unk>" not in best.source_tokens
    assert "<0xF0>" in best.source_tokens, "🐟 is in no sentence of the training set"
