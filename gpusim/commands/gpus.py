"""`gpusim gpus`: the GPUs that ship, and what is known of them."""

from __future__ import annotations

import argparse

from gpusim.commands.arguments import json_flag


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Prints a row, or an object with every value, a GPU."""
    from dataclasses import fields

    from gpusim.common.tables import Column, number, print_json, print_table
    from gpusim.hardware.gpu import GPU, gpu_names, load_gpu

    gpus = [load_gpu(name) for name in gpu_names()]
    if args.json:
        parts = ("limits", "model", "host")
        plain = [column.name for column in fields(GPU) if column.name not in (*parts, "unverified")]
        print_json(
            [
                {name: getattr(gpu, name) for name in plain}
                | {"fp32_peak_tflops": gpu.fp32_peak_tflops}
                | {part: getattr(gpu, part).model_dump(mode="json") for part in parts}
                | {"unverified": list(gpu.unverified)}
                for gpu in gpus
            ]
        )
        return 0
    columns = [
        Column("name"),
        Column("GPU", narrow="break"),
        Column("cc"),
        *(Column(title, right=True) for title in _NUMBERS),
    ]
    rows = [
        (
            gpu.name,
            gpu.title.removeprefix("NVIDIA "),
            gpu.compute_capability,
            str(gpu.sm_count),
            number(gpu.boost_clock_mhz, 0),
            number(gpu.fp32_peak_tflops, 1),
            number(gpu.dram_bandwidth_gb_per_s, 0),
            number(gpu.l2_bytes / 2**20, 1),
            number(gpu.memory_bytes / 2**30, 0),
        )
        for gpu in gpus
    ]
    print_table(columns, rows, TITLE)
    return 0


TITLE = "The GPUs that ship: peak FP32 TFLOP/s at the boost clock, peak bandwidth and GiB of memory"
_NUMBERS = ("SMs", "boost MHz", "TFLOP/s", "DRAM GB/s", "L2 MiB", "GiB")
