"use strict";
// The chart: latency to the right, throughput upwards; a mark for each row of the table that belongs to it.
// What a point says of itself is read from its row, so that both always say the same.

const SVG = "http://www.w3.org/2000/svg";
const { backends, charts, maps, any, states, log_range: LOG_RANGE } = JSON.parse(document.getElementById("data").textContent);
const REACH = 28; // px: how far from a mark a finger or a mouse may be
const [X, Y, X_LOW, X_HIGH, Y_LOW, Y_HIGH, BACKEND, FRONT, FILL] = [0, 1, 2, 3, 4, 5, 6, 7, 8];

const SHAPES = [
  "M6 0A6 6 0 1 1-6 0A6 6 0 1 1 6 0Z",
  "M-5.2-5.2H5.2V5.2H-5.2Z",
  "M0-7L6.6 5H-6.6Z",
  "M0-7.4L7.4 0L0 7.4L-7.4 0Z",
  "M0 7L6.6-5H-6.6Z",
  "M-2.3-6.6H2.3V-2.3H6.6V2.3H2.3V6.6H-2.3V2.3H-6.6V-2.3H-2.3Z",
  "M0-3L4-7L7-4L3 0L7 4L4 7L0 3L-4 7L-7 4L-3 0L-7-4L-4-7Z",
];
const ANY_SHAPE = "M-7 0L5-6.6V6.6Z";

function drawn(name, attributes = {}, ...inside) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

// The colour and dashes of a backend: of none, a neutral one.
function tone(backend) {
  return backend === any ? "sn" : `s${backend % 7}`;
}

// A backend's mark, of which `fill` is the share of its colour, the rest the page's.
function shape(backend, fill) {
  const d = backend === any ? ANY_SHAPE : SHAPES[backend % SHAPES.length];
  return [drawn("path", { class: "back", d }), drawn("path", { d, "fill-opacity": fill })];
}

// From values to pixels, with room around the values: logarithmic where they span much, else from 0 on.
function scale(values, from, to) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const log = low > 0 && high / low >= LOG_RANGE;
  const bend = log ? Math.log : (value) => value;
  const least = log ? bend(low) : Math.min(low, 0);
  const most = log ? bend(high) : Math.max(high, 0);
  const room = 0.06 * (most - least) || 1;
  const start = log || low < 0 ? least - room : 0;
  const end = most + room;
  const at = (value) => from + ((bend(value) - start) / (end - start)) * (to - from);
  const limits = log ? [Math.exp(start), Math.exp(end)] : [start, end];
  return { at, log, low: limits[0], high: limits[1] };
}

// Round numbers between the limits, about `most` of them.
function ticks({ low, high, log }, most) {
  const values = [];
  if (log) {
    const decades = Math.log10(high / low);
    const steps = decades * 3 <= most ? [1, 2, 5] : decades * 2 <= most ? [1, 3] : [1];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
      for (const step of steps) {
        const value = step * 10 ** power;
        if (value >= low && value <= high) values.push(value);
      }
    }
    return values;
  }
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= rough);
  for (let count = Math.ceil(low / step); count * step <= high; count += 1) values.push(count * step);
  return values.filter((value) => value >= 0);
}

function inWords(value) {
  return String(Number(value.toPrecision(4)));
}

function axes(svg, across, up, box, unit) {
  for (const value of ticks(across, Math.max(3, (box.right - box.left) / 90))) {
    const x = across.at(value);
    svg.append(drawn("g", { class: "tick" },
      drawn("line", { x1: x, x2: x, y1: box.top, y2: box.bottom }),
      drawn("text", { x, y: box.bottom + 17, "text-anchor": "middle" }, inWords(value))));
  }
  for (const value of ticks(up, Math.max(3, (box.bottom - box.top) / 55))) {
    const y = up.at(value);
    svg.append(drawn("g", { class: "tick" },
      drawn("line", { x1: box.left, x2: box.right, y1: y, y2: y }),
      drawn("text", { x: box.left - 6, y: y + 4, "text-anchor": "end" }, inWords(value))));
  }
  svg.append(
    drawn("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
    drawn("line", { class: "axis", x1: box.left, x2: box.left, y1: box.top, y2: box.bottom }),
    drawn("text", { x: box.right, y: box.bottom + 35, "text-anchor": "end" },
      `latency (${unit}${across.log ? ", log" : ""})`),
    drawn("text", { x: 4, y: 13 }, `throughput (images/s${up.log ? ", log" : ""})`));
}

// The staircase of one backend: what its front gives at the least, to the limits of the chart.
function stairs(points, backend, across, up, box) {
  const steps = points.filter((point) => point[FRONT] > 0).sort((one, other) => one[X] - other[X] || other[Y] - one[Y]);
  if (!steps.length) return null;
  let path = `M${across.at(steps[0][X])} ${box.bottom}`;
  let reached = -Infinity;
  for (const point of steps) {
    if (point[Y] <= reached) continue; // of no backend, and on the front of another than this one
    reached = point[Y];
    path += `H${across.at(point[X])}V${up.at(point[Y])}`;
  }
  return drawn("path", { class: `stairs d${(backend ?? 0) % 4}`, d: `${path}H${box.right}` });
}

// Intervals of both medians.
function whiskers(point, across, up) {
  const [x, y] = [across.at(point[X]), up.at(point[Y])];
  let path = "";
  if (point[X_LOW] !== null) {
    const [from, to] = [across.at(point[X_LOW]), across.at(point[X_HIGH])];
    path += `M${from} ${y}H${to}M${from} ${y - 3}v6M${to} ${y - 3}v6`;
  }
  if (point[Y_LOW] !== null) {
    const [from, to] = [up.at(point[Y_LOW]), up.at(point[Y_HIGH])];
    path += `M${x} ${from}V${to}M${x - 3} ${from}h6M${x - 3} ${to}h6`;
  }
  return path ? drawn("path", { class: "whisker", d: path }) : null;
}

// Names beside the points on a front, where they cover neither each other nor a mark.
function names(layer, marks, box) {
  const taken = marks.map(({ x, y }) => [x - 7, y - 7, x + 7, y + 7]);
  const ordered = [...marks].sort((one, other) => other.point[FRONT] - one.point[FRONT]);
  for (const { x, y, point, label, series } of ordered) {
    if (point[FRONT] <= 0) continue;
    const wide = 7 * label.length + 2;
    const spots = [[x - wide - 9, y - 8], [x + 9, y + 18], [x + 9, y - 8], [x - wide - 9, y + 18], [x + 11, y + 5]];
    for (const [left, base] of spots) {
      const spot = [left, base - 11, left + wide, base + 2];
      const free = taken.every((box) => spot[2] < box[0] || box[2] < spot[0] || spot[3] < box[1] || box[3] < spot[1]);
      if (free && left > box.left && left + wide < box.right && base > box.top + 10 && base < box.bottom) {
        taken.push(spot);
        layer.append(drawn("text", { class: `name ${series}`, x: left, y: base }, label));
        break;
      }
    }
  }
}

// Draws a condition's points, those that `visible` lets through, into a figure; `rows` are its table's rows.
// Returns marks with `row`, `element` and place. Keys and pointers are the page's.
// `among`: the points that the axes are of, where these are not all of them.
function drawChart(figure, chart, rows, visible, saying, among = chart.points) {
  figure.querySelector(":scope > svg")?.remove();
  const width = Math.max(figure.clientWidth, 240);
  const height = width < 560 ? 290 : Math.min(470, Math.round(width * 0.6));
  const box = { left: 52, right: width - 14, top: 24, bottom: height - 44 };
  const svg = drawn("svg", {
    viewBox: `0 0 ${width} ${height}`, height, role: "group",
    "aria-label": "Latency and throughput of every point. Arrow keys go from point to point, Enter keeps one.",
  });
  figure.prepend(svg);
  const shown = chart.points
    .map((point, row) => ({ point, row }))
    .filter(({ point, row }) => point[X] !== null && point[Y] !== null && visible(point, row));
  if (!shown.length) {
    svg.append(drawn("text", { class: "empty", x: width / 2, y: height / 2, "text-anchor": "middle" },
      "No point to show with these filters."));
    return [];
  }
  // Intervals are drawn of points that are, or may be, on a front, and the axes hold them.
  const drawnOf = (median, low, high) => among.filter(visible).filter((point) => point[X] !== null && point[Y] !== null).flatMap((point) =>
    point[FILL] > 0 && point[low] !== null ? [point[median], point[low], point[high]] : [point[median]]);
  const across = scale(drawnOf(X, X_LOW, X_HIGH), box.left, box.right);
  const up = scale(drawnOf(Y, Y_LOW, Y_HIGH), box.bottom, box.top);
  axes(svg, across, up, box, chart.unit);
  const lines = drawn("g");
  const layer = drawn("g");
  const labels = drawn("g", { "aria-hidden": "true" });
  svg.append(lines, layer, labels);
  const places = shown.map(({ point }) => point);
  const present = new Set(places.map((point) => point[BACKEND]));
  const whole = chart.stairs === "all" ? stairs(places, null, across, up, box) : null;
  if (whole) lines.append(drawn("g", { class: "sn" }, whole));
  for (const backend of present) {
    if (backend === any && present.size > 1) continue;
    const own = places.filter((point) => [backend, any].includes(point[BACKEND]));
    const staircase = chart.stairs === true ? stairs(own, backend, across, up, box) : null;
    if (staircase) lines.append(drawn("g", { class: tone(backend) }, staircase));
  }
  const marks = shown.map(({ point, row }) => {
    const [x, y] = [across.at(point[X]), up.at(point[Y])];
    const whisker = point[FILL] > 0 ? whiskers(point, across, up) : null;
    if (whisker) lines.append(drawn("g", { class: tone(point[BACKEND]) }, whisker));
    const kind = point[FRONT] < 0 ? " unfit" : point[FILL] > 0 ? "" : " dominated";
    const element = drawn("g", {
      class: `mark ${tone(point[BACKEND])}${kind}`, transform: `translate(${x} ${y})`,
      role: "button", tabindex: "-1", "aria-pressed": "false", "aria-label": saying(row), "data-row": row,
    }, drawn("circle", { class: "ring", r: 10.5 }), ...shape(point[BACKEND], point[FILL]));
    return { row, point, x, y, element, label: rows[row].dataset.point, series: tone(point[BACKEND]) };
  });
  // Those on a front last, over the others.
  layer.append(...[...marks].sort((one, other) => one.point[FRONT] - other.point[FRONT]).map((mark) => mark.element));
  names(labels, marks, box);
  marks.sort((one, other) => one.x - other.x || other.y - one.y);
  marks[0].element.setAttribute("tabindex", "0");
  return marks;
}

// Draws two runs beside each other, on the same axes: a chart for each of `sides`. Marks of one row belong together.
function drawBeside(figure, chart, rows, visible, saying) {
  const halves = chart.sides.map(({ name }) => made("div", { className: "half" }, made("h4", { textContent: name })));
  const beside = made("div", { className: "beside" }, ...halves);
  figure.prepend(beside);
  const every = chart.sides.flatMap(({ points }) => points);
  const seen = (_, row) => visible(chart.points[row % rows.length]); // in both, or in neither
  const origin = figure.getBoundingClientRect();
  return chart.sides.flatMap(({ points }, side) => {
    const marks = drawChart(halves[side], { ...chart, points }, rows, seen, saying, every);
    const at = halves[side].querySelector("svg").getBoundingClientRect();
    if (side) for (const { element } of marks) element.setAttribute("tabindex", "-1");
    return marks.map((mark) => ({ ...mark, x: mark.x + at.x - origin.x, y: mark.y + at.y - origin.y }));
  });
}

// Which mark is meant at a place in the figure: the nearest within reach.
function nearest(marks, x, y) {
  let best = null;
  let least = REACH;
  for (const mark of marks) {
    const distance = mark.flat ? Math.abs(mark.y - y) : Math.hypot(mark.x - x, mark.y - y);
    if (distance < least) [best, least] = [mark, distance];
  }
  return best;
}
