"""`gpusim bench`: how fast the engine is on this machine."""

from __future__ import annotations

import argparse

from gpusim.commands.arguments import json_flag

GROUPS = ("trace", "grid", "streams", "SMs", "kernels", "small kernels", "chain", "pairs", "plain core", "oracle")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "--only",
        action="append",
        choices=GROUPS,
        metavar="GROUP",
        help=f"one of {', '.join(GROUPS)}; may be given several times; default: all, which takes minutes",
    )
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Measures and prints."""
    from dataclasses import asdict

    from gpusim.common.progress import tracked
    from gpusim.common.tables import Column, number, print_json, print_table
    from gpusim.studies.bench import groups, measure

    names = args.only or list(GROUPS)
    total = sum(len(groups()[name]()) for name in names)
    found = list(tracked(measure(names), total, "measuring"))
    if args.json:
        print_json([asdict(one) for one in found])
        return 0
    titles = ("kernels", "blocks", "replays", "fit s", "replay s", "peak MiB", "oracle s", "oracle / replay")
    print_table(
        [Column("group"), Column("case"), *(Column(title, right=True) for title in titles)],
        [
            (
                one.group,
                one.case,
                f"{one.kernels:,}",
                f"{one.blocks:,}",
                f"{one.replays:,}",
                number(one.fit_s, 3),
                number(one.replay_s, 3),
                number(one.peak_mib, 0),
                "" if one.oracle_s is None else number(one.oracle_s, 1),
                "" if one.oracle_s is None else f"{number(one.oracle_s / one.replay_s, 0)}x",
            )
            for one in found
        ],
    )
    return 0
