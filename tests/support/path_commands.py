"""Every command that takes paths, with a valid value of each path."""

import shlex
from dataclasses import dataclass

# What a path is for.
CHECKPOINT = "checkpoint"
FILE = "file"  # read more than once
TEXT = "text"  # read once, so that a pipe will do
FOLDER = "folder"
OUTPUT = "output"
PICTURE = "picture"  # without the end of its name
NEW_FOLDER = "new folder"
OUTPUT_FOLDER = "output folder"
DOWNLOADS = "downloads"
CACHE = "cache"


@dataclass(frozen=True)
class Given:
    """A path on a command line: its kind, and a valid value."""

    kind: str
    good: str


@dataclass(frozen=True)
class Command:
    """A command line with the names of paths in braces.

    Attributes:
        line: the command line.
        paths: {name: :class:`Given`}.
        makes: patterns of the files that it writes with valid paths.
        quick: whether to run it with valid paths, too.
    """

    line: str
    paths: dict
    makes: tuple = ()
    quick: bool = True

    def filled(self, **paths):
        """The line with valid paths except those given."""
        filled = {name: shlex.quote(paths.get(name, path.good)) for name, path in self.paths.items()}
        return self.line.format(**filled)


_TRANSLATE = "posnet-translate {checkpoint} --beam 1 --max-len-b 2 --input {input} --output {output} --data {data}"
_GENERATE = "posnet-generate {checkpoint} --max-len-b 2 --input {input} --output {output} --data {data}"
_SCORE = "posnet-score --metrics bleu --resamples 40 --workers 1 --source {source} --reference {reference} "
_PREPARE = "--out {out} --workers 1 --dry-run"
_FIGURES = ("figures", "figures/*")
COMMANDS = [
    *(
        Command(
            "posnet-analog {model} --on output --noise none --test {source} {reference} --out {out} "
            f"{option} {{text}}",
            {
                "model": Given(CHECKPOINT, "model.pt"),
                "source": Given(TEXT, "text/test.xx"),
                "reference": Given(TEXT, "text/test.yy"),
                "out": Given(OUTPUT_FOLDER, "crossbars"),
                "text": Given(kind, good),
            },
            makes=("crossbars", "crossbars/*"),
            quick=option == "--data",
        )
        for option, kind, good in (
            ("--data", FOLDER, "data"),
            ("--bpe-codes", FILE, "codes"),
            ("--sentencepiece-model", FILE, "pieces.model"),
        )
    ),
    Command(
        "posnet-average {folder} --num 1 --out {out}",
        {"folder": Given(FOLDER, "run"), "out": Given(OUTPUT, "new.pt")},
        makes=("new.pt",),
    ),
    Command(
        "posnet-precompute {checkpoint} --out {out} --max-length 32 --data {data}",
        {
            "checkpoint": Given(CHECKPOINT, "model.pt"),
            "out": Given(OUTPUT, "new.pt"),
            "data": Given(FOLDER, "data"),
        },
        makes=("new.pt",),
    ),
    Command(
        f"{_TRANSLATE} --bpe-codes {{codes}}",
        {
            "checkpoint": Given(CHECKPOINT, "model.pt"),
            "input": Given(TEXT, "text/test.xx"),
            "output": Given(OUTPUT, "new.txt"),
            "data": Given(FOLDER, "data"),
            "codes": Given(FILE, "codes"),
        },
        makes=("new.txt",),
    ),
    Command(
        f"{_TRANSLATE} --sentencepiece-model {{pieces}}",
        {
            "checkpoint": Given(CHECKPOINT, "model.pt"),
            "input": Given(TEXT, "text/test.xx"),
            "output": Given(OUTPUT, "new.txt"),
            "data": Given(FOLDER, "data"),
            "pieces": Given(FILE, "pieces.model"),
        },
        makes=("new.txt",),
    ),
    Command(
        f"{_TRANSLATE} --pretokenized --max-len-b 30 --prefix {{prefix}}",
        {
            "checkpoint": Given(CHECKPOINT, "model.pt"),
            "input": Given(TEXT, "text/test.xx"),
            "output": Given(OUTPUT, "new.txt"),
            "data": Given(FOLDER, "data"),
            "prefix": Given(TEXT, "data/test.bpe.yy"),
        },
        makes=("new.txt",),
    ),
    Command(
        "posnet-translate {checkpoint} --input {input} --output {output} --pretokenized --score-translations {scored}",
        {
            "checkpoint": Given(CHECKPOINT, "model.pt"),
            "input": Given(TEXT, "text/test.xx"),
            "output": Given(OUTPUT, "new.txt"),
            "scored": Given(TEXT, "text/test.yy"),
        },
        makes=("new.txt",),
        quick=False,
    ),
    Command(
        f"{_TRANSLATE} --shortlist {{shortlist}}",
        {
            "checkpoint": Given(CHECKPOINT, "model.pt"),
            "input": Given(TEXT, "text/test.xx"),
            "output": Given(OUTPUT, "new.txt"),
            "data": Given(FOLDER, "data"),
            "shortlist": Given(FILE, "shortlist.safetensors"),
        },
        makes=("new.txt",),
    ),
    Command(
        "posnet-export {checkpoint} --out {out} --shortlist-from {data}",
        {
            "checkpoint": Given(CHECKPOINT, "model.pt"),
            "out": Given(NEW_FOLDER, "model"),
            "data": Given(FOLDER, "data"),
        },
        makes=("model", "model/*"),
        quick=False,
    ),
    *(
        Command(
            f"{_GENERATE} {option} {{text}}",
            {
                "checkpoint": Given(CHECKPOINT, "lm/model.pt"),
                "input": Given(TEXT, "text/test.xx"),
                "output": Given(OUTPUT, "new.txt"),
                "data": Given(FOLDER, "lm"),
                "text": Given(FILE, good),
            },
            makes=("new.txt",),
            quick=option == "--bpe-codes",
        )
        for option, good in (("--bpe-codes", "codes"), ("--sentencepiece-model", "pieces.model"))
    ),
    Command(
        "posnet-export {checkpoint} --out {out} --data {data} --bpe-codes {codes}",
        {
            "checkpoint": Given(CHECKPOINT, "fast.pt"),
            "out": Given(NEW_FOLDER, "folder"),
            "data": Given(FOLDER, "data"),
            "codes": Given(FILE, "codes"),
        },
        makes=("folder", "folder/*"),
    ),
    Command(
        "posnet-export {checkpoint} --out {out} --sentencepiece-model {pieces}",
        {
            "checkpoint": Given(CHECKPOINT, "model.pt"),
            "out": Given(NEW_FOLDER, "folder"),
            "pieces": Given(FILE, "pieces.model"),
        },
        makes=("folder", "folder/*"),
    ),
    *(
        Command(
            f"posnet-plot weights {{checkpoint}} --sentence 'a1 a2' --out {{out}} --data {{data}} {option} {{text}}",
            {
                "checkpoint": Given(CHECKPOINT, "model.pt"),
                "out": Given(OUTPUT_FOLDER, "figures"),
                "data": Given(FOLDER, "data"),
                "text": Given(FILE, good),
            },
            makes=_FIGURES,
            quick=False,
        )
        for option, good in (("--bpe-codes", "codes"), ("--sentencepiece-model", "pieces.model"))
    ),
    Command(
        "posnet-plot curves {runs} --out {out}",
        {"runs": Given(FOLDER, "log"), "out": Given(PICTURE, "curves")},
        makes=("curves.*",),
    ),
    Command(
        "posnet-plot analog {folders} --out {out}",
        {"folders": Given(FOLDER, "analog"), "out": Given(PICTURE, "crossbars")},
        makes=("crossbars.*",),
    ),
    Command(
        "posnet-plot compare {report} --out {out}",
        {"report": Given(TEXT, "report/report.json"), "out": Given(OUTPUT_FOLDER, "figures")},
        makes=_FIGURES,
    ),
    Command(
        "posnet-plot study convergence --results {results} --out {out}",
        {"results": Given(FOLDER, "results"), "out": Given(OUTPUT_FOLDER, "figures")},
        makes=_FIGURES,
        quick=False,
    ),
    Command(
        f"{_SCORE} --system a={{system}} --out {{out}} --cache {{cache}}",
        {
            "source": Given(TEXT, "text/test.xx"),
            "reference": Given(TEXT, "text/test.yy"),
            "system": Given(TEXT, "text/test.xx"),
            "out": Given(OUTPUT_FOLDER, "figures"),
            "cache": Given(CACHE, "scores.sqlite"),
        },
        makes=("figures", "figures/*", "scores.sqlite*"),
    ),
    Command(
        "posnet-score --config {config} --out {out} --cache scores.sqlite",
        {"config": Given(TEXT, "comparison.yaml"), "out": Given(OUTPUT_FOLDER, "figures")},
        makes=("figures", "figures/*", "scores.sqlite*"),
    ),
    Command(
        f"posnet-prepare corpus --train {{source}} {{target}} --valid {{valid}} text/valid.yy -s xx -t yy {_PREPARE} "
        "--test {test} text/test.yy",
        {
            "source": Given(FILE, "text/train.xx"),
            "target": Given(FILE, "text/train.yy"),
            "valid": Given(FILE, "text/valid.xx"),
            "test": Given(FILE, "text/test.xx"),
            "out": Given(OUTPUT_FOLDER, "prepared"),
        },
    ),
    Command(
        "posnet-prepare corpus --train text/train.xx text/train.yy --valid text/valid.xx text/valid.yy -s xx -t yy "
        f"--like {{like}} {_PREPARE}",
        {"like": Given(FOLDER, "data"), "out": Given(OUTPUT_FOLDER, "prepared")},
    ),
    Command(
        f"posnet-prepare text --train {{train}} --valid {{valid}} --test {{test}} {_PREPARE}",
        {
            "train": Given(FILE, "text/train.xx"),
            "valid": Given(FILE, "text/valid.xx"),
            "test": Given(FILE, "text/test.xx"),
            "out": Given(OUTPUT_FOLDER, "prepared"),
        },
    ),
    Command(
        f"posnet-prepare quickstart.en-de --downloads {{downloads}} --mirror {{mirror}} {_PREPARE}",
        {
            "downloads": Given(DOWNLOADS, "downloads"),
            "mirror": Given(FOLDER, "text"),
            "out": Given(OUTPUT_FOLDER, "prepared"),
        },
    ),
    Command("posnet-length-ratio {data}", {"data": Given(FOLDER, "data")}),
    Command(
        "posnet-bench decode --mixers --checkpoints {checkpoints} --beams 1 --lengths 4 --sentences 1 --rounds 1",
        {"checkpoints": Given(CHECKPOINT, "model.pt")},
        quick=False,
    ),
    Command(
        "posnet-bench translate {models} {file} --beam 1 --rounds 1",
        {"models": Given(CHECKPOINT, "model.pt"), "file": Given(TEXT, "text/test.xx")},
        quick=False,
    ),
]
# Those that take no path.
WITHOUT_PATHS = {"posnet-doctor", "posnet-mixers"}
ELSEWHERE = {"posnet-run"}  # its paths are settings, which tests/recipes/test_shell.py gives as variables too
