"""COMETs and segments for tests."""

import pytest
import torch

from posnet_eval.metrics.base import MetricOptions, Segment
from posnet_eval.metrics.comet import Comet
from posnet_fairseq.shared.errors import UsageError
from support.tiny_models import checkpoint, corpus, scores

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


def refusal(folder, segments=SEGMENTS[:1], **options):
    with pytest.raises(UsageError) as error:
        scores(metric(folder, **options), segments)
    return str(error.value)


def rewrite(folder, change):
    content = torch.load(checkpoint(folder), weights_only=True)
    change(content)
    torch.save(content, checkpoint(folder))
