"""What the studies have in common: tables, a page whose numbers come from them, pictures, and the script's options.

A study is a folder. Its script (`run.py`) makes the tables, CSV files beside it. From the tables it makes README.md
and the pictures: `page.md` holds the prose, with a name in braces wherever a number or a table of results belongs.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from experiments.journal import resumed
from experiments.markdown import rendered
from experiments.rows import Kind, from_csv, to_csv
from gpusim.commands.arguments import whole
from gpusim.common import fingerprint
from gpusim.common.files import read_text, write_table, write_text
from gpusim.hardware.gpu import load_gpu
from gpusim.sweeps.workers import local

T = TypeVar("T")
TRACES = Path(__file__).resolve().parent.parent / "traces"
RECORDED = Path(__file__).resolve().parent / "h200_validation" / "data"  # on an H200
MODEL = ("gpusim.choose.report", "gpusim.choose.pairs", "gpusim.session", "gpusim.policies")


@dataclass(frozen=True)
class Run:
    """One run of a study's script.

    Attributes:
        out: folder to write to.
        jobs: processes to use.
    """

    out: Path
    jobs: int = 1

    def answers(
        self, name: str, items: Iterable[T], answer: Callable[[T], Any], files: Iterable[Path], gpus: Iterable[str]
    ) -> dict[T, Any]:
        """The answer to each item; those that an interrupted run left in its journal are taken over.

        Args:
            name: of the journal.
            items: what to answer; their `repr` tells them apart.
            answer: gives plain data, in a process of its own.
            files: that answers depend on, beside the sources of the model.
            gpus: likewise, by name.
        """
        known = [fingerprint.sources(*MODEL), fingerprint.files(files), *map(load_gpu, gpus)]
        wanted = {fingerprint.data([*known, repr(item)]): item for item in items}
        found = resumed(self.out / f"{name}.part.jsonl", wanted, answer, *local(self.jobs))
        return {item: found[identity] for identity, item in wanted.items()}


@dataclass(frozen=True)
class Study:
    """A study.

    Attributes:
        script: path of its script, in the study's folder.
        about: the script's documentation; what stands before its first colon or line end describes it.
        tables: the kind of the rows of each table, by file name.
        rows: makes the rows of each table, by file name.
        page: what stands in `page.md` for each name, from the rows of all tables in their order.
        pictures: draws each picture, by file name, from the rows of all tables and the path to write to.
        steps: by option, what the script does instead where it is given, such as measuring, and the option's help.
        parallel: whether the script takes a number of processes.
    """

    script: str
    about: str | None
    tables: Mapping[str, Kind]
    rows: Callable[[Run], Mapping[str, Iterable[Any]]]
    page: Callable[..., Mapping[str, object]]
    pictures: Mapping[str, Callable[..., None]] = field(default_factory=dict)
    steps: Mapping[str, tuple[Callable[[], None], str]] = field(default_factory=dict)
    parallel: bool = False

    @property
    def folder(self) -> Path:
        """The study's own."""
        return Path(self.script).resolve().parent

    def read(self, folder: Path | None = None) -> list[list[Any]]:
        """The rows of each table in a folder (default: the study's own)."""
        return [from_csv(kind, (folder or self.folder) / name) for name, kind in self.tables.items()]

    def write_page(self, folder: Path) -> None:
        """Write README.md and the pictures from the tables in a folder."""
        tables = self.read(folder)
        template = read_text(self.folder / "page.md")
        write_text(folder / "README.md", rendered(template, self.page(*tables)))
        for name, draw in self.pictures.items():
            draw(*tables, folder / name)

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Make the tables, then the page and the pictures; or do what an option asks for instead.

        A script does it as a module: worker processes find what they are to do by the module's name.
        """
        if getattr(sys.modules["__main__"], "STUDY", None) is self:
            module = import_module(f"experiments.{self.folder.name}.{Path(self.script).stem}")
            return int(module.STUDY.main(arguments))
        parser = argparse.ArgumentParser(description=re.split(r"[:\n]", self.about or "")[0])
        parser.add_argument("--out", type=Path, default=self.folder, help="folder to write to")
        if self.parallel:
            parser.add_argument("--jobs", type=whole(1), default=os.cpu_count() or 1, help="processes")
        for name, (_, words) in self.steps.items():
            parser.add_argument(f"--{name}", action="store_true", help=words)
        options = parser.parse_args(arguments)
        for name, (step, _) in self.steps.items():
            if getattr(options, name):
                if options.out != self.folder:
                    parser.error(f"--{name}: writes beside the script; expected no --out")
                step()
                return 0
        options.out.mkdir(parents=True, exist_ok=True)
        made = self.rows(Run(options.out, getattr(options, "jobs", 1)))
        for name, rows in made.items():
            write_table(options.out / name, to_csv(self.tables[name], rows))
        self.write_page(options.out)
        for journal in options.out.glob("*.part.jsonl"):
            journal.unlink()
        return 0
