"""The stages that read plain text: published corpora out of their archives, and files of one's own."""

from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

from posnet_data_prep.datasets import ARCHIVES
from posnet_data_prep.sources.compressed import has_compressed_name, plain_suffix
from posnet_data_prep.sources.extract import extract
from posnet_data_prep.sources.readers import Reader
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import shown
from posnet_fairseq.shared.records import digest
from posnet_fairseq.shared.stages import Stage

BYTES_A_PAIR = 300  # of WMT's corpora, both sides, about
COMPRESSION = 3.5
_LOCAL_ENDINGS = {"en": ("en",), "zh": ("ch", "cn", "zh")}


def published(workshop, dataset, downloads):
    """The stage that reads a published dataset, behind one that extracts its files.

    Args:
        workshop: :class:`posnet_fairseq.shared.stages.StageRunner`.
        dataset: :class:`posnet_data_prep.datasets.Dataset`.
        downloads: :class:`posnet_data_prep.sources.download.Downloads`.
    """
    languages = dataset.source_lang, dataset.target_lang
    size = 1000 * BYTES_A_PAIR * sum(corpus.lines for corpus in dataset.corpora)
    members = {
        archive: [
            _member(corpus, language, dataset)
            for corpus in dataset.corpora
            if ARCHIVES[corpus.archive] == archive
            for language in languages
        ]
        for archive in dataset.archives
    }

    def take_out(folder, report):
        for archive in dataset.archives:
            path = downloads.fetch(archive)
            with report.stage(f"extract {archive.name}", "bytes") as bar:
                extract(path, {member: _flat(member) for member in members[archive]}, folder, bar)
        return {}

    extracted = Stage(
        "extract",
        take_out,
        {archive.name: [archive.digest, *sorted(names)] for archive, names in members.items()},
        size=size,
        temporary=True,
    )
    local = local_pairs(dataset, downloads)

    def read(folder, report):
        reader, counts = Reader(strict=False), {}
        for name, corpora in (("train", dataset.train), ("test", dataset.test)):
            parts = []
            for corpus in corpora:
                paths = [workshop.of(extracted) / _flat(_member(corpus, language, dataset)) for language in languages]
                parts.append((Path(corpus.member).name, corpus.form, paths))
            if name == "train":
                parts += [(stem, "plain", paths) for stem, paths in local.items()]
            counts[name] = write_set(folder, name, languages, reader, parts, report)
        if reader.mended:
            report.say(f"{reader.mended:,} lines had bytes that are not UTF-8; they became U+FFFD")
        return counts | {"lines mended": reader.mended}

    options = {"corpora": [[corpus.member, corpus.form] for corpus in dataset.corpora]}
    options["local"] = {stem: [digest(path, "sha256") for path in paths] for stem, paths in local.items()}
    return Stage("read", read, options, (extracted,), size)


def own_files(sets, languages):
    """The stage that reads files of one's own.

    Args:
        sets: dict from a set to a list of paths, of source, target, source ... and of tables, which end in .tsv.
        languages: of source and target.
    """
    files = [path for paths in sets.values() for path in paths]
    check_files(files)

    def read(folder, report):
        reader, counts = Reader(strict=True), {}
        for name, paths in sets.items():
            rest, parts = iter(paths), []
            for path in rest:
                files = [path] if is_table(path) else [path, next(rest)]
                parts.append((shown(path.name), "table" if is_table(path) else "plain", files))
            counts[name] = write_set(folder, name, languages, reader, parts, report)
            if not counts[name]["lines"]:
                raise UsageError(f"{' and '.join(map(str, paths))}: there is no text in it. Give other files.")
        return counts

    options = {name: [[is_table(path), digest(path, "sha256")] for path in paths] for name, paths in sets.items()}
    options["languages"] = list(languages)
    return Stage("read", read, options, size=sum(map(plain_size, files)))


def check_files(paths):
    """Refuse what cannot be read more than once.

    Raises:
        UsageError: there is no such file, or it is something else.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: there is no such file. Check the path.")
        if not path.is_file():
            raise UsageError(f"{path} is a folder or a pipe. Give a file, which can be read again.")


def plain_size(path):
    """About how many bytes a file has when it is not compressed."""
    return int(path.stat().st_size * (COMPRESSION if has_compressed_name(path) else 1))


def is_table(path):
    """Whether a file, compressed or not, has two columns, by its name."""
    return plain_suffix(path) == ".tsv"


def write_set(folder, name, languages, reader, parts, report):
    """Write the corpora of a set behind one another.

    Args:
        folder, name, languages: of the files NAME.LANGUAGE.
        reader: :class:`posnet_data_prep.sources.readers.Reader`.
        parts: (title, method of the reader, its one or two paths) for each corpus.
        report: shows progress.

    Returns:
        Lines of each part, and of all.
    """
    counts = {}
    with ExitStack() as stack:
        files = [
            stack.enter_context(open(folder / f"{name}.{language}", "w", encoding="utf-8", newline="\n"))
            for language in languages
        ]
        for title, form, paths in parts:
            columns = [getattr(reader, form)(path) for path in paths]
            rows = columns[0] if form == "table" else _together(columns, paths)
            lines = 0
            with report.stage(f"read {title}") as bar:
                for row in rows:
                    for file, line in zip(files, row, strict=True):
                        file.write(f"{line}\n")
                    lines += 1
                    if lines % 10_000 == 0:
                        bar.advance(10_000)
                bar.move_to(lines)
            counts[title] = counts.get(title, 0) + lines
    return {"lines": sum(counts.values()), "corpora": counts}


def _together(columns, paths):
    """Lines that belong together.

    Raises:
        UsageError: a file has more than the other.
    """
    for number, row in enumerate(zip_longest(*columns), start=1):
        if None in row:
            shorter = paths[row.index(None)]
            longer = next(path for path in paths if path != shorter)
            raise UsageError(
                f"{shorter} has {number - 1:,} lines, {longer} has more, but they belong together line by line. Mend "
                "the files first."
            )
        yield row


def _member(corpus, language, dataset):
    side = "src" if language == dataset.source_lang else "ref"
    return corpus.member.format(lang=language, side=side)


def _flat(member):
    return member.replace("/", "_")


def local_pairs(dataset, downloads):
    """Pairs of files of the corpora that need a registration, a dict from a name to two paths.

    Raises:
        UsageError: one of a pair is missing.
    """
    languages = dataset.source_lang, dataset.target_lang
    folder = dataset.local and downloads.find(dataset.local)
    pairs = {}
    for english in sorted(folder.rglob("*_en.txt")) if folder else []:
        stem = english.name.removesuffix("_en.txt")
        sides = {
            language: [english.with_name(f"{stem}_{ending}.txt") for ending in _LOCAL_ENDINGS[language]]
            for language in languages
        }
        found = [next((path for path in sides[language] if path.exists()), None) for language in languages]
        if None in found:
            raise UsageError(f"{english} has no translation beside it ({stem}_ch.txt or {stem}_cn.txt). Complete it.")
        pairs[shown(english.relative_to(folder))] = found
    return pairs
