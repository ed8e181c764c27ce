import shutil

import pytest

from support import tiny_models
from support.made_up import text, translated
from support.scoring import SIZE, write


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    return tiny_models.make_encoder(tmp_path_factory.mktemp("encoder") / "tiny-xlmr")


@pytest.fixture(scope="session")
def comet(tmp_path_factory, encoder):
    """Folder of a COMET; tests do not write in it."""
    return tiny_models.make_comet(tmp_path_factory.mktemp("comet") / "tiny-comet", encoder)


@pytest.fixture(scope="session")
def comet_kiwi(tmp_path_factory, encoder):
    """Folder of a COMETKiwi; tests do not write in it."""
    folder = tmp_path_factory.mktemp("comet") / "tiny-kiwi"
    return tiny_models.make_comet(folder, encoder, kind="unified_metric", input_segments=["mt", "src"], word_layer=1)


@pytest.fixture(scope="session")
def bleurt(tmp_path_factory):
    """Folder of a BLEURT; tests do not write in it."""
    return tiny_models.make_bleurt(tmp_path_factory.mktemp("bleurt") / "tiny-bleurt")


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    """No model in the hub's cache, and a hub that refuses connections."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with source, reference and outputs of three systems, in which the commands run."""
    reference = text(SIZE)
    write(tmp_path / "test.de", reference)
    write(tmp_path / "test.en", text(SIZE, seed=9))
    for seed, name in enumerate(("base", "good", "other"), 2):
        write(tmp_path / f"{name}.txt", translated(reference, seed))
    write(tmp_path / "good.txt", [*reference[: SIZE // 2], *translated(reference, 3)[SIZE // 2 :]])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "140")
    return tmp_path


@pytest.fixture
def copy(comet, tmp_path):
    """A COMET to write in."""
    return shutil.copytree(comet, tmp_path / "model")
