"""Reading policy parameters that are of streams, such as ``64+68`` or ``A:2+B:3``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar

from gpusim.common.errors import InputError, described, expected_one_of, quote
from gpusim.common.numbers import MOST_DIGITS
from gpusim.common.tables import counted
from gpusim.policies.checks import name_of
from gpusim.policies.interface import BY_NAME, OF_STREAMS, Policy

T = TypeVar("T")

LONGEST = 10_000  # characters of a parameter

STREAM, PROGRAM = "stream", "program"  # what a policy divides the GPU between


class Programs(tuple[str, ...]):
    """Names of programs, for a policy that divides by them; others get the names of streams."""


def called(names: Sequence[str]) -> str:
    """Words for each of the names that `Policy.prepare` gets, for messages."""
    return PROGRAM if isinstance(names, Programs) else STREAM


def for_each(what: str, count: int, names: Sequence[str]) -> str:
    """So many of something for so many names: ``2 shares for 1 program``."""
    return f"{counted(count, what)} for {counted(len(names), called(names))}"


def wrong(policy: str, problem: str, expected: str) -> InputError:
    """The error of a parameter that is wrong."""
    return InputError(None, f"policy {policy}", problem, expected)


def decimal(text: str) -> Fraction:
    """A decimal number, at least 0, exactly; ValueError otherwise."""
    whole, _, rest = text.partition(".")
    if len(text) > MOST_DIGITS or not (whole + rest).isascii() or not (whole + rest).isdigit():
        raise ValueError
    return Fraction(text)


def hexadecimal(text: str) -> int:
    """A hexadecimal number, at least 0, with or without 0x; ValueError otherwise."""
    if not re.fullmatch("(0[xX])?[0-9a-fA-F]{1,1000}", text):
        raise ValueError
    return int(text, 16)


def plus_separated(policy: str, key: str, text: str, read: Callable[[str], T], what: str) -> list[T]:
    """Return values between plus signs, each made of its text by ``read``; ``what`` is one of them, for messages.

    What ``read`` refuses with a ValueError is an InputError.
    """
    found = []
    for part in text[:LONGEST].split("+"):
        try:
            found.append(read(part.strip()))
        except (ValueError, ZeroDivisionError):
            expected = f"{what}, one for each stream or program, joined by +"
            raise wrong(policy, f"{key} has {quote(part)}", expected) from None
    return found


def one_each(policy: str, key: str, values: Sequence[T], streams: Sequence[str]) -> list[T]:
    """One value for each stream of a trace; a single value is for all."""
    if len(values) == 1:
        return [values[0]] * len(streams)
    require_one_each(policy, key, "value", values, streams)
    return list(values)


def require_one_each(
    policy: str, given: str, what: str, values: Sequence[object], streams: Sequence[str], by: bool = True
) -> None:
    """Refuse another number of values than there are streams.

    For messages ``given`` is the parameter and ``what`` one of its values; ``by``: the policy has `Divides.by`.
    """
    if len(values) != len(streams):
        other = STREAM if called(streams) == PROGRAM else PROGRAM
        instead = f"; or by={other} and one for each {other}" * by
        problem = f"{given} has {for_each(what, len(values), streams)}"
        raise wrong(policy, problem, f"one each: {', '.join(streams)}{instead}")


def known_stream(policy: str, key: str, stream: str, streams: Sequence[str]) -> None:
    """Check that a trace has a stream."""
    if stream not in streams:
        raise wrong(policy, f"{key} names {called(streams)} {quote(stream)}", expected_one_of(streams, stream))


def deepcopied(policy: Policy) -> Policy:
    """A copy of a policy, for another GPU."""
    try:
        return deepcopy(policy)
    except Exception as error:
        problem = f"cannot be copied ({described(error)})"
        raise wrong(name_of(policy), problem, "one that can, for several GPUs") from error


def for_streams(policy: Policy, streams: Sequence[str], mine: Sequence[str]) -> Policy:
    """Return an unused policy for the streams of one of several GPUs: itself, if its parameters may stay as they are.

    Parameters in the order of the trace's streams keep the values of these, if there is one for each stream of the
    trace; parameters by name keep the names that are not of other GPUs' streams.
    """
    changes = {
        field.name: _kept(getattr(policy, field.name), field.metadata[OF_STREAMS], streams, mine)
        for field in (fields(policy) if is_dataclass(policy) else ())
        if OF_STREAMS in field.metadata and isinstance(getattr(policy, field.name), str)
    }
    same = all(getattr(policy, name) == value for name, value in changes.items())
    return policy if same else replace(policy, **changes)


def _kept(text: str, how: str, streams: Sequence[str], mine: Sequence[str]) -> Any:
    parts = text.split("+")
    if how == BY_NAME:
        others = set(streams) - set(mine)
        kept = [part for part in parts if (part.rpartition(":")[0] or part).strip() not in others]
        return "+".join(kept) if kept else None
    if len(parts) != len(streams):
        return text
    return "+".join(part for part, stream in zip(parts, streams, strict=True) if stream in mine)
