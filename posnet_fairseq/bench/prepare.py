"""posnet-prepare against the same steps as command lines, one after the other."""

import contextlib
import os
import resource
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

from posnet_fairseq.errors import UsageError
from posnet_fairseq.files import read_parallel

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
    return _measure([f"{command} --workers {processes} --out {shlex.quote(str(folder))}"])


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
    return _measure(commands)


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


def _measure(commands):
    """Run shell commands one after the other.

    Returns:
        seconds, CPU seconds of all processes, the most bytes that all of them took at once.

    Raises:
        UsageError: one fails.
    """
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    start, before, peak = time.perf_counter(), _cpu_seconds(), 0
    for command in commands:
        with (
            subprocess.Popen(
                ["bash", "-c", f"set -o pipefail; {command}"],
                env=environment,
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            ) as process,
            _watching(process.pid) as seen,
        ):
            _, said = process.communicate()
        peak = max(peak, max(seen))
        if process.returncode:
            raise UsageError(f"a command of the benchmark failed: {command}: {said.strip().splitlines()[-1:]}")
    return time.perf_counter() - start, _cpu_seconds() - before, peak


def _cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def _watching(session):
    """Yields a list to which the memory of a session's processes is added a few times a second."""
    seen, ended = [0], threading.Event()

    def watch():
        while not ended.wait(0.2):
            seen.append(_memory(session))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def _memory(session):
    """Bytes that the processes of a session hold, what they share counted once."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            # behind the name, which is in brackets: state, parent, group, session
            if int((folder / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total
