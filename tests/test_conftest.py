"""What every test relies on: examples of property tests are the same in every run, and there is a cache of fits."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.calibrate.cache import user_fits

CONSTANTS = range(10**9, 10**9 + 7_000_000, 70_001)


def examples() -> list[int]:
    """What a property test is given."""
    seen: list[int] = []

    @given(st.lists(st.integers(), min_size=20))
    def test(numbers: list[int]) -> None:
        seen.extend(numbers)

    test()
    return seen


def test_examples_do_not_depend_on_which_modules_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = examples()
    source = tmp_path / "some_constants.py"
    source.write_text("".join(f"X{i} = {number}\n" for i, number in enumerate(CONSTANTS)))
    spec = spec_from_file_location("some_constants", source)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "some_constants", module)
    spec.loader.exec_module(module)
    assert examples() == before
    assert not set(before) & set(CONSTANTS)


def test_fits_are_kept_whatever_the_user_says() -> None:
    assert user_fits() is not None


def test_a_user_can_do_without_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSIM_NO_CACHE", "1")
    assert user_fits() is None
