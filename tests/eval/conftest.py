import pytest

from support import tiny_models


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    return tiny_models.make_encoder(tmp_path_factory.mktemp("encoder") / "tiny-xlmr")


@pytest.fixture(scope="session")
def comet(tmp_path_factory, encoder):
    """Folder of a COMET; tests do not write in it."""
    return tiny_models.make_comet(tmp_path_factory.mktemp("comet") / "tiny-comet", encoder)[0]


@pytest.fixture(scope="session", params=["sentencepiece", "wordpiece"])
def bleurt(tmp_path_factory, request):
    """Folder of a BLEURT; tests do not write in it."""
    folder = tmp_path_factory.mktemp("bleurt") / f"tiny-{request.param}"
    return tiny_models.make_bleurt(folder, wordpiece=request.param == "wordpiece")


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    """No model in the hub's cache, and a hub that refuses connections."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
