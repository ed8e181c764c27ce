"""Plain text to the tokens that a model was trained on, and back."""

import copy
import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self

from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.shared.files import read_small
from posnet_fairseq.shared.records import digest
from posnet_fairseq.text.card import ADVICE, CARD, WHAT, DatasetCard, FileNames
from posnet_fairseq.text.dictionary import dictionary_file
from posnet_fairseq.text.subwords import ANOTHER_FILE, SPACE, Merges, SentencePieces, Subwords
from posnet_fairseq.text.terms import OF_TOKENS, OF_WORDS
from posnet_fairseq.text.tokenizers import Tokenizer, spaces_around


def with_tag(tag: str, tokens: str) -> str:
    """Return tokens between spaces with a tag in front; none if the tag is "", or there are no tokens."""
    return f"{tag} {tokens}" if tag and tokens else tokens


class TextPipeline:
    """Converts plain text to tokens, and tokens to plain text; this one leaves text that is tokens already as it is."""

    # Tokens, the end symbol included, that 99.9% of the sources in training have at most; None: it is not known.
    usual_length: int | None = None
    # That stay whole, and that both languages had in training.
    symbols: tuple[str, ...] = ()
    # Of a model of several target languages, by language: one goes in front of the tokens of each source.
    tags: Mapping[str, str] = MappingProxyType({})
    tag = ""  # that was chosen
    _without_tags = "the text is split into tokens already, a tag among them"  # or why else none can be chosen

    def encode(self, line: str) -> str:
        """Return tokens between spaces, of plain text of the source language."""
        return line

    def encode_target(self, line: str) -> str:
        """Return tokens between spaces, of plain text of the target language."""
        return line

    def decode(self, tokens: str) -> str:
        """Return plain text of tokens of the target language."""
        return tokens

    def towards(self, language: str | None) -> Self:
        """Return the pipeline for translations into one of several languages; None: into the only one."""
        if language is not None and not isinstance(language, str):
            raise UsageError(f"{option('to')} {language!r:.50}: give a language, such as 'de'.")
        if language is None and not self.tags:
            return self
        given = "" if language is None else f"{option('to', language)}: "
        if not self.tags:
            raise UsageError(f"{given}there is no language to choose: {self._without_tags}. Leave it out.")
        if (tag := self.tags.get((language or "").replace("-", "_"))) is None:
            known = " or ".join(self.tags)
            raise UsageError(f"{given}the model translates into {known}. Choose one by {option('to')}.")
        chosen = copy.copy(self)
        chosen.tags, chosen.tag = {}, tag
        return chosen

    # Where terms begin and end.
    edges = OF_TOKENS

    def encode_within(self, text: str) -> list[str]:
        """Return the tokens between spaces that a text of the target language may have within a line."""
        return [self.encode_target(text)]

    def joins(self, token: str) -> int:
        """Return whether a token goes on with the word before it (2), lets the next one do so (1), both (3) or not (0).

        The one is so if both are: a word goes on where the first token lets the next one, and that one goes on.
        """
        return 0

    def parts(self, line: str) -> tuple[str, str, str]:
        """Return a line's text, which is translated, between what stands before and after its translation."""
        return "", line, ""


class Pipeline(TextPipeline):
    """Splits plain text into words and these into subwords, and joins them."""

    _without_tags = "the model translates into one"

    def __init__(self, source: Tokenizer, target: Tokenizer, source_pieces: Subwords, target_pieces: Subwords) -> None:
        self.source, self.target = source, target
        self.source_pieces, self.target_pieces = source_pieces, target_pieces

    def encode(self, line: str) -> str:
        """Return tokens of the source language, see :meth:`TextPipeline.encode`; without spaces around the line."""
        if self.tags:
            raise UsageError(
                f"the model translates into {' or '.join(self.tags)}: only posnet-translate and posnet-plot (--to) and "
                "Python (to) choose one."
            )
        return with_tag(self.tag, self.source_pieces.split(self.source.split(self.parts(line)[1])))

    def encode_target(self, line: str) -> str:
        """Return tokens of the target language, see :meth:`TextPipeline.encode_target`."""
        return self.target_pieces.split(self.target.split(line))

    def decode(self, tokens: str) -> str:
        """Return plain text, see :meth:`TextPipeline.decode`."""
        return self.target.join(self.target_pieces.join(tokens))

    edges = OF_WORDS

    def encode_within(self, text: str) -> list[str]:
        """Return tokens as :meth:`TextPipeline.encode_within`: behind a space, and directly behind other characters."""
        tokens = self.encode_target(text)
        return list(dict.fromkeys([tokens, tokens.removeprefix(SPACE).lstrip(" ")]))

    def joins(self, token: str) -> int:
        """Return how a token is joined to others, see :meth:`TextPipeline.joins`."""
        return self.target_pieces.joins(token)

    def parts(self, line: str) -> tuple[str, str, str]:
        """Return a line's text between the spaces around it; all of a line for a language model is text."""
        return spaces_around(line) if self.source.language else ("", line, "")


def pipeline_of(folder: str | Path, languages: tuple[str, str]) -> Pipeline:
    """Return the pipeline that the card of a prepared dataset describes, for source and target in either order.

    The languages of a language model are "". What is missing or has changed is refused.
    """
    path = Path(folder) / CARD
    try:
        card = DatasetCard.read(folder)
        if card.bpe_codes and card.sentencepiece_model:
            raise LookupError("it names both bpe_codes and a sentencepiece_model")
        if not (files := card.bpe_codes or card.sentencepiece_model):
            raise LookupError("it names neither bpe_codes nor a sentencepiece_model")
        if card.words:
            if not set(languages) <= {card.source_lang, card.target_lang}:
                model = f"translates from {languages[0]} to {languages[1]}" if all(languages) else "is of one language"
                raise UsageError(
                    f"{path} says how {card.source_lang} and {card.target_lang} are split into tokens, and the model "
                    f"{model}. Give the directory that it was trained on by {option('data')}, or "
                    f"{option('bpe_codes')}, {option('sentencepiece_model')} or {option('pretokenized')}."
                )
            if card.tags and languages != (card.source_lang, card.target_lang):
                raise UsageError(f"{path} has tags for translations from {card.source_lang}, not from {languages[0]}.")
            tokenizers = [card.words[name] for name in languages]
        else:  # text of one language
            tokenizers = [Tokenizer("", "none")] * 2
        names = [files if isinstance(files, str) else files[tokenizer.language] for tokenizer in tokenizers]
        pieces: dict[str, Subwords] = {}
        for name in dict.fromkeys(names):
            file = companion(path, name, card)
            pieces[name] = Merges(file, tokenizers[0].symbols) if card.bpe_codes else SentencePieces(file)
        source, target = (pieces[name] for name in names)
        if not card.words and isinstance(source, SentencePieces):
            tokenizers = [Tokenizer("", source.tokenizer)] * 2
        pipeline = Pipeline(tokenizers[0], tokenizers[1], source, target)
        counts = [(card.symbols or {}).get(language, {}) for language in languages]
        pipeline.symbols = tuple(symbol for symbol in tokenizers[0].symbols if all(of.get(symbol) for of in counts))
        pipeline.tags = card.tags or {}
        pipeline.usual_length = (card.usual_length or {}).get(languages[0])
        return pipeline
    except FileNotFoundError:
        raise UsageError(
            f"{folder} has no {CARD}, which says how its text was split into tokens. Give "
            f"{option('sentencepiece_model')}, {option('bpe_codes')} (for Moses words with BPE), "
            f"{option('pretokenized')} (for text that is split already), or {option('data')}, a directory that "
            "posnet-prepare made."
        ) from None
    except LookupError as error:
        raise UsageError(f"{path} is no {WHAT}: {error}. {ADVICE}") from error


def choose_pipeline(
    folder: str | Path,
    languages: tuple[str, str],
    pretokenized: bool = False,
    bpe_codes: str | Path | None = None,
    sentencepiece_model: str | Path | None = None,
) -> TextPipeline:
    """Return the pipeline that the user gives (tokens as they are, merges of Moses words, a sentencepiece model), else
    the one of :func:`pipeline_of`.

    Other subwords than those that the card in the folder names for these languages are refused.
    """
    if pretokenized:
        return TextPipeline()
    if (pieces := _other_subwords(folder, languages, bpe_codes, sentencepiece_model)) is None:
        return pipeline_of(folder, languages)
    source, target = (Tokenizer(language, pieces.tokenizer) for language in languages)
    return Pipeline(source, target, pieces, pieces)


def _other_subwords(
    folder: str | Path,
    languages: tuple[str, str],
    bpe_codes: str | Path | None,
    sentencepiece_model: str | Path | None,
) -> Subwords | None:
    """Return the subwords that an option gives; None if there are none, or they are those of the card in the folder.

    A file that differs from those of the card is refused; without a card of these languages, any may be given.
    """
    if not (path := sentencepiece_model or bpe_codes):
        return None
    pieces = SentencePieces(path) if sentencepiece_model else Merges(path)
    card = DatasetCard.read_if_whole(folder)
    is_of_others = bool(card.words) and not set(languages) <= {card.source_lang, card.target_lang}
    if is_of_others or not card.subword_files:
        if "+" in "".join(languages):
            raise UsageError(
                f"the model from {' to '.join(languages)} has tags of languages, which only the {CARD} of its data "
                f"lists. Give a directory that has one by {option('data')}."
            )
        return pieces
    files = filter(Path.is_file, (Path(folder, name) for name in card.subword_files))
    if digest(path) in {*map(digest, files), *map(card.hash_of, card.subword_files)}:
        return None
    raise UsageError(
        f"{option('sentencepiece_model' if sentencepiece_model else 'bpe_codes', path)} is not "
        f"{' or '.join(sorted(card.subword_files))}, which {Path(folder, CARD)} says that the text was split by. Leave "
        f"the option out, or give a directory with the dictionaries and without {CARD} by {option('data')}."
    )


def companion(card_path: Path, name: str, card: DatasetCard) -> Path:
    """Return the path of a file in the card's folder, which must be unchanged since the card was written."""
    path = card_path.parent / name
    content = read_small(path)
    if card.posnet or card.key or card.files:  # not written by hand
        if not (expected := card.hash_of(name)):
            raise UsageError(f"{card_path} is no {WHAT}: it lacks the hash of {name}. {ADVICE}")
        if hashlib.sha256(content).hexdigest() != expected:
            raise UsageError(f"{path} is not the file that {card_path} was made with. {ANOTHER_FILE}")
    return path


def check_dictionary(folder: str | Path, language: str) -> None:
    """Refuse a language's dictionary in a dataset's folder if it is not the one that the dataset was made with.

    A language model's language is "". Data without a card, or without a dictionary, are not checked.
    """
    name, card = dictionary_file(language), DatasetCard.read_if_whole(folder)
    if card.hash_of(name) and Path(folder, name).exists():
        companion(Path(folder, CARD), name, card)


def write_rules(
    folder: Path,
    data: Path,
    languages: tuple[str, str],
    pretokenized: bool = False,
    bpe_codes: str | Path | None = None,
    sentencepiece_model: str | Path | None = None,
) -> None:
    """Write a card with what translation needs of it, and the files of subwords that it names.

    Nothing is written for text that is tokens already. Arguments are those of :func:`choose_pipeline`.
    """
    if pretokenized:
        return
    if pieces := _other_subwords(data, languages, bpe_codes, sentencepiece_model):
        card = DatasetCard(words={language: Tokenizer(language, pieces.tokenizer) for language in languages})
        files: FileNames = str(Path(sentencepiece_model or bpe_codes or "").absolute())
        has_merges = isinstance(pieces, Merges)
    else:
        pipeline_of(data, languages)  # refuses a card that lacks something
        card = DatasetCard.read(data)
        files, has_merges = card.bpe_codes or card.sentencepiece_model or "", bool(card.bpe_codes)
    rules = DatasetCard(card.dataset, source_lang=languages[0], target_lang=languages[1])
    rules.words = {language: card.words[language] for language in languages if card.words}
    rules.usual_length, rules.symbols, rules.tags = card.usual_length, card.symbols, card.tags

    def copied(path: str, ending: str = "") -> str:
        name = f"codes{ending}.bpe" if has_merges else f"sentencepiece{ending}.model"
        shutil.copyfile(data / path, folder / name)
        rules.files[name] = {"sha256": digest(folder / name)}
        return name

    names = copied(files) if isinstance(files, str) else {tag: copied(files[tag], f".{tag}") for tag in languages}
    rules.bpe_codes, rules.sentencepiece_model = (names, None) if has_merges else (None, names)
    rules.save(folder)
