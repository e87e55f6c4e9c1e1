"""The engine: streams and their dependencies on simpy, and the SMs with what is resident on them."""

from gpusim.engine.compiled import load_core

core = load_core()
