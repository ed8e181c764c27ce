"""Words of subwords: their scores, and what they are aligned to."""

from dataclasses import replace

import pytest
import torch

from posnet_fairseq.inference.translation import BLANK, Printing, Translation, token_alignment
from posnet_fairseq.text.subwords import words_of_pieces

ATTENTION = torch.tensor(
    [
        [0.1, 0.2, 0.6, 0.1],
        [0.5, 0.1, 0.2, 0.2],
        [0.6, 0.2, 0.1, 0.1],
        [0.2, 0.5, 0.2, 0.1],
        [0.0, 0.0, 0.0, 1.0],
    ]
)


def translation(tokens, source):
    return Translation(
        text="",
        score=-2.0,
        tokens=(*tokens.split(), "</s>"),
        source_tokens=(*source.split(), "</s>"),
        attention=ATTENTION,
        alignment=token_alignment(ATTENTION),
        token_scores=(-1.0, -2.0, -4.0, -8.0, -16.0),
    )


@pytest.mark.parametrize(
    ("pieces", "words", "numbers"),
    [
        ("▁Ein ▁Wort s piel ▁.", "Ein Wortspiel .", [0, 1, 1, 1, 2]),
        ("Ein ▁Wort", "Ein Wort", [0, 1]),
        ("▁Ein ▁W <0xC3> <0xB6> rt", "Ein Wört", [0, 1, 1, 1, 1]),
        ("▁ ( a ) ▁@@ b", "(a) @@b", [0, 0, 0, 0, 1, 1]),
        ("Ein Wort@@ s@@ piel &apos;s .", "Ein Wortspiel &apos;s .", [0, 1, 1, 1, 2, 3]),
        ("<unk> a", "<unk> a", [0, 1]),
        ("", "", []),
    ],
)
def test_words_of_pieces(pieces, words, numbers):
    assert words_of_pieces(pieces.split()) == (words.split(), numbers)


@pytest.mark.parametrize(("tokens", "source"), [("W@@ or@@ t b", "a x@@ y"), ("▁W or t ▁b", "▁a ▁x y")])
def test_scores_and_alignments_of_words(tokens, source):
    """Of the subwords of the first word one has its largest weight at the second source word, two at the first."""
    found = translation(tokens, source)
    assert (found.words, found.source_words) == (("Wort", "b"), ("a", "xy"))
    assert found.word_scores == (-7.0, -8.0)
    assert found.log_probability == -31.0
    torch.testing.assert_close(found.word_attention, torch.tensor([[0.4, 1.4 / 3], [0.2, 0.7]]))
    assert found.alignment == ((2, 0), (0, 1), (0, 2), (1, 3))
    assert found.word_alignment == ((0, 0), (1, 1))


def test_a_tag_is_no_word():
    """Nor is anything aligned to it: what has its largest weight there goes to the next one."""
    found = replace(translation("▁W or t ▁b", "<2de> ▁x y"), tag="<2de>", alignment=token_alignment(ATTENTION, first=1))
    assert found.source_words == ("xy",)
    torch.testing.assert_close(found.word_attention, torch.tensor([[1.4 / 3], [0.7]]))
    assert found.alignment == ((2, 0), (2, 1), (1, 2), (1, 3))
    assert found.word_alignment == ((0, 0), (0, 1))
    assert token_alignment(ATTENTION[:, :2], first=1) == ()


def test_nothing_is_aligned_without_weights_or_words():
    assert (BLANK.words, BLANK.word_scores, BLANK.log_probability) == ((), (), 0.0)
    assert (BLANK.word_attention, BLANK.word_alignment) == (None, None)
    empty = Translation("", -1.0, ("</s>",), ("a", "</s>"), ATTENTION[:1, :2], (), (-1.0,))
    assert (empty.word_attention.shape, empty.word_alignment) == ((0, 1), ())


def test_words_are_printed_and_subwords_on_request():
    found = translation("W@@ or@@ t b", "a x@@ y")
    assert Printing(None, "words").lines(0, [found]) == [" ||| 0-0 1-1"]
    assert Printing(None, "subwords").lines(0, [found]) == [" ||| 2-0 0-1 0-2 1-3"]
    (line,) = Printing(json=True).lines(3, [found])
    assert line == (
        '{"line": 3, "text": "", "score": -2.0, "log_probability": -31.0, "words": ["Wort", "b"], '
        '"word_scores": [-7.0, -8.0]}'
    )
    (line,) = Printing(alignment="words", json=True, per_token=True).lines(3, [found])
    for part in ('"tokens": ["W@@", "or@@", "t", "b", "</s>"]', '"token_scores": [-1.0,', '"alignment": [[2, 0],'):
        assert part in line
