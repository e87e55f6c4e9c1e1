"""The trace format: recorded GPU work that can be replayed.

A trace is a list of streams; a stream is a list of operations in launch order; an operation is a kernel launch, a
convolution (one library call that launches several kernels), a memory copy, host work or a rank's part in
communication. Operations of different streams depend on each other through `depends_on`, and ranks meet in collectives.
Version 2 names the streams of each program; `gpusim.trace.programs` has the rule for traces without programs. Every
number has a unit, is finite, not negative and bounded, and unknown fields are refused. A value that the source does not
know is left out. Its field is None here, and the contention model states its assumption.

`gpusim.trace.file` reads one, `Trace.save` writes one, `trace_schema` is the JSON Schema.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import FailFast, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from gpusim.common.files import is_gzip, path_of, write_table
from gpusim.trace.checks import faults
from gpusim.trace.fields import MAX_STREAMS, Strict, described, require_printable
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Operation, Stream
from gpusim.trace.programs import Program, programs_of, with_settings
from gpusim.trace.text import layout

FORMAT_VERSIONS = (1, 2)  # that are read
StreamOrder = Literal["inferred", "independent"]  # how streams are ordered whose waits the source does not tell


class Trace(Strict):
    """A recorded trace; of format version 2 where it names programs, else of version 1."""

    version: Annotated[Literal[1, 2], described("version of this format; 2 has programs")] = 1
    name: Annotated[str, described("name of the trace", min_length=1, max_length=200)]
    device: Annotated[str, described("GPU it was recorded on, a name of `gpusim gpus`", min_length=1, max_length=200)]
    stands_for: Annotated[
        str | None,
        described(
            "product name of the GPU that recorded it, where `device` is another one", min_length=1, max_length=200
        ),
    ] = None
    order: Annotated[
        StreamOrder | None,
        described("order between streams whose waits the source does not tell: inferred from the times, or none"),
    ] = None
    notes: Annotated[str, described("where it came from, what was assumed or left out", max_length=10**5)] = ""
    streams: Annotated[
        tuple[Stream, ...],
        FailFast(),
        described("the streams, the first launched first", max_length=MAX_STREAMS, json_schema_extra={"minItems": 1}),
    ]
    programs: Annotated[
        tuple[Program, ...],
        FailFast(),
        described(
            "version 2: which streams are one program; a stream that is in none is a program of its own. Absent: "
            "streams that wait for one another are one program",
            max_length=MAX_STREAMS,
        ),
    ] = ()

    def __repr__(self) -> str:
        kernels = self.kernel_count()
        return f"Trace(name={self.name!r}, device={self.device!r}, streams={len(self.streams)}, kernels={kernels})"

    __str__ = __repr__

    def operations(self) -> Iterator[Operation]:
        """All operations, stream by stream, in launch order."""
        for stream in self.streams:
            yield from stream.operations

    def launches(self) -> Collection[KernelLaunch]:
        """Return every launch of the trace, each object once."""
        return {id(launch): launch for operation in self.operations() for launch in operation.launches()}.values()

    def launches_by_program(self) -> dict[str, list[KernelLaunch]]:
        """Return the kernels that one pass of each program launches, by its name."""
        streams = {stream.name: stream for stream in self.streams}
        return {
            program.name: [
                launch for name in program.streams for op in streams[name].operations for launch in op.launches()
            ]
            for program in self.programs
        }

    def kernel_count(self) -> int:
        """Return how many kernels one pass of all streams launches."""
        return sum(len(operation.launches()) for operation in self.operations())

    def recorded_sms(self) -> tuple[int, ...]:
        """Return the numbers of SMs of processes that had a part of the GPU in the recording, ascending."""
        return tuple(sorted({launch.recorded_sms for launch in self.launches() if launch.recorded_sms is not None}))

    def program_of(self) -> dict[str, str]:
        """Return the program of each stream, by name."""
        return {stream: program.name for program in self.programs for stream in program.streams}

    def names_programs(self) -> bool:
        """Whether there are several programs, and any of them is more than the stream of its name."""
        return len(self.programs) > 1 and any(program.streams != (program.name,) for program in self.programs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace; the same trace gives the same bytes.

        Args:
            path: ends in `.gz`: compact JSON, gzip; else: JSON laid out to be read.

        Raises:
            InputError: the file cannot be written.
        """
        content = self.model_dump(mode="json", exclude_none=True)
        file = path_of(path, "path")
        if is_gzip(file):
            text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        else:
            text = layout(content)
        write_table(file, f"{text}\n")

    @field_validator("name", "device", "stands_for")
    @classmethod
    def _one_line(cls, text: str | None) -> str | None:
        return None if text is None else require_printable(text)

    @field_validator("notes")
    @classmethod
    def _readable(cls, text: str) -> str:
        return require_printable(text, allowed="\n\t")

    @model_validator(mode="after")
    def _sound(self) -> Trace:
        for fault in faults(self.streams, self.programs, self.version):
            raise fault
        self._settle(with_settings(self.streams, self.programs), self.programs)
        return self

    def _settle(self, streams: tuple[Stream, ...], programs: tuple[Program, ...]) -> None:
        """Put every stream into one program, and give it the settings of the program."""
        self.__dict__.update(streams=streams, programs=programs_of(streams, programs))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy. New streams get programs by the rule for files."""
        copied = super().model_copy(update=update, deep=deep)
        if update and "streams" in update:
            copied._settle(copied.streams, copied.programs if copied.version == 2 else ())
        return copied

    @classmethod
    def _from_python(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Streams that programs were made of are streams of the trace, which is of version 2 if it has programs."""
        programs = given.get("programs")
        if not isinstance(programs, tuple) or not all(isinstance(one, Program) for one in programs):
            return given
        given = {"version": 2, **given} if programs else given
        streams = given.get("streams", ())
        if isinstance(streams, tuple):
            known = set(map(id, streams))
            own = [one for program in programs for one in program.streams if isinstance(one, Stream)]
            given["streams"] = (*streams, *(one for one in own if id(one) not in known))
        given["programs"] = tuple(
            one.model_copy(update={"streams": tuple(s.name if isinstance(s, Stream) else s for s in one.streams)})
            for one in programs
        )
        return given

    @model_serializer(mode="wrap")
    def _brief(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the content of the file: each setting once, and no programs in version 1."""
        content: dict[str, Any] = written(self)
        programs = content.pop("programs")
        if self.version == 1:
            return content
        by_name = {stream["name"]: stream for stream in content["streams"]}
        for program in programs:
            for setting in ("priority", "arrivals"):
                if program.get(setting) is not None:
                    for name in program["streams"]:
                        by_name[name].pop(setting, None)
        return {**content, "programs": programs}


def trace_schema() -> dict[str, Any]:
    """The JSON Schema of the trace format, with a unit and a description on every field.

    Files must have the ``version`` and each ``kind``, which Python objects fill in.
    """
    schema = Trace.model_json_schema()
    for model in (schema, *schema["$defs"].values()):
        for tag in ("version", "kind"):
            if {"const", "enum"} & model.get("properties", {}).get(tag, {}).keys():
                del model["properties"][tag]["default"]
                model["required"] = [tag, *model.get("required", ())]
    return schema
