"""Options about plain text that several commands have."""

from posnet_fairseq.text_pipeline import Merges, Pipeline, Pretokenized, SentencePieces, Words, pipeline_of


def add_text_options(parser):
    """Where dictionaries are, and how plain text is split into tokens.

    Args:
        parser: an argparse.ArgumentParser.
    """
    parser.add_argument("--data", help="directory with dictionaries (default: the one the model was trained on)")
    text = parser.add_mutually_exclusive_group()
    text.add_argument("--sentencepiece-model", help="split text by this model (default: as the data's card says)")
    text.add_argument("--bpe-codes", help="split Moses words by these codes")
    text.add_argument("--pretokenized", action="store_true", help="the text is split into tokens already; leave it so")


def pipeline(options, vocabulary, folder):
    """What :func:`add_text_options` were given for.

    Args:
        options: of the command line.
        vocabulary: the model's :class:`posnet_fairseq.checkpoints.Vocabulary`.
        folder: of its data.
    """
    languages = vocabulary.source_lang, vocabulary.target_lang
    if options.pretokenized:
        return Pretokenized()
    if options.sentencepiece_model:
        return Pipeline(
            *(Words(name, "none") for name in languages), *[SentencePieces(options.sentencepiece_model)] * 2
        )
    if options.bpe_codes:
        merges = Merges(options.bpe_codes)
        return Pipeline(*map(Words, languages), merges, merges)
    return pipeline_of(folder, languages)
