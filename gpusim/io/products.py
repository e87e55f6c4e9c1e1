"""Which GPU file a product's name, as drivers and profilers give it, means."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from gpusim.common.errors import InputError, closest, one_line, quote
from gpusim.hardware.gpu import GPU, gpu_names, load_gpu
from gpusim.io.timeline import Product

_LARGE_MEMORY_BYTES = 60 * 10**9  # tells the A100 with 80 GB from that with 40
_VENDOR = re.compile("nvidia|geforce|tesla|quadro")
_MOST_ALIKE = 3  # names of GPUs that are suggested together
_MAKES_A_FILE = "a file, which `gpusim gpus new --from-profile FILE` makes"

_NAMES = (  # the first that is found in the name; None: it has no file
    (r"\bMIG\b|LAPTOP|MAX-Q|MOBILE", None),
    (r"\bH200 NVL\b|\bGB200\b", None),
    (r"\bGH200\b", "gh200"),
    (r"\bH200\b", "h200"),
    (r"\bB200\b", "b200"),
    (r"\bH800 PCIE\b|\bH800 NVL\b", None),
    (r"\bH800\b", "h800"),
    (r"\bH20\b", "h20"),
    (r"\bH100 PCIE\b", "h100-pcie"),
    (r"\bH100 NVL\b", None),
    (r"\bH100\b", "h100-sxm"),
    (r"\bA100\b.*\b80GB\b", "a100-80"),
    (r"\bA100\b.*\b40GB\b", "a100-40"),
    (r"\bA100\b", "a100"),
    (r"\bV100\b", "v100"),
    (r"\bP100-PCIE-12GB\b", None),
    (r"\bP100\b", "p100"),
    (r"\bT4\b", "t4"),
    (r"\bL40S\b", "l40s"),
    (r"\bL40\b", "l40"),
    (r"\bL4\b", "l4"),
    (r"\bRTX A6000\b", "rtxa6000"),
    (r"\bA40\b", "a40"),
    (r"\bA30\b", "a30"),
    (r"\bA10\b", "a10"),
    (r"\bRTX 2080 TI\b", "rtx2080ti"),
    (r"\bRTX 3080\b(?! TI)", "rtx3080"),
    (r"\bRTX 4080\b(?! SUPER)", "rtx4080"),
    (r"\bRTX 5080\b", "rtx5080"),
    (r"\bRTX 5090\b(?! D)", "rtx5090"),
    (r"\bRTX PRO 6000 BLACKWELL WORKSTATION\b", "rtxpro6000"),
    (r"\bORIN\b", "orin"),
    (r"\bTITAN V\b", "titanv"),
    (r"\bRTX 3090\b(?! TI)", "rtx3090"),
    (r"\bRTX 4090\b(?! D)", "rtx4090"),
    (r"\bK40[CM]?\b", "k40c"),
    (r"\bK80\b", "k80"),
)


def gpu_stem(product: Product) -> str | None:
    """The name of the GPU file of a product; None where there is no file, or its SM count is another."""
    return next(iter(_stems(product)), None)


def _stems(product: Product) -> list[str]:
    """The names of the GPU files that a product may have, the likeliest first."""
    if product.name is None:
        return []
    name = re.sub(r"\s+", " ", product.name.upper())
    found = next((stem for pattern, stem in _NAMES if re.search(pattern, name)), None)
    stems = [] if found is None else [found]
    if found == "a100" and product.memory_bytes is None:
        stems = ["a100-40", "a100-80"]
    elif found == "a100":
        stems = ["a100-80" if (product.memory_bytes or 0) > _LARGE_MEMORY_BYTES else "a100-40"]
    elif found == "h100-sxm" and product.sm_count in (None, 114):
        stems = ["h100-sxm", "h100-pcie"]
    return [stem for stem in stems if product.sm_count in (None, load_gpu(stem).sm_count)]


def nearest(compute_capability: str | None, sm_count: int | None) -> GPU:
    """The GPU that ships and is most like another: of its compute capability if there is one, then by its SMs."""

    def unlike(gpu: GPU) -> tuple[bool, bool, int]:
        major = gpu.compute_capability.split(".")[0] == (compute_capability or "").split(".")[0]
        return gpu.compute_capability != compute_capability, not major, abs(gpu.sm_count - (sm_count or 0))

    return min((load_gpu(name) for name in gpu_names()), key=unlike)


def stands_in(product: Product, gpu: GPU) -> bool:
    """Whether a GPU that ships is taken for a product that its file does not describe."""
    return product.name is not None and gpu.name in gpu_names() and gpu.name not in _stems(product)


def same_gpu(name: str) -> str | None:
    """The name of the GPU file that another way of writing a GPU's name means, such as ``Tesla K40c``; None: none."""
    plain = {re.sub("[^a-z0-9]", "", stem): stem for stem in gpu_names()}
    return plain.get(re.sub("[^a-z0-9]", "", name.lower())) or gpu_stem(Product(name))


def instead_of(name: str) -> str:
    """What could stand instead of a GPU's name that is not known: those that ship, a file, and what is like it."""
    like = like_name(name)
    return f"one of {', '.join(gpu_names())}, or {_MAKES_A_FILE}" + (f"; the nearest is {like}" if like else "")


def like_name(name: str) -> str:
    """The GPUs that ship whose names are most like one that is not known; empty where none is.

    They hold the name, or are what another way of writing it means. Else they are the nearest of its series.
    """
    wanted = _VENDOR.sub("", name.lower()).replace(" ", "")
    held = [one for one in gpu_names() if len(wanted) > 1 and wanted in one]
    meant = wanted if wanted in held else " or ".join(held if len(held) <= _MOST_ALIKE else ())
    if meant or not _in_series(wanted)[1]:
        return meant or same_gpu(name) or closest(wanted, gpu_names())
    words = [word for word in name.lower().split() if _in_series(word)[1]]
    return same_gpu(name) or next(filter(None, map(_nearest_of_series, (wanted, *words))), "")


def _nearest_of_series(wanted: str) -> str:
    """The GPUs that end in the number of a name, or else are the nearest of its series.

    A series is what stands before the number: ``b200`` is near ``b100``, although ``v100`` is spelled more alike. Where
    none of ``gb`` ships, ``b`` is its series.
    """
    series, number = _in_series(wanted)
    known = {one: _in_series(one) for one in gpu_names()}
    ending = [one for one in known if series and series in one and one.endswith(number)]
    mine = series if any(of == series for of, _ in known.values()) else series.removeprefix("g")
    same = {one: of for one, (its, of) in known.items() if its == mine}
    away = {one: abs(int(of) - int(number)) for one, of in same.items() if len(of) == len(number)}
    near = [one for one, by in away.items() if by == min(away.values())]
    return " or ".join(ending or near) or closest(wanted, same)


def _in_series(name: str) -> tuple[str, str]:
    """The series of a GPU's name and its number in it: ``rtx`` and ``3080``."""
    found = re.match(r"([a-z]*)([0-9]{0,9})", name)
    assert found is not None  # it matches every text
    return found[1], found[2]


def recording_gpu(product: Product, chosen: GPU | None, path: Path) -> GPU:
    """The GPU that the profile at ``path`` was recorded on: the one chosen, else the one that the profile names.

    Where the profile names one, too, both must have as many SMs.
    """
    seen = "no GPU" if product.name is None else quote(one_line(product.name))
    if chosen is not None:
        if product.sm_count is not None and product.sm_count != chosen.sm_count:
            problem = f"{chosen.name} has {chosen.sm_count} SMs; the profile names {seen} with {product.sm_count}"
            part = f", or {_part(product)}" if product.sm_count < chosen.sm_count else ""
            raise InputError(path, "gpu", problem, f"the GPU that the profile was recorded on{part}")
        return chosen
    stem = gpu_stem(product)
    if stem is None:
        by_name = gpu_stem(replace(product, sm_count=None))
        whole = None if by_name is None else load_gpu(by_name)
        sms = "" if product.sm_count is None else f" with {product.sm_count} SMs"
        problem = f"the profile names {seen}{sms if product.name else ''}"
        expected = f"the GPU it was recorded on: {', '.join(gpu_names())}, or its file"
        if product.name is None and product.sm_count is not None:  # JAX's profiles name none
            problem += f", but one with {product.sm_count} SMs"
            known = [gpu for gpu in map(load_gpu, gpu_names()) if gpu.sm_count == product.sm_count]
            like = [gpu.name for gpu in known if product.compute_capability in (None, gpu.compute_capability)]
            some = f"the GPU it was recorded on: {', '.join(like)}, or its file"
            expected = some if like else f"{expected}, with {_part(product)}"
        elif product.name is not None and re.search(r"\bMIG\b", product.name):
            problem += ", an instance whose bandwidth is not known"
            expected = "a profile of the whole GPU, whose trace `gpusim replay --policy mig` divides into instances"
        elif whole is not None and (product.sm_count or 0) < whole.sm_count:
            problem += f"; {whole.name} has {whole.sm_count}"
            expected = f"{_part(product)}, or {_MAKES_A_FILE}"
        elif product.name is not None:
            near = nearest(product.compute_capability, product.sm_count)
            problem += ", which does not ship"
            expected = f"a GPU that ships (the nearest is {near.name}, with {near.sm_count} SMs), or {_MAKES_A_FILE}"
        raise InputError(path, "gpu", problem, expected)
    return load_gpu(stem)


def _part(product: Product) -> str:
    """The argument for a process that had a part of the GPU, whose driver told it of its SMs only."""
    return f"--sms {product.sm_count} (in Python sms={product.sm_count}), if its process had a part of the GPU"
