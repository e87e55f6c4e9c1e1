"""ParaDL's oracle: what an iteration of training costs under each way of dividing it between GPUs.

`gpusim.training.paradl.equations` are its formulas; the other modules give them layers, times, clusters and limits.
"""
