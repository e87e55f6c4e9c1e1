"""What replays found, kept between runs: the same to the bit, under all that can change it, read with care."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY

from gpusim import Session, load_trace
from gpusim.choose.advise import Advice, advise
from gpusim.choose.settings import Setting
from gpusim.common.kept import Kept
from gpusim.trace.edit import merge
from gpusim.trace.format import Trace

PAIR = REPOSITORY / "traces" / "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz"
PROGRAMS = [REPOSITORY / "traces" / name for name in ("transformer_decode.json.gz", "transformer_prefill.json.gz")]
SPLITS = ["green-context:sms=64+68", "green-context:sms=72+60"]
KINDS = ["streams", "MPS"]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Session]:
    """Sessions of one user with a cache of one's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return lambda gpu="h200", **given: Session(gpu, cache=True, **given)


@pytest.fixture
def no_replay(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make every replay fail from now on."""

    def replayed(*args: Any) -> Any:
        raise AssertionError("replayed again")

    return lambda: monkeypatch.setattr(Session, "_replayed_score", replayed)


def test_a_later_search_replays_only_what_is_new(opened: Callable[..., Session], no_replay: Callable[[], None]) -> None:
    trace = load_trace(PAIR)
    first = list(opened().makespans_us(trace, SPLITS))
    assert first == [Session("h200").makespan_us(trace, split) for split in SPLITS]
    no_replay()
    assert list(opened().makespans_us(trace, SPLITS)) == first
    with pytest.raises(AssertionError, match="replayed again"):
        list(opened().makespans_us(trace, [*SPLITS, "green-context:sms=80+52"]))


def test_a_policy_of_ones_own_is_replayed_each_time(opened: Callable[..., Session], tmp_path: Path) -> None:
    """Its file may have changed, and whatever that reads."""
    own = f"{REPOSITORY / 'experiments' / 'my_policy.py'}:ShortestFirst"
    list(opened().makespans_us(load_trace(PAIR), [own]))
    assert not (tmp_path / "gpusim" / "replays").exists()


def test_another_trace_gpu_recorder_seed_policy_objective_or_source_is_replayed(
    opened: Callable[..., Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = load_trace(PAIR)

    def kept() -> int:
        return len(list((tmp_path / "gpusim" / "replays").iterdir()))

    counts = []
    shorter = trace.model_copy(update={"streams": trace.streams[:1], "programs": trace.programs[:1]})
    for session, one in ((opened(), trace), (opened(), shorter), (opened("h100-sxm"), trace), (opened(seed=1), trace)):
        list(session.makespans_us(one, ["leftover"]))
        counts.append(kept())
    assert counts == [1, 2, 3, 4]
    list(opened(recorded_on="h100-sxm").makespans_us(trace, ["leftover"]))
    list(opened().makespans_us(trace, ["serial"]))
    list(opened()._scores(trace, ["leftover"], "stp"))
    assert kept() == 7
    monkeypatch.setattr("gpusim.session.fingerprint.sources", lambda *modules: "changed")
    list(opened().makespans_us(trace, ["leftover"]))
    assert kept() == 8


def advice(session: Session, trace: Trace, **given: Any) -> Advice:
    return advise([trace], session, **{"settings": None if "ways" in given else KINDS, "jobs": 1, **given})


def test_a_second_advice_replays_no_setting(opened: Callable[..., Session], monkeypatch: pytest.MonkeyPatch) -> None:
    trace = merge([load_trace(one) for one in PROGRAMS])
    first = advice(opened(), trace)
    assert advice(Session("h200"), trace).choices == first.choices

    def replayed(*args: Any) -> Any:
        raise AssertionError("replayed again")

    monkeypatch.setattr("gpusim.choose.advise._replayed_choice", replayed)
    assert advice(opened(), trace).choices == first.choices
    by_antt = advice(opened(), trace, objective="antt")
    assert sorted(one.makespan_us for one in by_antt.choices) == sorted(one.makespan_us for one in first.choices)
    (streams,) = (one.setting for one in first.choices if one.setting.mechanism == "streams")
    others: list[dict[str, Any]] = [
        {"session": opened(seed=1)},
        {"targets": ["transformer_decode=x9"]},  # whose throughput does not count then
        {"ways": [replace(streams, policy="even")]},
    ]
    for given in others:
        with pytest.raises(AssertionError, match="replayed again"):
            advice(given.pop("session", opened()), trace, **given)


def test_settings_with_a_policy_of_ones_own_are_replayed_each_time(
    opened: Callable[..., Session], tmp_path: Path
) -> None:
    way = Setting("streams", "short ones first", f"{REPOSITORY / 'experiments' / 'my_policy.py'}:ShortestFirst")
    trace = merge([load_trace(one) for one in PROGRAMS])
    advise([trace], opened(), ways=[way], jobs=1)
    assert not (tmp_path / "gpusim" / "replays").exists()


@pytest.mark.parametrize("content", [None, [], "1.0", {"setting": None}])
def test_what_is_no_result_counts_as_absent(
    opened: Callable[..., Session], monkeypatch: pytest.MonkeyPatch, content: object
) -> None:
    trace = merge([load_trace(one) for one in PROGRAMS])
    first = advice(opened(), trace)
    monkeypatch.setattr(Kept, "find", lambda kept, key: content)
    assert advice(opened(), trace).choices == first.choices
