"""What simulated crossbars are like, aihwkit's configuration of them, and which parts of a model can be there."""

import dataclasses
import importlib.util
import platform
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from posnet_fairseq.shared.errors import UsageError

PARTS = ("mixing", "projections", "feed-forward", "output")
# The version of aihwkit for each Python that it has wheels for.
AIHWKIT = {"3.11": "1.1.0", "3.12": "1.1.0", "3.13": "1.2.0", "3.14": "1.2.0"}
NOISES = ("pcm", "reram", "none")
UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "month": 30 * 86400, "y": 365 * 86400}
LONGEST = 100 * UNITS["y"]
BITS = (2, 24)
TILE_SIZES = (8, 4096)
# The model of Wan et al. (2022) was fitted to measurements after these seconds, and knows no others.
RERAM_TIMES = ("1s", "1d", "2d")
CONDUCTANCES = {"pcm": 25.0, "reram": 40.0}  # the largest in microsiemens, for which the models were fitted


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Simulated crossbars, between whose lines a pair of conductances stands for each weight.

    Attributes:
        noise: of the conductances: ``pcm``, phase-change memory (Nandakumar et al., ICECS 2019); ``reram``, resistive
            memory (Wan et al., Nature 2022); ``none``, exact conductances and converters without noise.
        dac_bits: of the converters of inputs.
        adc_bits: of the converters of outputs.
        tile_size: most inputs and most outputs of a crossbar; larger matrices take several.
    """

    noise: str = "pcm"
    dac_bits: int = 8
    adc_bits: int = 8
    tile_size: int = 256

    def configuration(self) -> Any:
        """Return a ``TorchInferenceRPUConfig`` of aihwkit.

        Each output line has a digital scale, by which its largest weight takes the largest conductance. Inputs are
        scaled by the largest of each vector. Where an output is beyond the range of its converter, the read is
        repeated with half the input. All else is aihwkit's default.
        """
        from aihwkit.inference import GlobalDriftCompensation, PCMLikeNoiseModel
        from aihwkit.inference.noise.reram import ReRamWan2022NoiseModel
        from aihwkit.simulator.configs import TorchInferenceRPUConfig

        config = TorchInferenceRPUConfig()
        config.mapping.weight_scaling_omega = 1.0
        config.mapping.weight_scaling_columnwise = True
        config.mapping.max_input_size = config.mapping.max_output_size = self.tile_size
        # Steps of converters as shares of their ranges: the outermost codes are equally far from 0.
        config.forward.inp_res, config.forward.out_res = (1 / (2**bits - 2) for bits in (self.dac_bits, self.adc_bits))
        config.drift_compensation = None
        if self.noise == "none":
            config.forward.out_noise = 0.0
        elif self.noise == "pcm":
            config.noise_model = PCMLikeNoiseModel(g_max=CONDUCTANCES["pcm"])
            config.drift_compensation = GlobalDriftCompensation()
        else:
            config.noise_model = ReRamWan2022NoiseModel(g_max=CONDUCTANCES["reram"])
        return config

    def describe(self) -> dict[str, Any]:
        """Return all parameters, for reports."""
        config = self.configuration()
        return dataclasses.asdict(self) | {
            "noise model": None if self.noise == "none" else type(config.noise_model).__name__,
            "largest conductance, microsiemens": CONDUCTANCES.get(self.noise),
            "drift compensation": None if config.drift_compensation is None else "GlobalDriftCompensation",
            "output noise, of the largest weight times the largest input": config.forward.out_noise,
            "output range, of the largest weight times the largest input": config.forward.out_bound,
            "input scale": config.forward.noise_management.name,
            "reads beyond the output range": config.forward.bound_management.name,
            "digital scale": "each output line of a tile",
        }


def seconds(text: str) -> int:
    """Return the seconds of a time such as ``25s``, ``1h`` or ``1y``; refuse what is none, or more than a century."""
    found = re.fullmatch(rf"(\d{{1,9}})({'|'.join(UNITS)})", text)
    if found is None or not 0 < int(found[1]) * UNITS[found[2]] <= LONGEST:
        raise UsageError(
            f"--time {text!r:.50}: give a number and a unit, s, min, h, d, month or y, without a space, from 1s to "
            "100y: 25s."
        )
    return int(found[1]) * UNITS[found[2]]


def check_times(noise: str, times: list[str]) -> None:
    """Refuse what is no time, and times that a noise model does not know."""
    for time in times:
        if seconds(time) not in map(seconds, RERAM_TIMES) and noise == "reram":
            raise UsageError(
                f"--time {time}: --noise reram was measured {', '.join(RERAM_TIMES[:-1])} and {RERAM_TIMES[-1]} "
                "after programming, and is known then only. Give one of these, or --noise pcm."
            )


def require_aihwkit() -> None:
    """Check that aihwkit, which simulates the crossbars, is installed."""
    if importlib.util.find_spec("aihwkit") is not None:
        return
    version = AIHWKIT.get(".".join(platform.python_version_tuple()[:2]))
    if version is None or platform.machine() != "x86_64":
        raise UsageError(
            f"posnet-analog needs aihwkit, which has no wheel for Python {platform.python_version()} on "
            f"{platform.machine()}. Install posnet with Python 3.11 to 3.14 on x86_64."
        )
    # Its wheel demands torchvision for examples, of a version that would replace torch by another.
    raise UsageError(
        "posnet-analog needs aihwkit, which is not installed. Run "
        f"{shlex.quote(sys.executable)} -m pip install --no-deps aihwkit=={version}; what it needs is there."
    )


def parse_parts(option: str, text: str, parts: Sequence[str] = PARTS) -> tuple[str, ...]:
    """Return the parts that an option names, with commas between, in the order of all of them."""
    given = text.split(",")
    if not set(given) <= set(parts) or len(set(given)) < len(given):
        raise UsageError(f"{option} {text!r:.80}: give one or more of {', '.join(parts)}, with commas between.")
    return tuple(part for part in parts if part in given)
