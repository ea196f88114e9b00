// Follow a running sweep: only a page that `fgmix report --serve` gave out does this.

const EVERY = 3000; // milliseconds between looks

const isBusy = () => shownRuns.words || shownRuns.only || document.querySelector("tr.details, details[open]");

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
  const finished = now.counts.done + now.counts.diverged;
  if (seen !== null && finished !== seen) {
    if (isBusy()) offerReload();
    else return location.reload();
  }
  if (now.left) setTimeout(() => lookAgain(seen ?? finished), EVERY);
};

if (document.body.hasAttribute("data-live")) lookAgain(runs.length);
