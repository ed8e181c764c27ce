"""Progress of trainings that run side by side: python recipes/lib/progress.py UPDATES PID:NAME:LOG ..."""

import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from posnet_fairseq.training_log import records


def running(pid):
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def state(log):
    """Updates done, and validation perplexities as text."""
    updates, perplexity = 0, ""
    for kind, values in records(log):
        updates = int(values["num_updates" if kind == "train_inner" else "valid_num_updates"])
        if kind == "valid":
            perplexity = f"validation perplexity {values['valid_ppl']:.1f}"
    return updates, perplexity


def main():
    """Show a bar for each training until all have ended. Exit code 1 as soon as one ends before its last update."""
    total, *runs = sys.argv[1:]
    runs = [run.split(":", 2) for run in runs]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as progress:
        bars = {log: progress.add_task(name, total=int(total), note="") for _, name, log in runs}
        said = {}
        while True:
            ended = True
            for pid, name, log in runs:
                alive = running(pid)
                ended = ended and not alive
                updates, note = state(log)
                progress.update(bars[log], completed=updates, note=note)
                if not console.is_terminal and note and said.get(name) != note:
                    said[name] = note
                    console.print(f"{name}: {updates} of {total} updates, {note}", highlight=False)
                if not alive and updates < int(total):
                    sys.exit(1)
            if ended:
                return
            time.sleep(2)


if __name__ == "__main__":
    main()
