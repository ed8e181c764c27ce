"""Multi30k: files that are no archives, from a server and from a folder, in both forms."""

import gzip
import json

import pytest
import regex
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from posnet_data_prep import prepare
from posnet_data_prep.sources import published
from posnet_data_prep.sources.archives import ARCHIVES
from posnet_fairseq.runs.dataset import TranslationData
from support import archives
from support.archives import sentences, text

SETS = {"train": "train", "valid": "val", "test": "test_2016_flickr", "test1": "test_2017_flickr"}
SETS["test2"] = "test_2017_mscoco"
LINES = {"train": 200, "valid": 20, "test": 10, "test1": 9, "test2": 8}
SIZE = ("--subwords", "bpe", "--merges", "60", "--workers", "1")


@pytest.fixture
def pairs(server, monkeypatch):
    """The pairs of each set, which the server has."""
    made = {name: sentences("en", "de", LINES[name], seed) for seed, name in enumerate(SETS, 70)}
    made["train"][0] = ("A man says “stop.”", "Ein Mann sagt „halt.“")
    contents = {
        f"multi30k.{SETS[name]}.{language}": gzip.compress(text([pair[side] for pair in of]))
        for name, of in made.items()
        for side, language in enumerate(("en", "de"))
    }
    for key, entry in archives.expect(contents, server).items():
        monkeypatch.setitem(ARCHIVES, key, entry)
    monkeypatch.setattr(published, "BYTES_PER_PAIR", 1)  # the disk need not hold the real ones
    return made


def lines_of(path):
    return path.read_text().split("\n")[:-1]


def as_published(language):
    """lowercase.perl, normalize-punctuation.perl (which sees the end of the line), tokenizer.perl."""
    normalize, tokenizer = MosesPunctNormalizer(language).normalize, MosesTokenizer(language)

    def split(line):
        printable = regex.sub(r"\p{C}", " ", normalize(f"{line.lower()}\n"))
        return " ".join(tokenizer.tokenize(printable, return_str=True).split())

    return split


def test_both_forms_of_three_test_sets(pairs, tmp_path):
    downloads = ["--downloads", str(tmp_path / "downloads")]
    for name in ("multi30k.en-de", "multi30k-lc.en-de"):
        prepare.main([name, "--out", str(tmp_path / name), *downloads, *SIZE])
        card = json.loads((tmp_path / name / "dataset.json").read_text())
        assert card["sentences"] == LINES
        assert card["test_sets"] == {"test": "2016 (Flickr)", "test1": "2017 (Flickr)", "test2": "2017 (COCO)"}
        assert "non-commercial" in card["archives"]["multi30k/train.en.gz"]["licence"]
        data = TranslationData.read(tmp_path / name)
        assert data.test_sets == ("test", "test1", "test2")
        assert data.lowercase == name.startswith("multi30k-lc")
        for of, made in pairs.items():
            for side, language in enumerate(("en", "de")):
                wanted = [pair[side] for pair in made]
                assert lines_of(tmp_path / name / f"{of}.{language}") == wanted
                if data.lowercase:
                    found = lines_of(tmp_path / name / f"{of}.bpe.{language}")
                    assert [line.replace("@@ ", "") for line in found] == list(map(as_published(language), wanted))
    assert as_published("de")(pairs["train"][0][1]).endswith("sagt &quot; halt &quot; .")
