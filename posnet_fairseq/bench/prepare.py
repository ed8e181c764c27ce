"""posnet-prepare against the same steps as command lines, one after the other."""

import shlex
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.table import Table

from posnet_fairseq.bench.commands import CommandCost, measure
from posnet_fairseq.bench.tables import mebibytes, table
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.plain import read_parallel

EVERY, MERGES, LONGEST, RATIO = 100, 10_000, 250, 1.5

# What Moses' clean-corpus-n.perl keeps, of lines with a tab between source and target.
_CLEAN = (
    'awk -F\'\\t\' -v S={source} -v T={target} \'{{n = split($1, a, " "); m = split($2, b, " "); '
    f"if (n && m && n <= {LONGEST} && m <= {LONGEST} && n <= {RATIO} * m && m <= {RATIO} * n) "
    "{{print $1 > S; print $2 > T}}}}'"
)


def repeat(paths: Sequence[Path], pairs: int, folder: Path) -> list[Path]:
    """Write a corpus of any size, by repeating the pairs of two files.

    Args:
        paths: of source and target, their languages behind the last dot.
        pairs: to write.
        folder: where the files big.LANGUAGE go.

    Returns:
        The paths of the files.

    Raises:
        UsageError: the files are empty, or have different numbers of lines.
    """
    texts = read_parallel(*paths)
    if not texts[0]:
        raise UsageError(f"{paths[0]} is empty. Give a corpus with text.")
    made = [folder / f"big{Path(path).suffix}" for path in paths]
    for path, lines in zip(made, texts, strict=True):
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            for number in range(pairs):
                file.write(f"{lines[number % len(lines)]}\n")
    return made


def posnet_prepare(paths: Sequence[Path], folder: Path, processes: int) -> CommandCost:
    """Run posnet-prepare.

    Args:
        paths: of source and target, their languages behind the last dot.
        folder: of the output, which is made.
        processes: for all steps.
    """
    command = f"posnet-prepare corpus --train {_quoted(paths)} --valid-every {EVERY} --merges {MERGES}"
    return measure([f"{command} --workers {processes} --out {shlex.quote(str(folder))}"])


def command_lines(paths: Sequence[Path], folder: Path, processes: int) -> CommandCost:
    """Run the steps of posnet-prepare with sacremoses, awk, subword-nmt and fairseq-preprocess.

    Args:
        paths, folder: as for :func:`posnet_prepare`.
        processes: for the programs that have an option for it.
    """
    folder.mkdir()
    here, languages = shlex.quote(str(folder)), [path.suffix[1:] for path in paths]
    commands = []
    for path, name in zip(paths, languages, strict=True):
        moses = f"sacremoses -q -l {name} -j {processes} tokenize -a -x"
        # sacremoses leaves a space at the end of some lines
        commands.append(f"{moses} < {_quoted([path])} | sed 's/ $//' > {here}/all.{name}")
        for part, rule in (("train", f"NR%{EVERY}!=0"), ("valid", f"NR%{EVERY}==0")):
            commands.append(f"awk '{rule}' {here}/all.{name} > {here}/{part}.tok.{name}")
    both = " ".join(f"{here}/train.tok.{name}" for name in languages)
    commands.append(f"cat {both} > {here}/both")
    learn = f"subword-nmt learn-bpe -s {MERGES} --num-workers {processes}"
    commands.append(f"{learn} -i {here}/both -o {here}/codes.bpe")
    apply = f"subword-nmt apply-bpe -c {here}/codes.bpe --num-workers {processes}"
    for part in ("train", "valid"):
        for name in languages:
            commands.append(f"{apply} -i {here}/{part}.tok.{name} -o {here}/{part}.all.{name}")
        files = " ".join(f"{here}/{part}.all.{name}" for name in languages)
        clean = _CLEAN.format(source=f"{here}/{part}.bpe.{languages[0]}", target=f"{here}/{part}.bpe.{languages[1]}")
        commands.append(f"paste {files} | {clean}")
    commands.append(
        f"fairseq-preprocess -s {languages[0]} -t {languages[1]} --joined-dictionary --destdir {here}/bin "
        f"--trainpref {here}/train.bpe --validpref {here}/valid.bpe --workers {processes}"
    )
    return measure(commands)


def equal_files(prepared: Path, made: Path, languages: Sequence[str]) -> bool:
    """Whether the codes, text and binary files of both ways are equal to the byte.

    Args:
        prepared: folder of :func:`posnet_prepare`.
        made: folder of :func:`command_lines`.
        languages: of source and target.
    """
    pair = "-".join(languages)
    files = {"codes.bpe": "codes.bpe"}
    for part in ("train", "valid"):
        for name in languages:
            files[f"{part}.bpe.{name}"] = f"{part}.bpe.{name}"
            files |= {f"{part}.{pair}.{name}.{end}": f"bin/{part}.{pair}.{name}.{end}" for end in ("bin", "idx")}
    return all((prepared / ours).read_bytes() == (made / theirs).read_bytes() for ours, theirs in files.items())


def _quoted(paths: Sequence[Path]) -> str:
    return " ".join(shlex.quote(str(path)) for path in paths)


def tables(options: Namespace) -> Iterator[Table | str]:
    """Yield what ``posnet-bench prepare`` prints.

    Args:
        options: of the command line.
    """
    languages = [path.suffix[1:] for path in options.text]
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        paths = repeat(options.text, options.pairs, folder)
        results = {}
        for processes in dict.fromkeys(options.processes):
            results["posnet-prepare", processes] = posnet_prepare(paths, folder / f"ours{processes}", processes)
            results["command lines", processes] = command_lines(paths, folder / f"theirs{processes}", processes)
        equal = all(equal_files(folder / f"ours{n}", folder / f"theirs{n}", languages) for n in options.processes)
    columns = "s", "CPU\ns", "pairs/s", "×", "memory\nMiB"
    shown = table(f"{options.pairs:,} pairs from text to binary data, {MERGES:,} merges", *columns)
    slowest = results["command lines", options.processes[0]].seconds
    for (what, processes), cost in results.items():
        rate, ratio = f"{options.pairs / cost.seconds:,.0f}", f"{slowest / cost.seconds:.2f}"
        seconds = f"{cost.seconds:,.1f}", f"{cost.cpu_seconds:,.1f}"
        shown.add_row(f"{what}, {processes}", *seconds, rate, ratio, mebibytes(cost.peak))
    yield shown
    yield f"Codes, text and binary files are {'the same to the byte' if equal else 'NOT THE SAME'}."
    yield (
        "Behind a name: processes. ×: speed, against the command lines with one process. Memory: the most that all "
        "processes hold at once."
    )
