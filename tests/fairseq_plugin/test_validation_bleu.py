"""Plain text for the BLEU of validations."""

from argparse import Namespace

import pytest
import sacrebleu
from fairseq.data.encoders import build_tokenizer

from posnet_data_prep.prepare import main as prepare
from posnet_fairseq.text.pipeline import pipeline_of

LINES = {"en": "It's a well-known man, you see.", "zh": "这是一个人。", "de": "Das ist's, der bekannte Mann."}


@pytest.mark.parametrize("target", ["de", "zh"])
def test_bleu_of_tokens_is_that_of_plain_text_for_the_language(tmp_path, target):
    for language in ("en", target):
        (tmp_path / f"text.{language}").write_text(f"{LINES[language]}\n{LINES[language][:5]}\n" * 10)
    files = [str(tmp_path / f"text.{language}") for language in ("en", target)]
    data = str(tmp_path / "data")
    prepare(["corpus", "--train", *files, "--valid", *files, "--merges", "20", "--workers", "1", "--out", data])
    names = {"data": data, "source_lang": "en", "target_lang": target}
    text = build_tokenizer(Namespace(tokenizer="posnet", **names))
    pipeline = pipeline_of(data, ("en", target))
    lines = [LINES[target], LINES[target][:5]]
    reference = [LINES[target][::-1][1:], LINES[target][:5]]
    ours = [[text.decode(pipeline.encode_target(line)) for line in side] for side in (lines, reference)]
    plain = [[pipeline.decode(pipeline.encode_target(line)) for line in side] for side in (lines, reference)]
    expected = sacrebleu.corpus_bleu(plain[0], [plain[1]], tokenize="zh" if target == "zh" else "13a")
    assert sacrebleu.corpus_bleu(ours[0], [ours[1]], tokenize="none").score == expected.score
    assert expected.counts[0] > len(lines)
