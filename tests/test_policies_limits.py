"""Green contexts, MPS, MIG and TPC masks: the SMs that each gives, and that MIG isolates memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import kernel, played, run_of, spans, stream, times, tiny

from gpusim import InputError, load_gpu, replay
from gpusim.policies.limits import GreenContext, Mig, Mps, Parts, TpcMask, green_sizes, mig_profiles, placeable
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, Mix
from gpusim.trace.operations import Kernel, Stream

H200 = load_gpu("h200")
AB = ["a", "b"]


def sizes(policy: Parts, gpu: str, streams: int = 2) -> list[int]:
    return [len(part) for part in policy.parts(load_gpu(gpu), [f"s{i}" for i in range(streams)])]


# ---- green contexts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "expected"), [("p100", (1, 1)), ("v100", (2, 2)), ("t4", (2, 2)), ("a100-40", (4, 2)), ("h200", (8, 8))]
)
def test_sizes_of_green_contexts_by_compute_capability(gpu: str, expected: tuple[int, int]) -> None:
    assert green_sizes(load_gpu(gpu)) == expected


@pytest.mark.parametrize("gpu", ["k40c", "k80"])
def test_older_gpus_have_no_green_contexts(gpu: str) -> None:
    with pytest.raises(InputError, match=r"^policy green-context: .* expected 6.0 or later"):
        green_sizes(load_gpu(gpu))


@pytest.mark.parametrize(
    ("gpu", "streams", "expected"),
    [
        ("h200", 1, [132]),
        ("h200", 2, [64, 68]),  # what is over after groups of a multiple of 8 goes to the last
        ("h200", 3, [40, 40, 52]),
        ("h200", 16, [8] * 15 + [12]),
        ("h200", 20, [8] * 15 + [12]),  # four streams wait
        ("a100-40", 2, [54, 54]),
        ("a100-40", 5, [20, 20, 20, 20, 28]),
        ("p100", 3, [18, 18, 20]),
    ],
)
def test_even_green_contexts(gpu: str, streams: int, expected: list[int]) -> None:
    assert sizes(GreenContext(), gpu, streams) == expected


@pytest.mark.parametrize("sms", ["64+68", "64+64", "8+104", "16+116", "8+124", "72+16", "68+64", "124+8"])
def test_green_contexts_as_the_driver_grants_them(sms: str) -> None:
    assert sizes(GreenContext(sms=sms), "h200") == [int(count) for count in sms.split("+")]


@pytest.mark.parametrize(
    ("sms", "gpu", "nearest"),
    [
        ("60+60", "h200", "64+64"),
        ("1+100", "h200", "8+104"),
        ("65+67", "h200", "64+68"),
        ("60+70", "h200", "64+68"),
        ("68+60", "h200", "72+60"),
        ("125+7", "h200", "120+8"),
        ("3+129", "h200", "8+124"),
        ("3+100", "a100-40", "4+100"),
        ("2+2", "a100-40", "4+4"),
    ],
)
def test_green_contexts_that_the_driver_cannot_grant_name_the_nearest(sms: str, gpu: str, nearest: str) -> None:
    with pytest.raises(InputError, match=r"^policy green-context: sms=[0-9+]+ cannot be granted .*; expected ") as told:
        sizes(GreenContext(sms=sms), gpu)
    assert str(told.value).endswith(f"; the nearest: sms={nearest}")
    assert sizes(GreenContext(sms=nearest), gpu) == [int(count) for count in nearest.split("+")]


@pytest.mark.parametrize("sms", ["132+0", "64", "64+x"])
def test_green_contexts_that_cannot_be(sms: str) -> None:
    with pytest.raises(InputError, match=r"^policy green-context: .*; expected "):
        sizes(GreenContext(sms=sms), "h200")


# ---- MPS ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("percent", "expected"),
    [
        ("50+50", [66, 66]),
        ("100", [132, 132]),
        ("10+90", [12, 118]),  # 13.2 and 118.8, rounded down to whole TPCs
        ("30+70", [38, 92]),
        ("0.1+33.4", [2, 44]),
    ],
)
def test_percentages_are_rounded_down_to_tpcs(percent: str, expected: list[int]) -> None:
    assert sizes(Mps(percent=percent), "h200") == expected


def test_mps_sets_overlap_only_where_they_must() -> None:
    half = Mps(percent="50").parts(H200, AB)
    assert not half[0] & half[1]
    more = Mps(percent="75").parts(H200, AB)
    assert len(more[0] & more[1]) == 2 * 98 - 132


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8))
def test_mps_spreads_its_overlap(percents: list[int]) -> None:
    sets = Mps(percent="+".join(map(str, percents))).parts(H200, [f"s{i}" for i in range(len(percents))])
    owners = [sum(sm in mine for mine in sets) for sm in range(132)]
    assert max(owners) - min(owners) <= 1


@pytest.mark.parametrize("percent", ["0", "101", "-5", "50+50+50", "", "a", "1e2", "nan", "1/0", "50%"])
def test_percentages_that_cannot_be(percent: str) -> None:
    with pytest.raises(InputError, match=r"^policy mps: .*; expected "):
        sizes(Mps(percent=percent), "h200")


# ---- MIG ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "slices", "expected"),
    [
        ("a100-40", "1g+2g+4g", [14, 28, 56]),
        ("a100-80", "7g", [98]),
        ("h100-sxm", "3g+4g", [60, 64]),
        ("h100-pcie", "3g+4g", [46, 62]),
        ("h200", "1g+2g+1g+1g", [16, 32, 16, 16]),
        ("h200", "1g2m+2g+4g", [26, 32, 64]),
        ("b200", "1g2m+1g2m+1g2m+1g2m", [30] * 4),
    ],
)
def test_mig_slices(gpu: str, slices: str, expected: list[int]) -> None:
    assert sizes(Mig(slices=slices), gpu, len(expected)) == expected


@pytest.mark.parametrize(
    ("streams", "expected"), [(1, [132]), (2, [60, 60]), (3, [32] * 3), (4, [16] * 4), (7, [16] * 7), (9, [16] * 7)]
)
def test_mig_by_default_gives_all_streams_the_same(streams: int, expected: list[int]) -> None:
    assert sizes(Mig(), "h200", streams) == expected


@pytest.mark.parametrize(
    ("slices", "fits"),
    [
        ("3g 4g", True),
        ("3g 3g", True),
        ("3g 3g 1g", False),  # each 3g takes four of the eight memory slices
        ("4g 4g", False),
        ("4g 2g 1g", True),
        ("2g 2g 3g", True),
        ("2g 2g 2g 1g", True),
        ("2g 2g 2g 1g2m", True),
        ("3g 3g 1g2m", False),
        ("1g2m 1g2m 1g2m 1g2m", True),
        ("1g2m 1g2m 1g2m 1g2m 1g", False),
        ("1g 1g 1g 1g 1g 1g 1g", True),
        ("7g", True),
        ("7g 1g", False),
    ],
)
def test_which_instances_fit_beside_one_another(slices: str, fits: bool) -> None:
    profiles = mig_profiles(H200)
    assert placeable([profiles[name] for name in slices.split()]) is fits


@pytest.mark.parametrize("gpu", ["k40c", "v100", "t4", "rtx4090", "l40s"])
def test_gpus_without_mig_are_refused(gpu: str) -> None:
    with pytest.raises(InputError, match=f"^policy mig: {gpu} has no MIG profiles; expected "):
        sizes(Mig(), gpu)


@pytest.mark.parametrize("slices", ["8g", "7g+1g", "3g", "1g+1g+1g", "3g+"])
def test_slices_that_cannot_be(slices: str) -> None:
    with pytest.raises(InputError, match=r"^policy mig: .*; expected "):
        sizes(Mig(slices=slices), "h200", 2 if slices != "3g" else 3)


def memory_bound(id: str, blocks: int) -> Kernel:
    launch = KernelLaunch(
        name="copy",
        grid=(blocks, 1, 1),
        block=(256, 1, 1),
        registers_per_thread=32,
        duration_us=1000.0,
        mix=Mix(dram_read_bytes=4.0e12 * 1e-3 / blocks, alu_utilisation_percent=10.0),
    )
    return Kernel(id=id, kind="kernel", kernel=launch)


def test_a_mig_instance_does_not_feel_its_neighbour() -> None:
    a, b = Stream(name="a", operations=(memory_bound("a", 13200),)), Stream(name="b", operations=())
    busy = replace_operations(b, memory_bound("b", 13200))

    def end(policy: str, neighbour: Stream) -> float:
        trace = Trace(version=1, name="memory", device="h200", streams=(a, neighbour))
        return replay(trace, H200, policy).stream_runs[0].end_us

    assert end("mig:slices=3g+4g", busy) == pytest.approx(end("mig:slices=3g+4g", b), rel=5e-3)
    assert end("inter-sm:sms=60+64", busy) > 1.2 * end("inter-sm:sms=60+64", b)


def replace_operations(stream: Stream, *operations: Kernel) -> Stream:
    return stream.model_copy(update={"operations": operations})


# ---- TPC masks ------------------------------------------------------------------------------------------------------


def test_a_set_bit_disables_a_tpc() -> None:
    parts = TpcMask(masks="0x1+fffffffffffffffe").parts(H200, AB)
    assert parts[0] == frozenset(range(2, 132))
    assert parts[1] == frozenset({0, 1, 128, 129, 130, 131})  # 64 bits reach 64 of the 66 TPCs
    assert TpcMask().parts(replace(H200, sms_per_tpc=1), AB) == [frozenset(range(132))] * 2


@pytest.mark.parametrize("masks", ["f" * 17, "0x", "xyz", "-1", "0+0+0"])
def test_masks_that_cannot_be(masks: str) -> None:
    with pytest.raises(InputError, match=r"^policy tpc-mask: .*; expected "):
        sizes(TpcMask(masks=masks), "h200")


# ---- replays by hand ------------------------------------------------------------------------------------------------


def test_parts_stay_when_a_stream_leaves() -> None:
    streams = (stream("a", kernel("a", 8, 11.0)), stream("b", kernel("b", 32, 21.0)))
    assert times(played("mps:percent=50", *streams, gpu=tiny(16))) == {"a": (0.0, 11.0), "b": (0.0, 41.0)}
    assert times(played("tpc-mask:masks=ff00+ff", *streams, gpu=tiny(16))) == {"a": (0.0, 11.0), "b": (0.0, 41.0)}
    assert times(played("green-context", *streams, gpu=tiny(16))) == {"a": (0.0, 11.0), "b": (0.0, 41.0)}


def test_sets_that_overlap_are_shared() -> None:
    streams = (stream("a", kernel("a", 2, 11.0)), stream("b", kernel("b", 2, 11.0)))
    result = played("mps:percent=75", *streams)  # SMs 0, 1, 2 and 3, 0, 1: a takes 0 and 1 first
    assert times(result) == {"a": (0.0, 11.0), "b": (0.0, 21.0)}
    assert {sm for sm, *_ in spans(result, "b")} <= {3, 0, 1}


def test_priorities_count_within_a_process_only() -> None:
    streams = (
        stream("first", kernel("first", 8, 21.0)),
        stream("low", kernel("low", 4, 11.0)),
        stream("high", kernel("high", 4, 11.0), priority=1),
    )
    masked, processes = played("tpc-mask", *streams), played("mps", *streams)
    assert run_of(masked, "high").end_us < run_of(masked, "low").end_us
    assert run_of(processes, "high").end_us > run_of(processes, "low").end_us


def test_a_stream_beyond_the_parts_gets_one_that_is_free() -> None:
    streams = [stream(name, kernel(name, 8, 11.0)) for name in "abc"]
    assert times(played("green-context", *streams, gpu=tiny(16)))["c"] == (0.0, 22.0)
