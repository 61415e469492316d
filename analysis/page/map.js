// Other networks: what each point is predicted to take at a delay and a rate, and the best of them over all.

const STEPS = { delays: 72, rates: 96 };
const UNITS = { latency: "latency", throughput: "images/s" };

// How far apart two values of a slider are.
function apart(one, other) {
  return one === other ? 0 : Math.abs(Math.log(one / other));
}

function nearestStep(steps, value) {
  const far = steps.map((each) => apart(each, value));
  return far.indexOf(Math.min(...far));
}

// The value at each step of a slider: logarithmic between its ends, in round numbers, those that were measured among
// them; the first delay is 0, the last rate unlimited.
function stepsOf([low, high], count, measured, isDelay) {
  const values = Array.from({ length: count }, (_, step) =>
    Number((low * (high / low) ** (step / (count - 1))).toPrecision(2)));
  for (const value of measured) if (value > 0 && value < Infinity) values[nearestStep(values, value)] = value;
  return isDelay ? [0, ...values] : [...values, Infinity];
}

// What is to be least: seconds of latency, or seconds an image. `line`: of `Predictor.lines`, which has the arithmetic.
function costOf(map, [fixed, delays, bits, stage, occupied], objective, delay, rate) {
  const latency = fixed + delays * delay + bits / rate;
  if (objective === "latency") return latency;
  const crossing = delays > 0 ? Math.max(occupied / rate, latency / map.in_flight) : 0;
  return Math.max(stage, crossing) / map.batch;
}

// The cells at a delay and a rate, the best first: [[cost, cell], ...].
function ranked(map, objective, delay, rate) {
  return map.cells
    .map((cell) => [costOf(map, cell.line, objective, delay, rate), cell])
    .sort((one, other) => one[0] - other[0]);
}

function timeInWords(seconds) {
  return seconds < 1 ? `${Number((seconds * 1e3).toPrecision(3))} ms` : `${Number(seconds.toPrecision(3))} s`;
}

function rateInWords(bps) {
  if (bps === Infinity) return "no limit";
  const [unit, name] = bps >= 1e9 ? [1e9, "Gbit/s"] : bps >= 1e6 ? [1e6, "Mbit/s"] : [1e3, "kbit/s"];
  return `${Number((bps / unit).toPrecision(3))} ${name}`;
}

function costInWords(cost, objective) {
  return objective === "latency" ? timeInWords(cost) : `${Number((1 / cost).toPrecision(3))} images/s`;
}

// Whether another cell is as good as the best, as far as predictions can be trusted.
function tooClose(map, objective, best, other) {
  return map.error[objective] !== null && other / best < Math.exp(map.error[objective]);
}

class NetworkMap {
  constructor(map) {
    this.map = map;
    for (const each of map.measured) each.rate ??= Infinity;
    const known = (name) => map.measured.map((each) => each[name]);
    this.values = {
      delays: stepsOf(map.delays, STEPS.delays, known("delay"), true),
      rates: stepsOf(map.rates, STEPS.rates, known("rate"), false),
    };
    const first = map.measured[0];
    this.at = {
      delays: this.nearest("delays", first?.delay ?? this.values.delays[STEPS.delays >> 1]),
      rates: this.nearest("rates", first?.rate ?? this.values.rates[STEPS.rates >> 1]),
    };
    this.grids = {};
  }

  nearest(name, value) {
    return nearestStep(this.values[name], value);
  }

  // For each delay and rate the best cell's number, and whether another point is too close to tell.
  grid(objective) {
    if (this.grids[objective]) return this.grids[objective];
    const { map, values } = this;
    return this.grids[objective] = values.delays.map((delay) => values.rates.map((rate) => {
      let [best, least, next] = [-1, Infinity, Infinity];
      map.cells.forEach((cell, number) => {
        const cost = costOf(map, cell.line, objective, delay, rate);
        if (cost < least) [best, least, next] = [number, cost, best >= 0 && map.cells[best].point !== cell.point ? least : next];
        else if (cost < next && map.cells[best].point !== cell.point) next = cost;
      });
      return [best, tooClose(map, objective, least, next)];
    }));
  }

  // Draws the map into a figure. Returns nothing that can be pointed at: its sliders are.
  draw(figure, objective) {
    figure.querySelector(":scope > svg")?.remove();
    const { map, values } = this;
    const width = Math.max(figure.clientWidth, 240);
    const height = width < 560 ? 230 : 300;
    const box = { left: 58, right: width - 16, top: 12, bottom: height - 42 };
    const [wide, high] = [(box.right - box.left) / values.rates.length, (box.bottom - box.top) / values.delays.length];
    const left = (step) => box.left + wide * step;
    const top = (step) => box.bottom - high * (step + 1);
    const hatch = `hatch-${charts.findIndex((chart) => maps[chart.map] === map)}-${figure.isConnected ? "" : "x"}${Math.round(width)}`;
    const svg = drawn("svg", {
      viewBox: `0 0 ${width} ${height}`, height, role: "img",
      "aria-label": `Best point by ${UNITS[objective]} over rate and delay; the sliders below give it in words.`,
    }, drawn("defs", {}, drawn("pattern", { id: hatch, width: 7, height: 7, patternUnits: "userSpaceOnUse" },
      drawn("path", { class: "hatch", d: "M-1 8L8-1M-2 2L2-2M5 9L9 5" }))));
    figure.prepend(svg);
    const grid = this.grid(objective);
    const winners = [...new Set(grid.flat().map(([best]) => best))].sort((one, other) => one - other);
    const points = [...new Set(winners.map((cell) => map.cells[cell].point))];
    const shade = (cell) => {
      const share = points.length > 1 ? points.indexOf(map.cells[cell].point) / (points.length - 1) : 0;
      return `color-mix(in srgb, var(--s0) ${Math.round(8 + 52 * share)}%, var(--page))`;
    };
    const layers = [drawn("g", { class: "areas" }), drawn("g"), drawn("g")];
    const widest = new Map();
    const strips = (row, place, found) => {
      for (let from = 0, to; from < row.length; from = to) {
        for (to = from + 1; to < row.length && row[to][place] === row[from][place];) to += 1;
        found(row[from][place], from, to);
      }
    };
    grid.forEach((row, delay) => {
      const size = (from, to) => ({ x: left(from), y: top(delay) - 0.3, width: wide * (to - from) + 0.3, height: high + 0.6 });
      strips(row, 0, (best, from, to) => {
        const area = drawn("rect", size(from, to));
        area.style.fill = shade(best);
        layers[0].append(area);
        // As high as it is there, its name fits as well as it is wide.
        const reach = (way) => { let at = delay; while (grid[at + way]?.[(from + to) >> 1][0] === best) at += way; return Math.abs(at - delay); };
        const room = Math.min(wide * (to - from), 14 * high * (1 + Math.min(reach(1), reach(-1))));
        if (room > (widest.get(best)?.room ?? 0)) widest.set(best, { room, x: left((from + to) / 2), y: top(delay) + high / 2 });
      });
      strips(row, 1, (close, from, to) => { if (close) layers[1].append(drawn("rect", { ...size(from, to), fill: `url(#${hatch})` })); });
    });
    for (const [best, { room, x, y }] of widest) {
      const { name } = map.cells[best];
      if (room > 7 * name.length + 8) layers[2].append(drawn("text", { class: "name", x, y: y + 4, "text-anchor": "middle" }, name));
    }
    svg.append(...layers);
    this.frame(svg, box, left, top);
    this.cross = drawn("path", { class: "cross" });
    svg.append(this.cross);
    for (const measured of map.measured) {
      const found = measured.best[objective];
      if (!found) continue;
      const [x, y] = [left(this.nearest("rates", measured.rate) + 0.5), top(this.nearest("delays", measured.delay) - 0.5)];
      svg.append(drawn("g", { class: "dot", transform: `translate(${x} ${y})` }, drawn("circle", { r: 11 }),
        drawn("text", { y: 4, "text-anchor": "middle" }, found[1]),
        drawn("title", {}, `measured at ${measured.netem}: ${found[0]}`)));
    }
    this.aim = () => {
      const [x, y] = [left(this.at.rates + 0.5), top(this.at.delays - 0.5)];
      this.cross.setAttribute("d", `M${x} ${box.top}V${box.bottom}M${box.left} ${y}H${box.right}`);
    };
    this.aim();
    this.pick = (across, down) => {
      const inside = (value, count) => Math.min(Math.max(Math.floor(value), 0), count - 1);
      this.at.rates = inside((across - box.left) / wide, values.rates.length);
      this.at.delays = inside((box.bottom - down) / high, values.delays.length);
    };
  }

  frame(svg, box, left, top) {
    const { delays, rates } = this.values;
    const mark = (value, steps, step) => (value === 0 || value === Infinity ? steps.indexOf(value) : step(value));
    const along = (steps, [low, high], count, first) => (value) => first + Math.log(value / low) / Math.log(high / low) * (count - 1);
    const x = along(rates, this.map.rates, STEPS.rates, 0);
    const y = along(delays, this.map.delays, STEPS.delays, 1);
    const limits = ([low, high]) => ({ low, high, log: true });
    const most = (box.right - box.left) / 110;
    for (const value of [...ticks(limits(this.map.rates), most).filter((each) => x(each) < STEPS.rates * (1 - 80 / (box.right - box.left))), Infinity]) {
      svg.append(drawn("g", { class: "tick" },
        drawn("text", { x: left(mark(value, rates, x) + 0.5), y: box.bottom + 16, "text-anchor": value === Infinity ? "end" : "middle" }, rateInWords(value))));
    }
    for (const value of [0, ...ticks(limits(this.map.delays), 4).filter((each) => y(each) > 5)]) {
      svg.append(drawn("g", { class: "tick" },
        drawn("text", { x: box.left - 5, y: top(mark(value, delays, y) - 0.5) + 4, "text-anchor": "end" }, value ? timeInWords(value) : "0")));
    }
    svg.append(drawn("rect", { class: "frame", x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top }),
      drawn("text", { x: box.left, y: box.bottom + 34 }, "rate, edge to server \u2192   round-trip delay \u2191"));
  }

  // The sliders and the answer beneath them; `changed`: to be called when something was moved.
  controls(objective, changed) {
    const { map, values } = this;
    const said = made("div", { className: "said-there" });
    said.setAttribute("aria-live", "polite");
    const outputs = {};
    const sliders = {};
    const show = () => {
      const [delay, rate] = [values.delays[this.at.delays], values.rates[this.at.rates]];
      const words = { delays: timeInWords(delay), rates: rateInWords(rate) };
      for (const name of ["delays", "rates"]) {
        sliders[name].value = this.at[name];
        sliders[name].setAttribute("aria-valuetext", words[name]);
        outputs[name].textContent = words[name];
      }
      said.replaceChildren(...this.answer(objective, delay, rate));
      this.aim();
    };
    const slider = (name, label) => {
      sliders[name] = made("input", { type: "range", min: 0, max: values[name].length - 1, step: 1, name });
      outputs[name] = made("output");
      sliders[name].addEventListener("input", () => { this.at[name] = Number(sliders[name].value); show(); });
      return made("label", {}, made("span", { textContent: label }), outputs[name], sliders[name]);
    };
    const places = map.measured.map((measured) => {
      const button = made("button", { type: "button", textContent: measured.netem });
      button.addEventListener("click", () => {
        this.at = { delays: this.nearest("delays", measured.delay), rates: this.nearest("rates", measured.rate) };
        show();
      });
      return button;
    });
    const box = made("div", { className: "sliders" },
      slider("delays", "round-trip delay"), slider("rates", "rate, edge to server"),
      made("div", { className: "measured" }, "measured networks: ", ...places));
    this.show = show;
    show();
    const legend = made("p", { className: "key", textContent: "Circles: the best point as measured. Areas: as predicted"
      + (map.error[objective] === null ? "." : "; hatched: two points are too close to tell.") });
    return [legend, box, said];
  }

  // What to do there: the best, what comes next, how much that can be trusted.
  answer(objective, delay, rate) {
    const { map } = this;
    const order = ranked(map, objective, delay, rate);
    const [least, best] = order[0];
    const rest = order.filter(([, cell]) => cell !== best);
    const whole = rest.find(([, cell]) => !cell.backend);
    const others = [...new Set([rest[0], rest[1], whole])].filter(Boolean).sort((one, other) => one[0] - other[0]);
    const rivals = new Set(rest.filter(([cost, cell]) => cell.point !== best.point && tooClose(map, objective, least, cost)).map(([, cell]) => cell.point));
    const share = (cost) => objective === "latency" ? `${Number((100 * (cost / least - 1)).toPrecision(2))} % longer`
      : `${Number((100 * (1 - least / cost)).toPrecision(2))} % less`;
    const at = `At a round trip of ${timeInWords(delay)} and ${rate === Infinity ? "no limit of rate" : rateInWords(rate)}: `;
    const inside = (value, name) => {
      const known = map.measured.map((measured) => measured[name]);
      return value >= Math.min(...known) && value <= Math.max(...known);
    };
    const beyond = inside(delay, "delay") && inside(rate, "rate") ? "" : " This is beyond what was measured.";
    const here = map.measured.filter((each) => this.nearest("delays", each.delay) === this.at.delays
      && this.nearest("rates", each.rate) === this.at.rates && each.best[objective]);
    const seen = here.map(({ netem, best: found }) => made("p", {
      textContent: `Measured at ${netem}: ${found[objective][0]}, ${objective === "latency" ? timeInWords(found[objective][2]) : `${Number(found[objective][2].toPrecision(3))} images/s`}.`,
    }));
    return [
      made("p", { className: "there" }, at, made("strong", { textContent: best.order }), `, ${costInWords(least, objective)} predicted.${beyond}`),
      made("ul", {}, ...others.map(([cost, cell]) => made("li", { textContent: `${cell.order}: ${costInWords(cost, objective)}, ${share(cost)}` }))),
      ...seen,
      made("p", { className: "about", textContent: (rivals.size
        ? `Too close to tell: ${rivals.size === 1 ? "another point is" : `${rivals.size} other points are`} within the prediction's error (${Number((100 * Math.expm1(map.error[objective])).toPrecision(2))} %). ` : "") + map.worth[objective] }),
    ];
  }
}
