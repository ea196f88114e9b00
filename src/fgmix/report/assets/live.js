// Update while a sweep runs: only in a page from `fgmix report --serve`.

const EVERY = 3000; // milliseconds between requests

// Whether a reload would undo something that the reader did.
const isBusy = () =>
  shownRuns.only ||
  document.querySelector("tr.details, details[open], [aria-sort], .legend [aria-pressed=false]") ||
  [...document.querySelectorAll("input.filter")].some((input) => input.value);

const offerReload = () => {
  if (document.getElementById("reload")) return;
  const button = make("button", { type: "button", id: "reload", onclick: () => location.reload() }, "Show new results");
  document.getElementById("status").append(button);
};

const lookAgain = async (seen) => {
  let now = null;
  try {
    now = await (await fetch("status.json", { cache: "no-store" })).json();
  } catch {
    document.getElementById("time-left").textContent = "The server has stopped. These are the last results it sent.";
    return;
  }
  const spans = Object.entries(now.counts).map(([state, count]) => make("span", { class: `state ${state}` }, `${count} ${state}`));
  document.getElementById("counts").replaceChildren(...spans);
  document.getElementById("time-left").textContent = now.time_left;
  if (now.version !== seen) {
    if (!isBusy()) return location.reload();
    offerReload();
  }
  if (now.left) setTimeout(() => lookAgain(seen), EVERY);
};

if (document.body.hasAttribute("data-live")) lookAgain(document.body.dataset.version);
