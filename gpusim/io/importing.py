"""From a profile to a trace: which format it is, which GPU it is of, and counters from a second profile."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import get_args

from gpusim.common.errors import InputError, one_line, quote
from gpusim.common.files import path_of
from gpusim.common.tables import counted, grouped
from gpusim.hardware.gpu import GPU, gpu_of
from gpusim.io import FORMATS, Order, gpu_trace, kineto, ncu_profile, nsys, nvprof, ranks, source, xprof
from gpusim.io.borrowing import Borrowed, borrow
from gpusim.io.conversion import GPUTimeline, as_trace
from gpusim.io.ncu import trimmed
from gpusim.io.ncu_profile import Profiled
from gpusim.io.part import Part, part_of
from gpusim.io.products import gpu_stem, recording_gpu, stands_in
from gpusim.io.timeline import Activity, LaunchedKernel, Product, Timeline
from gpusim.trace.format import Trace
from gpusim.trace.kernels import Mix

Key = tuple[str, tuple[int, int, int], tuple[int, int, int]]

_KINETO_WORDS = (b'"schemaVersion"', b'"deviceProperties"', b'"Operator"', b'"cpu_op"', b'"cuda_runtime"')
_EVENTS = re.compile(rb'"(traceEvents|ph)"\s*:')
_UNNAMED = re.compile(r"(\w<)?<?\bunnamed>::")  # Nsight Compute leaves out a bracket: f<4, unnamed>::g>, f<unnamed>::g>
_NVPROF_CATEGORY = re.compile(rb'"cat"\s*:\s*"cuda"')
_TIMES_LAUNCHES = "a profile that times each kernel: torch.profiler's export_chrome_trace, nsys or ncu"
_WITHOUT_LAUNCHES = (  # words that a file has, what it is, and what to record instead
    ((b'"rocprofiler-sdk-tool"',), "is a profile of an AMD GPU (rocprofv3)", "a profile of an NVIDIA GPU"),
    (
        (b'"nodes"', b'"schema"', b'"start_ts"'),
        "is an execution trace of PyTorch (Chakra), which holds operators and no kernels",
        "the profile of the same run: torch.profiler's export_chrome_trace",
    ),
    (
        (b'"frame"', b'"metrics"', b'"children"'),
        "is a profile of Triton's Proton, which sums up kernels and keeps no launches",
        _TIMES_LAUNCHES,
    ),
)
_UNREAD = {b"<": "is HTML or XML", b"\x7fELF": "is a program", b"%PDF": "is a PDF"}
_ENDINGS = (".gz", ".json", ".trace", ".pt", ".csv", ".ncu", ".sqlite", ".ncu-rep", *nsys.REPORTS, *xprof.ENDINGS)


@dataclass(frozen=True)
class Imported:
    """A trace, and what there is to say of how it was made."""

    trace: Trace  # the trace
    format: str  # of the profile
    remarks: tuple[str, ...]  # a line each


def import_profile(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    format: str | None = None,
    gpu: GPU | str | os.PathLike[str] | None = None,
    counters: str | Path | None = None,
    device: int | None = None,
    order: Order = "inferred",
    part: Part | None = None,
    sms: int | None = None,
) -> Imported:
    """Read a profile into a trace, or the profiles of all ranks of a job with a GPU each.

    Args:
        path: the profile, or those of several ranks.
        format: one of `gpusim.io.FORMATS`; None: detected from the content.
        gpu: the GPU of the recording: a GPU, its name or the path of its file; None: the one that the profile names.
        counters: a profile of Nsight Compute of the same program, whose counters the kernels get.
        device: index of the GPU if the profile has several; None: the first that ran kernels.
        order: order between streams: recorded, inferred from the times if it was not recorded, or none.
        part: a step, a range or a window of time, such as ``gpusim.Part(step=3)``; None: all.
        sms: SMs of the process, if it had a part of the GPU: under an MPS percentage, or in a green context; None: all.

    Raises:
        InputError: the fault of the file, in one line.
    """
    single = isinstance(path, str | os.PathLike | bytes | bytearray)  # the last two are sequences, and no paths
    several = not single and isinstance(path, Sequence) and len(path) > 0
    paths = [path_of(one, "profile") for one in (path if several else (path,))]  # type: ignore[union-attr]
    gpu = None if gpu is None else gpu_of(gpu)
    for name, value, known in (("format", format, (None, *FORMATS)), ("order", order, get_args(Order))):
        if not (value is None or isinstance(value, str)) or value not in known:
            raise InputError(None, name, f"is {quote(value)}", f"one of {', '.join(filter(None, known))}")
    if not (device is None or (isinstance(device, int) and device >= 0)):
        raise InputError(None, "device", f"is {quote(device)}", "the index of a GPU, or None")
    if not (part is None or isinstance(part, Part)):
        raise InputError(None, "part", f"is {quote(part)}", "a gpusim.Part, or None")
    if not (sms is None or (type(sms) is int and sms > 0)):
        raise InputError(None, "sms", f"is {quote(sms)}", "a number of SMs, or None")
    read = [_of_gpu(one, format, gpu, counters, device, part, sms) for one in paths]
    met = ranks.meetings([one.timeline for one in read])
    made = [
        as_trace(replace(one, timeline=ranks.without_waiting(one.timeline, of)), _trace_name(one.path), order)
        for one, of in zip(read, met, strict=True)
    ]
    trace = made[0] if len(made) == 1 else ranks.joined(made, [one.timeline for one in read], met)
    return Imported(trace, read[0].format, tuple(trace.notes.splitlines()[1:]))


def _of_gpu(
    path: Path,
    format: str | None,
    gpu: GPU | None,
    counters: str | Path | None,
    device: int | None,
    part: Part | None,
    sms: int | None,
) -> GPUTimeline:
    if path.suffix in nsys.REPORTS:
        with nsys.exported(path) as database:
            return replace(_of_gpu(database, "nsys", gpu, counters, device, part, sms), path=path)
    format = detect(path) if format is None else format
    whole, profiled = _read(path, format)
    if part:
        if profiled is not None:
            raise InputError(path, "", "is a profile of Nsight Compute, which has no times", "a timeline, for a part")
        whole = part_of(whole, part, path)
    timeline, chosen, remarks = _on_one_device(whole, path, device)
    kinds = set(whole.products.values())  # of a GPU that is not listed, what all that are have in common
    product = whole.products.get(chosen) or (kinds.pop() if len(kinds) == 1 else Product())
    named = product.sm_count
    if sms is not None and sms == named and (gpu is not None or gpu_stem(product) is None):
        product = replace(product, sm_count=None)  # under MPS CUDA tells a process only the SMs that it may use
    recorded_on = recording_gpu(product, gpu, path)
    if sms is not None and sms > recorded_on.sm_count:
        raise InputError(path, "sms", f"is {sms}", f"at most {recorded_on.sm_count}, as {recorded_on.name} has")
    sms = None if sms == recorded_on.sm_count else sms
    other = stands_in(product, recorded_on)
    if product.name is not None:
        apart = ", which is another GPU" if other else ""
        taken = f"taken as {recorded_on.name} ({recorded_on.title}){apart}"
        remarks.append(f"Recorded on {one_line(product.name)!r}, {taken}.")
    if profiled is not None:
        ran = ncu_profile.timeline(path, profiled, recorded_on, sms)
        timeline = replace(ran.on(chosen), remarks=timeline.remarks)
    if counters is not None:
        seen = [sms] if sms is not None and named == sms else [recorded_on.sm_count, sms]
        timeline, lines = _joined(timeline, path_of(counters, "counters"), recorded_on, sms, seen)
        remarks += lines
    if sms is not None:
        remarks.append(f"Its process had {sms} of the {recorded_on.sm_count} SMs.")
    notes = [f"Imported from {one_line(path.name)} ({format}).", *remarks]
    return GPUTimeline(path, format, timeline, recorded_on, notes, product.name if other else None, sms)


def timeline_of(path: Path, part: Part | None = None, device: int | None = None) -> Timeline:
    """Recorded timeline of one GPU of a profile, in the order of the starts; arguments as `import_profile`."""
    whole, _ = _read(path, detect(path))
    if whole.one_at_a_time:
        raise InputError(path, "", "is a profile of Nsight Compute, under which nothing overlaps", "a timeline")
    return _on_one_device(part_of(whole, part, path) if part else whole, path, device)[0]


def detect(path: Path) -> str:
    """The format of a profile, by its content."""
    head = source.head(path)
    if head.startswith(nsys.MAGIC):
        return "nsys"
    if head.startswith(ncu_profile.REPORT_MAGIC):
        return "ncu"
    if xprof.is_xplane(head):
        return "xprof"
    text = _text(head)
    if not text:
        raise InputError(path, "", "is empty", source.A_PROFILE)
    if text[:1] in (b"{", b"["):
        if without := _without_launches(path, text):
            raise without
        if re.match(rb'\{\s*"version"', text) and b'"streams"' in text:
            raise InputError(path, "", "is a trace already", source.A_PROFILE)
        if xprof.is_json(text):
            return "xprof"
        plain = not any(word in text for word in _KINETO_WORDS)
        return "nvprof" if plain and _NVPROF_CATEGORY.search(text) else "kineto"
    return _detect_table(path, text)


def _without_launches(path: Path, text: bytes) -> InputError | None:
    """What to tell of a file that describes work without the launches of its kernels; None of any other."""
    for words, what, expected in _WITHOUT_LAUNCHES:
        if all(word in text for word in words):
            return InputError(path, "", what, expected)
    return None


def profile_format(path: str | Path) -> str | None:
    """Return the format of a profile, one of `gpusim.io.FORMATS`; None of any other file."""
    path = Path(path)
    try:
        kind = detect(path)
    except InputError:
        return None
    if kind == "kineto" and not _EVENTS.search(source.head(path)):  # any JSON is taken for one
        return None
    return kind


def no_trace(path: str | Path, error: InputError) -> InputError:
    """Return what to tell of a file that is no trace: of a profile how to import it, else the error of reading it."""
    kind = profile_format(path)
    if kind is None:
        with suppress(InputError):  # it cannot be read
            return _without_launches(Path(path), _text(source.head(Path(path)))) or error
        return error
    expected = f"a trace, which `gpusim import {path} -o TRACE.json.gz` makes of it"
    return InputError(Path(path), "", f"is a profile ({kind}), not a trace", expected)


def _detect_table(path: Path, text: bytes) -> str:
    decoded = text.decode("utf-16" if text[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", "replace")
    for line in decoded.splitlines():
        if re.match(r'\s*"?ID"?,', line) or "==PROF==" in line or '"Metric Name"' in line:
            return "ncu"
        if gpu_trace.is_of_nsys(line):
            return "nsys"
        if re.match(r'\s*"?(Start|Type|Time\(%\))"?,', line) or "NVPROF" in line:
            return "nvprof"
        if re.match(r'\s*"?(Start|Time|Total Time) \((%|[num]?s)\)"?,', line):
            expected = f"{gpu_trace.A_GPU_TRACE}, or nsys export --type sqlite FILE"
            raise InputError(path, "", "is a table of nsys stats with no single launches", expected)
        if re.match(r'\s*"?(Kind|Index)"?,', line) and re.search(r"Agent|gpu-id|queue-id", line, re.IGNORECASE):
            raise source.of_amd(path)
        if re.match(r'\s*"?(Domain"?,"?Function|Name"?,"?Calls"?,"?TotalDurationNs)"?,', line):
            raise InputError(path, "", "is a table of rocprofv3 (AMD)", "a profile of an NVIDIA GPU")
    if text.startswith(b"NVR") or path.suffix in nsys.REPORTS:
        raise InputError(path, "", "is a report in its tool's own form", "nsys export --type sqlite FILE")
    what = next((what for magic, what in _UNREAD.items() if text.startswith(magic)), "unrecognised profile format")
    raise InputError(path, "", what, source.A_PROFILE)


def _read(path: Path, format: str) -> tuple[Timeline, list[Profiled] | None]:
    """The timeline; of Nsight Compute also the launches, whose demands take the GPU to work out."""
    if format == "ncu":
        profiled = ncu_profile.read(path)
        return ncu_profile.timeline(path, profiled, None), profiled
    if format == "nvprof":
        is_json = _text(source.head(path))[:1] in (b"{", b"[")
        return (nvprof if is_json else gpu_trace).read(path), None
    if format == "nsys" and not source.head(path).startswith(nsys.MAGIC):
        begins = source.head(path)[:20_000].decode("utf-8", "replace").splitlines()
        if any(map(gpu_trace.is_of_nsys, begins)):  # else a database that is cut short
            return gpu_trace.read(path), None
    return {"kineto": kineto.read, "nsys": nsys.read, "xprof": xprof.read}[format](path), None


def _text(head: bytes) -> bytes:
    """First bytes of a file after its byte order mark and blanks."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")


def _on_one_device(timeline: Timeline, path: Path, device: int | None) -> tuple[Timeline, int, list[str]]:
    kernels = timeline.kernels_by_device()
    if not kernels:
        raise InputError(path, "", "holds no kernels", "a profile of a program that ran kernels on the GPU")
    chosen = next(iter(kernels)) if device is None else device
    if chosen not in kernels:
        raise InputError(path, "device", f"GPU {chosen} ran no kernels", f"one of {', '.join(map(str, kernels))}")
    remarks = []
    if len(kernels) > 1:
        counts = ", ".join(f"GPU {index}: {counted(count, 'kernel')}" for index, count in kernels.items())
        remarks.append(f"The profile is of several GPUs ({counts}); this is GPU {chosen} (--device chooses).")
    return timeline.on(chosen), chosen, remarks


def _trace_name(path: Path) -> str:
    name = path.name
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name or path.name


# ---- counters of one profile, timeline of another


def _joined(
    timeline: Timeline, path: Path, gpu: GPU, sms: int | None, seen: Sequence[int | None]
) -> tuple[Timeline, list[str]]:
    """The timeline with the counters of another profile, by kernel name, grid, block and order, and what came of it.

    ``sms``: those of the process; None: all. ``seen``: numbers of SMs that the other profile may name.
    """
    if detect(path) != "ncu":
        raise InputError(path, "", "is no profile of Nsight Compute", f"{ncu_profile.A_RAW_PAGE}, or a .ncu-rep")
    profiled = ncu_profile.read(path)
    for product in dict.fromkeys(launch.product for launch in profiled):
        if product.sm_count not in (None, *seen):  # which says how to share the counters out
            problem = f"is of a GPU with {product.sm_count} SMs ({one_line(product.name or 'unnamed')})"
            part = f"the process, which had {sms} of {gpu.sm_count}" if sms else f"{gpu.name}, which has {gpu.sm_count}"
            raise InputError(path, "", problem, f"counters of {part}")
    runs = [(n, a, a.work) for n, a in enumerate(timeline.activities) if isinstance(a.work, LaunchedKernel)]
    matched = _match(
        [(n, (work.name, work.grid, work.block)) for n, _, work in runs],
        [(p.name, p.grid, p.block) for p in profiled],
    )
    if not matched:
        raise InputError(path, "", "has no launch of this timeline's kernels", "a profile of the same program")
    demands = {n: _demand(profiled[m], timeline.activities[n], path, gpu, sms) for n, m in matched.items()}
    mixes = {n: mix for n, mix in demands.items() if mix is not None}
    if not mixes:
        expected = "a profile with the counters of the model, such as gpusim record or ncu --set full write"
        raise InputError(path, "", "has no counters of this timeline's kernels", expected)
    used = len(set(matched.values()))
    line = (
        f"{len(mixes)} of {len(runs)} kernels got counters from {one_line(path.name)}; "
        f"{len(runs) - len(mixes)} got none, {len(profiled) - used} of {len(profiled)} profiled launches match none."
    )
    lent = borrow(timeline.activities, mixes, gpu.part(sms))
    known, activities = {**mixes, **lent.same, **lent.other}, list(timeline.activities)
    for n, activity, work in runs:
        activities[n] = replace(activity, work=replace(work, mix=known.get(n, work.mix)))
    return replace(timeline, activities=activities), [line, *_borrowed(lent)]


def _borrowed(lent: Borrowed) -> list[str]:
    told = (
        (len(lent.same), "have those of another launch of the same kernel with the same grid"),
        (len(lent.other), "have an estimate from a launch of the same kernel with another grid"),
    )
    said = [f"{count} {what}" for count, what in told if count]
    return [f"Of the kernels that got none, {' and '.join(said)}."] if said else []


def _demand(profiled: Profiled, activity: Activity, path: Path, gpu: GPU, sms: int | None) -> Mix | None:
    """The demand, at the clock of the timeline: so is its time of L2, which was counted at the profiler's clocks."""
    mix, counted_us = profiled.mix(path, gpu, sms, activity.duration_us), profiled.duration_us
    if mix is None or not mix.l2_busy_us or not counted_us or not activity.duration_us:
        return mix
    return mix.model_copy(update={"l2_busy_us": trimmed(mix.l2_busy_us * activity.duration_us / counted_us)})


def _match(wanted: list[tuple[int, Key]], given: list[Key]) -> dict[int, int]:
    """For each kernel the number of the profiled launch whose counters it gets: first by whole names, then by short."""
    found = _in_order(wanted, list(enumerate(given)))
    taken = set(found.values())
    return found | _in_order(
        [(n, _short(key)) for n, key in wanted if n not in found],
        [(m, _short(key)) for m, key in enumerate(given) if m not in taken],
    )


def _in_order(wanted: list[tuple[int, Key]], given: list[tuple[int, Key]]) -> dict[int, int]:
    """Pair equal keys in order; where the timeline has a whole number of rounds of them, each round gets the same."""
    counted = grouped(given, itemgetter(1))
    found: dict[int, int] = {}
    for key, runs in grouped(wanted, itemgetter(1)).items():
        launches = counted.get(key, [])
        rounds = len(runs) // len(launches) if launches and len(runs) % len(launches) == 0 else 1
        found |= {n: m for (n, _), (m, _) in zip(runs, launches * rounds, strict=False)}
    return found


def _short(key: Key) -> Key:
    """The key with the kernel's name alone: no return type, namespaces, template arguments or parameters."""
    name = key[0].replace("(anonymous namespace)::", "").removeprefix("void ")
    name = _UNNAMED.sub(r"\1", name)
    depth = 0
    plain = []
    for character in name:
        depth += character in "<("
        if depth == 0:
            plain.append(character)
        elif character in ">)":
            depth -= 1
        if character == "(" and depth == 1:
            break
    return ("".join(plain).split("::")[-1].strip().split(" ")[-1], *key[1:])
