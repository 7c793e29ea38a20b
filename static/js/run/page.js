// @ts-check
// A run's live page. Events are applied to the state as they arrive, and changes are drawn in the next frame.
import { Connection } from "./connection.js";
import { Chart } from "./chart.js";
import { Conversation } from "./conversation.js";
import { Decisions } from "./decisions.js";
import { setText } from "./dom.js";
import { Finder } from "./finder.js";
import { Header } from "./header.js";
import { Reports } from "./headline.js";
import { loadTrace } from "./loading.js";
import { Pane } from "./pane.js";
import { parse, write } from "./selection.js";
import { Steps } from "./steps.js";
import { wireSteering } from "./steering.js";
import { bestCandidate, createChanges, createState, fold, foldStretch, itemOf } from "./store.js";
import { Tree } from "./tree.js";
import { Ways } from "./ways.js";
import { shortcut } from "../lib/keys.js";
import { say } from "../lib/say.js";
import { counted } from "../lib/words.js";

const SHORT = 200; // up to this many events, the live connection is just as fast

const root = document.getElementById("run");
const config = { ...JSON.parse(document.getElementById("run-config").textContent), timelineWorker: root.dataset.timelineWorker };
/** @returns {HTMLElement} */
const part = (name) => root.querySelector(`[data-part="${name}"]`);

// Elapsed times follow the server's clock, because this machine's clock may be wrong.
const skew = Date.parse(config.now) - Date.now();
const now = () => Date.now() + skew;

const state = createState();
let changes = createChanges();
let selectedHash = location.hash; // the hash that the selection was read from
let selection = parse(selectedHash);
let wanted = selection.event ?? selection.span; // scrolled to once it arrives
let head = config.lastSeq;
let scheduled = false;
let caughtUp = head === 0; // until then, the header, chart and panes keep the server's version, because nobody needs to watch a replay

const reports = new Reports(config.base);
const header = new Header(root, config, now, reports);
const decisions = new Decisions(part("decisions"));
const chart = new Chart(part("chart"));
const tree = new Tree({ box: part("tree"), fold: part("tree-fold"), now });
const conversation = new Conversation({ state, scroller: part("scroller"), list: part("entries"), follow: part("follow"), newer: part("newer"), now, forks: Boolean(part("fork")) });
const ways = new Ways(part("ways"), `${config.base}ways`);
const pane = new Pane({ root, config, reports, onTab: (tab) => go({ ...selection, event: null, span: null, tab }) });
const choose = (item) => go({ ...selection, event: item.seq, span: null });
const steps = new Steps({ state, conversation, select: part("step-kind"), count: part("step-count"), previous: part("step-previous"), next: part("step-next"), best: part("to-best"), go: choose });
const finder = new Finder({ root, url: config.search, state, conversation, entryOf: (seq) => itemOf(state, seq), go: goToHit });

const connection = new Connection({
  socketUrl: `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${config.socket}`,
  eventsUrl: config.events,
  cursor: () => state.last,
  take(events, newest) {
    head = Math.max(head, newest ?? 0);
    const contiguous = fold(state, events, changes);
    schedule();
    return contiguous;
  },
  status: showConnection,
});

async function start() {
  if (head > SHORT) {
    const take = (stretch) => {
      head = Math.max(head, stretch.head);
      const contiguous = foldStretch(state, stretch, changes);
      showProgress();
      return contiguous;
    };
    await loadTrace({ url: config.trace, head, length: config.stretch, take });
    schedule();
  }
  connection.start();
}

function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(draw);
}

function draw() {
  scheduled = false;
  const first = !caughtUp && state.last >= head;
  caughtUp ||= first;
  showProgress();
  if (!caughtUp) return;
  const done = changes;
  changes = createChanges();
  if (first || done.header || done.candidates.size) header.draw(state);
  conversation.draw(done.items);
  if (first || done.tree || done.candidates.size) tree.draw(state, selection);
  if (done.ways && (!first || !ways.drawn)) ways.refresh();
  if (first || done.chart || done.header) chart.draw(state, subject().number);
  if (first || done.candidates.size || done.timelines || done.header) drawPane();
  if (first || done.items.size) steps.draw();
  decisions.draw(state);
  if (wanted != null && reveal()) wanted = null;
  if (first) root.dataset.ready = "1";
  else if (done.notices.length) say(done.notices.at(-1));
  if (state.run.state === "finished" && state.last >= head) {
    connection.stop();
    showConnection("finished");
  }
}

// The subject of the right pane: the selection or, by default, the best candidate of a finished run, or else the newest candidate.
function subject() {
  if (selection.reference) return { subject: "reference", number: null, followed: false };
  if (selection.candidate != null) return { subject: selection.candidate, number: selection.candidate, followed: false };
  const best = state.run.state === "finished" ? bestCandidate(state) : null;
  const number = best?.number ?? (state.candidates.size ? Math.max(...state.candidates.keys()) : null);
  return { subject: number, number, followed: true };
}

function drawPane() {
  const { subject: shown, followed } = subject();
  pane.draw(state, shown, selection.reference ? "timeline" : (selection.tab ?? "diff"), followed);
}

function readSelection() {
  selectedHash = location.hash;
  selection = parse(selectedHash);
}

// Selecting an event opens its entry and its span. Selecting a span opens its first entry.
function reveal() {
  const item = selection.event != null ? itemOf(state, selection.event) : state.itemById.get(state.spans.get(selection.span)?.firstItem);
  const path = selection.span ?? item?.span;
  if (path && state.spans.has(path)) tree.reveal(path);
  return conversation.reveal(item);
}

// The next key press can arrive before the browser reports the new URL, so it must continue from here.
function go(next) {
  const hash = write(next);
  const again = hash === location.hash || (hash === "#" && !location.hash);
  if (!again) location.hash = hash;
  select(again);
}

// Stepping through hits adds only one entry to the browser history.
function goToHit(item, hit, needles) {
  history.replaceState(history.state, "", write({ ...selection, event: item.seq, span: null }));
  readSelection();
  tree.draw(state, selection);
  if (item.span && state.spans.has(item.span)) tree.reveal(item.span);
  showView("conversation");
  conversation.revealHit(item, hit, needles);
  steps.draw();
}

function select(again = false) {
  const before = selection;
  readSelection();
  if (selection.tab == null && before.tab != null && !selection.reference) selection.tab = before.tab;
  if (again || selection.event !== before.event || selection.span !== before.span) {
    wanted = selection.event ?? selection.span;
    if (wanted != null && reveal()) wanted = null;
  }
  tree.draw(state, selection);
  chart.draw(state, subject().number);
  drawPane();
  steps.draw();
  if (selection.event != null) showView("conversation");
  else if (selection.candidate != null || selection.reference) showView("pane", selection.candidate !== before.candidate || selection.tab !== before.tab || selection.reference);
}

function showProgress() {
  const left = head - state.last;
  part("loading").hidden = caughtUp || left <= 0 || head < 500;
  if (left > 0) setText(part("loading"), `Reading the trace: ${state.last.toLocaleString("en")} of ${counted(head, "event")}`);
}

function showConnection(name, said = "") {
  const words = { live: "live", polling: "reconnecting …", offline: "offline: waiting for the network", finished: "finished" };
  const label = part("connection");
  label.dataset.state = name;
  setText(label.querySelector("span:last-child"), said || (words[name] ?? name));
}

// On a narrow screen, only one pane is shown at a time.
function showView(name, wish = true) {
  if (!wish) return;
  root.dataset.view = name;
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("[data-view-button]"))) button.setAttribute("aria-pressed", String(button.dataset.viewButton === name));
}

function collapseAll() {
  const collapsed = !conversation.allCollapsed;
  conversation.collapseAll(collapsed);
  setText(part("collapse"), collapsed ? "Expand all" : "Collapse all");
}

root.addEventListener("click", (event) => {
  const target = /** @type {Element} */ (event.target);
  const view = /** @type {HTMLElement | null} */ (target.closest("[data-view-button]"));
  if (view) showView(view.dataset.viewButton);
  if (target.closest("[data-part=pane-follow]")) go({ tab: selection.tab });
  if (target.closest("[data-part=collapse]")) collapseAll();
  if (target.closest("[data-open-dialog]")) /** @type {HTMLDialogElement} */ (document.getElementById("run-yourself")).showModal();
});

function step(by) {
  const numbers = [...state.candidates.keys()].sort((a, b) => a - b);
  if (!numbers.length) return;
  const at = numbers.indexOf(subject().number);
  go({ candidate: numbers[Math.min(numbers.length - 1, Math.max(0, at + by))], tab: selection.tab });
}

wireSteering({ root, part, controlUrl: config.control });
addEventListener("hashchange", () => location.hash !== selectedHash && select());
shortcut("j", "next candidate", () => step(1));
shortcut("k", "previous candidate", () => step(-1));
shortcut("f", "follow the conversation, or stop", () => conversation.setFollowing(!conversation.following));
shortcut("z", "collapse or expand all entries", collapseAll);
shortcut("y", "copy the link to the selected entry", () => conversation.copies.copy(conversation.selected ?? state.items.at(-1)?.id, "link"));
["diff", "report", "timeline", "kernels"].forEach((tab, index) => shortcut(String(index + 1), tab, () => go({ ...selection, event: null, span: null, tab })));

setInterval(() => {
  if (document.hidden || (state.run.state === "finished" && caughtUp)) return;
  header.tick();
  tree.tick();
  conversation.tick();
  finder.tick();
}, 1000);

if (selection.candidate != null || selection.reference) showView("pane");
if (caughtUp) {
  header.draw(state);
  chart.draw(state, null);
  drawPane();
  steps.draw();
  root.dataset.ready = "1";
}
start();
