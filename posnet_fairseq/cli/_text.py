"""Options about plain text that several commands have."""

from pathlib import Path

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import path_text
from posnet_fairseq.text.card import CARD, DatasetCard
from posnet_fairseq.text.pipeline import Pipeline, Pretokenized, pipeline_of
from posnet_fairseq.text.subwords import Merges, SentencePieces
from posnet_fairseq.text.tokenizers import Tokenizer


def add_text_options(parser):
    """Where dictionaries are, and how plain text is split into tokens.

    Args:
        parser: an argparse.ArgumentParser.
    """
    parser.add_argument(
        "--data", type=path_text, help="directory with dictionaries (default: the one the model was trained on)"
    )
    text = parser.add_mutually_exclusive_group()
    text.add_argument(
        "--sentencepiece-model", type=path_text, help="split text by this model (default: as the data's card says)"
    )
    text.add_argument("--bpe-codes", type=path_text, help="split Moses words by these codes")
    text.add_argument("--pretokenized", action="store_true", help="the text is split into tokens already; leave it so")


def pipeline(options, vocabulary, folder):
    """What :func:`add_text_options` were given for.

    Args:
        options: of the command line.
        vocabulary: the model's :class:`posnet_fairseq.fairseq_plugin.checkpoints.Vocabulary`.
        folder: of its data.
    """
    languages = vocabulary.source_lang, vocabulary.target_lang
    if options.pretokenized:
        return Pretokenized()
    if options.sentencepiece_model:
        return Pipeline(
            *(Tokenizer(name, "none") for name in languages), *[SentencePieces(options.sentencepiece_model)] * 2
        )
    if options.bpe_codes:
        merges = Merges(options.bpe_codes)
        return Pipeline(*map(Tokenizer, languages), merges, merges)
    return pipeline_of(folder, languages)


def files_of_data(folder):
    """Paths of a dataset's files: dictionaries, binary sets, the card and what that names.

    Args:
        folder: of the dataset.
    """
    folder = Path(folder)
    try:
        named = list(DatasetCard.read(folder).files)
    except (OSError, UsageError):  # data of fairseq-preprocess have no card
        named = []
    found = [path for pattern in ("dict*.txt", "*.idx", "*.bin", CARD) for path in folder.glob(pattern)]
    return [*found, *(folder / name for name in named)]
