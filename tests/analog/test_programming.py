"""What noise crossbars get depends on the seed, the programming and their name."""

import itertools

import torch

from posnet_fairseq.analog.convert import put_on_crossbars
from posnet_fairseq.analog.experiment import let_drift, program, tiles
from posnet_fairseq.analog.hardware import Hardware
from posnet_fairseq.inference.stored_energies import precompute
from support.building import Case, build_case


def model(*parts, bits=8):
    torch.manual_seed(1)
    made = build_case(Case("rposnet", "decoder", "gelu"))
    precompute(made)
    put_on_crossbars(made, parts, Hardware(adc_bits=bits).configuration(), (9, 9))
    return made


def conductances(made):
    return {name: tile.tile.get_weights() for name, tile in tiles(made).items()}


def after(made, seed, number, time=None):
    program(made, seed, number)
    if time is not None:
        let_drift(made, seed, number, time)
    return conductances(made)


def equal(some, others):
    return [torch.equal(some[name], others[name]) for name in some]


def test_the_same_seed_and_number_give_the_same():
    made = model("mixing", "feed-forward")
    first = after(made, 1, 1, 3600)
    assert all(equal(first, after(model("mixing", "feed-forward"), 1, 1, 3600)))
    assert not any(equal(first, after(made, 1, 2, 3600)))
    assert not any(equal(first, after(made, 2, 1, 3600)))
    assert all(equal(first, after(made, 1, 1, 3600)))


def test_other_parts_and_converters_change_nothing():
    first = after(model("mixing"), 1, 1, 3600)
    assert all(equal(first, after(model("mixing", "feed-forward", "output"), 1, 1, 3600)))
    assert all(equal(first, after(model("mixing", bits=4), 1, 1, 3600)))


def test_conductances_drift_from_what_was_programmed():
    made = model("mixing")
    programmed, hour = after(made, 1, 1), after(made, 1, 1, 3600)
    let_drift(made, 1, 1, 365 * 86400)
    year = conductances(made)
    for name in programmed:
        size = [values[name].abs().sum() for values in (programmed, hour, year)]
        assert size[0] > size[1] > size[2]


def test_no_two_crossbars_get_the_same_noise():
    made = model("mixing")
    ideal = {name: tile.tile.get_weights().clone() for name, tile in tiles(made).items()}
    noise = [weights - ideal[name] for name, weights in after(made, 1, 1).items()]
    assert len(noise) == 8  # two heads of two mixers in the encoder, and in the decoder
    assert not any(torch.allclose(one, other) for one, other in itertools.combinations(noise, 2))
