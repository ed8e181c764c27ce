"""Every command that takes paths, with a valid value of each path."""

import re
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
# Patterns of the files that are made there.
MADE = {
    OUTPUT: ["{}"],
    PICTURE: ["{}.*"],
    NEW_FOLDER: ["{}", "{}/*"],
    OUTPUT_FOLDER: ["{}", "{}/*"],
    CACHE: ["{}*"],
}


@dataclass(frozen=True)
class Given:
    """A path on a command line: its kind, and a valid value."""

    kind: str
    good: str


# Paths by their names in command lines, which have them in braces. A command may give others.
PATHS = {
    "cache": Given(CACHE, "scores.sqlite"),
    "candidates": Given(TEXT, "candidates"),
    "checkpoint": Given(CHECKPOINT, "model.pt"),
    "checkpoints": Given(CHECKPOINT, "model.pt"),
    "codes": Given(FILE, "codes"),
    "config": Given(TEXT, "comparison.yaml"),
    "constraints": Given(TEXT, "data/test.bpe.yy"),
    "data": Given(FOLDER, "data"),
    "downloads": Given(DOWNLOADS, "downloads"),
    "file": Given(TEXT, "text/test.xx"),
    "folder": Given(FOLDER, "run"),
    "folders": Given(FOLDER, "analog"),
    "groups": Given(TEXT, "groups"),
    "input": Given(TEXT, "text/test.xx"),
    "like": Given(FOLDER, "data"),
    "mirror": Given(FOLDER, "text"),
    "model": Given(CHECKPOINT, "model.pt"),
    "models": Given(CHECKPOINT, "model.pt"),
    "out": Given(OUTPUT_FOLDER, "figures"),
    "output": Given(OUTPUT, "new.txt"),
    "pieces": Given(FILE, "pieces.model"),
    "prefix": Given(TEXT, "data/test.bpe.yy"),
    "reference": Given(TEXT, "text/test.yy"),
    "report": Given(TEXT, "report/report.json"),
    "results": Given(FOLDER, "results"),
    "runs": Given(FOLDER, "log"),
    "scored": Given(TEXT, "text/test.yy"),
    "shortlist": Given(FILE, "shortlist.safetensors"),
    "source": Given(TEXT, "text/test.xx"),
    "system": Given(TEXT, "text/test.xx"),
    "target": Given(FILE, "text/train.yy"),
    "terms": Given(TEXT, "terms"),
    "test": Given(FILE, "text/test.xx"),
    "train": Given(FILE, "text/train.xx"),
    "valid": Given(FILE, "text/valid.xx"),
}


class Command:
    """A command line with the names of paths in braces.

    Args:
        line: the command line.
        makes: patterns of the files that it writes with valid paths; by default, what the kinds of its paths say.
        quick: whether to run it with valid paths, too.
        others: paths that are not as in PATHS.
    """

    def __init__(self, line, makes=None, quick=True, **others):
        self.line, self.quick = line, quick
        self.paths = {name: others.get(name) or PATHS[name] for name in re.findall(r"\{(\w+)\}", line)}
        made = [form.format(path.good) for path in self.paths.values() for form in MADE.get(path.kind, ())]
        self.makes = tuple(made if makes is None else makes)

    def filled(self, **paths):
        """The line with valid paths except those given."""
        filled = {name: shlex.quote(paths.get(name, path.good)) for name, path in self.paths.items()}
        return self.line.format(**filled)


_TRANSLATE = "posnet-translate {checkpoint} --beam 1 --max-len-b 2 --input {input} --output {output}"
_ANALOG = "posnet-analog {model} --on output --noise none --test {source} {reference} --out {out}"
_GENERATE = "posnet-generate {checkpoint} --max-len-b 2 --input {input} --output {output} --data {data}"
_DRAW = "posnet-plot weights {checkpoint} --sentence 'a1 a2' --out {out} --data {data}"
_PREPARE = "--out {out} --workers 1 --dry-run"
_SUBWORDS = ("--bpe-codes {codes}", "--sentencepiece-model {pieces}")
_WITHOUT_CARD = {"data": Given(FOLDER, "words")}  # where other subwords than the card's may be given
NEW, PREPARED = Given(OUTPUT, "new.pt"), {"out": Given(OUTPUT_FOLDER, "prepared"), "makes": ()}
EXPORTED = Given(NEW_FOLDER, "folder")
LM = {"checkpoint": Given(CHECKPOINT, "lm/model.pt"), "data": Given(FOLDER, "lm")}
COMMANDS = [
    Command(f"{_ANALOG} --data {{data}}", out=Given(OUTPUT_FOLDER, "crossbars")),
    *(
        Command(
            f"{_ANALOG} --data {{data}} {option}", quick=False, out=Given(OUTPUT_FOLDER, "crossbars"), **_WITHOUT_CARD
        )
        for option in _SUBWORDS
    ),
    Command("posnet-average {folder} --num 1 --out {out}", out=NEW),
    Command("posnet-precompute {checkpoint} --out {out} --max-length 32 --data {data}", out=NEW),
    *(Command(f"{_TRANSLATE} --data {{data}} {option}", **_WITHOUT_CARD) for option in _SUBWORDS),
    Command(f"{_TRANSLATE} --data {{data}} --pretokenized --max-len-b 30 --prefix {{prefix}}"),
    Command(f"{_TRANSLATE} --data {{data}} --pretokenized --constraints {{constraints}}"),
    Command(f"{_TRANSLATE} --data {{data}} --pretokenized --terms {{terms}}"),
    Command(
        "posnet-translate {checkpoint} --input {input} --output {output} --pretokenized --score-translations {scored}",
        quick=False,
    ),
    Command(f"{_TRANSLATE} --data {{data}} --shortlist {{shortlist}}"),
    Command(
        "posnet-rerank {candidates} --source {source} --utility bleu --output {output}", source=Given(TEXT, "sources")
    ),
    Command(
        "posnet-export {checkpoint} --out {out} --shortlist-from {data}", quick=False, out=Given(NEW_FOLDER, "model")
    ),
    *(Command(f"{_GENERATE} {option}", quick="codes" in option, **LM) for option in _SUBWORDS),
    Command(
        "posnet-export {checkpoint} --out {out} --data {data} --bpe-codes {codes}",
        checkpoint=Given(CHECKPOINT, "fast.pt"),
        out=EXPORTED,
        **_WITHOUT_CARD,
    ),
    Command(
        "posnet-export {checkpoint} --out {out} --data {data} --sentencepiece-model {pieces}",
        out=EXPORTED,
        **_WITHOUT_CARD,
    ),
    *(Command(f"{_DRAW} {option}", quick=False, **_WITHOUT_CARD) for option in _SUBWORDS),
    Command(
        "posnet-plot weights {checkpoint} --sentence 'a1 a2' --pretokenized --npz {output}",
        output=Given(OUTPUT, "weights.npz"),
    ),
    Command("posnet-plot curves {runs} --out {out}", out=Given(PICTURE, "curves")),
    Command("posnet-plot analog {folders} --out {out}", out=Given(PICTURE, "crossbars")),
    Command("posnet-plot compare {report} --out {out}"),
    Command("posnet-plot study convergence --results {results} --out {out}", quick=False),
    Command(
        "posnet-score --metrics bleu --resamples 40 --workers 1 --source {source} --reference {reference} "
        "--system a={system} --groups {groups} --out {out} --cache {cache}"
    ),
    Command(
        "posnet-score --config {config} --out {out} --cache scores.sqlite",
        makes=("figures", "figures/*", "scores.sqlite*"),
    ),
    Command(
        f"posnet-prepare corpus --train {{source}} {{target}} --valid {{valid}} text/valid.yy -s xx -t yy {_PREPARE} "
        "--test {test} text/test.yy",
        source=Given(FILE, "text/train.xx"),
        **PREPARED,
    ),
    Command(
        "posnet-prepare corpus --train text/train.xx text/train.yy --valid text/valid.xx text/valid.yy -s xx -t yy "
        f"--like {{like}} {_PREPARE}",
        **PREPARED,
    ),
    Command(f"posnet-prepare text --train {{train}} --valid {{valid}} --test {{test}} {_PREPARE}", **PREPARED),
    Command(f"posnet-prepare quickstart.en-de --downloads {{downloads}} --mirror {{mirror}} {_PREPARE}", **PREPARED),
    Command("posnet-length-ratio {data}"),
    Command(
        "posnet-bench decode --mixers --checkpoints {checkpoints} --beams 1 --lengths 4 --sentences 1 --rounds 1",
        quick=False,
    ),
    Command("posnet-bench translate {models} {file} --beam 1 --rounds 1", quick=False),
]
# Those that take no path.
WITHOUT_PATHS = {"posnet-doctor", "posnet-mixers"}
ELSEWHERE = {"posnet-run"}  # its paths are settings, which tests/recipes/test_settings.py gives
