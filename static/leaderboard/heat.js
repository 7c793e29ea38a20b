// @ts-check
// The heat map of entries x tasks, a grid of links to the evidence. Sign and colour convey the same information. Arrow keys move between cells, only
// one of which is in the tab order.
import { say } from "../js/lib/say.js";

const SIGNS = {
  "+": ["▲", "faster"],
  "=": ["=", "no significant difference"],
  "-": ["▼", "slower"],
  x: ["✕", "tried without a result"],
  o: ["○", "confirmed, of another class"],
  "?": ["?", "left out by a verdict"],
};
const TONES = { "-": "down", "=": "even", x: "failed", o: "other", "?": "out" };

const toneOf = (sign, ratio) => (sign === "+" ? (ratio >= 2 ? "up3" : ratio >= 1.25 ? "up2" : "up1") : TONES[sign]);

export async function showHeat(box) {
  if (!box) return;
  await seen(box);
  let data;
  try {
    const answer = await fetch(box.dataset.heat);
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    data = await answer.json();
  } catch (error) {
    box.firstElementChild.textContent = `The tasks could not be loaded: ${error.message}. Reload the page to try again.`;
    return;
  }
  if (!box.isConnected) return;
  box.replaceChildren(grid(data));
  box.setAttribute("aria-busy", "false");
  const left = [data.left_entries && `${data.left_entries} more entries`, data.left_tasks && `${data.left_tasks} more tasks`].filter(Boolean);
  document.querySelector("[data-heat-left]").textContent = left.length ? `Not shown: ${left.join(" and ")}. The exports have them all.` : "";
  listen(box);
}

function grid(data) {
  const table = document.createElement("table");
  table.setAttribute("role", "grid");
  table.setAttribute("aria-label", `Speedup against ${data.against}, entries by tasks`);
  const head = table.createTHead().insertRow();
  head.append(document.createElement("td"));
  data.tasks.forEach((name, at) => {
    const th = Object.assign(document.createElement("th"), { scope: "col", title: name, textContent: numberOf(name) ?? at + 1 });
    th.setAttribute("aria-label", name);
    head.append(th);
  });
  const body = table.createTBody();
  for (const entry of data.entries) {
    const row = body.insertRow();
    const th = Object.assign(document.createElement("th"), { scope: "row" });
    th.append(Object.assign(document.createElement("a"), { href: entry.href, textContent: entry.name }));
    row.append(th);
    entry.cells.forEach((found, column) => row.append(cellOf(found, entry.name, data.tasks[column], data.result)));
  }
  const first = /** @type {HTMLTableCellElement | null} */ (table.querySelector("tbody td"));
  if (first) (first.querySelector("a") ?? first).tabIndex = 0;
  return table;
}

// KernelBench task names begin with the number by which people know them.
const numberOf = (name) => /^(\d+)_/.exec(name)?.[1];

function cellOf(found, entry, task, result) {
  const cell = document.createElement("td");
  if (!found) {
    cell.className = "cell untried";
    cell.textContent = "·";
    cell.tabIndex = -1;
    cell.dataset.told = `${task}, ${entry}: not tried`;
    cell.setAttribute("aria-label", cell.dataset.told);
    return cell;
  }
  const [sign, ratio, id] = found;
  const [shown, word] = SIGNS[sign];
  const link = document.createElement("a");
  link.className = `cell ${toneOf(sign, ratio)}`;
  link.href = result.replace("/0/", `/${id}/`);
  link.textContent = shown;
  link.tabIndex = -1;
  link.dataset.told = `${task}, ${entry}: ${ratio ? `${ratio.toFixed(2)}×, ` : ""}${word}`;
  link.setAttribute("aria-label", link.dataset.told);
  cell.append(link);
  return cell;
}

function listen(box) {
  const told = document.querySelector("[data-heat-told]");
  const tell = (event) => {
    const cell = event.target.closest?.("[data-told]");
    told.textContent = cell ? cell.dataset.told : "";
  };
  box.addEventListener("pointerover", tell);
  box.addEventListener("pointerleave", () => (told.textContent = ""));
  box.addEventListener("focusin", tell);
  box.addEventListener("keydown", (event) => {
    const move = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [0, -1e6], End: [0, 1e6] }[event.key];
    const cell = event.target.closest("td");
    if (!move || !cell) return;
    event.preventDefault();
    const rows = [...box.querySelectorAll("tbody tr")];
    const row = rows[Math.min(rows.length - 1, Math.max(0, rows.indexOf(cell.parentElement) + move[0]))];
    const cells = row.querySelectorAll("td");
    const next = cells[Math.min(cells.length - 1, Math.max(0, cell.cellIndex - 1 + move[1]))];
    const target = next.querySelector("a") ?? next;
    event.target.tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
    target.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (target.tagName === "TD") say(target.dataset.told);
  });
}

function seen(box) {
  return new Promise((resolve) => {
    const watcher = new IntersectionObserver(
      ([entry]) => {
        if (!entry.isIntersecting) return;
        watcher.disconnect();
        resolve();
      },
      { rootMargin: "300px" },
    );
    watcher.observe(box);
  });
}
