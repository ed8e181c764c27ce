"""Terms in texts, files of terms, and tokens that terms are written as within a line."""

import itertools

import pytest

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.pipeline import Pipeline, TextPipeline
from posnet_fairseq.text.subwords import Merges, SentencePieces
from posnet_fairseq.text.terms import (
    OF_TOKENS,
    OF_WORDS,
    Occurrences,
    across,
    checked_terms,
    read_terms,
    targets_of,
    unmet,
)
from posnet_fairseq.text.tokenizers import Tokenizer
from support.tiny_models import sentencepiece_model

TERMS = ["network", "network cable", "cable", "C++", "don't", "API", "连接", "US", "\u00e9t"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a network cable and a network.", ["network cable", "network"]),
        ("network  cable", ["network cable"]),  # a run of spaces is a space
        ("network network cable", ["network", "network cable"]),
        ("networks, Network, subnetwork, network_cable, network2", []),
        ('"network"-cable (network)', ["network", "cable", "network"]),
        ("C++, C++17 C+", ["C++", "C++"]),
        ("I don't", ["don't"]),
        ("我们的API连接了", ["API", "连接"]),
        ("APIs USA U.S. US", ["US"]),
        ("e\u0301te e\u0301t", ["\u00e9t"]),
        ("a net\u00adwork, \u200bnetwork\ufeff, cable\u00adway", ["network", "network"]),  # as the model reads it
        ("", []),
    ],
)
def test_terms_are_whole_words_and_the_longest_that_begins_first(text, found):
    assert Occurrences(TERMS, OF_WORDS)(text) == found


def test_terms_of_tokens_are_whole_tokens():
    assert Occurrences(["net@@ work", "net", "work"], OF_TOKENS)("net@@ work a-net net") == ["net@@ work", "net"]


def test_a_term_that_is_there_twice_is_wanted_twice():
    terms = {"network": "Netz", "net": "Netz"}
    assert targets_of(terms, ["network, net", "", "a network"], OF_WORDS) == [["Netz", "Netz"], [], ["Netz"]]
    assert unmet(["Netz", "Netz", "Kabel"], "Ein Netz, Kabel", OF_WORDS) == ("Netz",)
    assert unmet(["Netz", "Netz Kabel"], "Netz Kabel", OF_WORDS) == ("Netz",)
    assert unmet(["Netz"], "Netze", OF_WORDS) == ("Netz",)


def test_what_is_between_terms_and_texts_is_not_seen():
    """Terms keep the invisible characters that a translation may have."""
    assert targets_of({"net\u00adwork": "Netz\u200bwerk"}, ["a network"], OF_WORDS) == [["Netz\u200bwerk"]]
    assert unmet(["Netz\u200bwerk", "Netz"], "Netzwerk", OF_WORDS) == ("Netz",)
    assert targets_of({"\u00ad": "Netz"}, ["a net\u00ad"], OF_WORDS) == [[]]


def test_terms_of_two_texts():
    is_across = across(["Who? Me!", "network", "me"], OF_WORDS)
    assert is_across("I saw Who? ", "Me! on TV.")
    assert not is_across("I saw Who ", "Me! on TV.")
    assert is_across("a net", "work.")
    assert not is_across("a network. ", "To me.")


def test_files_of_terms(tmp_path):
    (tmp_path / "terms").write_text("a  cable\tKabel \n\n cable\tKabel\ncable\tKabel\n")
    assert (
        read_terms(tmp_path / "terms")
        == {"a cable": "Kabel", "cable": "Kabel"}
        == checked_terms({" a  cable": "Kabel", "cable": " Kabel "})
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("cable\tKabel\nnetwork Netz\n", "line 2, is 'network Netz'. Give a source term, a tab and a target term in"),
        ("\tKabel\n", r"line 1, is '\\tKabel'. Give a source term, a tab and"),
        ("cable\tKabel\tLeitung\n", "line 1, is 'cable.*. Give a source term, a tab and"),
        ("cable\tKabel\ncable\tLeitung\n", "line 2, gives 'cable' a second target term, 'Kabel' and 'Leitung'. Give"),
    ],
)
def test_what_is_no_file_of_terms(tmp_path, content, sentence):
    (tmp_path / "terms").write_text(content)
    with pytest.raises(UsageError, match=f"^--terms {tmp_path / 'terms'}, {sentence}"):
        read_terms(tmp_path / "terms")


@pytest.mark.parametrize("terms", [["cable"], {"cable": ""}, {"cable": ["Kabel"]}, {3: "Kabel"}, "cable"])
def test_what_are_no_terms(terms):
    with pytest.raises(UsageError, match=r"^--terms .*: give a dict with a target term, a str, for each source term"):
        checked_terms(terms)


def bpe(tmp_path):
    (tmp_path / "codes").write_text("#version: 0.2\nN e\nt z</w>\n")
    return Merges(tmp_path / "codes")


def pieces(tmp_path):
    (tmp_path / "model").write_bytes(sentencepiece_model())
    return SentencePieces(tmp_path / "model")


@pytest.mark.parametrize(
    ("subwords", "term", "lines"),
    [
        (bpe, "Netz", ["Netz Netze aNetz", "Netz NetzNetz Netz a1Netz", "Netze"]),
        (
            pieces,
            "lesen",
            [
                "lesen lesene alesen",
                "(lesen) lesen!",
                "lesen-lesen lesen",
                "a1lesen lesenlesen",
                "lesenä lesen",
                "lesen连",
            ],
        ),
    ],
)
def test_words_are_whole_where_no_tokens_join_them(tmp_path, subwords, term, lines):
    """The tokens of a term, at each place of a line, against the text."""
    model = subwords(tmp_path)
    pipeline = Pipeline(Tokenizer("", "none"), Tokenizer("", "none"), model, model)
    ways = [way.split() for way in pipeline.encode_within(term)]
    for line in lines:
        tokens, found = pipeline.encode_target(line).split(), set()
        for start, way in itertools.product(range(len(tokens)), ways):
            end = start + len(way)
            edges = [tokens[max(0, start - 1) : start + 1], tokens[end - 1 : end + 1]]
            pairs = [map(pipeline.joins, edge) for edge in edges if len(edge) == 2]
            is_within = any(before & 1 and after & 2 for before, after in pairs)
            if tokens[start:end] == way and not is_within:
                found.add(end)
        assert len(found) == len(Occurrences([term], OF_WORDS)(line)), (line, tokens)


def test_tokens_that_are_given_are_words():
    assert TextPipeline().joins("Netz") == 0
    assert TextPipeline().encode_within("Netz@@ werk") == ["Netz@@ werk"]
