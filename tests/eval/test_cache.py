import numpy as np
import pytest

from posnet_eval.metrics.base import MetricOptions, Segment
from posnet_eval.statistics.cache import SegmentCache, keys
from support.made_up import Mean

SEGMENTS = [Segment("s", "a b c", ("a c",)), Segment("s", "ä 我", ("a", "b")), Segment("s", "", ("",))]
DETAILS = {"version": "1"}


class Model(Mean):
    requested_model = "some-name"


METRIC = Model(MetricOptions())
ROWS = np.array([[0.1, 1], [1 / 3, 1], [2**24 + 1, 1]])


def get(cache, metric, details, segments):
    return cache.get(keys(metric, details, segments), metric.width)[0]


def put(cache, segments, rows, metric=METRIC):
    cache.put(keys(metric, DETAILS, segments), rows, np.zeros(len(rows), dtype=bool))


@pytest.fixture
def cache(tmp_path):
    cache = SegmentCache(tmp_path / "made" / "scores.sqlite")
    yield cache
    cache.close()


def test_finds_what_was_put_to_the_bit(cache):
    assert np.isnan(get(cache, METRIC, DETAILS, SEGMENTS)).all()
    put(cache, SEGMENTS[:2], ROWS[:2])
    put(cache, SEGMENTS[2:], ROWS[2:])
    again = SegmentCache(cache.path)
    assert np.array_equal(get(again, METRIC, DETAILS, SEGMENTS[::-1]), ROWS[::-1])


def test_what_was_not_read_to_its_end_is_known_again(cache):
    names = keys(METRIC, DETAILS, SEGMENTS)
    put(cache, SEGMENTS[:1], ROWS[:1])  # as versions before wrote all
    cache.put(names[1:], ROWS[1:], np.array([True, False]))
    rows, cut = cache.get(names, METRIC.width)
    assert np.array_equal(rows, ROWS)
    assert cut.tolist() == [False, True, False]


@pytest.mark.parametrize("damage", ["substr(numbers, 1, 5)", "7", "NULL", "'12345678'"])
def test_a_damaged_row_is_not_known(cache, damage):
    put(cache, SEGMENTS, ROWS)
    with cache._database:
        cache._database.execute(f"UPDATE statistics SET numbers = {damage}")
    assert np.isnan(get(cache, METRIC, DETAILS, SEGMENTS)).all()
    put(cache, SEGMENTS, ROWS)
    assert np.array_equal(get(cache, METRIC, DETAILS, SEGMENTS), ROWS)


def test_more_segments_than_a_query_takes(cache):
    many = [Segment("", str(number), ("",)) for number in range(1203)]
    rows = np.stack([np.arange(1203), np.ones(1203)], axis=1)
    put(cache, many[:1200], rows[:1200])
    found = get(cache, METRIC, DETAILS, many)
    assert np.array_equal(found[:1200], rows[:1200])
    assert np.isnan(found[1200:]).all()


NAMED = Model(MetricOptions())
NAMED.name = "other"


@pytest.mark.parametrize(
    ("metric", "details", "segment"),
    [
        (METRIC, DETAILS, Segment("s", "a b", ("c a c",))),
        (METRIC, DETAILS, Segment("s", "a b c", ("a c", "a c"))),
        (METRIC, DETAILS, Segment("s", "a b c ", ("a c",))),
        (METRIC, DETAILS, Segment("s", "A b c", ("a c",))),
        (METRIC, {"version": "2"}, SEGMENTS[0]),
        (NAMED, DETAILS, SEGMENTS[0]),
    ],
)
def test_another_text_model_version_or_metric_is_another_row(cache, metric, details, segment):
    put(cache, SEGMENTS, ROWS)
    assert np.isnan(get(cache, metric, details, [segment])).all()


def test_the_source_counts_where_it_is_read(cache):
    translated = [segment._replace(source="another") for segment in SEGMENTS]
    put(cache, SEGMENTS, ROWS)
    assert np.array_equal(get(cache, METRIC, DETAILS, translated), ROWS)
    reading = Model(MetricOptions())
    reading.needs_source = True
    put(cache, SEGMENTS, ROWS, reading)
    assert np.isnan(get(cache, reading, DETAILS, translated)).all()


@pytest.mark.parametrize("damage", ["[" * 100_000, "{", "[1]", 7, None])
def test_damaged_details_are_not_known(cache, damage):
    cache.remember(METRIC, DETAILS)
    with cache._database:
        cache._database.execute("UPDATE details SET details = ?", (damage,))
    assert cache.recall(METRIC) is None


def test_a_cache_that_cannot_be_written_does_not_stop_a_run(tmp_path):
    cache = SegmentCache(tmp_path / "scores.sqlite")
    cache._database.execute("PRAGMA query_only = ON")  # as on a disk that is full, every write is an OperationalError
    put(cache, SEGMENTS, ROWS)
    assert "readonly" in cache.full
    cache.remember(METRIC, DETAILS)
    assert np.isnan(get(cache, METRIC, DETAILS, SEGMENTS)).all()
