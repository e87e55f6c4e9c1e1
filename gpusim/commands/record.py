"""`gpusim record`: measure a GPU on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from gpusim.commands.arguments import whole
from gpusim.common.errors import InputError, quote
from gpusim.common.tables import Column, print_table

EPILOG = """gpusim record OPS.py --out DIR                     PyTorch callables and whole models that a file names
gpusim record NETWORK|SHAPES --batch N --out DIR   a network or a list of shapes with cuDNN
gpusim record microbench --out DIR                 the constants of the model
gpusim record microbench --matrix --out DIR        kernels that load one resource each, isolated and in pairs
gpusim record host --out DIR                       host times of allocations, copies and launches
gpusim record [--out DIR] -- PROGRAM …             your own program under Nsight Compute"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "what",
        nargs="?",
        metavar="WHAT",
        help="a .py file, a network by name, a .toml or .csv of shapes, microbench or host",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the recording; existing files are kept")
    calls = parser.add_argument_group("a network or shapes")
    calls.add_argument("--batch", type=whole(1), metavar="N", help="samples per batch")
    calls.add_argument("--training", action="store_true", help="a training iteration; default: the forward pass")
    calls.add_argument("--math", default="FMA,TF32", metavar="LIST", help="FMA, TF32 or both (default)")
    calls.add_argument(
        "--algorithms",
        choices=("all", "fastest"),
        default="all",
        help="algorithms whose kernels are recorded (default: all); all are timed",
    )
    calls.add_argument(
        "--outcomes", action="store_true", help="also measure what `gpusim validate` scores; of OPS.py, too"
    )
    bench = parser.add_argument_group("microbench")
    bench.add_argument(
        "--counters", action="store_true", help="of --matrix: profile the kernels with Nsight Compute (ncu), too"
    )
    bench.add_argument("--matrix", action="store_true", help="time the resource matrix instead")
    bench.add_argument("--raw", type=Path, metavar="DIR", help="keep the raw logs there")
    parser.set_defaults(program=[])


def run(args: argparse.Namespace) -> None:
    """Record a program, operations, a network or microbenchmarks."""
    if args.program and args.what is not None:
        raise InputError(None, "WHAT", f"{args.what} and a program are given", "one of the two")
    if args.what is None and not args.program:
        raise InputError(None, "WHAT", "missing", "OPS.py, a network, shapes, microbench, host, or -- and a program")
    if args.out is None and not args.program:
        raise InputError(None, "--out", "missing", "a folder for what is recorded")
    if args.what == "microbench" and not args.matrix:
        _microbench(args)
    else:
        for line in _recorded(args):
            print(line)


def _recorded(args: argparse.Namespace) -> Iterator[str]:
    """Record anything but the microbenchmarks; yield a line of progress for each step."""
    if args.program:
        from gpusim.lab.record.own_program import record_program

        return record_program(args.program, args.out or Path("recording"))
    if args.what.endswith(".py"):
        from gpusim.lab.record.ops import record_ops
        from gpusim.lab.record.torch_gpu import Gpu

        return record_ops(Path(args.what), args.out, args.outcomes, Gpu)
    if args.what == "host":
        from gpusim.lab.record.host import record_host

        return record_host(args.out)
    if args.what != "microbench":
        return _calls(args)
    from gpusim.lab.record.matrix import record_matrix

    if args.raw is not None:
        raise InputError(None, "--raw", "is not for --matrix, which keeps no logs", "no such option")
    return record_matrix(args.out, counters=args.counters)


def _microbench(args: argparse.Namespace) -> None:
    from gpusim.lab.record.microbench import run_microbenchmarks

    if args.counters:
        raise InputError(None, "--counters", "is for --matrix only", "--matrix with it, or no such option")
    result = run_microbenchmarks(args.out, args.raw)
    columns = [Column("constant"), Column("value", right=True), Column("unit"), Column("meaning", narrow="break")]
    constants = result["constants"].items()
    print_table(columns, [(name, f"{c['value']:g}", c["unit"], c["meaning"]) for name, c in constants])


def _calls(args: argparse.Namespace) -> Iterator[str]:
    from gpusim.lab.record.calls import MATHS
    from gpusim.lab.record.network import Order, record

    if args.batch is None:
        raise InputError(None, "--batch", "missing", "a number of samples")
    maths = tuple(args.math.split(","))
    if not set(maths) <= set(MATHS) or len(set(maths)) < len(maths):
        raise InputError(None, "--math", f"is {quote(args.math)}", f"{','.join(MATHS)}, or some of these, each once")
    order = Order(args.what, args.batch, args.training, maths, args.algorithms == "all", args.outcomes)
    return record(order, args.out)
