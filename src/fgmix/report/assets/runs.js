// The list of runs: sorted, filtered, a page at a time; each opens to its spec, command and curves.

const PAGE = 50;
const LONG = 16; // characters of a method's name from which on it is wrapped on a phone
// Name, value to sort by, class, text where it is not the value: accuracies are rounded once, by fgmix.
const COLUMNS = [
  ["Method", (run) => (run.origin ? `${run.method} (${run.origin})` : run.method)],
  ["Dataset", (run) => run.dataset],
  ["Test domain", (run) => run.domain],
  ["Trial", (run) => run.trial, "number"],
  ["Hparams seed", (run) => run.hparams_seed, "number"],
  ["Accuracy (%)", (run) => run.accuracy.raw ?? "", "number", (run) => run.shown.raw ?? ""],
  ["Averaged (%)", (run) => run.accuracy.swa ?? run.accuracy.swad ?? "", "number", (run) => run.shown.swa ?? run.shown.swad ?? ""],
  ["Reported", (run) => run.reported.join(", ")],
  ["Status", (run) => run.status],
];

let runs = [];
const runList = document.getElementById("run-list");
const shownRuns = { words: "", only: null, column: null, direction: "ascending", count: PAGE };

const textOf = (run, [, of, , text]) => String((text ?? of)(run));
const wordsOf = (run) => [run.name, run.algorithm, ...COLUMNS.map((column) => textOf(run, column))].join(" ");

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
  const of = COLUMNS[column][1];
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
  let details = null;
  button.addEventListener("click", () => {
    if (details) {
      details.remove();
      details = null;
    } else {
      details = make("tr", { class: "details" }, make("td", { colspan: String(COLUMNS.length) }, ...runDetails(run)));
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
  else drawing.append(make("p", { class: "caption" }, `Draw its curves with: fgmix plot curves ${run.name}`));
  return [
    make("p", { class: "caption" }, `${run.name} · fgmix ${run.version} · data ${run.data}`),
    commandLine(run.command),
    ...run.unseen.map((text) => make("p", { class: "caption" }, text)),
    drawing,
    make("details", {}, make("summary", {}, "Spec"), make("dl", {}, ...entries)),
  ];
};

const commandLine = (command) => {
  const copy = async (event) => {
    const button = event.currentTarget;
    await navigator.clipboard.writeText(command);
    button.textContent = "Copied";
  };
  const canCopy = Boolean(navigator.clipboard); // absent on an insecure address
  return make("p", { class: "command" }, make("code", {}, command), canCopy ? make("button", { type: "button", onclick: copy }, "Copy") : "");
};

const drawRuns = () => {
  const found = chosenRuns();
  runTable.tBodies[0].replaceChildren(...found.slice(0, shownRuns.count).map(runRow));
  runCount.textContent = found.length === runs.length ? "" : `${found.length} of ${runs.length} runs`;
  moreRuns.hidden = found.length <= shownRuns.count;
  allRuns.hidden = !shownRuns.only;
};

const sortRuns = (column) => (event) => {
  const head = event.currentTarget.closest("th");
  shownRuns.column = column;
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
const heads = COLUMNS.map(([name, , kind], i) =>
  make("th", { scope: "col", class: kind ?? null }, make("button", { type: "button", onclick: sortRuns(i) }, name)),
);
const runTable = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody"));
const showMore = () => {
  shownRuns.count += 10 * PAGE;
  drawRuns();
};
const moreRuns = make("button", { type: "button", onclick: showMore }, "Show more");
const scroller = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" }, runTable);
runList.replaceChildren(make("p", { class: "tools" }, runFilter, allRuns, runCount), scroller, moreRuns);
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
