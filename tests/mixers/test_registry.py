from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Literal

import pytest
import torch

import posnet_fairseq as posnet
from posnet_fairseq import registry
from posnet_fairseq.costs.counting import costs
from posnet_fairseq.costs.mixer_tables import option_rows
from posnet_fairseq.mixers.attention import Attention
from posnet_fairseq.mixers.bases import Options, option
from posnet_fairseq.mixers.bases.mixer_options import configure
from posnet_fairseq.mixers.bases.mixer_settings import PLACE_OPTIONS, PLACES
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.registry import get_mixer, mixer_names, register_mixer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.architectures import archs, options_of
from posnet_fairseq.transformer.model_options import translation_model_fields
from support.checkpoints import checkpoint


@pytest.fixture
def clean_registry(monkeypatch):
    monkeypatch.setattr(registry, "_MIXERS", dict(registry._MIXERS))


@pytest.mark.parametrize("name", mixer_names())
def test_every_mixer_has_its_paper_places_test_and_row(name):
    mixer, folder = get_mixer(name), Path(__file__).parent
    assert "Eq" in mixer.__doc__
    assert "20" in mixer.__doc__, "the year of the paper"
    assert mixer.places
    assert set(mixer.places) <= set(PLACES)
    assert (folder / f"test_{name}.py").exists()
    assert f"`{mixer.arch}`" in (folder.parents[1] / "README.md").read_text()


def test_unknown_name_lists_names_and_the_nearest():
    with pytest.raises(UsageError, match=r"--cross-mixer atention: .* aposnet, arposnet, attention, .* attention\?"):
        get_mixer("atention", "--cross-mixer")


def test_a_name_is_given_once(clean_registry):
    with pytest.raises(ValueError, match=r"test_registry.*Attention cannot take .*mixers\.attention\.Attention"):

        @register_mixer("attention")
        class Attention(TokenMixer):
            pass


def test_architectures_belong_to_one_mixer(clean_registry):
    other = type("Other", (TokenMixer,), {})
    with pytest.raises(ValueError, match="transformer_pos names architectures of the mixer 'attention' already"):
        register_mixer("other", arch="transformer_pos")(other)
    with pytest.raises(ValueError, match="transformer_pos names architectures of"):
        register_mixer("transformer_pos")(other)


def test_a_mixer_is_a_token_mixer(clean_registry):
    with pytest.raises(ValueError, match="must extend"):
        register_mixer("nothing")(object)


@pytest.mark.parametrize("name", [3, None, "", "a,b", "my mixer", "Window", "1d", Attention], ids=str)
def test_names_are_those_that_options_can_have(clean_registry, name):
    with pytest.raises(ValueError, match=r"^mixer name .*: give lower-case letters, digits and _, as in @register_"):
        register_mixer(name)
    assert name not in mixer_names()


@pytest.mark.parametrize("place", PLACES)
def test_architectures_have_attention_where_a_mixer_cannot_stand(clean_registry, place):
    register_mixer("own")(type("Own", (Attention,), {"places": (place,)}))
    chosen = options_of("own", "tiny", 128)
    found = [getattr(chosen, option) for option in PLACE_OPTIONS.values()]
    assert found == ["own" if each == place else "attention" for each in PLACE_OPTIONS]
    assert costs("own", "tiny", 100, 20)[0] == costs("attention", "tiny", 100, 20)[0]


def test_an_unknown_place_is_refused():
    with pytest.raises(UsageError, match=r"place 'self': choose one of cross, decoder, encoder"):
        mixer_names(place="self")
    with pytest.raises(UsageError, match=r"^place 'cross': mixers on grids have none\. Leave out place or on_grids\.$"):
        mixer_names(on_grids=True, place="cross")


class Rate(Options):
    rate: float = option("not a field, as the decorator is forgotten", default=0.5)


@dataclass
class LowRate(Options):
    low_rate: float = option("below the usual limits", default=0.5)


@dataclass
class OpenRate(Options):
    open_rate: float = option("within its own limits", default=0.5, limits=(0, 1))


@dataclass
class NeededRate(Options):
    needed_rate: float = field(metadata={"help": "without a default"})


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"Config": NeededRate}, "the defaults of .*Config are refused: .*missing 1 required .*needed_rate"),
        ({"places": "encoder"}, r"places 'encoder' of .*: give a tuple of \('encoder', 'decoder', 'cross'\)"),
        ({"places": ("middle",)}, r"places \('middle',\)"),
        ({"Config": Rate}, r"\.Config must be a @dataclass"),
        ({"GridConfig": Rate}, r"\.GridConfig must be a @dataclass"),
        ({"Config": LowRate}, "the defaults of .*Config are refused: --low-rate 0.5: give 1 or more"),
    ],
)
def test_declarations_that_no_mixer_can_have_are_refused(clean_registry, attributes, sentence):
    with pytest.raises(ValueError, match=f"^mixer 'other': .*{sentence}"):
        register_mixer("other")(type("Other", (Attention,), attributes))


def test_numbers_have_limits_of_their_own(clean_registry):
    register_mixer("other")(type("Other", (Attention,), {"Config": OpenRate}))
    assert configure(OpenRate, {"open_rate": "0.25"}).open_rate == 0.25
    for given in (-0.5, "-0.5", 2):
        with pytest.raises(UsageError, match=f"--open-rate {given}: give 0 or more, and at most 1"):
            configure(OpenRate, {"open_rate": given})


def test_an_option_means_the_same_everywhere(clean_registry):
    @dataclass
    class Config:
        clip_distance: int = field(default=3, metadata={"help": "something else"})

    with pytest.raises(ValueError, match=r"'clip_distance': .*Other declares it differently"):
        register_mixer("other")(type("Other", (Attention,), {"Config": Config}))


@pytest.mark.parametrize("where", ["Config", "GridConfig"])
@pytest.mark.parametrize("name", ["encoder_layers", "seed", "lr", "arch", "max_positions"])
def test_mixers_have_no_options_of_models_fairseq_train_and_build_mixer(clean_registry, name, where):
    config = make_dataclass("Config", [(name, int, option("of others, too", default=3))], bases=(Options,))
    with pytest.raises(
        ValueError, match=rf"'{name}': .*Other\.{where} declares it, and models, fairseq-train or build_mixer"
    ):
        register_mixer("other")(type("Other", (Attention,), {where: config}))


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (Literal[1, 2], 1),
        (list, None),
        (tuple[int, int], None),
        (int | str, 1),
        (Literal["a"] | int, 1),
        (dict | None, None),
        (type(None), None),
    ],
)
@pytest.mark.parametrize("where", ["Config", "GridConfig"])
def test_options_have_types_that_a_command_line_can_give(clean_registry, kind, default, where):
    config = make_dataclass(
        "Config", [("other_size", kind, option("of another type", default=default))], bases=(Options,)
    )
    with pytest.raises(
        ValueError, match=rf"'other_size': .*Other\.{where} declares the type .*: give bool, int, float, str"
    ):
        register_mixer("other")(type("Other", (Attention,), {where: config}))


def test_types_may_be_texts(clean_registry):
    """As after `from __future__ import annotations`."""
    config = make_dataclass(
        "Config", [("part", "float | None", option("p", default=0.5, limits=(0, 1)))], bases=(Options,)
    )
    register_mixer("other")(type("Other", (Attention,), {"Config": config}))
    assert configure(config, {"part": "0.25"}).part == 0.25
    with pytest.raises(UsageError, match=r"--part 2\.0: give 0 or more, and at most 1"):
        configure(config, {"part": 2.0})
    config = make_dataclass("Config", [("part", "Unknown", option("p", default=0.5))], bases=(Options,))
    with pytest.raises(ValueError, match="types of its options are not found: name 'Unknown' is not defined"):
        register_mixer("another")(type("Another", (Attention,), {"Config": config}))


def test_a_class_of_another_name_is_replaced_with_a_warning(clean_registry):
    register_mixer("other")(type("First", (Attention,), {}))
    with pytest.warns(UserWarning, match="mixer 'other': .*Second replaces First of the same module"):
        register_mixer("other")(type("Second", (Attention,), {}))


def test_options_need_no_help(clean_registry):
    config = make_dataclass("Config", [("plain_width", int, field(default=3))], bases=(Options,))
    mixer = register_mixer("other")(type("Other", (Attention,), {"Config": config}))
    assert next(iter(option_rows(mixer))) == ("--plain-width", "a whole number", "3", "")


def late(default, **attributes):
    """A mixer as a cell of a notebook defines and registers it, each time that it is run."""

    @dataclass
    class Config(Options):
        late_distance: int = option(f"its help, with {default}", default=default)

    return register_mixer("late")(type("Late", (Attention,), {"Config": Config, "__module__": "a_cell", **attributes}))


def test_a_mixer_is_registered_at_any_time_and_again_after_it_was_edited(clean_registry, tmp_path):
    before = dict(registry._MIXERS)
    late(3)
    path = checkpoint(tmp_path / "late.pt", "late", late_distance=5)
    content = torch.load(path, weights_only=True)
    torch.save(content | {"cfg": content["cfg"] | {"common": {"user_dir": "/somewhere/my_mixers"}}}, path)
    edited = registry._MIXERS.copy()
    registry._MIXERS.clear()
    registry._MIXERS.update(before)
    assert "late_tiny" not in archs()
    with pytest.raises(UsageError, match=r"late_tiny of the plugin my_mixers.* in Python, import my_mixers first\.$"):
        posnet.load(path)
    registry._MIXERS.update(edited)
    assert "late_tiny" in archs()
    assert "late_distance" in {each.name for each in translation_model_fields()}
    cls = late(4)
    assert get_mixer("late") is cls
    assert {each.default for each in registry.option_fields().values() if each.name == "late_distance"} == {4}
    assert posnet.build_mixer("late", 8, 2, 16).settings.options.late_distance == 4
    assert any(type(module) is cls for module in posnet.load(path, pretokenized=True)._models[0].modules())
    with pytest.raises(ValueError, match=r"Late cannot take a name that belongs to a_cell\.Late"):
        late(3, __module__="another")


def test_parsers_of_fairseq_that_are_made_are_told(clean_registry, monkeypatch):
    monkeypatch.setattr(registry, "_parsed", registry._MIXERS)
    with pytest.warns(UserWarning, match=r"'late': a_cell\.Late comes too late for fairseq's own commands"):
        late(3)
    assert get_mixer("late").name == "late"
