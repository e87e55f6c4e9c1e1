"""Names of measured experiments, as tables print them. The keys are those of CSV and JSON files."""

from __future__ import annotations

EXPERIMENTS = {
    "solo": "isolated, on another GPU",
    "sm_curve": "part of the SMs",
    "residency_curve": "blocks per SM, limited",
    "streams": "two streams",
    "streams_b_first": "two streams, second first",
    "green": "SM split",
    "quota_a": "two kernels on one SM, first",
    "quota_b": "two kernels on one SM, second",
    "modules_serial": "module in one stream",
    "modules_streams": "branches in streams",
}
FURTHER = {  # that the benchmark does not have
    "choice": "choice of algorithms and streams",
    "isolated": "isolated",
    "sharing": "two kernels on the same SMs",
    "quota": "two kernels on one SM",
    "matrix_same": "two microbenchmarks on the same SMs",
    "matrix_disjoint": "two microbenchmarks on disjoint SMs",
    "matrix_streams": "two microbenchmarks in two streams",
    "programs_serial": "whole models in one stream",
    "programs_streams": "whole models in two streams",
    "programs_sm_curve": "whole model on part of the SMs",
    "programs_green": "whole models, SM split",
}
DIRECTIONS = {"fwd": "forward", "bwd_data": "data gradient", "bwd_filter": "filter gradient"}  # of a convolution


def call_in_words(op: str, between: str = ", ") -> str:
    """Return the layer, direction and algorithm of a call of cuDNN from its name; of another call the name."""
    parts = op.split("/")
    if len(parts) != 5 or parts[2] not in DIRECTIONS:
        return op
    _, layer, direction, algorithm, math = parts
    return f"{layer} {DIRECTIONS[direction]}{between}{algorithm.removeprefix('IMPLICIT_')}, {math}"


def title(experiment: str) -> str:
    """Return the name of an experiment, or the key itself where it has none."""
    return (EXPERIMENTS | FURTHER).get(experiment, experiment)
