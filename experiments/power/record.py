"""Record the clock of the SMs under a matrix product on some of them: `python experiments/power/record.py`.

A BF16 product of 8192 x 8192 matrices runs on some SMs for a quarter of a second, with nothing or another kernel on the
other SMs. The mean time of a product and the clock and power that NVML reads go to power.csv. bursts.csv has the time
of each product after a pause. It needs an NVIDIA GPU of compute capability 9.0 or later, PyTorch and nvcc.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from gpusim.common.files import write_table
from gpusim.lab.record.torch_gpu import Gpu, Queue

HERE = Path(__file__).resolve().parent
SIZE = 8192
PARTS = (8, 16, 32, 48, 64, 80, 96, 112, 120)
MEASURED_S = 0.25
PAUSE_S = 0.4
BURST = 120
SM_CLOCK = 1  # NVML_CLOCK_SM
INSTANT_POWER = 186  # NVML_FI_DEV_POWER_INSTANT
Load = Callable[[], Any]


class _FieldValue(ctypes.Structure):
    _fields_ = [
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency_us", ctypes.c_longlong),
        ("kind", ctypes.c_uint),
        ("status", ctypes.c_uint),
        ("value", ctypes.c_ulonglong),
    ]


class Sensors:
    """Clock and power of the first GPU, as NVML reads them."""

    def __init__(self) -> None:
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._nvml.nvmlInit_v2()
        self._device = ctypes.c_void_p()
        self._nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._device))

    def clock_mhz(self) -> int:
        """Of the SMs."""
        clock = ctypes.c_uint()
        self._nvml.nvmlDeviceGetClockInfo(self._device, SM_CLOCK, ctypes.byref(clock))
        return clock.value

    def power_w(self) -> float:
        """Of the whole GPU, at this instant."""
        field = _FieldValue(field=INSTANT_POWER)
        self._nvml.nvmlDeviceGetFieldValues(self._device, 1, ctypes.byref(field))
        return (field.value & 0xFFFFFFFF) / 1e3


def loads(torch: Any) -> dict[str, Load]:
    """Kernels beside the product, by name."""
    values = torch.randn(1 << 28, device="cuda", dtype=torch.bfloat16)
    result = torch.empty_like(values)
    left, right = (torch.randn(4096, 4096, device="cuda") for _ in range(2))
    small = torch.randn(1 << 22, device="cuda", dtype=torch.bfloat16)
    return {
        "nothing": lambda: None,
        "copy": lambda: result.copy_(values),
        "fp32_product": lambda: left @ right,
        "gelu": lambda: torch.nn.functional.gelu(small),
        "product": product(torch),
    }


def product(torch: Any) -> Load:
    """A BF16 product of random matrices."""
    left, right = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return lambda: left @ right


def measured(torch: Any, sensors: Sensors, call: Load, queue: Queue, other: Load, beside: Queue | None) -> str:
    """Mean time of a call (us), clock (MHz) and power (W) while it repeats beside another."""
    clocks, powers, times = [], [], []
    end = time.perf_counter() + MEASURED_S
    quiet = time.perf_counter() + MEASURED_S / 2.0
    others = torch.cuda.Event()
    while time.perf_counter() < end:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(queue.stream):
            start.record()
            call()
            stop.record()
        while not stop.query():
            if beside is not None and others.query():
                with torch.cuda.stream(beside.stream):
                    for _ in range(4):
                        other()
                    others.record()
        if time.perf_counter() > quiet:
            times.append(start.elapsed_time(stop) * 1e3)
            clocks.append(sensors.clock_mhz())
            powers.append(sensors.power_w())
    torch.cuda.synchronize()
    if not times:
        times, clocks, powers = [start.elapsed_time(stop) * 1e3], [sensors.clock_mhz()], [sensors.power_w()]
    return f"{fmean(times):.1f},{fmean(clocks):.0f},{fmean(powers):.0f},{len(times)}"


def recorded(gpu: Gpu, torch: Any) -> Iterator[str]:
    """The lines of power.csv."""
    sensors, call, others = Sensors(), product(torch), loads(torch)
    yield "gpu,load,sms,beside,us,mhz,watts,calls\n"
    whole = gpu.queue()
    for name, load in {"product": call, "fp32_product": others["fp32_product"], "copy": others["copy"]}.items():
        time.sleep(PAUSE_S)
        yield f"{gpu.name},{name},{gpu.sm_count},nothing,{measured(torch, sensors, load, whole, others['nothing'], None)}\n"
    for sms in PARTS:
        first, second = gpu.split(sms)
        for name, load in others.items():
            time.sleep(PAUSE_S)
            beside = None if name == "nothing" else second
            line = f"{gpu.name},product,{first.sms},{name},{measured(torch, sensors, call, first, load, beside)}\n"
            print(line, end="", file=sys.stderr)
            yield line


def bursts(gpu: Gpu, torch: Any) -> Iterator[str]:
    """The lines of bursts.csv: the time of each product after a pause."""
    call = product(torch)
    yield "gpu,call,start_us,us\n"
    for _ in range(2):
        time.sleep(PAUSE_S)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(BURST + 1)]
        marks[0].record()
        for mark in marks[1:]:
            call()
            mark.record()
        torch.cuda.synchronize()
    for number, (start, stop) in enumerate(zip(marks, marks[1:], strict=False)):
        yield f"{gpu.name},{number},{marks[0].elapsed_time(start) * 1e3:.0f},{start.elapsed_time(stop) * 1e3:.1f}\n"


def main() -> None:
    """Record both tables."""
    import torch

    out = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    gpu = Gpu()
    write_table(out / "bursts.csv", "".join(bursts(gpu, torch)))
    write_table(out / "power.csv", "".join(recorded(gpu, torch)))


if __name__ == "__main__":
    main()
