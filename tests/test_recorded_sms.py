"""Kernels recorded by a process that had a part of the GPU: imported as such, and as long there in a replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from profiles import refused, written
from test_import_kineto import kernel, write
from test_import_ncu import METRICS, raw_page
from tiny import launch, tiny

import gpusim
from gpusim import Trace, cli, import_profile, load_gpu
from gpusim.calibrate.assumptions import extremes
from gpusim.calibrate.fit import anchored
from gpusim.calibrate.kernels import Kernels
from gpusim.common.errors import InputError
from gpusim.io.products import recording_gpu
from gpusim.io.timeline import Product
from gpusim.lab.kernel_mix import kernel_mixes
from gpusim.trace.kernels import KernelLaunch, ScalingPoint

UNDER_MPS = {"id": 0, "name": "NVIDIA H200", "numSms": 38}  # CUDA tells a process only the SMs that it may use


def profile(path: Path, **device: Any) -> Path:
    return write(path, [kernel("k", 0, 50)], deviceProperties=[UNDER_MPS | device])


def counted(path: Path, sms: int) -> Path:
    """Counters of a kernel for which 33 SMs worked 1,000 cycles each, and all others of an H200 none."""
    more = {
        "device__attribute_multiprocessor_count": ("", str(sms)),
        "sm__cycles_active.min": ("cycle", "0"),
        "sm__cycles_active.avg": ("cycle", "250"),
        "sm__cycles_active.max": ("cycle", "1,000"),
    }
    return written(path, raw_page([{"Kernel Name": "k", "Grid Size": "(33, 1, 1)"}], {**METRICS, **more}))


def launches(trace: Trace) -> list[KernelLaunch]:
    return list(trace.launches())


# ---- importing


def test_a_profile_of_a_part_is_imported_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "t.json")
    assert cli.main(["import", str(profile(tmp_path / "p.json")), "--sms", "38", "-o", path]) == 0
    trace = gpusim.load_trace(path)
    assert trace.device == "h200" and "Its process had 38 of the 132 SMs." in trace.notes
    assert [one.recorded_sms for one in launches(trace)] == [38]
    capsys.readouterr()
    assert cli.main(["trace", "show", path]) == 0
    assert "recorded on 38 SMs of h200:" in capsys.readouterr().out


def test_all_sms_are_no_part(tmp_path: Path) -> None:
    found = import_profile(profile(tmp_path / "p.json", numSms=132), sms=132).trace
    assert [one.recorded_sms for one in launches(found)] == [None] and "Its process" not in found.notes


def test_a_product_that_its_sms_tell_apart_stays_it(tmp_path: Path) -> None:
    """An H100 with 114 SMs is one on a PCIe card, of which a process had all."""
    path = profile(tmp_path / "p.json", name="NVIDIA H100", numSms=114)
    found = import_profile(path, sms=114).trace
    assert found.device == "h100-pcie" and [one.recorded_sms for one in launches(found)] == [None]
    of_a_part = import_profile(path, gpu="h100-sxm", sms=114).trace
    assert of_a_part.device == "h100-sxm" and [one.recorded_sms for one in launches(of_a_part)] == [114]


def test_without_the_option_the_message_names_it(tmp_path: Path) -> None:
    assert "--sms 38 (in Python sms=38), if its process" in refused(profile(tmp_path / "p.json"))
    assert "--sms 38 (in Python sms=38), if its process" in refused(profile(tmp_path / "p.json"), gpu="h200")
    with pytest.raises(InputError, match="sms=37"):
        recording_gpu(Product(None, 37), None, tmp_path)  # JAX's profiles name no GPU


@pytest.mark.parametrize("sms", [0, -1, True, "38", 1.5])
def test_what_is_no_number_of_sms_is_refused(tmp_path: Path, sms: Any) -> None:
    assert refused(profile(tmp_path / "p.json"), sms=sms).startswith("sms: is ")


def test_more_sms_than_the_gpu_has_are_refused(tmp_path: Path) -> None:
    assert " sms: is 200; expected at most 132" in refused(profile(tmp_path / "p.json", numSms=132), sms=200)


# ---- counters


def test_counters_are_over_the_sms_of_the_process(tmp_path: Path) -> None:
    """The mean over all SMs is 250 cycles, over the 33 of the process 1,000; the work of a block is the same."""
    (part,) = launches(import_profile(counted(tmp_path / "c.csv", 33), gpu="h200", sms=33).trace)
    (whole,) = launches(import_profile(counted(tmp_path / "w.csv", 132), gpu="h200").trace)
    assert part.mix is not None and whole.mix is not None
    cycles = part.mix.active_cycles_min, part.mix.active_cycles_avg, part.mix.active_cycles_max
    assert cycles == (None, 1000.0, 1000.0)
    assert whole.mix.active_cycles_avg == 250.0
    assert part.mix.issue_cycles == whole.mix.issue_cycles == 500.0


def test_counters_join_a_timeline_of_as_many_sms(tmp_path: Path) -> None:
    run = kernel("k", 0, 50, grid=[33, 1, 1], block=[256, 1, 1])
    timeline = write(tmp_path / "p.json", [run], deviceProperties=[UNDER_MPS | {"numSms": 33}])
    trace = import_profile(timeline, counters=counted(tmp_path / "c.csv", 33), sms=33).trace
    (one,) = launches(trace)
    assert one.mix is not None and one.mix.active_cycles_avg == 1000.0
    (busy,) = kernel_mixes(trace, load_gpu("h200"))
    assert busy.busy["issue slots"] == pytest.approx(50.0)
    message = refused(timeline, counters=counted(tmp_path / "w.csv", 132), sms=33)
    assert "is of a GPU with 132 SMs" in message and "counters of the process, which had 33 of 132" in message


def test_in_a_green_context_profilers_name_all_sms(tmp_path: Path) -> None:
    run = kernel("k", 0, 50, grid=[33, 1, 1], block=[256, 1, 1])
    timeline = write(tmp_path / "p.json", [run], deviceProperties=[UNDER_MPS | {"numSms": 132}])
    (one,) = launches(import_profile(timeline, counters=counted(tmp_path / "c.csv", 132), sms=33).trace)
    assert one.recorded_sms == 33 and one.mix is not None and one.mix.active_cycles_avg == 1000.0


# ---- replays


def test_it_takes_its_recorded_time_on_as_many_sms() -> None:
    """Eight blocks in 4 waves on 2 of 4 SMs, after 1 us of launch latency; half as long on all."""
    gpu = tiny(4)
    part = launch(8, 41.0).model_copy(update={"recorded_sms": 2})
    model = Kernels(gpu, gpu).model(part, "k")
    on_two = Kernels(gpu.part(2), gpu.part(2)).model(launch(8, 41.0), "k")
    assert on_two.solo_us == pytest.approx(41.0)
    assert model.unit_us == pytest.approx(on_two.unit_us) and model.sm_count == 4
    assert model.solo_us == pytest.approx(anchored(launch(8, 21.0), gpu).solo_us)


def test_more_sms_than_there_are_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu = tiny(4)
    too_many = launch(8, 41.0).model_copy(update={"recorded_sms": 5})
    with pytest.raises(InputError, match=r"recorded_sms: is 5, tiny has 4; expected at most all SMs"):
        Kernels(gpu, gpu).model(too_many, "k")
    trace = import_profile(profile(tmp_path / "p.json"), sms=38).trace
    path = tmp_path / "t.json"
    trace.save(path)
    path.write_text(path.read_text().replace('"recorded_sms": 38', '"recorded_sms": 200'))
    assert cli.main(["trace", "check", str(path)]) == 2
    assert "streams[0].operations[0].recorded_sms: is 200, h200 has 132" in capsys.readouterr().err


def test_scaling_points_are_of_fewer_sms_than_the_recording() -> None:
    gpu = tiny(4)
    point = ScalingPoint(sms=3, duration_us=60.0)
    one = launch(8, 41.0).model_copy(update={"recorded_sms": 2, "scaling": (point,)})
    with pytest.raises(InputError, match="is of 3 SMs, its recording has 2"):
        Kernels(gpu, gpu).model(one, "k")


def test_what_may_bind_a_kernel_without_counters_is_of_its_sms(tmp_path: Path) -> None:
    trace = import_profile(profile(tmp_path / "p.json"), sms=38).trace
    found = extremes(trace, load_gpu("h200"))
    alike = extremes(_without_part(trace), load_gpu("h200").part(38))
    assert found and {name: _without_part(one) for name, one in found.items()} == alike


def _without_part(trace: Trace) -> Trace:
    document = trace.model_dump(mode="json", exclude_none=True)
    for stream in document["streams"]:
        for operation in stream["operations"]:
            operation["kernel"].pop("recorded_sms", None)
    return Trace.model_validate_json(json.dumps(document))


def test_a_replay_says_so_and_claims_no_error(tmp_path: Path) -> None:
    trace = import_profile(profile(tmp_path / "p.json"), sms=38).trace
    (entry,) = gpusim.compare(trace, "h200", ["leftover"]).entries
    assert any("kernels recorded on 38 of 132 SMs" in note for note in entry.notes)
    assert entry.how_wrong.reason == "not validated: recorded on a part of the SMs"
