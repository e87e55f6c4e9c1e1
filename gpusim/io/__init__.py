"""Importers and exporters, one module for each format."""

from typing import Literal

FORMATS = ("ncu", "kineto", "nsys", "nvprof", "xprof")  # of profiles that can be imported
Order = Literal["inferred", "recorded", "none"]  # where the dependencies between streams come from
