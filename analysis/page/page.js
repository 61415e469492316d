// What the reader does: choose a condition, filter, sort, point at something. Text is only ever set as text.

const { backends, charts } = JSON.parse(document.getElementById("data").textContent);
const conditions = [...document.querySelectorAll(".condition")];
const reader = { condition: 0, off: new Set(), points: "all" };
const EVERY_POINT = { all: "all", own: "on their backend's front", front: "on the front of all backends" };

function made(name, properties = {}, ...inside) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...inside);
  return element;
}

// --- tables that sort ---------------------------------------------------------------------------------------------

const SORT_KEYS = {
  text: (text) => text.toLowerCase(),
  number: (text) => parseFloat(text),
  point: (text) => text.split("+").reduce((sum, cut) => sum * 1e4 + Number(cut), 0),
};

function sortBy(table, place, direction) {
  const head = table.tHead.rows[0].cells;
  const kind = head[place].dataset.kind;
  const rows = [...table.tBodies[0].rows].map((row) => {
    const text = row.cells[place].textContent;
    const key = SORT_KEYS[kind](text);
    return { row, key, unknown: text === "-" || Number.isNaN(key) };
  });
  const sign = direction === "ascending" ? 1 : -1;
  rows.sort((one, other) => {
    if (one.unknown || other.unknown) return one.unknown - other.unknown; // last either way
    return sign * (kind === "text" ? one.key.localeCompare(other.key) : one.key - other.key);
  });
  for (const cell of head) cell.removeAttribute("aria-sort");
  head[place].setAttribute("aria-sort", direction);
  table.tBodies[0].append(...rows.map(({ row }) => row));
}

for (const table of document.querySelectorAll("table")) {
  if (table.classList.contains("facts")) continue;
  [...table.tHead.rows[0].cells].forEach((cell, place) => {
    const button = made("button", { type: "button" }, ...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      sortBy(table, place, cell.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending");
    });
  });
}

// --- a condition: its chart and its table -------------------------------------------------------------------------

const [LATENCY, THROUGHPUT, POINT] = ["latency", "throughput", "point"];

class Condition {
  constructor(section, chart) {
    this.section = section;
    this.chart = chart;
    this.figure = section.querySelector(".chart");
    this.table = section.querySelector(".points");
    this.rows = [...this.table.tBodies[0].rows];
    this.heads = [...this.table.tHead.rows[0].cells].map((cell) => cell.dataset);
    const place = this.heads.findIndex((head) => head.kind === "point");
    this.rows.forEach((row, number) => {
      row.dataset.row = number;
      row.dataset.point = row.cells[place].textContent;
      row.tabIndex = number ? -1 : 0;
    });
    this.marks = [];
    this.kept = null;
    this.detail = made("div", { className: "detail", hidden: true });
    this.listen();
  }

  title(row) {
    const [backend, point, name] = this.rows[row].cells;
    const named = this.heads[2].group === undefined ? ` ${name.textContent}` : "";
    return `${backend.textContent} ${point.textContent}${named}`;
  }

  // What a row says, under its heads: [["latency", [["median", "84.66 ms"], ...]], ...].
  figures(row) {
    const groups = new Map();
    this.heads.forEach(({ detail, group, unit }, place) => {
      const text = this.rows[row].cells[place].textContent;
      if (!group || text === "-") return;
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push([detail, unit ? `${text} ${unit}` : text]);
    });
    return [LATENCY, THROUGHPUT, POINT].filter((group) => groups.has(group)).map((group) => [group, groups.get(group)]);
  }

  visible(point) {
    const wanted = { all: -1, own: 1, front: 2 }[reader.points];
    return !reader.off.has(backends[point[BACKEND]]) && point[FRONT] >= wanted;
  }

  // Table and chart as the reader wants them.
  show() {
    this.rows.forEach((row, number) => row.classList.toggle("filtered", !this.visible(this.chart.points[number])));
    if (this.kept !== null && !this.visible(this.chart.points[this.kept])) this.keep(null);
    // The first two columns stay while the others scroll: where the second begins.
    this.table.style.setProperty("--first", `${this.table.tHead.rows[0].cells[0].offsetWidth}px`);
    if (!this.figure) return;
    const saying = (row) => [this.title(row), ...this.figures(row).map(([group, pairs]) =>
      `${group}: ${pairs.map((pair) => pair.join(" ")).join(", ")}`)].join("; ");
    this.marks = drawChart(this.figure, this.chart, this.rows, (point) => this.visible(point), saying);
    this.figure.append(this.detail);
    this.point(this.kept);
  }

  // Point at a row: its mark, and its figures beside it. Null points at nothing.
  point(row) {
    const mark = this.marks.find((each) => each.row === row);
    for (const each of this.marks) {
      each.element.classList.toggle("near", each === mark);
      each.element.classList.toggle("picked", each.row === this.kept);
      each.element.setAttribute("aria-pressed", String(each.row === this.kept));
    }
    this.rows.forEach((each, number) => each.classList.toggle("picked", number === row));
    this.detail.hidden = !mark;
    if (!mark) return;
    const groups = this.figures(row).map(([group, pairs]) => made("section", {}, made("h4", { textContent: group }),
      made("dl", {}, ...pairs.map(([name, value]) =>
        made("div", {}, made("dt", { textContent: name }), made("dd", { textContent: value }))))));
    const list = made("div", { className: "groups" }, ...groups);
    this.detail.replaceChildren(made("strong", { textContent: this.title(row) }), list);
    const [wide, high] = [this.detail.offsetWidth, this.detail.offsetHeight];
    const right = mark.x + 18 + wide <= this.figure.clientWidth;
    this.detail.style.left = `${right ? mark.x + 18 : Math.max(0, mark.x - 18 - wide)}px`;
    const lowest = Math.max(0, this.figure.clientHeight - high);
    this.detail.style.top = `${Math.min(Math.max(0, mark.y - high / 2), lowest)}px`;
  }

  keep(row) {
    this.kept = row === this.kept ? null : row;
    this.point(this.kept);
  }

  under(event) {
    const svg = this.figure.querySelector(":scope > svg").getBoundingClientRect();
    return nearest(this.marks, event.clientX - svg.left, event.clientY - svg.top);
  }

  listen() {
    this.table.addEventListener("click", (event) => {
      const row = event.target.closest("tbody tr");
      if (row) this.keep(Number(row.dataset.row));
    });
    this.table.addEventListener("keydown", (event) => {
      const row = event.target.closest("tbody tr");
      if (!row || event.target !== row) return;
      const rows = [...this.table.tBodies[0].rows].filter((each) => !each.classList.contains("filtered"));
      this.step(event, rows, row, (each) => Number(each.dataset.row));
    });
    if (!this.figure) return;
    this.figure.addEventListener("pointermove", (event) => {
      if (event.pointerType !== "touch") this.point(this.under(event)?.row ?? this.kept);
    });
    this.figure.addEventListener("pointerleave", () => this.point(this.kept));
    this.figure.addEventListener("click", (event) => this.keep(this.under(event)?.row ?? null));
    this.figure.addEventListener("focusin", (event) => this.point(Number(event.target.dataset.row)));
    this.figure.addEventListener("focusout", () => this.point(this.kept));
    this.figure.addEventListener("keydown", (event) => {
      const elements = this.marks.map((mark) => mark.element);
      this.step(event, elements, event.target, (each) => Number(each.dataset.row));
    });
  }

  // Keys: arrows go on, Enter or space keeps, Escape lets go. One of `elements` at a time is reached by Tab.
  step(event, elements, from, rowOf) {
    const at = elements.indexOf(from);
    const places = {
      ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: elements.length - 1,
    };
    if (event.key in places) {
      const next = elements[Math.min(Math.max(places[event.key], 0), elements.length - 1)];
      from.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    } else if (event.key === "Enter" || event.key === " ") {
      this.keep(rowOf(from));
    } else if (event.key === "Escape") {
      this.kept = null;
      this.point(null);
    } else {
      return;
    }
    event.preventDefault();
  }
}

// --- controls -----------------------------------------------------------------------------------------------------

const shown = conditions.map((section, number) => new Condition(section, charts[number]));
const controls = document.getElementById("controls");
const selectors = {};

// Another value of one key: the condition that has it and is most like the present one.
function choose(key, value) {
  const now = charts[reader.condition].keys;
  const alike = (keys) => Object.keys(keys).filter((each) => keys[each] === now[each]).length;
  const having = charts.map((_, number) => number).filter((number) => charts[number].keys[key] === value);
  having.sort((one, other) => alike(charts[other].keys) - alike(charts[one].keys) || one - other);
  reader.condition = having[0];
  update();
}

function selector(name, options, value, change) {
  const select = made("select", { name }, ...options.map(([each, text]) => made("option", { value: each, textContent: text })));
  select.value = value;
  select.addEventListener("change", () => change(select.value));
  controls.append(made("label", { textContent: name }, select));
  return select;
}

function legend() {
  const list = made("div", { className: "legend" });
  list.setAttribute("role", "group");
  list.setAttribute("aria-label", "backends");
  for (const [place, name] of backends.entries()) {
    const icon = drawn("svg", { viewBox: "-9 -9 18 18", "aria-hidden": "true" },
      drawn("g", { class: `mark front s${place % 7}` }, shape(place)));
    const button = made("button", { type: "button" }, icon, made("span", { textContent: name }));
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const on = reader.off.delete(name);
      if (!on) reader.off.add(name);
      button.setAttribute("aria-pressed", String(on));
      update();
    });
    list.append(button);
  }
  controls.append(list);
}

function update() {
  shown.forEach((condition, number) => { condition.section.hidden = number !== reader.condition; });
  for (const [key, select] of Object.entries(selectors)) select.value = charts[reader.condition].keys[key];
  shown[reader.condition].show();
}

if (charts.length) {
  for (const key of Object.keys(charts[0].keys)) {
    const values = [...new Set(charts.map((chart) => chart.keys[key]))];
    if (values.length > 1) {
      selectors[key] = selector(key, values.map((value) => [value, value]), values[0], (value) => choose(key, value));
    }
  }
  selector("points", Object.entries(EVERY_POINT), "all", (value) => { reader.points = value; update(); });
  legend();
  update();
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) update(); // a telephone's address bar changes the height alone
    width = window.innerWidth;
  });
  // On paper every condition is shown, with its chart.
  window.addEventListener("beforeprint", () => {
    for (const condition of shown) { condition.section.hidden = false; condition.show(); }
  });
  window.addEventListener("afterprint", update);
}
