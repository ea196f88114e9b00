// Follow a running sweep: only a page that `fgmix report --serve` gave out does this.

const EVERY = 3000; // milliseconds between looks

// Whether a reload would undo something that the reader did.
const isBusy = () =>
  shownRuns.only ||
  document.querySelector("tr.details, details[open], [aria-sort], .legend [aria-pressed=false]") ||
  [...document.querySelectorAll("input.filter")].some((input) => input.value);

const offerReload = () => {
  if (document.getElementById("reload")) return;
  const button = make("button", { type: "button", id: "reload", onclick: () => location.reload() }, "New results: show them");
  document.getElementById("status").append(button);
};

const lookAgain = async (seen) => {
  let now = null;
  try {
    now = await (await fetch("status.json", { cache: "no-store" })).json();
  } catch {
    document.getElementById("time-left").textContent = "The server is gone: these are the last results it gave.";
    return;
  }
  const spans = Object.entries(now.counts).map(([state, count]) => make("span", { class: `state ${state}` }, `${count} ${state}`));
  document.getElementById("counts").replaceChildren(...spans);
  document.getElementById("time-left").textContent = now.time_left;
  const finished = now.counts.done + now.counts.diverged + now.counts.failed;
  if (finished !== seen) {
    if (!isBusy()) return location.reload();
    offerReload();
  }
  if (now.left) setTimeout(() => lookAgain(seen), EVERY);
};

if (document.body.hasAttribute("data-live")) lookAgain(Number(document.body.dataset.finished));
