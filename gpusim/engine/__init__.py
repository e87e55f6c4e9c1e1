"""The engine: streams and their dependencies on simpy, and the SMs with their resident blocks."""

from gpusim.engine.compiled import load_core
from gpusim.model import contention

core = load_core()
contention.progress = getattr(core, "progress", contention.progress)  # how kernels mix: compiled with the core
