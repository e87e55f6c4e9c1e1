"""Kinds of command-line arguments: each refuses what it is not with one clear line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpusim.common.errors import InputError, quote

if TYPE_CHECKING:
    from gpusim.hardware.gpu import GPU


def whole(least: int) -> Callable[[str], int]:
    """A whole number of at least ``least``, as the `type` of an argument."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"is {quote(text)}; expected a whole number of at least {least}")
        return value

    return read


def gpu_from(name_or_path: str) -> GPU:
    """The GPU that ``--gpu`` names.

    Raises:
        InputError: there is none, or its file is wrong.
    """
    from gpusim.hardware.gpu import load_gpu

    try:
        return load_gpu(name_or_path)
    except InputError as error:
        raise InputError(error.path, error.place or "--gpu" * (not error.path), error.problem, error.expected) from None


def positive(text: str) -> float:
    """A finite number above 0, as the `type` of an argument."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value > 0.0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"is {quote(text)}; expected a number above 0")
    return value


def json_flag(parser: argparse.ArgumentParser) -> None:
    """Adds ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
