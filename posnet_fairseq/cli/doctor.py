"""posnet-doctor: what is installed, what works, and how to fix what does not."""

import argparse
import dataclasses
import importlib.metadata
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
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_stdout

PACKAGES = (
    "posnet", "ve-fairseq", "fairseq-fixed", "fairseq", "torch", "numpy", "safetensors", "omegaconf", "hydra-core",
    "triton", "sentencepiece", "sacrebleu", "subword-nmt", "sacremoses", "jieba", "unbabel-comet", "bleurt-pytorch",
)  # fmt: skip
USER_DIR = Path(__file__).parents[1]


@dataclass(frozen=True)
class Finding:
    """A line of the report.

    Attributes:
        what: was examined.
        works: whether it does.
        says: its version, or what is wrong.
        fix: what to do if it does not work.
        needed: whether posnet does not work without it.
    """

    what: str
    works: bool
    says: str
    fix: str = ""
    needed: bool = True


def examine() -> Iterator[Finding]:
    """Yield all findings, the needed ones first."""
    yield _python()
    yield from _plugin()
    yield _torch()
    yield _gpu()
    yield _kernels()
    installed = importlib.util.find_spec("sacrebleu") is not None
    says = "can run" if installed else "sacrebleu is not installed"
    yield Finding("BLEU, chrF, TER", installed, says, "pip install 'sacrebleu>=2.6,<2.7'", needed=False)
    for name in ("comet", "bleurt"):
        yield _neural_metric(name)


def _python() -> Finding:
    version = platform.python_version()
    good = (3, 11) <= sys.version_info[:2] <= (3, 12) and sys.platform.startswith("linux")
    return Finding("Python", good, f"{version} on {platform.system()}", "use Python 3.11 or 3.12 on Linux")


def _plugin() -> Iterator[Finding]:
    try:
        from posnet_fairseq.fairseq_plugin.slow_imports import import_fairseq

        fairseq = import_fairseq()
    except Exception as error:
        yield Finding("fairseq", False, f"{type(error).__name__}: {error}", "pip install ve-fairseq==0.12.3")
        return
    yield Finding("fairseq", True, f"imports, from {Path(str(fairseq.__file__)).parent}")
    try:
        from posnet_fairseq.transformer.architectures import arch_names
    except Exception as error:
        yield Finding("posnet", False, f"{type(error).__name__}: {error}", "pip install -e . in the posnet folder")
        return
    # Beside itself fairseq looks for what is not in the working directory.
    beside = Path(str(fairseq.__file__)).parents[1] / USER_DIR.name
    user_dir = USER_DIR.name if beside.exists() and beside.samefile(USER_DIR) else USER_DIR
    yield Finding("posnet", True, f"{__version__}, {len(arch_names())} architectures; --user-dir {user_dir}")


def _torch() -> Finding:
    try:
        import torch
    except Exception as error:
        return Finding("safe loading", False, f"torch: {type(error).__name__}: {error}", "pip install torch==2.13.0")
    if os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"):
        return Finding("safe loading", False, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD lets checkpoints run code", "unset it")
    safe = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6)
    return Finding("safe loading", safe, f"torch {torch.__version__}", "pip install 'torch>=2.6'")


def _gpu() -> Finding:
    try:
        import torch
    except Exception:
        return Finding("GPU", False, "unknown without torch", needed=False)
    if not torch.cuda.is_available():
        return Finding("GPU", False, "none: training and translation use the CPU", needed=False)
    name = torch.cuda.get_device_name()
    return Finding("GPU", True, f"{torch.cuda.device_count()} × {name}, bf16 {torch.cuda.is_bf16_supported()}")


def _kernels() -> Finding:
    try:
        import torch

        from posnet_fairseq.ops import kernels
    except Exception:
        return Finding("kernels", False, "unknown without torch", needed=False)
    try:
        for device in range(max(1, torch.cuda.device_count())):
            obstacle = kernels.obstacle(device)
            if obstacle is not None:
                return Finding("kernels", False, f"not used: {obstacle.says}", obstacle.fix, needed=False)
    except UsageError as error:
        return Finding("kernels", False, str(error), needed=False)
    return Finding("kernels", True, f"used: {kernels.USES}")


def _neural_metric(name: str) -> Finding:
    """Whether package and model of a metric are installed. Neither is imported, which takes seconds, or downloaded."""
    metric = get_metric(name, MetricOptions())
    try:
        model, _ = metric.find(download=False)
    except Missing as error:
        return Finding(metric.label, False, error.what, error.fix, needed=False)
    except UsageError as error:
        return Finding(metric.label, False, str(error), needed=False)
    return Finding(metric.label, True, f"can run, with {model}", needed=False)


def _versions() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posnet-doctor", description="Report what is installed, what works, and how to fix what does not."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--user-dir", action="store_true", help="print the folder for fairseq's --user-dir, only it")
    return parser


@command
@parsed_by(_parser)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-doctor. Exit code 1 if something needed does not work."""
    check_stdout()
    if options.user_dir:
        print(USER_DIR)
        return
    findings = list(examine())
    if options.json:
        found = {"installed": dict(_versions()), "findings": [dataclasses.asdict(finding) for finding in findings]}
        print(json.dumps(found, ensure_ascii=False, indent=1))
    else:
        for finding in findings:
            _print_finding(finding)
        print("installed: " + ", ".join(f"{package} {version}" for package, version in _versions()))
    if any(finding.needed and not finding.works for finding in findings):
        sys.exit(1)


def _print_finding(finding: Finding) -> None:
    """Print a finding in a line, and in another how to fix it. Lines are as long as they are: paths are copied."""
    mark = "ok" if finding.works else "MISSING" if finding.needed else "-"
    print(f"{mark:8} {finding.what:16} {finding.says}")
    if finding.fix and not finding.works:
        print(f"{'':8} {'':16} to fix it: {finding.fix}")
