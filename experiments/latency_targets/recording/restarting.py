"""Two programs that start again whenever they end, sharing a GPU: restarting.py restarting.csv PAIR... (a+b).

The time of a pass is from event to event behind its graph. Passes count while both programs run; the first of each does not.
"""

# ruff: noqa
# The script as it ran on the GPU, only formatted.

import csv, os, statistics, sys, torch

H = os.path.dirname(os.path.abspath(__file__))
path, pairs = sys.argv[1], sys.argv[2:]
sys.argv[1:] = ["none", "none"]  # programs.py reads its mode from there
exec(compile(open(H + "/programs.py").read().split('if __name__ == "__main__":')[0], "programs.py", "exec"))
MS = 150.0  # of passes of each program
L.init()
ctl = new_stream()[1]
out = csv.writer(open(path, "w"), lineterminator="\n")
out.writerow("a,b,mechanism,setting,a_passes,a_mean_us,a_p95_us,b_passes,b_mean_us,b_p95_us".split(","))


def ends(work):
    """For each (graph, stream, passes, ms of a pass): time from the start of the first to the end of each pass, ms.

    Passes are launched in the order in which they will run: a queue is of limited length, and who waits for room in that of
    a slow program would keep the other from its next pass.
    """
    L.flag_reset()
    e = []
    for g, s, n, t in work:
        L.flag_wait(s[1])
        mine = events(n + 1)
        mine[0].record(s[0])
        e.append(mine)
    order = sorted((i * t, k, i) for k, (g, s, n, t) in enumerate(work) for i in range(n))
    for launched, (_, k, i) in enumerate(order):
        g, s = work[k][:2]
        with torch.cuda.stream(s[0]):
            g.replay()
        e[k][i + 1].record(s[0])
        if launched == 20:  # the rest is launched while these run
            L.flag_write(ctl)
    L.flag_write(ctl)
    torch.cuda.synchronize()
    return [[e[0][0].elapsed_time(x) for x in mine] for mine in e]


def passes(found):
    """Durations of the passes of each while all run, without the first, us."""
    until = min(mine[-1] for mine in found)
    return [[1e3 * (y - x) for x, y in zip(mine[1:], mine[2:]) if y <= until] for mine in found]


def cells(us):
    if not us:
        return [0, "", ""]
    return [len(us), round(statistics.fmean(us), 2), round(sorted(us)[int(0.95 * (len(us) - 1))], 2)]


sms = torch.cuda.get_device_properties(0).multi_processor_count
low, high = torch.cuda.Stream.priority_range()
S, P = [new_stream(), new_stream()], [new_stream(high), new_stream(high)]
G = [green(n) for n in (16, 32, 48, 64, 80, 96, 112)]
made = {}
for a, b in (x.split("+") for x in pairs):
    for x in (a, b):
        made.setdefault(x, make(x))
    fs = made[a], made[b]

    def run(mechanism, setting, streams):
        gs, ms = [graph(f, s[0]) for f, s in zip(fs, streams)], list(alone_ms)
        for _ in range(3):  # how long passes take together
            work = [(g, s, max(6, round(40.0 / t)), t) for g, s, t in zip(gs, streams, ms)]
            ms = [statistics.fmean(us) / 1e3 if us else 2.0 * t for us, t in zip(passes(ends(work)), ms)]
        work = [(g, s, max(6, round(MS / t)), t) for g, s, t in zip(gs, streams, ms)]
        found = [passes(ends(work)) for _ in range(3)]
        row = [a, b, mechanism, setting]
        for which in (0, 1):
            row += cells([us for one in found for us in one[which]])
        out.writerow(row)

    gs = [graph(f, s[0]) for f, s in zip(fs, S)]
    alone_ms = [ends([(g, s, 8, 1.0)])[0][-1] / 8 for g, s in zip(gs, S)]
    alone = [
        [us for _ in range(3) for us in passes(ends([(g, s, max(6, round(MS / 3 / t)), t)]))[0]]
        for g, s, t in zip(gs, S, alone_ms)
    ]
    out.writerow([a, b, "alone", "whole GPU", *cells(alone[0]), *cells(alone[1])])
    run("streams", "equal priority", S)
    run("priority", "a first", (P[0], S[1]))
    run("priority", "b first", (S[0], P[1]))
    for p, q in G:
        run("SM split", f"{p[2]}+{q[2]} SMs", (p, q))
    print(a, b, "done", flush=True)
