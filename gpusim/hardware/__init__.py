"""GPUs: their files, what a compute capability means, and what-ifs of them."""
