"""Fields of a trace: units, descriptions and limits, and the strict models that hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from pydantic import BaseModel, Field, ValidationInfo, model_validator

from gpusim.common import strict
from gpusim.common.errors import InputError, described_pattern, validating

# Limits of a trace; `gpusim schema trace` gives the limit of every number with its unit.
LEAST_DURATION_US = 1e-3  # of a kernel: 1 ns, what profilers count in
MAX_DURATION_US = 1e9  # 17 minutes: far above any kernel, far below overflow
MAX_BLOCKS = 2**31 - 1  # thread blocks of one launch
MAX_BLOCKS_PER_US = 20_000  # ten a cycle at 2 GHz: each of at most 12 GPCs starts less than one a cycle [D]
MAX_BLOCK_LENGTHS = 64  # of blocks along a row of a grid
MAX_CLUSTER_BLOCKS = 16  # of a thread block cluster: more than 8 need a kernel to ask for them
MAX_TRAFFIC_BYTES = 10**15
MAX_FLOP = 1e18  # of a launch: a thousand seconds of a petaFLOP/s
MAX_CYCLES = 1e12
MAX_CLOCK_MHZ = 1e4
MAX_REQUESTS = 10**6
LEAST_RATE_PER_S = 1e-3  # of requests: a mean gap of MAX_DURATION_US
MAX_STREAMS = 4096  # 32 times the kernels that run at once on any GPU
MAX_ALTERNATIVES = 1000
MAX_ALGORITHM_NAME = 4000  # characters: of a division those of all its parts
MAX_MICRO_BATCHES = 16  # sizes: the powers of two to a batch of 65536
MAX_PART_NAME = 200  # characters of an algorithm that a division of a batch is named after
MAX_PARTS = 1024  # of a batch, each as large as the greatest common divisor of the sizes
MAX_SCALING_POINTS = 2  # times on other numbers of SMs: what a second of recording gives
MAX_SCALING_SMS = 4096
MAX_GPUS = 16  # of one host
MAX_LAUNCHES = 10**7  # of one replay, every request counted

# Names in a trace, and what messages say of them
ID_PATTERN = described_pattern(r"^[A-Za-z0-9_./:-]+$", "letters, digits, _ . / - :")  # of operations and algorithms
NAME_PATTERN = described_pattern(r"^[A-Za-z0-9_./-]+$", "letters, digits, _ . / -")  # of streams and programs
STREAM_PATTERN = described_pattern(
    r"^(main|internal(0|[1-9][0-9]?))$", "main, internal0, internal1, …"
)  # of kernels of a call


def measured(unit: str, description: str | None = None, **limits: Any) -> Any:
    """A pydantic Field with a unit, a description and limits, for use inside Annotated."""
    return Field(description=description, json_schema_extra={"unit": unit}, **limits)


def described(description: str, **limits: Any) -> Any:
    """A pydantic Field without a unit: text, a list or another model."""
    return Field(description=description, **limits)


def fault(problem: str, expected: str, place: str = "") -> InputError:
    """Return the exception of a validator (pydantic takes a ValueError); `place` counts from the validator's own."""
    return InputError(None, place, problem, expected)


def require_printable(text: str, allowed: str = "") -> str:
    """Return a text without control characters other than the allowed ones."""
    if not text.isprintable():
        strange = [character for character in text if not (character.isprintable() or character in allowed)]
        if strange:
            raise fault(f"has the unprintable character {strange[0]!r}", "printable text")
    return text


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class _FromPython(ModelMetaclass):
    """Construction of trace objects in Python: from lists where files have lists, with an `InputError` for wrong input.

    Reading a file does not come here.
    """

    def __call__(cls, *args: Any, **given: Any) -> Any:
        if args:
            raise InputError(None, cls.__name__, "has arguments without a name", "name=value for each")
        with validating(cls):  # type: ignore[arg-type]  # a metaclass of models
            return super().__call__(**cls._from_python({name: _tuples(value) for name, value in given.items()}))

    def _from_python(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the values of the fields, from the arguments of the constructor. A class may override this."""
        return given


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


class Strict(strict.Strict, metaclass=_FromPython):
    """A part of a trace."""


class Recurring(Strict):
    """A part that recurs in long traces. Equal parts of a file are read as one object.

    The context of the validation is a `PartsRead`; without one every part is an object of its own.
    """

    @model_validator(mode="after")
    def _shared(self, info: ValidationInfo) -> Self:
        read: PartsRead | None = info.context
        return self if read is None else read.first_like(self)


_Part = TypeVar("_Part", bound=Recurring)


class PartsRead:
    """Recurring parts that were read from a file, with one object for equal ones."""

    def __init__(self) -> None:
        self._first: dict[Recurring, Recurring] = {}
        self._ids: set[int] = set()  # of these: the hash of a part takes long

    def first_like(self, part: _Part) -> _Part:
        """Return the first part that equals the given one, or the part itself."""
        if id(part) in self._ids:
            return part
        first = self._first.setdefault(part, part)
        self._ids.add(id(first))
        assert isinstance(first, type(part))
        return first


Waiting = Annotated[float | None, measured("warps/issue", ge=0, le=1e5)]
Cycles = Annotated[float | None, measured("SM cycles/block", ge=0, le=MAX_CYCLES)]
ActiveCycles = Annotated[float | None, measured("cycles", ge=0, le=MAX_CYCLES)]
Duration = Annotated[float | None, measured("us", ge=LEAST_DURATION_US, le=MAX_DURATION_US)]
Passing = Annotated[float | None, measured("us", ge=0, le=MAX_DURATION_US)]  # time that may be none
Traffic = Annotated[float | None, measured("bytes/block", ge=0, le=MAX_TRAFFIC_BYTES)]
Percent = Annotated[float | None, measured("%", ge=0, le=100)]
