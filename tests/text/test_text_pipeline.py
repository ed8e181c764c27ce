import json

import pytest
from subword_nmt.learn_bpe import learn_bpe

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text import subwords
from posnet_fairseq.text.card import DatasetCard
from posnet_fairseq.text.pipeline import pipeline_of
from posnet_fairseq.text.subwords import Merges
from posnet_fairseq.text.tokenizers import TOKENIZERS, Tokenizer, spaces_around


@pytest.fixture
def codes(tmp_path):
    with open(tmp_path / "codes", "w") as file:
        learn_bpe(["open the door please", "open all doors please"] * 5, file, 10)
    return tmp_path / "codes"


SPACES = "".join(character for character in map(chr, range(0x3001)) if character.isspace())


@pytest.mark.parametrize("tokenizer", sorted(set(TOKENIZERS) - {"unchanged"}))
def test_words_stand_between_single_spaces(tokenizer):
    """Whatever white space a line has: other programs break lines at some of it."""
    words = Tokenizer("zh", tokenizer)
    for space in SPACES:
        found = words.split(f"{space}a{space}{space}b {space}c{space}")
        assert not set(found) & set(SPACES) - {" "}
        assert found == " ".join(found.split())


def test_options_of_words():
    assert (
        Tokenizer("de").split("Er sagt: „ja-nein“ & geht’s heute.")
        == "Er sagt : „ ja @-@ nein “ &amp; geht ’ s heute ."
    )
    assert Tokenizer("de", split_hyphens=False).split("ja-nein") == "ja-nein"
    assert Tokenizer("de", lowercase=True).split("Er & Sie") == "er &amp; sie"
    assert Tokenizer("en", straighten_apostrophes=True).split("it’s") == "it &apos;s"
    assert Tokenizer("de", normalise=True).split("„a\u200bb“ …") == "&quot; a b &quot; ..."
    assert Tokenizer("zh", "jieba").split("我们使用Python 3.5。") == "我们 使用 Python 3.5 。"
    assert Tokenizer("zh", "characters").split("我们使用Python 3.5。") == "我 们 使 用 Python 3.5 。"
    assert Tokenizer("zh", "jieba").join("我们 使用 Python 3.5 。") == "我们使用Python 3.5。"
    assert Tokenizer("de").join(Tokenizer("de").split("Er sagt: „ja-nein“ & geht.")) == "Er sagt: „ja-nein“ & geht."
    with pytest.raises(UsageError, match=r"no tokenizer 'mosses'\. Choose one of: moses, jieba, characters, none"):
        Tokenizer("de", "mosses")


def test_bpe_remembers_a_bounded_number_of_words(codes, monkeypatch):
    monkeypatch.setattr(subwords, "_REMEMBERED", 10)
    merges = Merges(codes)
    splits = [merges.split(f"open{number}") for number in range(100)]
    assert len(merges._bpe.cache) < 20
    assert splits == [Merges(codes).split(f"open{number}") for number in range(100)]


def test_cards(codes, tmp_path):
    card = {"source_lang": "de", "target_lang": "en", "bpe_codes": {"de": "codes", "en": "codes"}}
    words = {"tokenizer": "moses", "lowercase": True}
    (tmp_path / "dataset.json").write_text(json.dumps(card | {"words": {"de": words, "en": words}}))
    pipeline = pipeline_of(tmp_path, ("de", "en"))
    assert pipeline.encode("Open THE door!").replace("@@ ", "") == "open the door !"
    assert pipeline.decode("op@@ en the door !") == "open the door!"
    (tmp_path / "dataset.json").write_text(json.dumps(card | {"words": {"de": words}}))
    with pytest.raises(UsageError, match=r"dataset\.json is no card of a dataset"):
        pipeline_of(tmp_path, ("de", "en"))


ENTRIES = {
    "dataset": "corpus",
    "source_lang": "de",
    "target_lang": "en",
    "words": {"de": {"tokenizer": "none"}, "en": {"tokenizer": "moses", "lowercase": True}},
    "bpe_codes": {"de": "codes.de", "en": "codes.en"},
    "notes": [],
    "key": "k",
    "files": {"codes.de": {"sha256": "0", "bytes": 1, "changed": 2}},
}


def test_a_card_is_read_and_written(tmp_path):
    (tmp_path / "dataset.json").write_text(json.dumps({"of others": [1], "words": {}} | ENTRIES))
    card = DatasetCard.read(tmp_path)
    assert (card.source_lang, card.key, card.words["en"]) == ("de", "k", Tokenizer("en", lowercase=True))
    assert card.length_ratio is None
    card.length_ratio = 0.5
    card.save(tmp_path)
    written = json.loads((tmp_path / "dataset.json").read_text())
    assert list(written) == [*list(ENTRIES)[:5], "length_ratio", "notes", "key", "files"]
    assert written | ENTRIES | {"words": written["words"]} == written
    assert DatasetCard.read(tmp_path) == card


@pytest.mark.parametrize(
    "entries",
    [
        {"key": 1},
        {"words": {"de": 1}},
        {"words": {"de": {"x": 1}}},
        {"files": {"../a": {}}},
        {"files": {"a": 1}},
        {"bpe_codes": {"de": 5}},
        {"sentencepiece_model": "/etc/passwd"},
        {"length_ratio": "1"},
    ],
)
def test_a_bad_card_is_one_sentence(tmp_path, entries):
    (tmp_path / "dataset.json").write_text(json.dumps(ENTRIES | entries))
    with pytest.raises(UsageError, match=r"dataset\.json is no card of a dataset"):
        DatasetCard.read(tmp_path)


# Lines that look like, and are read as, "Open the file."
LIKE_PLAIN = {
    "a space in front": " Open the file.",
    "a space behind": "Open the file. ",
    "spaces inside": "Open  the   file.",
    "no-break spaces": "Open\u00a0the\u202ffile.\u00a0",
    "tabs and other white space": "\tOpen\u2009the\u3000file.\r",
    "zero-width spaces": "\u200bOpen the \u200bfi\u200ble.\u200b",
    "soft hyphens": "Open the fi\u00adle.",
    "a byte order mark": "\ufeffOpen the file.",
    "word joiners and marks of direction": "Open\u2060 the \u200efile\u2069.",
}
FULLWIDTH = {"a fullwidth stop": "Open the file．", "fullwidth letters and a ligature": "Ｏｐｅｎ　the ﬁle."}


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("form", ["spaces", "nfkc"])
def test_normal_forms(tokenizer, form):
    words = Tokenizer("en", tokenizer, normal_form=form)
    plain = Tokenizer("en", tokenizer).split("Open the file.")
    assert {name: words.split(line) for name, line in LIKE_PLAIN.items()} == dict.fromkeys(LIKE_PLAIN, plain)
    found = [words.split(line) == plain for line in FULLWIDTH.values()]
    assert found == [form == "nfkc"] * 2
    assert words.split(" \u200b\u00a0") == ""
    # Families of emoji and half-spaces of Persian have other meanings without their joiners.
    assert words.normalized("👩\u200d🚀 ❤\ufe0f می\u200cخوابد") == "👩\u200d🚀 ❤\ufe0f می\u200cخوابد"


def test_normal_forms_have_names():
    with pytest.raises(UsageError, match=r"no normal form 'nfc'\. Choose one of: spaces, nfkc"):
        Tokenizer("de", normal_form="nfc")


def test_spaces_around_lines():
    for before in ("", " ", "\u2009\t", "\u00a0 "):
        for after in ("", " ", "\r", " \u3000"):
            assert spaces_around(f"{before}a \u00a0b{after}") == (before, "a \u00a0b", after)
            assert spaces_around(f"{before}\ufeff\u200ba \u00a0b\u00ad{after}") == (before, "a \u00a0b", after)
    assert spaces_around("❤\ufe0f ") == ("", "❤\ufe0f", " ")
    assert spaces_around(" \t") == (" \t", "", "")


def test_a_language_model_reads_the_spaces_around_its_text(codes, tmp_path):
    (tmp_path / "dataset.json").write_text(json.dumps({"bpe_codes": "codes"}))
    pipeline = pipeline_of(tmp_path, ("", ""))
    assert pipeline.parts(" a b ") == ("", " a b ", "")
