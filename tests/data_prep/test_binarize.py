"""Dictionaries and binary sets are those of fairseq-preprocess, byte for byte."""

import multiprocessing
import random
from itertools import product

import pytest
from fairseq import options
from fairseq_cli import preprocess

from posnet_data_prep.pipeline.binarize import binarize
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.text.binary_format import read_tokens, write_binarized

ODD = "<unk> madeupword0000 \u2028 a\u00a0b \u3000 ‚äö‘ 'a' a\tb ▁x"
JOINED, SEPARATE = ["--joined-dictionary"], []


def write_text(path, seed, words, lines=300):
    random.seed(seed)
    vocabulary = [f"w{number}" for number in range(words)]
    made = [" ".join(random.choices(vocabulary, k=random.randrange(9))) for _ in range(lines)]
    path.write_text("\n".join([*made, ODD, "", " ".join(vocabulary[: words // 2])]) + "\n", encoding="utf-8")


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "preprocess.log"}


@pytest.fixture
def texts(tmp_path):
    for (number, name), language in product(enumerate(("train", "valid", "test", "test1")), ("xx", "yy")):
        write_text(tmp_path / f"{name}.{language}", f"{number}{language}", words=40 if language == "xx" else 57)
    return {name: tmp_path / name for name in ("train", "valid", "test", "test1")}


def made(tmp_path, prefixes, languages, joined, dictionaries=()):
    folder = tmp_path / "own"
    folder.mkdir()
    with ProgressReporter().stage("binarize", "tokens") as bar:
        binarize(folder, prefixes, languages, joined, bar, dictionaries)
    assert bar.done == sum(len(read_tokens(path.with_suffix(""))[0]) for path in folder.glob("*.idx"))
    return files(folder)


def of_fairseq(tmp_path, prefixes, *arguments, workers=1):
    folder = tmp_path / f"theirs{workers}"
    given = [f"--trainpref={prefixes['train']}", f"--validpref={prefixes['valid']}"]
    given += [f"--testpref={prefixes['test']},{prefixes['test1']}", f"--destdir={folder}", f"--workers={workers}"]
    preprocess.main(options.get_preprocessing_parser().parse_args([*given, *arguments]))
    return files(folder)


@pytest.mark.parametrize("dictionaries", [JOINED, SEPARATE], ids=["joined", "separate"])
def test_two_languages(monkeypatch, texts, tmp_path, dictionaries):
    for module in ("binarizer", "data.dictionary"):  # by default Python 3.14 starts workers without posnet's repair
        monkeypatch.setattr(f"fairseq.{module}.Pool", multiprocessing.get_context("fork").Pool)
    theirs = of_fairseq(tmp_path, texts, "--source-lang=xx", "--target-lang=yy", *dictionaries)
    assert len(theirs) == 18
    assert made(tmp_path, texts, ("xx", "yy"), dictionaries is JOINED) == theirs
    assert of_fairseq(tmp_path, texts, "--source-lang=xx", "--target-lang=yy", *dictionaries, workers=3) == theirs


def test_dictionaries_of_another_dataset(texts, tmp_path):
    given = [tmp_path / "dict.xx.txt", tmp_path / "dict.yy.txt"]
    for path, words in zip(given, ("w3 7\nw4 2\n", "w5 4\nw3 3\nmadeupword0000 0\n"), strict=True):
        path.write_text(words)
    with_dictionaries = [f"--srcdict={given[0]}", f"--tgtdict={given[1]}"]
    theirs = of_fairseq(tmp_path, texts, "--source-lang=xx", "--target-lang=yy", *with_dictionaries)
    assert made(tmp_path, texts, ("xx", "yy"), False, given) == theirs


def test_one_language(texts, tmp_path):
    prefixes = {name: path.with_name(f"{name}.xx") for name, path in texts.items()}
    theirs = of_fairseq(tmp_path, prefixes, "--only-source")
    assert len(theirs) == 9
    assert made(tmp_path, prefixes, (), False) == theirs


def test_no_word_of_a_text_is_a_special_symbol(texts, tmp_path):
    """fairseq-preprocess would end the sentence there, and have padding in the middle."""
    with texts["train"].with_suffix(".xx").open("a") as text:
        text.write("w1 </s> <s> <pad> <unk> w2\n")
    made(tmp_path, {"train": texts["train"].with_suffix(".xx")}, (), False)
    tokens, sizes = read_tokens(tmp_path / "own/train")
    last = tokens[-sizes[-1] :].tolist()
    assert last[1:] == [3, 3, 3, 3, last[5], 2]
    assert min(last[0], last[5]) > 3
    assert (tokens == 2).sum() == len(sizes)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("words", [65_495, 65_496, 65_503])
def test_large_dictionaries_have_wider_numbers(tmp_path, words):
    """Four special entries, and three that fill up or odd ones: around the border of 65,500 entries."""
    texts = {"train": tmp_path / "train.bpe.xx"}
    texts["train"].write_text("\n".join(f"w{number}" for number in range(words)) + "\n")
    folder = tmp_path / "theirs"
    arguments = [f"--trainpref={texts['train']}", f"--destdir={folder}", "--only-source"]
    preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
    assert made(tmp_path, texts, (), False) == files(folder)


def test_a_full_disk_is_an_error(tmp_path):
    """Also for what fits into buffers."""
    for sentences in ([[5, 2]], [[5] * 5000]):
        for end in ("bin", "idx"):
            (tmp_path / f"{end}.{end}").unlink(missing_ok=True)
            (tmp_path / f"{end}.{end}").symlink_to("/dev/full")
            with pytest.raises(OSError, match="No space left on device"):
                write_binarized(tmp_path / end, [sentences], 10)
