"use strict";
// What the reader does: sort a table, choose a condition, move a slider. All figures and words are in the page.

// --- tables that sort: numbers as numbers, points by their cuts; what is not known stays last ---------------------

const keyOf = {
  text: (text) => text.toLowerCase(),
  number: (text) => parseFloat(text.replace(/^[<>]/, "")),
  point: (text) => text.split("+").reduce((sum, cut) => sum * 1e4 + parseInt(cut, 10), 0),
};

function sortBy(table, head, place) {
  const kind = head.dataset.kind;
  const way = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  const rows = [...table.tBodies[0].rows].map((row) => {
    const text = row.cells[place].textContent;
    return { row, key: keyOf[kind](text), unknown: text === "-" };
  });
  rows.sort((one, other) => one.unknown - other.unknown
    || way * (kind === "text" ? one.key.localeCompare(other.key) : one.key - other.key));
  for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
  table.tBodies[0].append(...rows.map(({ row }) => row));
}

for (const table of document.querySelectorAll("table")) {
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sortBy(table, head, place));
  });
}

// --- conditions: what is of the chosen one is shown; an answer leads to its own by the page's address ---------------

const select = document.getElementById("condition");
const said = document.querySelector(".said");
const isOf = (element, number) => element.dataset.of.split(" ").includes(number);

function choose(number) {
  select.value = number;
  for (const each of document.querySelectorAll("#view [data-of], #points [data-of]")) each.hidden = !isOf(each, number);
  for (const each of document.querySelectorAll(".answers [data-of]")) each.classList.toggle("now", isOf(each, number));
  const now = document.querySelector(".answers .now");
  if (now) said.scrollTop = now.offsetTop - said.offsetTop - 60; // px: the heading stays above the first
  const tab = document.getElementById("tab-map");
  if (tab) tab.disabled = !document.querySelector(".map:not([hidden])");
  if (tab?.disabled) document.getElementById("tab-front").checked = true;
}

function chooseByAddress() {
  const there = document.getElementById(location.hash.slice(1))?.closest("[data-of]");
  if (there) choose(there.dataset.of);
}

// --- the maps: two sliders look a cell up ---------------------------------------------------------------------------

const maps = JSON.parse(document.getElementById("data").textContent);

for (const section of document.querySelectorAll(".map")) {
  const map = maps[section.dataset.map];
  const [delay, rate] = section.querySelectorAll("input");
  const say = (within, what, text) => { within.querySelector(`[data-say=${what}]`).textContent = text; };

  const show = () => {
    for (const slider of [delay, rate]) {
      const words = map[slider.name][slider.value];
      slider.setAttribute("aria-valuetext", words);
      say(section, slider.name, words);
    }
    const cell = Number(delay.value) * map.rate.length + Number(rate.value);
    for (const each of section.querySelectorAll("[data-objective]")) {
      const of = map[each.dataset.objective];
      say(each, "order", of.orders[of.best[cell]]);
      say(each, "cost", of.cost[cell]);
      for (const note of each.querySelectorAll("[data-note]")) note.hidden = !(of.note[cell] & note.dataset.note);
    }
    const across = `${100 * (Number(rate.value) + 0.5) / map.rate.length}%`;
    const down = `${100 - 100 * (Number(delay.value) + 0.5) / map.delay.length}%`;
    for (const each of section.querySelectorAll("[data-at]")) {
      const [one, other] = each.dataset.at === "rate" ? ["x", across] : ["y", down];
      each.setAttribute(`${one}1`, other);
      each.setAttribute(`${one}2`, other);
    }
  };
  const goTo = ({ dataset }) => { [delay.value, rate.value] = [dataset.delay, dataset.rate]; show(); };

  const buttons = section.querySelectorAll("button");
  for (const button of buttons) button.addEventListener("click", () => goTo(button));
  for (const slider of [delay, rate]) slider.addEventListener("input", show);
  section.querySelector(".sliders").hidden = false;
  goTo(buttons[0]);
}

// --- and the rest -----------------------------------------------------------------------------------------------------

const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const { dataset } = document.documentElement;
  dataset.theme ??= matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  dataset.theme = dataset.theme === "dark" ? "light" : "dark";
});

if (select.options.length) {
  document.documentElement.classList.add("scripted");
  select.addEventListener("change", () => { location.hash = `c${select.value}`; });
  window.addEventListener("hashchange", chooseByAddress);
  choose(document.querySelector(".answers [data-of]")?.dataset.of.split(" ")[0] ?? "0");
  chooseByAddress();
}
