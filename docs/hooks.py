"""What `mkdocs build` does beside its plugins: pages from outside docs/, pages made from the program, and links.

Pages of the repository link to each other by paths that hold in a checkout. In the site some of these pages are
elsewhere, and a source file is a download; `on_page_markdown` rewrites the links.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import gpusim
from gpusim.cli import COMMANDS, build_parser
from gpusim.hardware.gpu import GPUFile
from gpusim.trace.format import trace_schema

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MOVED = {  # pages outside docs/: where they are in the site
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "traces/README.md": "reference/traces.md",
    "experiments/README.md": "studies/index.md",
    "experiments/h200_validation/evidence.md": "studies/h200_validation_evidence.md",
}
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)(#[^)\s]*)?(\))")
TAG = re.compile(r"\[([VAMD])\](?=\s+\[)")  # beside a link: Markdown would take the two for one link
HREF = re.compile(r'(<a href="(?![a-z]+:)[^"#]+)\.(?:md|ipynb)(#[^"]*)?"')
COPIED = (".py", ".toml", ".png", ".csv", ".cff", ".json")  # files that a page may link to


def on_config(config: Any) -> Any:
    """List the studies in the navigation."""
    for entry in config["nav"]:
        if "Studies" in entry:
            studies = sorted(page for page in _moved().values() if page.startswith("studies/") and "index" not in page)
            entry["Studies"] = ["studies/index.md", *studies]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside docs/ and those made from the program."""
    for source, target in _moved().items():
        if target != "index.md":
            text = rewritten((ROOT / source).read_text(encoding="utf-8"), source, target)
            files.append(File.generated(config, target, content=text))
    for target, text in generated_pages().items():
        files.append(File.generated(config, target, content=text))
    for source in sorted(_linked_files()):
        files.append(File.generated(config, f"files/{source}", abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrite the links of a page in docs/, and add the documentation of every public name to the page of Python."""
    source = Path(page.file.abs_src_path) if page.file.abs_src_path else None
    if source is None or DOCS not in source.parents:
        return markdown
    if page.file.src_uri == "reference/python.md":
        markdown += "\n\n" + "\n\n".join(f"::: gpusim.{name}" for name in sorted(gpusim.__all__, key=_functions_first))
    return rewritten(markdown, source.relative_to(ROOT).as_posix(), page.file.src_uri)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Rewrite the links of a notebook, which mkdocs-jupyter has turned into HTML."""
    return (
        HREF.sub(lambda match: f'{match[1]}.html{match[2] or ""}"', html)
        if page.file.src_uri.endswith(".ipynb")
        else html
    )


def _functions_first(name: str) -> tuple[bool, str]:
    return name[0].isupper(), name


# ---- links -----------------------------------------------------------------------------------------------------------


def rewritten(text: str, source: str, target: str) -> str:
    """A page with its links as they hold in the site.

    Args:
        text: the page, in Markdown.
        source: its path in the repository.
        target: its path in the site.
    """

    def link(match: re.Match[str]) -> str:
        if "://" in match[2] or match[2].startswith("mailto:"):
            return match[0]
        path = os.path.normpath(os.path.join(os.path.dirname(source), match[2]))
        found = os.path.relpath(in_site(path), os.path.dirname(target) or ".")
        return f"{match[1]}{found}{match[3] or ''}{match[4]}"

    return TAG.sub(r"\\[\1\\]", LINK.sub(link, text))


def in_site(path: str) -> str:
    """Where a file of the repository is in the site."""
    moved = _moved()
    if path in moved:
        return moved[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}"


def _moved() -> dict[str, str]:
    experiments = ROOT / "experiments"
    folders = (path.parent.relative_to(experiments) for path in experiments.glob("*/**/README.md"))
    return MOVED | {f"experiments/{at.as_posix()}/README.md": f"studies/{'_'.join(at.parts)}.md" for at in folders}


def _linked_files() -> set[str]:
    """Files outside docs/ that a page links to, or shows, and that are no page of the site."""
    moved = _moved()
    pages = [*moved, *(path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md"))]
    found = set()
    for page in pages:
        for match in LINK.finditer((ROOT / page).read_text(encoding="utf-8")):
            path = os.path.normpath(os.path.join(os.path.dirname(page), match[2]))
            known = path in moved or path.startswith("docs/")
            if not known and path.endswith(COPIED) and (ROOT / path).is_file():
                found.add(path)
    return found


# ---- pages made from the program -------------------------------------------------------------------------------------


def generated_pages() -> dict[str, str]:
    """Pages of the reference, by their path in the site."""
    return {
        "reference/command-line.md": command_line(),
        "reference/trace-format.md": schema_page("Trace format", "trace", trace_schema()),
        "reference/gpu-format.md": schema_page("GPU format", "gpu", GPUFile.model_json_schema()),
    }


def command_line() -> str:
    """Every command with its arguments, as argparse has them."""
    parser = build_parser(*(command.name for command in COMMANDS))
    lines = ["# Command line", "", "Exit status: 0 done, 1 a defect of gpusim, 2 bad usage or bad input.", ""]
    for name, command in _subcommands(parser):
        lines += [f"## gpusim {name}", "", command.description or "", "", "```text", _usage(command), "```", ""]
        lines += _arguments(command)
        for action, sub in _subcommands(command):
            lines += [f"### gpusim {name} {action}", "", sub.description or "", "", "```text", _usage(sub), "```", ""]
            lines += [*_arguments(sub), "```text", (sub.epilog or "").strip(), "```", ""]
        if command.epilog:
            lines += ["```text", command.epilog.strip(), "```", ""]
    return "\n".join(lines)


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _usage(parser: argparse.ArgumentParser) -> str:
    before = "usage: "
    return parser.format_usage().removeprefix(before).replace("\n" + " " * len(before), "\n").strip()


def _arguments(parser: argparse.ArgumentParser) -> list[str]:
    rows = []
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        shown = action.metavar or (action.dest if action.nargs != 0 else "")
        value = "/".join(map(str, action.choices)) if action.choices else str(shown)
        name = ", ".join(f"`{option}`" for option in action.option_strings) or f"`{value}`"
        said = (action.help or "").replace("%%", "%").replace("|", "\\|").replace("<", "&lt;")
        rows.append(f"| {name} | {f'`{value}`' if value else ''} | {said} |")
    return ["| argument | value | meaning |", "|---|---|---|", *rows, ""] if rows else []


def schema_page(title: str, name: str, schema: dict[str, Any]) -> str:
    """A JSON schema as tables, one for each kind of object."""
    lines = [f"# {title}", "", f"`gpusim schema {name}` prints this as JSON Schema.", ""]
    for kind, definition in [(title, schema), *schema.get("$defs", {}).items()]:
        fields = definition.get("properties", {})
        if not fields:
            continue
        lines += [f"## {'The file' if definition is schema else kind}", ""]
        lines += ["| field | type | unit | meaning | limits |", "|---|---|---|---|---|"]
        required = definition.get("required", ())
        lines += [_field(key, value, key in required) for key, value in fields.items()]
        lines.append("")
    return "\n".join(lines)


def _field(name: str, value: dict[str, Any], required: bool) -> str:
    limits = [f"{word} {value[key]}" for key, word in LIMITS.items() if key in value]
    limits += ["required"] if required else []
    cells = (f"`{name}`", _type(value), value.get("unit", ""), value.get("description", ""), ", ".join(limits))
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


LIMITS = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most", "exclusiveMaximum": "less than"}


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        return str(value["$ref"]).rsplit("/", 1)[1]
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "enum" in value:
        return " or ".join(f"`{json.dumps(one)}`" for one in value["enum"])
    choices: Iterable[dict[str, Any]] = value.get("anyOf") or value.get("oneOf") or ()
    if choices:
        return " or ".join(dict.fromkeys(map(_type, choices)))
    if value.get("type") == "array":
        return f"list of {_type(value.get('items', {}))}"
    return str(value.get("type", "any"))
