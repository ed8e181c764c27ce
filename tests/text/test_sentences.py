"""Lines that are split into sentences and joined again."""

import pytest

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text import sentences
from posnet_fairseq.text.sentences import split_sentences

PARAGRAPH = '  Dr. Smith came at 3.50 p.m.  He left on Jan. 3rd!\u00a0"Really?" she asked.\tYes. '


@pytest.mark.parametrize("language", ["en", "de", "eng_Latn", "pt-BR", "xx"])
def test_what_is_split_is_the_line(language):
    lines = [PARAGRAPH, "", "One sentence.", " \t ", "日本。本日は晴天なり。"]
    split = split_sentences(lines, language)
    assert len(split.counts) == len(lines)
    assert split.counts[0] > 2
    assert "".join(split.sentences) == "".join(lines)
    assert list(split.joined(split.sentences, "zh")) == lines
    assert [list(one.joined(one.sentences, "zh")) for one in split.by_line()] == [[line] for line in lines]


def test_numbers_are_those_of_lines():
    split = split_sentences(["This is one. And two.", "", "Three is here. And four. And five."], "en")
    assert split.numbers() == [1, 1, 2, 3, 3, 3]
    assert split.numbers(first=11)[-1] == 13


def test_sentences_that_stay_together():
    split = split_sentences(["I saw Who? Me! And you. No.", "Yes. No."], "en", lambda first, second: "Me" in second)
    assert split.sentences == ["I saw Who? Me! ", "And you. ", "No.", "Yes. ", "No."]
    assert split.counts == [3, 2]


@pytest.mark.parametrize(("target", "line"), [("en", "Japan. It is fine."), ("zho_Hans", "Japan.It is fine.")])
def test_a_space_where_the_target_language_has_one(target, line):
    split = split_sentences(["日本。本日は晴天なり。"], "ja")
    assert list(split.joined(["Japan.", "It is fine."], target)) == [line]
    assert list(split.joined(["", "It is fine."], target)) == ["It is fine."]


def test_several_languages_are_refused():
    with pytest.raises(UsageError, match=r"the model's sources are of several languages, en\+de"):
        split_sentences(["A. B."], "en+de")


def test_missing_package(monkeypatch):
    monkeypatch.setattr(sentences, "installed_versions", lambda name: {})
    with pytest.raises(UsageError, match="--split-sentences needs the package sentencex, which is not installed"):
        split_sentences(["A."], "en")
