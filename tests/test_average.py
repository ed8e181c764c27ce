from pathlib import Path

import pytest
import torch
from test_bad_input import checkpoint

from posnet_fairseq.cli.average import Candidate, average, candidates, choose, lost_best


def run(*scores, maximize=False):
    return [Candidate(Path(f"{index}.pt"), index, score, maximize=maximize) for index, score in enumerate(scores)]


@pytest.mark.parametrize(
    ("losses", "number", "first"),
    [
        ((5, 3, 4, 4), 2, 1),  # the best and the one that follows
        ((5, 4, 4, 3), 2, 2),  # none follows: the last two
        ((5, 4, 3, 4), 3, 1),  # one follows: the last three
        ((3, 4, 5, 6), 4, 0),
        ((3, 3, 5, 6), 1, 0),  # the earlier of two best
        ((None, None, None), 2, 1),  # never validated
        ((None, 2, 3), 2, 1),
    ],
)
def test_best_and_following_or_last(losses, number, first):
    chosen = choose(run(*losses), number)
    assert [candidate.updates for candidate in chosen] == list(range(first, first + number))


def test_best_is_the_largest_of_a_metric_to_maximize():
    chosen = choose(run(10.0, 30.0, 20.0, 25.0, maximize=True), 2)
    assert [candidate.updates for candidate in chosen] == [1, 2]


def test_a_lost_best_checkpoint_is_noticed():
    kept = [Candidate(Path(f"{i}.pt"), i, score, best=2.5, metric="ppl") for i, score in enumerate((4.0, 3.0))]
    assert "ppl 2.5000) was not kept" in lost_best(kept)
    kept = [Candidate(Path(f"{i}.pt"), i, score, best=3.0) for i, score in enumerate((4.0, 3.0))]
    assert lost_best(kept) is None
    assert lost_best(run(None, None)) is None


def test_no_number_is_not_the_best(tmp_path):
    checkpoint(tmp_path / "checkpoint_1_20.pt", updates=20, loss=float("nan"))
    checkpoint(tmp_path / "checkpoint_1_30.pt", updates=30, loss=3.0)
    assert choose(candidates(tmp_path), 1)[0].updates == 30


def test_shared_tensors_are_saved_once(tmp_path):
    paths = [checkpoint(tmp_path / f"checkpoint_1_{i}.pt", updates=i) for i in (1, 2)]
    mean = average(paths)["model"]
    assert mean["encoder.embed_tokens.weight"] is mean["decoder.output_projection.weight"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mean_of_half_precision_is_not_rounded_to_it(tmp_path, dtype):
    paths = []
    for number in (1, 2):
        paths.append(checkpoint(tmp_path / f"checkpoint_1_{number}.pt", updates=number))
        state = torch.load(paths[-1], weights_only=True)
        state["model"] = {name: tensor.to(dtype) for name, tensor in state["model"].items()}
        torch.save(state, paths[-1])
    name = "encoder.embed_tokens.weight"
    first, second = (torch.load(path, weights_only=True)["model"][name].double() for path in paths)
    mean = average(paths)["model"][name]
    assert mean.dtype == torch.float32
    assert torch.equal(mean.double(), (first + second) / 2)


def test_candidates_are_the_numbered_checkpoints_in_order_of_training(tmp_path):
    checkpoint(tmp_path / "checkpoint_2_100.pt", updates=100, loss=2.0)
    checkpoint(tmp_path / "checkpoint_1_20.pt", updates=20, loss=3.0)
    checkpoint(tmp_path / "checkpoint2.pt", updates=100, loss=2.0)
    for copy in ("checkpoint_best", "checkpoint_last", "checkpoint.best_loss_2.00", "averaged"):
        checkpoint(tmp_path / f"{copy}.pt", updates=100)
    found = candidates(tmp_path)
    assert [(candidate.updates, candidate.valid) for candidate in found] == [(20, 3.0), (100, 2.0)]
