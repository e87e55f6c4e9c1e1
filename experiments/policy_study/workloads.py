"""What the study replays: pairs of recorded kernels, and latency-critical requests beside a best-effort job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from experiments.study import TRACES
from gpusim.calibrate.kernels import Kernels
from gpusim.hardware.gpu import GPU, load_gpu
from gpusim.session import Session
from gpusim.trace.file import load_trace
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Convolution, Kernel, LoopArrivals, PoissonArrivals, Stream

JOB_US = {"h200": 1500.0, "k40c": 15000.0}  # a job launches its kernel until this much time alone has gone by
COMPUTE, MEMORY = "compute", "memory"
MUCH_STALLED_PERCENT = 10.0  # of a kernel in a paper's table
CLASSES = (f"{COMPUTE} + {COMPUTE}", f"{COMPUTE} + {MEMORY}", f"{MEMORY} + {MEMORY}")


@dataclass(frozen=True)
class Chosen:
    """One recorded kernel: where it stands in traces/, and what to call it here."""

    name: str
    gpu: str
    trace: str
    operation: str
    algorithm: str
    index: int

    @property
    def launch(self) -> KernelLaunch:
        """The launch, on the main stream."""
        return _launch(self.trace, self.operation, self.algorithm, self.index)


@cache
def _launch(trace: str, operation: str, algorithm: str, index: int) -> KernelLaunch:
    found = next(op for op in load_trace(TRACES / trace).operations() if op.id == operation)
    assert isinstance(found, Convolution)
    chosen = next(a for a in (found.selected, *found.alternatives) if a.algorithm == algorithm)
    return chosen.kernels[index].model_copy(update={"stream": "main"})


_GOOGLENET, _SPAA = "googlenet_forward.json.gz", "spaa20_table1.json"
KERNELS = (
    Chosen("precomp", "h200", "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz", "3a.3x3", "IMPLICIT_PRECOMP_GEMM/FMA", 0),
    Chosen("fft_gemm", "h200", _GOOGLENET, "3a.3x3", "FFT_TILING/FMA", 2),
    Chosen("sgemm", "h200", _GOOGLENET, "3a.1x1", "GEMM/FMA", 1),
    Chosen("wino_gemm", "h200", "resnet50_2a.json.gz", "2a.3x3", "WINOGRAD_NONFUSED/FMA", 2),
    Chosen("tf32_conv1", "h200", _GOOGLENET, "conv1.7x7", "IMPLICIT_PRECOMP_GEMM/TF32", 2),
    Chosen("tf32_conv2", "h200", _GOOGLENET, "conv2.3x3", "IMPLICIT_PRECOMP_GEMM/TF32", 2),
    Chosen("nhwc_nchw", "h200", _GOOGLENET, "conv2.3x3", "IMPLICIT_PRECOMP_GEMM/TF32", 3),
    Chosen("fft_inverse", "h200", _GOOGLENET, "conv2.3x3", "FFT/FMA", 4),
    Chosen("fft32_inverse", "h200", _GOOGLENET, "3b.3x3", "FFT_TILING/FMA", 3),
    Chosen("gemm_1x1", "h200", _GOOGLENET, "conv2.1x1", "IMPLICIT_PRECOMP_GEMM/TF32", 0),
    Chosen("im2col", "h200", _GOOGLENET, "conv2.3x3", "GEMM/FMA", 0),
    Chosen("precomp_3x3", "k40c", _SPAA, "3a.3x3", "IMPLICIT_PRECOMP_GEMM/FMA", 0),
    Chosen("fft_3x3", "k40c", _SPAA, "3a.3x3", "FFT_TILING/FMA", 0),
    Chosen("precomp_5x5", "k40c", _SPAA, "3a.5x5", "IMPLICIT_PRECOMP_GEMM/FMA", 0),
    Chosen("fft_5x5", "k40c", _SPAA, "3a.5x5", "FFT_TILING/FMA", 0),
)


@dataclass(frozen=True)
class Pair:
    """Two jobs, each a stream that launches one kernel again and again."""

    gpu: str
    first: Chosen
    second: Chosen

    @property
    def name(self) -> str:
        """Such as ``sgemm + im2col``."""
        return f"{self.first.name} + {self.second.name}"

    @property
    def trace(self) -> Trace:
        """Both jobs once."""
        jobs = tuple(_job(kernel, JOB_US[self.gpu]) for kernel in (self.first, self.second))
        return Trace(version=1, name=self.name, device=self.gpu, streams=jobs)


def _job(kernel: Chosen, length_us: float) -> Stream:
    launches = max(1, round(length_us / kernel.launch.duration_us))
    operations = tuple(Kernel(id=f"{kernel.name}:{n}", kind="kernel", kernel=kernel.launch) for n in range(launches))
    return Stream(name=kernel.name, operations=operations)


MODULES = (
    *(f"inception_{name}.json.gz" for name in ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b")),
    *(f"resnet50_{name}.json.gz" for name in ("2a", "3a", "4a", "5a")),
)


def pairs(gpu: str) -> Iterator[Pair]:
    """All pairs of different kernels of a GPU."""
    for first, second in combinations([kernel for kernel in KERNELS if kernel.gpu == gpu], 2):
        yield Pair(gpu, first, second)


def bound(kernel: Chosen) -> str:
    """Compute or memory: whether alone it asks for as much L2 or DRAM bandwidth as there is, as CD-Search classifies.

    The seed's table has no bytes; there a kernel counts as memory-bound by the share of stalls that wait for memory.
    """
    mix = kernel.launch.mix
    if mix is not None and mix.memory_stall_percent is not None:
        return MEMORY if mix.memory_stall_percent > MUCH_STALLED_PERCENT else COMPUTE
    load = models(kernel.gpu).model(kernel.launch, kernel.name).own_load
    return MEMORY if max(load.dram, load.l2) >= 1.0 else COMPUTE


def class_of(pair: Pair) -> str:
    """One of `CLASSES`."""
    return " + ".join(sorted((bound(pair.first), bound(pair.second))))


@cache
def models(gpu: str) -> Kernels:
    """What is known of the kernels on a GPU."""
    return Kernels(gpu_of(gpu), gpu_of(gpu))


@cache
def session_on(gpu: str) -> Session:
    """A session on a GPU, shared by all replays."""
    return Session(gpu_of(gpu), gpu_of(gpu))


@cache
def gpu_of(name: str) -> GPU:
    """A GPU by name."""
    return load_gpu(name)


# ---- inference -------------------------------------------------------------------------------------------------------

REQUEST, JOB = "inception_5b.json.gz", "resnet50_3a.json.gz"
REQUESTS, SEED = 60, 1
LOADS = (0.2, 0.5)  # of the GPU's time, by the requests alone


def inference(load: float, request_us: float, job_us: float, *, job: bool = True) -> Trace:
    """Requests that arrive at random (Poisson) with priority 1, beside a job that loops with priority 0.

    Args:
        load: mean time of the requests alone over the mean time between them.
        request_us: time of a request alone.
        job_us: time of one pass of the job alone.
        job: leave it out to see the requests alone.
    """
    rate = load / request_us
    arrivals = PoissonArrivals(kind="poisson", rate_per_s=rate * 1e6, count=REQUESTS, seed=SEED)
    streams = [_in_a_row(REQUEST, "request").model_copy(update={"priority": 1, "arrivals": arrivals})]
    if job:
        passes = max(2, round(1.6 * REQUESTS / rate / job_us))
        loop = LoopArrivals(kind="loop", count=passes)
        streams.append(_in_a_row(JOB, "job").model_copy(update={"arrivals": loop}))
    return Trace(version=1, name=f"inference at {load:.0%}", device="h200", streams=tuple(streams))


def _in_a_row(file: str, name: str) -> Stream:
    """All operations of a trace in one stream."""
    operations = [
        op.model_copy(update={"id": f"{name}:{op.id}", "depends_on": ()})
        for op in load_trace(TRACES / file).operations()
    ]
    return Stream(name=name, operations=tuple(operations))


def alone(streams: Sequence[Stream]) -> Trace:
    """Streams without arrivals, to see how long they take."""
    quiet = tuple(stream.model_copy(update={"arrivals": None}) for stream in streams)
    return Trace(version=1, name="alone", device="h200", streams=quiet)
