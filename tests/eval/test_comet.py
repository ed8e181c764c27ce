"""COMET: the library's scores, and its models on disk and in the hub's cache, damaged, foreign or missing, too."""

import contextlib
import math
import random
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError
from requests import Response

from posnet_eval.metrics import neural_metric
from posnet_eval.metrics.base import MetricOptions, Segment
from posnet_eval.metrics.comet import Comet, CometKiwi
from posnet_eval.metrics.neural_metric import read_weights
from posnet_fairseq.shared.errors import UsageError
from support.commands import ROOT, python
from support.signals import PATIENCE
from support.tiny_models import checkpoint, corpus, in_hub_cache, make_comet, scores

LONG = "the cat sat on the old bridge " * 300

# Of all lengths, source and reference shared by translations; empty lines, Chinese, a reference that is a translation.
LINES = corpus(24)
SEGMENTS = [
    *(Segment(LINES[n], LINES[(n * 7 + system) % 24], (LINES[-1 - n],)) for n in range(24) for system in range(3)),
    Segment("", "", ("",)),
    Segment("the cat", "", ("die Katze",)),
    Segment("猫坐在垫子上", "一只狗跑过了桥", ("猫坐在老树上",)),
    Segment("the cat", "die Katze", ("die Katze",)),
    Segment(LONG, "die Katze", (LONG[8:],)),
]


def metric(folder, **options):
    return Comet(MetricOptions(comet_model=str(folder), device="cpu", **options))


def kiwi(folder, **options):
    return CometKiwi(MetricOptions(comet_kiwi_model=str(folder), device="cpu", **options))


def refusal(folder, **options):
    with pytest.raises(UsageError) as error:
        scores(metric(folder, **options), SEGMENTS[:1])
    return str(error.value)


def rewrite(folder, change):
    content = torch.load(checkpoint(folder), weights_only=True)
    change(content)
    torch.save(content, checkpoint(folder))


def library(folder, segments):
    """Scores by the library's own API, times 100."""
    from comet.models import load_from_checkpoint

    model = load_from_checkpoint(checkpoint(folder), local_files_only=True)
    samples = [{"src": s, "mt": h} | dict(zip(["ref"], known, strict=False)) for s, h, known in segments]
    return [100 * score for score in model.predict(samples, gpus=0, num_workers=0, progress_bar=False).scores]


def test_scores_are_the_librarys(comet):
    ours = scores(metric(comet), SEGMENTS)
    assert ours == pytest.approx(library(comet, SEGMENTS), abs=1e-3)  # 1e-5 before scaling
    assert np.std(ours) > 0.1


def test_scores_without_a_reference_are_the_librarys(comet_kiwi):
    """Texts that are cut alone, or together with the source, too; references are not looked at."""
    half = " ".join(LONG.split()[:30])
    pairs = dict.fromkeys([*((source, line) for source, line, _ in SEGMENTS), (half, f"{half} so")])
    segments = [Segment(*pair, ()) for pair in pairs]
    ours = kiwi(comet_kiwi, references=2)
    expected = library(comet_kiwi, segments)
    assert scores(ours, segments) == pytest.approx(expected, abs=1e-3)
    assert np.std(expected) > 0.1
    assert [segments[place].source for place in sorted(ours.cut)] == [LONG, half]
    details = ours.details()
    assert (details["nrefs"], details["model"]) == ("0", "tiny-kiwi")


def test_models_of_the_other_kind_are_refused(comet, comet_kiwi):
    with pytest.raises(
        UsageError, match="unified_metric; give --comet-kiwi-model one with a class_identifier of these"
    ):
        kiwi(comet).details()
    assert "give --comet-model one with a class_identifier of these" in refusal(comet_kiwi)


@pytest.mark.parametrize(
    "settings", [{"layer": 1, "pool": "cls"}, {"layer_transformation": "sparsemax", "pool": "max"}], ids=str
)
def test_other_settings_score_as_the_librarys(settings, comet, encoder, tmp_path):
    folder = make_comet(tmp_path / "model", encoder, **settings)
    ours = scores(metric(folder), SEGMENTS[:9])
    assert ours == pytest.approx(library(folder, SEGMENTS[:9]), abs=1e-3)
    assert ours != pytest.approx(scores(metric(comet), SEGMENTS[:9]), abs=1e-2), "the setting counts"


def test_the_patch_of_the_transformation_is_obeyed(copy):
    """As in wmt22-comet-da: a checkpoint says sparsemax, and the settings beside it that this is not to be."""
    rewrite(copy, lambda content: content["hyper_parameters"].update(layer_transformation="sparsemax"))
    before = scores(metric(copy), SEGMENTS[:9])
    settings = yaml.safe_load((copy / "hparams.yaml").read_text()) | {"layer_transformation": "sparsemax_patch"}
    (copy / "hparams.yaml").write_text(yaml.safe_dump(settings))
    after = scores(metric(copy), SEGMENTS[:9])
    assert after == pytest.approx(library(copy, SEGMENTS[:9]), abs=1e-3)
    assert after != pytest.approx(before, abs=1e-1)


def test_every_text_of_a_group_is_encoded_once(comet, monkeypatch):
    monkeypatch.setitem(neural_metric.GROUP, "cpu", 30)
    ours = metric(comet)
    rows, encode = [], ours.networks[0].get_sentence_embedding
    monkeypatch.setattr(
        ours.networks[0], "get_sentence_embedding", lambda ids, mask: rows.append(len(ids)) or encode(ids, mask)
    )
    found = [positions for positions, _ in ours.statistics(SEGMENTS)]
    groups = [[SEGMENTS[position] for position in positions] for positions in found]
    texts = [{text for s, h, (r,) in group for text in (s, h, r)} for group in groups]
    assert [len(group) for group in groups] == [30, 30, 17]
    assert sum(rows) == sum(map(len, texts))
    assert sum(rows) < 2 * len(SEGMENTS)  # translations of one source are in one group


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_checkpoint_that_runs_code_is_refused_and_does_not(copy, tmp_path):
    rewrite(copy, lambda content: content.update(callbacks=Payload(tmp_path / "it ran")))
    assert "docs/scoring.md" in refusal(copy)
    assert not (tmp_path / "it ran").exists()
    torch.load(checkpoint(copy), weights_only=False)
    assert (tmp_path / "it ran").exists(), "the payload is none"


def test_the_documented_command_makes_a_refused_checkpoint_plain(copy):
    expected = scores(metric(copy), SEGMENTS[:5])

    def as_older_versions_saved(content):
        settings = content["hyper_parameters"] | {"dropout": np.float64(0.1), "train_data": [Path("a.csv")]}
        content["hyper_parameters"] = Namespace(**settings)

    rewrite(copy, as_older_versions_saved)
    assert "was refused" in refusal(copy)
    section = (ROOT / "docs/scoring.md").read_text().split("## A COMET checkpoint that is refused")[1]
    command = re.search(r"```bash\n(.*?)```", section, re.DOTALL).group(1)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    subprocess.run(["bash", "-ec", command], cwd=copy, env={"PATH": path}, check=True, timeout=PATIENCE)
    assert scores(metric(copy), SEGMENTS[:5]) == expected


def test_details(comet, copy, encoder, tmp_path):
    details = metric(comet).details()
    assert list(details) == ["model", "id", "unbabel-comet", "transformers", "torch", "precision", "scale"]
    assert details["model"] == "tiny-comet"
    assert re.fullmatch("[0-9a-f]{12}", details["id"])
    assert (details["precision"], details["scale"]) == ("fp32", "100")
    assert metric(copy).details()["id"] == details["id"]
    rewrite(copy, lambda content: content["state_dict"]["estimator.ff.0.bias"].add_(1e-6))
    assert metric(copy).details()["id"] != details["id"]
    other = Path(shutil.copytree(encoder, tmp_path / "other"))
    assert metric(comet, comet_encoder=str(other)).details()["id"] == details["id"]
    (other / "tokenizer.json").write_text((other / "tokenizer.json").read_text() + "\n")
    assert metric(comet, comet_encoder=str(other)).details()["id"] != details["id"]


@pytest.mark.thorough  # 8 s: starts a process
def test_nothing_is_printed(comet):
    """In a process of its own, where the libraries' warnings are still to come."""
    program = (
        "import logging; from posnet_eval.metrics import get_metric; from posnet_eval.metrics.base import *\n"
        f"metric = get_metric('comet', MetricOptions(comet_model={str(comet)!r}, device='cpu'))\n"
        f"rows = list(metric.statistics([Segment('a', {LONG!r}, ('c',)), Segment('a', '', ('c',))]))\n"
        "logging.getLogger('others').info('not said before, not said now')\n"
        "assert not logging.getLogger().handlers"
    )
    done = python(program, check=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("", "")


def test_nan_is_left_to_the_caller(copy):
    rewrite(copy, lambda content: content["state_dict"]["estimator.ff.0.bias"].fill_(math.nan))
    assert all(math.isnan(score) for score in scores(metric(copy), SEGMENTS[:3]))


def test_lowercase_is_that_of_lower_cased_translations(comet):
    """As sacreBLEU's metrics have it; the source stays as it is."""
    cased, lower = Segment("Source S", "Die KATZE", ("Der Hund",)), Segment("Source S", "die katze", ("der hund",))
    assert scores(metric(comet, lowercase=True), [cased]) == pytest.approx(scores(metric(comet), [lower]), rel=1e-4)
    assert metric(comet, lowercase=True).details()["case"] == "lc"


def test_missing_estimator_is_refused(copy):
    def drop(content):
        content["state_dict"] = {k: v for k, v in content["state_dict"].items() if not k.startswith("estimator")}

    rewrite(copy, drop)
    assert re.search(r"model.ckpt lacks 6 of the model's weights, such as estimator\.ff\.0\.weight", refusal(copy))


def test_weights_of_another_shape_are_refused(copy):
    rewrite(copy, lambda content: content["hyper_parameters"].update(hidden_sizes=[48, 17]))
    assert "does not fit the model's configuration: size mismatch for estimator" in refusal(copy)


@pytest.mark.parametrize("share", [0, 0.5, 0.999])
def test_a_cut_checkpoint_is_refused(copy, share):
    data = checkpoint(copy).read_bytes()
    checkpoint(copy).write_bytes(data[: int(share * len(data))])
    assert "model.ckpt in " in refusal(copy)


def test_scrambled_checkpoints_are_refused(copy):
    data, generator = checkpoint(copy).read_bytes(), random.Random(1)
    for _ in range(50):
        scrambled = bytearray(data)
        for _ in range(10):
            scrambled[generator.randrange(600)] = generator.randrange(256)
        checkpoint(copy).write_bytes(scrambled)
        with contextlib.suppress(UsageError):
            read_weights(checkpoint(copy), "")


@pytest.mark.parametrize("content", [["a list"], {"state_dict": {}}, {"hyper_parameters": {"layer": "mix"}}], ids=str)
def test_what_is_no_comet_checkpoint_is_refused(copy, content):
    torch.save(content, checkpoint(copy))
    assert "download the folder again" in refusal(copy)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "hparams.yaml in .* cannot be read"),
        ("!!python/object/apply:os.getcwd []", "hparams.yaml in .* cannot be read"),
        ("class_identifier: unified_metric", "class_identifier 'unified_metric'. Supported are regr"),
        ("class_identifier: regression_metric\nencoder_model: MiniLM", "encoder_model 'MiniLM'"),
    ],
)
def test_damaged_or_foreign_settings_are_refused(copy, text, says):
    (copy / "hparams.yaml").write_text(text)
    assert re.search(says, refusal(copy))
    with pytest.raises(UsageError, match=says):
        metric(copy).details()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_damaged_encoder_is_refused(comet, encoder, tmp_path, name):
    broken = Path(shutil.copytree(encoder, tmp_path / "encoder"))
    (broken / name).write_text((broken / name).read_text()[:-20])
    said = refusal(comet, comet_encoder=str(broken))
    assert f"configuration or tokenizer of the encoder in {broken} cannot be read" in said


def test_the_encoder_may_be_elsewhere(copy, encoder, tmp_path):
    expected = scores(metric(copy), SEGMENTS[:3])
    moved = shutil.copytree(encoder, tmp_path / "moved")
    settings = yaml.safe_load((copy / "hparams.yaml").read_text()) | {"pretrained_model": "/is/not/here"}
    (copy / "hparams.yaml").write_text(yaml.safe_dump(settings))
    assert "/is/not/here: there is no such folder. Give --comet-encoder" in refusal(copy)
    assert scores(metric(copy, comet_encoder=str(moved)), SEGMENTS[:3]) == expected


@pytest.mark.usefixtures("no_hub")
def test_a_hub_that_cannot_be_reached(capfd):
    said = refusal("wmt20-comet-da")
    assert said.startswith("Unbabel/wmt20-comet-da is neither a local folder nor complete in the Hugging Face cache")
    assert "huggingface-cli download Unbabel/wmt20-comet-da --include hparams.yaml checkpoints/model.ckpt where" in said
    assert "copy models--Unbabel--wmt20-comet-da from ~/.cache/huggingface/hub there to " in said
    assert "huggingface-cli download xlm-roberta-large --include" in said
    assert "copy models--xlm-roberta-large" in said
    assert "--comet" not in said  # posnet-run has no such options
    assert "\n" not in said
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("no_hub")
def test_a_model_with_a_license(monkeypatch):
    def gated(*_, local_files_only=False, **options):
        raise LocalEntryNotFoundError("not here") if local_files_only else GatedRepoError("401", response=Response())

    monkeypatch.setattr("huggingface_hub.snapshot_download", gated)
    with pytest.raises(UsageError, match=r"at https://huggingface.co/Unbabel/wmt22-cometkiwi-da and log in with hugg"):
        kiwi("Unbabel/wmt22-cometkiwi-da").details()


@pytest.mark.usefixtures("no_hub")
def test_models_in_the_hubs_cache(copy, encoder, tmp_path):
    expected = scores(metric(copy), SEGMENTS[:3])
    settings = yaml.safe_load((copy / "hparams.yaml").read_text()) | {"pretrained_model": "xlm-roberta-large"}
    (copy / "hparams.yaml").write_text(yaml.safe_dump(settings))
    in_hub_cache(tmp_path / "cache", "Unbabel/wmt20-comet-da", copy)
    assert refusal("wmt20-comet-da").startswith(
        "xlm-roberta-large is neither a local folder nor complete in the Hugging Face cache"
    )
    in_hub_cache(tmp_path / "cache", "xlm-roberta-large", encoder)
    ours = metric("wmt20-comet-da")
    assert scores(ours, SEGMENTS[:3]) == expected
    assert ours.details()["model"] == "wmt20-comet-da"
    assert ours.details()["id"] == metric(copy, comet_encoder=str(encoder)).details()["id"]
    (incomplete,) = (tmp_path / "cache").rglob("model.ckpt")
    incomplete.unlink()
    said = refusal("wmt20-comet-da")
    assert "nor complete in the Hugging Face cache. It is downloaded at first use if the hub can be reached" in said
