import pytest

from support import commands
from support.corpus import make_corpus


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A binarized corpus."""
    text, binary = tmp_path_factory.mktemp("text"), tmp_path_factory.mktemp("binary")
    make_corpus(text)
    arguments = f"-s xx -t yy --joined-dictionary --workers 1 --destdir {binary}".split()
    for name in ("train", "valid", "test"):
        arguments += [f"--{name}pref", str(text / name)]
    commands.run_program(pytest.MonkeyPatch(), "fairseq-preprocess", *arguments)
    for name in ("test.xx", "test.yy"):
        (binary / name).write_text((text / name).read_text())
    # What fairseq counts as positions: words and an end symbol for each line.
    sentences = (text / "train.xx").read_text().split("\n")[:-1]
    (binary / "train.size").write_text(str(sum(len(line.split()) + 1 for line in sentences)))
    return binary


@pytest.fixture(
    scope="session", params=["rposnet_tiny", pytest.param("transformer_pos_tiny", marks=pytest.mark.thorough)]
)
def trained(request, data, tmp_path_factory):
    """Folder of a training run with its last four checkpoints, 64 updates apart; an epoch has 32 updates."""
    run = tmp_path_factory.mktemp(request.param)
    patch = pytest.MonkeyPatch()
    interval = "--max-update 704 --save-interval-updates 64 --keep-interval-updates 4 --no-epoch-checkpoints".split()
    commands.call(patch, "train", *commands.train_arguments(data, run, *interval, arch=request.param))
    return run
