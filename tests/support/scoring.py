"""The usual files and calls of tests of posnet-score."""

import json
from pathlib import Path

import yaml

from posnet_eval.score import main
from support import commands
from support.made_up import translated

SIZE = 60
FILES = ["report.csv", "report.html", "report.json", "report.md", "report.tex", "segments.tsv"]


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


SYSTEMS = ("--system", "base=base.txt", "good=good.txt", "other=other.txt")
USUAL = ("--source", "test.en", "--reference", "test.de", *SYSTEMS, "--resamples", "200")


def run(capsys, *arguments):
    main([*arguments, "--workers", "1"])
    return capsys.readouterr()


def refused(capsys, *arguments):
    """What is said on standard error."""
    return commands.refused(capsys, main, *arguments)


def report(folder="report"):
    return json.loads(Path(folder, "report.json").read_text())


CONFIG = {
    "systems": {"base": "Transformer", "good": None, "third": "gLinearNet & co"},
    "baselines": ["good"],
    "metrics": ["chrf"],
    "resamples": 100,
    "test_sets": {
        "news": {
            "languages": "en-de",
            "source": "test.en",
            "reference": "test.de",
            "outputs": {"base": "base.txt", "good": ["good.txt"], "third": ["other.txt", "base.txt"]},
        },
        "talks": {"reference": ["test.de"], "outputs": "runs/{system}_s*/talks.txt"},
    },
}


def configure(data, **changes):
    for system in ("base", "good", "third"):
        for seed in (1, 2):
            write(data / f"runs/{system}_s{seed}/talks.txt", translated(Path("test.de").read_text().splitlines(), seed))
    Path("elsewhere").mkdir(exist_ok=True)
    return write(data / "comparison.yaml", [yaml.safe_dump(CONFIG | changes, sort_keys=False)])


COLUMNS = {
    "params_&_50%": {"base": "3.10M", "good": "[b]3*22_M"},
    "[b]tokens/s": {"third": 2815, "base": 12862},
    "decode": {"base": 118.0, "good": 1160.25},
    "time": {"good": "12:30"},
}
