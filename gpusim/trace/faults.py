"""Patterns of names in a trace, and the faults that pydantic finds in one."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gpusim.common import errors
from gpusim.common.errors import InputError

ID_PATTERN = r"^[A-Za-z0-9_./:-]+$"
STREAM_PATTERN = r"^(main|internal(0|[1-9][0-9]?))$"
NAME_PATTERN = r"^[A-Za-z0-9_./-]+$"
_PATTERNS = {
    STREAM_PATTERN: "main, internal0, internal1, …",
    ID_PATTERN: "letters, digits, _ . / - :",
    NAME_PATTERN: "letters, digits, _ . / -",
}


def trace_error(error: ValidationError, of: type[BaseModel], path: str | os.PathLike[str] | None = None) -> InputError:
    """The first fault that pydantic found in a trace, or a part of one that is to be an ``of``, as an InputError."""
    return told(errors.first_problem(error), of, None if path is None else Path(path))


def told(
    error: ErrorDetails, of: type[BaseModel], path: Path | None = None, within: tuple[int | str, ...] = ()
) -> InputError:
    """A fault that pydantic found in an ``of``, or in the part of one that ``within`` locates."""
    return errors.told(error, of, path, within, _PATTERNS)
