"""How all pictures look: their width, the size of their text, colours, hatches, units and files.

A picture is as wide as a column of a paper, 3.35 inches, with text of 8 points at that width, unless `styled` says
otherwise. Colours can be told apart by colour-blind readers, the first five also in grey; hatches, markers and line
styles do the rest. Text stays text: PDF files embed TrueType fonts, SVG files name theirs.

The same content gives the same bytes: no date, no version, no settings of the user's go into a picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gpusim.common.errors import InputError, one_line
from gpusim.common.files import atomic_write
from gpusim.common.tables import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Most are Okabe and Ito's, which colour-blind readers can tell apart; the first five differ in grey, too.
COLOURS = (
    "#0072B2", "#E69F00", "#D55E00", "#8CCBEA", "#004D35", "#CC79A7", "#009E73", "#7F3C8D", "#B8A800", "#8C564B",
)  # fmt: skip
HATCHES = ("", "////", "....", "\\\\\\\\", "++", "oo", "---", "|||", "**", "OO")  # for who reads in grey
MARKERS = "osD^vP*X<>"
LINES = ("-", "--", ":", "-.")
GRID = "#D8D8D8"
GREY = "#777777"
UNVALIDATED = "////"  # the hatch of what no measured error is known of
FORMATS: dict[str, dict[str, Any]] = {  # what of each format's metadata would differ from run to run or version
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
MILLISECONDS_FROM_US = 10_000.0
UNITS = {"us": "µs", "cycles": "cycles"}  # with which the names of parameters end, and how they are written
COLUMN, PAGE = 3.35, 7.0  # inches: widths of a column of a paper, and of its page
WIDE = 5.0  # inches, from which panels fit side by side
LETTERS_PER_INCH = 15.0  # of text of 8 points

Look = Literal["paper", "screen"]


class Style(NamedTuple):
    """How the next pictures are drawn."""

    width: float = COLUMN  # inches
    look: Look = "paper"  # text of 8 points and 300 dots per inch; for a screen 10 points and 150
    title: bool = True  # whether there is one: a paper has captions

    @property
    def points(self) -> float:
        """The size of text."""
        return 8.0 if self.look == "paper" else 10.0

    @property
    def wide(self) -> bool:
        """Whether two panels fit side by side."""
        return self.width >= WIDE * self.points / 8.0

    @property
    def letters(self) -> int:
        """About how many letters fit side by side."""
        return int(self.width * LETTERS_PER_INCH * 8.0 / self.points)


_style: ContextVar[Style | None] = ContextVar("_style", default=None)


def style() -> Style:
    """The current style of pictures."""
    return _style.get() or Style()


@contextmanager
def styled(chosen: Style) -> Iterator[None]:
    """Draw pictures in another style while this lasts."""
    token = _style.set(chosen)
    try:
        yield
    finally:
        _style.reset(token)


def _settings(points: float | None = None) -> Any:
    """Matplotlib's own settings, whatever the user's are; a ``$`` in a name is a ``$``, and an SVG's ids stay."""
    import matplotlib

    settings: dict[Any, Any] = dict(matplotlib.rcParamsDefault)
    settings |= {
        "text.parse_math": False,
        "svg.hashsalt": "gpusim",
        "svg.fonttype": "none",
        "pdf.fonttype": 42,
        "ps.fonttype": 42,
    }
    if points is not None:
        names = ("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize")
        settings |= dict.fromkeys((*names, "legend.fontsize", "legend.title_fontsize", "figure.titlesize"), points)
        settings |= {"axes.linewidth": 0.6, "grid.linewidth": 0.5, "grid.color": GRID, "hatch.linewidth": 0.6}
        settings |= {"axes.axisbelow": True, "lines.linewidth": 1.2, "lines.markersize": 4.0, "patch.linewidth": 0.6}
        settings |= {"legend.frameon": False, "legend.handlelength": 1.6, "legend.columnspacing": 1.0}
        settings |= {"xtick.major.size": 2.5, "ytick.major.size": 2.5, "axes.titlelocation": "left"}
    return settings


@contextmanager
def new_figure(height: float) -> Iterator[Figure]:
    """A figure in the current `style`, as a context. Its height is in inches for text of 8 points."""
    import matplotlib
    from matplotlib.figure import Figure

    chosen = style()
    with matplotlib.rc_context(_settings(chosen.points)):
        dots = 300 if chosen.look == "paper" else 150
        size = chosen.width, height * chosen.points / 8.0
        yield Figure(figsize=size, dpi=dots, facecolor="white", layout="constrained")


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure in the format of the file extension. The same figure always gives the same bytes."""
    import matplotlib

    ending = picture_format(path)
    with matplotlib.rc_context(_settings()), atomic_write(path, "wb") as file:
        figure.savefig(file, format=ending, metadata=FORMATS[ending])


def picture_format(path: str | Path) -> str:
    """The one of `FORMATS` that a file extension names."""
    ending = Path(path).suffix.removeprefix(".").lower()
    if ending not in FORMATS:
        raise InputError(Path(path), "picture", "cannot be drawn to", f"a file that ends in .{', .'.join(FORMATS)}")
    return ending


def titled(figure: Figure, title: str) -> None:
    """Write the title above a figure, where the style has one."""
    if style().title:
        figure.suptitle(shortened(one_line(title), style().letters), x=0.01, ha="left", fontsize=style().points)


def legend_below(figure: Figure, axes: Axes, columns: int = 2, title: str | None = None) -> None:
    """Write the legend of some axes below a figure, each label once; nothing where there is none."""
    handles = {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if handles:
        figure.legend(list(handles.values()), list(handles), loc="outside lower left", ncols=columns, title=title,
                      alignment="left")  # fmt: skip


def grid(axes: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Draw a light grid behind everything."""
    axes.grid(axis=axis, color=GRID, linewidth=0.5)
    axes.set_axisbelow(True)


def ink(colour: Any) -> str:
    """White or black, whichever reads better on a colour."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.62 else "black"


def time_unit(us: float) -> tuple[float, str]:
    """Divisor of microseconds for times of about that length, and the unit."""
    return (1e3, "ms") if us >= MILLISECONDS_FROM_US else (1.0, "µs")


def in_words(policy: str) -> str:
    """A policy with its parameters: ``maestro:epoch_us=50,eps=0.1`` as ``maestro, epoch 50 µs, eps 0.1``."""
    head, equals, _ = policy.partition("=")
    name = head.rpartition(":")[0]
    if not equals or not name:
        return policy
    words = [name]
    for part in policy[len(name) + 1 :].split(","):
        key, _, value = part.partition("=")
        what, _, unit = key.rpartition("_")
        if unit in UNITS:
            key, value = what, f"{value} {UNITS[unit]}"
        words.append(f"{key.replace('_', ' ')} {value}")
    return ", ".join(words)
