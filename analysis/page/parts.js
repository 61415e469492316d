// Where the time goes: a bar for each row of the table, divided into the parts that stand in it.

const PARTS = ["edge", "encode", "decode", "serialize", "network", "middle", "server"];

// What a row's parts are drawn as. The medians of parts do not add up to that of their sum: theirs are shares of it.
function divided(figures) {
  const known = new Map(figures.map(([name, text]) => [name, parseFloat(text)]));
  const parts = PARTS.map((name) => [name, Math.max(known.get(name) || 0, 0)]).filter(([, value]) => value > 0);
  const sum = parts.reduce((total, [, value]) => total + value, 0);
  const total = known.get("median");
  return { parts: parts.map(([name, value]) => [name, (value * total) / sum]), total, bound: known.get("bound") };
}

// Draws the latency of the rows that `visible` lets through, by points, their backends beside each other. Takes and
// returns what `drawChart` does; `partsOf`: the row's figures of latency.
function drawParts(figure, chart, rows, visible, saying, partsOf) {
  figure.querySelector(":scope > svg")?.remove();
  const width = Math.max(figure.clientWidth, 240);
  const shown = chart.points
    .map((point, row) => ({ point, row, name: rows[row].dataset.point, ...divided(partsOf(row)) }))
    .filter(({ point, total, parts }) => total > 0 && parts.length && visible(point))
    .sort((one, other) => SORT_KEYS.point(one.name) - SORT_KEYS.point(other.name) || one.point[BACKEND] - other.point[BACKEND]);
  const high = shown.length > 40 ? 13 : 19;
  const used = PARTS.filter((name) => shown.some(({ parts }) => parts.some(([each]) => each === name)));
  const label = ({ name, point }) => `${name} ${backends[point[BACKEND]]}`;
  const left = 7.2 * Math.max(...shown.map((each) => label(each).length), 4) + 10;
  // The key to the parts, in as many lines as it needs.
  const key = drawn("g", { "aria-hidden": "true" });
  let [x, y] = [4, 14];
  for (const name of [...used, "bound"]) {
    const wide = 7 * name.length + 32;
    if (x + wide > width) [x, y] = [4, y + 18];
    key.append(
      name === "bound" ? drawn("path", { class: "bound", d: `M${x + 6} ${y - 11}v13` })
        : drawn("rect", { class: `part ${name}`, x, y: y - 10, width: 12, height: 11 }),
      drawn("text", { x: x + 17, y }, name));
    x += wide;
  }
  const top = y + 12;
  const bottom = top + high * Math.max(shown.length, 1);
  const svg = drawn("svg", {
    viewBox: `0 0 ${width} ${bottom + 40}`, height: bottom + 40, role: "group",
    "aria-label": "Latency of every point, by parts. Arrow keys go from point to point, Enter keeps one.",
  }, key);
  figure.prepend(svg);
  if (!shown.length) {
    svg.append(drawn("text", { class: "empty", x: width / 2, y: top + 12, "text-anchor": "middle" },
      "No point to show with these filters."));
    return [];
  }
  const most = Math.max(...shown.map(({ total, bound }) => Math.max(total, bound || 0)));
  const least = Math.min(...shown.map(({ total }) => total));
  const right = width - 58;
  const at = (value) => left + (value / most) * (right - left);
  for (const value of ticks({ low: 0, high: most, log: false }, Math.max(3, (right - left) / 90))) {
    svg.append(drawn("g", { class: "tick" },
      drawn("line", { x1: at(value), x2: at(value), y1: top, y2: bottom }),
      drawn("text", { x: at(value), y: bottom + 17, "text-anchor": "middle" }, inWords(value))));
  }
  svg.append(drawn("text", { x: right, y: bottom + 34, "text-anchor": "end" }, `latency (${chart.unit})`));
  return shown.map((each, number) => {
    const from = top + high * number;
    const middle = from + high / 2;
    const element = drawn("g", {
      class: "bar", role: "button", tabindex: number ? "-1" : "0", "aria-pressed": "false",
      "aria-label": saying(each.row), "data-row": each.row,
    }, drawn("rect", { class: "ring", x: 1, y: from, width: width - 2, height: high }),
    drawn("text", { x: left - 6, y: middle + 4, "text-anchor": "end" }, label(each)));
    let start = left;
    for (const [name, value] of each.parts) {
      const wide = (value / most) * (right - left);
      element.append(drawn("rect", { class: `part ${name}`, x: start, y: from + 2, width: wide, height: high - 4 }));
      start += wide;
    }
    if (each.bound) element.append(drawn("path", { class: "bound", d: `M${at(each.bound)} ${from + 1}v${high - 2}` }));
    const ends = Math.max(start, each.bound ? at(each.bound) : 0) + 6;
    element.append(drawn("text", { class: each.total === least ? "best" : "", x: ends, y: middle + 4 }, inWords(each.total)));
    svg.append(element);
    return { row: each.row, point: each.point, x: start, y: middle, flat: true, element };
  });
}
