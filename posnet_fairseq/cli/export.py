"""posnet-export: a model folder, with everything that translation needs."""

import argparse
import contextlib
import os
from pathlib import Path
from typing import Any

from posnet_fairseq.inference.options import CTRANSLATE2, SHORTLIST, add_text_options
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.errors import UsageError, counted
from posnet_fairseq.shared.files import LARGE, a_path, check_place, path_text
from posnet_fairseq.shared.records import Record, json_if_whole


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posnet-export",
        description="Write a folder with everything that a model needs to translate, or a language model to continue "
        "texts: weights, options, dictionaries, subwords and tokenization. Commands take it like a checkpoint.",
    )
    parser.add_argument("checkpoint", type=path_text, help="a trained, averaged or precomputed model")
    parser.add_argument(
        "--out", type=a_path, required=True, metavar="FOLDER", help="folder to write, which must not exist"
    )
    add_text_options(parser)
    parser.add_argument(
        "--shortlist-from",
        type=a_path,
        metavar="DIR",
        help=f"also write {SHORTLIST}, for posnet-translate --shortlist: the likely target words for each "
        "source word, from the training set of DIR, a folder of posnet-prepare or fairseq-preprocess",
    )
    parser.add_argument(
        "--onnx",
        action="store_true",
        help="also write the encoder and a step of the decoder as graphs for onnxruntime, and check that they "
        "translate as the model does",
    )
    parser.add_argument(
        "--ctranslate2",
        action="store_true",
        help=f"also write the folder {CTRANSLATE2}, which ctranslate2.Translator loads; for models of --arch "
        "transformer_pos_* without gates",
    )
    return parser


@parsed_by(_parser, prints_result=False, has_mixers=True)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-export."""
    if os.path.lexists(options.out):
        raise UsageError(f"--out {options.out} is there already. Give another folder, or remove it.")
    check_place(options.out, "--out")
    from posnet_fairseq.inference.exporting import export

    export(options, _scores_of(Path(options.checkpoint)))


def _scores_of(checkpoint: Path) -> list[str]:
    """Return scores and signatures as a list in Markdown; none if the file is of no run that was scored since."""
    if checkpoint.name not in ("averaged.pt", "precomputed.pt"):
        return []
    report = checkpoint.parent / "report" / "report.json"
    with contextlib.suppress(OSError, LookupError, TypeError, ValueError, AttributeError):
        stages = [Record(checkpoint.with_name(f"{stage}.json")) for stage in ("translate", "score")]
        if all(stage.finished for stage in stages) and report.stat().st_mtime_ns >= checkpoint.stat().st_mtime_ns:
            content: Any = json_if_whole(report, LARGE)
            (test_set,), settings = content["test_sets"], stages[0].content["settings"]
            (scores,) = test_set["scores"].values()
            search = ", ".join(f"{name.removeprefix('--')} {settings[name]}" for name in ("--beam", "--lenpen"))
            return [
                f"Test set of the data, {counted(test_set['size'], 'sentence')}; {search}.",
                "",
                *(
                    f"- {metric['label']} {scores[metric['name']]['value']:.2f} (`{metric['signature']}`)"
                    for metric in test_set["metrics"]
                ),
            ]
    return []
