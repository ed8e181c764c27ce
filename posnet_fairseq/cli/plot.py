"""posnet-plot: pictures of the mixers of a model, of trainings and of comparisons."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from posnet_fairseq.inference.options import add_text_options, add_to_option, text_options
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import a_path, check_folder, check_place, path_text
from posnet_fairseq.shared.progress import ProgressReporter, shown

# torch and posnet_fairseq.plots are imported where they are used: each takes a second.


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="posnet-plot", description="Draw pictures.")
    what = parser.add_subparsers(dest="what", required=True, metavar="{weights,gates,curves,compare,study,analog}")

    weights = what.add_parser("weights", help="mixing weights, energies and profiles by distance of a checkpoint")
    weights.add_argument(
        "--sentence",
        help="plain text of the source language, which the model translates, or for a language model any text; all "
        "mixers are drawn. Without it: only static weights, which depend on positions and not on tokens",
    )
    gates = what.add_parser("gates", help="latent weights β of gates (PosNet Eqs. 5-7 and 19) for a sentence")
    gates.add_argument("--sentence", required=True, help="as for weights")
    for one in (weights, gates):
        one.add_argument("checkpoint", type=path_text, help="checkpoint or model folder")
        add_text_options(one)
        add_to_option(one)
        one.set_defaults(draw=_of_model)

    lines = what.add_parser("curves", help="loss, perplexity, learning rate and speed of trainings")
    lines.add_argument(
        "runs", type=path_text, nargs="+", help="folders of runs, or logs of fairseq-train with --log-format json"
    )
    analog = what.add_parser("analog", help="scores of posnet-analog against time and bits of converters")
    analog.add_argument("folders", type=path_text, nargs="+", help="folders of posnet-analog, one for each line")
    for one, name in ((lines, "curves"), (analog, "analog")):
        one.add_argument("--out", type=path_text, default=name, help=f"path without .png and .svg (default: {name})")
        one.set_defaults(draw=_picture)

    report = what.add_parser(
        "compare", help="scores of a report against parameters and speed, and with and without gates"
    )
    report.add_argument("report", type=path_text, help="report.json of posnet-score")
    report.set_defaults(draw=_compare)

    study = what.add_parser("study", help="tables and pictures of a study, from the results of its runs")
    study.add_argument("study", help="its name, as for posnet-run study")
    study.add_argument(
        "--results", type=a_path, metavar="FOLDER", help="folder of the results (default: results/STUDY)"
    )
    study.set_defaults(draw=_study)
    either = weights.add_mutually_exclusive_group()
    either.add_argument(
        "--npz", type=a_path, metavar="FILE", help="write the weights of all heads to this file for numpy, no pictures"
    )
    takers: list[argparse.ArgumentParser | argparse._MutuallyExclusiveGroup] = [either, gates, report, study]
    for taker in takers:
        taker.add_argument(
            "--out", type=a_path, default=Path("figures"), help="folder of the pictures (default: figures)"
        )
    return parser


def _of_model(options: argparse.Namespace, report: ProgressReporter) -> Iterable[Path]:
    from posnet_fairseq.inference.inspection import of_texts, save
    from posnet_fairseq.inference.model_folder import files_of_data, files_of_models
    from posnet_fairseq.plots import of_model

    npz = getattr(options, "npz", None)
    if npz:
        optional = filter(None, (options.bpe_codes, options.sentencepiece_model))
        check_place(npz, "--npz", [*files_of_models([options.checkpoint]), *optional])
    else:
        check_folder(options.out)
    if options.sentence is None:
        if options.to is not None:
            raise UsageError(f"--to {options.to} chooses the language of a translation. Give --sentence, too.")
        mixings, title = of_model.without_sentence(options.checkpoint), options.checkpoint
    else:
        from posnet_fairseq.inference.model_loading import load_models
        from posnet_fairseq.inference.search.search_settings import SearchSettings
        from posnet_fairseq.text.pipeline import choose_pipeline

        title = f"{options.checkpoint}: {options.sentence}"
        models, vocabulary, folder, _ = load_models([options.checkpoint], options.data, generates=None)
        if npz:
            check_place(npz, "--npz", files_of_data(folder))
        text = choose_pipeline(folder, vocabulary.languages, **text_options(options)).towards(options.to)
        search = SearchSettings(beam=5, max_len_a=2, max_len_b=20)
        mixings, translation = of_texts(models[0], vocabulary, text, options.sentence, None, search)
        title += "" if translation is None else f" → {translation}"
    if npz:
        save(npz, of_model.with_weights(mixings, report))
        return [npz]
    of_model.draw(options.what, mixings, options.out, title, report)
    report.say(f"{shown(options.out / f'{options.what}.html')} shows every head; pictures of it are beside it")
    return ()


def _picture(options: argparse.Namespace, _: ProgressReporter) -> Iterable[Path]:
    from posnet_fairseq.plots import crossbar_pictures, curves

    if options.out.endswith("/"):
        raise UsageError(f"--out {options.out} is the name of a folder. Give that of a picture.")
    place = Path(options.out)
    if place.suffix.lower() in (".pdf", ".eps", ".ps", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".html", ".txt"):
        raise UsageError(f"--out {options.out}: .png and .svg are written. Leave the ending out.")
    place = place.with_suffix("") if place.suffix in (".png", ".svg") else place
    if options.what == "analog":
        return crossbar_pictures.draw(options.folders, place)
    return curves.draw(curves.logs_of(options.runs), place)


def _compare(options: argparse.Namespace, report: ProgressReporter) -> Iterable[Path]:
    from posnet_fairseq.plots import score_pictures

    check_folder(options.out)
    return score_pictures.draw(options.report, options.out, report)


def _study(options: argparse.Namespace, _: ProgressReporter) -> Iterable[Path]:
    from posnet_fairseq.studies import pictures

    return pictures.publish(options.study, options.results or Path("results", options.study), options.out)


@parsed_by(_parser, prints_result=False, has_mixers=True)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-plot."""
    report = ProgressReporter()
    for path in options.draw(options, report):
        report.say(f"{options.what}: {shown(path)}")
