"""From recorded kernels to kernel models: fitted to the recording, moved to another GPU, and timed alone."""
