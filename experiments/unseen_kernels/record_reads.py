"""How long reads take on 32 SMs of an H200 while a call of ops_bf16.py runs again and again on the others.

`python3 record_reads.py FILE` needs PyTorch, and beside it ops_bf16.py, reads_beside.so and gate.so, which `nvcc -shared`
makes of reads_beside.cu (with ../neighbours/beside.cuh) and of gate.cu in ../advise/recording. reads_beside.csv is what it wrote.
"""

# ruff: noqa
# The script as it ran on the GPU, only formatted.

import csv
import ctypes
import os
import sys

import torch
from ops_bf16 import OPS

HERE = os.path.dirname(os.path.abspath(__file__))
V, U = ctypes.c_void_p, ctypes.c_uint
GATE, READS = (ctypes.CDLL(os.path.join(HERE, name)) for name in ("gate.so", "reads_beside.so"))
GATE.stream.restype = V
for name in ("flag_wait", "flag_write"):
    getattr(GATE, name).argtypes = [V]
READS.wait_on.argtypes = [V, U]
READS.chase_on.argtypes = [V, V, U, U, U, V, ctypes.c_int]
MINE, US, FIRST_US, ROUNDS = 32, 250, 150, 7
WORDS = {"l2": 1 << 14, "dram": 1 << 28}  # 64 KiB and 1 GiB


def green(sms):
    a, b, n, m = V(), V(), U(), U()
    GATE.green(sms, ctypes.byref(a), ctypes.byref(n), ctypes.byref(b), ctypes.byref(m))
    return (torch.cuda.ExternalStream(a.value), a.value, n.value), (
        torch.cuda.ExternalStream(b.value),
        b.value,
        m.value,
    )


def main():
    torch.zeros(1, device="cuda")
    GATE.init()
    data = torch.zeros(1 << 28, dtype=torch.int32, device="cuda")
    found = torch.zeros(2 * MINE, dtype=torch.int64, device="cuda")
    control = GATE.stream(ctypes.byref(ctypes.c_ulonglong()))
    (_, mine, sms), (queue, others, rest) = green(MINE)
    seeds = iter(range(1, 10**6))

    def chase(words, us):
        READS.chase_on(mine, data.data_ptr(), words, us, next(seeds), found.data_ptr(), MINE)

    def cycles(words, call, calls):
        """Of a read beside some calls, and the time of a call (us)."""
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        GATE.flag_reset()
        GATE.flag_wait(mine)
        READS.wait_on(mine, FIRST_US)
        chase(words, US)
        if call is not None:
            GATE.flag_wait(others)
            with torch.cuda.stream(queue):
                begun.record(queue)
                for _ in range(calls):
                    call()
                ended.record(queue)
        GATE.flag_write(control)
        torch.cuda.synchronize()
        of = found.cpu().view(-1, 2)
        return float((of[:, 0] / of[:, 1]).mean()), 1e3 * begun.elapsed_time(ended) / calls if call else 0.0

    def median(values):
        return sorted(values)[len(values) // 2]

    READS.wait_on(mine, 1)
    chase(WORDS["l2"], 10)
    torch.cuda.synchronize()
    writer = csv.writer(open(sys.argv[1], "w"), lineterminator="\n")
    writer.writerow(("call", "sms", "reader_sms", "call_us", "l2_cycles", "dram_cycles"))
    for name in ("", *OPS):
        call = OPS[name]() if name else None
        calls = 0
        if call is not None:
            with torch.cuda.stream(queue):
                for _ in range(3):
                    call()
            torch.cuda.synchronize()
            alone_us = cycles(WORDS["l2"], call, 20)[1]
            calls = int(min(250, max(4, (FIRST_US + 2.5 * US) / alone_us)))
        of = {level: [cycles(words, call, calls) for _ in range(ROUNDS)] for level, words in WORDS.items()}
        us = median([us for _, us in of["dram"]])
        read = {level: median([one for one, _ in values]) for level, values in of.items()}
        writer.writerow((name, rest if name else 0, sms, f"{us:.2f}", f"{read['l2']:.1f}", f"{read['dram']:.1f}"))


main()
