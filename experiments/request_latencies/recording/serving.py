"""Requests for one program at random beside another that restarts: serving.py requests.csv passes.csv PAIR... (a+b).

The latency of a request is from an event on an idle stream, when its graph is launched, to one behind the graph.
"""

# ruff: noqa
# The script as it ran on the GPU, only formatted.

import csv, os, random, sys, time, torch

H = os.path.dirname(os.path.abspath(__file__))
requests_path, passes_path, *pairs = sys.argv[1:]
sys.argv[1:] = ["none", "none"]  # programs.py reads its mode from there
exec(compile(open(H + "/programs.py").read().split('if __name__ == "__main__":')[0], "programs.py", "exec"))
REQUESTS, LOADS, AHEAD = 200, (0.2, 0.35, 0.5), 6  # passes of a that are launched ahead
L.init()
clock = new_stream()[0]
low, high = torch.cuda.Stream.priority_range()
S, P = [new_stream(), new_stream()], new_stream(high)
G = [green(n) for n in (32, 64, 96)]
requests = csv.writer(open(requests_path, "w"), lineterminator="\n")
requests.writerow("a,b,load,way,arrival_us,latency_us".split(","))
passes = csv.writer(open(passes_path, "w"), lineterminator="\n")
passes.writerow("a,b,load,way,passes,us".split(","))


def serve(ga, sa, gb, sb, at):
    """Events of requests that arrive at some seconds, and of the passes of a meanwhile."""
    came, ended, mine = [], [], []
    begin = time.perf_counter() + 0.005
    while len(came) < len(at):
        now = time.perf_counter() - begin
        if now >= at[len(came)]:
            e = events(2)
            e[0].record(clock)
            with torch.cuda.stream(sb[0]):
                gb.replay()
            e[1].record(sb[0])
            came.append(e[0]), ended.append(e[1])
        elif ga is not None and (len(mine) < AHEAD or mine[-AHEAD].query()):
            e = events(1)[0]
            with torch.cuda.stream(sa[0]):
                ga.replay()
            e.record(sa[0])
            mine.append(e)
    torch.cuda.synchronize()
    return came, ended, mine


made = {}
for a, b in (x.split("+") for x in pairs):
    for x in (a, b):
        made.setdefault(x, make(x))
    ways = {"streams": (S[0], S[1]), "b first": (S[0], P), **{f"{p[2]}+{q[2]} SMs": (p, q) for p, q in G}}
    g = graph(made[b], S[1][0])
    e = events(2)
    e[0].record(S[1][0])
    run_n(g, S[1], 8)
    e[1].record(S[1][0])
    torch.cuda.synchronize()
    pass_s = e[0].elapsed_time(e[1]) / 8e3
    for way, (sa, sb) in {"alone": (None, S[1]), **ways}.items():
        ga = None if sa is None else graph(made[a], sa[0])
        gb = graph(made[b], sb[0])
        for load in LOADS if ga is not None else (0.05,):
            rng, t, at = random.Random(1), 0.0, []
            for _ in range(REQUESTS):
                t += rng.expovariate(load / pass_s)
                at.append(t)
            serve(ga, sa, gb, sb, at[:20])
            came, ended, mine = serve(ga, sa, gb, sb, at)
            for c, x in zip(came, ended):
                requests.writerow(
                    [a, b, load, way, round(1e3 * came[0].elapsed_time(c), 1), round(1e3 * c.elapsed_time(x), 1)]
                )
            window = came[0].elapsed_time(came[-1])
            count = sum(0.0 < came[0].elapsed_time(m) <= window for m in mine)
            passes.writerow([a, b, load, way, count, round(1e3 * window, 1)])
    print(a, b, "done", flush=True)
