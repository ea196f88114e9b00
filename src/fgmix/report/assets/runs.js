// The list of runs: sorted, filtered, a page at a time; each opens to its spec, command and curves.

const PAGE = 50;
const LONG = 16; // characters of a method's name from which on it is wrapped on a phone
// Name, value to sort by, class, text where it is not the value: accuracies are rounded once, by fgmix.
const ALL_COLUMNS = [
  ["Method", (run) => (run.origin ? `${run.method} (${run.origin})` : run.method)],
  ["Dataset", (run) => run.dataset],
  ["Test domain", (run) => run.domain],
  ["Trial", (run) => run.trial, "number"],
  ["Sample", (run) => run.hparams_seed, "number"],
  ["Accuracy (%)", (run) => run.accuracy.raw ?? "", "number", (run) => run.shown.raw ?? ""],
  ["Averaged weights (%)", (run) => run.accuracy.swa ?? run.accuracy.swad ?? "", "number", (run) => run.shown.swa ?? run.shown.swad ?? ""],
  ["In tables", (run) => run.reported.join(", ")],
  ["Status", (run) => run.status],
  ["Settings", (run) => run.settings],
  ["Steps", (run) => run.steps, "number"],
  ["Duration", (run) => run.seconds, "number", (run) => run.duration],
  ["Started (UTC)", (run) => run.date],
  ["Host", (run) => run.host],
];
const HIDDEN = new Set(["Settings", "Steps", "Duration", "Started (UTC)", "Host"]); // until the reader chooses them
let COLUMNS = ALL_COLUMNS.filter(([name]) => !HIDDEN.has(name));

let runs = [];
const runList = document.getElementById("run-list");
const shownRuns = { words: "", only: null, column: null, direction: "ascending", count: PAGE };
const comparedRuns = new Set(); // those whose curves are drawn together

const textOf = (run, [, of, , text]) => String((text ?? of)(run));
const wordsOf = (run) => [run.name, run.algorithm, ...ALL_COLUMNS.map((column) => textOf(run, column))].join(" ");

// Whether a number was selected from runs that include this one; runs of a grid belong to the numbers of the grid only.
const isBehind = (run, { dataset, algorithm, domain }) =>
  run.dataset === dataset && run.algorithm === algorithm && (!domain || run.domain === domain || (run.reported.length && run.spec.test_domains.includes(domain))) && (!run.groups.length || run.groups.includes(""));

const chosenRuns = () => {
  const { words, only, column, direction } = shownRuns;
  const fits = (run) =>
    (!only || isBehind(run, only)) &&
    (!words || hasWords(wordsOf(run), words));
  const found = runs.filter(fits);
  if (column === null) return found;
  const of = ALL_COLUMNS.find(([name]) => name === column)[1];
  const sign = direction === "ascending" ? 1 : -1;
  return found.sort((a, b) => compareValues(of(a), of(b), sign));
};

const runRow = (run) => {
  const cells = COLUMNS.map((column) =>
    column[0] === "Method"
      ? make("th", { scope: "row", class: textOf(run, column).length > LONG ? "long" : null }, make("button", { type: "button", "aria-expanded": "false", class: "open" }, textOf(run, column)))
      : make("td", { class: column[2] ?? null }, textOf(run, column)),
  );
  const row = make("tr", {}, ...cells);
  const button = row.querySelector("button");
  if (run.curves) row.cells[0].prepend(compareBox(run));
  let details = null;
  button.addEventListener("click", () => {
    if (details) {
      details.remove();
      details = null;
    } else {
      details = make("tr", { class: "details" }, make("td", { colspan: String(COLUMNS.length) }, make("div", {}, ...runDetails(run))));
      row.after(details);
    }
    button.setAttribute("aria-expanded", String(details !== null));
  });
  return row;
};

const runDetails = (run) => {
  const entries = Object.entries(run.spec).flatMap(([name, value]) => [
    make("dt", {}, name),
    make("dd", {}, typeof value === "object" ? JSON.stringify(value) : String(value)),
  ]);
  const drawing = make("div", { class: "drawing" });
  if (run.curves) drawChart(drawing, run.curves);
  else drawing.append(make("p", { class: "caption" }, `Draw its curves with: fgmix plot results ${run.name} --kind curves`));
  return [
    make("p", { class: "caption" }, [run.name, `fgmix ${run.version}`, `data ${run.data}`].filter(Boolean).join(" · ")),
    commandLine(run.command),
    ...run.unseen.map((text) => make("p", { class: "caption" }, text)),
    ...run.confusions.map(confusionTable),
    drawing,
    make("details", {}, make("summary", {}, "Spec"), make("dl", {}, ...entries)),
  ];
};

const commandLine = (command) => make("p", { class: "command" }, make("code", {}, command), copyButton("Copy", () => command));

// Rows are true classes, columns predicted ones; the darker a cell, the larger its share of the row.
const confusionTable = ({ domain, classes, matrix }) => {
  const rows = matrix.map((counts, r) => {
    const total = counts.reduce((sum, n) => sum + n, 0);
    const cells = counts.map((n, c) => {
      const cell = make("td", { title: `${n} of ${total} samples of ${classes[r]} predicted as ${classes[c]}` }, String(n));
      const colour = heat(total ? n / total : 0, "Blues");
      Object.assign(cell.style, { background: `rgb(${colour})`, color: brightness(colour) > 127 ? "#000" : "#fff" });
      return cell;
    });
    return make("tr", {}, make("th", { scope: "row" }, classes[r]), ...cells);
  });
  const head = make("tr", {}, make("th", {}, "True \\ predicted"), ...classes.map((name) => make("th", { scope: "col" }, name)));
  const title = make("p", { class: "caption" }, `${domain}: samples by true and predicted class`);
  return make("div", {}, title, make("div", { class: "scroll" }, make("table", { class: "confusion" }, make("thead", {}, head), make("tbody", {}, ...rows))));
};

// Curves of several runs in one figure: panels of the same title, a colour for each run. Of the domains, those held out.

const RUN_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const RUN_MARKERS = ["o", "s", "^", "D", "v", "P"];

const compareBox = (run) => {
  const change = (event) => {
    if (event.currentTarget.checked) comparedRuns.add(run);
    else comparedRuns.delete(run);
    drawComparison();
  };
  return make("input", { type: "checkbox", class: "compare", checked: comparedRuns.has(run), "aria-label": "Compare its curves", onchange: change });
};

const heldOut = (marks) => {
  const tests = marks.filter((mark) => mark.name.includes(" (test)"));
  return tests.length ? tests : marks;
};

const mergeCurves = (chosen) => {
  const names = chosen.map((run) => `${textOf(run, ALL_COLUMNS[0])}, ${run.domain}, trial ${run.trial}`);
  const titles = chosen[0].curves.panels.map((panel) => panel.title).filter((title) => chosen.every((run) => run.curves.panels.some((panel) => panel.title === title)));
  const panels = titles.map((title) => {
    const own = chosen.map((run) => run.curves.panels.find((panel) => panel.title === title));
    const marks = own.flatMap((panel, i) => heldOut(panel.marks).map((mark) => ({ ...mark, name: names[i], colour: RUN_COLOURS[i] ?? "ink", marker: RUN_MARKERS[i] ?? "X" })));
    return { ...own[0], marks };
  });
  return { ...chosen[0].curves, title: "Compared runs", panels };
};

const drawComparison = () => {
  const chosen = [...comparedRuns];
  comparison.hidden = chosen.length < 2;
  if (comparison.hidden) return;
  drawChart(comparison, mergeCurves(chosen));
  comparison.append(make("p", { class: "caption" }, "Accuracy and loss on the test domain of each run. Dashed: averaged weights."));
};

const drawRuns = () => {
  const found = chosenRuns();
  runTable.tBodies[0].replaceChildren(...found.slice(0, shownRuns.count).map(runRow));
  runCount.textContent = found.length === runs.length ? "" : `${found.length} of ${runs.length} runs`;
  moreRuns.hidden = found.length <= shownRuns.count;
  moreRuns.textContent = `Show more (${shownRuns.count} of ${found.length} are shown)`;
  allRuns.hidden = !shownRuns.only;
};

const sortRuns = (name) => (event) => {
  const head = event.currentTarget.closest("th");
  shownRuns.column = name;
  shownRuns.direction = nextDirection(head);
  markSorted(head, shownRuns.direction);
  drawRuns();
};

const runFilter = make("input", {
  type: "search",
  placeholder: "Filter runs",
  "aria-label": "Filter runs",
  class: "filter",
  oninput: (event) => {
    Object.assign(shownRuns, { words: event.target.value, count: PAGE });
    drawRuns();
  },
});
const showAll = () => {
  shownRuns.only = null;
  drawRuns();
};
const allRuns = make("button", { type: "button", hidden: true, onclick: showAll }, "Show all runs");
const runCount = make("span", { class: "caption", role: "status" });
const runTable = make("table", {}, make("thead"), make("tbody"));
const drawHeads = () => {
  const heads = COLUMNS.map(([name, , kind]) => make("th", { scope: "col", class: kind ?? null }, make("button", { type: "button", onclick: sortRuns(name) }, name)));
  runTable.tHead.replaceChildren(make("tr", {}, ...heads));
};
const chooseColumn = (name) => (event) => {
  if (event.currentTarget.checked) HIDDEN.delete(name);
  else HIDDEN.add(name);
  COLUMNS = ALL_COLUMNS.filter(([each]) => !HIDDEN.has(each));
  drawHeads();
  drawRuns();
};
const columnBoxes = ALL_COLUMNS.slice(1).map(([name]) =>
  make("label", {}, make("input", { type: "checkbox", checked: !HIDDEN.has(name), onchange: chooseColumn(name) }), ` ${name}`),
);
const columnChoice = make("details", { class: "columns" }, make("summary", {}, "Columns"), make("p", { class: "tools" }, ...columnBoxes));
const comparison = make("div", { class: "drawing", id: "comparison", hidden: true });
const showMore = () => {
  shownRuns.count += 10 * PAGE;
  drawRuns();
};
const moreRuns = make("button", { type: "button", onclick: showMore }, "Show more");
const scroller = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" }, runTable);
drawHeads();
runList.replaceChildren(make("p", { class: "tools" }, runFilter, allRuns, runCount), columnChoice, comparison, scroller, moreRuns);
const runsLoaded = readPacked("run-rows").then((rows) => {
  runs = rows;
  drawRuns();
});

// A number in a table links to the runs behind it.
for (const link of document.querySelectorAll("a[data-algorithm]")) {
  link.addEventListener("click", () => {
    Object.assign(shownRuns, { only: { ...link.dataset }, words: "", count: PAGE });
    runFilter.value = "";
    drawRuns();
  });
}
