"""The rows of docs/ablations.md are those of the papers' tables. test_documented_commands.py runs them."""

import pytest
import torch
from fairseq import options

from posnet_fairseq.models.mixer_transformer import MixerTransformer
from posnet_fairseq.text import synthetic
from support import documents
from support.commands import USER_DIR

DOCUMENT = documents.ROOT / "docs/ablations.md"
COMMANDS = [command for command in documents.commands(DOCUMENT) if command.text.startswith("$TRAIN ")]


def build(command):
    words = [*command.words()[1:], "--user-dir", USER_DIR]
    arguments = options.parse_args_and_arch(options.get_training_parser(), words)
    with torch.device("meta"):
        return MixerTransformer.build_model(arguments, synthetic.task(100))


def rows(table):
    """The commands of a table, by the name of their directories."""
    return [command for command in COMMANDS if f"checkpoints/{table}-" in command.text]


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
    models, directories = map(set, zip(*(row.text.split(" --save-dir ") for row in rows(table)), strict=True))
    assert len(models) == len(directories) == count


def test_table_4_is_all_combinations():
    found = set()
    for command in rows("table4"):
        model = build(command)
        layer = model.decoder.layers[0]
        mixers = (model.encoder.layers[0].self_attn, layer.self_attn, layer.cross_attn)
        found.add(tuple(mixer.name for mixer in mixers))
    assert len(found) == 8
    assert {name for names in found for name in names} == {"attention", "rposnet"}


def test_clip_distance_of_each_layer():
    (command,) = (command for command in COMMANDS if "--clip-distance" in command.text)
    model = build(command)
    for side in (model.encoder, model.decoder):
        assert [layer.self_attn.energies[0].reach for layer in side.layers] == [4, 8, 16, 16, 32, 32]
