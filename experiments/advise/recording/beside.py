"""Each kernel of two programs on an SM split of an H200, alone and beside the other program: beside.py kernels_beside.csv.

Launches that ran while the other program did; medians would hide the phases of the other program, so these are means.
"""

# ruff: noqa
# The script as it ran on the GPU, and what made its table, only formatted.

import csv, json, os, statistics, sys, torch

H = os.path.dirname(os.path.abspath(__file__))
sys.argv[1:1] = ["none"]  # programs.py reads its mode from there
exec(compile(open(H + "/programs.py").read().split('if __name__ == "__main__":')[0], "programs.py", "exec"))
PAIRS = (("prefill1", "decode32"), ("prefill4", "decode128"), ("decode8", "decode128"), ("resnet50", "decode32"))
PASSES = {16: (1, 12), 48: (2, 8), 80: (3, 8)}  # of a; of b beside it


def profiled(work):
    """Kernels by stream, in order."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as pr:
        for g, s, n in work:
            with torch.cuda.stream(s):
                for _ in range(n):
                    g.replay()
        torch.cuda.synchronize()
    pr.export_chrome_trace("/tmp/t.json")
    by = {}
    for e in sorted(
        (e for e in json.load(open("/tmp/t.json"))["traceEvents"] if e.get("cat") == "kernel"), key=lambda e: e["ts"]
    ):
        by.setdefault((e["args"].get("context", 0), e["args"]["stream"]), []).append(e)
    return by


def means(events):
    of = {}
    for e in events:
        of.setdefault((e["name"][:70], "x".join(map(str, e["args"]["grid"]))), []).append(e["dur"])
    return {key: (len(v), statistics.fmean(v)) for key, v in of.items()}


L.init()
out = csv.writer(open(sys.argv[2], "w"), lineterminator="\n")
out.writerow("a,b,sms_a,sms_b,program,kernel,grid,launches,alone_us,beside_us".split(","))
splits = {p[2]: (p, q) for p, q in (green(n) for n in PASSES)}
for a, b in PAIRS:
    fa, fb = make(a), make(b)
    for sms, (p, q) in splits.items():
        ga, gb = graph(fa, p[0]), graph(fb, q[0])
        for _ in range(2):
            with torch.cuda.stream(p[0]):
                ga.replay()
            with torch.cuda.stream(q[0]):
                gb.replay()
        na, nb = PASSES[sms]
        alone = [next(iter(profiled(work).items())) for work in ([(ga, p[0], na)], [(gb, q[0], 3)])]
        both = profiled([(gb, q[0], nb), (ga, p[0], na)])
        for name, (key, events) in zip("ab", alone):
            others = [e for other, of in both.items() if other != key for e in of]
            begin, end = min(e["ts"] for e in others), max(e["ts"] + e["dur"] for e in others)
            mine, beside = means(events), means(e for e in both[key] if e["ts"] >= begin and e["ts"] + e["dur"] <= end)
            for kernel, (n, us) in mine.items():
                if kernel in beside:
                    out.writerow([a, b, sms, q[2], name, *kernel, n, round(us, 3), round(beside[kernel][1], 3)])
