"""posnet-export: a model folder, with everything that translation needs."""

import argparse
from pathlib import Path

from posnet_fairseq.inference.arguments import CTRANSLATE2, SHORTLIST
from posnet_fairseq.inference.search_options import add_text_options
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.files import a_path, check_new_folder, path_text


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
    check_new_folder(options.out, "--out")
    from posnet_fairseq.inference.exporting import export
    from posnet_fairseq.runs.scores import scores_of

    export(options, scores_of(Path(options.checkpoint)))
