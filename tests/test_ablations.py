"""Every command in docs/ablations.md makes the model that its row promises."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from commands import USER_DIR
from fairseq import options

from posnet_fairseq import synthetic
from posnet_fairseq.models.mixer_transformer import MixerTransformer

TEXT = (Path(__file__).parent.parent / "docs" / "ablations.md").read_text()
COMMANDS = [command for command in re.findall(r"`\$TRAIN (.*?)`", TEXT)]


def base():
    """What $TRAIN holds, without the program's name and the data."""
    (quoted,) = re.findall(r'TRAIN="(.*?)"', TEXT, flags=re.DOTALL)
    words = quoted.replace("\\\n", " ").split()  # as the shell splits an unquoted $TRAIN
    assert words[0] == "fairseq-train"
    return ["data", *words[2:], "--user-dir", USER_DIR]


def parse(command):
    parser = options.get_training_parser()
    return options.parse_args_and_arch(parser, base() + shlex.split(command))


def build(arguments):
    with torch.device("meta"):
        return MixerTransformer.build_model(arguments, synthetic.task(100))


def rows(table):
    """The commands of a table, by the name of their directories."""
    return [command for command in COMMANDS if f"checkpoints/{table}-" in command]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_makes_a_model(command):
    build(parse(command))


ROWS = {
    "table4": 8,
    "table5": 5,
    "table6": 10,
    "irpe1": 5,
    "irpe2": 4,
    "irpe3": 4,
    "irpe4": 12,
    "kinds": 10,
    "width": 5,
    "words": 4,
    "on": 3,
}


@pytest.mark.parametrize(("table", "count"), ROWS.items())
def test_tables_are_complete_and_rows_differ(table, count):
    models = {command.split(" --save-dir")[0] for command in rows(table)}
    directories = {command.split("--save-dir ")[1] for command in rows(table)}
    assert len(models) == len(directories) == count


def test_table_4_is_all_combinations():
    found = set()
    for command in rows("table4"):
        model = build(parse(command))
        layer = model.decoder.layers[0]
        mixers = (model.encoder.layers[0].self_attn, layer.self_attn, layer.cross_attn)
        found.add(tuple(mixer.name for mixer in mixers))
    assert len(found) == 8
    assert {name for names in found for name in names} == {"attention", "rposnet"}


def test_clip_distance_of_each_layer():
    (command,) = (command for command in COMMANDS if "--clip-distance" in command)
    model = build(parse(command))
    for side in (model.encoder, model.decoder):
        assert [layer.self_attn.energies[0].reach for layer in side.layers] == [4, 8, 16, 16, 32, 32]
