import shutil

import pytest

import posnet_fairseq.models.mixer_transformer  # noqa: F401  (registers the architectures)
from support import commands
from support.checkpoints import language_model_checkpoint
from support.corpus import prepared
from support.hostile import SHAPE


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """A folder for all rows.

    It has text/, data/ (of posnet-prepare), run/checkpoint_*.pt every 5 updates of 3 epochs, model.pt, and a language
    model, lm/model.pt.
    """
    folder = tmp_path_factory.mktemp("world")
    prepared(folder / "text", folder / "data", train=300, valid=20, test=12)
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    saving = "--max-update 15 --save-interval-updates 5 --no-epoch-checkpoints --best-checkpoint-metric ppl".split()
    commands.call(patch, "train", *commands.train_arguments("data", "run", *SHAPE, *saving))
    commands.run_program(patch, "posnet-average", "run", "--num", "2", "--out", "model.pt")
    patch.undo()
    language_model_checkpoint(folder / "lm" / "model.pt", "rposnet")
    return folder


@pytest.fixture
def folder(world, tmp_path):
    """A copy of the world for one row."""
    return shutil.copytree(world, tmp_path / "world", symlinks=True)
