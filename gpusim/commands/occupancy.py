"""`gpusim occupancy`: how many blocks of a kernel fit on one SM, and which resource stops the next."""

from __future__ import annotations

import argparse

import gpusim
from gpusim.commands.arguments import byte_size, gpu_from, json_flag, whole
from gpusim.common.tables import Column, print_json, print_line, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", required=True, metavar="NAME|PATH", help="a GPU of `gpusim gpus`, or a GPU file")
    parser.add_argument("--threads", required=True, type=whole(1), metavar="N", help="threads of a block")
    parser.add_argument("--registers", required=True, type=whole(0), metavar="N", help="32-bit registers of a thread")
    parser.add_argument(
        "--shared-memory",
        type=byte_size,
        default=0,
        metavar="BYTES",
        help="static + dynamic, of a block, such as 8602 or 8KiB; default: 0",
    )
    json_flag(parser)


def run(args: argparse.Namespace) -> None:
    gpu = gpu_from(args.gpu)
    found = gpusim.occupancy(
        gpu,
        threads_per_block=args.threads,
        registers_per_thread=args.registers,
        shared_memory_per_block=args.shared_memory,
    )
    if args.json:
        print_json({"blocks_per_sm": found.blocks_per_sm, "limiter": found.limiter, "limits": dict(found.limits)})
        return
    limiter = found.limiter.replace("_", " ")
    if found.blocks_per_sm == 0:
        print_line(f"{gpu.name}: 0 blocks per SM: a block asks for more {limiter} than it may have")
    else:
        blocks = "block" if found.blocks_per_sm == 1 else "blocks"
        print_line(f"{gpu.name}: {found.blocks_per_sm} {blocks} per SM, limited by {limiter}")
    rows = [(name.replace("_", " "), "no limit" if n is None else str(n)) for name, n in found.limits.items()]
    print_table([Column("resource"), Column("blocks it allows", right=True)], rows)
