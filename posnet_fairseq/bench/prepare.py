"""posnet-prepare against the same steps as command lines, one after the other."""

import shlex
from pathlib import Path

from posnet_fairseq.bench.commands import measure
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import read_parallel

EVERY, MERGES, LONGEST, RATIO = 100, 10_000, 250, 1.5

# What Moses' clean-corpus-n.perl keeps, of lines with a tab between source and target.
_CLEAN = (
    'awk -F\'\\t\' -v S={source} -v T={target} \'{{n = split($1, a, " "); m = split($2, b, " "); '
    f"if (n && m && n <= {LONGEST} && m <= {LONGEST} && n <= {RATIO} * m && m <= {RATIO} * n) "
    "{{print $1 > S; print $2 > T}}}}'"
)


def repeat(paths, pairs, folder):
    """Write a corpus of so many pairs, those of two files again and again.

    Args:
        paths: of source and target, their languages behind the last dot.
        pairs: how many.
        folder: where the files big.LANGUAGE go.

    Returns:
        their paths.
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


def posnet_prepare(paths, folder, processes):
    """The whole of posnet-prepare. Returns seconds, CPU seconds and the most bytes of memory of all its processes."""
    command = f"posnet-prepare corpus --train {_quoted(paths)} --valid-every {EVERY} --merges {MERGES}"
    return measure([f"{command} --workers {processes} --out {shlex.quote(str(folder))}"])


def command_lines(paths, folder, processes):
    """The same with sacremoses, awk, subword-nmt and fairseq-preprocess, with their own options for processes."""
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


def same(prepared, made, languages):
    """Whether both ways came to the same codes, text and binary files, byte for byte.

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


def _quoted(paths):
    return " ".join(shlex.quote(str(path)) for path in paths)
