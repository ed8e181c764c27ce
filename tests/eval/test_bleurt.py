import math
import shutil

import numpy as np
import pytest
import torch
from bleurt_pytorch import BleurtForSequenceClassification, BleurtTokenizer
from safetensors.torch import load_file, save_file

from posnet_eval.metrics import bleurt as implementation
from posnet_eval.metrics import neural_metric
from posnet_eval.metrics.base import MetricOptions, Segment
from posnet_eval.metrics.bleurt import Bleurt
from posnet_fairseq.shared.errors import UsageError
from support.tiny_models import corpus, make_bleurt, scores

LONG = "the cat sat on the old bridge " * 300
LINES = corpus(24)
SEGMENTS = [
    *(Segment("", LINES[(n * 7) % 24], (LINES[-1 - n],)) for n in range(24)),
    Segment("", "", ("",)),
    Segment("", "", ("die Katze",)),
    Segment("", "一只狗跑过了桥", ("猫坐在老树上",)),
    Segment("", LONG[4:], (LONG,)),
    Segment("", LONG, ("die Katze",)),
]


def metric(folder, **options):
    return Bleurt(MetricOptions(bleurt_model=str(folder), device="cpu", **options))


def library(folder, segments):
    """Scores one by one as the library's own example has it, times 100."""
    model = BleurtForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = BleurtTokenizer.from_pretrained(folder)
    found = []
    for _, hypothesis, (reference,) in segments:
        inputs = tokenizer(
            [reference], [hypothesis], padding="longest", truncation=True, max_length=512, return_tensors="pt"
        )
        with torch.no_grad():
            found.append(100 * model(**inputs).logits.item())
    return found


@pytest.fixture
def copy(bleurt, tmp_path):
    """A BLEURT to write in."""
    return shutil.copytree(bleurt, tmp_path / "model")


@pytest.mark.parametrize("wordpiece", [False, True])
def test_scores_are_the_librarys(tmp_path, wordpiece):
    folder = make_bleurt(tmp_path / "model", wordpiece=wordpiece)
    ours = scores(metric(folder), SEGMENTS)
    assert ours == pytest.approx(library(folder, SEGMENTS), abs=1e-3)  # 1e-5 before scaling
    assert np.std(ours) > 0.1


def test_batches_are_bounded_and_complete(bleurt, monkeypatch):
    monkeypatch.setitem(implementation._TOKENS, "cpu", 128)
    monkeypatch.setitem(neural_metric.GROUP, "cpu", 10)
    ours = metric(bleurt)
    expected = scores(ours, SEGMENTS)
    sizes, forward = [], ours.networks[0].forward

    def watched(**inputs):
        sizes.append(inputs["input_ids"].shape)
        assert {"attention_mask", "token_type_ids"} <= inputs.keys()
        return forward(**inputs)

    monkeypatch.setattr(ours.networks[0], "forward", watched)
    assert [len(positions) for positions, _ in ours.statistics(SEGMENTS)] == [10, 10, 9]
    assert all(rows == 1 or rows * columns <= 128 for rows, columns in sizes)
    assert sizes[0] == (1, 512)
    assert scores(ours, SEGMENTS[::-1])[::-1] == pytest.approx(expected, abs=1e-3)


def test_a_model_of_fewer_positions(tmp_path):
    folder = make_bleurt(tmp_path / "short", positions=128)
    assert all(math.isfinite(score) for score in scores(metric(folder), SEGMENTS))


def test_weights_of_torch(copy):
    expected, before = scores(metric(copy), SEGMENTS[:4]), metric(copy).details()["id"]
    torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
    assert metric(copy).details()["id"] == before  # which are not read
    (copy / "model.safetensors").unlink()
    assert scores(metric(copy), SEGMENTS[:4]) == expected
    assert metric(copy).details()["id"] != before


def test_positions_need_not_be_stored(copy):
    expected = scores(metric(copy), SEGMENTS)
    weights = load_file(copy / "model.safetensors")
    del weights["bleurt.embeddings.position_ids"]
    save_file(weights, copy / "model.safetensors")
    assert scores(metric(copy), SEGMENTS) == expected


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("model.safetensors", "model.safetensors in .* cannot be read"),
        ("config.json", "config.json in .* cannot be read"),
        ("spm.model", "the tokenizer in .* cannot be read"),
    ],
)
def test_a_cut_file_is_refused(copy, name, says):
    data = (copy / name).read_bytes()
    (copy / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(UsageError, match=says):
        scores(metric(copy), SEGMENTS[:1])
