"use strict";
// Tables: click a column head to sort, type above to filter.
// Every text reaches the page through textContent: nothing from data is parsed as HTML.

const make = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
};

const FILTERED = 8; // rows from which on a table has a filter
const readBlock = (id) => JSON.parse(document.getElementById(id).textContent);

// A block that fgmix compressed
const readPacked = async (id) => {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (character) => character.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(unpacked).text());
};

// Numbers by size, texts alphabetically, missing values last in either direction.
const compareValues = (a, b, direction) => {
  if (a === "" || b === "") return (a === "") - (b === "");
  const [x, y] = [Number(a), Number(b)];
  const order = Number.isNaN(x) || Number.isNaN(y) ? String(a).localeCompare(String(b), undefined, { numeric: true }) : x - y;
  return direction * order;
};

// The next direction of a column: numbers start with the highest, texts with the first.
const nextDirection = (head) => {
  const now = head.getAttribute("aria-sort");
  if (now === "descending") return "ascending";
  if (now === "ascending") return "descending";
  return head.classList.contains("number") ? "descending" : "ascending";
};

const markSorted = (head, direction) => {
  for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", direction);
};

const valueOf = (cell) => ("value" in cell.dataset ? cell.dataset.value : cell.textContent);

const sortTable = (table, head) => {
  const direction = nextDirection(head);
  const column = [...head.parentNode.children].indexOf(head);
  const body = table.tBodies[0];
  const sign = direction === "ascending" ? 1 : -1;
  const rows = [...body.rows].sort((a, b) => compareValues(valueOf(a.cells[column]), valueOf(b.cells[column]), sign));
  body.append(...rows);
  markSorted(head, direction);
};

const filterTable = (table, words) => {
  for (const row of table.tBodies[0].rows) row.hidden = !hasWords(row.textContent, words);
};

const hasWords = (text, words) => {
  const low = text.toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => low.includes(word));
};

// A button that copies what a function returns; none on an insecure address, where the page has no access to the clipboard.
const copyButton = (name, text) => {
  if (!navigator.clipboard) return null;
  const copy = async (event) => {
    const button = event.currentTarget;
    await navigator.clipboard.writeText(text());
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = name), 1500);
  };
  return make("button", { type: "button", onclick: copy }, name);
};

// The shown rows as CSV, with hyphens before numbers; an apostrophe before what a spreadsheet would take for a formula
const writeCsv = (table) => {
  const quote = (text) => `"${(/^\s*[=@]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  const rows = [...table.rows].filter((row) => !row.hidden);
  const textOfCell = (cell) => (cell.dataset.text ?? cell.textContent).trim().replaceAll("−", "-");
  return rows.map((row) => [...row.cells].map((cell) => quote(textOfCell(cell))).join(",")).join("\n");
};

const LATEX = readBlock("latex");

[...document.querySelectorAll("table.sortable")].forEach((table, number) => {
  for (const button of table.tHead.querySelectorAll("button")) {
    button.addEventListener("click", () => sortTable(table, button.closest("th")));
  }
  const filter = make("input", {
    type: "search",
    placeholder: "Filter rows",
    "aria-label": "Filter rows",
    class: "filter",
    oninput: (event) => filterTable(table, event.target.value),
  });
  const isLong = table.tBodies[0].rows.length > FILTERED;
  const copies = [copyButton("Copy CSV", () => writeCsv(table)), copyButton("Copy LaTeX", () => LATEX[number])];
  table.parentNode.before(make("div", { class: "copy" }, isLong ? filter : null, ...copies));
});
