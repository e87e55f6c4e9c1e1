"""Reports: what is on the page, opened in a browser and used as a reader would."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import browser as chromium
import pytest
from tiny import copy, kernel, launch, stream, tiny, trace

import gpusim
from gpusim.cli import main
from gpusim.common.errors import InputError
from gpusim.common.files import write_text
from gpusim.common.tables import number
from gpusim.io.report import content as contents
from gpusim.io.report.content import (
    FILE,
    POLICY,
    REASONS,
    Content,
    Hold,
    content_in,
    content_of,
    content_text,
    hold,
    why_no_more,
)
from gpusim.io.report.page import page
from gpusim.model.occupancy import Footprint, occupancy
from gpusim.results.comparison import Comparison
from gpusim.results.error_band import ErrorBand, HowWrong
from gpusim.session import compare
from gpusim.trace.format import Trace

MODULE = Path(__file__).parents[1] / "traces" / "inception_3a.json.gz"
POLICIES = ("serial", "leftover", "inter-sm", "even")
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=2'>&amp;{{7*7}}"


def compared(of: Trace, gpu: gpusim.GPU, *policies: str) -> Comparison:
    return compare(of, gpu, policies, keep=["residents"])


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compared(gpusim.load_trace(MODULE), gpusim.load_gpu("h200"), *POLICIES)


@pytest.fixture(scope="module")
def content(comparison: Comparison) -> Content:
    return content_of(comparison)


@cache
def by_hand() -> Content:
    """Two SMs, a block fills one: `a` has 3 blocks of 4 us, another stream copies for 2 us and launches `b`."""
    of = trace(stream("one", kernel("a", 3, 9.0)), stream("two", copy("in", 2.0), kernel("b", 1, 6.0)))
    return content_of(compared(of, tiny(2), "serial"))


# ---- what is on it


def test_residency_worked_out_by_hand() -> None:
    (policy,) = by_hand().policies
    assert policy.residency is not None
    held = [[tuple(one) for one in mix] for mix in policy.residency.mixes]
    registers = REASONS.index("registers")
    assert held == [[(0, 1, registers)], [], [(1, 1, registers)]]
    assert policy.residency.sms == [[1000, 0, 8000, 1, 1000, 2, 5000, 1], [1000, 0, 4000, 1]]
    assert [tuple(one) for one in policy.others] == [(1, "in", "copy", 0.0, 2.0)]
    assert [(run.stream, run.start_us, run.end_us) for run in policy.runs] == [(0, 1.0, 9.0), (1, 10.0, 15.0)]


def test_counts_and_their_nouns_agree() -> None:
    assert by_hand().counts == "2 streams, 3 operations, 2 kernels"
    one = compared(trace(stream("one", kernel("a", 3, 9.0))), tiny(2), "serial")
    assert content_of(one).counts == "1 stream, 1 operation, 1 kernel"


def test_why_no_more_blocks_fit() -> None:
    gpu = tiny(1)
    limits = gpu.limits
    one = Hold(Footprint(1, 0, 0), 32, REASONS.index("block slots"))

    def why(*of: tuple[Hold, int]) -> list[str]:
        found = why_no_more(tuple(enumerate(count for _, count in of)), [each for each, _ in of], gpu)
        return [REASONS[place] for place in found]

    registers = Hold(Footprint(4, limits.registers_per_sm // 4 // 128 * 128, 0), 4, REASONS.index("registers"))
    shared = Hold(Footprint(1, 0, limits.shared_memory_per_sm_bytes // 2), 2, REASONS.index("shared memory"))
    threads = Hold(Footprint(limits.max_warps_per_sm // 4, 0, 0), 4, REASONS.index("threads"))
    assert why((registers, 4)) == ["registers"]
    assert why((shared, 2)) == ["shared memory"]
    assert why((threads, 4)) == ["threads"]
    assert why((one, limits.max_blocks_per_sm)) == ["block slots"]
    assert why((one, 3)) == [POLICY]
    assert why((registers, 4), (one, 1)) == ["registers", POLICY]
    assert why((threads, 3), (one, limits.max_warps_per_sm // 4)) == ["threads", "threads"]


@pytest.mark.parametrize("threads", [32, 64, 96, 256, 1024])
def test_a_kernel_alone_is_held_back_by_what_limits_its_occupancy(threads: int) -> None:
    one, gpu = launch(1, 9.0, threads=threads), tiny(1)
    size = {"threads_per_block": threads, "registers_per_thread": 64, "shared_memory_per_block": 0}
    fit = occupancy(gpu, **size)
    (why,) = why_no_more(((0, fit.blocks_per_sm),), [hold(one, gpu)], gpu)
    assert REASONS[why] == {"warps": "threads", "blocks": "block slots"}.get(fit.limiter, fit.limiter)


def test_the_page_is_one_file_that_asks_for_no_other(content: Content) -> None:
    text = page(content)
    assert len(text.encode()) < 2e6
    assert set(re.findall(r"\bhttps?://[^\"'\s]+", text)) == {"http://www.w3.org/2000/svg"}
    assert re.findall(r"<(?:link|img|iframe|object)|\bsrc=|@import|url\(", text) == []
    assert "%%" not in text


def test_the_same_comparison_gives_the_same_bytes(content: Content, comparison: Comparison) -> None:
    assert page(content) == page(content_of(comparison))


@pytest.mark.usefixtures("no_pictures")
def test_a_folder_gives_the_page_of_its_replay(tmp_path: Path) -> None:
    wanted = [str(MODULE), "--policy", "serial", "--policy", "leftover"]
    assert main(["replay", *wanted, "--out", str(tmp_path / "out")]) == 0
    assert main(["report", str(tmp_path / "out"), "-o", str(tmp_path / "folder.html")]) == 0
    assert main(["report", *wanted, "-o", str(tmp_path / "trace.html")]) == 0
    assert (tmp_path / "folder.html").read_bytes() == (tmp_path / "trace.html").read_bytes()


@pytest.mark.usefixtures("no_pictures")
def test_of_a_large_trace_what_each_sm_held_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(contents, "MOST_HELD", 11)
    monkeypatch.setattr(contents, "MOST_RUNS", 10)
    assert main(["replay", str(MODULE), "--policy", "leftover", "--out", str(tmp_path / "out")]) == 0
    (policy,) = content_in(tmp_path / "out").policies
    assert policy.residency is None and len(policy.runs) == 10 and policy.left_out == 2


# ---- what may go wrong


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The line that a command ends with."""
    assert main([str(argument) for argument in arguments]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1
    return error


def test_folders_and_paths_that_will_not_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.html"
    assert f"holds no {FILE}; expected a trace, or a folder" in told(capsys, "report", tmp_path, "-o", out)
    assert "cannot be read" in told(capsys, "report", tmp_path / "none", "-o", out)
    (tmp_path / FILE).write_text(content_text(by_hand()))
    assert "--policy: says how to replay" in told(capsys, "report", tmp_path, "--policy", "even", "-o", out)
    assert "--alternatives: says" in told(capsys, "report", tmp_path, "--alternatives", "fitting", "-o", out)
    assert "Is a directory" in told(capsys, "report", tmp_path, "-o", tmp_path)
    assert "No such file or directory" in told(capsys, "report", tmp_path, "-o", tmp_path / "none" / "r.html")
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def changed(**changes: Any) -> str:
    """The content by hand with other values, those of its policy among them."""
    found = json.loads(content_text(by_hand()))
    for key, value in changes.items():
        target = found if key in found else found["policies"][0]
        target[key] = value
    return json.dumps(found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "JSON"),
        ('{"version": 1', "JSON"),
        (changed(version=2), "version: is 2"),
        (changed(sms="2"), "sms: is '2'"),
        (changed(unknown=1), "unknown"),
        (changed(policies=[]), "policies: is empty"),
        (changed(makespan_us=float("inf")), "makespan_us"),
        (changed(streams=["one", "two"], kernels=[]), "kernels that are not there"),
        (changed(residency={"mixes": [[[2, 1, 0]]], "sms": []}), "runs that are not there"),
        (changed(residency={"mixes": [], "sms": [[1, 0]]}), "mixes that are not there"),
        (changed(residency={"mixes": [[]], "sms": [[1]]}), "is not whole"),
        (changed(residency={"mixes": [[[0, 1, 5]]], "sms": []}), "a number of at most 4"),
    ],
)
def test_content_that_is_not_what_was_written_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(InputError) as caught:
        content_in(tmp_path)
    assert problem in str(caught.value) and str(tmp_path / FILE) in str(caught.value)


def test_characters_that_hide_others_are_shown_as_such(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(changed(trace="a\x1b[31m\u202eb"))
    assert content_in(tmp_path).trace == "a\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}b"


# ---- in a browser


@pytest.fixture
def opened(browser: chromium.Browser, content: Content, tmp_path: Path) -> Iterator[chromium.Browser]:
    """The report of the module, whole: without errors, and without a request for anything else."""
    path = tmp_path / "report.html"
    write_text(path, page(content))
    browser.open(path)
    yield browser
    assert browser.errors == []
    assert browser.requests == [path.as_uri()]


def test_its_tables_say_what_the_comparison_says(opened: chromium.Browser, comparison: Comparison) -> None:
    assert opened.text("#title").startswith("inception_3a on NVIDIA H200")
    titles, *rows = opened.rows("#policies")
    best = comparison.entries[0]
    assert titles == ["policy", "makespan (µs)", "", "speedup", "model error"]
    assert rows == [
        [
            entry.result.policy,
            f"{entry.result.makespan_us:.1f}",
            "",
            f"{entry.speedup_vs_serial:.3f}x",
            entry.how_wrong.text,
        ]
        for entry in comparison.entries
    ]
    assert best.gain_us is not None
    saved = [sum(best.gain_us.values()), *best.gain_us.values()]
    assert opened.rows("#parts")[1] == [best.result.policy, *(number(us) for us in saved)]
    assert "L2 bandwidth (%)" in opened.text("#uses")
    assert opened.value("document.querySelectorAll('#uses svg').length") == 7 * len(POLICIES)
    assert len(opened.rows("#kernels")) == 1 + len(best.result.kernel_runs)


@pytest.fixture(params=[420, 1000])
def wide(request: pytest.FixtureRequest, opened: chromium.Browser) -> Iterator[chromium.Browser]:
    """The report in a window of a telephone and of a desk."""
    size = {"width": request.param, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    opened.tell("Emulation.setDeviceMetricsOverride", **size)
    opened.tell("Page.reload")
    opened.wait_for(f"document.readyState === 'complete' && innerWidth === {request.param}")
    yield opened
    opened.tell("Emulation.clearDeviceMetricsOverride")
    opened.requests[1:] = []


def test_it_fits_the_window(wide: chromium.Browser) -> None:
    window = wide.value("innerWidth")
    assert wide.value("document.documentElement.scrollWidth") <= window
    outside = "[...document.querySelectorAll('body *')].filter(e => !e.closest('.wide') && "
    outside += "e.getBoundingClientRect().right > innerWidth).map(e => e.outerHTML.slice(0, 80))"
    assert wide.value(outside) == []
    assert wide.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_kernels_are_grouped_sorted_and_searched(wide: chromium.Browser) -> None:
    def choose(group: str) -> None:
        change = f"b.value = '{group}', b.dispatchEvent(new Event('change'))"
        wide.value(f"(b => ({change}))(document.querySelector('#group'))")

    choose("name")
    titles, *rows = wide.rows("#kernels")
    assert titles == ["kernel", "launches", "isolated (µs)", "waited (µs)", "sharing (µs)", "mostly bound by"]
    assert sum(int(row[1]) for row in rows) == 12 and len(rows) < 12
    wide.value("document.querySelectorAll('#kernels th button')[2].click()")
    isolated = [float(row[2]) for row in wide.rows("#kernels")[1:]]
    assert isolated == sorted(isolated, reverse=True)
    assert wide.value("document.querySelectorAll('#kernels th')[2].ariaSort") == "descending"
    wide.value("document.querySelectorAll('#kernels th button')[2].click()")
    assert [float(row[2]) for row in wide.rows("#kernels")[1:]] == isolated[::-1]
    choose("operation")
    assert len(wide.rows("#kernels")) == 1 + 6
    wide.write("#search", "3a.5x5")
    wide.wait_for("document.querySelector('#kernels tbody').rows.length === 2")
    assert wide.value("document.querySelector('#filter').value") == "3a.5x5"


def test_what_is_not_validated_is_hatched_and_the_legend_says_so(
    browser: chromium.Browser, comparison: Comparison, tmp_path: Path
) -> None:
    known = HowWrong(ErrorBand("streams", 2.0), "", "on h200")
    errors = [known, HowWrong(None, "not validated: here"), known, known]
    entries = [replace(entry, how_wrong=error) for entry, error in zip(comparison.entries, errors, strict=True)]
    write_text(tmp_path / "page.html", page(content_of(replace(comparison, entries=tuple(entries)))))
    browser.open(tmp_path / "page.html")
    hatched = "[...document.querySelectorAll('#policies tbody tr')].map(r => r.querySelector('path').getAttribute('d'))"
    assert [bool(path) for path in browser.value(hatched)] == [False, True, False, False]
    assert browser.text("#bars").split("\n") == ["model error measured, shown as a whisker", "not validated"]
    assert browser.text("#verdict").startswith("Plain streams (leftover) save 38.1 µs of 308.7")


def test_the_timeline_is_saved_as_a_picture(opened: chromium.Browser) -> None:
    text = opened.value("timelineSvg()")
    root = ElementTree.fromstring(text)
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"1x1", "3x3", "5x5", "pool_proj", "SM 0", "0 µs"} <= set(texts)
    fills = {element.get("fill") for element in root.iter("{http://www.w3.org/2000/svg}rect")}
    assert {f"#{colour:06X}" for colour in STREAM_COLOURS} <= fills
    assert opened.value("document.querySelector('#picture').toDataURL('image/png')").startswith(
        "data:image/png;base64,"
    )
    opened.value("window.saved = []; HTMLAnchorElement.prototype.click = function () { saved.push(this.download); }")
    opened.click("#svg")
    opened.click("#png")
    assert opened.value("saved") == ["inception_3a-leftover.svg", "inception_3a-leftover.png"]


def test_it_prints_with_its_legend(opened: chromium.Browser) -> None:
    opened.tell("Emulation.setEmulatedMedia", media="print")
    shown = "[...document.querySelectorAll('{}')].filter(e => e.getClientRects().length).length"
    assert opened.value(shown.format(".tools, .hint.tools")) == 0
    assert opened.value(shown.format(".legend")) == 2 and opened.value(shown.format("#streams .swatch")) == 4
    assert opened.value(shown.format("#choices button")) == 1  # the policy that is shown
    pdf = base64.b64decode(opened.tell("Page.printToPDF")["data"])
    opened.tell("Emulation.setEmulatedMedia", media="")
    assert pdf.startswith(b"%PDF")


def test_the_foot_says_version_command_and_the_date_that_is_given(
    tmp_path: Path, browser: chromium.Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = [
        "report",
        "sample:inception_3a",
        "--policy",
        "inter-sm:sms=33+33+33+33",
        "--gpu",
        "h200",
        "--priority",
        "1x1=2",
    ]
    assert main([*argv, "-o", str(tmp_path / "page.html")]) == 0
    browser.open(tmp_path / "page.html")
    assert browser.text("#version") == f"gpusim {gpusim.__version__}"
    command = "gpusim replay sample:inception_3a --gpu h200 --policy inter-sm:sms=33+33+33+33 --priority 1x1=2"
    assert browser.text("#command") == command


PAINTED = """(canvas => {
  const shown = canvas.getContext('2d').getImageData(140, 22, canvas.width - 140, canvas.height - 22).data;
  const seen = new Set();
  for (let i = 0; i < shown.length; i += 4) seen.add(shown[i] << 16 | shown[i + 1] << 8 | shown[i + 2]);
  return [...seen];
})"""
STREAM_COLOURS = {0x0072B2, 0xE69F00, 0xD55E00, 0x8CCBEA}


def painted(opened: chromium.Browser) -> set[int]:
    """The colours of the timeline, without its margins."""
    return set(opened.value(f"{PAINTED}(document.querySelector('#picture'))"))


def test_a_filter_leaves_the_others_grey(opened: chromium.Browser) -> None:
    assert painted(opened) >= STREAM_COLOURS
    opened.write("#filter", "POOL")
    opened.wait_for("document.querySelector('#shown').innerText.includes('1 of 12 kernels')")
    assert painted(opened) & STREAM_COLOURS == {0x8CCBEA}
    assert len(opened.rows("#kernels")) == 2
    opened.write("#filter", "")
    opened.wait_for("document.querySelector('#shown').innerText.includes('12 of 12 kernels')")
    opened.click("#streams label:nth-child(4) input")
    opened.wait_for("document.querySelector('#shown').innerText.includes('11 of 12 kernels')")
    assert painted(opened) & STREAM_COLOURS == STREAM_COLOURS - {0x8CCBEA}


def span(opened: chromium.Browser) -> tuple[float, float]:
    """From when to when the timeline shows."""
    found = re.match(r"([\d.,]+) – ([\d.,]+) µs", opened.text("#shown"))
    assert found is not None
    return float(found[1]), float(found[2])


def test_it_zooms_by_dragging_keys_buttons_and_kernels(opened: chromium.Browser, content: Content) -> None:
    whole = span(opened)
    assert whole[0] == 0.0 and whole[1] == pytest.approx(max(one.makespan_us for one in content.policies), abs=0.05)
    left, top, width, _ = opened.box("#picture")
    room = width - 132
    opened.mouse("mousePressed", left + 132 + 0.25 * room, top + 40, 1, held=True)
    opened.mouse("mouseMoved", left + 132 + 0.5 * room, top + 40, held=True)
    opened.mouse("mouseReleased", left + 132 + 0.5 * room, top + 40, 1)
    near = 2.0 * whole[1] / room  # a pixel or two
    assert span(opened) == (pytest.approx(0.25 * whole[1], abs=near), pytest.approx(0.5 * whole[1], abs=near))
    opened.click("#picture", times=2)
    assert span(opened) == whole
    opened.value("document.querySelector('#picture').focus()")
    opened.press("+")
    assert span(opened)[1] - span(opened)[0] == pytest.approx(whole[1] / 2, abs=0.1)
    opened.press("0")
    opened.click("#in")
    opened.click("#in")
    assert span(opened)[1] - span(opened)[0] == pytest.approx(whole[1] / 4, abs=0.1)
    opened.click("#out")
    opened.click("#all")
    assert span(opened) == whole
    opened.click("#kernels tbody tr:nth-child(3)")
    run = content.policies[0].runs[2]
    assert span(opened)[0] <= run.start_us + 0.05 and span(opened)[1] >= run.end_us - 0.05 and span(opened) != whole


def tips(opened: chromium.Browser, y: float) -> list[str]:
    """What is told at twenty places along a line of the timeline."""
    left, top, width, _ = opened.box("#picture")
    found = []
    for i in range(20):
        opened.mouse("mouseMoved", left + 132 + (i + 0.5) / 20 * (width - 132), top + y)
        if not opened.value("document.querySelector('#tip').hidden"):
            found.append(opened.text("#tip"))
    return found


def test_the_pointer_tells_kernel_sm_blocks_bound_and_why_no_more_fit(opened: chromium.Browser) -> None:
    on_stream = tips(opened, 22 + 24 * 1.5)  # the second stream
    assert any("sm90_xmma_fprop" in tip and "3a.3x3" in tip and "bound by\nlatency" in tip for tip in on_stream)
    on_sm = tips(opened, 22 + 24 * 4 + 14 + 2)  # SM 0
    assert any("holds nothing" in tip for tip in on_sm)
    busy = [tip for tip in on_sm if "bound by" in tip]
    assert busy and all("SM\n0\n" in tip and "resident here now, of" in tip for tip in busy)
    assert any("no more here\non this SM its registers are full" in tip for tip in busy)
    assert any("no more here\nall its blocks are placed" in tip for tip in busy)


def test_another_policy_and_some_sms(opened: chromium.Browser, content: Content) -> None:
    before = painted(opened)
    opened.click("#choices button:nth-child(4)")
    assert opened.text("#kernels-title") == f"Kernels under {content.policies[3].title}"
    assert opened.value("document.querySelectorAll('#choices [aria-pressed=true]').length") == 1
    opened.write("#last", "3")
    assert painted(opened) != before
    assert any("SM\n3\n" in tip for tip in tips(opened, 22 + 24 * 4 + 14 + 400))


def test_hostile_names_are_text_and_estimates_are_marked(browser: chromium.Browser, tmp_path: Path) -> None:
    bad = kernel("a", 3, 9.0)
    bad = bad.model_copy(update={"kernel": bad.kernel.model_copy(update={"name": HOSTILE})})
    of = trace(stream("one", bad), stream("two", copy("in", 2.0), kernel("b", 1, 6.0, "a")))
    of = of.model_copy(update={"name": HOSTILE})
    path = tmp_path / "hostile.html"
    write_text(path, page(content_of(compared(of, tiny(2), "serial", "leftover"))))
    browser.open(path)
    assert browser.text("#title").startswith(HOSTILE)
    assert browser.value("document.title").startswith(HOSTILE)
    assert browser.value("typeof window.hacked") == "undefined"
    assert browser.value("document.querySelectorAll('main img, header img, body > img').length") == 0
    assert browser.text("#kernels").count("estimated") == 2
    shown = tips(browser, 22 + 12)
    assert any(tip.startswith("</script>") and "estimated" in tip for tip in shown)
    assert any("copy" in tip for tip in tips(browser, 22 + 36))
    assert browser.errors == [] and browser.requests == [path.as_uri()]


def test_what_is_not_known_is_said_to_be_unknown(browser: chromium.Browser, tmp_path: Path) -> None:
    path = tmp_path / "unknown.html"
    write_text(path, page(by_hand()))
    browser.open(path)
    assert browser.text("#uses").count("unknown: not counted") == 3  # issue slots, DRAM and L2
    assert browser.value("document.querySelector('#gains').hidden") is True  # of serial alone
    assert browser.errors == []
