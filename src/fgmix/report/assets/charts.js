// Charts: panels of points, lines and cells as SVG, with a tooltip, a legend that switches things on and off, and
// points that light up in every panel they are in.

const WIDTH = 380; // of a panel among others; text has 11 pixels
const WIDE = 460; // of a panel alone on a screen that has room
const HEIGHT = 300;
// Colour maps of matplotlib, which the PDFs use, too
const COLOURS = {
  cividis: ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"],
  Blues: ["#f7fbff", "#e1edf8", "#ccdff1", "#abd0e6", "#82bbdb", "#58a1cf", "#3787c0", "#1b69af", "#084d96", "#08306b"],
  magma: ["#000004", "#180f3d", "#440f76", "#721f81", "#9e2f7f", "#cd4071", "#f1605d", "#fd9668", "#feca8d", "#fcfdbf"],
};
const SVG = "http://www.w3.org/2000/svg";

const draw = (name, attributes = {}, text = null) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  return node;
};

// A colour of the palette as the page shows it: on a dark page dark ones move towards the text's colour, on a light page
// light ones, so that all stand out. White is the rim of what lies on a heat map.
const shownColour = (colour) => {
  if (colour === "ink") return "var(--ink)";
  if (colour === "#ffffff") return colour;
  const light = brightness(channels(colour));
  if (light < 110) return `color-mix(in srgb, ${colour}, var(--ink) var(--lift))`;
  return light > 185 ? `color-mix(in srgb, ${colour}, var(--ink) var(--deepen))` : colour;
};

// Through the style: an attribute does not know variables everywhere.
const painted = (node, property, colour) => {
  node.style[property] = shownColour(colour);
  return node;
};

// Colours of a heat map

const brightness = ([r, g, b]) => 0.3 * r + 0.6 * g + 0.1 * b;

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

const heat = (share, colours) => {
  const map = COLOURS[colours];
  const place = Math.min(Math.max(share, 0), 1) * (map.length - 1);
  const low = Math.min(Math.floor(place), map.length - 2);
  const [from, to] = [channels(map[low]), channels(map[low + 1])];
  return from.map((value, i) => Math.round(value + (place - low) * (to[i] - value)));
};

const shareOf = (cells, value) => Math.max(0, (value - cells.low) / (cells.high - cells.low)) ** cells.power;

// Scales

const extent = (panel, axis) => {
  const values = panel.marks.flatMap((mark) => [...mark[axis], ...(axis === "y" && mark.kind === "Band" ? mark.top : [])].filter((value) => value !== null));
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (low > high) [low, high] = [0, 1];
  const cells = panel.marks.find((mark) => mark.kind === "Cells" && mark[axis].length > 1);
  const margin = cells ? Math.abs(cells[axis][1] - cells[axis][0]) / 2 : 0.05 * (high - low) || 0.1 * Math.abs(high) || 0.5;
  const { low: from, high: to } = panel[axis];
  return [from ?? low - margin, to ?? high + margin];
};

const scale = ([low, high], [start, end]) => (value) => start + ((value - low) / (high - low || 1)) * (end - start);

// About five round numbers
const roundTicks = ([low, high]) => {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? rough;
  const ticks = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-6; value += step) {
    const rounded = Math.abs(value) < step * 1e-6 ? 0 : value;
    ticks.push([rounded, String(Number(rounded.toPrecision(6))).replace("-", "−")]);
  }
  return ticks;
};

// Markers, by matplotlib's names, as paths around 0, 0

const MARKERS = {
  o: "M-1,0a1,1 0 1,0 2,0a1,1 0 1,0 -2,0",
  s: "M-.9,-.9h1.8v1.8h-1.8z",
  "^": "M0,-1.1L1.05,.8H-1.05z",
  v: "M0,1.1L1.05,-.8H-1.05z",
  D: "M0,-1.2L1.2,0L0,1.2L-1.2,0z",
  P: "M-.4,-1.1h.8v.7h.7v.8h-.7v.7h-.8v-.7h-.7v-.8h.7z",
  X: "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0z",
  x: "M-1,-.8L-.8,-1L0,-.2L.8,-1L1,-.8L.2,0L1,.8L.8,1L0,.2L-.8,1L-1,.8L-.2,0z",
  "+": "M-.2,-1.2h.4v1h1v.4h-1v1h-.4v-1h-1v-.4h1z",
  "*": "M0,-1.2L.3,-.4L1.15,-.37L.48,.15L.7,.97L0,.5L-.7,.97L-.48,.15L-1.15,-.37L-.3,-.4z",
};

const DRAWN = {
  Points(mark, x, y) {
    const size = mark.x.length > 60 ? 2.6 : 4;
    return mark.x.map((value, i) => {
      if (value === null || mark.y[i] === null) return null;
      const node = draw("path", {
        d: MARKERS[mark.marker] ?? MARKERS.o,
        transform: `translate(${x(value).toFixed(1)},${y(mark.y[i]).toFixed(1)}) scale(${size})`,
        class: `point${mark.faint ? " faint" : ""}${mark.outlined ? " outlined" : ""}`,
      });
      painted(node, "fill", mark.colour);
      if (mark.text.length) node.dataset.text = mark.text[i];
      if (mark.key.length && mark.key[i] >= 0) node.dataset.key = mark.key[i];
      return node;
    });
  },
  Line(mark, x, y) {
    let pen = "M"; // a missing value interrupts the line
    const parts = mark.x.map((value, i) => {
      if (value === null || mark.y[i] === null) {
        pen = "M";
        return "";
      }
      const part = `${pen}${x(value).toFixed(1)},${y(mark.y[i]).toFixed(1)}`;
      pen = "L";
      return part;
    });
    const node = draw("path", { d: parts.join(""), "stroke-width": mark.width, class: "line" });
    painted(node, "stroke", mark.colour);
    if (mark.dashed) node.setAttribute("stroke-dasharray", "5 3");
    if (mark.text) node.dataset.text = mark.text;
    return [node];
  },
  Band(mark, x, y) {
    const along = (values) => values.map((value, i) => `${x(mark.x[i]).toFixed(1)},${y(value).toFixed(1)}`);
    const node = draw("polygon", { points: [...along(mark.y), ...along(mark.top).reverse()].join(" "), class: "band" });
    return [painted(node, "fill", mark.colour)];
  },
  Words(mark, x, y) {
    const place = (i) => ({ x: x(mark.x[i]), y: y(mark.y[i]) + 4, "text-anchor": mark.anchor, class: "words" });
    return mark.text.map((text, i) => painted(draw("text", place(i), text), "fill", mark.colour));
  },
  Cells(mark, x, y) {
    const [width, height] = [cellSize(mark.x, x), cellSize(mark.y, y)];
    const nodes = [];
    mark.value.forEach((row, r) =>
      row.forEach((value, c) => {
        if (value === null) return;
        const colour = heat(shareOf(mark, value), mark.colours);
        const [left, top] = [x(mark.x[c]) - width / 2, y(mark.y[r]) - height / 2];
        const cell = draw("rect", { x: left.toFixed(2), y: top.toFixed(2), width: width + 0.4, height: height + 0.4, fill: `rgb(${colour})` });
        cell.dataset.text = mark.text[r][c];
        nodes.push(cell);
        if (mark.written.length) nodes.push(...writtenLines(mark.written[r][c], left + width / 2, top + height / 2, brightness(colour) > 127));
      }),
    );
    return nodes;
  },
};

const writtenLines = (text, x, y, onLight) =>
  text.split("\n").map((line, i, lines) => {
    const place = { x, y: y + 4 + 13 * (i - (lines.length - 1) / 2), "text-anchor": "middle", class: "written" };
    return draw("text", { ...place, fill: onLight ? "#000" : "#fff" }, line);
  });

const cellSize = (centres, to) => Math.abs(centres.length > 1 ? to(centres[1]) - to(centres[0]) : to(0.5) - to(-0.5));

// A panel

// A name beside an axis in lines of so many characters, at most three
const linesOf = (text, most, lines = 3) => {
  if (text.length <= most) return [text];
  if (lines === 1) return [shorten(text, most)];
  const space = text.lastIndexOf(" ", most);
  const end = space > 0 ? space : most;
  return [text.slice(0, end), ...linesOf(text.slice(end).trim(), most, lines - 1)];
};

const drawPanel = (panel, number, label, width) => {
  const line = width > WIDTH ? 32 : 24; // characters
  const longest = (ticks) => Math.max(0, ...ticks.flatMap(([, text]) => linesOf(text, line).map((each) => each.length)));
  const ranges = { x: extent(panel, "x"), y: extent(panel, "y") };
  const ticks = { x: panel.x.ticks ?? roundTicks(ranges.x), y: panel.y.ticks ?? roundTicks(ranges.y) };
  const named = panel.y.ticks !== null && panel.y.ticks.length > 0;
  const tilted = panel.x.ticks !== null && panel.x.ticks.length > 0 && longest(ticks.x) * ticks.x.length > 42;
  const above = (ticks.x.length ? 18 : 4) + (panel.x.label ? 18 : 0) + (tilted ? 50 : 0) + 8;
  const left = 14 + 6.2 * longest(ticks.y) + (panel.y.label ? 18 : 0);
  // A unit has the same length on both axes where distances matter.
  const ratio = (ranges.y[1] - ranges.y[0]) / (ranges.x[1] - ranges.x[0]);
  const height = panel.equal ? above + ratio * (width - 10 - left) : named ? Math.max(120, Math.min(900, 90 + 30 * (ranges.y[1] - ranges.y[0]))) : HEIGHT;
  const box = {
    left,
    right: width - 10,
    top: 8,
    bottom: height - above + 8,
  };
  const x = scale(ranges.x, panel.x.flipped ? [box.right, box.left] : [box.left, box.right]);
  const y = scale(ranges.y, panel.y.flipped ? [box.top, box.bottom] : [box.bottom, box.top]);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": panel.title || label });
  const clip = `clip-${++clips}`;
  const hole = draw("clipPath", { id: clip });
  hole.append(draw("rect", { x: box.left - 4, y: box.top - 4, width: box.right - box.left + 8, height: box.bottom - box.top + 8 }));
  svg.append(hole, draw("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top, class: "frame" }));
  for (const [value, text] of ticks.x) {
    const at = x(value);
    if (at < box.left - 1 || at > box.right + 1) continue;
    svg.append(draw("line", { x1: at, x2: at, y1: box.bottom, y2: box.bottom + 4, class: "tick" }));
    const place = tilted
      ? { transform: `translate(${at + 4},${box.bottom + 12}) rotate(-35)`, "text-anchor": "end" }
      : { x: at, y: box.bottom + 15, "text-anchor": "middle" };
    svg.append(draw("text", place, text));
  }
  for (const [value, text] of ticks.y) {
    const at = y(value);
    if (at < box.top - 1 || at > box.bottom + 1) continue;
    svg.append(draw("line", { x1: box.left - 4, x2: box.left, y1: at, y2: at, class: "tick" }));
    const lines = linesOf(text, line);
    lines.forEach((line, i) => {
      const down = at + 4 + 12 * (i - (lines.length - 1) / 2);
      svg.append(draw("text", { x: box.left - 6, y: down, "text-anchor": "end" }, line));
    });
  }
  if (panel.x.label) svg.append(draw("text", { x: (box.left + box.right) / 2, y: height - 5, "text-anchor": "middle", class: "label" }, panel.x.label));
  if (panel.y.label) {
    const turn = `translate(13,${(box.top + box.bottom) / 2}) rotate(-90)`;
    svg.append(draw("text", { transform: turn, "text-anchor": "middle", class: "label" }, panel.y.label));
  }
  for (const mark of panel.marks) {
    const group = draw("g", { "clip-path": `url(#${clip})` });
    if (mark.name) group.dataset.name = mark.name;
    group.append(...DRAWN[mark.kind](mark, x, y).filter((node) => node !== null));
    svg.append(group);
  }
  const cells = panel.marks.find((mark) => mark.kind === "Cells" && mark.label);
  return make("div", { class: "panel", "data-panel": String(number) }, panel.title ? make("h4", {}, panel.title) : "", svg, cells ? colourBar(cells) : "");
};

let clips = 0;

const shorten = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

const colourBar = (cells) => {
  const svg = draw("svg", { viewBox: `0 0 ${WIDTH} 34`, class: "bar", "aria-hidden": "true" });
  for (let i = 0; i < 60; i++) svg.append(draw("rect", { x: 60 + i * 4.5, y: 2, width: 5, height: 10, fill: `rgb(${heat((i / 59) ** cells.power, cells.colours)})` }));
  svg.append(draw("text", { x: 54, y: 12, "text-anchor": "end" }, String(Number(cells.low.toPrecision(3)))));
  svg.append(draw("text", { x: 336, y: 12 }, String(Number(cells.high.toPrecision(3)))));
  svg.append(draw("text", { x: 195, y: 28, "text-anchor": "middle", class: "label" }, cells.label));
  return svg;
};

// The legend: a button for each name

const drawLegend = (chart, drawing) => {
  const signs = new Map(); // name → one mark of each kind
  for (const mark of chart.panels.flatMap((panel) => panel.marks)) {
    if (mark.name) signs.set(mark.name, { ...signs.get(mark.name), [mark.kind]: mark });
  }
  if (signs.size < 2) return "";
  return make("div", { class: "legend" }, ...[...signs].map(([name, marks]) => legendButton(name, marks, drawing)));
};

const legendButton = (name, { Line: line, Points: points }, drawing) => {
  const sign = draw("svg", { viewBox: "-9 -5 18 10", "aria-hidden": "true" });
  if (line) {
    const node = painted(draw("line", { x1: -9, x2: 9, y1: 0, y2: 0, "stroke-width": 1.5 }), "stroke", line.colour);
    if (line.dashed) node.setAttribute("stroke-dasharray", "3 2");
    sign.append(node);
  }
  if (points) {
    const kind = points.outlined ? "outlined" : "";
    const node = draw("path", { d: MARKERS[points.marker] ?? MARKERS.o, transform: "scale(3.5)", class: kind });
    sign.append(painted(node, "fill", points.colour));
  }
  const toggle = (event) => {
    const button = event.currentTarget;
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    for (const group of drawing.querySelectorAll("g[data-name]")) {
      if (group.dataset.name === name) group.classList.toggle("off", !on);
    }
  };
  return make("button", { type: "button", "aria-pressed": "true", onclick: toggle }, sign, name);
};

// The tooltip: one for the page, filled with the text and the picture of what is under the pointer

const tooltip = make("div", { id: "tooltip", role: "status", hidden: true });
document.body.append(tooltip);

const picture = (pictures, key) => {
  const image = make("div", { class: "picture" });
  const zoom = Math.max(1, Math.round(96 / pictures.side));
  const side = pictures.side * zoom;
  const [row, column] = [Math.floor(key / pictures.columns), key % pictures.columns];
  Object.assign(image.style, {
    width: `${side}px`,
    height: `${side}px`,
    backgroundImage: `url("${pictures.source}")`,
    backgroundSize: `${pictures.columns * side}px auto`,
    backgroundPosition: `${-column * side}px ${-row * side}px`,
  });
  return image;
};

const showTooltip = (event, node, chart) => {
  const { text, key } = node.dataset;
  tooltip.replaceChildren(...(chart.pictures && key !== undefined ? [picture(chart.pictures, Number(key))] : []), text);
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - width - 6);
  const below = event.clientY + 14;
  const top = below + height > window.innerHeight ? event.clientY - height - 10 : below;
  Object.assign(tooltip.style, { left: `${Math.max(4, left)}px`, top: `${Math.max(4, top)}px` });
};

const light = (drawing, key) => {
  for (const node of drawing.querySelectorAll(".lit")) node.classList.remove("lit");
  if (key === undefined) return;
  for (const node of drawing.querySelectorAll(`[data-key="${Number(key)}"]`)) node.classList.add("lit");
};

// What the pointer means: what is under it, or for a finger, which covers more than a point, what is nearest.
const REACH = 16; // pixels

const meant = (event, drawing) => {
  const under = event.target.closest("[data-text]");
  if (under || event.pointerType !== "touch") return under;
  let [nearest, least] = [null, REACH];
  for (const node of drawing.querySelectorAll("path.point[data-text]")) {
    const { x, y, width, height } = node.getBoundingClientRect();
    const distance = Math.hypot(x + width / 2 - event.clientX, y + height / 2 - event.clientY);
    if (distance < least) [nearest, least] = [node, distance];
  }
  return nearest;
};

const follow = (drawing, chart) => {
  const look = (event) => {
    const node = meant(event, drawing);
    light(drawing, node?.dataset.key);
    if (node) showTooltip(event, node, chart);
    else tooltip.hidden = true;
  };
  const leave = (event) => {
    if (event.pointerType === "touch") return; // a lifted finger leaves too: what it showed stays until the next tap
    tooltip.hidden = true;
    light(drawing);
  };
  drawing.addEventListener("pointermove", look);
  drawing.addEventListener("pointerdown", look);
  drawing.addEventListener("pointerleave", leave);
};

window.addEventListener("scroll", () => (tooltip.hidden = true), { passive: true });

const drawChart = (drawing, chart) => {
  const single = chart.panels.length === 1;
  const narrow = document.documentElement.clientWidth / chart.columns < 300 && chart.panels[0].y.ticks?.length; // illegible names
  const kind = single ? "panels single" : chart.columns && !narrow ? "panels rows" : "panels";
  const width = single && document.documentElement.clientWidth > 640 ? WIDE : WIDTH;
  const panels = make("div", { class: kind }, ...chart.panels.map((panel, i) => drawPanel(panel, i, chart.title, width)));
  if (chart.columns) panels.style.setProperty("--columns", chart.columns);
  drawing.replaceChildren(drawLegend(chart, drawing), panels);
  follow(drawing, chart);
};

for (const chart of readBlock("charts")) {
  const drawing = document.querySelector(`#${CSS.escape(`figure-${chart.id}`)} .drawing`);
  try {
    drawChart(drawing, chart);
  } catch (error) {
    drawing.textContent = `This figure cannot be drawn: ${error.message}`; // the others can
  }
}
