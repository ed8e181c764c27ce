"""What pip installs, from a source distribution and a wheel made of it, works where there is no checkout."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import fairseq
import pytest

from posnet_fairseq.fairseq_plugin import optional_types
from support import commands
from support.corpus import make_corpus

pytestmark = pytest.mark.slow

SOURCES = "setup.py pyproject.toml MANIFEST.in README.md CHANGELOG.md LICENSE posnet_fairseq eval data_prep".split()
FAIRSEQ = Path(fairseq.__file__).parent
# Of commands that other packages install; posnet-run needs it.
FAIRSEQ_TRAIN = """#!{}
import runpy
runpy.run_path({!r})["repair"]()
from fairseq_cli.train import cli_main
cli_main()
"""
SMALL = f"{commands.NARROW} --dropout 0"


class Installation:
    """An environment that shares the packages of the tests' own but not the checkout, and fairseq of which is its own.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder):
        self.folder, self.work = folder, folder / "work"
        self.work.mkdir()
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        self.bin = folder / "venv/bin"
        (self.packages,) = (folder / "venv").glob("lib/python*/site-packages")
        self.run("python", "-m", "pip", "uninstall", "--yes", "--quiet", "setuptools")  # too old for the build
        shared = [path for path in sys.path if path.endswith("site-packages")]
        (self.packages / "shared.pth").write_text("".join(f"{path}\n" for path in shared))
        for name in ("fairseq", "fairseq_cli"):  # it looks for plugins beside itself
            shutil.copytree(FAIRSEQ.parent / name, self.packages / name)
        (self.bin / "fairseq-train").write_text(FAIRSEQ_TRAIN.format(self.bin / "python", optional_types.__file__))
        (self.bin / "fairseq-train").chmod(0o755)

    def run(self, program, *arguments, code=0):
        """The output on both channels of a program of the environment, in a folder that is no checkout."""
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        done = subprocess.run(
            [self.bin / program, *map(str, arguments)],
            env=environment | {"PATH": f"{self.bin}:{os.environ['PATH']}"},
            cwd=self.work,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == code, done.stdout[-3000:]
        return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """An installation of the wheel, the source distribution, and the wheel."""
    installed = Installation(tmp_path_factory.mktemp("installed"))
    source, dist = installed.folder / "source", installed.folder / "dist"
    source.mkdir()
    for name in SOURCES:
        path = commands.ROOT / name
        (shutil.copytree if path.is_dir() else shutil.copy)(path, source / name)
    build = f"import os; from setuptools import build_meta; os.chdir({str(source)!r}); build_meta.build_sdist"
    installed.run("python", "-c", f"{build}({str(dist)!r})")
    (sdist,) = dist.glob("*.tar.gz")
    pip = ("python", "-m", "pip")
    installed.run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", dist, sdist)
    (wheel,) = dist.glob("*.whl")
    installed.run(*pip, "install", "--no-deps", "--no-index", "--ignore-installed", wheel)
    return installed, sdist, wheel


def test_wheel_and_sdist_have_all_files_of_the_packages(built):
    _, sdist, wheel = built
    kept = {
        path.relative_to(commands.ROOT).as_posix()
        for package in ("posnet_fairseq", "eval", "data_prep")
        for path in (commands.ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert kept | {*SOURCES} <= packed
    assert not {name for name in packed if name.startswith("tests")}
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    installed = {name.replace("eval/", "posnet_eval/").replace("data_prep/", "posnet_data_prep/") for name in kept}
    assert {name for name in names if ".dist-info/" not in name} == installed
    assert any(name.endswith("/LICENSE") for name in names)


def test_commands_work_outside_of_a_checkout(built):
    installed, *_ = built
    run, work = installed.run, installed.work
    found = run("python", "-c", "import posnet_fairseq, posnet_eval; print(posnet_fairseq.__file__)").strip()
    assert Path(found).is_relative_to(installed.packages)
    assert run("posnet-doctor", "--user-dir") == f"{installed.packages / 'posnet_fairseq'}\n"
    assert "--user-dir posnet_fairseq" in " ".join(run("posnet-doctor").split())
    assert "tables-2-3" in run("posnet-run", "compare", "no-such-list", "--dataset", "wmt14.en-de", code=2)

    make_corpus(work, train=140)
    sets = [word for name in ("train", "valid", "test") for word in (f"--{name}", f"{name}.xx", f"{name}.yy")]
    run("posnet-prepare", "corpus", *sets, "--merges", "20", "--out", "data")
    training = f"--share-all-embeddings --max-source-positions 32 --max-target-positions 32 {SMALL}".split()
    training += "--criterion chunked_label_smoothed_cross_entropy --optimizer fused_adam --lr 1e-3 --cpu".split()
    training += "--max-tokens 400 --max-update 3 --save-dir checkpoints".split()
    for user_dir in ("posnet_fairseq", run("posnet-doctor", "--user-dir").strip()):
        run("fairseq-train", "data", "--user-dir", user_dir, "--arch", "rposnet_tiny", *training)
    run("posnet-translate", "checkpoints/checkpoint_last.pt", "--input", "test.xx", "--output", "output.yy")
    assert len((work / "output.yy").read_text().splitlines()) == len((work / "test.xx").read_text().splitlines())
    score = "--source test.xx --reference test.yy --system rposnet=output.yy --resamples 40 --out report".split()
    assert "BLEU" in run("posnet-score", *score)
    assert "</html>" in (work / "report/report.html").read_text()

    settings = "--data data --size tiny --updates 4 --interval 2 --average 1 --warmup 2 --tokens 400".split()
    settings += ["--max-tokens", "200", "--max-positions", "32", "--cpus", "1", "--beam", "2", f"--options={SMALL}"]
    output = run("posnet-run", "corpus", *settings)
    assert "BLEU" in output
    assert (work / "runs/data/rposnet_tiny_s1/report/report.html").is_file()


def test_a_plugin_that_is_not_found_is_explained_in_the_documentation(built):
    installed, *_ = built
    output = installed.run("fairseq-train", "data", "--user-dir", "no_such_plugin", code=1)
    (last,) = output.strip().split("\n")[-1:]
    assert last == f"FileNotFoundError: {installed.work / 'no_such_plugin'}"
    assert "FileNotFoundError: .../posnet_fairseq" in (commands.ROOT / "docs/troubleshooting.md").read_text()
