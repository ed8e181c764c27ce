"""posnet-doctor: what is installed, what works, and how to fix what does not."""

import argparse
import dataclasses
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import MetricOptions
from posnet_eval.metrics.model_files import Missing
from posnet_fairseq import __version__
from posnet_fairseq.shared.common_options import FAIRSEQS, parsed_by
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import FAIRSEQ_SOURCE, FAIRSEQ_WHEEL
from posnet_fairseq.shared.files import check_stdout
from posnet_fairseq.shared.records import installed_versions

PACKAGES = (
    "posnet", *FAIRSEQS, "torch", "numpy", "safetensors", "omegaconf", "hydra-core",
    "triton", "sentencepiece", "sacrebleu", "subword-nmt", "sacremoses", "jieba", "unbabel-comet", "bleurt-pytorch",
)  # fmt: skip
_HAS_WHEEL = platform.machine() == "x86_64" and sys.version_info < (3, 13)  # as setup.py says
FAIRSEQ = FAIRSEQ_WHEEL if _HAS_WHEEL else FAIRSEQ_SOURCE
USER_DIR = Path(__file__).parents[1]


@dataclass(frozen=True)
class Finding:
    """A line of the report: whether something works, its version or what is wrong, and what to do then."""

    what: str
    works: bool
    says: str
    fix: str = ""
    needed: bool = True  # whether posnet does not work without it


def examine() -> Iterator[Finding]:
    """Yield all findings, the needed ones first."""
    version = platform.python_version()
    good = (3, 11) <= sys.version_info[:2] <= (3, 14) and sys.platform.startswith("linux")
    yield Finding("Python", good, f"{version} on {platform.system()}", "use Python 3.11 to 3.14 on Linux")
    for what, examined, fix in (
        ("fairseq", _fairseq, FAIRSEQ),
        ("posnet", _posnet, "pip install -e . in the posnet folder"),
        ("safe loading", _safe_loading, "pip install torch==2.13.0"),
        ("GPU", _gpu, ""),
        ("kernels", _kernels, ""),
        ("compiling", _compiling, ""),
    ):
        try:
            yield from filter(None, [examined()])
        except Exception as error:
            says = str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
            yield Finding(what, False, says, fix, needed=bool(fix))
    yield from map(_neural_metric, ("comet", "comet-kiwi", "bleurt"))


def _fairseq() -> Finding:
    if _origin_of_fairseq() is None:
        return Finding("fairseq", False, "not installed: posnet does everything but train", FAIRSEQ, needed=False)
    from posnet_fairseq.fairseq_plugin.slow_imports import import_fairseq

    return Finding("fairseq", True, f"imports, from {Path(str(import_fairseq().__file__)).parent}")


def _origin_of_fairseq() -> str | None:
    spec = importlib.util.find_spec("fairseq")
    return spec.origin if spec else None  # None of a clone in the working directory, too


def _posnet() -> Finding:
    from posnet_fairseq.transformer.architectures import archs

    # fairseq looks for a relative --user-dir beside its own package if the working directory lacks it.
    origin = _origin_of_fairseq()
    beside = Path(origin).parents[1] / USER_DIR.name if origin else USER_DIR
    user_dir = USER_DIR.name if origin and beside.exists() and beside.samefile(USER_DIR) else USER_DIR
    return Finding("posnet", True, f"{__version__}, {len(archs())} architectures; --user-dir {user_dir}")


def _safe_loading() -> Finding:
    import torch

    if os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"):
        return Finding("safe loading", False, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD lets checkpoints run code", "unset it")
    return Finding("safe loading", True, f"torch {torch.__version__}")


def _gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("GPU", False, "none: training and translation use the CPU", needed=False)
    name = torch.cuda.get_device_name()
    return Finding("GPU", True, f"{torch.cuda.device_count()} × {name}, bf16 {torch.cuda.is_bf16_supported()}")


def _kernels() -> Finding:
    import torch

    from posnet_fairseq.ops import kernels

    for device in range(max(1, torch.cuda.device_count())):
        obstacle = kernels.obstacle(device)
        if obstacle is not None:
            return Finding("kernels", False, f"not used: {obstacle.says}", obstacle.fix, needed=False)
    return Finding("kernels", True, f"used: {kernels.USES}")


def _compiling() -> Finding | None:
    """Return what keeps torch from compiling, if a space in a path does; whether it can takes a minute to find out."""
    from posnet_fairseq.transformer.compiling import path_with_space

    space = path_with_space()
    return Finding("compiling", False, *space, needed=False) if space else None


def _neural_metric(name: str) -> Finding:
    """Return whether package and model of a metric are installed; neither is imported or downloaded."""
    metric = get_metric(name, MetricOptions())
    try:
        model, _ = metric.find(download=False)
    except UsageError as error:
        says, fix = (error.what, error.fix) if isinstance(error, Missing) else (str(error), "")
        return Finding(metric.label, False, says, fix, needed=False)
    return Finding(metric.label, True, f"can run, with {model}", needed=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posnet-doctor", description="Report what is installed, what works, and how to fix what does not."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--user-dir", action="store_true", help="print only the folder for fairseq's --user-dir")
    return parser


@parsed_by(_parser)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-doctor. Exit code 1 if something needed does not work."""
    check_stdout()
    if options.user_dir:
        print(USER_DIR)
        return
    findings, installed = list(examine()), installed_versions(*PACKAGES)
    if options.json:
        found = {"installed": installed, "findings": [dataclasses.asdict(finding) for finding in findings]}
        print(json.dumps(found, ensure_ascii=False, indent=1))
    else:
        for finding in findings:  # lines are as long as they are: paths are copied
            mark = "ok" if finding.works else "MISSING" if finding.needed else "-"
            print(f"{mark:8} {finding.what:16} {finding.says}")
            if finding.fix and not finding.works:
                print(f"{'':8} {'':16} fix: {finding.fix}")
        print("installed: " + ", ".join(f"{package} {version}" for package, version in installed.items()))
    if any(finding.needed and not finding.works for finding in findings):
        sys.exit(1)
