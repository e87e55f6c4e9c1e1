"""The GPUs that ship, the table of SM limits, and the GPU files that are refused."""

from __future__ import annotations

import csv
import json
import math
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import sm_limits

from gpusim.common.errors import InputError
from gpusim.hardware.compute_capability import CAPABILITIES, SMLimits, unverified_limits
from gpusim.hardware.gpu import GPUFile, ModelConstants, gpu_names, load_gpu

NAMES = [
    *("a10", "a100-40", "a100-80", "a30", "a40", "b200", "gh200", "h100-pcie", "h100-sxm", "h20", "h200", "h800"),
    *("k40c", "k80", "l4", "l40", "l40s", "orin", "p100", "rtx2080ti", "rtx3080", "rtx3090", "rtx4080", "rtx4090"),
    *("rtx5080", "rtx5090", "rtxa6000", "rtxpro6000", "t4", "titanv", "v100"),
]

H200_TOML = (Path(__file__).parent.parent / "gpus" / "h200.toml").read_text()


def test_these_gpus_ship() -> None:
    assert list(gpu_names()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_gpu_loads(name: str) -> None:
    gpu = load_gpu(name)
    assert gpu.name == name
    assert gpu.limits == sm_limits(gpu.compute_capability)
    assert 0 < gpu.model.dram_sustained_gb_per_s < gpu.dram_bandwidth_gb_per_s
    assert pickle.loads(pickle.dumps(gpu)) == gpu


def test_h200_by_hand() -> None:
    gpu = load_gpu("h200")
    assert (gpu.sm_count, gpu.sms_per_tpc, gpu.compute_capability) == (132, 2, "9.0")
    assert (gpu.boost_clock_mhz, gpu.base_clock_mhz, gpu.fp32_lanes_per_sm) == (1980, None, 128)
    assert gpu.fp32_peak_tflops == pytest.approx(132 * 128 * 2 * 1980e6 / 1e12)
    assert (gpu.dram_bandwidth_gb_per_s, gpu.l2_bytes, gpu.memory_bytes) == (4800, 60 << 20, 141 << 30)
    assert gpu.model.dram_sustained_gb_per_s == 4600
    assert "model.dram_sustained_gb_per_s" not in gpu.unverified


def test_what_is_not_verified_is_named() -> None:
    k80 = load_gpu("k80")
    assert {"sm_count", "l2_bytes", "limits.shared_memory_per_sm_bytes"} <= set(k80.unverified)
    assert "limits.registers_per_sm" not in k80.unverified
    assert "model.dram_sustained_gb_per_s" in k80.unverified
    assert k80.model.dram_sustained_gb_per_s == pytest.approx(240 * 4600 / 4800)


def test_one_gpu_of_the_two_on_a_k80() -> None:
    assert load_gpu("k80").fp32_peak_tflops == pytest.approx(8.74 / 2, rel=0.01)


def test_gpus_are_those_of_the_reference(shared: Path) -> None:
    with open(shared / "reference" / "gpus.csv", newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    chosen = {
        "a100-40": "A100 40GB SXM4",
        "a100-80": "A100 80GB SXM4",
        "h100-pcie": "H100 PCIe 80GB",
        "h100-sxm": "H100 SXM5 80GB",
        "h200": "H200 SXM 141GB",
        "k40c": "Tesla K40c",
        "k80": "Tesla K80 (one of 2 GPUs)",
        "l40s": "L40S",
        "p100": "Tesla P100 SXM2",
        "rtx3090": "GeForce RTX 3090",
        "rtx4090": "GeForce RTX 4090",
        "t4": "Tesla T4",
        "v100": "Tesla V100 SXM2",
    }
    for name, row_name in chosen.items():
        gpu, row = load_gpu(name), rows[row_name]
        assert (gpu.architecture, gpu.compute_capability) == (row["arch"], row["cc"])
        assert (gpu.sm_count, gpu.sms_per_tpc) == (int(row["sm_count"]), int(row["sms_per_tpc"]))
        assert gpu.base_clock_mhz == (float(row["base_mhz"]) if row["base_mhz"] else None)
        assert gpu.boost_clock_mhz == float(row["boost_mhz"])
        assert gpu.fp32_lanes_per_sm == int(row["fp32_cores_per_sm"])
        assert gpu.fp32_peak_tflops == pytest.approx(float(row["fp32_peak_tflops_published"]), rel=0.01)
        for key, peak in (("fp16", gpu.tensor_fp16_tflops), ("tf32", gpu.tensor_tf32_tflops)):
            text = row[f"tensor_{key}_dense_tflops"]
            assert peak == (float(text) if text else None)
        assert gpu.dram_bandwidth_gb_per_s == float(row["dram_bw_gbs"])
        assert (gpu.l2_bytes, gpu.memory_bytes) == (
            float(row["l2_mib"]) * 2**20,
            int(row["mem_gib"]) * 2**30,
        )


def test_limits_are_those_of_the_reference(shared: Path) -> None:
    columns = {
        "warp_size": "warp_size",
        "max_threads_per_sm": "max_threads_per_sm",
        "max_warps_per_sm": "max_warps_per_sm",
        "max_blocks_per_sm": "max_blocks_per_sm",
        "max_threads_per_block": "max_threads_per_block",
        "registers_per_sm": "regs_per_sm",
        "registers_per_block": "regs_per_block",
        "max_registers_per_thread": "max_regs_per_thread",
        "register_allocation_unit": "reg_alloc_unit",
        "sub_partitions": "sm_subpartitions",
        "shared_memory_per_sm_bytes": "smem_per_sm_bytes",
        "shared_memory_per_block_default_bytes": "smem_per_block_default_bytes",
        "shared_memory_per_block_optin_bytes": "smem_per_block_optin_bytes",
        "shared_memory_reserved_per_block_bytes": "smem_reserved_per_block_bytes",
        "shared_memory_allocation_unit_bytes": "smem_alloc_unit_bytes",
        "max_resident_grids": "max_resident_grids",
    }
    with open(shared / "reference" / "occupancy.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    # 12.1 is not in the table; arch_traits.h of CCCL gives it the traits of 12.0.
    assert [*(row["cc"] for row in rows), "12.1"] == list(CAPABILITIES)
    for row in rows:
        limits = sm_limits(row["cc"])
        for ours, theirs in columns.items():
            assert getattr(limits, ours) == int(row[theirs]), (row["cc"], ours)
        if row["smem_carveouts_kb"][0].isdigit():
            carveouts = tuple(int(size) for size in row["smem_carveouts_kb"].split())
            assert limits.shared_memory_carveouts_kib == carveouts
        assert bool(unverified_limits(row["cc"])) == (row["verified"] != "yes")
    assert {*columns, "shared_memory_carveouts_kib"} == set(SMLimits.model_fields)


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_a_users_own_file(tmp_path: Path) -> None:
    text = H200_TOML.replace('value = "9.0"', 'value = "12.0"').replace("value = 132", "value = 66")
    text = text.replace("fp32_published_tflops", "# fp32_published_tflops")
    text += '[limits]\nmax_blocks_per_sm = { value = 8, source = "a what-if", verified = false }\n'
    gpu = load_gpu(write(tmp_path, text))
    assert (gpu.name, gpu.sm_count, gpu.limits.max_blocks_per_sm) == ("mine", 66, 8)
    assert gpu.limits.shared_memory_per_sm_bytes == 102_400
    assert "limits.max_blocks_per_sm" in gpu.unverified
    assert load_gpu(str(tmp_path / "mine.toml")) == gpu
    assert load_gpu(write(tmp_path, text.replace("value = 66", "value = 64"))).sm_count == 64  # edited since


def test_a_replaced_recalled_limit_counts_by_its_own_word(tmp_path: Path) -> None:
    text = (Path(__file__).parent.parent / "gpus" / "k40c.toml").read_text()
    text += '[limits]\nregisters_per_sm = { value = 65536, source = "deviceQuery" }\n'
    assert "limits.registers_per_sm" in load_gpu("k40c").unverified
    assert "limits.registers_per_sm" not in load_gpu(write(tmp_path, text)).unverified


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("version = 1", "version = 2", "version: is 2; expected 1"),
        ("version = 1\n", "", "version: missing; expected version of this format"),
        ("version = 1", "version = 1\ncores = 3", "cores: unknown key; expected one of version, title, "),
        ("value = 132", "value = -132", "sm_count.value: is -132; expected a number of at least 1"),
        ("value = 132", "value = 132.0", "sm_count.value: is 132.0; expected a whole number"),
        ("value = 132", "value = true", "sm_count.value: is true; expected a whole number"),
        ("value = 132", "value = 133", "sm_count: 133 SMs do not make whole TPCs"),
        ("value = 132,", "", "sm_count.value: missing; expected this key"),
        ("value = 132", "value = 120", "fp32_published_tflops: 66.91 contradicts sm_count x"),
        ("value = 1980", "value = nan", "boost_clock_mhz.value: is nan; expected a finite number"),
        ("value = 1980", "value = inf", "boost_clock_mhz.value: is inf; expected"),
        (
            "value = 1980",
            "value = 1e9",
            "boost_clock_mhz.value: is 1000000000.0; expected a number of at most",
        ),
        (
            "[model]",
            'base_clock_mhz = { value = 1981, source = "x" }\n[model]',
            "boost_clock_mhz: 1980 is below base_clock_mhz; expected at least 1981",
        ),
        (
            'value = "9.0"',
            'value = "9.1"',
            "compute_capability: unknown compute capability '9.1'; expected one of 3.5, 3.7, ",
        ),
        ('value = "9.0"', "value = 9.0", "compute_capability.value: is 9.0; expected text"),
        ("value = 62_914_560", "value = 10**9", "is not TOML"),
        (
            "value = 62_914_560",
            "value = 200_000_000_000",
            "l2_bytes: 200000000000 is above memory_bytes",
        ),
        ("value = 4600", "value = 4801", "model.dram_sustained_gb_per_s: 4801 is above dram_bandwidth"),
        ("value = 4600", "value = -1", "model.dram_sustained_gb_per_s: is -1; expected a number of at least 0.1"),
        (
            "launch_latency_us",
            "launch_latency_ms",
            "model.launch_latency_ms: unknown key; expected one of dram_sustained",
        ),
        ('source = "hmc-tech.com"', 'source = ""', "source: is ''; expected"),
        ('source = "hmc-tech.com"', 'source = "a\\nb"', "source: is 'a\\nb'; expected"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert old in H200_TOML
    path = write(tmp_path, H200_TOML.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_gpu(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("limits", "line"),
    [
        ({"max_threads_per_sm": 1024}, "max_threads_per_sm: 1024 contradicts max_warps_per_sm, 64; expected"),
        ({"max_warps_per_sm": 48}, "max_threads_per_sm: 2048 contradicts max_warps_per_sm, 48"),
        ({"max_threads_per_block": 4096}, "max_threads_per_block: 4096 is above max_threads_per_sm"),
        ({"registers_per_block": 65537}, "registers_per_block: 65537 is above registers_per_sm"),
        ({"registers_per_sm": 65538}, "registers_per_sm: 65538 does not divide into sub-partitions"),
        (
            {"shared_memory_per_block_optin_bytes": 233_472},
            "shared_memory_per_block_optin_bytes: 233472 is above what an SM has; expected at most",
        ),
        (
            {"shared_memory_per_block_default_bytes": 240_000},
            "shared_memory_per_block_default_bytes: 240000 is above shared_memory_per_block_optin_bytes",
        ),
        ({"shared_memory_per_sm_bytes": 262_144}, "shared_memory_carveouts_kib: has [0, 8, "),
        ({"shared_memory_carveouts_kib": [228, 0]}, "shared_memory_carveouts_kib: has [228, 0]; expected"),
        ({"shared_memory_carveouts_kib": []}, "shared_memory_carveouts_kib: is a list of 0; expected"),
        ({"max_blocks_per_sm": 0}, "max_blocks_per_sm: is 0; expected a number of at least 1"),
        ({"max_blocks_per_sm": "many"}, "max_blocks_per_sm: is 'many'; expected a whole number"),
        ({"block_slots": 32}, "block_slots: unknown key; expected one of warp_size, "),
    ],
)
def test_contradictory_limits_are_one_line(tmp_path: Path, limits: dict[str, object], line: str) -> None:
    text = H200_TOML + "[limits]\n"
    for key, value in limits.items():
        text += f'{key} = {{ value = {json.dumps(value)}, source = "x" }}\n'
    with pytest.raises(InputError) as caught:
        load_gpu(write(tmp_path, text))
    assert f"mine.toml: limits.{line}" in str(caught.value)


@pytest.mark.parametrize("name", ["h300", "", "H200", "h200\n", "x" * 5000, "a\0b"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(InputError) as caught:
        load_gpu(name)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["missing.toml", "no/such/gpu", "/", "."])
def test_a_path_that_cannot_be_read(name: str) -> None:
    with pytest.raises(InputError, match=r"cannot be read|unknown GPU"):
        load_gpu(name)


def test_a_folder_named_like_a_gpu_does_not_hide_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "h200").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_gpu("h200").sm_count == 132


@pytest.mark.parametrize("text", ["[" * 100_000, "a = " + "9" * 5000, "\0", "[model", "version = 1\nversion = 1"])
def test_what_is_not_toml_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError) as caught:
        load_gpu(write(tmp_path, text))
    assert str(caught.value).isprintable()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_load_or_are_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.toml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_gpu(path)
    assert str(caught.value).isprintable()


@given(st.sampled_from(H200_TOML.splitlines()), st.integers(0, 100), st.binary(max_size=3))
def test_any_damaged_line_loads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, line: str, position: int, damage: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.toml"
    damaged = line.encode()[:position] + damage + line.encode()[position + len(damage) :]
    path.write_bytes(H200_TOML.encode().replace(line.encode(), damaged))
    try:
        gpu = load_gpu(path)
    except InputError as error:
        assert str(error).isprintable()
    else:
        assert math.isfinite(gpu.fp32_peak_tflops) and gpu.sm_count >= 1


@given(st.sampled_from(sorted(SMLimits.model_fields)), VALUES)
def test_any_limit_is_taken_or_refused(key: str, value: object) -> None:
    content = sm_limits("9.0").model_dump() | {key: value}
    try:
        limits = SMLimits.model_validate(content)
    except ValueError:
        return
    assert limits.max_threads_per_sm == limits.max_warps_per_sm * limits.warp_size


def test_schema_names_every_key_with_its_meaning() -> None:
    schema = GPUFile.model_json_schema()
    json.dumps(schema, allow_nan=False)
    for part, model in (("limits", SMLimits), ("model", ModelConstants)):
        entries = schema["properties"][part]["properties"]
        assert list(entries) == list(model.model_fields)
        assert all(entry["properties"]["value"]["description"] for entry in entries.values())
    constants = schema["properties"]["model"]["properties"].values()
    assert all(constant["properties"]["value"]["unit"] for constant in constants)
    assert all(entry.get("description") for entry in schema["properties"].values())


def test_a_what_if_of_a_gpu() -> None:
    half = replace(load_gpu("h200"), sm_count=66)
    assert half.fp32_peak_tflops == pytest.approx(load_gpu("h200").fp32_peak_tflops / 2)
