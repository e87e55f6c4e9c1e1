"""Kernels recorded by a process that had a part of the GPU: imported as such, and as long there in a replay."""

from __future__ import annotations

from pathlib import Path

import pytest
from profiles import refused
from test_import_kineto import kernel, write
from tiny import launch, tiny

import gpusim
from gpusim import Trace, import_profile
from gpusim.calibrate.fit import anchored
from gpusim.calibrate.kernels import Kernels
from gpusim.common.errors import InputError
from gpusim.io.importing import _over_fewer_sms
from gpusim.trace.kernels import Mix

UNDER_MPS = [{"id": 0, "name": "NVIDIA H200", "numSms": 38}]  # CUDA tells a process only the SMs that it may use


def profile(path: Path) -> Path:
    return write(path, [kernel("k", 0, 50)], deviceProperties=UNDER_MPS)


def test_a_profile_of_a_part_is_imported_as_one(tmp_path: Path) -> None:
    found = import_profile(profile(tmp_path / "p.json"), sms=38)
    assert found.trace.device == "h200" and "38 of the 132 SMs" in found.trace.notes
    assert [one.recorded_sms for one in found.trace.launches()] == [38]
    read = Trace.model_validate_json(found.trace.model_dump_json())
    assert [one.recorded_sms for one in read.launches()] == [38]


def test_without_the_option_the_message_names_it(tmp_path: Path) -> None:
    assert "--sms 38" in refused(profile(tmp_path / "p.json"))
    assert "--sms 38" in refused(profile(tmp_path / "p.json"), gpu="h200")
    whole = write(tmp_path / "q.json", [kernel("k", 0, 50)], deviceProperties=[UNDER_MPS[0] | {"numSms": 132}])
    assert "--sms: is 200; expected at most 132" in refused(whole, sms=200)
    with pytest.raises(InputError, match="sms: is 0"):
        import_profile(tmp_path / "p.json", sms=0)


def test_counters_are_over_the_sms_of_the_process() -> None:
    """Of 4 SMs 2 were idle: the mean over all is half of that over the process's."""
    mix = Mix(active_cycles_min=0.0, active_cycles_avg=400.0, active_cycles_max=1000.0)
    found = _over_fewer_sms(mix, 2.0)
    assert (found.active_cycles_min, found.active_cycles_avg, found.active_cycles_max) == (None, 800.0, 1000.0)
    assert _over_fewer_sms(mix, 4.0).active_cycles_avg == 1000.0


def test_it_takes_its_recorded_time_on_as_many_sms() -> None:
    """Eight blocks, recorded in 4 waves on 2 of 4 SMs: half as long where all are there."""
    gpu = tiny(4)
    part = launch(8, 41.0).model_copy(update={"recorded_sms": 2})
    model = Kernels(gpu, gpu).model(part, "k")
    whole = launch(8, 21.0)
    assert model.solo_us == pytest.approx(anchored(whole, gpu).solo_us)
    assert model.sm_count == 4 and model.unit_us == pytest.approx(anchored(whole, gpu).unit_us)


def test_more_sms_than_there_are_are_refused() -> None:
    gpu = tiny(4)
    with pytest.raises(InputError, match=r"recorded_sms: is 5, tiny has 4; expected at most all SMs"):
        Kernels(gpu, gpu).model(launch(8, 41.0).model_copy(update={"recorded_sms": 5}), "k")


def test_a_replay_says_so_and_claims_no_error(tmp_path: Path) -> None:
    trace = import_profile(profile(tmp_path / "p.json"), sms=38).trace
    (entry,) = gpusim.compare(trace, "h200", ["leftover"]).entries
    assert "kernels recorded on 38 of 132 SMs: not validated with others" in entry.notes
    assert entry.how_wrong.reason == "not validated: recorded on a part of the SMs"
