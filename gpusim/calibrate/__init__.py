"""From a recording to kernels that can be replayed: fitted to it, moved to another GPU, and timed alone."""
