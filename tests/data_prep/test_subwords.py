"""Subwords learned from a training set."""

import pytest

from posnet_data_prep.dataset import Recipe
from posnet_data_prep.pipeline import sets, subwords
from posnet_data_prep.pipeline.subwords import count_words, learn_pieces
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.text.subwords import SentencePieces

LINES = ["the cat sat", "the dog ran", "hidden words", "the the cats"]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "sets").write_text("train\ntrain\nvalid\ntrain\n")
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in LINES))
    return tmp_path / "sets", [tmp_path / "text"]


def test_a_dropped_pair_keeps_its_number(tmp_path):
    """Of pairs that are cleaned by their pieces: which ones are for validation is decided by their lines."""
    (tmp_path / "text").write_text("\n".join(["a", "b" * 1001, "c", "d", ""]))
    with ProgressReporter().stage("split") as bar:
        sets.split([tmp_path / "text"] * 2, tmp_path / "sets", Recipe(valid_every=2), bar)
    assert (tmp_path / "sets").read_text().split() == ["train", "-", "train", "valid"]


def count(files, processes=1):
    with ProgressReporter().stage("count") as bar:
        return count_words(*files, processes, bar)


@pytest.mark.parametrize("processes", [1, 2])
def test_counts_the_training_set_only(files, processes):
    words, different = count(files, processes)
    assert list(words.items()) == [("the", 4), ("cat", 1), ("sat", 1), ("dog", 1), ("ran", 1), ("cats", 1)]
    assert different == 6


def test_of_too_many_words_the_rarest_are_left_out(files, monkeypatch):
    monkeypatch.setattr(subwords, "MOST_WORDS", 3)
    assert count(files) == ({"the": 4, "cat": 1, "sat": 1}, 6)


def test_pieces_of_a_long_text_are_learned_from_some_of_its_lines(files, tmp_path, monkeypatch):
    monkeypatch.setattr(subwords, "MOST_LINES", 2)
    assert learn_pieces(*files, 30, tmp_path / "model", 3)["lines"] == 2
    model = SentencePieces(tmp_path / "model")
    assert model.join(model.split("the cats")) == "the cats"
    learn_pieces(*files, 10, tmp_path / "model", 3)
    (tmp_path / "none").write_text("test\n" * 4)
    with pytest.raises(UsageError, match=r"they cannot be learned from this text\. It is empty"):
        learn_pieces(tmp_path / "none", files[1], 30, tmp_path / "model", 0)
