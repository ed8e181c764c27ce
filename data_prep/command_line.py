"""The command line of posnet-prepare: its options, and what they ask for."""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from posnet_data_prep.dataset import OWN_PAIRS, SETS, SMALL_TEXT, Recipe
from posnet_data_prep.datasets import DATASETS
from posnet_data_prep.pipeline.dataset_pipeline import Vocabulary
from posnet_data_prep.sources.archives import Archive
from posnet_data_prep.sources.download import Downloads
from posnet_data_prep.sources.own_files import is_table, own_pairs, own_part, own_text
from posnet_data_prep.sources.parts import Part
from posnet_fairseq.shared.errors import UsageError, about, flag
from posnet_fairseq.shared.files import a_path, cache_folder, iterate_lines, path_text
from posnet_fairseq.shared.output_paths import check_for_fairseq
from posnet_fairseq.shared.processes import cores
from posnet_fairseq.shared.progress import shown
from posnet_fairseq.shared.schema import check_numbers
from posnet_fairseq.shared.stages import FolderStage
from posnet_fairseq.text.card import DatasetCard
from posnet_fairseq.text.languages import TAG, code_of, tag_of
from posnet_fairseq.text.tokenizers import OF_MOSES, refuse_bad_symbols

MOST = 10**9  # of anything that is counted
LONGEST_NAMES = 220  # characters of SOURCE-TARGET.LANGUAGE in the name of a file, which has 255 bytes at most
# The least of each number that may be given.
LEAST = {"pieces": 3, "merges": 1, "min_length": 1, "max_length": 1, "max_ratio": 1, "valid_every": 2, "join": 2}


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of posnet-prepare's options."""
    parser = argparse.ArgumentParser(
        prog="posnet-prepare",
        description="Download, read, clean, split and binarize a dataset. Stop it at any time; the same command "
        "continues where it stopped.",
    )
    parser.add_argument("--list", action="store_true", help="show all datasets, and which of their files are cached")
    cache = cache_folder()
    keep = f"folder that keeps downloaded files (default: {cache})"
    parser.add_argument("--downloads", type=a_path, default=cache, help=keep)
    commands = parser.add_subparsers(dest="dataset", metavar="DATASET")
    for name, dataset in DATASETS.items():
        command = commands.add_parser(name, help=dataset.title)
        command.add_argument("--downloads", type=a_path, default=argparse.SUPPRESS, help=keep)
        command.add_argument("--mirror", type=path_text, help="take all files from this folder or URL")
        _add_recipe(command, dataset.recipe)
    _add_corpus(commands.add_parser("corpus", help="sentence pairs of your own"))
    _add_text(commands.add_parser("text", help="text of one language, for language models"))
    for command in commands.choices.values():
        command.add_argument("--out", required=True, type=a_path, help="folder of the dataset")
        command.add_argument("--workers", type=int, default=cores(), help=f"processes (default: all cores, {cores()})")
        command.add_argument("--dry-run", action="store_true", help="only show the stages and the disk space they need")
    return parser


def _add_corpus(parser: argparse.ArgumentParser) -> None:
    files = "SOURCE TARGET [SOURCE TARGET ...], or tables of two columns, *.tsv; gzip, bzip2 and xz too"
    weights = ". @N behind a target or table puts each of its pairs into the training set N times"
    valid = "files as for --train (or give --valid-every)"
    for name, text in (("train", files + weights), ("valid", valid), ("test", "files as for --train")):
        required = name == "train"
        parser.add_argument(
            f"--{name}", required=required, nargs="+", action="extend", type=a_path, metavar="FILE", help=text
        )
    for side, number in (("source", "first"), ("target", "second")):
        code = f"language, such as de, gsw, zh_CN or eng_Latn (default: the ending of the {number} file)"
        parser.add_argument(f"-{side[0]}", f"--{side}-lang", help=code)
    like = "reuse the tokenizers, subwords and dictionaries of this dataset, as for fine-tuning"
    parser.add_argument("--like", type=a_path, metavar="DATA", help=like)
    symbols = "symbols that are never split: a file with one a line, or a list such as '<nl>,<br>'"
    parser.add_argument("--symbols", metavar="FILE|LIST", help=symbols)
    tags = (
        "prepare one model for several languages, those that the files of each pair end in: the tokens of each source "
        "begin with a tag of its target language, and --test makes a test set of each direction"
    )
    parser.add_argument("--tag-target", action="store_true", help=tags)
    _add_recipe(parser, OWN_PAIRS)


def _add_text(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--train", required=True, type=a_path, help="text file, a sentence or paragraph a line")
    parser.add_argument(
        "--valid", type=a_path, help="validation set, with --test (default of both: the end of --train)"
    )
    parser.add_argument("--test", type=a_path, help="test set")
    pieces = SMALL_TEXT.pieces
    parser.add_argument("--pieces", type=int, default=pieces, help=f"sentencepiece BPE pieces (default: {pieces})")
    order = "shuffle lines with this seed (for unrelated lines)"
    parser.add_argument("--shuffle", type=int, metavar="SEED", help=order)
    without = "no pieces for bytes: unseen characters become <unk>, and spaces at the ends are lost"
    parser.add_argument("--no-bytes", dest="lossless", action="store_false", help=without)


def _add_recipe(parser: argparse.ArgumentParser, recipe: Recipe) -> None:
    text = parser.add_argument_group("how text becomes tokens")
    subwords = f"default: {recipe.subwords}" + "; bpe with --merges or --tokenizer" * (recipe is OWN_PAIRS)
    text.add_argument("--subwords", choices=("bpe", "sentencepiece"), help=subwords)
    merges = "BPE merges: one number for both languages together, or one for each (default: "
    merges += f"{' '.join(map(str, recipe.merges))})"
    text.add_argument("--merges", nargs="+", type=int, metavar="N", help=merges)
    pieces = f"sentencepiece pieces, for both languages together (default: {recipe.pieces})"
    text.add_argument("--pieces", type=int, help=pieces)
    tokenizer = f"tokenizer of Chinese, before BPE (default: {recipe.tokenizer}); other languages are tokenized as "
    text.add_argument("--tokenizer", choices=("jieba", "characters"), help=f"{tokenizer}Moses does")
    normalize = (
        "what the tokens of the source side are made of: with spaces, each run of white space of any kind counts as a "
        "space, and white space around lines and invisible characters are left out; with nfkc, the text is first put "
        "into Unicode's normal form NFKC (no fullwidth forms and ligatures); none is the text as it is. "
        f"posnet-translate reads its input the same way (default: {recipe.normal_form or 'none'})"
    )
    text.add_argument("--normalize", choices=("none", "spaces", "nfkc"), help=normalize)
    lowercase = f"default: {'yes' if recipe.lowercase or recipe.lowercase_first else 'no'}"
    text.add_argument("--lowercase", action=argparse.BooleanOptionalAction, help=lowercase)
    unit = "words" if recipe.clean == "words" else "subwords"
    text.add_argument(
        "--min-length", type=int, help=f"fewest {unit} of a training sentence (default: {recipe.min_length})"
    )
    text.add_argument(
        "--max-length", type=int, help=f"most {unit} of a training sentence (default: {recipe.max_length})"
    )
    ratio = f"largest ratio of the lengths of a training pair, in {unit} (default: {recipe.max_ratio})"
    text.add_argument("--max-ratio", type=float, help=ratio)
    every = "every N-th training pair goes to the validation set"
    every += f" (default: {recipe.valid_every})" if recipe.valid_every else ""
    text.add_argument("--valid-every", type=int, metavar="N", help=every)
    join = (
        "join neighboring pairs to long ones: 1 to K in training and validation set, K in a copy of each test set; "
        "subwords and dictionaries are those of the single sentences"
    )
    text.add_argument("--join", type=int, metavar="K", help=join)
    text.add_argument("--drop-repeated", action="store_true", help="drop training pairs that equal an earlier one")
    text.add_argument("--drop-copies", action="store_true", help="drop training pairs whose sides are equal")
    scripts = "drop training pairs with a side that has letters, but none of its language's script"
    text.add_argument("--drop-other-scripts", action="store_true", help=scripts)


def check_options(options: argparse.Namespace) -> None:
    """Refuse options of a command line that are wrong by themselves."""
    if not options.list and options.dataset is None:
        raise UsageError("name a dataset, or give --list to see all of them.")
    check_numbers(options, **{name: (least, MOST) for name, least in LEAST.items() if name in options})
    if options.dataset is not None:
        check_numbers(options, workers=(1, 1000))
        check_for_fairseq(options.out, f"--out {options.out}", True)


def _recipe(options: argparse.Namespace, default: Recipe, languages: Sequence[str], has_valid: bool) -> Recipe:
    names = (
        *("subwords", "tokenizer", "lowercase", "normalize", *LEAST),
        *("drop_repeated", "drop_copies", "drop_other_scripts", "symbols"),
    )
    given = {name: value for name in names if (value := getattr(options, name, None)) is not None}
    subwords = given.get("subwords", default.subwords)
    unread: dict[str, tuple[str, ...]] = {
        f"--subwords {subwords}": ("merges", "tokenizer") if subwords == "sentencepiece" else ("pieces",)
    }
    if getattr(options, "like", None):
        unread[f"--like {options.like}"] = (
            *("subwords", "merges", "pieces", "tokenizer", "lowercase", "normalize", "symbols"),
        )
    if getattr(options, "tag_target", False):
        unread["--tag-target, whose languages sentencepiece splits alike"] = ("merges", "tokenizer")
        unread["--tag-target, where neighboring pairs may be of several languages"] = ("join",)
        if given.get("subwords") == "bpe":
            raise UsageError("--subwords bpe splits each language by its own rules: --tag-target takes sentencepiece.")
    if default.clean is None:
        unread[f"{options.dataset}, whose pairs are kept at any length"] = ("min_length", "max_length", "max_ratio")
    if "zh" not in map(code_of, languages):
        unread[f"{' and '.join(languages)}, only with Chinese (zh)"] = ("tokenizer",)
    if "merges" in given:
        given["merges"] = tuple(given["merges"])
    if given.get("lowercase") is False:
        given["lowercase_first"] = False
    for what, without in unread.items():
        for name in filter(given.__contains__, without):
            raise UsageError(f"{flag(name)} has no meaning with {what}. Leave it out.")
    if "normalize" in given:
        given["normal_form"] = given.pop("normalize").removeprefix("none")
    chosen = replace(default, **given)
    if chosen.subwords == "bpe" and (taken := [symbol for symbol in chosen.symbols if symbol in OF_MOSES]):
        raise UsageError(
            f"--symbols: {taken[0]} is what Moses writes for another character, which would come back as {taken[0]}. "
            "Leave it out, or give --subwords sentencepiece."
        )
    if chosen.join > 1 and chosen.lowercase_first:
        raise UsageError(
            f"--join {chosen.join}: {options.dataset} makes text lower case before it is tokenized, which leaves "
            "periods within a line at their words, unlike at its end. Take the dataset in its own case."
        )
    if len(chosen.merges) > 2:
        raise UsageError(f"--merges {' '.join(map(str, chosen.merges))}: give one number, or one for each language.")
    if chosen.min_length > chosen.max_length:
        raise UsageError(f"--min-length {chosen.min_length} is more than --max-length {chosen.max_length}.")
    if has_valid == (chosen.valid_every is not None):
        raise UsageError(
            "a validation set comes from one place: give --valid FILES, or --valid-every 23 to take every 23rd pair of "
            "the training text; datasets that have one take neither."
        )
    return chosen


def _languages(options: argparse.Namespace, sets: Mapping[str, Sequence[Part]]) -> tuple[str, str]:
    """Return source and target language of sentence pairs, of the options or the endings of the first files."""
    pairs = {name: [part.paths for part in parts if len(part.paths) == 2] for name, parts in sets.items()}
    found = [tag_of(path) for pair in pairs["train"] for path in pair] or ["", ""]
    given = options.source_lang or found[0], options.target_lang or found[1]
    # As in pt_BR: fairseq separates the languages of a pair by a hyphen.
    chosen = given[0].replace("-", "_"), given[1].replace("-", "_")
    for name, tag in zip(("--source-lang", "--target-lang"), given, strict=True):
        if not TAG.fullmatch(tag):
            raise UsageError(
                f"{f'{name} {tag}'.rstrip()}: give a language, such as de, gsw, zh_CN or eng_Latn. Without it, the "
                "files' endings are taken if they are languages."
            )
    if chosen[0] == chosen[1]:
        raise UsageError(f"source and target are both {chosen[0]}. Give --source-lang and --target-lang.")
    for name, files in pairs.items():
        for side, path in ((side, path) for pair in files for side, path in enumerate(pair)):
            tag, own, other = tag_of(path).replace("-", "_"), chosen[side], chosen[1 - side]
            if tag == other or code_of(tag) == code_of(other) != code_of(own):
                place = f"the {('source', 'target')[side]}, {given[side]}"
                raise UsageError(f"--{name}: {path} stands for {place}, and ends in {tag_of(path)}.")
    for side, name in enumerate(("source_lang", "target_lang")):
        tags = list(dict.fromkeys(filter(None, found[side::2])))
        if not getattr(options, name) and len(set(map(code_of, tags))) > 1:
            raise UsageError(
                f"--train: {name.removesuffix('_lang')} files end in {' and '.join(tags)}. Give --tag-target for a "
                f"model of several target languages, or {flag(name)} if all are of one language."
            )
    return chosen


def _tagged(
    sets: Mapping[str, Sequence[Part]], like: Path | None, card: DatasetCard
) -> tuple[tuple[str, str], dict[str, list[Part]]]:
    """Return names of all source and all target languages, and the sets with tags, a test set for each direction.

    The languages are those that files end in, or those of a dataset whose vocabulary is used. Tags and directions are
    entered into the card.
    """
    pairs = {name: [_pair(name, part) for part in parts] for name, parts in sets.items()}
    sources, targets = (list(dict.fromkeys(side)) for side in zip(*pairs["train"], strict=True))
    tags = {target: f"<2{target}>" for target in targets}
    languages = "+".join(sources), "+".join(targets)
    if like is not None:
        other = DatasetCard.read_if_whole(like)
        if not other.tags:
            raise UsageError(f"--like {like} with --tag-target: give a dataset that was made with --tag-target, too.")
        languages, tags = (other.source_lang or "", other.target_lang or ""), other.tags
        sources, targets = languages[0].split("+"), list(tags)
    elif len(targets) < 2:
        raise UsageError(f"--tag-target: all training text is translated into {targets[0]}. Leave it out.")
    if len("-".join((*languages, max(languages, key=len)))) > LONGEST_NAMES:
        raise UsageError(
            f"--tag-target: from {len(sources)} to {len(targets)} languages, the names of files, which have all of "
            "them, would be too long. Prepare fewer together, or name the files by shorter tags."
        )
    directions = {pair: f"test{number or ''}" for number, pair in enumerate(dict.fromkeys(pairs.get("test", ())))}
    tagged: dict[str, list[Part]] = {}
    for name, parts in sets.items():
        for part, (source, target) in zip(parts, pairs[name], strict=True):
            if source not in sources or target not in tags:
                known = f"from {' or '.join(sources)} to {' or '.join(targets)}"
                raise UsageError(f"--{name} {part.paths[0]} {part.paths[1]}: the training text is {known}.")
            place = directions[source, target] if name == "test" else name
            tagged.setdefault(place, []).append(replace(part, tag=tags[target]))
    card.tags = tags
    card.test_sets = {name: "-".join(pair) for pair, name in directions.items()} or None
    return languages, tagged


def _pair(name: str, part: Part) -> tuple[str, str]:
    """Return the languages that two files end in."""
    found = tuple(tag_of(path).replace("-", "_") for path in part.paths)
    if len(found) != 2 or not all(found) or found[0] == found[1]:
        raise UsageError(
            f"--{name} {' '.join(map(str, part.paths))}: --tag-target takes pairs of files that end in their "
            "languages, as text.en text.de."
        )
    return found[0], found[1]


def _parts(name: str, paths: Sequence[Path]) -> list[Part]:
    """Return the pairs of files and the tables of a set, with weights; refuse files that are not in pairs."""
    parts, files = [], list[Path]()
    for given in paths:
        path, weight = _weighted(name, given)
        files.append(path)
        if is_table(path) or len(files) == 2:
            if is_table(path) and len(files) == 2:
                break
            parts.append(own_part(files, weight))
            files = []
        elif weight > 1:
            raise UsageError(f"--{name} {given}: give the weight of a pair of files behind the second one.")
    if files:
        raise UsageError(
            f"--{name} {' '.join(map(str, paths))}: these files are not in pairs. Give SOURCE TARGET "
            "[SOURCE TARGET ...], or tables, *.tsv."
        )
    return parts


def _weighted(name: str, path: Path) -> tuple[Path, int]:
    """Return a path of a set and the weight behind it, FILE@N, unless there is a file of this name."""
    found = re.fullmatch(r"(.+)@([\d.]+)", str(path))
    if not found or os.path.lexists(path):
        return path, 1
    if name != "train":
        raise UsageError(f"--{name} {path}: weights are for --train. Leave the @{found[2]} out.")
    if not re.fullmatch(r"0*(?:[1-9]\d?|100)", found[2]):
        raise UsageError(f"--train {path}: give a whole number of times from 1 to 100 behind the @.")
    return Path(found[1]), int(found[2])


def _symbols(text: str) -> tuple[str, ...]:
    """Return the symbols in a file, one a line, or in a list with commas between."""
    is_file = os.path.exists(text)
    symbols = tuple(iterate_lines(text) if is_file else text.split(","))
    with about(f"--symbols {text}"):
        if not is_file and re.fullmatch(r"[\w./~-]+\.\w+", text):
            raise UsageError("there is no such file. Give the name of a file, or symbols such as <nl>.")
        refuse_bad_symbols(symbols or ("",))  # an empty file has none
    return symbols


@dataclass
class Preparation:
    """A dataset to prepare."""

    read: FolderStage  # the stage that reads the text
    languages: tuple[str, ...]  # source and target, or the suffix of text of one language
    recipe: Recipe
    card: DatasetCard  # with what is known of its origin
    like: Vocabulary | None = None  # to use, instead of learning one
    growth: float = 1.0  # of what is read, by weights
    files: Sequence[Archive] = ()  # that must be downloaded
    note: str = ""  # a sentence for the user
    pairs: Mapping[str, int] = field(default_factory=dict)  # of each set, which the result should have

    def loads_in(self, stages: Sequence[FolderStage]) -> bool:
        """Return whether files are downloaded by one of these stages."""
        return any(stage in stages for stage in self.read.after or (self.read,))


def preparation(options: argparse.Namespace, stages: Path, downloads: Downloads) -> Preparation:
    """Return what the options of a command line ask for, with stages in a folder."""
    card = DatasetCard(dataset=options.dataset)
    if own := _OWN.get(options.dataset):
        return own(options, stages, card)
    dataset = DATASETS[options.dataset]
    recipe = _recipe(options, dataset.recipe, dataset.languages, dataset.recipe.valid_every is None)
    card.test_sets = dataset.test_sets
    card.archives = {file.name: {"digest": file.digest, "licence": file.license} for file in dataset.files}
    note = dataset.lacks(downloads)
    pairs = dataset.pairs if recipe == dataset.recipe and not note else {}
    read = dataset.read(stages, downloads)
    return Preparation(read, dataset.languages, recipe, card, files=dataset.files, note=note, pairs=pairs)


def _of_corpus(options: argparse.Namespace, stages: Path, card: DatasetCard) -> Preparation:
    given = {name: getattr(options, name) for name in SETS if getattr(options, name)}
    sets = {name: _parts(name, paths) for name, paths in given.items()}
    if options.join and any(part.weight > 1 for part in sets["train"]):
        raise UsageError("--join would join a pair with its own repetitions. Leave it out, or the @N of --train.")
    if options.tag_target:
        for name in filter(vars(options).get, ("source_lang", "target_lang")):
            raise UsageError(f"{flag(name)}: --tag-target takes the languages from the endings of files. Leave it out.")
        languages, sets = _tagged(sets, options.like, card)
    else:
        languages = _languages(options, sets)
    of_bpe = Recipe(normal_form=OWN_PAIRS.normal_form)
    default = of_bpe if options.merges or options.tokenizer else OWN_PAIRS  # options of BPE ask for it
    if options.symbols is not None:
        options.symbols = _symbols(options.symbols)
        for symbol in set(options.symbols) & {*(card.tags or {}).values()}:
            raise UsageError(f"--symbols: {symbol} is a tag of --tag-target, which text cannot have. Leave it out.")
    recipe = _recipe(options, default, languages, "valid" in sets)
    like = Vocabulary.read(options.like, languages) if options.like else None
    card.files_read = {name: list(map(shown, paths)) for name, paths in given.items()}
    if like:
        recipe = replace(recipe, subwords=like.subwords, normal_form=like.tokenizers[0].normal_form)
    read, growth = own_pairs(stages, sets, languages)
    return Preparation(read, languages, recipe, card, like, growth=growth)


def _of_text(options: argparse.Namespace, stages: Path, card: DatasetCard) -> Preparation:
    files = [path for path in (options.train, options.valid, options.test) if path]
    read = own_text(stages, files, "txt", options.shuffle)
    recipe = replace(SMALL_TEXT, pieces=options.pieces, lossless=options.lossless)
    return Preparation(read, ("txt",), recipe, card)


_OWN = {"corpus": _of_corpus, "text": _of_text}  # files of the user's own
