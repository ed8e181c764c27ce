"""The four published datasets, end to end, from archives in their layouts on a server."""

import functools
import gzip
import io
import json
import subprocess

import pytest
import regex
from sacremoses import MosesPunctNormalizer, MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from posnet_data_prep import prepare
from posnet_data_prep.sources import published
from posnet_data_prep.sources.archives import ARCHIVES
from posnet_fairseq.inference.measured_length_ratio import measure
from posnet_fairseq.runs.run_settings import TranslationData
from posnet_fairseq.text.pipeline import pipeline_of
from posnet_fairseq.text.tokenizers import Tokenizer
from support import archives
from support.archives import MADE, sentences, text
from support.server import Server

# Fewer merges than the paper's: the invented texts have not so many words.


def lines_of(path):
    return path.read_bytes().decode().split("\n")[:-1]


class Made:
    """A dataset that was made, and the sentences it was made from."""

    def __init__(self, name, folder, server, monkeypatch):
        make, self.languages, self.merges = MADE[name]
        contents, self.train, self.test = make()
        for key, entry in archives.expect(contents, server).items():
            monkeypatch.setitem(ARCHIVES, key, entry)
        self.out = folder / "data"
        self.arguments = [name, "--out", str(self.out), "--downloads", str(folder / "downloads")]
        monkeypatch.setattr(published, "BYTES_PER_PAIR", 1)  # the disk need not hold the real ones
        prepare.main([*self.arguments, "--workers", "2", "--merges", *self.merges])
        self.card = json.loads((self.out / "dataset.json").read_text())

    def sides(self, name, middle=""):
        return [lines_of(self.out / f"{name}{middle}.{language}") for language in self.languages]

    def pairs(self, name, middle=""):
        return list(zip(*self.sides(name, middle), strict=True))


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A function that makes a dataset, which tests leave as it is."""
    server = Server()

    @functools.cache
    def make(name):
        with pytest.MonkeyPatch.context() as patch:
            return Made(name, tmp_path_factory.mktemp(name), server, patch)

    yield make
    server.close()


@pytest.fixture
def made(request, once):
    return once(request.param)


def moses(language, hyphens):
    tokenizer = MosesTokenizer(language)
    return lambda line: tokenizer.tokenize(line, aggressive_dash_splits=hyphens, return_str=True)


def is_clean(pair, low, high):
    lengths = [len(side.split()) for side in pair]
    return low <= min(lengths) and max(lengths) <= high and max(lengths) <= 1.5 * min(lengths)


def bpe_of(lines, merges):
    """subword-nmt, learned from lines."""
    codes = io.StringIO()
    learn_bpe(io.StringIO("".join(f"{line}\n" for line in lines)), codes, merges)
    return codes.getvalue(), BPE(io.StringIO(codes.getvalue())).process_line


@pytest.mark.parametrize("made", ["iwslt14.de-en"], indirect=True)
def test_iwslt14_is_what_its_script_makes(made, tmp_path):
    """Tokenize, clean, lower-case, every 23rd line, BPE: written out with sacremoses, awk and subword-nmt."""
    tokenize = [moses(language, False) for language in made.languages]
    words = [tuple(split(side) for split, side in zip(tokenize, pair, strict=True)) for pair in made.train]
    rows = [(*raw, *pair) for raw, pair in zip(made.train, words, strict=True) if is_clean(pair, 1, 175)]
    assert 100 < len(rows) < len(made.train)
    table = tmp_path / "rows"
    table.write_text("".join(f"{number}\n" for number in range(len(rows))))
    chosen = {
        name: [rows[int(n)] for n in subprocess.check_output(["awk", rule, table], text=True).split()]
        for name, rule in (("valid", "NR%23==0"), ("train", "NR%23!=0"))
    }
    straight = [tuple(side.replace("’", "'") for side in pair) for pair in made.test]
    chosen["test"] = [(*pair, *(split(side) for split, side in zip(tokenize, pair, strict=True))) for pair in straight]
    lower = {name: [tuple(side.lower() for side in row[2:]) for row in chosen[name]] for name in chosen}
    codes, apply = bpe_of([side for i in (0, 1) for side in (pair[i] for pair in lower["train"])], 60)
    assert (made.out / "codes.bpe").read_text() == codes
    for name, pairs in lower.items():
        assert made.pairs(name) == [row[:2] for row in chosen[name]], "the cased text"
        assert made.pairs(name, ".bpe") == [tuple(map(apply, pair)) for pair in pairs]


@pytest.mark.parametrize("made", ["wmt14.en-de", "wmt14.en-fr"], indirect=True)
@pytest.mark.thorough  # 10 s; quick: test_iwslt14_is_what_its_script_makes
def test_wmt14_is_what_its_script_makes(made):
    """Normalize, tokenize, every 100th (1333rd) line, BPE, clean."""
    every = 100 if made.languages[1] == "de" else 1333
    split = [written_out(language) for language in made.languages]
    rows = [(*raw, *(f(side) for f, side in zip(split, raw, strict=True))) for raw in made.train]
    train = [row for number, row in enumerate(rows, 1) if number % every]
    codes, apply = bpe_of([side for i in (2, 3) for side in (row[i] for row in train)], 60)
    assert (made.out / "codes.bpe").read_text() == codes
    for name, part in (("train", train), ("valid", rows[every - 1 :: every])):
        kept = [row for row in ((*row[:2], *map(apply, row[2:])) for row in part) if is_clean(row[2:], 1, 250)]
        assert len(kept) > 0
        assert made.pairs(name) == [row[:2] for row in kept]
        assert made.pairs(name, ".bpe") == [row[2:] for row in kept]
    test = [tuple(" ".join(side.split()) for side in pair) for pair in made.test]
    assert made.pairs("test") == test
    assert made.pairs("test", ".bpe") == [
        tuple(apply(f(side)) for f, side in zip(split, pair, strict=True)) for pair in test
    ]


def written_out(language, hyphens=True):
    """normalize-punctuation, remove-non-printing-char, tokenizer -a."""
    normalize, tokenize = MosesPunctNormalizer(language).normalize, moses(language, hyphens)
    return lambda line: tokenize(regex.sub(r"\p{C}", " ", normalize(line)))


@pytest.mark.parametrize("made", ["wmt18.en-zh"], indirect=True)
@pytest.mark.thorough  # 6 s
def test_wmt18_splits_chinese_by_jieba_and_learns_apart(made):
    import jieba

    cut = jieba.Tokenizer().cut
    split = [written_out("en"), lambda line: " ".join(" ".join(cut(line)).split())]
    train = [
        tuple(f(side) for f, side in zip(split, pair, strict=True))
        for number, pair in enumerate(made.train, 1)
        if number % 1333
    ]
    for side, (language, merges) in enumerate((("en", 200), ("zh", 20))):
        codes, apply = bpe_of([pair[side] for pair in train], merges)
        assert (made.out / f"codes.{language}.bpe").read_text() == codes
        test = [apply(split[side](" ".join(pair[side].split()))) for pair in made.test]
        assert made.sides("test", ".bpe")[side] == test
    assert made.card["vocabulary"].keys() == {"en", "zh"}
    assert (made.out / "dict.en.txt").read_bytes() != (made.out / "dict.zh.txt").read_bytes()
    assert len(made.sides("valid")[0]) == len(made.train) // 1333


@pytest.mark.parametrize("made", MADE, indirect=True)
@pytest.mark.thorough  # 15 s
def test_card_and_translation_agree_with_the_data(made):
    """The card counts what is there, and posnet-translate splits the test set as the data has it."""
    for name, count in made.card["sentences"].items():
        assert len(made.sides(name)[0]) == len(made.sides(name, ".bpe")[1]) == count
    assert made.card["sentences"]["test"] == len(made.test)
    source, target = measure(made.out)
    assert made.card["length_ratio"] == source / target
    assert made.card["stages"]["read"]["counts"]["train"]["lines"] == len(made.train)
    dropped = sum(made.card["dropped"].values())
    assert dropped == len(made.train) - made.card["sentences"]["train"] - made.card["sentences"]["valid"] > 0
    pipeline = pipeline_of(made.out, made.languages)
    sources, targets = made.sides("test")
    assert [pipeline.encode(line) for line in sources] == made.sides("test", ".bpe")[0]
    words = Tokenizer(made.languages[1], **made.card["words"][made.languages[1]])
    for line, pieces in zip(targets, made.sides("test", ".bpe")[1], strict=True):
        assert pipeline.decode(pieces) == words.join(words.split(line))


@pytest.mark.thorough  # 9 s
def test_text_that_needs_a_registration_is_used_where_it_is(server, monkeypatch, tmp_path, capsys):
    made = Made("wmt18.en-zh", tmp_path, server, monkeypatch)
    prepare.main([*made.arguments, "--dry-run"])
    assert "CWMT, which one must register for, is left out" in " ".join(capsys.readouterr().out.split())
    for folder, stem, ending in (("casia2015", "casia2015", "ch"), ("neu2017", "NEU", "cn")):
        (tmp_path / "downloads/cwmt" / folder).mkdir(parents=True)
        for language, line in (("en", "One more sentence."), (ending, "再来一句话。")):
            (tmp_path / "downloads/cwmt" / folder / f"{stem}_{language}.txt").write_text(f"{line}\n" * 10)
    prepare.main([*made.arguments, "--merges", *made.merges])
    assert "is left out" not in capsys.readouterr().err
    card = json.loads((made.out / "dataset.json").read_text())
    assert card["stages"]["read"]["counts"]["train"]["corpora"]["casia2015/casia2015_en.txt"] == 10
    assert card["stages"]["read"]["counts"]["train"]["lines"] == len(made.train) + 20


def test_every_archive_can_be_checked():
    """Of what is published, nothing is taken on trust."""
    for archive in ARCHIVES.values():
        algorithm, _, digest = archive.digest.partition(":")
        assert len(digest) == {"md5": 32, "sha1": 40, "sha256": 64}[algorithm]
        assert archive.urls
        assert archive.license
    assert len({archive.name for archive in ARCHIVES.values()}) == len(ARCHIVES)


SETS = {"train": "train", "valid": "val", "test": "test_2016_flickr", "test1": "test_2017_flickr"}
SETS["test2"] = "test_2017_mscoco"
LINES = {"train": 200, "valid": 20, "test": 10, "test1": 9, "test2": 8}


def as_published(language):
    """lowercase.perl, normalize-punctuation.perl (which sees the end of the line), tokenizer.perl."""
    split = written_out(language, hyphens=False)
    return lambda line: " ".join(split(f"{line.lower()}\n").split())


def test_both_forms_of_three_test_sets(server, monkeypatch, tmp_path):
    pairs = {name: sentences("en", "de", LINES[name], seed) for seed, name in enumerate(SETS, 70)}
    pairs["train"][0] = ("A man says “stop.”", "Ein Mann sagt „halt.“")
    contents = {
        f"multi30k.{SETS[name]}.{language}": gzip.compress(text([pair[side] for pair in of]))
        for name, of in pairs.items()
        for side, language in enumerate(("en", "de"))
    }
    for key, entry in archives.expect(contents, server).items():
        monkeypatch.setitem(ARCHIVES, key, entry)
    monkeypatch.setattr(published, "BYTES_PER_PAIR", 1)  # the disk need not hold the real ones
    size = ["--subwords", "bpe", "--merges", "60", "--workers", "1"]
    for name in ("multi30k.en-de", "multi30k-lc.en-de"):
        prepare.main([name, "--out", str(tmp_path / name), "--downloads", str(tmp_path / "downloads"), *size])
        card = json.loads((tmp_path / name / "dataset.json").read_text())
        assert card["sentences"] == LINES
        assert card["test_sets"] == {"test": "2016 (Flickr)", "test1": "2017 (Flickr)", "test2": "2017 (COCO)"}
        assert "non-commercial" in card["archives"]["multi30k/train.en.gz"]["licence"]
        source, target = measure(tmp_path / name)
        assert card["length_ratio"] == source / target
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
