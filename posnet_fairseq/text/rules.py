"""The rules by which a model's text is split into tokens, taken out of the data that it was trained on."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from posnet_fairseq.shared.records import digest
from posnet_fairseq.text.card import DatasetCard, FileNames
from posnet_fairseq.text.pipeline import choose_pipeline
from posnet_fairseq.text.subwords import SentencePieces
from posnet_fairseq.text.tokenizers import Tokenizer


def write_rules(
    folder: Path,
    data: Path,
    languages: tuple[str, str],
    pretokenized: bool = False,
    bpe_codes: str | Path | None = None,
    sentencepiece_model: str | Path | None = None,
) -> None:
    """Write a card with what translation needs of it, and the files of subwords that it names.

    Nothing is written for text that is tokens already. Arguments are those of
    :func:`posnet_fairseq.text.pipeline.choose_pipeline`.
    """
    choose_pipeline(data, languages, pretokenized, bpe_codes, sentencepiece_model)  # refuses what cannot be used
    if pretokenized:
        return
    rules = DatasetCard(source_lang=languages[0], target_lang=languages[1])
    if bpe_codes or sentencepiece_model:
        kind = SentencePieces(sentencepiece_model).tokenizer if sentencepiece_model else "moses"
        rules.words = {language: Tokenizer(language, kind) for language in languages}
        given = bpe_codes, sentencepiece_model
        codes: FileNames | None
        pieces: FileNames | None
        codes, pieces = (str(Path(path).absolute()) if path else None for path in given)
    else:
        card = DatasetCard.read(data)
        rules.dataset = card.dataset
        rules.words = {language: card.words[language] for language in languages if card.words}
        codes, pieces = card.bpe_codes, card.sentencepiece_model

    def copied(path: str, name: str) -> str:
        shutil.copyfile(data / path, folder / name)
        rules.files[name] = {"sha256": digest(folder / name, "sha256")}
        return name

    if codes:
        rules.bpe_codes = _each(codes, languages, "codes{}.bpe", copied)
    elif pieces:
        rules.sentencepiece_model = _each(pieces, languages, "sentencepiece{}.model", copied)
    rules.save(folder)


def _each(files: FileNames, languages: Iterable[str], name: str, copied: Callable[[str, str], str]) -> FileNames:
    """Return new names of a file of all languages, or of one for each."""
    if isinstance(files, str):
        return copied(files, name.format(""))
    return {language: copied(files[language], name.format(f".{language}")) for language in languages}
