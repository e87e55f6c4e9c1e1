"""Recording on a machine with an NVIDIA GPU: traces of real programs, and the constants of the model."""
