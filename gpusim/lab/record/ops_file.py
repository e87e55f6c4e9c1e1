"""OPS.py: a Python file that names PyTorch callables and whole models to record.

``OPS`` and ``MODELS`` map a name to a function without arguments: it makes its inputs on the GPU and returns the
callable that is timed, which takes no arguments either. ``PAIRS`` and ``MODEL_PAIRS`` list two names each, that run
side by side (default: every two). ``SEQUENCES`` maps a name to lists of ops: one list for each stream.
"""

from __future__ import annotations

import re
import runpy
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, TypeVar

from gpusim.common.errors import InputError, one_line, quote

OpCall = Callable[[], object]
Make = Callable[[], OpCall]
T = TypeVar("T")

MAPS = {"OPS": "an op", "MODELS": "a model"}
A_FILE = "a dict OPS or MODELS: names, each with a function that returns the callable to record"
_NAME = re.compile(r"[^\s|,\"]{1,200}")
_MODEL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,60}")  # is a file's name, too


class OutOfMemory(Exception):
    """The inputs or the call do not fit into the GPU's memory."""


class Synchronises(Exception):
    """A callable waits for the GPU, so it cannot be queued behind a flag."""


@dataclass(frozen=True)
class Ops:
    """Content of a file."""

    path: Path  # the file
    ops: Mapping[str, Make]  # makes each op, by name
    models: Mapping[str, Make]  # makes each model, by name
    pairs: Sequence[tuple[str, str]]  # ops side by side
    model_pairs: Sequence[tuple[str, str]]  # models side by side
    sequences: Mapping[str, Sequence[Sequence[str]]]  # ops in order, a list for each stream, by name


def read_ops(path: Path) -> Ops:
    """Run a file and take what it names."""
    if not path.is_file():
        raise InputError(path, "file", "is missing", f"a Python file with {A_FILE}")
    try:
        found = runpy.run_path(str(path))
    except (KeyboardInterrupt, MemoryError):
        raise
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise without_torch() from None
        raise raised(path, "", error, "a file that runs") from None
    except BaseException as error:  # whatever a user's file may do, sys.exit included
        raise raised(path, "", error, "a file that runs") from None
    ops, models = (_makers(path, name, found.get(name, {})) for name in MAPS)
    if not ops and not models:
        raise InputError(path, "", "names nothing to record", A_FILE)
    pairs = _pairs(path, "PAIRS", found.get("PAIRS"), ops)
    return Ops(
        path,
        ops,
        models,
        pairs,
        _pairs(path, "MODEL_PAIRS", found.get("MODEL_PAIRS"), models),
        _sequences(path, found.get("SEQUENCES", {}), ops),
    )


def without_torch() -> InputError:
    """Message where PyTorch is missing."""
    return InputError(None, "PyTorch", "is not installed", "pip install torch, a version for this machine's CUDA")


def raised(path: Path, place: str, error: BaseException, expected: str) -> InputError:
    """One line about an exception of a user's code: its place in the file, and its text."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.lineno is not None and error.filename == str(path):
        lines.append(error.lineno)
    where = ", ".join(filter(None, (place, f"line {lines[-1]}" if lines else "")))
    text = one_line(str(error)).strip()[:200]
    return InputError(path, where, f"raises {type(error).__name__}{': ' if text else ''}{text}", expected)


def made(ops: Ops, kind: str, name: str) -> OpCall:
    """Return the result of a file's function: of ``kind`` OPS or MODELS, by its name."""
    makers, place = ops.ops if kind == "OPS" else ops.models, f"{kind}[{name!r}]"
    call = guarded(ops.path, place, makers[name])
    if not callable(call):
        raise InputError(ops.path, place, f"returns {type(call).__name__}", "a callable without arguments")
    return call


def guarded(path: Path, place: str, run: Callable[[], T]) -> T:
    """The result of a user's code, what it raises as one line."""
    try:
        return run()
    except (InputError, KeyboardInterrupt):
        raise
    except OutOfMemory:
        problem = "does not fit into the GPU's memory beside what is before it in the file"
        raise InputError(path, place, problem, "smaller inputs, fewer ops a file, or a GPU with more memory") from None
    except Synchronises as error:
        problem = f"waits for the GPU ({error})"
        expected = "a callable that only launches work: no item(), cpu(), synchronize()"
        raise InputError(path, place, problem, expected) from None
    except BaseException as error:
        raise raised(path, place, error, "a callable that runs") from None


def _makers(path: Path, name: str, given: Any) -> dict[str, Make]:
    if not isinstance(given, Mapping):
        raise InputError(path, name, f"is {quote(type(given).__name__)}", "a dict from names to functions")
    allowed = _MODEL_NAME if name == "MODELS" else _NAME
    expected = "letters, digits, _ . -" if name == "MODELS" else "a name without blanks, commas, quotes and |"
    for key, make in given.items():
        if not isinstance(key, str) or not allowed.fullmatch(key):
            raise InputError(path, name, f"has the name {quote(key)}", expected)
        if not callable(make):
            raise InputError(path, f"{name}[{key!r}]", "is no function", f"a function that makes {MAPS[name]}")
    return dict(given)


def _pairs(path: Path, name: str, given: Any, known: Mapping[str, Make]) -> tuple[tuple[str, str], ...]:
    """The pairs that a file lists, or every two of what it names."""
    if given is None:
        return tuple(combinations_with_replacement(known, 2))
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise InputError(path, name, f"is {quote(type(given).__name__)}", "a list of two names each")
    pairs = []
    for n, pair in enumerate(given):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise InputError(path, f"{name}[{n}]", f"is {quote(pair)}", "two names")
        pairs.append((_known(path, f"{name}[{n}]", pair[0], known), _known(path, f"{name}[{n}]", pair[1], known)))
    return tuple(pairs)


def _sequences(path: Path, given: Any, ops: Mapping[str, Make]) -> dict[str, list[list[str]]]:
    if not isinstance(given, Mapping):
        raise InputError(path, "SEQUENCES", f"is {quote(type(given).__name__)}", "a dict from names to lists of ops")
    found = {}
    for name, streams in given.items():
        place = f"SEQUENCES[{name!r}]"
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(path, place, "is no name", "a name without blanks, commas, quotes and |")
        if not isinstance(streams, Sequence) or not streams or any(isinstance(one, str) or not one for one in streams):
            raise InputError(path, place, f"is {quote(streams)}", "a list of ops for each stream")
        found[name] = [[_known(path, place, op, ops) for op in stream] for stream in streams]
    return found


def _known(path: Path, place: str, name: Any, known: Mapping[str, Make]) -> str:
    if name not in known:
        expected = f"one of {', '.join(known)}" if known else "names that the file gives"
        raise InputError(path, place, f"names {quote(name)}", expected[:300])
    return str(name)
