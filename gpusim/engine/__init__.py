"""The engine: streams and their dependencies on simpy, and the SMs with their resident blocks."""

from gpusim.engine.compiled import load_core

core = load_core()
