"""Programs beside kernels that only spin, on SMs of their own and in streams: beside_spins.py OUT.json PROGRAM..."""

# ruff: noqa
# The script as it ran on the GPU, only formatted; it ran twice, with a part of CASES each. beside_spins.csv has the times.
# spin.so: nvcc -cudart shared -O2 -shared -Xcompiler -fPIC -arch=sm_90 spin.cu -o spin.so

import json, sys, ctypes, torch
from programs import *

L.init()
Q = ctypes.CDLL(H + "/spin.so")
Q.launch_spin.argtypes = [V, ctypes.c_int, ctypes.c_int, ctypes.c_uint]
ctl = new_stream()[1]
CASES = [
    (1, 32, 2000),
    (1, 32, 5000),
    (1, 32, 10000),
    (1, 32, 30000),
    (1, 32, 100000),
    (1, 32, 1000000),
    (32, 32, 2000),
    (32, 1024, 10000),
]


def spins(blocks, threads, ns, n, s0):
    def f():
        s = torch.cuda.current_stream().cuda_stream
        for _ in range(n):
            Q.launch_spin(s, blocks, threads, ns)

    return graph(f, s0)


def run(ga, n, gb, m, S, Z):
    t = []
    for _ in range(5):
        e = events(2)
        z = events(2)
        L.flag_reset()
        L.flag_wait(S[1])
        L.flag_wait(Z[1])
        e[0].record(S[0])
        z[0].record(Z[0])
        if gb is not None:
            run_n(gb, Z, m)
        z[1].record(Z[0])
        run_n(ga, S, n)
        e[1].record(S[0])
        L.flag_write(ctl)
        torch.cuda.synchronize()
        t.append((e[0].elapsed_time(e[1]), z[0].elapsed_time(z[1])))
    return sorted(t)[2]


res = []
p, q = green(100)
S0, Z0 = new_stream(), new_stream()
print("green", p[2], q[2])
for a in sys.argv[2:]:
    keep = make(a)
    for how, S, Z in (("green", (p[0], p[1]), (q[0], q[1])), ("streams", S0, Z0)):
        ga = graph(keep, S[0])
        N = 6
        alone = run(ga, N, None, 0, S, Z)[0]
        for c in CASES:
            gb = spins(*c, max(1, min(100, 2000000 // c[2])), Z[0])
            m = int(alone * 3 / ((c[2] / 1e3 + 1.0) * max(1, min(100, 2000000 // c[2])) / 1e3)) + 2
            ta, tb = run(ga, N, gb, m, S, Z)
            per = tb * 1e3 / m / max(1, min(100, 2000000 // c[2]))
            print(
                how,
                a,
                *c,
                "alone %.5f" % (alone / N),
                "%.5f" % (ta / N),
                "x%.3f" % (ta / alone),
                "B period %.2f" % per,
                flush=True,
            )
            res.append((how, a, *c, ta / N, alone / N, per))
json.dump(res, open(sys.argv[1], "w"))
