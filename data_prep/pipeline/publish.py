"""Publication of a dataset: its files in one folder, and a card that says how they were made."""

import contextlib
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posnet_data_prep.pipeline.dataset_pipeline import DatasetPipeline
from posnet_data_prep.pipeline.sets import (
    COPIES,
    EXAMPLE,
    IN_TRAINING,
    NOT_NFC,
    ODD,
    REPEATED,
    SOURCE_IN_TRAINING,
    dropped_pairs,
)
from posnet_fairseq import __version__
from posnet_fairseq.shared.errors import UsageError, counted
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.records import are_intact
from posnet_fairseq.shared.stages import LOCK, PARTIAL, remove
from posnet_fairseq.text.binary_format import read_tokens
from posnet_fairseq.text.card import CARD, DatasetCard, Restored
from posnet_fairseq.text.dictionary import Dictionary, dictionary_file
from posnet_fairseq.text.languages import code_of, common_bleu_tokenizer
from posnet_fairseq.text.tokenizers import has_moses_rules

SAMPLE = 10**7  # tokens that are counted at once, which makes 8 bytes of each
MARGIN = 0.2  # nats by which a token of swapped sides is likelier, at least, among those of the other side
USUAL = 0.999  # share of the training lines that are not longer than the card's usual length
NAMES = "published"  # in the folder of stages: names of all files that were put into the dataset's folder


def published_before(out: Path, stages: Path) -> str | None:
    """Return the key of the dataset that is in a folder, None if it is not whole or there is none.

    Files which posnet-prepare has not made there, or not as they are, are refused.
    """
    card = DatasetCard.read_if_whole(out)
    if out.is_dir() and any(out.iterdir()) and not (stages / LOCK).exists() and not card.key:
        raise UsageError(f"{out} exists already, and this posnet-prepare did not make it. Choose another --out.")
    there = {name: state for name, state in card.files.items() if (out / name).is_file()}
    for name, state in there.items():
        if not are_intact(out, {name: state}):
            raise UsageError(f"{out / name} was changed since posnet-prepare made it. Move it away, and run again.")
    return card.key if there == card.files else None


def publish(out: Path, pipeline: DatasetPipeline, card: DatasetCard) -> None:
    """Link the files of the last stages into a folder, and write the dataset's card."""
    stages = pipeline.goal.folder.parent
    pipeline.goal.clear()
    if card.tags:
        known = Dictionary.load(pipeline.goal.folder / dictionary_file(pipeline.languages[0]))
        if lost := [language for language, tag in card.tags.items() if known.index(tag) == known.unk()]:
            raise UsageError(f"no training pairs into {' and '.join(lost)} are left. Check the text and its limits.")
    for left in stages.glob(f"*{PARTIAL}"):  # of other datasets that were begun here
        remove(left)
    records = {stage: stage.record or {} for stage in pipeline.stages}
    last = (pipeline.text, pipeline.goal)
    card.files = {name: state for stage in last for name, state in records[stage]["files"].items()}
    _clear(out, stages / NAMES, card.files)
    for stage in last:
        for name in records[stage]["files"]:
            _link(stage.folder / name, out / name)
    _describe(card, pipeline)
    languages = sorted(pipeline.languages) if len(pipeline.languages) == 2 else [""]
    # Without the fillers that fairseq adds to reach a multiple of eight.
    card.vocabulary = {
        language or "all": sum(
            not line.startswith(b"madeupword") for line in (out / dictionary_file(language)).read_bytes().splitlines()
        )
        for language in languages
    }
    if card.source_lang and card.target_lang:
        stem = out / f"train.{card.source_lang}-{card.target_lang}"
        sizes = {language: read_tokens(f"{stem}.{language}")[1] for language in pipeline.languages}
        source, target = (int(of.sum()) for of in sizes.values())
        if symbols := pipeline.tokenizers[0].symbols:
            card.symbols = {tag: _occurrences(out, f"{stem}.{tag}", tag, symbols) for tag in pipeline.languages}
            absent = [symbol for symbol in symbols if not any(counts[symbol] for counts in card.symbols.values())]
            if absent:
                card.notes = [*(card.notes or ()), f"symbols that the training text lacks: {', '.join(absent)}"]
        others = [name for name in card.sentences or {} if name != "train"]
        if swapped := [] if card.tags else _swapped(out, others, pipeline.languages):
            card.notes = [
                *(card.notes or ()),
                f"sets whose sides look swapped, compared with the training set: {', '.join(swapped)}",
            ]
        card.length_ratio = source / target  # γ of the training set: PosNet (Schmidt and Di Gangi, 2023) Eq. 10
        usual = {language: np.quantile(of, USUAL, method="inverted_cdf") for language, of in sizes.items()}
        card.usual_length = {language: int(length) for language, length in usual.items()}
    card.restored = restoration(out, pipeline, card)
    card.stages = {
        stage.name: {
            "counts": record["counts"],
            "options": record["settings"],
            "versions": record["attempts"][-1]["versions"],
            "seconds": record["seconds"],
        }
        for stage, record in records.items()
        if record and record["key"] == stage.key
    }
    card.posnet, card.key = __version__, pipeline.goal.key
    card.save(out)


def _swapped(folder: Path, names: Sequence[str], languages: Sequence[str]) -> list[str]:
    """Return the sets in which each side's tokens are likelier among the training tokens of the other side."""
    entries = [Dictionary.load(folder / dictionary_file(language)).symbols for language in languages]
    if entries[0] != entries[1]:  # of no joint dictionary
        return []

    def counts(of_set: str) -> NDArray[Any]:
        stems = [folder / f"{of_set}.{'-'.join(languages)}.{language}" for language in languages]
        return np.stack([np.bincount(read_tokens(stem)[0][:SAMPLE], minlength=len(entries[0])) for stem in stems])

    probabilities = counts("train") + 1.0
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    logarithms = np.log(probabilities)
    gains = logarithms[::-1] - logarithms  # of each token, on each side, by going to the other one
    given = {name: counts(name) for name in names}
    return [name for name, of_set in given.items() if ((of_set * gains).sum(1) > MARGIN * of_set.sum(1)).all()]


def _occurrences(folder: Path, stem: str, language: str, symbols: Sequence[str]) -> dict[str, int]:
    """Return how often each symbol is among the tokens of a binarized text."""
    dictionary = Dictionary.load(folder / dictionary_file(language))
    tokens = read_tokens(stem)[0]
    counts = np.zeros(len(dictionary), int)
    for start in range(0, len(tokens), SAMPLE):
        counts += np.bincount(tokens[start : start + SAMPLE], minlength=len(dictionary))
    return {symbol: int(counts[dictionary.index(symbol)]) for symbol in symbols}


def _clear(out: Path, note: Path, names: Collection[str]) -> None:
    """Remove the files that were published before, also by an interrupted run; the note has all their names."""
    before = set(DatasetCard.read_if_whole(out).files)
    with contextlib.suppress(OSError, ValueError):  # of a damaged note
        before |= {name for name in note.read_text(encoding="utf-8").split("\n") if name and Path(name).name == name}
    foreign = [out / name for name in sorted(names) if name not in before and os.path.lexists(out / name)]
    if foreign:
        raise UsageError(
            f"{foreign[0]} is there, and this posnet-prepare did not make it. Move it away, and run again."
        )
    write_lines(note, sorted(before | set(names)))
    (out / CARD).unlink(missing_ok=True)  # from here on the dataset is incomplete
    for name in before:
        (out / name).unlink(missing_ok=True)


def _link(file: Path, name: Path) -> None:
    """Give a file a second name, or copy it where the file system has no hard links."""
    name.unlink(missing_ok=True)
    try:
        os.link(file, name)
    except OSError:
        shutil.copy2(file, name)


def _describe(card: DatasetCard, pipeline: DatasetPipeline) -> None:
    """Enter into a card what it says about the text. The folders of early stages may have been removed."""
    if len(pipeline.languages) == 2:
        card.source_lang, card.target_lang = pipeline.languages
        card.words = {tokenizer.language: tokenizer for tokenizer in pipeline.tokenizers}
    if pipeline.recipe.subwords == "sentencepiece":
        card.sentencepiece_model = pipeline.subword_files[pipeline.languages[0]]
    else:
        card.bpe_codes = pipeline.subword_files
    counts, read, split = pipeline.text.counts, pipeline.read.counts, pipeline.split.counts
    card.sentences = {name: of_set["lines"] for name, of_set in counts.items()}
    if split:
        card.dropped = dropped_pairs(split, *pipeline.applied.counts.values()) or None
    if (most := pipeline.recipe.join) > 1:
        single, card.dataset = card.test_sets or {"test": "as given"}, f"{card.dataset}.join{most}"
        joined = {copy: f"{single[name]}, joined by {most}" for name, copy in pipeline.joined_tests.items()}
        card.test_sets = single | joined if joined else None
    archives = card.archives or {}
    for name, digest in read.get("digests", {}).items():
        archives[name]["digest"] = digest
    card.notes = list(_notes(pipeline))


def _notes(pipeline: DatasetPipeline) -> Iterator[str]:
    """Yield sentences on the text, without periods."""
    is_pair = len(pipeline.languages) == 2
    unit = "pairs" if is_pair else "lines"
    of_subwords, recipe, counts = pipeline.learned.counts, pipeline.recipe, pipeline.applied.counts
    if "pieces" in of_subwords:
        learned_of = [(recipe.pieces, of_subwords["pieces"], "pieces")]
    else:
        learned_merges = [of["merges"] for of in of_subwords.values()]
        learned_of = [(asked, learned, "merges") for asked, learned in zip(recipe.merges, learned_merges, strict=False)]
    for asked, learned, what in learned_of:
        if learned < asked:
            yield f"only {learned:,} of {asked:,} {what} could be learned from the training text"
    if copies := counts["train"].get(COPIES, 0):
        yield f"{copies:,} of the {counts['train']['lines']:,} training pairs are repetitions by weights"
    if repeated := counts["train"].get(REPEATED):
        advice = "; --drop-repeated leaves them out" if is_pair else ""
        yield f"{repeated:,} of {counts['train']['lines'] - copies:,} training {unit} repeat an earlier one{advice}"
    for name, of_set in counts.items():
        if repeated := of_set.get(IN_TRAINING):
            way = ", in this direction or the other one" if "+" in pipeline.languages[-1] else ""
            yield f"{repeated:,} of {of_set['lines']:,} {unit} of the {name} set are also in the training set{way}"
        if similar := of_set.get(SOURCE_IN_TRAINING):
            what = "source" if is_pair else "text"
            other = "with another target, case or punctuation" if is_pair else "with other case or punctuation"
            yield (
                f"{unit} of the {name} set whose {what} is in the training set {other}: {similar:,} of "
                f"{of_set['lines']:,}, such as {of_set[EXAMPLE]}"
            )
    sides = {"copy": "have equal sides", "script": "have a side without a letter of its language's script"}
    for problem, count in ODD.items():
        if odd := [f"{of_set[count]:,} {name}" for name, of_set in counts.items() if of_set.get(count)]:
            yield f"pairs that {sides[problem]}: {', '.join(odd)}"
    moses = [code_of(each.language) for each in pipeline.tokenizers if each.tokenizer == "moses"]
    if without := [code for code in moses if not has_moses_rules(code)]:
        yield (
            f"Moses has no rules for {' and '.join(without)} and splits text as English, at spaces and punctuation. "
            "--subwords sentencepiece needs no rules"
        )
    odd = [f"{of_set[NOT_NFC]:,} {name}" for name, of_set in counts.items() if of_set.get(NOT_NFC)]
    if odd:
        yield (
            f"{unit} that are not in Unicode normal form NFC: {', '.join(odd)}. They are not converted; letters that "
            "look the same elsewhere are other tokens to a model"
        )
    read = {name: pipeline.read.counts.get(name, {}) for name in counts}
    yield from dict.fromkeys(chain.from_iterable(of_set.get("remarks", ()) for of_set in read.values()))
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for name, of_set in read.items():
        for kind, lines in of_set.get("odd", {}).items():
            found.setdefault(kind, []).append((name, lines))
    for kind, of_sets in found.items():
        each = ", ".join(f"{lines['lines']:,} {name}" for name, lines in of_sets)
        yield f"lines that have {kind}: {each}, such as {of_sets[0][1]['first']}"
    tokenized: dict[str, int] = {}
    for of_set in read.values():
        for file, lines in of_set.get("tokenized", {}).items():  # several sets may have the same
            tokenized[file] = max(lines, tokenized.get(file, 0))
    for file, lines in tokenized.items():
        yield (
            f"{file} looks tokenized: {counted(lines, 'line ends', 'lines end')} in a space and a period. A model "
            "trained on it expects tokenized input; for a model that translates plain text, give plain text"
        )


def restoration(folder: Path, pipeline: DatasetPipeline, card: DatasetCard) -> dict[str, dict[str, Restored]]:
    """Return, of each set but the training set and of each language, how its text, sources normalized, comes back.

    The binarized tokens in a dataset's folder, without the card's tags, are decoded, as a perfect system would write
    them. BLEU is left out of a set whose languages need different tokenizers.
    """
    from sacrebleu.metrics import BLEU  # slow

    sides = list(zip(pipeline.languages, pipeline.tokenizers, pipeline.subwords(folder), strict=True))
    is_pair, tags = len(sides) == 2, set((card.tags or {}).values())
    directions = (card.test_sets or {}) if tags else {}
    found: dict[str, dict[str, Restored]] = {}
    for name in pipeline.text.counts:
        for language, tokenizer, subwords in sides if name != "train" else ():
            ending = f".{language}" if is_pair else ""
            dictionary = Dictionary.load(folder / dictionary_file(language if is_pair else ""))
            stem = folder / (f"{name}.{'-'.join(pipeline.languages)}{ending}" if is_pair else name)
            tokens, sizes = read_tokens(stem)
            lines = np.split(tokens, np.cumsum(sizes)[:-1])
            pieces = (dictionary.string(line.tolist()) for line in lines)
            untagged = (line.partition(" ")[2] if line.split(" ", 1)[0] in tags else line for line in pieces)
            decoded = [tokenizer.join(subwords.join(line)) for line in untagged]
            text = (folder / f"{name}.{language}").read_bytes().decode().split("\n")[:-1]
            expected = [tokenizer.normalized(line) for line in text]
            if tokenizer.is_lowercase:
                expected = [tokenizer.between_symbols(str.lower, line) for line in expected]
            changed = sum(one != other for one, other in zip(decoded, expected, strict=True))
            bleu = 100.0 if is_pair else None
            if changed and is_pair:
                languages = directions.get(name, "-".join(pipeline.languages)).split("-")
                by_words = common_bleu_tokenizer(languages[pipeline.languages.index(language)])
                metric = by_words and BLEU(tokenize=by_words, lowercase=tokenizer.is_lowercase, force=True)
                bleu = round(metric.corpus_score(decoded, [text]).score, 2) if metric else None
            found.setdefault(name, {})[language] = Restored(changed, bleu)
    return found


def losses_in_words(
    restored: Mapping[str, Mapping[str, Restored]], lines: Mapping[str, int], lowercase: bool, normal_form: str
) -> Iterator[str]:
    """Yield sentences, without periods, about the sets that lost something: the test sets, if there are any.

    `lowercase`: whether tokens are in lower case, as which the text then counts; `normal_form`: likewise, of sources.
    """
    lossy = [(name, language, of) for name, sides in restored.items() for language, of in sides.items() if of.changed]
    if not lossy:
        names = " and ".join(", ".join(restored).rsplit(", ", 1))  # valid, test and test1
        how = "in lower case" if lowercase else "as it was"
        how += f" (after --normalize {normal_form})" if normal_form else ""
        yield f"every line of {names} comes back from its tokens {how}"
    for name, language, of in [one for one in lossy if one[0] != "valid"] or lossy:
        most = "" if of.bleu is None else f"; a perfect system would score BLEU {of.bleu:.1f}"
        are = "is not restored from its" if of.changed == 1 else "are not restored from their"
        yield f"{of.changed:,} of {counted(lines[name], 'line')} of {name}.{language} {are} tokens{most}"
