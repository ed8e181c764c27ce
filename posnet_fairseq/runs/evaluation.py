"""fairseq-eval-lm that leaves the perplexity for the run: ``python -m posnet_fairseq.runs.evaluation ARGUMENT ...``."""

import sys
from collections.abc import Sequence

from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.results import leave_result


def evaluating(arguments: Sequence[str]) -> list[str]:
    """Return the command that evaluates a language model; arguments are those of fairseq-eval-lm."""
    return [sys.executable, "-m", __name__, *arguments]


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """Evaluate a language model."""
    from posnet_fairseq.runs.before_training import register_models  # imports torch

    words = sys.argv[1:] if arguments is None else list(arguments)
    register_models(words)
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq_cli import eval_lm

    parsed = options.parse_args_and_arch(options.get_eval_lm_parser(), input_args=words)
    leave_result(perplexity=float(eval_lm.main(convert_namespace_to_omegaconf(parsed))["perplexity"]))


if __name__ == "__main__":
    main()
