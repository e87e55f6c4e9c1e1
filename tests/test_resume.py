"""Long work that goes on where it was cut off (`gpusim.sweeps.workers`, `experiments.journal`)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from experiments.journal import resumed
from gpusim.common.errors import InputError
from gpusim.sweeps.workers import computed, local


def threads() -> Executor:
    return ThreadPoolExecutor(2)


class Counted:
    """Squares, and keeps what it was asked."""

    def __init__(self, refuses: Callable[[int], bool] = lambda n: False) -> None:
        self.asked: list[int] = []
        self.refuses = refuses

    def __call__(self, n: int) -> list[int]:
        self.asked.append(n)
        if self.refuses(n):
            raise ValueError(f"no {n}")
        return [n, n * n]


WANTED = {f"task {n}": n for n in range(5)}


def test_answers_come_in_the_order_of_the_tasks_and_are_kept(tmp_path: Path) -> None:
    journal, first, second = tmp_path / "journal", Counted(), Counted()
    answers = resumed(journal, WANTED, first, threads, 2)
    assert list(answers.items()) == [(f"task {n}", [n, n * n]) for n in range(5)]
    assert resumed(journal, WANTED, second, threads, 2) == answers and second.asked == []
    assert sorted(first.asked) == list(range(5))


def test_work_goes_on_behind_what_a_task_raised(tmp_path: Path) -> None:
    journal, second = tmp_path / "journal", Counted()
    with pytest.raises(ValueError, match="no 3"):
        resumed(journal, WANTED, Counted(lambda n: n == 3), threads, 1)
    kept = [json.loads(line)[0] for line in journal.read_text().splitlines()]
    assert kept == ["task 0", "task 1", "task 2"]
    resumed(journal, WANTED, second, threads, 1)
    assert second.asked == [3, 4]


def test_a_line_that_was_cut_off_is_computed_again(tmp_path: Path) -> None:
    journal, second = tmp_path / "journal", Counted()
    resumed(journal, WANTED, Counted(), threads, 1)
    journal.write_text(journal.read_text()[:-4])
    assert resumed(journal, WANTED, second, threads, 1)["task 4"] == [4, 16]
    assert second.asked == [4]
    assert len(journal.read_text().splitlines()) == 5


@pytest.mark.parametrize("line", ["garbage", "[]", "[1]", '{"a": 1}', "3", "[[], 1]"])
def test_a_foreign_line_is_named(tmp_path: Path, line: str) -> None:
    journal = tmp_path / "journal"
    journal.write_text(f'["task 1", [1, 1]]\n{line}\n')
    with pytest.raises(InputError, match=r"journal: line 2: is no kept answer"):
        resumed(journal, WANTED, Counted(), threads, 1)


def test_what_is_no_longer_wanted_goes(tmp_path: Path) -> None:
    journal, second = tmp_path / "journal", Counted()
    resumed(journal, WANTED, Counted(), threads, 1)
    wanted = {"task 1": 1, "task 9": 9}
    assert resumed(journal, wanted, second, threads, 1) == {"task 1": [1, 1], "task 9": [9, 81]}
    assert second.asked == [9]
    assert {json.loads(line)[0] for line in journal.read_text().splitlines()} == set(wanted)


def process_of(task: int) -> int:
    return os.getpid()


def test_a_process_a_task(tmp_path: Path) -> None:
    """Where asked for, whatever a task leaves behind in its process no other finds; more tasks than are handed out."""
    tasks = {f"task {n}": n for n in range(6)}
    found = resumed(tmp_path / "journal", tasks, process_of, *local(2, tasks_per_process=1))
    assert len(set(found.values())) == len(tasks)


def test_what_a_task_raised_is_handed_on() -> None:
    told = dict(computed(WANTED, {"task 0": [0]}, Counted(lambda n: n == 1), threads, 1))
    assert set(told) == {"task 1", "task 2", "task 3", "task 4"}
    assert isinstance(told["task 1"], ValueError) and told["task 2"] == [2, 4]
