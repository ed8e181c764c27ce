"""From a checkpoint to pictures of its mixers."""

from dataclasses import replace

import torch

from posnet_fairseq.fairseq_plugin.checkpoints import (
    about,
    build_language_model,
    build_model,
    is_language_model,
    read_checkpoint,
)
from posnet_fairseq.inference.translator import Translator
from posnet_fairseq.plots import matrices, page, profiles, style
from posnet_fairseq.plots.inspection import observe
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import is_blank, replacing
from posnet_fairseq.shared.progress import shown

POSITIONS = 40  # tokens of a sentence that is not given: enough for both tails of a clip distance of 16


def without_sentence(path):
    """What the mixers of a checkpoint do that no token has a part in.

    Returns:
        list of :class:`posnet_fairseq.plots.inspection.Mixing` with weights.

    Raises:
        UsageError: there are none.
    """
    state = read_checkpoint(path)
    with about(path):
        model = build_language_model(state) if is_language_model(state) else build_model(state)
    source, target = (_anything(getattr(model, side, None)) for side in ("encoder", "decoder"))
    columns, rows = ([] if tokens is None else list(map(str, range(len(tokens)))) for tokens in (source, target))
    names = {"encoder": (columns, columns), "decoder": (rows, rows), "cross": (rows, columns)}
    mixings = observe(model, source, target, names)
    # Gates are made of tokens, even where weights are not.
    static = [
        replace(mixing, query_gates=None, token_gates=None)
        for mixing in mixings
        if get_mixer(mixing.mixer).static and mixing.weights is not None
    ]
    if not static:
        raise UsageError(
            f"{path}: the weights of its mixers ({_mixers(mixings)}) depend on tokens, or are none. "
            'Give a sentence of the source language to look at: --sentence "...".'
        )
    return static


def _anything(side):
    """Token ids for the encoder or decoder of a model; None if it has none."""
    return side and torch.full((min(POSITIONS, side.max_positions()),), side.dictionary.unk())


def with_sentence(models, vocabulary, text, sentence):
    """What the mixers of a translation model do with a sentence and the model's own translation of it.

    Args:
        models: list of one.
        vocabulary: its :class:`posnet_fairseq.fairseq_plugin.checkpoints.Vocabulary`.
        text: a :class:`posnet_fairseq.text.pipeline.TextPipeline`.
        sentence: plain text.

    Returns:
        list of :class:`posnet_fairseq.plots.inspection.Mixing`, and the translation.

    Raises:
        UsageError: the sentence is empty or too long.
    """
    translator = Translator(models, vocabulary, text, beam=5, max_len_a=2, max_len_b=20)
    source = translator.encode(sentence)
    _check(sentence, source, translator.max_source)
    (target,) = translator.search([source])
    columns, rows = _named(source, vocabulary.source_dictionary), _named(target, vocabulary.target_dictionary)
    names = {"encoder": (columns, columns), "decoder": (_read(rows),) * 2, "cross": (rows, columns)}
    return observe(models[0], source, target, names), translator.text_of(target)


def with_text(model, vocabulary, text, sentence):
    """What the mixers of a language model do with a text.

    Args:
        model: a language model.
        vocabulary, text, sentence: as for :func:`with_sentence`.

    Returns:
        list of :class:`posnet_fairseq.plots.inspection.Mixing`.

    Raises:
        UsageError: the text is empty or too long.
    """
    target = vocabulary.encode(text.encode(sentence))
    _check(sentence, target, model.decoder.max_positions())
    return observe(model, None, target, {"decoder": (_read(_named(target, vocabulary.target_dictionary)),) * 2})


def _check(sentence, tokens, limit):
    if is_blank(sentence):
        raise UsageError("--sentence is empty. Give a sentence of the source language, or text for a language model.")
    if len(tokens) > limit:
        raise UsageError(
            f"--sentence has {len(tokens)} tokens (its end symbol counted), the model takes {limit}. "
            "Give a shorter one."
        )


def _named(tokens, dictionary):
    return [dictionary[token] for token in tokens]


def _read(names):
    """What a decoder reads to predict these tokens: it begins with the end symbol."""
    return [names[-1], *names[:-1]]


def draw_weights(mixings, folder, title, report):
    """Pictures of weights, energies and profiles, and the page weights.html.

    Args:
        mixings: list of :class:`posnet_fairseq.plots.inspection.Mixing`.
        folder: which is made.
        title: of the page.
        report: a :class:`posnet_fairseq.shared.progress.Report`.

    Raises:
        UsageError: no mixer has weights.
    """
    seen = [mixing for mixing in mixings if mixing.weights is not None]
    without = [mixing for mixing in mixings if mixing.weights is None]
    if not seen:
        raise UsageError(f"no mixer of this model has weights to look at ({_mixers(mixings)}).")
    _refuse_no_numbers(seen)
    if without:
        report.say(f"{_mixers(without)} has no weights and is left out")
    _say_missing_characters(seen, report)
    figures = [
        (f"weights.{mixing.place}.{mixing.layer}", matrices.of_heads, (mixing, mixing.weights, "mixing weights α"))
        for mixing in seen
    ]
    figures += [
        (
            f"energies.{mixing.place}.{mixing.layer}",
            matrices.of_heads,
            (mixing, mixing.energies, "energies α̂ before the softmax"),
        )
        for mixing in seen
        if mixing.energies is not None
    ]
    for place in matrices.PLACES:
        here = [mixing for mixing in seen if mixing.place == place]
        for name, take, what in _PROFILES:
            there = [mixing for mixing in here if take(mixing) is not None]
            if there:
                figures.append((f"{name}.{place}", profiles.profile, (there, take, what)))
    _write(figures, folder, report, seen, "weights.html", title)


_PROFILES = (
    ("profile", lambda mixing: mixing.weights, "mixing weight α"),
    ("profile-energy", lambda mixing: mixing.energies, "energy α̂"),
    ("profile-added", lambda mixing: mixing.added, "what positions add to the energy"),
)


def draw_gates(mixings, folder, title, report):
    """Pictures of the latent weights of gates, and the page gates.html.

    Args:
        mixings, folder, title, report: as for :func:`draw_weights`.

    Raises:
        UsageError: no mixer has such a gate.
    """
    gated = [mixing for mixing in mixings if mixing.query_gates is not None and mixing.weights is not None]
    if not gated:
        raise UsageError(
            f"no mixer of this model ({_mixers(mixings)}) has weights and a gate of the kind gelu, whose latent "
            "weights could be drawn. Give a checkpoint that was trained with --gate gelu."
        )
    _refuse_no_numbers(gated)
    _say_missing_characters(gated, report)
    figures = [(f"gates.{mixing.place}.{mixing.layer}", matrices.gates, (mixing,)) for mixing in gated]
    for place in matrices.PLACES:
        there = [mixing for mixing in gated if mixing.place == place]
        if there:
            figures.append((f"profile-gates.{place}", profiles.profile, (there, lambda m: m.weights * m.gates, "α·β")))
    _write(figures, folder, report, gated, "gates.html", title)


def _refuse_no_numbers(mixings):
    for mixing in mixings:
        if not mixing.weights.isfinite().any(dim=-1).all():  # a decoder's first rows have no weights for what comes
            raise UsageError(
                f"the weights of {mixing.mixer} in layer {mixing.layer} ({mixing.place}) come out infinite or as no "
                "numbers, so there is nothing to draw. Take an earlier checkpoint."
            )


def _write(figures, folder, report, mixings, name_of_page, title):
    """Write pictures and their page, or nothing at all if one of them is there already and somebody else's."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [file for name, *_ in figures for file in style.files_of(folder / name)]
    style.refuse_foreign([*files, folder / name_of_page])
    with report.stage("draw", "pictures", len(figures)) as bar:
        for name, draw, arguments in figures:
            style.save(draw(*arguments), folder / name)
            bar.advance(1)
    with replacing(folder / name_of_page) as temporary:
        temporary.write_text(page.render(mixings, shown(title)), encoding="utf-8", newline="\n")


def _say_missing_characters(mixings, report):
    missing = style.characters_without_font(name for mixing in mixings for name in (*mixing.queries, *mixing.keys))
    if missing:
        first = " ".join(missing[:10]) + (" …" if len(missing) > 10 else "")
        report.say(
            f"no font of this machine has {first}: the PNG files show boxes there, the page and the SVG files what the "
            "reader's fonts have. (On Debian and Ubuntu: apt install fonts-noto-cjk)"
        )


def _mixers(mixings):
    return ", ".join(dict.fromkeys(mixing.mixer for mixing in mixings))
