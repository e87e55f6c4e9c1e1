"""Decode attention and products on parts of the SMs: time, and (COUNT=1, under ncu) counters on all and on few.

decode.csv has the times of attention only: the host bounds those of products. gate.so is of ../advise/recording/gate.cu.
"""

# ruff: noqa
# The script as it ran on the GPU, only formatted.

import ctypes, os, sys, csv, torch, torch.nn.functional as F

L = ctypes.CDLL("./gate.so")
V = ctypes.c_void_p
L.stream_of.restype = V
torch.zeros(1, device="cuda")
L.init()
B = torch.bfloat16


def green(n):
    a, b, x, y = V(), V(), ctypes.c_uint(), ctypes.c_uint()
    L.green(n, ctypes.byref(a), ctypes.byref(x), ctypes.byref(b), ctypes.byref(y))
    return [
        (torch.cuda.ExternalStream(a.value), x.value, "group"),
        (torch.cuda.ExternalStream(b.value), y.value, "rest"),
    ]


def gemm(n, k, m=128, copies=6):
    x = torch.randn(m, k, device="cuda", dtype=B)
    w = [torch.randn(n, k, device="cuda", dtype=B) for _ in range(copies)]
    return lambda i: F.linear(x, w[i % copies])


def attend(batch, heads, context, copies=2):
    q = torch.randn(batch, heads, 1, 128, device="cuda", dtype=B)
    kv = [[torch.randn(batch, heads, context, 128, device="cuda", dtype=B) for _ in range(2)] for _ in range(copies)]
    return lambda i: F.scaled_dot_product_attention(q, *kv[i % copies])


ops = {
    "attend 128x16x1024": attend(128, 16, 1024),
    "attend 64x16x1024": attend(64, 16, 1024),
    "attend 32x16x1024": attend(32, 16, 1024),
    "attend 16x16x1024": attend(16, 16, 1024),
    "qkv 6144x2048": gemm(6144, 2048),
    "o 2048x2048": gemm(2048, 2048),
    "up 5632x2048": gemm(5632, 2048),
    "down 2048x5632": gemm(2048, 5632),
    "70b down16 8192x28672": gemm(8192, 28672, 16, 2),
    "70b down128 8192x28672": gemm(8192, 28672, 128, 2),
}
count = os.environ.get("COUNT")
all_ = (torch.cuda.Stream(), 132, "all")
if count:
    parts = [all_, green(112)[1], green(96)[1]]
else:
    parts = [all_] + [p for n in (8, 16, 24, 32, 48, 64, 80, 96, 112) for p in green(n)]
with torch.inference_mode():
    for f in ops.values():
        for i in range(2):
            f(i)
    torch.cuda.synchronize()
    if count:
        torch.cuda.cudart().cudaProfilerStart()
    out = []
    for name, f in ops.items():
        for s, n, side in parts:
            with torch.cuda.stream(s):
                if count:
                    f(0)
                    torch.cuda.synchronize()
                    continue
                best = []
                for r in range(3):
                    e = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
                    k = 12
                    e[0].record(s)
                    for i in range(k):
                        f(i)
                    e[1].record(s)
                    torch.cuda.synchronize()
                    best.append(e[0].elapsed_time(e[1]) * 1e3 / k)
                out.append((name, n, side, round(min(best), 2)))
    if not count:
        w = csv.writer(open(sys.argv[1], "w"))
        w.writerow("op,sms,side,us".split(","))
        w.writerows(out)
