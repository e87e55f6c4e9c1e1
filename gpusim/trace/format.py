"""The trace format, version 1: what ran on a GPU, ready to be replayed.

A trace is a list of streams; a stream is a list of operations in launch order; an operation is a kernel launch, a
convolution (one library call that launches several kernels), a memory copy, host work or a rank's part in
communication. Operations of different streams wait for one another through `depends_on`, and ranks in collectives.
Every number has a unit, is finite, not negative and bounded; unknown fields are refused. What a source cannot know is
left out: the field is then None here, and the contention model says what it assumes instead.

`gpusim.trace.file` reads one, `Trace.save` writes one, `trace_schema` is the JSON Schema.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    FailFast,
    field_validator,
    model_validator,
)

from gpusim.common.files import path_of, write_table
from gpusim.trace.checks import faults
from gpusim.trace.fields import MAX_STREAMS, Strict, described, require_printable
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Operation, Stream
from gpusim.trace.text import layout

FORMAT_VERSION = 1
StreamOrder = Literal["inferred", "independent"]  # how streams are ordered whose waits the source does not tell


class Trace(Strict):
    """A recorded trace, format version 1."""

    version: Annotated[Literal[1], described("version of this format")] = 1
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

    def __repr__(self) -> str:
        """Its name, device and size, not all that is in it."""
        count = sum(len(operation.launches()) for operation in self.operations())
        return f"Trace(name={self.name!r}, device={self.device!r}, streams={len(self.streams)}, kernels={count})"

    __str__ = __repr__

    def operations(self) -> Iterator[Operation]:
        """All operations, stream by stream, in launch order."""
        for stream in self.streams:
            yield from stream.operations

    def launches(self) -> Collection[KernelLaunch]:
        """Every launch of the trace; those that are one object once."""
        return {id(launch): launch for operation in self.operations() for launch in operation.launches()}.values()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace; the same trace gives the same bytes.

        Args:
            path: ends in `.gz`: compact JSON, gzip; else: JSON laid out to be read.

        Raises:
            InputError: the file cannot be written.
        """
        content = self.model_dump(mode="json", exclude_none=True)
        file = path_of(path, "path")
        if file.name.endswith(".gz"):
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
        for fault in faults(self.streams):
            raise fault
        return self


def trace_schema() -> dict[str, Any]:
    """The JSON Schema of the trace format, with a unit and a description on every field.

    Files must have the ``version`` and each ``kind``, which Python objects fill in.
    """
    schema = Trace.model_json_schema()
    for model in (schema, *schema["$defs"].values()):
        for tag in ("version", "kind"):
            if "const" in model.get("properties", {}).get(tag, {}):
                del model["properties"][tag]["default"]
                model["required"] = [tag, *model.get("required", ())]
    return schema
