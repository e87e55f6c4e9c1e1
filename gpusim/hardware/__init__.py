"""GPUs: their files, the limits of a compute capability, and changed GPUs (what-if)."""
