"""Runs the commands of the documents in a folder, with options that make them small."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import yaml
from fairseq.models import import_models

import posnet_fairseq
from posnet_data_prep.datasets import DATASETS
from posnet_data_prep.sources import published
from posnet_data_prep.sources.archives import ARCHIVES
from posnet_fairseq.cli import run
from posnet_fairseq.runs import devices, single_run
from support import archives, documents
from support.archives import MADE
from support.commands import ROOT, SMALL_BENCH, USER_DIR, program, run_program
from support.made_up import sacrebleu_test_set
from support.server import Server

# Files that are there before the first command: lines of each, in all languages. All else is made by commands.
GIVEN = {"my": 600, "medical": 200, "test": 5, "second": 5, "base": 5, "rposnet": 5}
# Those that comparison.yaml in docs/scoring.md names.
GIVEN |= dict.fromkeys(("data/test", "a1", "a2", "b1", "c1"), 5)
GIVEN |= {f"runs/wmt14.en-de/{name}_base_s1/test": 5 for name in ("transformer", "shaw", "rposnet")}

# Words that stand for others.
PLACEHOLDERS = {"MIXER": "rposnet"}

# What is put behind commands that match a pattern: of an option that comes twice, the last value counts. A command that
# lacks an option it needs does not get it here.
SMALLER = {
    r"fairseq-(train|generate|eval-lm) ": "--cpu --num-workers 0",
    r"fairseq-train ": "--save-interval-updates 1 --max-update 2",
    r"fairseq-train .*--max-tokens ": "--max-tokens 200 --update-freq 1",
    r"fairseq-train (?!.*language_modeling)": documents.NARROW,
    r"fairseq-train (?!.*(language_modeling|--clip-distance|--translution-layers))": documents.ONE_LAYER,
    r"fairseq-train .*language_modeling": "--decoder-layers 2 --decoder-embed-dim 48 --decoder-attention-heads 3 "
    "--tokens-per-sample 40",
    r"fairseq-eval-lm ": "--tokens-per-sample 40",
    r"posnet-analog ": "--programmings 1",
    r"posnet-average .*--num ": "--num 2",
    r"posnet-prepare corpus (?!.*--(like|merges) )": "--pieces 120",
    r"posnet-prepare corpus ": "--workers 1",
    r"posnet-prepare corpus .*--valid-every ": "--valid-every 20",
    r"posnet-prepare text ": "--pieces 60 --workers 1",
    r"posnet-score .*--(config|multi-reference) ": "--metrics bleu",  # the others take models from the hub
    **{rf"posnet-bench {what}\b": options for what, options in SMALL_BENCH.items()},
}
# Behind $TRAIN, besides: there are many.
ROW = "--max-update 1 --disable-validation"

_MAKES = re.compile(r"--(out|output|save-dir|destdir|results-path)")
_BY_SHELL = re.compile(r"""[|&;<>`*?]|\$\(""")
_ASSIGNED = re.compile(r"[A-Z_]+=")


def typed(command):
    """(variables, words) of a command: the assignments before the program, and its words with smaller options."""
    words = [PLACEHOLDERS.get(word, word) for word in command.words()]
    count = next(number for number, word in enumerate(words) if not _ASSIGNED.match(word))
    variables, words = dict(word.split("=", 1) for word in words[:count]), words[count:]
    for pattern, options in SMALLER.items():
        if re.match(pattern, " ".join(words)):
            words += options.split()
    if command.text.startswith("$TRAIN "):
        words += ROW.split()
    return variables, words


def needs_shell(command):
    """Whether a command needs a shell."""
    bare = re.sub(r"""'[^']*'|"[^"]*"|\s#.*""", "", command.text)
    return _BY_SHELL.search(bare) is not None or program(typed(command)[1][0]) is None


class Reader:
    """Runs commands, one after the other, in a folder.

    Args:
        folder: an empty folder.
        patch: for changes that hold for all commands; the caller undoes them.
    """

    def __init__(self, folder, patch):
        self.folder, self._patch, self._failures, self._server = folder, patch, {}, Server()
        for name, lines in GIVEN.items():
            self._give(name, lines)
        terms = [(folder / f"test.{language}").read_text().split()[0] for language in ("en", "de")]
        (folder / "terms.tsv").write_text("\t".join(terms) + "\n")
        for path in documents.FILES:
            for _, language, content in documents.blocks(path.read_text()):
                if language == "yaml":
                    self._configure(content)
        venv.create(folder / ".venv")
        (folder / "recipes").symlink_to(ROOT / "recipes")
        # For --user-dir posnet_fairseq: fairseq sees that the package of this name has been imported.
        import_models(str(Path(USER_DIR) / "models"), "posnet_fairseq.models")
        (folder / "posnet_fairseq").symlink_to(USER_DIR)
        patch.setattr(posnet_fairseq, "__path__", [*posnet_fairseq.__path__, str(folder / "posnet_fairseq")])
        patch.setattr(published, "BYTES_PER_PAIR", 1)  # the disk need not hold the published datasets
        patch.setenv("HOME", str(folder))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")

    def close(self):
        """Stop serving files."""
        self._server.close()

    def type(self, command, before=()):
        """Run a command and check that it writes its output files.

        Args:
            command: run only once, however often it is given.
            before: commands to run first, if they have not been run; their failures are reported when they are given.

        Raises:
            AssertionError: it fails, or does not write its output.
            ValueError: it cannot be parsed.
        """
        for each in (*before, command):
            if each.text not in self._failures:
                self._failures[each.text] = self._failure(each)
        if failure := self._failures[command.text]:
            raise failure

    def _failure(self, command):
        try:
            variables, words = typed(command)
            with self._patch.context() as patch:
                patch.chdir(self.folder)
                for name, value in variables.items():
                    patch.setenv(name, value)
                self._run(command, words, patch)
        except (AssertionError, ValueError) as failure:
            return failure
        return None

    def _run(self, command, words, patch):
        makes = [words[i + 1] for i, word in enumerate(words[:-1]) if _MAKES.fullmatch(word)]
        for name in makes:
            assert name.rsplit(".", 1)[0] not in GIVEN, f"{command}\n{name} is the reader's own, and is overwritten"
        self._execute(command, words, patch)
        for path in map(Path, [] if "--dry-run" in words else makes):
            assert path.is_file() or any(path.glob("*")), f"{command}\n{path} was not made"

    def _execute(self, command, words, patch):
        if words[0] in ("bash", "posnet-run"):
            self._rehearse(command, words, patch)
        elif needs_shell(command):
            self._shell(command, command.text)
        else:
            if words[0] == "posnet-prepare" and words[1] in DATASETS:
                assert words[1] in MADE, f"{command}\nwould download. Say in EXCEPTIONS what tests it."
                words = words + self._serve(words[1], patch)
            self._call(command, words, patch)

    def _call(self, command, words, patch):
        code = 0
        try:
            run_program(patch, *words)
        except SystemExit as stop:
            code = stop.code
        except Exception as error:
            raise AssertionError(f"{command}\nfails, run as: {shlex.join(words)}") from error
        assert not code, f"{command}\nends with {code}, run as: {shlex.join(words)}"

    def _shell(self, command, text):
        text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in command.variables) + text
        done = subprocess.run(["timeout", "900", "bash", "-ec", text], capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\nends with {done.returncode}:\n{done.stdout}{done.stderr}"

    def _rehearse(self, command, words, patch):
        """Run a recipe, which is posnet-run, or posnet-run with --dry-run, as on a machine of eight GPUs."""
        if words[0] == "bash":
            script = ROOT / words[1]
            assert script.is_file(), f"{command}\nthere is no {words[1]}"
            assert script.name != "lm.sh", f"{command}\nknows no --dry-run. Say in EXCEPTIONS what tests it."
            words = ["posnet-run", script.stem, *words[2:]]
        patch.setattr(os, "environ", dict(os.environ))
        patch.setattr(run, "end_by_signals", lambda: None)
        patch.setattr(devices, "gpus", lambda: (8, True))
        patch.setattr(single_run, "elsewhere", lambda function, item: function(item))
        self._call(command, [*words, "--dry-run"], patch)

    def _serve(self, dataset, patch):
        """Serve small archives in place of a published dataset, and return the options that use them."""
        make, _, merges = MADE[dataset]
        for key, entry in archives.expect(make()[0], self._server).items():
            patch.setitem(ARCHIVES, key, entry)
        return ["--merges", *merges, "--workers", "1"]

    def _give(self, name, lines):
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        sides = zip(*archives.sentences("en", "de", lines, seed=1), strict=True)
        for language, side in zip(("en", "de"), sides, strict=True):
            (self.folder / f"{name}.{language}").write_bytes(archives.text(side))
        shutil.copy(self.folder / f"{name}.en", self.folder / f"{name}.txt")

    def _configure(self, content):
        """Write a block of YAML if its first line names a file, and provide sacreBLEU's test sets that it names."""
        if found := re.match(r"# (\S+\.yaml)\b", content):
            (self.folder / found[1]).write_text(content)
        for test_set in yaml.safe_load(content).get("test_sets", {}).values():
            if name := test_set.get("test_set"):
                place = self.folder / "sacrebleu" / name
                sources = [self.folder / f"test.{language}" for language in test_set["languages"].split("-")]
                sacrebleu_test_set(self._patch, name, test_set["languages"], place, *sources)
