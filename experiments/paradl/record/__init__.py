"""Measure training steps on several GPUs: PyTorch and NCCL, one process per GPU.

Runs on a machine that has PyTorch and need not have pydantic: `python -m experiments.paradl.record --help`.
"""
