
"use strict";

const content = JSON.parse(document.getElementById("content").textContent);

// As in the pictures: colour-blind readers can tell them apart, and the first five differ in grey, too.
const COLOURS = ["#0072B2", "#E69F00", "#D55E00", "#8CCBEA", "#004D35", "#CC79A7", "#009E73", "#7F3C8D", "#B8A800",
  "#8C564B"];
const OTHERS_GREY = "#E2E2E2"; // of what a filter leaves out
const REASONS = ["its registers are full", "its shared memory is full", "its threads are full",
  "its block slots are full", "there is room: the policy lets no more in, or the SM is set to less shared memory than it has"];
const LEFT = 132, TOP = 22, STREAM_ROW = 24, GAP = 14, SM_AREA = 420; // of the timeline, pixels
const MOST_ROWS = 300; // kernels in the table
const FEW_LAUNCHES = 20; // up to which the table has a row for each
const BOUND = { issue: "issue slots", alu: "ALU", fma: "FMA", tensor: "tensor cores", lsu: "LSU", l1: "L1",
  latency: "latency", l2: "L2", dram: "DRAM", unknown: "unknown" };
const LEAST_VIEW_US = 0.01;
const longest = Math.max(...content.policies.map((policy) => policy.makespan_us), 1e-3);
const UNIT = longest >= 10000 ? { name: "ms", us: 1000, digits: 3 } : { name: "µs", us: 1, digits: 1 };

// ---- building blocks

const byId = (id) => document.getElementById(id);

/** An element; children that are no elements become text, whatever is in them. */
function element(name, attributes = {}, ...children) {
  const made = name === "svg" || element.inSvg.has(name)
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}
element.inSvg = new Set(["rect", "line", "path", "text", "pattern"]);

function number(value, digits) {
  const text = value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return /[1-9]/.test(text) ? text : text.replace("-", "");
}

const time = (us) => number(us / UNIT.us, UNIT.digits);
const cell = (value) => element("td", { class: "number" }, value);

function fill(table, titles, rows) {
  const heads = titles.map(([title, right]) => element("th", right ? { class: "number" } : {}, title));
  table.replaceChildren(element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
}

/** Steps of 1, 2 or 5 that cut a length into at most so many. */
function niceStep(length, most) {
  const power = 10 ** Math.floor(Math.log10(length / most));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => length / step <= most);
}

// ---- tables

function showHeader() {
  byId("title").textContent = `${content.trace} on ${content.gpu}`;
  byId("subtitle").textContent = content.counts;
  byId("notes").replaceChildren(...content.notes.map((note) => element("li", {}, note)));
  byId("verdict").textContent = content.verdict.replaceAll("`", "");
  byId("command").textContent = content.command;
  byId("version").textContent = content.gpusim && `gpusim ${content.gpusim}`;
}

function showPolicies() {
  const sharing = ["stp", "antt", "fairness"].filter((name) => content.policies.some((one) => name in one.sharing));
  const whisker = (policy) => policy.makespan_us * (1 + (policy.error_percent ?? 0) / 100);
  const room = window.innerWidth < 600 ? 90 : 240;
  const scale = room / Math.max(...content.policies.map(whisker), 1e-3);
  const rows = content.policies.map((policy) => {
    const svg = element("svg", { width: room + 10, height: 16, role: "img", "aria-label": "makespan as a bar" },
      ...makespanBar(policy.makespan_us * scale, policy.error_percent !== null));
    if (policy.error_percent !== null) {
      const from = (2 * policy.makespan_us - whisker(policy)) * scale, to = whisker(policy) * scale;
      for (const [x1, y1, x2, y2] of [[from, 8, to, 8], [from, 4, from, 12], [to, 4, to, 12]]) {
        svg.append(element("line", { x1, y1, x2, y2, stroke: "#1a1a1a", "stroke-width": 1.5 }));
      }
    }
    return element("tr", {}, element("th", { title: policy.policy }, policy.title), cell(time(policy.makespan_us)),
      element("td", {}, svg), cell(`${number(policy.speedup, 3)}x${policy.speedup_mark}`),
      ...sharing.map((name) => cell(name in policy.sharing ? number(policy.sharing[name], 3) : "")),
      element("td", {}, policy.how_wrong));
  });
  fill(byId("policies"), [["policy"], [`makespan (${UNIT.name})`, true], [""], ["speedup", true],
    ...sharing.map((name) => [name === "fairness" ? name : name.toUpperCase(), true]), ["model error"]], rows);
  byId("bars").replaceChildren(...[["model error measured, shown as a whisker", true], ["not validated", false]].flatMap(
    ([words, known]) => [element("span", {}, element("svg", { width: 26, height: 16 }, ...makespanBar(22, known)), words)]));
}

/** A bar, hatched where no error is known of what it shows. */
function makespanBar(length, known) {
  const style = { x: 0.5, y: 2.5, width: length, height: 11, stroke: "#0072b2", fill: known ? "#0072b2" : "#fff" };
  let path = "";
  for (let x = -8; x < length && !known; x += 6) {
    const from = Math.max(0, x), to = Math.min(length, x + 11);
    if (to > from) path += `M${0.5 + from} ${13.5 - (from - x)}L${0.5 + to} ${13.5 - (to - x)}`;
  }
  return [element("rect", style), element("path", { d: path, stroke: "#0072b2", fill: "none" })];
}

function showGains() {
  const explained = content.policies.filter((policy) => policy.gain_us !== null && policy.policy !== "serial");
  byId("gains").hidden = explained.length === 0;
  if (explained.length === 0) return;
  const parts = Object.keys(explained[0].gain_us);
  const values = (policy) => {
    const each = parts.map((part) => policy.gain_us[part]);
    return [each.reduce((sum, value) => sum + value, 0), ...each];
  };
  const most = Math.max(...explained.flatMap(values).map(Math.abs), 1e-3);
  const rows = explained.map((policy) => element("tr", {}, element("th", { title: policy.policy }, policy.title),
    ...values(policy).map((value) => element("td", { class: "number" }, time(value), gainBar(value / most)))));
  fill(byId("parts"), [["policy"], ...["saved", ...parts].map((name) => [`${name} (${UNIT.name})`, true])], rows);
}

function gainBar(share) {
  const half = 52, length = Math.abs(share) * (half - 2);
  return element("svg", { width: 2 * half, height: 11, role: "img", "aria-label": share < 0 ? "lost" : "saved" },
    element("rect", { x: share < 0 ? half - length : half, y: 1, width: length, height: 9,
      fill: share < 0 ? "#fff" : "#0072b2", stroke: "#0072b2" }),
    element("line", { x1: half, y1: 0, x2: half, y2: 11, stroke: "#1a1a1a" }));
}

function showSpans() {
  const titles = [["stream"], ...content.policies.map((policy) => [`${policy.title} (${UNIT.name})`, true])];
  const rows = (names, timesOf) => names.map((name, i) => element("tr", {}, element("th", {}, name),
    ...content.policies.map((policy) => {
      const [start, end, slowdown] = timesOf(policy)[i];
      return cell(`${time(start)} – ${time(end)}  ${number(slowdown, 2)}x`);
    })));
  const programs = rows(content.programs.map((name) => `program ${name}`), (policy) => policy.programs);
  byId("spans-title").textContent = content.programs.length > 0 ? "Programs and streams" : "Streams";
  fill(byId("spans"), titles, [...programs, ...rows(content.streams, (policy) => policy.streams)]);
}

function showUses() {
  const width = Math.max(130, Math.min(210, Math.floor(820 / content.policies.length) - 10)), height = 54;
  const rows = Object.entries(content.uses).map(([use, title], row, all) => {
    const last = row === all.length - 1;
    return element("tr", {}, element("th", {}, `${title} (%)`), ...content.policies.map((policy) =>
      element("td", {}, useChart(policy, use, title, width, height, last))));
  });
  fill(byId("uses"), [[""], ...content.policies.map((policy) => [policy.title])], rows);
}

function useChart(policy, use, title, width, height, withTimes) {
  const left = 26, room = width - left, percent = policy.use_percent[use];
  const svg = element("svg", { width, height: height + (withTimes ? 30 : 6), role: "img" });
  const x = (us) => left + (us / longest) * room, y = (share) => height - (Math.min(share, 105) / 105) * (height - 6);
  for (const share of [0, 50, 100]) {
    svg.append(element("line", { x1: left, x2: width, y1: y(share), y2: y(share), stroke: "#d8d8d8" }),
      element("text", { x: left - 4, y: y(share) + 3.5, "text-anchor": "end" }, share));
  }
  if (percent === undefined) {
    svg.append(element("text", { x: left + 4, y: height / 2 }, "unknown: not counted"));
  } else {
    let path = `M${x(0)} ${y(0)}`, sum = 0;
    percent.forEach((share, i) => {
      const from = x(Math.min(i * policy.bin_us, longest)), to = x(Math.min((i + 1) * policy.bin_us, longest));
      path += `L${from.toFixed(1)} ${y(share).toFixed(1)}L${to.toFixed(1)} ${y(share).toFixed(1)}`;
      sum += share * policy.bin_us;
    });
    path += `L${x(Math.min(percent.length * policy.bin_us, longest)).toFixed(1)} ${y(0)}Z`;
    const mean = policy.makespan_us > 0 ? sum / policy.makespan_us : 0;
    svg.append(element("path", { d: path, fill: "#0072b2", "fill-opacity": 0.3, stroke: "#0072b2" }),
      element("line", { x1: x(policy.makespan_us), x2: x(policy.makespan_us), y1: y(0), y2: y(100), stroke: "#1a1a1a",
        "stroke-dasharray": "2 2" }),
      element("text", { x: width, y: 5, "text-anchor": "end" }, `mean ${number(mean, 0)} %`));
    svg.setAttribute("aria-label", `${title} under ${policy.title}: mean ${number(mean, 0)} %`);
  }
  if (withTimes) {
    const step = niceStep(longest / UNIT.us, 4);
    for (let at = 0; at <= longest / UNIT.us; at += step) {
      const text = { x: x(at * UNIT.us), y: height + 13, "text-anchor": "middle" };
      svg.append(element("text", text, Number(at.toPrecision(6))));
    }
    svg.append(element("text", { x: width, y: height + 26, "text-anchor": "end" }, `Time (${UNIT.name})`));
  }
  return svg;
}

// ---- the timeline

const view = { policy: content.policies[0], from: 0, to: longest, hidden: new Set(), filter: "", first: 0,
  last: content.sms - 1, group: "", sort: -1, descending: false };
const canvas = byId("picture"), tip = byId("tip");
let pen = canvas.getContext("2d"), width = 0, drag = null;

/** For each SM when it changed (us) and which mix it then held. */
const changes = new Map(content.policies.map((policy) => [policy, (policy.residency?.sms ?? []).map((turns) => {
  const found = { at: [], mix: [] };
  let now = 0;
  for (let i = 0; i < turns.length; i += 2) {
    now += turns[i];
    found.at.push(now / 1000);
    found.mix.push(turns[i + 1]);
  }
  return found;
})]));

const runOf = (row) => {
  const [stream, kernel, request, blocks, ready, start, dispatched, end, alone, waited, sharing, boundBy] = row;
  const [operation, name, short, estimated] = content.kernels[kernel];
  return { stream, operation, name, short, estimated, request, blocks, ready, start, dispatched, end, alone, waited,
    sharing, boundBy };
};
const runs = new Map(content.policies.map((policy) => [policy, policy.runs.map(runOf)]));
const hatch = makeHatch();

function makeHatch() {
  const tile = element("canvas", { width: 6, height: 6 }), stroke = tile.getContext("2d");
  stroke.strokeStyle = "#fffc";
  stroke.lineWidth = 1.5;
  for (const shift of [-6, 0, 6]) {
    stroke.moveTo(shift, 6);
    stroke.lineTo(shift + 6, 0);
  }
  stroke.stroke();
  return pen.createPattern(tile, "repeat");
}

const colour = (stream) => COLOURS[stream % COLOURS.length];
const wanted = (run) => !view.hidden.has(run.stream)
  && (view.filter === "" || `${run.operation} ${run.name ?? ""}`.toLowerCase().includes(view.filter));
const xOf = (us) => LEFT + ((us - view.from) / (view.to - view.from)) * (width - LEFT);
const usOf = (x) => view.from + ((x - LEFT) / (width - LEFT)) * (view.to - view.from);
const rowHeight = () => (content.streams.length <= 16 ? STREAM_ROW : Math.max(3, (16 * STREAM_ROW) / content.streams.length));
const smTop = () => TOP + content.streams.length * rowHeight() + GAP;
const smHeight = () => SM_AREA / (view.last - view.first + 1);
const height = () => smTop() + (view.policy.residency ? SM_AREA : 0) + 4;

function draw() {
  const ratio = window.devicePixelRatio || 1;
  width = canvas.parentElement.clientWidth;
  canvas.style.height = `${height()}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height() * ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  paint();
  const count = runs.get(view.policy).filter(wanted).length;
  byId("shown").textContent = `${time(view.from)} – ${time(view.to)} ${UNIT.name}, `
    + `${count} of ${view.policy.runs.length} kernels`;
}

/** The timeline, by whichever pen there is. */
function paint() {
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, width, height());
  drawAxis();
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, TOP, width - LEFT, height());
  pen.clip();
  drawStreams();
  drawSMs();
  if (drag !== null && drag.to !== drag.from) {
    pen.fillStyle = "#0072b233";
    pen.fillRect(Math.min(drag.from, drag.to), TOP, Math.abs(drag.to - drag.from), height());
  }
  pen.restore();
}

function drawAxis() {
  pen.font = "11px system-ui, Arial, sans-serif";
  pen.textBaseline = "middle";
  pen.fillStyle = "#555";
  const step = niceStep((view.to - view.from) / UNIT.us, Math.max(2, Math.floor((width - LEFT) / 110)));
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  for (let n = Math.ceil(view.from / UNIT.us / step); n * step * UNIT.us <= view.to; n += 1) {
    const x = Math.round(xOf(n * step * UNIT.us)) + 0.5;
    pen.strokeStyle = "#d8d8d8";
    pen.beginPath();
    pen.moveTo(x, TOP - 4);
    pen.lineTo(x, height());
    pen.stroke();
    pen.textAlign = x > width - 40 ? "right" : "center";
    pen.fillText(`${number(n * step, digits)} ${UNIT.name}`, x, 9);
  }
  pen.textAlign = "right";
  if (rowHeight() >= 10) {
    content.streams.forEach((stream, i) => {
      pen.fillText(shortened(stream, 19), LEFT - 8, TOP + (i + 0.5) * rowHeight());
    });
  }
  if (!view.policy.residency) return;
  const every = Math.max(1, niceStep(view.last - view.first + 1, Math.floor(SM_AREA / 16)));
  for (let sm = Math.ceil(view.first / every) * every; sm <= view.last; sm += every) {
    pen.fillText(`SM ${sm}`, LEFT - 8, smTop() + (sm - view.first + 0.5) * smHeight());
  }
}

/** The text, its middle left out where it is longer than so many characters. */
function shortened(text, most) {
  const head = Math.floor((most - 1) / 2);
  return text.length <= most ? text : `${text.slice(0, head)}…${text.slice(text.length - (most - 1 - head))}`;
}

function bar(run, from, to, y, tall, shownAt) {
  const x = xOf(from), length = Math.max(xOf(to) - x, 0.4);
  if (x > width || x + length < LEFT) return;
  pen.fillStyle = wanted(run) ? colour(run.stream) : OTHERS_GREY;
  pen.globalAlpha = shownAt;
  pen.fillRect(x, y, length, tall);
  pen.globalAlpha = 1;
  if (run.estimated && wanted(run)) {
    pen.fillStyle = hatch;
    pen.fillRect(x, y, length, tall);
  }
}

function drawStreams() {
  const tall = rowHeight();
  for (const run of runs.get(view.policy)) {
    const y = TOP + run.stream * tall;
    bar(run, run.ready, run.start, y + tall * 0.38, tall * 0.24, 0.4);
    bar(run, run.start, run.end, y + tall * 0.14, tall * 0.72, 1);
    pen.fillStyle = "#fff";
    pen.fillRect(xOf(run.end) - 0.3, y + tall * 0.14, 0.6, tall * 0.72);
    if (xOf(run.end) - xOf(run.start) > 7 * run.operation.length && tall >= 14 && wanted(run)) {
      pen.fillStyle = dark(colour(run.stream)) ? "#fff" : "#000";
      pen.textAlign = "center";
      const middle = (Math.max(LEFT, xOf(run.start)) + Math.min(width, xOf(run.end))) / 2;
      pen.fillText(run.operation, middle, y + tall / 2);
    }
  }
  for (const [stream, operation, , start, end] of view.policy.others) {
    const x = xOf(start), y = TOP + stream * tall + tall * 0.22;
    pen.strokeStyle = wanted({ stream, operation }) ? colour(stream) : OTHERS_GREY;
    pen.fillStyle = "#fff";
    pen.fillRect(x, y, xOf(end) - x, tall * 0.56);
    pen.strokeRect(x, y, xOf(end) - x, tall * 0.56);
  }
}

function dark(hex) {
  const [red, green, blue] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  return 0.299 * red + 0.587 * green + 0.114 * blue < 158;
}

function drawSMs() {
  if (!view.policy.residency) return;
  const { mixes } = view.policy.residency, all = runs.get(view.policy), tall = smHeight();
  pen.fillStyle = "#f2f2f2";
  pen.fillRect(LEFT, smTop(), width - LEFT, SM_AREA);
  for (let sm = view.first; sm <= view.last; sm += 1) {
    const { at, mix } = changes.get(view.policy)[sm];
    const y = smTop() + (sm - view.first) * tall, inner = tall > 4 ? tall - 1 : tall;
    for (let i = Math.max(0, lastBefore(at, view.from)); i + 1 < at.length && at[i] < view.to; i += 1) {
      const held = mixes[mix[i]];
      held.forEach(([run], k) => bar(all[run], at[i], at[i + 1], y + (k * inner) / held.length, inner / held.length, 1));
    }
  }
}

/** The last place in ascending times that is not after one; -1 where all are. */
function lastBefore(at, us) {
  let low = -1, high = at.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (at[middle] <= us) low = middle;
    else high = middle;
  }
  return low;
}

// ---- the timeline as a file

/** Draws into an SVG what the timeline asks of the pen of a canvas. */
class SvgPen {
  constructor(wide, tall) {
    this.svg = this.target = element("svg", { width: wide, height: tall, viewBox: `0 0 ${wide} ${tall}` },
      element("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse" },
        element("path", { d: "M-1 7L7 -1", stroke: "#fffc", "stroke-width": 1.5 })));
    this.globalAlpha = 1;
    this.lineWidth = 1;
  }

  add(name, attributes, ...children) { this.target.append(element(name, attributes, ...children)); }

  save() {}

  restore() { this.target = this.svg; }

  beginPath() { this.path = ""; }

  moveTo(x, y) { this.path += `M${x.toFixed(2)} ${y.toFixed(2)}`; }

  lineTo(x, y) { this.path += `L${x.toFixed(2)} ${y.toFixed(2)}`; }

  stroke() { this.add("path", { d: this.path, stroke: this.strokeStyle, fill: "none" }); }

  rect(x, y, wide, tall) { this.box = { x, y, width: wide, height: tall, viewBox: `${x} ${y} ${wide} ${tall}` }; }

  clip() {
    this.add("svg", this.box);
    this.target = this.target.lastChild;
  }

  fillRect(x, y, wide, tall) {
    const [of, up, length, high] = [x, y, wide, tall].map((value) => value.toFixed(2));
    const fill = this.fillStyle === hatch ? "url".concat("(#hatch)") : this.fillStyle;
    this.add("rect", { x: of, y: up, width: length, height: high, fill, "fill-opacity": this.globalAlpha });
  }

  strokeRect(x, y, wide, tall) {
    this.add("rect", { x, y, width: wide, height: tall, fill: "none", stroke: this.strokeStyle });
  }

  fillText(words, x, y) {
    const anchor = { right: "end", center: "middle" }[this.textAlign] ?? "start";
    this.add("text", { x: x.toFixed(1), y: y.toFixed(1), "text-anchor": anchor, "dominant-baseline": "middle",
      "font-size": 11, "font-family": "system-ui, Arial, sans-serif", fill: this.fillStyle }, words);
  }
}

function timelineSvg() {
  const screen = pen;
  pen = new SvgPen(width, height());
  paint();
  const { svg } = pen;
  pen = screen;
  svg.setAttribute("xmlns", svg.namespaceURI);
  return new XMLSerializer().serializeToString(svg);
}

function save(name, url) {
  element("a", { href: url, download: `${content.trace}-${view.policy.policy}.${name}`.replace(/[^\w.+=-]+/g, "_") }).click();
}

// ---- what the pointer is on

function under(x, y) {
  if (x < LEFT || y < TOP) return null;
  const us = usOf(x), stream = Math.floor((y - TOP) / rowHeight());
  if (stream < content.streams.length) {
    const run = runs.get(view.policy).findLast((one) => one.stream === stream && one.ready <= us && us < one.end);
    if (run !== undefined) return { run, us };
    const other = view.policy.others.findLast(([of, , , start, end]) => of === stream && start <= us && us < end);
    return other === undefined ? null : { other, us };
  }
  const sm = view.first + Math.floor((y - smTop()) / smHeight());
  if (!view.policy.residency || y < smTop() || sm > view.last) return null;
  const { at, mix } = changes.get(view.policy)[sm], i = lastBefore(at, us);
  const held = i < 0 || i + 1 >= at.length ? [] : view.policy.residency.mixes[mix[i]];
  if (held.length === 0) return { sm, us, idle: true };
  const part = ((y - smTop()) / smHeight()) % 1;
  const [place, blocks, why] = held[Math.min(held.length - 1, Math.floor(part * held.length))];
  return { run: runs.get(view.policy)[place], us, sm, blocks, why, others: held.length - 1 };
}

function describe(found) {
  if (found.idle) return [`SM ${found.sm} holds nothing`, [["time", `${time(found.us)} ${UNIT.name}`]]];
  if (found.other) {
    const [stream, operation, kind, start, end] = found.other;
    return [operation, [["stream", content.streams[stream]], ["kind", kind],
      ["from – to", `${time(start)} – ${time(end)} ${UNIT.name}`]]];
  }
  const { run } = found;
  const rows = [["operation", run.operation], ["stream", content.streams[run.stream]]];
  if (run.request > 0) rows.push(["request", run.request + 1]);
  if (found.sm !== undefined) {
    const all = found.us >= run.dispatched;
    rows.push(["SM", found.sm], ["blocks", `${found.blocks} resident here now, of ${number(run.blocks, 0)} in all`],
      ["no more here", all ? "all its blocks are placed" : `on this SM ${REASONS[found.why]}`]);
    if (found.others > 0) rows.push(["shares the SM", `with ${found.others} other${found.others > 1 ? "s" : ""}`]);
  } else {
    rows.push(["blocks", number(run.blocks, 0)]);
  }
  rows.push(["bound by", BOUND[run.boundBy] ?? run.boundBy], ["from – to", `${time(run.start)} – ${time(run.end)} ${UNIT.name}`],
    ["isolated", `${time(run.alone)} ${UNIT.name}`], ["waited", `${time(run.waited)} ${UNIT.name}`],
    ["sharing cost", `${time(run.sharing)} ${UNIT.name}`]);
  if (run.estimated) rows.push(["estimated", "the recording has no counters of it"]);
  return [run.short, rows];
}

function showTip(event) {
  const box = canvas.getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top, found = under(x, y);
  tip.hidden = found === null || drag !== null;
  if (tip.hidden) return;
  const [title, rows] = describe(found);
  tip.replaceChildren(element("strong", {}, title),
    element("dl", {}, ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])));
  tip.style.left = `${Math.max(0, x + 16 + tip.offsetWidth > width ? x - tip.offsetWidth - 12 : x + 16)}px`;
  tip.style.top = `${Math.min(y + 14, Math.max(0, height() - tip.offsetHeight))}px`;
}

// ---- moving about

function look(from, to) {
  const length = Math.min(longest, Math.max(LEAST_VIEW_US, to - from));
  view.from = Math.min(Math.max(0, (from + to - length) / 2), longest - length);
  view.to = view.from + length;
  draw();
}

function zoom(factor, about = (view.from + view.to) / 2) {
  look(about - (about - view.from) * factor, about + (view.to - about) * factor);
}

const pan = (share) => look(...[view.from, view.to].map((at) => at + share * (view.to - view.from)));

function choose(policy) {
  view.policy = policy;
  for (const button of byId("choices").children) {
    button.setAttribute("aria-pressed", String(content.policies[Number(button.value)] === policy));
  }
  byId("unseen").textContent = [
    policy.residency ? "" : "What each SM held is not shown: the trace has too many kernels for it.",
    policy.left_out ? `Later kernels and copies that are not shown: ${number(policy.left_out, 0)}.` : "",
  ].join(" ");
  showKernels();
  draw();
}

/** The columns of the table of kernels, and of each row its cells and what it zooms to. */
function kernelRows(found) {
  const times = (names) => names.map((name) => [`${name} (${UNIT.name})`, true]);
  const bound = (run) => BOUND[run.boundBy] ?? run.boundBy;
  if (view.group === "launch") {
    const estimated = found.some((run) => run.estimated) ? "demands" : "";
    const titles = [["operation"], ["kernel"], ["stream"], ...times(["start", "end", "isolated", "waited", "sharing"]),
      ["bound by"], [estimated]];
    return [titles, found.map((run) => ({ first: run, last: run, cells: [run.operation, run.short,
      content.streams[run.stream], run.start, run.end, run.alone, run.waited, run.sharing, bound(run),
      run.estimated ? "estimated" : ""] }))];
  }
  const groups = Map.groupBy(found, (run) => view.group === "name" ? run.short : run.operation);
  const sum = (of, key) => of.reduce((all, run) => all + run[key], 0);
  const most = (of) => [...Map.groupBy(of, bound)].sort((a, b) => b[1].length - a[1].length)[0][0];
  const titles = [[view.group === "name" ? "kernel" : "operation"], ["launches", true],
    ...times(["isolated", "waited", "sharing"]), ["mostly bound by"]];
  return [titles, [...groups].map(([key, of]) => ({ first: of[0], last: of.at(-1), cells: [key, of.length,
    sum(of, "alone"), sum(of, "waited"), sum(of, "sharing"), most(of)] }))];
}

function showKernels() {
  byId("kernels-title").textContent = `Kernels under ${view.policy.title}`;
  const [titles, all] = kernelRows(runs.get(view.policy).filter(wanted));
  if (view.sort >= 0) {
    const sign = view.descending ? -1 : 1;
    all.sort(({ cells: { [view.sort]: a } }, { cells: { [view.sort]: b } }) =>
      sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b))));
  }
  const rows = all.slice(0, MOST_ROWS).map(({ first, last, cells }) => {
    const row = element("tr", { tabindex: 0 }, ...cells.map((value, i) => {
      if (typeof value !== "number") return element("td", value === first.short ? { title: first.name } : {}, shortened(value, 40));
      return cell(titles[i][0] === "launches" ? number(value, 0) : time(value));
    }));
    const go = () => look(first.ready - 0.1 * (first.end - first.ready), last.end + 0.1 * (last.end - first.start));
    row.addEventListener("click", go);
    row.addEventListener("keydown", (event) => event.key === "Enter" && go());
    return row;
  });
  fill(byId("kernels"), titles, rows);
  byId("kernels").querySelectorAll("th").forEach((head, i) => {
    const button = element("button", { class: "sort" }, head.textContent);
    if (i === view.sort) head.setAttribute("aria-sort", view.descending ? "descending" : "ascending");
    button.addEventListener("click", () => {
      view.descending = view.sort === i ? !view.descending : head.classList.contains("number");
      view.sort = i;
      showKernels();
    });
    head.replaceChildren(button);
  });
  byId("more").textContent = all.length > MOST_ROWS ? `and ${number(all.length - MOST_ROWS, 0)} more` : "";
}

function refilter() {
  showKernels();
  draw();
}

function makeControls() {
  byId("choices").replaceChildren(...content.policies.map((policy, i) => {
    const button = element("button", { value: i, title: policy.policy }, policy.title);
    button.addEventListener("click", () => choose(policy));
    return button;
  }));
  byId("streams").replaceChildren(...content.streams.slice(0, 40).map((stream, i) => {
    const swatch = element("span", { class: "swatch" }), box = element("input", { type: "checkbox" });
    swatch.style.background = colour(i);
    box.checked = true;
    box.addEventListener("change", () => {
      view.hidden[box.checked ? "delete" : "add"](i);
      refilter();
    });
    return element("label", {}, box, swatch, stream);
  }));
  const searches = [byId("filter"), byId("search")];
  for (const box of searches) {
    box.addEventListener("input", () => {
      for (const other of searches) other.value = box.value;
      view.filter = box.value.toLowerCase();
      refilter();
    });
  }
  view.group = content.policies[0].runs.length <= FEW_LAUNCHES ? "launch" : "name";
  byId("group").value = view.group;
  byId("group").addEventListener("change", (event) => {
    [view.group, view.sort] = [event.target.value, -1];
    showKernels();
  });
  byId("svg").addEventListener("click", () => save("svg", `data:image/svg+xml,${encodeURIComponent(timelineSvg())}`));
  byId("png").addEventListener("click", () => save("png", canvas.toDataURL("image/png")));
  const bounds = [byId("first"), byId("last")];
  for (const box of bounds) {
    box.max = content.sms - 1;
    box.addEventListener("input", () => {
      const [first, last] = bounds.map((one) => Math.min(content.sms - 1, Math.max(0, Math.round(Number(one.value)))));
      if (first > last) return;
      [view.first, view.last] = [first, last];
      draw();
    });
  }
  byId("last").value = content.sms - 1;
  byId("in").addEventListener("click", () => zoom(0.5));
  byId("out").addEventListener("click", () => zoom(2));
  byId("all").addEventListener("click", () => look(0, longest));
}

function listen() {
  canvas.addEventListener("pointermove", (event) => {
    if (drag !== null) {
      drag.to = Math.max(LEFT, event.clientX - canvas.getBoundingClientRect().left);
      draw();
    }
    showTip(event);
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("pointerdown", (event) => {
    const x = event.clientX - canvas.getBoundingClientRect().left;
    if (event.button !== 0 || x < LEFT) return;
    canvas.setPointerCapture(event.pointerId);
    drag = { from: x, to: x };
    tip.hidden = true;
  });
  canvas.addEventListener("pointerup", () => {
    const ends = drag;
    drag = null;
    if (ends === null) return;
    if (Math.abs(ends.to - ends.from) > 4) look(...[ends.from, ends.to].map(usOf).sort((a, b) => a - b));
    else draw();
  });
  canvas.addEventListener("dblclick", () => look(0, longest));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, usOf(event.clientX - canvas.getBoundingClientRect().left));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const act = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => look(0, longest),
      ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2) }[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act();
  });
  window.addEventListener("resize", draw);
}

showHeader();
showPolicies();
showGains();
showUses();
showSpans();
makeControls();
listen();
choose(content.policies[0]);
