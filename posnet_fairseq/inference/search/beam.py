"""The search: beam search as fairseq does it, or sampling; forced decoding of given translations in its place."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from posnet_fairseq.inference.search.candidates import Candidates, Sampler, best_candidates
from posnet_fairseq.inference.search.constraints import Constraints, Paths
from posnet_fairseq.inference.search.ensemble import Ensemble
from posnet_fairseq.inference.search.hypotheses import Hypotheses, Hypothesis
from posnet_fairseq.inference.search.restrictions import Restrictions, refuse_ends
from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.inference.shortlist import Shortlist
from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.text.dictionary import Dictionary

_ROWS = 64  # hypotheses whose scores are computed and searched together on a CPU


class BeamSearch:
    """Search with a model or an ensemble in evaluation mode, on one device.

    A sentence is finished, and leaves the batch, when `beam` of its hypotheses have ended, each among the best of its
    step. The host waits for the device once a step.

    Args:
        models: translation models or language models.
        dictionary: of the target.
        settings: of the search.
        nbest: most hypotheses to return for each source.
        attention: also return the cross-attention weights.
        shortlist: of the target words to search among, which depends on all sources of a batch; default: all.
        joins: says of a target word how it is joined to others, see
            :class:`~posnet_fairseq.inference.search.constraints.Automaton`; default: each is a word of its own.
    """

    def __init__(
        self,
        models: Sequence[Any],
        dictionary: Dictionary,
        settings: SearchSettings,
        nbest: int = 1,
        attention: bool = False,
        shortlist: Shortlist | None = None,
        joins: Callable[[str], int] = lambda symbol: 0,
    ) -> None:
        self._shortlist, self._joins = shortlist, joins
        self._models, self._dictionary, self._settings = models, dictionary, settings
        self._nbest, self._attention = nbest, attention
        decoders = [getattr(model, "decoder", model) for model in models]
        self._is_language_model = not hasattr(models[0], "encoder")
        self._max_positions = min(decoder.max_positions() for decoder in decoders)
        self._first_symbol = decoders[0].first_symbol

    def check_batch(
        self, sources: Sequence[Tensor], prefixes: Sequence[Tensor] | None = None
    ) -> tuple[int, Sequence[Tensor]]:
        """Return the most tokens of a hypothesis, without end symbol, and the prefixes; refuse what leaves none."""
        settings = self._settings
        if prefixes is None:
            prefixes = sources if self._is_language_model else [sources[0][:0]] * len(sources)
        longest = max(map(len, sources))
        max_len = min(int(settings.max_len_a * longest + settings.max_len_b), self._max_positions - 1)
        names = f"{option('max_len_a')}, {option('max_len_b')}"
        limit = f"the translations of this batch end after {max_len} tokens at most ({names})"
        refuse_ends(self._dictionary, prefixes, "beginning")
        if settings.min_len > max_len:
            raise UsageError(f"{option('min_len')} {settings.min_len}: {limit}. Give less.")
        if (given := max(map(len, prefixes))) > max_len:
            raise UsageError(f"a beginning of {given} tokens is given, and {limit}. Give a shorter one.")
        return max_len, prefixes

    @torch.inference_mode()
    def __call__(
        self,
        sources: Sequence[Tensor],
        prefixes: Sequence[Tensor] | None = None,
        constraints: Sequence[Sequence[Paths]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each source, best first.

        `sources` are (M,) token ids with the end symbol, each; for a language model (P,) beginnings without it.
        `prefixes` are (P,) token ids that each hypothesis begins with, without end symbol; a language model takes none.
        `constraints` are those of each hypothesis, one or more, if they are given.
        """
        settings, eos = self._settings, self._dictionary.eos()
        device = next(self._models[0].parameters()).device
        max_len, prefixes = self.check_batch(sources, prefixes)
        given = [torch.tensor(path) for of_line in constraints or () for paths in of_line for path in paths]
        allowed = self._allowed(sources, [*prefixes, *given])
        constrained = self._constraints(constraints, allowed, device) if constraints else None
        if allowed is not None:  # from here on, words are numbered by their places in it
            prefixes = [torch.searchsorted(allowed, prefix) for prefix in prefixes]
            allowed = allowed.to(device)
        restrictions = Restrictions(settings, self._dictionary, max_len, prefixes, device)
        padded = pad_sequence(list(sources), batch_first=True, padding_value=self._dictionary.pad()).to(device)
        ensemble = Ensemble(self._models, padded, self._attention, settings.temperature, allowed)
        sampler = Sampler(sources, settings, max_len + 1, device) if settings.sampling else None

        numbers = torch.arange(len(sources), device=device)  # of the sentences in the batch
        tokens = torch.full_like(numbers, self._first_symbol)
        scores = torch.zeros(len(sources), 1, device=device)  # of the hypotheses of each of them
        hypotheses = Hypotheses(tokens, settings.beam)
        for step in range(max_len + 1):
            # As long as all are forced, the hypotheses of a sentence do not differ.
            is_forced = step < restrictions.forced
            beam = 1 if is_forced else settings.beam
            width = scores.size(1)
            # On CPUs a few sentences at a time: the scores of all words would leave the cache before they are searched.
            together = len(scores) if device.type != "cpu" else max(1, _ROWS // width)
            chunks, attention = ensemble.step(tokens, together * width)
            parts, broken = [], torch.zeros(1, dtype=torch.bool, device=device)
            for first, (following, normalizer) in zip(range(0, len(scores), together), chunks, strict=True):
                broken |= ~normalizer.isfinite().all()
                before, some = scores[first : first + together], numbers[first : first + together]
                following, normalizer = following.unflatten(0, before.shape), normalizer.view(before.shape)
                restrictions.apply(following, step, some, first * width)
                if constrained:
                    constrained.apply(following, before, first * width, step == max_len)
                if sampler is None or is_forced:
                    # Twice the beam, as each hypothesis may end. Padding is never one of them.
                    count = min(2 * beam, following[0].numel() - 1) if beam > 1 else 1
                    if constrained:
                        part = constrained.candidates(following, before - normalizer, count, some)
                    else:
                        part = best_candidates(following, before - normalizer, count)
                else:
                    part = sampler(following - normalizer[:, :, None], before, some, step)
                parts.append(part._replace(rows=part.rows + first * width))
            found = Candidates(*map(torch.cat, zip(*parts, strict=True)))
            if constrained:
                found = constrained.allocated(found, count, numbers)

            ended = found.words.eq(eos) & found.scores.ne(-torch.inf)
            if attention is not None:
                hypotheses.attention.append(attention)
            normalized = found.scores[:, :beam] / (step + 1) ** settings.lenpen
            more = hypotheses.end(numbers, found.rows[:, :beam], normalized, ended[:, :beam])
            *unfinished, is_broken = torch.cat([more, broken]).tolist()  # the device is waited for here
            if is_broken:
                raise self._broken()
            if not any(unfinished) or step == max_len:
                break

            found, staying = found.without(ended, beam), None
            if not all(unfinished):
                # The device finds them by itself: a copy of `unfinished` would be one more wait.
                staying = more.byte().argsort(descending=True, stable=True)[: sum(unfinished)]
                found, numbers = found.select(staying), numbers[staying]
            scores, tokens, order = found.scores, found.words.flatten(), found.rows.flatten()
            hypotheses.extend(tokens, order, scores.flatten())
            restrictions.advance(tokens, order)
            if constrained:
                constrained.advance(tokens, order, numbers)
            if beam > 1 or staying is not None:  # greedy hypotheses stay where they are
                ensemble.reorder(order, staying)
        best = hypotheses.best(self._nbest, eos, settings.lenpen, [len(source) for source in sources], allowed)
        if all(best):
            return best
        # Every end symbol has -inf.
        size, least = settings.no_repeat_ngram_size, settings.min_len
        if not size or least <= 1:
            raise self._broken()
        raise UsageError(
            f"{option('no_repeat_ngram_size')} {size} and {option('min_len')} {least} leave no translation: all that a "
            f"hypothesis of fewer than {least} tokens could go on with is a repetition. Give a larger size, 0 for "
            f"none, or a smaller {option('min_len')}."
        )

    def _constraints(
        self, constraints: Sequence[Sequence[Paths]], allowed: Tensor | None, device: torch.device
    ) -> Constraints:
        """Return the state of the hypotheses of a batch; `allowed` is that of :meth:`_allowed`."""
        joins = self._kinds_of_words
        if allowed is not None:
            place = {word: number for number, word in enumerate(allowed.tolist())}
            joins = joins[allowed]
            constraints = [
                [[[place[word] for word in path] for path in paths] for paths in of_line] for of_line in constraints
            ]
        return Constraints(constraints, joins, self._dictionary.eos(), self._dictionary.pad(), device)

    @functools.cached_property
    def _kinds_of_words(self) -> Tensor:
        """(V,) how each target word is joined to others; special symbols are words."""
        special, symbols = self._dictionary.nspecial, self._dictionary.symbols
        return torch.tensor([0] * special + [*map(self._joins, symbols[special:])])

    def _allowed(self, sources: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor | None:
        """Return (W,) ids of the target words to search among, with `others`, in ascending order; None for all."""
        if self._shortlist is None:
            return None
        allowed = self._shortlist.of(sources, others)
        where, advice = "the shortlist has {} words for this batch", f", or leave {option('shortlist')} out"
        self._settings.check_words(len(allowed), where, advice)
        return allowed

    def _broken(self) -> UsageError:
        dtype = next(self._models[0].parameters()).dtype
        advice = "Take an earlier checkpoint" if dtype == torch.float32 else f"Choose {option('dtype')} float32"
        return UsageError(
            f"the numbers that the model computes in {dtype} become infinite or NaN, so there is no "
            f"translation. {advice}."
        )


class ForcedDecoding(BeamSearch):
    """A search whose only hypothesis is given. Of the settings, the length penalty is read; there is no shortlist."""

    def check_batch(
        self, sources: Sequence[Tensor], prefixes: Sequence[Tensor] | None = None
    ) -> tuple[int, Sequence[Tensor]]:
        """Return the most tokens of a hypothesis, without end symbol, and the translations; refuse what is no text."""
        translations = prefixes or []
        refuse_ends(self._dictionary, [each[:-1] for each in translations], "translation")
        return self._max_positions - 1, translations

    @torch.inference_mode()
    def __call__(
        self,
        sources: Sequence[Tensor],
        prefixes: Sequence[Tensor] | None = None,
        constraints: Sequence[Sequence[Paths]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the hypothesis of each source: `prefixes` are the translations, (N,) token ids with end symbols.

        `constraints` are not read.
        """
        _, translations = self.check_batch(sources, prefixes)
        pad, device = self._dictionary.pad(), next(self._models[0].parameters()).device
        source, target = (
            pad_sequence(list(side), batch_first=True, padding_value=pad).to(device) for side in (sources, translations)
        )
        found, weights = Ensemble(self._models, source, self._attention).forced(target, self._first_symbol, pad)
        if not found.isfinite().all():
            raise self._broken()
        attention = None if weights is None else weights.cpu()
        hypotheses = []
        for row, (tokens, log_probabilities) in enumerate(zip(translations, found.tolist(), strict=True)):
            size = len(tokens)
            token_scores = tuple(log_probabilities[:size])
            score = sum(token_scores) / size**self._settings.lenpen
            of_row = None if attention is None else attention[row, :size, : len(sources[row])]
            hypotheses.append([Hypothesis(tokens, score, of_row, token_scores)])
        return hypotheses
