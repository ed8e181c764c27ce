"""Lines of several sentences, split and joined again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.shared.failures import how_to_install
from posnet_fairseq.shared.records import installed_versions
from posnet_fairseq.text.languages import BLEU_TOKENIZERS, code_of

_WITHOUT_SPACES = set(BLEU_TOKENIZERS) - {"ko"}  # languages whose sentences follow one another directly


@dataclass(frozen=True)
class SplitLines:
    """Sentences of lines, each with the spaces behind it, so that a translated line is a concatenation.

    Attributes:
        sentences: those of all lines; a blank line is one.
        counts: how many sentences each line has.
    """

    sentences: list[str]
    counts: list[int]

    def numbers(self, first: int = 1) -> list[int]:
        """Return for each sentence the number of its line, where `first` is that of the first line."""
        return [number for number, count in enumerate(self.counts, first) for _ in range(count)]

    def by_line(self) -> list["SplitLines"]:
        """Return the sentences of each line alone."""
        rest = iter(self.sentences)
        return [SplitLines(list(islice(rest, count)), [count]) for count in self.counts]

    def joined(self, translations: Sequence[str], target_language: str) -> Iterator[str]:
        """Yield the lines of translated sentences.

        A space is added behind a sentence that had none, as in Chinese, if the target language has spaces.
        """
        add_space = code_of(target_language) not in _WITHOUT_SPACES
        start = 0
        for count in self.counts:
            *before, last = translations[start : start + count]
            start += count
            spaced = (text + " " * (add_space and text != "" and not text[-1].isspace()) for text in before)
            yield "".join(spaced) + last


def check_splitting(beside: Mapping[str, object]) -> None:
    """Raise a UsageError if lines cannot be split beside options by name, or the package that splits is missing."""
    for name, value in beside.items():
        if value is not None and value is not False:
            raise UsageError(
                f"{option('split_sentences')} with {option(name)}: a line has several translations, which are joined. "
                "Leave one of the two out."
            )
    if not installed_versions("sentencex"):
        raise UsageError(
            f"{option('split_sentences')} needs the package sentencex, which is not installed. "
            f"{how_to_install('sentences')}"
        )


def split_sentences(
    lines: Sequence[str], language: str, together: Callable[[str, str], bool] | None = None
) -> SplitLines:
    """Split lines into sentences, by the rules of the package sentencex for a language, such as ``pt-BR``.

    `together` tells of a sentence and the next one whether they stay one.

    Raises:
        UsageError: the package is not installed, or there are several languages, such as en+de.
    """
    check_splitting({})
    if "+" in language:
        raise UsageError(
            f"{option('split_sentences')}: the model's sources are of several languages, {language}, whose sentences "
            "are split by different rules. Leave it out, and give a sentence a line."
        )
    from sentencex import segment

    of_lines = [list(segment(code_of(language), line)) or [line] for line in lines]
    if together is not None:
        of_lines = [_rejoined(line, together) for line in of_lines]
    return SplitLines([sentence for line in of_lines for sentence in line], list(map(len, of_lines)))


def _rejoined(sentences: Sequence[str], together: Callable[[str, str], bool]) -> list[str]:
    found = [*sentences[:1]]
    for sentence in sentences[1:]:
        if together(found[-1], sentence):
            found[-1] += sentence
        else:
            found.append(sentence)
    return found
