"""Time of each kernel on parts of the SMs: kernels.py FOLDER OUT PROGRAMS PAIRS. FOLDER holds programs.py and gate.so."""

# ruff: noqa
# The script as it ran on the GPU, only formatted. Some passes ran into those of the next part. kernels.csv holds the parts whose
# kernels add up to the isolated time in ../measured.csv, within 5 %; of networks only the kernels that take longest.

import sys, json, os, csv, time

sys.path.insert(0, sys.argv[1])
import programs as P
import torch
from torch.profiler import profile, ProfilerActivity

out = sys.argv[2]
P.L.init()
ctl = P.new_stream()[1]
S = P.new_stream() + (132,)
G = [P.green(n) for n in (16, 32, 48, 64, 80, 96, 112)]
parts = [("all",) + S] + [(("group", "rest")[i],) + g[i] for g in G for i in (0, 1)]


def kernels(pr, path="/tmp/t.json"):
    pr.export_chrome_trace(path)
    ev = [e for e in json.load(open(path))["traceEvents"] if e.get("cat") == "kernel"]
    return sorted(ev, key=lambda e: e["ts"])


made = {}


def make(n):
    if n not in made:
        made[n] = P.make(n)
    return made[n]


w = csv.writer(open(out + "/curves.csv", "w"))
w.writerow("program,side,sms,pass,index,name,grid,start_us,us".split(","))
t0 = time.time()
for name in sys.argv[3].split(","):
    f = make(name)
    gs = [P.graph(f, p[1]) for p in parts]
    for g, p in zip(gs, parts):
        P.run_n(g, (p[1],), 1)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as pr:
        for g, p in zip(gs, parts):
            P.run_n(g, (p[1],), 3)
            torch.cuda.synchronize()
    ev = kernels(pr)
    by = {}
    for e in ev:
        by.setdefault(e["args"]["stream"], []).append(e)
    groups = sorted(by.values(), key=lambda v: v[0]["ts"])
    n = max(map(len, groups)) // 3
    print(name, len(ev), n, [len(v) for v in groups], round(time.time() - t0), flush=True)
    if len(groups) != len(parts):
        print("odd")
        continue
    for q, v in enumerate(groups):
        k = len(v) // n
        v = v[-k * n :]
        for i, e in enumerate(v):
            if i < n and k > 1:
                continue
            w.writerow(
                [
                    name,
                    parts[q][0],
                    parts[q][3],
                    i // n,
                    i % n,
                    e["name"][:100] if q == 1 and i // n == 1 else "",
                    "x".join(map(str, e["args"]["grid"])) if q == 1 and i // n == 1 else "",
                    round(e["ts"] - v[0]["ts"], 3),
                    e["dur"],
                ]
            )
w = csv.writer(open(out + "/pairs.csv", "w"))
w.writerow("a,na,b,nb,sms_a,sms_b,program,index,pass,start_us,us".split(","))
for spec in sys.argv[4].split(",") if sys.argv[4] else []:
    a, na, b, nb, sms = spec.split(":")
    na, nb = int(na), int(nb)
    p, q = next(g for g in G if g[0][2] == int(sms))
    ga, gb = P.graph(make(a), p[0]), P.graph(make(b), q[0])
    for g, x in ((ga, p), (gb, q)):
        P.run_n(g, x, 1)
    torch.cuda.synchronize()
    ms = None
    with profile(activities=[ProfilerActivity.CUDA]) as pr:
        e = P.events(4)
        P.L.flag_reset()
        for i, g, x, n in ((0, ga, p, na), (1, gb, q, nb)):
            P.L.flag_wait(x[1])
            e[2 * i].record(x[0])
            P.run_n(g, x, n)
            e[2 * i + 1].record(x[0])
        P.L.flag_write(ctl)
        torch.cuda.synchronize()
    ev = kernels(pr)
    by = {}
    for x in ev:
        by.setdefault(x["args"]["stream"], []).append(x)
    names = sorted(by, key=lambda s: len(by[s]))
    first = {s: [x["name"] for x in v] for s, v in by.items()}
    print(
        spec,
        {s: len(v) for s, v in by.items()},
        e[0].elapsed_time(e[1]),
        e[2].elapsed_time(e[3]),
        round(time.time() - t0),
        flush=True,
    )
    t = ev[0]["ts"]
    for s, v in by.items():
        for i, x in enumerate(v):
            w.writerow([a, na, b, nb, p[2], q[2], s, i, x["name"][:40], round(x["ts"] - t, 3), x["dur"]])
