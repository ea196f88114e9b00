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

for (const table of document.querySelectorAll("table.sortable")) {
  for (const button of table.tHead.querySelectorAll("button")) {
    button.addEventListener("click", () => sortTable(table, button.closest("th")));
  }
  if (table.tBodies[0].rows.length > 3) {
    const filter = make("input", {
      type: "search",
      placeholder: "Filter rows",
      "aria-label": "Filter rows",
      class: "filter",
      oninput: (event) => filterTable(table, event.target.value),
    });
    table.parentNode.before(filter);
  }
}
