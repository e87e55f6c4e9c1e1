"""Host costs of a GPU: allocations, copies and launches, measured by `gpusim record host`."""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gpusim.common.errors import InputError
from gpusim.common.strict import Strict

HostService = Literal[
    "allocation", "free", "pool_allocation", "pool_free", "launch", "h2d_pinned", "d2h_pinned", "h2d_pageable",
    "d2h_pageable", "d2d", "p2p",
]  # fmt: skip

Sizes = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=0, le=2**50)], ...], Field(strict=False, min_length=1, max_length=100)
]
Times = Annotated[
    tuple[Annotated[float, Field(strict=True, ge=0, le=1e9)], ...], Field(strict=False, min_length=1, max_length=100)
]


class CostTable(Strict):
    """Times of one service by size."""

    bytes: Sizes = Field(description="bytes, ascending", json_schema_extra={"unit": "bytes"})
    us: Times = Field(description="time of each size", json_schema_extra={"unit": "us"})
    source: str = Field(min_length=1, max_length=500, description="where the values are from")
    verified: bool = Field(default=True, description="false where the source was not read, or others disagree")

    def us_of(self, size_bytes: int) -> float:
        """The time (us) of a size, on the straight line through the measured sizes on either side.

        Beyond the last it is the line through the last two; below the first, the time of the first.
        """
        sizes, times = self.bytes, self.us
        if size_bytes <= sizes[0] or len(sizes) == 1:
            return times[0]
        at = min(bisect_right(sizes, size_bytes), len(sizes) - 1)
        slope = (times[at] - times[at - 1]) / (sizes[at] - sizes[at - 1])
        return max(0.0, times[at - 1] + slope * (size_bytes - sizes[at - 1]))

    @model_validator(mode="after")
    def _matching(self) -> Self:
        if len(self.us) != len(self.bytes):
            raise InputError(None, "us", f"has {len(self.us)} times", f"one for each of {len(self.bytes)} sizes")
        if any(later <= earlier for earlier, later in zip(self.bytes, self.bytes[1:], strict=False)):
            raise InputError(None, "bytes", "do not ascend", "each size larger than the one before")
        return self


class HostCosts(Strict):
    """Section ``host`` of a GPU file: for each service its times by size; absent where nobody measured."""

    allocation: CostTable | None = Field(default=None, description="cudaMalloc")
    free: CostTable | None = Field(default=None, description="cudaFree, the GPU idle")
    pool_allocation: CostTable | None = Field(default=None, description="cudaMallocAsync from a pool that has room")
    pool_free: CostTable | None = Field(default=None, description="cudaFreeAsync into a pool that keeps it")
    launch: CostTable | None = Field(default=None, description="host time to queue a kernel, many in a row")
    h2d_pinned: CostTable | None = Field(default=None, description="copy from pinned host memory, on its engine")
    d2h_pinned: CostTable | None = Field(default=None, description="copy to pinned host memory, on its engine")
    h2d_pageable: CostTable | None = Field(default=None, description="copy from pageable host memory, until it is done")
    d2h_pageable: CostTable | None = Field(default=None, description="copy to pageable host memory, until it is done")
    d2d: CostTable | None = Field(default=None, description="copy within the GPU's memory, on its engine")
    p2p: CostTable | None = Field(default=None, description="copy to another GPU, on its engine")

    def of(self, service: HostService) -> CostTable | None:
        """The times of one service."""
        table: CostTable | None = getattr(self, service)
        return table
