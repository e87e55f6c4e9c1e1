"""Recording networks with fakes of the recorder and of ncu: what it writes and says, and that it resumes."""

import csv
import gzip
import io
import sys
from pathlib import Path

import pytest

from experiments.plans import measure
from gpusim.cli import main
from gpusim.common.errors import InputError
from gpusim.io.ncu import REQUIRED
from gpusim.lab.record.calls import ALGORITHMS
from gpusim.lab.record.counters import COUNTERS
from gpusim.lab.record.program import BuiltProgram
from gpusim.lab.record.recording import kernel_rows
from gpusim.trace.file import load_trace

NCU_LOG = (Path(__file__).parent / "record" / "torch_ncu.csv").read_text()  # of a matrix product on an H200


# ---- the program, with fakes of what it needs

FAKE = f"""#!{sys.executable}
import os, sys
what, *files = sys.argv[1:]
if what == "device":
    print("name NVIDIA H200\\nsm_count 132\\nmemory_bytes 150109880320\\ncudnn 91400")
    sys.exit()
log = open(os.environ["FAKE_LOG"], "a")
left = int(os.environ.get("FAKE_CALLS", "1000000"))
if what == "time":
    print("op,supported,why,workspace_bytes,tensor_bytes,flop,ms_single_run1,ms_stream_run1,ms_single_run2,"
          "ms_stream_run2,ms_warm,ms_cold")
    for line in open(files[0]):
        op = line.split()[0]
        if left == 0 or os.environ.get("FAKE_CRASH", "none") in op:
            sys.stdout.flush()
            sys.stderr.write("CUDA: an illegal memory access was encountered\\n")
            sys.exit(1)
        left -= 1
        log.write(op + "\\n")
        if "FFT" in op:
            print(f"{{op}},False,unsupported,0,,,,,,,,")
        else:
            ms = 0.1 if "PRECOMP" in op else 0.2
            print(f"{{op}},True,,1024,4096,1000,{{ms}},{{ms}},{{ms}},{{ms}},{{ms}},{{ms}}")
elif what == "once":
    with open(files[1], "w") as streams:
        streams.write("stream,op\\n")
        for n, line in enumerate(open(files[0])):
            streams.write(f"{{n + 20}},{{line.split()[0]}}\\n")
            log.write("once " + line.split()[0] + "\\n")
elif what == "plans":
    print("name,plan")
    sys.stderr.write("m p: a call fails on these SMs\\n")
"""
FAKE_NCU = f"""#!{sys.executable}
import csv, os, subprocess, sys
given = sys.argv[1:]
out = open(given[given.index("--log-file") + 1], "w")
metrics = given[given.index("--metrics") + 1].split(",")
at = next(n for n, word in enumerate(given) if os.path.basename(word) in ("convolutions", "mine"))
if "FAKE_DENIED" in os.environ:
    out.write("==ERROR== ERR_NVGPUCTRPERM - The user has no permission\\n")
    sys.exit(0)
if at + 1 < len(given) and os.environ.get("FAKE_UNPROFILED", "none") in open(given[-2]).read():
    print("ncu gave up")
    sys.exit(1)
subprocess.run(given[at:], check=True)
writer = csv.writer(out, quoting=csv.QUOTE_ALL)
out.write("==PROF== Connected\\n" * 15_000)  # a log is long: 3 kB a kernel
names = ["ID", "Kernel Name", "Stream", "Block Size", "Grid Size", *metrics]
writer.writerows([names, ["" for _ in names]])
kernels = list(csv.DictReader(open(given[-1]))) if given[at + 1:] else [{{"stream": "7"}}]
known = {{"device__attribute_display_name": "NVIDIA H200", "device__attribute_multiprocessor_count": "132",
         "gpu__time_duration.sum": "50,000"}}
for n, kernel in enumerate(kernels):
    writer.writerow([n, "k", kernel["stream"], "(64, 1, 1)", "(8, 1, 1)", *(known.get(m, "8") for m in metrics)])
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A PATH with nvcc, nvidia-smi and ncu that pretend, and what the program was asked to do."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "fake").write_text(FAKE)
    scripts = {
        "nvcc": '#!/bin/sh\nfor word; do [ "$last" = -o ] && out=$word; last=$word; done\n'
        f'/bin/cp "{tools / "fake"}" "$out" && /bin/chmod +x "$out"\n',
        "nvidia-smi": "#!/bin/sh\necho 9.0\n",
        "ncu": FAKE_NCU,
    }
    for name, text in scripts.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    return tools


def asked(tmp_path):
    path = tmp_path / "log"
    return path.read_text().splitlines() if path.exists() else []


def record(tmp_path, *more):
    (tmp_path / "s.csv").write_text("name,channels,height\nc,8,14\nd,8,16\n")
    return main(["record", str(tmp_path / "s.csv"), "--batch", "2", "--out", str(tmp_path / "out"), *more])


def rows(path):
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return list(csv.DictReader(io.StringIO(text)))


def test_a_recording_has_the_layout_of_a_dataset(machine, tmp_path, capsys):
    assert record(tmp_path) == 0
    calls, kernels = rows(tmp_path / "out" / "convolutions.csv"), rows(tmp_path / "out" / "kernels.csv.gz")
    assert len(calls) == 2 * 2 * len(ALGORITHMS["fwd"])
    by_op = {call["op"]: call for call in calls}
    fast = by_op["s/c/fwd/IMPLICIT_PRECOMP_GEMM/FMA"]
    assert (fast["batch"], fast["in_channels"], fast["in_size"], fast["filter_size"]) == ("2", "8", "14", "1")
    assert (fast["supported"], fast["kernel_ms"], fast["gpu_bound"]) == ("True", "0.05", "False")  # 0.1 of 0.05 ms
    assert by_op["s/d/fwd/FFT/FMA"]["supported"] == "False"
    assert {kernel["op"] for kernel in kernels} == {op for op, call in by_op.items() if call["supported"] == "True"}
    assert kernels[0]["op"] == "s/c/fwd/IMPLICIT_PRECOMP_GEMM/FMA"  # the fastest first
    assert kernels[0]["gpu__time_duration.sum"] == "50000"
    assert "32 calls timed, 8 not supported" in capsys.readouterr().out
    assert not (tmp_path / "out" / "timings.csv").exists()


def test_only_the_fastest_is_profiled_where_that_is_asked_for(machine, tmp_path):
    assert record(tmp_path, "--algorithms", "fastest") == 0
    kernels = rows(tmp_path / "out" / "kernels.csv.gz")
    assert [kernel["op"] for kernel in kernels] == [f"s/{name}/fwd/IMPLICIT_PRECOMP_GEMM/FMA" for name in "cd"]


def test_a_recording_goes_on_where_it_was_cut_off(machine, tmp_path, monkeypatch):
    assert record(tmp_path) == 0
    whole, log = (
        [(tmp_path / "out" / name).read_bytes() for name in ("convolutions.csv", "kernels.csv.gz")],
        asked(tmp_path),
    )
    for path in (tmp_path / "out").iterdir():
        path.unlink()
    (tmp_path / "log").unlink()
    monkeypatch.setenv("FAKE_CALLS", "5")
    monkeypatch.setenv("FAKE_CRASH", "s/")
    assert record(tmp_path) == 2  # the machine's fault: nothing goes
    monkeypatch.delenv("FAKE_CRASH")
    out = tmp_path / "out"
    (out / "timings.csv").unlink()
    monkeypatch.setattr("gpusim.lab.record.program.CRASHES", 1)
    assert record(tmp_path) == 2
    assert len(asked(tmp_path)) == 5
    with (out / "timings.csv").open("a") as file:
        file.write("s/c/fwd/GEMM/FMA,s,c,fw")  # half a line, as a power cut leaves it
    monkeypatch.delenv("FAKE_CALLS")
    assert record(tmp_path) == 0
    assert asked(tmp_path) == log  # no call twice
    assert [(out / name).read_bytes() for name in ("convolutions.csv", "kernels.csv.gz")] == whole
    monkeypatch.setenv("PATH", "")
    assert record(tmp_path) == 0  # all is there: no compiler is asked for
    assert asked(tmp_path) == log


def test_a_call_that_ends_the_program_is_not_supported_and_the_rest_go_on(machine, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_CRASH", "s/c/fwd/GEMM/FMA")
    assert record(tmp_path) == 0
    calls = {row["op"]: row for row in rows(tmp_path / "out" / "convolutions.csv")}
    broken = calls["s/c/fwd/GEMM/FMA"]
    assert (broken["supported"], broken["why"]) == (
        "False", "failed with status 1 (CUDA: an illegal memory access was encountered)",
    )  # fmt: skip
    assert calls["s/c/fwd/GEMM/TF32"]["supported"] == "True"


def test_a_folder_is_of_one_recording(machine, tmp_path, capsys):
    assert record(tmp_path) == 0
    assert record(tmp_path, "--batch", "3") == 2
    assert "recording.json: batch: this is a recording of 2; expected 3, or another --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tool", "script", "message"),
    [
        ("nvcc", None, "nvcc: not found on PATH; expected the compiler of the CUDA toolkit"),
        (
            "nvcc",
            "echo 'check.cuh:5: fatal error: cudnn.h: No such file or directory'; exit 1",
            "cuDNN: not found by nvcc",
        ),
        ("nvcc", "echo 'ld: cannot find -lcudnn: No such file'; exit 1", "cuDNN: not found by nvcc"),
        ("nvcc", "echo 'some error'; exit 1", "nvcc: failed with status 1 (some error)"),
        ("nvidia-smi", None, "GPU: none found"),
        ("ncu", None, "ncu: not found on PATH; expected Nsight Compute"),
    ],
)
def test_what_the_machine_lacks_is_one_line(machine, tmp_path, capsys, tool, script, message):
    (machine / tool).unlink()
    if script is not None:
        (machine / tool).write_text(f"#!/bin/sh\n{script}\n")
        (machine / tool).chmod(0o755)
    assert record(tmp_path) == 2
    error = capsys.readouterr().err
    assert error.startswith(message)
    assert error.count("\n") == 1


def test_a_profiler_without_permission_is_one_line(machine, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FAKE_DENIED", "1")
    assert record(tmp_path) == 2
    assert capsys.readouterr().err.startswith("ncu: may not read the GPU's counters (ERR_NVGPUCTRPERM); expected root")
    (machine / "mine").write_text("#!/bin/sh\n")
    assert main(["record", "--out", str(tmp_path / "own"), "--", str(machine / "mine")]) == 2
    assert capsys.readouterr().err.startswith("ncu: may not read the GPU's counters (ERR_NVGPUCTRPERM); expected root")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["googlenet", "--out", "x"], "--batch: missing"),
        (["googlenet", "--batch", "1"], "--out: missing"),
        (["googlenet", "--batch", "1", "--out", "x", "--math", "FP8"], "--math: is 'FP8'; expected FMA,TF32"),
        (["googlenet", "--", "python"], "WHAT: googlenet and a program are given; expected one of the two"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, message, capsys):
    assert main(["record", *arguments]) == 2
    assert capsys.readouterr().err.startswith(message)


# ---- a program of one's own


def test_what_the_gpu_refuses_is_told(machine, tmp_path, capsys):
    assert list(BuiltProgram(tmp_path).lines("plans", [])) == ["name,plan\n"]
    assert capsys.readouterr().err == "m p: a call fails on these SMs\n"


def test_a_study_measures_its_plans(machine, tmp_path):
    """With the files of calls and plans that ship with it."""
    for name in ("calls", "plans"):
        (tmp_path / name).write_text("")
    measure(tmp_path / "measured.csv.gz", tmp_path / "calls", tmp_path / "plans", 2)
    assert gzip.decompress((tmp_path / "measured.csv.gz").read_bytes()) == b"name,plan\n"


def test_a_call_that_ncu_fails_on_is_left_out_and_the_rest_go_on(machine, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FAKE_UNPROFILED", "s/c/fwd/GEMM/FMA")
    assert record(tmp_path) == 0
    said = capsys.readouterr()
    assert said.err == "s/c/fwd/GEMM/FMA: not profiled (failed with status 1 (ncu gave up))\n"
    assert "23 of 24 calls profiled" in said.out
    monkeypatch.setenv("FAKE_UNPROFILED", "s/")
    (tmp_path / "out" / "kernels.csv.gz").unlink()
    assert record(tmp_path) == 2  # the machine's fault
    assert capsys.readouterr().err.endswith(
        "Nsight Compute: failed with status 1 (ncu gave up); expected a run without errors\n"
    )


def test_a_folder_that_cannot_be_made_is_one_line(machine, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "out")
    for arguments in (["alexnet", "--batch", "1", "--out", out], ["--out", out, "--", "program"]):
        assert main(["record", *arguments]) == 2
        assert "out: cannot be made (Not a directory); expected a folder that may" in capsys.readouterr().err


def test_a_program_of_ones_own_becomes_a_trace(machine, tmp_path):
    (machine / "mine").write_text("#!/bin/sh\necho it ran\n")
    (machine / "mine").chmod(0o755)
    assert main(["record", "--out", str(tmp_path / "own"), "--", str(machine / "mine")]) == 0
    trace = load_trace(tmp_path / "own" / "mine.json.gz")
    assert (trace.device, [len(op.launches()) for op in trace.operations()]) == ("h200", [1])
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == ["mine.json.gz", "mine.ncu.csv"]


# ---- what ncu prints


def test_launches_go_to_the_op_of_their_stream():
    found = kernel_rows(NCU_LOG, {"7": "n/a/fwd/GEMM/FMA"})
    assert [(row["op"], row["index_in_op"], row["stream"]) for row in found] == [
        ("n/a/fwd/GEMM/FMA", str(n), "main") for n in range(3)
    ]
    assert found[1]["Kernel Name"].startswith("void cutlass") or "gemm" in found[1]["Kernel Name"]
    since = {counter for counter in COUNTERS if not found[0][counter]}  # that log lacks what was counted later
    assert {counter for counter in since if counter in REQUIRED} == set()
    assert all(float(row[counter]) >= 0 for row in found for counter in COUNTERS if counter not in since)


def test_a_launch_on_a_stream_of_the_librarys_own_is_of_the_op_before_it():
    names = ["ID", "Kernel Name", "Stream", "Block Size", "Grid Size"]
    launches = [("a", "1"), ("b", "9"), ("c", "8"), ("d", "9"), ("e", "1"), ("f", "2"), ("g", "8")]
    lines = [",".join(f'"{name}"' for name in names), ",".join('""' for _ in names)]
    lines += [f'"{n}","{kernel}","{stream}","(1, 1, 1)","(1, 1, 1)"' for n, (kernel, stream) in enumerate(launches)]
    found = kernel_rows("\n".join(lines), {"1": "x", "2": "y"})
    assert [(row["op"], row["index_in_op"], row["stream"]) for row in found] == [
        ("x", "0", "main"), ("x", "1", "internal0"), ("x", "2", "internal1"), ("x", "3", "internal0"),
        ("x", "4", "main"), ("y", "0", "main"), ("y", "1", "internal0"),
    ]  # fmt: skip
    with pytest.raises(InputError, match="begins with a launch of no call"):
        kernel_rows("\n".join(lines), {"2": "y"})
