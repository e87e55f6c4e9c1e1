"""SMs for decode against load: what the study makes of its rows."""

from __future__ import annotations

from experiments.prefill_decode import run as study
from experiments.rows import from_csv


def row(way: str, sms: int, p95_steps: float, prefill: float) -> study.Row:
    p95 = p95_steps * study.isolated_us("decode")
    return study.Row(0.2, way, sms, p95, p95, p95, prefill)


def test_fewest_sms_and_most_prefill_among_those_that_hold() -> None:
    rows = [
        row("streams", 132, 2.5, 900.0),
        row("112+20 SMs", 20, 4.0, 800.0),
        row("96+36 SMs", 36, 1.9, 600.0),
        row("64+68 SMs", 68, 1.5, 400.0),
    ]
    few, best = study.fewest(rows, 0.2, 2.0), study.chosen(rows, 0.2, 3.0)
    assert few is not None and few.way == "96+36 SMs"
    assert best is not None and best.way == "streams"
    assert study.fewest(rows, 0.2, 1.0) is None and study.fewest(rows, 0.5, 9.0) is None


def test_every_way_has_a_row_at_every_load() -> None:
    rows = from_csv(study.Row, study.STUDY.folder / "result.csv")
    assert [(one.load, one.way, one.decode_sms) for one in rows] == [
        (t.load, t.way, t.decode_sms) for t in study.tasks()
    ]
    for one in rows:
        assert study.isolated_us("decode") * 0.99 <= one.p50_us <= one.p95_us <= one.p99_us
