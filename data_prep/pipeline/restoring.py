"""How the text of a prepared dataset comes back from its tokens: what tokenization loses, no system can restore."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from posnet_data_prep.pipeline.dataset_pipeline import DatasetPipeline
from posnet_fairseq.text.binary_format import read_tokens
from posnet_fairseq.text.card import Restored
from posnet_fairseq.text.dictionary import Dictionary
from posnet_fairseq.text.languages import bleu_tokenizer


def restoration(folder: Path, pipeline: DatasetPipeline) -> dict[str, dict[str, Restored]]:
    """Return, of each set but the training set and of each language, how its text comes back.

    The binarized tokens in a dataset's folder are decoded, as a perfect system would write them.
    """
    from sacrebleu.metrics import BLEU  # slow

    sides = list(zip(pipeline.languages, pipeline.tokenizers, pipeline.subwords(folder), strict=True))
    is_pair = len(sides) == 2
    found: dict[str, dict[str, Restored]] = {}
    for name in pipeline.text.counts:
        for language, tokenizer, subwords in sides if name != "train" else ():
            ending = f".{language}" if is_pair else ""
            dictionary = Dictionary.load(folder / f"dict{ending}.txt")
            stem = folder / (f"{name}.{'-'.join(pipeline.languages)}{ending}" if is_pair else name)
            tokens, sizes = read_tokens(stem)
            lines = np.split(tokens, np.cumsum(sizes)[:-1])
            decoded = [tokenizer.join(subwords.join(dictionary.string(line.tolist()))) for line in lines]
            text = (folder / f"{name}.{language}").read_bytes().decode().split("\n")[:-1]
            expected = [line.lower() for line in text] if tokenizer.is_lowercase else text
            changed = sum(one != other for one, other in zip(decoded, expected, strict=True))
            bleu = 100.0
            if changed and is_pair:
                metric = BLEU(tokenize=bleu_tokenizer(language)[0], lowercase=tokenizer.is_lowercase, force=True)
                bleu = round(metric.corpus_score(decoded, [text]).score, 2)
            found.setdefault(name, {})[language] = Restored(changed, bleu if is_pair else None)
    return found


def sentences(restored: Mapping[str, Mapping[str, Restored]], lines: Mapping[str, int]) -> Iterator[str]:
    """Yield sentences, without periods, about the sets that lost something: the test sets, if there are any."""
    lossy = [(name, language, of) for name, sides in restored.items() for language, of in sides.items() if of.changed]
    if not lossy:
        yield f"every line of {' and '.join(restored)} comes back from its tokens as it was"
    for name, language, of in [one for one in lossy if one[0] != "valid"] or lossy:
        most = "" if of.bleu is None else f"; a perfect system would score BLEU {of.bleu:.1f}"
        yield f"{of.changed:,} of {lines[name]:,} lines of {name}.{language} are not restored from their tokens{most}"
