"""posnet-rerank: of several candidate translations of each line, the one of minimum Bayes risk."""

import argparse
from pathlib import Path

from posnet_eval.minimum_bayes_risk import UTILITIES, best_candidates, check_utility
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.files import a_path, check_place, check_stdout, print_lines, write_lines
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.text.plain import read_candidates


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of posnet-rerank's options."""
    parser = argparse.ArgumentParser(
        prog="posnet-rerank",
        description="Choose for each line the candidate that is most like all candidates (minimum Bayes risk), such as "
        "of samples: posnet-translate --sampling --beam 64 --nbest 64 --json.",
    )
    parser.add_argument(
        "candidates",
        type=a_path,
        nargs="+",
        help="outputs of posnet-translate --nbest, as JSON or not; those of several systems are joined line by line",
    )
    parser.add_argument("--utility", choices=UTILITIES, default="chrf", help="of a sentence (default: %(default)s)")
    parser.add_argument("--output", type=a_path, default=Path("-"), help="file to write (default: standard output)")
    return parser


@parsed_by(make_parser)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-rerank."""
    check_utility(options.utility)
    if str(options.output) == "-":
        check_stdout()
    else:
        check_place(options.output, "--output", options.candidates)
    lines = read_candidates(*options.candidates)
    report = ProgressReporter()
    with report.stage("rerank", total=len(lines)) as bar:
        chosen = list(bar.over(best_candidates(lines, options.utility)))
    if str(options.output) == "-":
        print_lines(chosen)
    else:
        write_lines(options.output, chosen)
