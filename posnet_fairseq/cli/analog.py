"""posnet-analog: a trained model with parts on simulated memristive crossbars."""

import argparse
import json

from posnet_fairseq.analog import hardware
from posnet_fairseq.inference.options import add_text_options, text_options
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import a_path, check_folder, check_stdout, path_text
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.schema import check_numbers


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posnet-analog",
        description="Translate with a model whose parts are on memristive crossbars, which aihwkit simulates, after "
        "each of several programmings, and compare the scores with those of the digital model.",
    )
    parser.add_argument("model", type=path_text, help="checkpoint or model folder; with stored energies for mixing")
    parser.add_argument(
        "--on",
        required=True,
        metavar="PARTS",
        help=f"what is on crossbars, of {', '.join(hardware.PARTS)}, with commas between: mixing weights of "
        "position-based mixers, projections of mixers, feed-forward layers, the projection to the scores of words",
    )
    names = ("SOURCE", "REFERENCE")
    parser.add_argument("--test", nargs=2, type=a_path, required=True, metavar=names, help="source and reference files")
    parser.add_argument(
        "--out",
        type=a_path,
        required=True,
        metavar="FOLDER",
        help="output folder; interrupted runs are resumed",
    )
    parser.add_argument(
        "--noise", choices=hardware.NOISES, default="pcm", help="model of the conductances (default: pcm)"
    )
    parser.add_argument(
        "--time",
        nargs="+",
        default=["1d"],
        help="time since programming: 25s, 1h, 1d, 1month, 1y; several are compared (default: 1d)",
    )
    parser.add_argument(
        "--adc-bits",
        nargs="+",
        type=int,
        default=[8],
        metavar="BITS",
        help="resolution of outputs (ADC); several are compared (default: 8)",
    )
    parser.add_argument("--dac-bits", type=int, default=8, metavar="BITS", help="resolution of inputs (default: 8)")
    parser.add_argument(
        "--tile-size", type=int, default=256, help="most inputs and outputs of a crossbar (default: 256)"
    )
    parser.add_argument(
        "--renormalize",
        "--renormalise",
        action="store_true",
        help="divide mixed values by the sums of weights as the crossbars read them (default: by the exact sums)",
    )
    what = "number of simulated programmings (default: 10, or 1 with --noise none)"
    parser.add_argument("--programmings", type=int, help=what)
    parser.add_argument("--seed", type=int, default=1, help="random seed (default: 1)")
    parser.add_argument("--beam", type=int, help="hypotheses of the search (default: the model's own)")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    add_text_options(parser)
    return parser


@parsed_by(_parser, has_mixers=True)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-analog."""
    parts = hardware.parse_parts("--on", options.on)
    hardware.check_times(options.noise, options.time)
    if options.programmings is None:
        options.programmings = 1 if options.noise == "none" else 10
    check_numbers(
        options,
        adc_bits=hardware.BITS,
        dac_bits=hardware.BITS,
        tile_size=hardware.TILE_SIZES,
        programmings=(1, 1000),
        seed=(0, 2**31 - 1),
    )
    if options.noise == "none" and options.programmings > 1:
        raise UsageError(f"--programmings {options.programmings} with --noise none: all would be equal. Leave it out.")
    check_folder(options.out)
    check_stdout()
    hardware.require_aihwkit()
    report = ProgressReporter()
    from posnet_fairseq.analog.experiment import Experiment, run_experiment

    same = ("model", "programmings", "renormalize", "seed", "beam", "data", "out")
    experiment = Experiment(
        **{name: getattr(options, name) for name in same},
        parts=parts,
        hardware=hardware.Hardware(noise=options.noise, dac_bits=options.dac_bits, tile_size=options.tile_size),
        adc_bits=tuple(dict.fromkeys(options.adc_bits)),
        times=tuple({hardware.seconds(time): time for time in options.time}.values()),
        test=tuple(options.test),
        text=text_options(options),
    )
    result = run_experiment(experiment, report)
    print(json.dumps(result.rows(), ensure_ascii=False, indent=1) if options.json else result)
