"""The command line of posnet-score."""

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path

from posnet_eval.inputs.configuration import language_pair, read_plan
from posnet_eval.inputs.plan import RESAMPLES, SEED, TESTS, TRIALS, Plan, TestSet
from posnet_eval.metrics import METRICS
from posnet_eval.metrics.base import MetricOptions
from posnet_eval.statistics.cache import usual_place
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.files import a_path
from posnet_fairseq.shared.processes import check_workers, cores
from posnet_fairseq.shared.progress import shown

# What a configuration file says too; a flag has precedence.
_OF_A_PLAN = ("metrics", "test", "resamples", "trials", "seed", "lowercase", "tokenize")
_MODELS = ("bleurt_model", "comet_model", "comet_encoder")
_OF_A_TEST_SET = ("source", "reference", "test_set", "language_pair", "system")


def parse(arguments):
    """The options of a command line, and the plan that they make."""
    options = _parser().parse_args(arguments)
    check_workers(options.workers)
    plan = _from_file(options) if options.config else _from_flags(options)
    given = {name: getattr(options, name) for name in (*_OF_A_PLAN, *_MODELS)}
    if options.baseline or options.baseline2:
        first = options.baseline or next(iter(plan.baselines), None)
        given["baselines"] = tuple(name for name in (first, options.baseline2) if name)
    return options, replace(plan, **{name: value for name, value in given.items() if value is not None})


def _parser():
    parser = argparse.ArgumentParser(
        prog="posnet-score",
        description="Score systems on test sets and tell which differences are more than chance. What is computed is "
        "kept: stop it at any time, the same command goes on where it was.",
    )
    parser.add_argument("--config", type=a_path, help="YAML file of a comparison: several test sets, labels, seeds")
    parser.add_argument("--source", type=a_path, help="text that was translated; COMET needs it")
    parser.add_argument("--reference", type=a_path, nargs="+", help="its translation, or several")
    parser.add_argument("-t", "--test-set", help="one of sacreBLEU's test sets instead, as wmt14/full")
    parser.add_argument(
        "-l", "--language-pair", help="as en-de (default: two-letter endings of --source and --reference)"
    )
    parser.add_argument(
        "--system",
        nargs="+",
        metavar="NAME=FILE[,FILE]",
        help="outputs: plain text or a log of fairseq-generate; several files are runs (seeds) of a system",
    )
    parser.add_argument("--baseline", help="system that † marks differences from (default: the first)")
    parser.add_argument("--baseline2", help="system that ‡ marks differences from")
    parser.add_argument("--metrics", type=_names, help=f"of {','.join(METRICS)} (default: bleu,chrf)")
    parser.add_argument("--out", type=a_path, help="folder for the report: HTML, Markdown, LaTeX, CSV and JSON")
    tests = ", ".join(f"{name}: {text}" for name, text in TESTS.items())
    parser.add_argument("--test", choices=TESTS, help=f"{tests} (default: bs)")
    parser.add_argument("--resamples", type=int, help=f"of the bootstrap (default: {RESAMPLES})")
    parser.add_argument("--trials", type=int, help=f"of approximate randomisation (default: {TRIALS})")
    parser.add_argument("--seed", type=int, help=f"of both (default: {SEED}, sacreBLEU's)")
    parser.add_argument("-lc", "--lowercase", action="store_true", default=None, help="compare lower-cased text")
    parser.add_argument("--tokenize", help="sacreBLEU's tokeniser for BLEU (default: by the target language)")
    defaults = MetricOptions()
    for name in _MODELS[:2]:
        text = f"hub name or folder (default: {getattr(defaults, name)})"
        parser.add_argument(flag(name), metavar="MODEL", help=text)
    parser.add_argument(
        "--comet-encoder",
        metavar="FOLDER",
        help="tokeniser and configuration of COMET's encoder (default: from the hub)",
    )
    parser.add_argument("--skip-missing", action="store_true", help="score the systems that are there")
    parser.add_argument("--cached-only", action="store_true", help="compute nothing, take all from the cache")
    place = usual_place()
    parser.add_argument("--cache", type=a_path, default=place, help=f"what has been computed (default: {place})")
    parser.add_argument("--cpu", action="store_true", help="no GPU even if there is one")
    parser.add_argument("--workers", type=int, default=cores(), help="processes (default: one a core)")
    return parser


def _names(text):
    return tuple(text.replace(",", " ").split())


def _from_file(options):
    given = [flag(name) for name in _OF_A_TEST_SET if getattr(options, name)]
    if given:
        raise UsageError(f"{', '.join(given)} beside --config: say it in {options.config}, or leave --config out.")
    return read_plan(options.config)


def _from_flags(options):
    if not options.system:
        raise UsageError("nothing to score. Give --system NAME=FILE ..., or --config FILE.")
    if bool(options.reference) == bool(options.test_set):
        raise UsageError("give either --reference FILE or --test-set NAME.")
    if options.source and options.test_set:
        raise UsageError("--source beside --test-set: a test set brings its own. Leave one out.")
    languages = language_pair(options.language_pair) if options.language_pair else ("", "")
    outputs = _outputs(options.system)
    test_set = TestSet(
        name=options.test_set or options.reference[0].stem,
        languages=languages,
        source=options.source,
        references=tuple(options.reference or ()),
        known=options.test_set or "",
        outputs=outputs,
    )
    baselines = () if len(outputs) == 1 else (next(iter(outputs)),)
    return Plan(systems={name: name for name in outputs}, test_sets=(test_set,), baselines=baselines)


def _outputs(given):
    """{name: files}. Files without a name are called as they are, with their folders where that is not enough."""
    named = []
    for text in given:
        name, equals, files = text.partition("=")
        has_name = equals and not Path(text).exists()
        named.append((name, _files(files, text)) if has_name else ("", _files(text, text)))
    names = iter(_told_apart([files[0] for name, files in named if not name]))
    named = [(shown(name or next(names)), files) for name, files in named]
    repeated = [name for name, count in Counter(name for name, _ in named).items() if count > 1]
    if repeated:
        raise UsageError(f"--system: {', '.join(repeated)} is given more than once. Give each system its own name.")
    return dict(named)


def _files(text, given):
    files = (text,) if Path(text).exists() else tuple(text.split(","))
    if not all(files):
        raise UsageError(f"--system {given}: a file is not named. Give NAME=FILE or NAME=FILE,FILE.")
    return tuple(map(Path, files))


def _told_apart(paths):
    """As few of the last parts of paths as make them different."""
    for depth in range(1, max((len(path.parts) for path in paths), default=1) + 1):
        names = ["/".join(path.with_suffix("").parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
