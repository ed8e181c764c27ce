"""Shortlists of invented data: what is learned, what is read and what is refused."""

import collections
import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from fairseq.data.data_utils import load_indexed_dataset
from safetensors.torch import save_file

from posnet_fairseq.inference import lexicon, shortlist
from posnet_fairseq.inference.lexicon import Corpus, learn_lexicon
from posnet_fairseq.inference.shortlist import Shortlist, make_shortlist
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.binary_format import read_tokens
from posnet_fairseq.text.dictionary import Dictionary, Vocabulary
from support.commands import run_program

WORDS = 20


def sentence_pairs(number=200):
    """Source word a7 is translated by b7, in another order; each sentence also has the word c."""
    generator = random.Random(1)
    for _ in range(number):
        words = [generator.randrange(WORDS) for _ in range(generator.randint(1, 6))]
        yield " ".join(f"a{word}" for word in words), " ".join(["c", *(f"b{word}" for word in sorted(words))])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Binarized sentence pairs, with dictionaries of their own."""
    folder = tmp_path_factory.mktemp("pairs")
    pairs = list(sentence_pairs())
    for side, name in enumerate(("xx", "yy")):
        (folder / f"train.{name}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    arguments = f"-s xx -t yy --workers 1 --trainpref {folder}/train --destdir {folder}/data".split()
    run_program(pytest.MonkeyPatch(), "fairseq-preprocess", *arguments)
    return folder / "data"


@pytest.fixture(scope="module")
def vocabulary(data):
    return Vocabulary("xx", "yy", *(Dictionary.load(data / f"dict.{name}.txt") for name in ("xx", "yy")))


@pytest.fixture(scope="module")
def made(data, vocabulary):
    return make_shortlist(data, vocabulary, best=2, frequent=1)


def corpus(sentences):
    lengths = np.array([len(sentence) for sentence in sentences])
    return Corpus(np.array(list(itertools.chain(*sentences)), np.uint16), np.cumsum(lengths) - lengths, lengths)


def model_1(source, target, iterations):
    """IBM model 1 as the book has it: {(source word, target word): probability}."""
    t = collections.defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts, totals = collections.Counter(), collections.Counter()
        for f, e in zip(source, target, strict=True):
            for word in e:
                total = sum(t[other, word] for other in f)
                for other in f:
                    counts[other, word] += t[other, word] / total
                    totals[other] += t[other, word] / total
        t = {pair: count / totals[pair[0]] for pair, count in counts.items()}
    return t


@pytest.mark.parametrize("pairs", [1, 7, 10**6])
def test_lexicon_is_that_of_model_1(monkeypatch, pairs):
    """In parts of any size."""
    monkeypatch.setattr(lexicon, "_PAIRS", pairs)
    monkeypatch.setattr(lexicon, "LEAST", 0)
    draw = random.Random(2)
    source, target = ([[draw.randrange(9) for _ in range(draw.randint(1, 5))] for _ in range(30)] for _ in "ab")
    sources, targets, probabilities = learn_lexicon(corpus(source), corpus(target), 9)
    expected = model_1(source, target, lexicon.ITERATIONS)
    assert list(zip(sources.tolist(), targets.tolist(), strict=True)) == sorted(expected)
    np.testing.assert_allclose(probabilities, [expected[pair] for pair in sorted(expected)], rtol=1e-9)


def test_a_sentence_may_be_empty():
    found = learn_lexicon(corpus([[], [1], [2]]), corpus([[3], [], [4]]), 5)
    assert [each.tolist() for each in found] == [[2], [4], [1]]
    assert not len(learn_lexicon(corpus([[]]), corpus([[]]), 5)[0])


def test_tokens_are_those_that_fairseq_reads(data, vocabulary):
    tokens, sizes = read_tokens(data / "train.xx-yy.xx")
    theirs = load_indexed_dataset(str(data / "train.xx-yy.xx"), vocabulary.source_dictionary)
    assert sizes.tolist() == theirs.sizes.tolist()
    assert tokens.tolist() == torch.cat([theirs[i] for i in range(len(theirs))]).tolist()


def test_every_word_has_its_translation(made, vocabulary):
    for word in range(WORDS):
        ids = made.of([vocabulary.source_dictionary.encode_line(f"a{word}")])
        symbols = [vocabulary.target_dictionary[index] for index in ids.tolist()]
        assert symbols[:4] == ["<s>", "<pad>", "</s>", "<unk>"]
        assert f"b{word}" in symbols
        assert "c" in symbols
        assert len(symbols) <= 4 + 1 + 2


def test_of_several_sources_it_is_the_union(made, vocabulary):
    sources = [vocabulary.source_dictionary.encode_line(line) for line in ("a1 a2 a2", "a3", "unknown", "")]
    expected = set().union(*(made.of([source]).tolist() for source in sources), [20])
    assert made.of(sources, [torch.tensor([20]), torch.tensor([], dtype=torch.long)]).tolist() == sorted(expected)


def test_numbers(data, vocabulary):
    for best, frequent in ((1, 0), (3, 5)):
        made = make_shortlist(data, vocabulary, best, frequent)
        assert made.starts.diff().max() == best
        assert len(made.always) == 4 + frequent
    tokens, _ = read_tokens(data / "train.xx-yy.yy")
    often = np.argsort(-np.bincount(tokens[tokens >= 4]), kind="stable")[:5]
    assert set(often.tolist()) <= set(made.always.tolist())


def test_fewer_sentences_are_spread_over_the_set(data, monkeypatch):
    corpora = []
    for most in (10, 200, 10**9):
        monkeypatch.setattr(shortlist, "SENTENCES", most)
        corpora.append(shortlist._corpus(str(data / "train.xx-yy.xx"), 100))
    assert [len(each.starts) for each in corpora] == [10, 200, 200]
    assert corpora[0].starts[0] == 0
    assert corpora[0].starts[-1] == corpora[1].starts[-1]


def test_the_set_may_be_named_the_other_way_round(data, made, vocabulary):
    turned = Vocabulary("yy", "xx", vocabulary.target_dictionary, vocabulary.source_dictionary)
    b7 = turned.source_dictionary.index("b7")
    found = make_shortlist(data, turned, best=1, frequent=0)
    assert turned.target_dictionary.index("a7") in found.words[found.starts[b7] : found.starts[b7 + 1]].tolist()


def test_file(made, vocabulary, tmp_path):
    made.save(tmp_path / "file", vocabulary)
    found = Shortlist.load(tmp_path / "file", vocabulary)
    for name in ("starts", "words", "always"):
        torch.testing.assert_close(getattr(found, name), getattr(made, name), rtol=0, atol=0)


@pytest.mark.parametrize("side", ["source", "target"])
def test_other_dictionaries_are_refused(made, vocabulary, tmp_path, side):
    made.save(tmp_path / "file", vocabulary)
    name = f"{side}_dictionary"
    reversed_one = replace(vocabulary, **{name: Dictionary(getattr(vocabulary, name).symbols[:3:-1])})
    with pytest.raises(UsageError, match=f"file was made for another {side} dictionary than the model's"):
        Shortlist.load(tmp_path / "file", reversed_one)


def rewritten(change):
    """What changes the tensors of the file."""

    def before(path):
        from safetensors import safe_open

        with safe_open(path, "pt") as file:
            about, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        change(tensors, about)
        save_file(tensors, path, about)

    return before


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "is damaged or no shortlist"),
        (lambda path: save_file({"weight": torch.zeros(3)}, path), "is no shortlist, or one of another version"),
        (rewritten(lambda t, about: about.update(kind="posnet shortlist 2")), "one of another version"),
        (rewritten(lambda t, about: t.pop("always")), "is damaged"),
        (rewritten(lambda t, about: t.update(words=t["words"].float())), "is damaged"),
        (rewritten(lambda t, about: t.update(words=t["words"] + 1000)), "is damaged"),
        (rewritten(lambda t, about: t.update(starts=t["starts"][:-1].clone())), "is damaged"),
        (rewritten(lambda t, about: t.update(always=t["always"][1:].clone())), "is damaged"),
    ],
)
def test_bad_files(made, vocabulary, tmp_path, damage, says):
    made.save(tmp_path / "file", vocabulary)
    damage(tmp_path / "file")
    with pytest.raises(UsageError, match=says):
        Shortlist.load(tmp_path / "file", vocabulary)


def stored_as(kind, code, data, folder, change=lambda tokens: None):
    """The training set with token ids of another type."""
    for name in ("xx", "yy"):
        tokens, sizes = read_tokens(data / f"train.xx-yy.{name}")
        tokens = tokens.astype(kind)
        change(tokens)
        tokens.tofile(folder / f"train.xx-yy.{name}.bin")
        starts = (np.cumsum(sizes, dtype=np.int64) - sizes) * tokens.itemsize
        head = (data / f"train.xx-yy.{name}.idx").read_bytes()
        head = head[:17] + bytes([code]) + head[18:26]
        (folder / f"train.xx-yy.{name}.idx").write_bytes(head + sizes.tobytes() + starts.tobytes())
    return folder


def test_token_ids_of_any_type(data, made, vocabulary, tmp_path):
    found = make_shortlist(stored_as(np.int32, 4, data, tmp_path), vocabulary, best=2, frequent=1)
    torch.testing.assert_close(vars(found), vars(made), rtol=0, atol=0)


def test_words_out_of_range_are_refused(data, vocabulary, tmp_path):
    """Where the folder has no dictionaries."""
    folder = stored_as(np.int32, 4, data, tmp_path)
    few = Vocabulary("xx", "yy", Dictionary(["a1"]), vocabulary.target_dictionary)
    with pytest.raises(UsageError, match="has words that the model's dictionary, of 5 entries, does not have"):
        make_shortlist(folder, few)
    stored_as(np.int32, 4, data, tmp_path, lambda tokens: tokens.__setitem__(3, -1))
    with pytest.raises(UsageError, match=r"has words that the model's dictionary, of .* entries, does not have"):
        make_shortlist(folder, vocabulary)


def test_sides_of_different_lengths_are_refused(data, vocabulary, tmp_path, monkeypatch):
    """Also where both have more sentences than are learned from."""
    monkeypatch.setattr(shortlist, "SENTENCES", 100)
    path = stored_as(np.int32, 4, data, tmp_path) / "train.xx-yy.yy"
    tokens, sizes = read_tokens(path)
    fewer = sizes[:-1]
    tokens[: fewer.sum()].copy().tofile(f"{path}.bin")
    starts = (np.cumsum(fewer, dtype=np.int64) - fewer) * tokens.itemsize
    head = path.with_suffix(".yy.idx").read_bytes()[:18] + len(fewer).to_bytes(8, "little")
    path.with_suffix(".yy.idx").write_bytes(head + fewer.tobytes() + starts.tobytes())
    with pytest.raises(UsageError, match="has different numbers of sentences in its two languages"):
        make_shortlist(tmp_path, vocabulary)


def test_bad_data(data, vocabulary, tmp_path):
    with pytest.raises(UsageError, match="holds no binarized training set"):
        make_shortlist(tmp_path, vocabulary)
    few = Vocabulary("xx", "yy", Dictionary(["a1"]), vocabulary.target_dictionary)
    with pytest.raises(UsageError, match=r"dict\.xx\.txt is not the model's dictionary"):
        make_shortlist(data, few)
