"""Parts that policies share: readers of parameters, mixes of blocks, measurements, memory limits."""
