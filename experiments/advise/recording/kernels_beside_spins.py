"""Each kernel of a program beside kernels that spin for 2 us, by PyTorch's profiler: kernels_beside_spins.py OUT.csv PROGRAM..."""

# ruff: noqa
# The script as it ran on the GPU, only formatted. spin.so: see beside_spins.py.

import collections, csv, ctypes, json, sys, torch
from programs import *

L.init()
Q = ctypes.CDLL(H + "/spin.so")
Q.launch_spin.argtypes = [V, ctypes.c_int, ctypes.c_int, ctypes.c_uint]
S, Z, ctl = new_stream(), new_stream(), new_stream()[1]


def spins(ns, n):
    def f():
        s = torch.cuda.current_stream().cuda_stream
        for _ in range(n):
            Q.launch_spin(s, 1, 32, ns)

    return graph(f, Z[0])


gb = spins(2000, 100)
out = csv.writer(open(sys.argv[1], "w"), lineterminator="\n")
out.writerow("gpu,program,position,kernel,blocks,alone_us,alone_gap_us,beside_us,beside_gap_us".split(","))
for a in sys.argv[2:]:
    keep = make(a)
    ga = graph(keep, S[0])
    N = 8

    def run(beside):
        L.flag_reset()
        L.flag_wait(S[1])
        L.flag_wait(Z[1])
        run_n(ga, S, N)
        if beside:
            run_n(gb, Z, beside)
        L.flag_write(ctl)
        torch.cuda.synchronize()

    run(0)
    e = events(2)
    e[0].record(S[0])
    run_n(ga, S, N)
    e[1].record(S[0])
    torch.cuda.synchronize()
    m = int(e[0].elapsed_time(e[1]) * 1.5 / 0.3) + 2
    got = {}
    for beside in (0, m):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as pr:
            run(beside)
        pr.export_chrome_trace("/tmp/t.json")
        d = json.load(open("/tmp/t.json"))
        k = sorted(
            (x["ts"], x["dur"], x["name"], x["args"].get("grid"))
            for x in d["traceEvents"]
            if x.get("cat") == "kernel" and "spin" not in x["name"] and "wait" not in x["name"].lower()
        )
        per = len(k) // N
        k = k[: per * N]
        t = collections.defaultdict(list)
        for i in range(per, len(k)):
            t[i % per].append((k[i][1], k[i][0] - k[i - 1][0] - k[i - 1][1]))
        got[bool(beside)] = per, k, {i: (med([v[0] for v in x]), med([v[1] for v in x])) for i, x in t.items()}
    per, k, one = got[False]
    print(
        a, per, got[True][0], sum(sum(v) for v in one.values()), sum(sum(v) for v in got[True][2].values()), flush=True
    )
    if per == got[True][0]:
        for i in range(per):
            g = k[i][3] or [0, 0, 0]
            out.writerow(
                [
                    "NVIDIA H200",
                    a,
                    i,
                    k[i][2][:60],
                    g[0] * g[1] * g[2],
                    *("%.3f" % x for x in (*one[i], *got[True][2][i])),
                ]
            )
