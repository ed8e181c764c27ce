"""posnet-mixers --crossbars: reads and conversions are those that a translation on crossbars makes."""

import json
from collections import Counter

import pytest
import torch
from aihwkit.simulator.tiles.analog_mvm import AnalogMVM

from posnet_fairseq.analog.convert import put_on_crossbars
from posnet_fairseq.analog.hardware import PARTS, Hardware
from posnet_fairseq.cli import mixers
from posnet_fairseq.costs import counting
from posnet_fairseq.costs.crossbar_counts import Count, count, mixing
from posnet_fairseq.inference.search.ensemble import Decoding
from posnet_fairseq.inference.stored_energies import precompute
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.transformer.sizes import SIZES
from support.commands import refused

LENGTH, TILE_SIZE, WORDS = 16, 96, 40


def counted(model, monkeypatch):
    """Reads and conversions of a translation."""
    seen = Counter(reads=0, dac=0, adc=0)

    def matmul(cls, weight, x, io_pars, trans=False, is_test=False, **others):
        vectors = x[..., 0].numel()
        seen.update(reads=vectors, dac=vectors * weight.size(1), adc=vectors * weight.size(0))
        return x @ weight.T

    monkeypatch.setattr(AnalogMVM, "matmul", classmethod(matmul))
    with torch.no_grad():
        search = Decoding(model, torch.full((1, LENGTH), 5))
        for _ in range(LENGTH):
            list(search.step(torch.tensor([6]), 1)[0])
    return dict(seen)


def on_crossbars(name, parts, tile_size):
    model = counting.build(name, "tiny", WORDS, LENGTH, device="cpu")
    precompute(model)
    configuration = Hardware(noise="none", tile_size=tile_size).configuration()
    put_on_crossbars(model, parts, configuration, (LENGTH, LENGTH))
    return model


@pytest.mark.parametrize("name", mixer_names())
@pytest.mark.thorough  # 25 s; quick: test_mixing_weights_on_several_crossbars
def test_reads_and_conversions_are_those_of_decoding(name, monkeypatch):
    parts = PARTS if issubclass(get_mixer(name), PositionBasedMixer) else PARTS[1:]
    seen = counted(on_crossbars(name, parts, TILE_SIZE), monkeypatch)
    found = count(name, "tiny", WORDS, LENGTH, TILE_SIZE)
    assert {"reads": found.reads, "dac": found.dac, "adc": found.adc} == seen


def test_mixing_weights_on_several_crossbars(monkeypatch):
    """A matrix of mixing weights that is larger than a crossbar takes several."""
    seen = counted(on_crossbars("rposnet", ["mixing"], 8), monkeypatch)
    sides = LENGTH * LENGTH, LENGTH * (LENGTH + 1) / 2  # pairs that meet in the encoder, and in steps of the decoder
    blocks = 4, 8 * 1 + 8 * 2  # crossbars that a feature is on in a full pass, and in all steps
    layers, width = 3, 192
    assert seen["reads"] == layers * width * sum(blocks)
    assert seen["dac"] == layers * width * (2 * LENGTH + sides[1])
    assert seen["adc"] == layers * width * (2 * LENGTH + blocks[1])
    plain = counting.build("rposnet", "tiny", WORDS, LENGTH)
    mixers = [module for module in plain.modules() if isinstance(module, PositionBasedMixer)]
    assert seen.items() <= vars(sum((mixing(each, LENGTH, 8) for each in mixers), start=Count())).items()


@pytest.mark.parametrize(("name", "pairs"), [("attention", 2), ("shaw", 2), ("relative", 2), ("rposnet", 0)])
def test_products_of_tokens_stay_digital(name, pairs):
    """Queries by keys and weights by values, in the encoder and the decoder; and of attention across them."""
    layers, width, clip = 3, 192, 8
    attention = 2 * LENGTH**2 * width
    mixing = pairs * LENGTH**2 * width
    if name in ("shaw", "relative"):  # queries by a table; relative has no keys
        mixing += LENGTH * (2 * clip + 1) * width - (name == "relative") * LENGTH**2 * width
    if name == "attention":
        mixing = attention
    assert count(name, "tiny", WORDS, LENGTH, TILE_SIZE).digital == layers * (2 * mixing + attention)


def test_all_multiplications_by_stored_weights_are_counted():
    layers, width, inner, length = 3, 192, SIZES["tiny"].ffn_embed_dim, LENGTH
    rposnet = 2 * length**2 * width + 2 * 4 * length * width**2 - 2 * length * width**2
    cross = 4 * length * width**2
    feed_forward = 2 * 2 * length * width * inner
    found = count("rposnet", "tiny", WORDS, length, TILE_SIZE)
    assert found.static == layers * (rposnet + cross + feed_forward) + length * width * WORDS


@pytest.mark.thorough  # 4 s
def test_table_and_json(capsys):
    mixers.main("rposnet --crossbars --size tiny --tile-size 64 --joules adc=1e-12".split())
    assert "joules" in capsys.readouterr().out
    mixers.main("rposnet --crossbars --size tiny --joules adc=2e-12 digital=1e-12 --json".split())
    (row,) = json.loads(capsys.readouterr().out)
    assert row["joules"] == pytest.approx(2e-12 * row["adc"] + 1e-12 * row["digital"])
    mixers.main("--crossbars --size tiny --json".split())
    rows = json.loads(capsys.readouterr().out)
    assert [row["mixer"] for row in rows] == mixer_names()
    assert all("joules" not in row and 0.5 < row["static share"] < 1 for row in rows)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--tile-size 64", "--tile-size is an option of --crossbars."),
        ("--crossbars --grid 3x4", "--crossbars --grid: give one of the two."),
        ("--crossbars --tile-size 0", "--tile-size 0: give 8 or more"),
        ("--crossbars --joules adc", "--joules: 'adc': give joules of digital, static, reads, dac, adc, such as"),
    ],
)
def test_bad_input(capsys, arguments, sentence):
    assert sentence in refused(capsys, mixers.main, *arguments.split())
