"""When each kernel of two programs ran in two streams, by PyTorch's profiler: in_streams.py FOLDER PAIR..."""

# ruff: noqa
# The script as it ran on the GPU, only formatted. kernels_in_streams.csv has the means of what it wrote, by kernel.

import gzip, json, sys, torch
from programs import *

L.init()
out, ctl, S, made = sys.argv[1], new_stream()[1], [new_stream(), new_stream()], {}
for pair in sys.argv[2:]:
    a, b = pair.split("+")
    for x in (a, b):
        made.setdefault(x, make(x))
    ga, gb = graph(made[a], S[0][0]), graph(made[b], S[1][0])

    def one(g, s, n):
        t = []
        for _ in range(3):
            e = events(2)
            L.flag_reset()
            L.flag_wait(s[1])
            e[0].record(s[0])
            run_n(g, s, n)
            e[1].record(s[0])
            L.flag_write(ctl)
            torch.cuda.synchronize()
            t.append(e[0].elapsed_time(e[1]))
        return med(t)

    ta, tb = one(ga, S[0], 4) / 4, one(gb, S[1], 4) / 4
    na, nb = (max(1, round(6 * tb / ta)), 6) if ta < tb else (6, max(1, round(6 * ta / tb)))

    def both():
        L.flag_reset()
        for g, s, n in ((ga, S[0], na), (gb, S[1], nb)):
            L.flag_wait(s[1])
            run_n(g, s, n)
        L.flag_write(ctl)
        torch.cuda.synchronize()

    both()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as pr:
        one(ga, S[0], na)
        one(gb, S[1], nb)
        both()
        both()
    pr.export_chrome_trace("/tmp/t.json")
    d = json.load(open("/tmp/t.json"))
    ks = sorted(
        (e["ts"], e["dur"], e["args"].get("stream"), e["name"])
        for e in d["traceEvents"]
        if e.get("cat") in ("kernel", "gpu_memset", "gpu_memcpy")
    )
    found = {"a": a, "na": na, "b": b, "nb": nb, "ta": ta, "tb": tb, "kernels": ks}
    json.dump(found, gzip.open(f"{out}/{a}_and_{b}.json.gz", "wt"))
    print(pair, na, nb, len(ks), flush=True)
