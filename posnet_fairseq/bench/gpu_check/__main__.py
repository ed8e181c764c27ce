"""The command: runs sections one after the other and writes the report after each."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from posnet_fairseq.bench.gpu_check.report import read_results, write_report
from posnet_fairseq.bench.gpu_check.running import run_section
from posnet_fairseq.bench.gpu_check.sections import sections
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import a_path, check_folder


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the check. Exit code 1 if a section failed."""
    parser = argparse.ArgumentParser(prog="gpu_check.sh", description="Check posnet on this machine's GPU.")
    parser.add_argument("--simulated", action="store_true", help="small sizes without a GPU, to test the check itself")
    parser.add_argument("--again", action="store_true", help="run sections that have passed before, too")
    parser.add_argument("--out", type=a_path, default=Path("gpu_check"), help="folder (default: gpu_check)")
    options = parser.parse_args(arguments)
    if not options.simulated and not torch.cuda.is_available():
        raise UsageError(
            "there is no GPU that torch can use. Run this on a machine with one (posnet-doctor says what is missing), "
            "or test the check itself with --simulated."
        )
    check_folder(options.out)
    options.out.mkdir(parents=True, exist_ok=True)
    results = {} if options.again else read_results(options.out, options.simulated)
    for section in sections(options.out.absolute(), options.simulated):
        if results.get(section.name, {}).get("state") != "passed":
            print(f"{section.title} ...", flush=True)
            results[section.name] = run_section(section)
            print(f"  {results[section.name]['state']}", flush=True)
        write_report(options.out, results, options.simulated)
    print(f"report: {options.out / 'report.md'}")
    if any(result["state"] == "failed" for result in results.values()):
        sys.exit(1)


if __name__ == "__main__":
    sys.argv[0] = "gpu_check.sh"
    main()
