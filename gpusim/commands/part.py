"""Arguments that choose a part of a profile: a step, a range or a window of time."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from gpusim.commands.arguments import whole
from gpusim.common.errors import quote
from gpusim.common.numbers import MICROSECONDS

if TYPE_CHECKING:
    from gpusim.io.part import Part

OPTIONS = {"device": "--device", "step": "--step", "range": "--range", "to_us": "--to"}  # by what errors name


def part_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--step``, ``--range``, ``--from``, ``--to`` and ``--device``."""
    parser.add_argument("--step", type=whole(0), metavar="N", help="only ProfilerStep#N of a PyTorch profile")
    parser.add_argument(
        "--range",
        metavar="NAME",
        help="only work that was launched during an NVTX range or annotation; NAME@2 is the second of that name",
    )
    for name, what in (("from", "from then on"), ("to", "until then")):
        parser.add_argument(
            f"--{name}",
            dest=f"{name}_us",
            type=time_us,
            metavar="TIME",
            help=f"only what began {what}, counted from the first GPU activity, as 12ms",
        )
    parser.add_argument("--device", type=whole(0), metavar="N", help="which of several GPUs; default: the first")


def part_from(args: argparse.Namespace) -> Part:
    """The part that the arguments choose."""
    from gpusim.io.part import Part

    return Part(args.step, args.range, args.from_us, args.to_us)


def time_us(text: str) -> float:
    """A time such as ``12ms``, ``1.5s``, ``300us`` or ``300`` (us): `type` of an argument."""
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(us|ms|s|)", text.strip())
    if found is None:
        expected = "a time from the profile's first GPU activity, as 12ms"
        raise argparse.ArgumentTypeError(f"is {quote(text)}; expected {expected}")
    return float(found[1]) * MICROSECONDS[found[2] or "us"]
