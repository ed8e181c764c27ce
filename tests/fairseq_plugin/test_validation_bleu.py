"""Plain text for the BLEU of validations."""

from argparse import Namespace

import pytest
import sacrebleu
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.data.encoders import build_tokenizer
from fairseq.logging import metrics
from fairseq.tasks.translation import TranslationConfig, TranslationTask

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


@pytest.mark.parametrize("batches", [[[""]], [[""], ["a b c d f"]], [["a b c d f"], ["", ""]]])
def test_blank_translations_have_a_bleu(batches):
    """Of 0 if all are blank; those of one batch do not count less than those of another."""
    task = TranslationTask(TranslationConfig(eval_bleu=True), Dictionary(), Dictionary())
    with metrics.aggregate() as found:
        for lines in batches:
            bleu = sacrebleu.corpus_bleu(lines, [["a b c d e"] * len(lines)], tokenize="none")
            logged = {"loss": 1.0, "ntokens": 6, "nsentences": 1, "sample_size": 6}
            logged |= {"_bleu_sys_len": bleu.sys_len, "_bleu_ref_len": bleu.ref_len}
            logged |= {f"_bleu_counts_{n}": count for n, count in enumerate(bleu.counts)}
            logged |= {f"_bleu_totals_{n}": count for n, count in enumerate(bleu.totals)}
            task.reduce_metrics([logged], CrossEntropyCriterion(task, sentence_avg=False))
    lines = [line for batch in batches for line in batch]
    expected = sacrebleu.corpus_bleu(lines, [["a b c d e"] * len(lines)], tokenize="none").score
    assert found.get_smoothed_values()["bleu"] == pytest.approx(expected, abs=0.006)


def test_trainings_without_bleu_measure_none():
    task = TranslationTask(TranslationConfig(eval_bleu=True), Dictionary(), Dictionary())
    with metrics.aggregate() as found:
        logged = {"loss": 1.0, "ntokens": 6, "nsentences": 1, "sample_size": 6}
        task.reduce_metrics([logged], CrossEntropyCriterion(task, sentence_avg=False))
    assert "bleu" not in found.get_smoothed_values()
