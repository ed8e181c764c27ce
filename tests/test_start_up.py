"""What a command does not do while it starts."""

import gc
import json
import subprocess
import sys

import posnet_fairseq as posnet
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.garbage import search_paused


def run(program, *arguments):
    """The last line that a program of Python prints, as JSON."""
    ran = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def test_importing_a_command_searches_for_no_garbage():
    searched, is_usual, frozen = run(
        "import gc, json\n"
        "usual, searched = gc.get_threshold(), []\n"
        "import posnet_fairseq.cli\n"
        "gc.callbacks.append(lambda phase, info: searched.append(info))\n"
        "import posnet_fairseq.cli.translate\n"
        "imported = len(searched)\n"
        "from posnet_fairseq.shared.command import command\n"
        "@command\n"
        "def main(arguments=None):\n"
        "    print(json.dumps([imported, gc.get_threshold() == usual, gc.get_freeze_count()]))\n"
        "main()\n"
    )
    assert (searched, is_usual) == (0, True)
    assert frozen > 100_000  # objects of torch


def test_a_command_called_from_python_leaves_its_garbage_alone():
    @command
    def main(arguments=None):
        assert not gc.get_freeze_count()

    main([])
    assert not gc.get_freeze_count()


def test_torch_is_imported_without_a_search():
    searched, enabled, frozen = run(
        "import gc, json\n"
        "import posnet_fairseq as posnet\n"
        "searched = []\n"
        "gc.callbacks.append(lambda phase, info: searched.append(info))\n"
        "posnet.load\n"
        "count = len(searched)\n"
        "print(json.dumps([count, gc.isenabled(), gc.get_freeze_count()]))\n"
    )
    assert (searched, enabled, frozen) == (0, True, 0)


def test_what_a_user_has_chosen_stays():
    gc.disable()
    try:
        with search_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    gc.freeze()
    try:
        with search_paused():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()
    assert callable(posnet.load)
