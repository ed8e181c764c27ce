"""A matrix on simulated crossbars: exact without noise, and aihwkit's own layer with noise."""

import pytest
import torch
from aihwkit.nn import AnalogLinear
from aihwkit.simulator.tiles.array import TileModuleArray
from torch import nn

from posnet_fairseq.analog.crossbar_matrix import CrossbarMatrix, on_crossbars
from posnet_fairseq.analog.hardware import Hardware

IDEAL = Hardware(noise="none", dac_bits=24, adc_bits=24)
NOISY = Hardware(noise="pcm", dac_bits=7, adc_bits=6)
EXACT = {"rtol": 0, "atol": 1e-4}


def of(hardware, tile_size=256):
    return Hardware(**{**vars(hardware), "tile_size": tile_size}).configuration()


def program(module, seed=5, time=3600.0):
    torch.manual_seed(seed)
    for tile in module.analog_tiles():
        tile.program_weights()
        tile.drift_weights(time)


@pytest.mark.parametrize("tile_size", [8, 256])
def test_without_noise_and_with_enough_bits_it_is_the_digital_layer(tile_size):
    linear = nn.Linear(21, 19).eval()
    x = torch.randn(4, 3, 21)
    torch.testing.assert_close(on_crossbars(linear, of(IDEAL, tile_size))(x), linear(x), **EXACT)


@pytest.mark.parametrize("tile_size", [8, 256])
@pytest.mark.parametrize("hardware", [NOISY, Hardware(noise="none", dac_bits=4, adc_bits=5)], ids=str)
def test_one_layer_is_aihwkits_own_with_the_same_configuration_and_seed(hardware, tile_size):
    linear = nn.Linear(21, 19).eval()
    x = torch.randn(4, 3, 21)
    found = []
    for layer in (
        on_crossbars(linear, of(hardware, tile_size)),
        AnalogLinear.from_digital(linear, of(hardware, tile_size), TileModuleArray).eval(),
    ):
        if hardware.noise != "none":
            program(layer)
        torch.manual_seed(6)
        found.append(layer(x))
    assert torch.equal(*found)
    assert not torch.allclose(found[0], linear(x), **EXACT)


@pytest.mark.parametrize("tile_size", [8, 256])
def test_any_rows_are_read_with_any_number_of_inputs(tile_size):
    weight = torch.randn(19, 21)
    matrix = CrossbarMatrix(weight, of(IDEAL, tile_size))
    for inputs in (1, 7, 8, 9, 16, 21):
        x = torch.randn(2, 3, inputs)
        for first, count in ((0, 19), (0, 1), (6, 1), (7, 1), (5, 4), (18, 1), (8, 11)):
            expected = x @ weight[first : first + count, :inputs].T
            torch.testing.assert_close(matrix.read(x, first, count), expected, **EXACT)


def test_all_rows_are_read_as_aihwkit_reads_them():
    """With the noise of conductances and of converters."""
    matrix = CrossbarMatrix(torch.randn(19, 21), of(NOISY))
    program(matrix.layer)
    x = torch.randn(5, 21)
    torch.manual_seed(7)
    expected = matrix.layer(x)
    torch.manual_seed(7)
    torch.testing.assert_close(matrix.read(x, 0, 19), expected)


def test_each_output_line_has_its_scale():
    """A row of small weights is as exact as one of large weights: both take the largest conductance."""
    weight = torch.tensor([[1.0, -0.5], [1e-3, -5e-4]])
    matrix = CrossbarMatrix(weight, Hardware(noise="none", dac_bits=8, adc_bits=8).configuration())
    large, small = matrix.read(torch.tensor([1.0, 0.3]), 0, 2)
    torch.testing.assert_close(large, 1e3 * small)


@pytest.mark.parametrize(("noise", "time"), [("pcm", 25.0), ("reram", 86400.0)])
def test_conductances_are_noisy(noise, time):
    linear = nn.Linear(64, 64).eval()
    layer = on_crossbars(linear, Hardware(noise=noise).configuration())
    program(layer, time=time)
    error = layer.get_weights()[0] - linear.weight
    scale = linear.weight.abs().amax(dim=1, keepdim=True)
    assert 0.005 < (error / scale).std() < 0.15


def test_vectors_of_subnormal_numbers_are_zeros():
    """Their largest number has no finite inverse."""
    torch.manual_seed(1)
    x = torch.stack([torch.randn(6), torch.tensor([2e-43, 0, 0, -1e-42, 0, 0]), torch.zeros(6)])
    assert x[1].any()
    layer = on_crossbars(nn.Linear(6, 4), of(IDEAL))
    matrix = CrossbarMatrix(torch.randn(4, 6), of(IDEAL))
    for y in (layer(x), matrix.read(x, 0, 4)):
        assert torch.isfinite(y).all()
        torch.testing.assert_close(y[1], y[2])
