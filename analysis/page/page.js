// What the reader does: choose a condition, filter, sort, point at something. Text is only ever set as text.

const conditions = [...document.querySelectorAll(".condition")];
const reader = { condition: 0, off: new Set(), points: "all", tab: "front", objective: "latency" };
const EVERY_POINT = { all: "all", own: "on their backend's front", front: "on the front of all backends" };

function made(name, properties = {}, ...inside) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...inside);
  return element;
}

// --- tables that sort ---------------------------------------------------------------------------------------------

const SORT_KEYS = {
  text: (text) => text.toLowerCase(),
  number: (text) => parseFloat(text.replace(/^[<>]/, "")),
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
    if (this.figure) this.draw(reader.tab);
  }

  draw(tab) {
    const saying = (row) => [this.title(row), ...this.figures(row).map(([group, pairs]) =>
      `${group}: ${pairs.map((pair) => pair.join(" ")).join(", ")}`)].join("; ");
    const visible = (point) => this.visible(point);
    this.figure.replaceChildren();
    this.marks = [];
    if (this.chart.sides) {
      this.marks = drawBeside(this.figure, this.chart, this.rows, visible, saying);
      this.figure.append(key(this.marks));
    } else if (tab === "front") {
      this.marks = drawChart(this.figure, this.chart, this.rows, visible, saying);
      this.figure.append(key(this.marks));
    } else if (tab === "parts") {
      const latencies = (row) => new Map(this.figures(row)).get(LATENCY) ?? [];
      this.marks = drawParts(this.figure, this.chart, this.rows, visible, saying, latencies);
    } else {
      const map = networkMaps[this.chart.map];
      map.draw(this.figure, reader.objective);
      this.figure.append(...map.controls(reader.objective));
    }
    this.figure.append(this.detail);
    this.point(this.kept);
  }

  // Point at a row: its mark, and its figures beside it. Null points at nothing.
  point(row) {
    const mark = this.marks.find((each) => each.row === row);
    for (const each of this.marks) {
      each.element.classList.toggle("near", each.row === row);
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
    const figure = this.figure.getBoundingClientRect();
    return nearest(this.marks, event.clientX - figure.left, event.clientY - figure.top);
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
    this.figure.addEventListener("click", (event) => {
      if (!event.target.closest("svg")) return;
      if (reader.tab !== "map") return this.keep(this.under(event)?.row ?? null);
      const svg = this.figure.querySelector(":scope > svg").getBoundingClientRect();
      networkMaps[this.chart.map].pick(event.clientX - svg.left, event.clientY - svg.top);
      networkMaps[this.chart.map].show();
    });
    this.figure.addEventListener("focusin", (event) => {
      if (event.target.dataset.row) this.point(Number(event.target.dataset.row));
    });
    this.figure.addEventListener("focusout", () => this.point(this.kept));
    this.figure.addEventListener("keydown", (event) => {
      if (!event.target.dataset.row) return;
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

function icon(look, ...shapes) {
  return drawn("svg", { viewBox: "-9 -9 18 18", "aria-hidden": "true" }, drawn("g", { class: `mark ${look}` }, ...shapes));
}

// A backend's mark and name.
function named(place) {
  return [icon(tone(place), ...shape(place, 1)), made("span", { textContent: backends[place] })];
}

function legend() {
  const list = made("div", { className: "legend" });
  list.setAttribute("role", "group");
  list.setAttribute("aria-label", "backends");
  for (const [place, name] of backends.entries()) {
    const button = made("button", { type: "button" }, ...named(place));
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

// What the fills mean, of those that are there.
function key(marks) {
  const there = new Set(marks.map(({ point }) => point[FILL]));
  const filled = (fill) => icon(`sn${fill ? "" : " dominated"}`, drawn("path", { d: SHAPES[0], "fill-opacity": fill }));
  return made("p", { className: "key" }, ...states.filter(([, fill]) => there.has(fill))
    .map(([words, fill]) => made("span", {}, filled(fill), words)));
}

const networkMaps = maps.map((map) => new NetworkMap(map));
const TABS = { front: "The front", parts: "Where time goes", map: "Other networks" };
const tabs = document.getElementById("tabs");
const panel = document.getElementById("panel");

function tabButtons() {
  const names = Object.keys(TABS).filter((name) => name === "front" || (name === "map" ? maps.length : !charts[0].sides));
  tabs.hidden = names.length < 2;
  const buttons = names.map((name) => {
    const button = made("button", { type: "button", id: `tab-${name}`, textContent: TABS[name] });
    button.setAttribute("role", "tab");
    button.setAttribute("aria-controls", "panel");
    button.dataset.tab = name;
    button.addEventListener("click", () => { reader.tab = name; update(); });
    button.addEventListener("keydown", (event) => {
      const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!way) return;
      const enabled = buttons.filter((each) => !each.disabled);
      const next = enabled[(enabled.indexOf(button) + way + enabled.length) % enabled.length];
      next.focus();
      next.click();
    });
    return button;
  });
  tabs.append(...buttons);
}

// Each answer goes to its condition; in a narrow window only the chosen one's is shown, until all are asked for.
const answers = [...document.querySelectorAll(".answers li")];
function answerButtons() {
  charts.forEach(({ answer }, number) => {
    if (answer === null) return;
    answers[answer].classList.add("leads");
    answers[answer].addEventListener("click", () => { reader.condition = number; update(); });
  });
  if (answers.length < 2 || charts.every(({ answer }) => answer === null)) return;
  const list = answers[0].parentElement;
  const button = made("button", { type: "button", className: "every", textContent: `All ${answers.length} answers` });
  button.setAttribute("aria-expanded", "false");
  button.addEventListener("click", () => {
    button.setAttribute("aria-expanded", String(!list.classList.toggle("one")));
    button.textContent = list.classList.contains("one") ? `All ${answers.length} answers` : "Only the answer to the chart";
  });
  list.classList.add("one");
  list.after(button);
}

function update() {
  const { map, answer } = charts[reader.condition];
  if (reader.tab === "map" && map === null) reader.tab = "front";
  shown.forEach((condition, number) => { condition.section.hidden = number !== reader.condition; });
  const { figure } = shown[reader.condition];
  panel.replaceChildren(...(figure ? [figure] : [made("p", { textContent: "No valid trial: nothing to draw." })]));
  answers.forEach((each, number) => each.classList.toggle("now", number === answer || (answer === null && number === 0)));
  for (const tab of tabs.children) {
    const chosen = tab.dataset.tab === reader.tab;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    tab.disabled = tab.dataset.tab === "map" && map === null;
    if (chosen) panel.setAttribute("aria-labelledby", tab.id);
  }
  document.getElementById("view").dataset.tab = reader.tab;
  for (const [key, select] of Object.entries(selectors)) select.value = charts[reader.condition].keys[key];
  shown[reader.condition].show();
}

if (charts.length) {
  document.getElementById("view").hidden = false;
  // The chart is of what the first answer is about.
  reader.condition = Math.max(charts.findIndex(({ answer }) => answer === 0), 0);
  tabButtons();
  answerButtons();
  for (const key of Object.keys(charts[0].keys)) {
    const values = [...new Set(charts.map((chart) => chart.keys[key]))];
    if (values.length > 1) {
      selectors[key] = selector(key, values.map((value) => [value, value]), values[0], (value) => choose(key, value));
      if (key === "profile") selectors[key].parentElement.classList.add("of-points"); // the map is of all networks
    }
  }
  selector("points", Object.entries(EVERY_POINT), "all", (value) => { reader.points = value; update(); })
    .parentElement.classList.add("of-points");
  if (maps.length) {
    const best = selector("best by", Object.entries(UNITS), "latency", (value) => { reader.objective = value; update(); });
    best.parentElement.classList.add("of-map");
  }
  legend();
  update();
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) update(); // a telephone's address bar changes the height alone
    width = window.innerWidth;
  });
  // On paper every condition is shown, with its chart.
  window.addEventListener("beforeprint", () => {
    const known = new Set([null]);
    for (const condition of shown) {
      condition.section.hidden = false;
      if (!condition.figure) continue;
      const place = condition.section.querySelector(".about");
      const alone = condition.figure;
      const tabs = condition.chart.sides ? [] : ["parts", ...(known.has(condition.chart.map) ? [] : ["map"])];
      known.add(condition.chart.map);
      place.after(alone);
      condition.draw("front");
      alone.querySelector(".key").prepend(...[...backends.keys()].map((place) => made("span", {}, ...named(place))));
      for (const tab of tabs.reverse()) {
        condition.figure = made("figure", { className: "chart printed" });
        alone.after(condition.figure);
        condition.draw(tab);
        condition.figure.prepend(made("h4", { textContent: TABS[tab] }));
      }
      condition.figure = alone;
    }
  });
  window.addEventListener("afterprint", () => {
    for (const each of document.querySelectorAll(".printed")) each.remove();
    update();
  });
}
