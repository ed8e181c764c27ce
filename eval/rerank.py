"""posnet-rerank: of several candidate translations of each line, the one of minimum Bayes risk."""

import argparse

from posnet_eval.inputs import plan as plans
from posnet_eval.minimum_bayes_risk import AT_ONCE, UTILITIES, best_candidates, metric_of
from posnet_fairseq.shared.common_options import add_device_option, add_resume_option, parsed_by
from posnet_fairseq.shared.errors import counted
from posnet_fairseq.shared.files import path_text
from posnet_fairseq.shared.finished_windows import check_output, open_output
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.records import installed_versions
from posnet_fairseq.text.plain import read_candidates


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of posnet-rerank's options."""
    parser = argparse.ArgumentParser(
        prog="posnet-rerank",
        description="Choose for each line the candidate that is most like all candidates (minimum Bayes risk), such as "
        "of samples: posnet-translate --sampling --beam 64 --nbest 64 --json. With --output, an interrupted run "
        "continues where it stopped.",
    )
    parser.add_argument(
        "candidates",
        type=path_text,
        nargs="+",
        help="outputs of posnet-translate --nbest, as JSON or not; those of several systems are joined line by line",
    )
    parser.add_argument(
        "--utility",
        choices=UTILITIES,
        default="chrf",
        help="of a sentence; comet-kiwi is no minimum Bayes risk, but takes the candidate of the highest COMETKiwi, "
        "which compares it with the source alone (default: %(default)s)",
    )
    parser.add_argument("--source", type=path_text, help="source text, which COMET and COMETKiwi need")
    plans.add_model_options(parser, plans.MODELS[1:])
    add_device_option(parser)
    parser.add_argument("--output", type=path_text, default="-", help="file to write (default: standard output)")
    add_resume_option(parser)
    return parser


@parsed_by(make_parser)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-rerank."""
    check_output(options.output, [*options.candidates, *filter(None, [options.source])], options.resume)
    lines, sources = read_candidates(*options.candidates, source=options.source)
    models = {name: getattr(options, name) for name in plans.MODELS[1:]}
    given = {name: model for name, model in models.items() if model is not None}
    metric = metric_of(options.utility, bool(options.source), options.device, given)
    depends = metric.details() if metric else installed_versions("fastchrf", "sacrebleu")
    work = {"utility": options.utility, **installed_versions("posnet"), **depends}
    report, cut, earlier = ProgressReporter(), 0, 0
    with (
        open_output(options.output, work, options.resume, report.say, at_once=False) as output,
        report.stage("rerank", total=len(lines)) as bar,
    ):
        for start in range(0, len(lines), AT_ONCE):
            part, of_part = lines[start : start + AT_ONCE], sources[start : start + AT_ONCE]
            if output.has([*part, of_part]):
                earlier = start + len(part)
                bar.go_on_from(earlier)
                continue
            output.add([*part, of_part], list(best_candidates(part, of_part, options.utility, metric)))
            cut += len(metric.cut) if metric else 0
            bar.advance(len(part))
    if metric and cut:
        have = counted(cut, "line has", "lines have")
        after = f"from line {earlier + 1:,} on, " if earlier else ""
        report.say(f"{after}{have} a text that is longer than {metric.label} reads, whose end does not count")
