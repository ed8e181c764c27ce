"""recipes/lib/environment.sh: what is not posnet's is used or refused, and in either case left as it is."""

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from support import commands
from support.hostile import contents

# Instead of the minutes that making one takes. python, pip and the stamp are all that the script looks at.
STUBS = """
posnet_python() { echo make; }
make() {
    if [ "$1" = -m ]; then
        mkdir -p "$3/bin"
        printf '#!/bin/sh\\nexit 0\\n' >"$3/bin/python"
        printf '#!%s/bin/python\\n' "$3" >"$3/bin/pip"
        chmod +x "$3/bin/python"
    fi
}
posnet_install() { echo "installed $1"; }
"""
FAILS = STUBS.replace('echo "installed $1"', "false")
COMMANDS = ("posnet-run", "fairseq-train", "torchrun")


@pytest.fixture
def root(tmp_path):
    """As much of a checkout as the script needs, in a folder with a space in its name."""
    root = tmp_path / "my checkout"
    (root / "recipes/lib").mkdir(parents=True)
    for name in ("setup.py", "recipes/lib/environment.sh", "recipes/lib/lacks.py"):
        shutil.copy(commands.ROOT / name, root / name)
    (root / "posnet_fairseq").symlink_to(commands.ROOT / "posnet_fairseq")
    return root


def environment(root, *extras, code=0, stubs=STUBS):
    """What a recipe would see: its output, with the python in front of PATH."""
    script = f'. "$1/recipes/lib/environment.sh"; {stubs}\nposnet_environment "$@"; command -v python'
    done = subprocess.run(["bash", "-euc", script, "", root, *extras], capture_output=True, text=True, cwd=root)
    assert done.returncode == code, done.stdout + done.stderr
    if code:
        assert done.stderr.count("error: ") == 1, done.stderr
        assert "line " not in done.stderr, "bash itself complains"
    return done.stdout + done.stderr


def made_by_hand(venv, root=None):
    """An environment without pip, as uv makes it. With a checkout, it has posnet from there, and all packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (venv / "my notes.txt").write_text("dear")
    if root:
        (folder,) = venv.glob("lib/python*/site-packages")
        places = [root, *(path for path in sys.path if path.endswith("site-packages"))]
        (folder / "shared.pth").write_text("".join(f"{place}\n" for place in places))
        for name in COMMANDS:
            (venv / "bin" / name).write_text(f"#!{venv}/bin/python\n")
    return venv


@pytest.mark.parametrize("link", [False, True])
def test_environment_without_pip_is_used_if_it_serves(root, tmp_path, link):
    made_by_hand(tmp_path / "elsewhere" if link else root / ".venv", root)
    if link:
        (root / ".venv").symlink_to(tmp_path / "elsewhere")
    before = contents(tmp_path)
    assert environment(root) == f"{root}/.venv/bin/python\n"
    assert contents(tmp_path) == before


def with_an_old_package(root):
    (folder,) = made_by_hand(root / ".venv", root).glob("lib/python*/site-packages")
    (folder / "rich-0.1.dist-info").mkdir()
    (folder / "sacrebleu-0.1.dist-info").mkdir()
    (folder / "sacrebleu-0.1.dist-info/METADATA").write_text("Name: sacrebleu\nVersion: 0.1\n")


def of_another_python(root):
    (root / ".venv/bin").mkdir(parents=True)
    (root / ".venv/bin/python").write_text('#!/bin/sh\n[ "$1" != --version ] || echo Python 3.10.9\n[ -z "$2" ]\n')
    (root / ".venv/bin/python").chmod(0o755)


FOREIGN = ".venv was not made by posnet and "


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda root: made_by_hand(root / ".venv"), f"{FOREIGN}has no posnet. Move it away and run again"),
        (lambda root: (made_by_hand(root / ".venv", root) / "bin/torchrun").unlink(), "lacks the command torchrun"),
        (with_an_old_package, "lacks packages (sacrebleu"),
        (lambda root: made_by_hand(root / "before", root).rename(root / ".venv"), "was made at another place, where"),
        (of_another_python, "is of Python 3.10.9, posnet trains with 3.11 to 3.14"),
        (lambda root: (root / ".venv").write_text("dear"), f"{FOREIGN}is no folder"),
        (lambda root: (root / ".venv.lock").mkdir(), ".venv.lock cannot be written"),
    ],
)
def test_what_does_not_serve_is_refused_and_left_as_it_is(root, tmp_path, make, sentence):
    make(root)
    before = contents(tmp_path)
    assert sentence in environment(root, code=2)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("there", [False, True])
def test_environment_is_made_where_there_is_none(root, there):
    if there:
        (root / ".venv").mkdir()
    assert "installed" in environment(root)
    (stamp,) = (root / ".venv").glob("posnet-*")
    assert stamp.name != "posnet-begun"
    assert "installed" not in environment(root)


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("mark", ["posnet-begun", "posnet-0123456789abcdef"])
def test_environment_of_posnet_is_finished_brought_up_to_date_or_made_again(root, mark, broken):
    environment(root)
    venv = root / ".venv"
    for path in venv.glob("posnet-*"):
        path.rename(venv / mark)
    (venv / "more").touch()
    if broken:
        (venv / "bin/python").unlink()
    assert ("making" in environment(root)) == broken
    assert (venv / "more").exists() != broken
    assert [path.name for path in venv.glob("posnet-*")] != [mark]


def test_making_that_fails_is_tried_again(root):
    output = environment(root, code=2, stubs=FAILS)
    assert "the packages could not be installed" in output
    assert (root / ".venv/posnet-begun").exists()
    assert "installed" in environment(root)


def test_of_two_first_recipes_one_makes_the_environment(root):
    slow = STUBS.replace('echo "installed', 'sleep 0.5; echo "installed')
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: environment(root, stubs=slow), range(2)))
    assert sorted("installed" in output for output in found) == [False, True]


def test_extras_come_to_what_is_there_and_stay(root):
    assert f"installed {root}\n" in environment(root)
    assert f"installed {root}[dev]\n" in environment(root, "dev")
    for extras in ((), ("dev",)):
        assert "installed" not in environment(root, *extras)
    with open(root / "setup.py", "a") as file:
        file.write("# changed\n")
    assert f"installed {root}[dev]\n" in environment(root)
    assert f"installed {root}[comet,dev]\n" in environment(root, "comet")


def test_environment_of_someone_elses_that_lacks_an_extra_is_refused(root):
    venv = made_by_hand(root / ".venv", root)
    (folder,) = venv.glob("lib/python*/site-packages")
    (folder / "posnet-1.dist-info").mkdir()
    requirements = 'Name: posnet\nVersion: 1\nRequires-Dist: rich\nRequires-Dist: no-such-package; extra == "dev"\n'
    (folder / "posnet-1.dist-info/METADATA").write_text(requirements)
    before = contents(root)
    assert environment(root) == f"{venv}/bin/python\n"
    output = environment(root, "dev", code=2)
    assert "lacks packages (no-such-package)" in output
    assert f"pip install -e '{root}[dev]'" in output
    assert contents(root) == before


PIP = """#!/usr/bin/env bash
cat <<END
Looking in links: /wheels
Collecting torch==2.13.0
  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (29 kB)
  Downloading https://download.pytorch.org/whl/cpu/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl (191.9 MB)
  Using cached sympy-1.14.0-py3-none-any.whl (6.3 MB)
Building wheels for collected packages: posnet
  Building editable for posnet (pyproject.toml): finished with status 'done'
Installing collected packages: mpmath, sympy, torch
Successfully installed mpmath-1.3.0 sympy-1.14.0 torch-2.13.0+cpu
END
exit 3
"""


def test_progress_of_the_installation_is_in_few_lines(root):
    (root / "python").write_text(PIP)
    (root / "python").chmod(0o755)
    script = '. recipes/lib/environment.sh; posnet_pip ./python torch || echo "code $?"'
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, cwd=root)
    assert done.stdout == "code 3\n"
    steps = "downloading torch (191.9 MB)", "building posnet", "unpacking 3 packages"
    assert re.sub(r"\d+:\d\d min", "TIME", done.stderr) == "".join(f"posnet: {step}, TIME\n" for step in steps)
