from dataclasses import dataclass, field
from pathlib import Path

import pytest

from posnet_fairseq.mixers.attention import Attention
from posnet_fairseq.mixers.bases.mixer_settings import PLACES
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.registry import _MIXERS, get_mixer, mixer_names, register_mixer
from posnet_fairseq.shared.errors import UsageError

every_mixer = pytest.mark.parametrize("name", mixer_names())


@pytest.fixture
def clean_registry():
    before = dict(_MIXERS)
    yield
    _MIXERS.clear()
    _MIXERS.update(before)


@every_mixer
def test_every_mixer_has_a_test_file(name):
    assert (Path(__file__).parent / "mixers" / f"test_{name}.py").exists()


@every_mixer
def test_every_mixer_names_its_paper_and_equation(name):
    assert "Eq" in get_mixer(name).__doc__
    assert "20" in get_mixer(name).__doc__, "the year of the paper"


@every_mixer
def test_every_mixer_may_stand_somewhere(name):
    assert get_mixer(name).places
    assert set(get_mixer(name).places) <= set(PLACES)


@every_mixer
def test_every_arch_is_in_the_readme(name):
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    assert f"`{get_mixer(name).arch}`" in readme


def test_unknown_name_lists_names_and_the_nearest():
    with pytest.raises(UsageError, match=r"--cross-mixer atention: .* aposnet, arposnet, attention, .* attention\?"):
        get_mixer("atention", "--cross-mixer")


def test_a_name_is_given_once(clean_registry):
    with pytest.raises(ValueError, match=r"test_registry.*Attention cannot take .*mixers\.attention\.Attention"):

        @register_mixer("attention")
        class Attention(TokenMixer):
            pass


def test_a_mixer_is_a_token_mixer(clean_registry):
    with pytest.raises(ValueError, match="must extend"):
        register_mixer("nothing")(object)


def test_an_option_means_the_same_everywhere(clean_registry):
    @dataclass
    class Config:
        clip_distance: int = field(default=3, metadata={"help": "something else"})

    with pytest.raises(ValueError, match=r"'clip_distance': .*Other declares it differently"):
        register_mixer("other")(type("Other", (Attention,), {"Config": Config}))
