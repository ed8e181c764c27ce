"""posnet-plot: pictures of the mixers of a model, of trainings and of comparisons."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from posnet_fairseq.inference.text_options import add_text_options, text_options
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import a_path, check_folder, path_text
from posnet_fairseq.shared.progress import ProgressReporter, shown

if TYPE_CHECKING:
    from posnet_fairseq.plots.inspection import Mixing

# torch and posnet_fairseq.plots are imported where they are used: each takes a second.


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="posnet-plot", description="Draw pictures.")
    what = parser.add_subparsers(dest="what", required=True, metavar="{weights,gates,curves,compare,study,analog}")

    weights = what.add_parser("weights", help="mixing weights, energies and profiles by distance of a checkpoint")
    weights.add_argument("checkpoint", type=path_text, help="checkpoint or model folder")
    weights.add_argument(
        "--sentence",
        help="plain text of the source language, which the model translates, or for a language model any text; all "
        "mixers are drawn. Without it: only static weights, which depend on positions and not on tokens",
    )
    weights.set_defaults(draw=_weights)

    gates = what.add_parser("gates", help="latent weights β of gates (PosNet Eqs. 5-7 and 19) for a sentence")
    gates.add_argument("checkpoint", type=path_text, help="checkpoint or model folder")
    gates.add_argument("--sentence", required=True, help="as for weights")
    gates.set_defaults(draw=_gates)
    for one in (weights, gates):
        add_text_options(one)
        _add_folder(one)

    lines = what.add_parser("curves", help="loss, perplexity, learning rate and speed of trainings")
    lines.add_argument(
        "runs", type=path_text, nargs="+", help="folders of runs, or logs of fairseq-train with --log-format json"
    )
    lines.add_argument("--out", type=path_text, default="curves", help="where to, .png and .svg (default: curves)")
    lines.set_defaults(draw=_curves)

    report = what.add_parser(
        "compare", help="scores of a report against parameters and speed, and with and without gates"
    )
    report.add_argument("report", type=path_text, help="report.json of posnet-score")
    _add_folder(report)
    report.set_defaults(draw=_compare)

    study = what.add_parser("study", help="tables and pictures of a study, from the results of its runs")
    study.add_argument("study", help="its name, as for posnet-run study")
    study.add_argument(
        "--results", type=a_path, metavar="FOLDER", help="folder of the results (default: results/STUDY)"
    )
    _add_folder(study)
    study.set_defaults(draw=_study)

    analog = what.add_parser("analog", help="scores of posnet-analog against time and bits of converters")
    analog.add_argument("folders", type=path_text, nargs="+", help="of posnet-analog, one for each line")
    analog.add_argument("--out", type=path_text, default="analog", help="where to, .png and .svg (default: analog)")
    analog.set_defaults(draw=_analog)
    return parser


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=a_path, default=Path("figures"), help="folder of the pictures (default: figures)")


def _weights(options: argparse.Namespace, report: ProgressReporter) -> None:
    from posnet_fairseq.plots import of_model

    check_folder(options.out)
    if options.sentence is None:
        mixings, title = of_model.without_sentence(options.checkpoint), options.checkpoint
    else:
        mixings, title = _with_sentence(options)
    of_model.draw_weights(mixings, options.out, title, report)
    report.say(f"{shown(options.out / 'weights.html')} shows every head; pictures of it are beside it")


def _gates(options: argparse.Namespace, report: ProgressReporter) -> None:
    from posnet_fairseq.plots import of_model

    check_folder(options.out)
    mixings, title = _with_sentence(options)
    of_model.draw_gates(mixings, options.out, title, report)
    report.say(f"{shown(options.out / 'gates.html')} shows every head; pictures of it are beside it")


def _with_sentence(options: argparse.Namespace) -> tuple[list[Mixing], str]:
    """The mixers on the sentence of the options, and a title."""
    from posnet_fairseq.inference.checkpoints import is_language_model
    from posnet_fairseq.inference.model_folder import read_model
    from posnet_fairseq.inference.models import load_language_model, load_models
    from posnet_fairseq.plots import of_model
    from posnet_fairseq.text.pipeline import choose_pipeline

    title = f"{options.checkpoint}: {options.sentence}"
    if is_language_model(read_model(options.checkpoint)):
        model, vocabulary, folder = load_language_model(options.checkpoint, options.data)
        text = choose_pipeline(folder, vocabulary.languages, **text_options(options))
        return of_model.with_text(model, vocabulary, text, options.sentence), title
    models, vocabulary, folder, _ = load_models([options.checkpoint], options.data)
    text = choose_pipeline(folder, vocabulary.languages, **text_options(options))
    mixings, translation = of_model.with_sentence(models, vocabulary, text, options.sentence)
    return mixings, f"{title} → {translation}"


def _curves(options: argparse.Namespace, report: ProgressReporter) -> None:
    from posnet_fairseq.plots import curves

    for path in curves.draw(curves.logs_of(options.runs), _picture(options.out)):
        report.say(f"curves: {shown(path)}")


def _analog(options: argparse.Namespace, report: ProgressReporter) -> None:
    from posnet_fairseq.plots import crossbars

    for path in crossbars.draw(options.folders, _picture(options.out)):
        report.say(f"analog: {shown(path)}")


def _picture(out: str) -> Path:
    """The place of a picture without its suffix."""
    if out.endswith("/"):
        raise UsageError(f"--out {out} is the name of a folder. Give that of a picture.")
    place = Path(out)
    return place.with_suffix("") if place.suffix in (".png", ".svg") else place


def _compare(options: argparse.Namespace, report: ProgressReporter) -> None:
    from posnet_fairseq.plots import comparison

    check_folder(options.out)
    for path in comparison.draw(options.report, options.out, report):
        report.say(f"compare: {shown(path)}")


def _study(options: argparse.Namespace, report: ProgressReporter) -> None:
    from posnet_fairseq.studies import pictures

    folder = options.results or Path("results", options.study)
    for path in pictures.publish(options.study, folder, options.out):
        report.say(f"study: {shown(path)}")


@command
@parsed_by(_parser, prints_result=False, has_mixers=True)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-plot."""
    options.draw(options, ProgressReporter())
