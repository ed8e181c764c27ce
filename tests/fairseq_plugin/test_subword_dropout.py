"""Training text that is split into other subwords in every epoch, and all else that stays as it is."""

import random
import shutil
from types import SimpleNamespace

import pytest
import torch
from fairseq import tasks
from fairseq.data import Dictionary

from posnet_data_prep.prepare import main as prepare
from posnet_fairseq.fairseq_plugin import subword_dropout
from posnet_fairseq.runs import before_training
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.pipeline import pipeline_of
from posnet_fairseq.text.subwords import SentencePieces
from support import commands
from support.corpus import make_corpus, prepared

SYMBOLS = ("--symbols", "a19,b19")
KINDS = {
    "merges": ("--merges", "30"),
    "pieces": ("--subwords", "sentencepiece", "--pieces", "40"),
}
LIMIT = 14


@pytest.fixture(scope="module", params=KINDS)
def data(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return prepared(folder / "text", folder / "data", *KINDS[request.param], *SYMBOLS, train=300, valid=10, test=5)


def iterator(folder, dropout=0.3, epoch=1, workers=0, max_tokens=60):
    """The training set of fairseq's trainer; what of it the hook reads is here."""
    words = f"{folder} --user-dir {commands.USER_DIR} --arch rposnet_tiny --seed 5 {commands.NARROW}"
    limits = f"--max-source-positions {LIMIT} --max-target-positions {LIMIT}"
    batches = f"--max-tokens {max_tokens} --required-batch-size-multiple 1 --num-workers {workers}"
    cfg = before_training.configuration(f"{words} {limits} {batches} --subword-dropout {dropout}".split())
    task = tasks.setup_task(cfg.task)
    model = SimpleNamespace(max_positions=lambda: (LIMIT, LIMIT))
    trainer = SimpleNamespace(cfg=cfg, task=task, model=model, tpu=False, data_parallel_world_size=1)
    trainer.data_parallel_rank, trainer.reset_dummy_batch = 0, lambda batch: None
    return task, subword_dropout.Trainer.get_train_iterator(trainer, epoch=epoch)


def read(batches):
    return [batch["net_input"]["src_tokens"].tolist() + batch["target"].tolist() for batch in batches.next_epoch_itr()]


def words_of(folder, task, batches):
    """Both sides of every sentence in words, by number."""
    pipeline, found = pipeline_of(folder, ("xx", "yy")), {}
    for batch in batches:
        for number, source, target in zip(
            batch["id"].tolist(), batch["net_input"]["src_tokens"], batch["target"], strict=True
        ):
            found[number] = (
                pipeline.source_pieces.join(task.source_dictionary.string(source[source != 1])),
                pipeline.target_pieces.join(task.target_dictionary.string(target[target != 1])),
            )
    return found


def test_every_epoch_has_other_pieces_of_the_same_words_within_the_limits(data):
    task, plain = iterator(data, dropout=0.0)
    expected = words_of(data, task, plain.next_epoch_itr(shuffle=False))
    task, drawn = iterator(data)
    state = random.getstate()
    for _ in range(2):
        batches = list(drawn.next_epoch_itr(shuffle=False))
        assert words_of(data, task, batches) == expected
        for batch in batches:
            for tokens in (batch["net_input"]["src_tokens"], batch["target"]):
                assert tokens.numel() <= 60
                assert tokens.size(1) <= LIMIT
    assert random.getstate() == state
    first, second = read(iterator(data)[1]), iterator(data)[1]
    assert read(second) == first
    assert sorted(map(str, read(second))) != sorted(map(str, first))
    count = {dropout: sum(len(str(batch)) for batch in read(iterator(data, dropout)[1])) for dropout in (0.0, 0.9)}
    assert count[0.9] > count[0.0]


def test_a_training_resumes_within_a_later_epoch_with_the_same_pieces_also_with_workers(data):
    if "merges" not in str(data):  # the others draw by the same numbers
        return
    batches = iterator(data)[1]
    read(batches)
    second = batches.next_epoch_itr()
    seen = [next(second)["target"].tolist() for _ in range(3)]
    state = batches.state_dict()
    rest = [batch["target"].tolist() for batch in second]
    for workers in (0, 2):
        resumed = iterator(data, epoch=2, workers=workers)[1]
        resumed.load_state_dict(state)
        assert [batch["target"].tolist() for batch in resumed.next_epoch_itr()] == rest
        again = iterator(data, workers=workers)[1]
        read(again)
        assert [batch["target"].tolist() for batch in again.next_epoch_itr()] == seen + rest


def test_drawing_leaves_the_usual_pieces_as_they_are(data):
    subwords = pipeline_of(data, ("xx", "yy")).source_pieces
    before = subwords.split("a12 a3")
    drawn = {*subwords.sample(["a12 a3"] * 50, 0.5, 1)}
    assert len(drawn) > 1
    assert {*map(subwords.join, drawn)} == {"a12 a3"}
    assert subwords.split("a12 a3") == before
    fresh = pipeline_of(data, ("xx", "yy")).source_pieces
    fresh.sample(["a12 a3"], 0.9, 1)
    assert fresh.split("a12 a3") == before


def test_other_sets_and_symbols_stay_whole(data):
    task, drawn = iterator(data, dropout=0.9)
    task.load_dataset("valid")
    assert not isinstance(task.datasets["valid"], subword_dropout.SampledSubwords)
    symbol = task.source_dictionary.index("a19")
    plain = iterator(data, dropout=0.0)[1]
    counts = [
        sum(int((batch["net_input"]["src_tokens"] == symbol).sum()) for batch in batches.next_epoch_itr())
        for batches in (drawn, plain)
    ]
    assert counts[0] == counts[1] > 0


class _Subwords:
    """That draw what is given."""

    def __init__(self, drawn):
        self.drawn = drawn

    def join(self, pieces):
        return pieces.replace("@@ ", "")

    def sample(self, lines, dropout, seed):
        return [self.drawn for _ in lines]


@pytest.mark.parametrize(
    ("plain", "drawn", "expected"),
    [
        ("ab c", "a@@ b c", "a@@ b c"),
        ("ab c", "x@@ b c", "ab c"),  # x@@ is in no dictionary
        ("ab ab", "x@@ b a@@ b", "ab a@@ b"),
        ("<unk> ab", "a@@ b", "<unk> ab"),
    ],
)
def test_words_with_unknown_pieces_stay_as_they_are(plain, drawn, expected):
    dictionary = Dictionary()
    for piece in "ab c a@@ b".split():
        dictionary.add_symbol(piece)
    side = subword_dropout._Side(dictionary, _Subwords(drawn), 0.1)
    ids = torch.tensor([*map(dictionary.index, plain.split()), dictionary.eos()])
    assert side.draw([ids], 1)[0].tolist() == [*map(dictionary.index, expected.split()), dictionary.eos()]


def test_what_cannot_be_split_anew_is_refused(data, tmp_path):
    for path in data.iterdir():
        if path.is_file() and path.name != "dataset.json":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(UsageError, match=r"--subword-dropout 0.3: .* has no dataset.json, which says how words"):
        iterator(tmp_path)
    with pytest.raises(UsageError, match=r"--subword-dropout 1.0: give 0 or more and less than 1"):
        before_training.meta_model(
            before_training.configuration(
                [str(data), "--user-dir", commands.USER_DIR, "--arch", "rposnet_tiny", "--subword-dropout", "1"]
            )
        )


def test_tags_of_target_languages_stay_in_front(tmp_path):
    make_corpus(tmp_path, train=40)
    files = [tmp_path / f"train.{side}" for side in ("xx", "yy")]
    for path, end in zip(files, ("xx", "zz"), strict=True):
        shutil.copy(path, tmp_path / f"other.{end}")
    train = map(str, (*files, tmp_path / "other.xx", tmp_path / "other.zz"))
    words = ["--valid-every", "9", "--pieces", "40", "--workers", "1", "--out", str(tmp_path / "data")]
    prepare(["corpus", "--tag-target", "--train", *train, *words])
    found = []
    for dropout in (0.0, 0.9):
        task, batches = iterator(tmp_path / "data", dropout)
        lines = [
            task.source_dictionary.string(row[row != 1])
            for batch in batches.next_epoch_itr(shuffle=False)
            for row in batch["net_input"]["src_tokens"]
        ]
        pieces = SentencePieces(tmp_path / "data/sentencepiece.model")
        found.append(sorted((tag, pieces.join(line)) for tag, line in (line.split(" ", 1) for line in lines)))
        assert len(" ".join(lines)) > len(" ".join(map(" ".join, found[0])))
    assert found[0] == found[1]
    assert {tag for tag, _ in found[1]} == {"<2yy>", "<2zz>"}
