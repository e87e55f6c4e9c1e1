"""`gpusim gpus`: list the GPUs that ship, show one in full, or write the file of a new one."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import gpusim
from gpusim.commands.arguments import as_options, given, gpu_from, json_flag, whole
from gpusim.common.errors import InputError, quote
from gpusim.common.files import require_output, write_text
from gpusim.common.tables import Column, counted, number, print_json, print_line, print_rows, print_table

TITLE = (
    "The GPUs that ship: compute capability (cc), peak FP32 TFLOP/s at the boost clock, peak bandwidth, memory in GiB"
)
PARTS = ("limits", "model", "host")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "gpu", nargs="?", metavar="NAME|PATH|new", help="print this one in full, with what is assumed; or new"
    )
    parser.add_argument(
        "--from-profile",
        type=Path,
        metavar="FILE",
        help="with new: write the file of the GPU that a profile of nsys or PyTorch was recorded on",
    )
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE.toml", help="with new: the file to write; default: the name of the GPU"
    )
    parser.add_argument("--device", type=whole(0), metavar="N", help="with new: which of several GPUs")
    json_flag(parser)


def run(args: argparse.Namespace) -> None:
    """Print one row or one JSON object per GPU, or all values of one GPU."""
    from gpusim.hardware.gpu import gpu_names, sources_of

    if args.gpu == "new":
        return _new(args)
    extra = given(args, ("from_profile", "out")) + ["--device"] * (args.device is not None)
    if extra:
        raise InputError(None, extra[0], "is given without new", "gpusim gpus new --from-profile FILE")
    one = None if args.gpu is None else gpu_from(args.gpu, "NAME")
    names = gpu_names() if one is None else [args.gpu]
    gpus = [gpusim.load_gpu(name) for name in names]
    if args.json:
        found = [_values(gpu) | {"sources": sources_of(name)} for gpu, name in zip(gpus, names, strict=True)]
        print_json(found if one is None else found[0])
    elif one is not None:
        _print_whole(one, sources_of(args.gpu))
    else:
        columns: list[tuple[Column, Callable[[gpusim.GPU], str]]] = [
            (Column("name"), lambda gpu: gpu.name),
            (Column("GPU", narrow="break"), lambda gpu: gpu.title.removeprefix("NVIDIA ")),
            (Column("cc"), lambda gpu: gpu.compute_capability),
            (Column("SMs", right=True), lambda gpu: str(gpu.sm_count)),
            (Column("boost MHz", right=True), lambda gpu: number(gpu.boost_clock_mhz, 0)),
            (Column("TFLOP/s", right=True), lambda gpu: number(gpu.fp32_peak_tflops, 1)),
            (Column("DRAM GB/s", right=True), lambda gpu: number(gpu.dram_bandwidth_gb_per_s, 0)),
            (Column("L2 MiB", right=True), lambda gpu: number(gpu.l2_bytes / 2**20, 1)),
            (Column("GiB", right=True), lambda gpu: number(gpu.memory_bytes / 2**30, 0)),
        ]
        print_rows(gpus, columns, TITLE)


def _new(args: argparse.Namespace) -> None:
    """Write the file of the GPU that a profile describes, and list the values that the profile lacks."""
    from gpusim.hardware.gpu import gpu_names
    from gpusim.io.new_gpu import described, gpu_file, name_of

    if args.from_profile is None:
        raise InputError(None, "gpus new", "lacks --from-profile", "a profile of nsys or PyTorch")
    with as_options(device="--device"):
        found = described(args.from_profile, args.device)
    out = args.out or Path(f"{name_of(found)}.toml")
    if out.suffix != ".toml":
        raise InputError(None, "-o", f"is {quote(str(out))}", "a file that ends in .toml")
    if out.stem in gpu_names():  # it would hide the new file
        raise InputError(None, "-o", f"is named {quote(out.stem)}, as a GPU that ships", "another name of the file")
    if args.out is None and out.exists():
        raise InputError(out, "", "is there already", "-o FILE.toml, to name the file to write")
    require_output(out, [args.from_profile])
    write_text(out, gpu_file(found, args.from_profile))
    gpu = gpusim.load_gpu(out)
    print_line(f"{out}: {gpu.title}, {gpu.sm_count} SMs, compute capability {gpu.compute_capability}")
    doubtful = [name for name in gpu.unverified if "." not in name]
    if doubtful:
        print_line(
            f"  {counted(len(doubtful), 'value')} not in the profile, taken from the nearest GPU: {', '.join(doubtful)}"
        )
    print_line(
        f"  use it with --gpu {out}; `gpusim record microbench` on the GPU itself measures the model's constants"
    )


def _values(gpu: gpusim.GPU) -> dict[str, Any]:
    plain = [column.name for column in fields(gpu) if column.name not in (*PARTS, "unverified")]
    return (
        {name: getattr(gpu, name) for name in plain}
        | {"fp32_peak_tflops": gpu.fp32_peak_tflops}
        | {part: getattr(gpu, part).model_dump(mode="json") for part in PARTS}
        | {"unverified": list(gpu.unverified)}
    )


def _print_whole(gpu: gpusim.GPU, sources: Mapping[str, str]) -> None:
    from gpusim.choose.settings import granted

    values = _values(gpu)
    print_line(f"{gpu.name}: {gpu.title}")
    parts = {part: values.pop(part) for part in PARTS}
    del values["name"], values["title"], values["unverified"]
    values |= {f"{part}.{name}": value for part in ("limits", "model") for name, value in parts[part].items()}
    values["host"] = [name for name, table in parts["host"].items() if table is not None] or None
    rows = [
        (name, _text(value), "no" if name in gpu.unverified else "", sources.get(name, ""))
        for name, value in values.items()
    ]
    columns = [Column("value"), Column(gpu.name, narrow="break"), Column("verified"), Column("source", narrow="break")]
    print_table(columns, rows)
    if shares := granted(gpu):
        print()
        for mechanism, text in shares.items():
            print_line(f"{mechanism}: {text}")


def _text(value: Any) -> str:
    if value is None or value == ():
        return "not known"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) else f"{value:,.12g}"
