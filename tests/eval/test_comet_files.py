"""COMET's models on disk and in the hub's cache: damaged, foreign, incomplete or missing."""

import contextlib
import random
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from posnet_eval.metrics.neural_metric import read_weights
from posnet_fairseq.shared.errors import UsageError
from support.comet import SEGMENTS, metric, refusal, rewrite
from support.tiny_models import checkpoint, in_hub_cache, scores


def test_missing_estimator_is_refused(copy):
    def drop(content):
        content["state_dict"] = {k: v for k, v in content["state_dict"].items() if not k.startswith("estimator")}

    rewrite(copy, drop)
    assert re.search(r"model.ckpt lacks 6 of the model's weights, such as estimator\.ff\.0\.weight", refusal(copy))


def test_weights_of_another_shape_are_refused(copy):
    rewrite(copy, lambda content: content["hyper_parameters"].update(hidden_sizes=[48, 17]))
    assert "does not fit the model's configuration: size mismatch for estimator" in refusal(copy)


@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.999])
def test_a_cut_checkpoint_is_refused(copy, share):
    data = checkpoint(copy).read_bytes()
    checkpoint(copy).write_bytes(data[: int(share * len(data))])
    assert "model.ckpt in " in refusal(copy)


def test_scrambled_checkpoints_are_refused(copy):
    data, generator = checkpoint(copy).read_bytes(), random.Random(1)
    for _ in range(200):
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
    ("name", "text", "says"),
    [
        ("hparams.yaml", "a: [", "hparams.yaml in .* cannot be read"),
        ("hparams.yaml", "!!python/object/apply:os.getcwd []", "hparams.yaml in .* cannot be read"),
        ("hparams.yaml", "", "hparams.yaml in .* cannot be read"),
        ("hparams.yaml", "class_identifier: unified_metric", "class_identifier 'unified_metric'. Supported are regr"),
        (
            "hparams.yaml",
            "class_identifier: regression_metric\nencoder_model: MiniLM",
            "encoder_model 'MiniLM'",
        ),
    ],
)
def test_damaged_or_foreign_settings_are_refused(copy, name, text, says):
    (copy / name).write_text(text)
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
@pytest.mark.parametrize("name", ["Unbabel/wmt20-comet-da", "wmt20-comet-da"])
def test_a_hub_that_cannot_be_reached(name, capfd):
    said = refusal(name)
    assert said.startswith("Unbabel/wmt20-comet-da is neither a local folder nor complete in the Hugging Face cache")
    assert "huggingface-cli download Unbabel/wmt20-comet-da --include hparams.yaml checkpoints/model.ckpt where" in said
    assert "copy models--Unbabel--wmt20-comet-da from ~/.cache/huggingface/hub there to " in said
    assert "huggingface-cli download xlm-roberta-large --include" in said
    assert "copy models--xlm-roberta-large" in said
    assert "--comet" not in said  # posnet-run has no such options
    assert "\n" not in said
    assert capfd.readouterr() == ("", "")


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


def test_an_incomplete_download_is_not_taken_for_a_model(copy, tmp_path, no_hub):
    checkpoint(copy).unlink()
    in_hub_cache(tmp_path / "cache", "Unbabel/wmt20-comet-da", copy)
    said = refusal("wmt20-comet-da")
    assert "nor complete in the Hugging Face cache. It is downloaded at first use if the hub can be reached" in said
