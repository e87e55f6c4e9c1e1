"""Training steps of our networks on several GPUs, measured: PyTorch and NCCL, one process a GPU.

Runs on a machine that has PyTorch and need not have pydantic: `python -m gpusim.training.record --help`.
"""
