"""`gpusim schema`: JSON Schema of a trace or of a GPU file."""

from __future__ import annotations

import argparse

from gpusim.common.tables import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("trace", "gpu"), help="which format")


def run(args: argparse.Namespace) -> None:
    if args.what == "trace":
        from gpusim.trace.format import trace_schema

        print_json(trace_schema())
    else:
        from gpusim.hardware.gpu import GPUFile

        print_json(GPUFile.model_json_schema())
