// The live page of a run: events come in over the connection, are folded into the state, and what changed is drawn in the next frame.
import { Connection } from "./connection.js";
import { Chart } from "./chart.js";
import { Conversation } from "./conversation.js";
import { setText } from "./dom.js";
import { Header } from "./header.js";
import { Pane } from "./pane.js";
import { parse, write } from "./selection.js";
import { bestCandidate, createChanges, createState, fold } from "./store.js";
import { Tree } from "./tree.js";
import { shortcut } from "../lib/keys.js";
import { say } from "../lib/say.js";

const root = document.getElementById("run");
const config = { ...JSON.parse(document.getElementById("run-config").textContent), timelineWorker: root.dataset.timelineWorker };
const part = (name) => root.querySelector(`[data-part="${name}"]`);

// Elapsed times follow the server's clock, whatever this machine's says.
const skew = Date.parse(config.now) - Date.now();
const now = () => Date.now() + skew;

const state = createState();
let changes = createChanges();
let selection = parse(location.hash);
let wanted = selection.event ?? selection.span; // to be scrolled to as soon as it is drawn
let head = config.lastSeq;
let scheduled = false;
let caughtUp = head === 0; // until then header, chart and pane keep what the server drew: nobody needs to see a replay

const header = new Header(root, config, now);
const chart = new Chart(part("chart"));
const tree = new Tree(part("tree"), now);
const conversation = new Conversation({ pane: part("conversation"), scroller: part("scroller"), list: part("entries"), follow: part("follow"), newer: part("newer"), now, forks: Boolean(part("fork")) });
const pane = new Pane({ root, config, onTab: (tab) => go({ ...selection, event: null, span: null, tab }) });

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

function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(draw);
}

function draw() {
  scheduled = false;
  const done = changes;
  changes = createChanges();
  const first = !caughtUp && state.last >= head;
  caughtUp ||= first;
  if (first || (caughtUp && (done.header || done.candidates.size))) header.draw(state);
  if (conversation.draw(state, done.items)) schedule();
  if (done.tree || done.candidates.size) tree.draw(state, selection);
  if (first || (caughtUp && (done.chart || done.header))) chart.draw(state, subject().number);
  if (first || (caughtUp && (done.candidates.size || done.timelines || done.header))) drawPane();
  if (wanted != null && reveal()) wanted = null;
  showProgress();
  if (caughtUp && !first && done.notices.length) say(done.notices.at(-1));
  if (state.run.state === "finished" && state.last >= head) {
    connection.stop();
    if (!conversation.pending.size) showConnection("finished");
  }
}

// What the right pane shows: the selected thing, else the best of a finished run, else the newest candidate.
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

function reveal() {
  const id = selection.event != null ? entryOf(selection.event) : state.spans.get(selection.span)?.firstItem;
  return id ? conversation.reveal(id) : false;
}

// Not every event has an entry of its own: a stage or a piece of a text belongs to the one before it.
function entryOf(seq) {
  return seq <= state.last ? state.items.findLast((item) => item.seq <= seq)?.id : null;
}

function go(next) {
  const hash = write(next);
  if (hash === location.hash || (hash === "#" && !location.hash)) select();
  else location.hash = hash;
}

function select() {
  const before = selection;
  selection = parse(location.hash);
  if (selection.tab == null && before.tab != null && !selection.reference) selection.tab = before.tab;
  if (selection.event !== before.event || selection.span !== before.span) {
    wanted = selection.event ?? selection.span;
    if (wanted != null && reveal()) wanted = null;
  }
  tree.draw(state, selection);
  chart.draw(state, subject().number);
  drawPane();
  if (selection.candidate != null || selection.reference) showView("pane", selection.candidate !== before.candidate || selection.tab !== before.tab || selection.reference);
  else if (selection.event != null) showView("conversation", true);
}

function showProgress() {
  const left = head - state.last;
  part("loading").hidden = caughtUp || left <= 0 || head < 500;
  if (left > 0) setText(part("loading"), `Reading the trace: ${state.last.toLocaleString("en")} of ${head.toLocaleString("en")} events`);
}

function showConnection(name, said = "") {
  const words = { live: "live", polling: "reconnecting …", offline: "offline: waiting for the network", finished: "finished" };
  const label = part("connection");
  label.dataset.state = name;
  setText(label.querySelector("span:last-child"), said || (words[name] ?? name));
}

// On a narrow screen one pane is shown at a time.
function showView(name, wish = true) {
  if (!wish) return;
  root.dataset.view = name;
  for (const button of root.querySelectorAll("[data-view-button]")) button.setAttribute("aria-pressed", String(button.dataset.viewButton === name));
}

root.addEventListener("click", async (event) => {
  const view = event.target.closest("[data-view-button]");
  if (view) showView(view.dataset.viewButton);
  const control = event.target.closest("button[data-action]");
  if (control) await ask(control);
  if (event.target.closest("[data-part=pane-follow]")) go({ tab: selection.tab });
  if (event.target.closest("[data-open-dialog]")) document.getElementById("run-yourself").showModal();
});

async function ask(button) {
  const { action } = button.dataset;
  if (action === "cancel" && !button.dataset.sure) {
    button.dataset.sure = "1";
    const before = button.textContent;
    button.textContent = "Really cancel?";
    setTimeout(() => {
      delete button.dataset.sure;
      button.textContent = before;
    }, 4000);
    return;
  }
  button.disabled = true;
  const body = new FormData();
  body.set("action", action);
  const token = JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];
  try {
    const answer = await fetch(config.control, { method: "POST", body, headers: { "X-CSRFToken": token, accept: "application/json" }, credentials: "same-origin" });
    if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `the server answered ${answer.status}`);
  } catch (error) {
    part("control-error").textContent = error.message;
    say(error.message);
    button.disabled = false;
  }
}

part("note")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.currentTarget;
  const button = form.querySelector("button");
  button.disabled = true;
  part("control-error").textContent = "";
  try {
    const answer = await fetch(form.action, { method: "POST", body: new FormData(form), headers: { accept: "application/json" }, credentials: "same-origin" });
    if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `the server answered ${answer.status}`);
    form.elements.text.value = "";
    say("The note is on its way to the next prompt.");
  } catch (error) {
    part("control-error").textContent = error.message;
    say(error.message);
  }
  button.disabled = false;
});

function step(by) {
  const numbers = [...state.candidates.keys()].sort((a, b) => a - b);
  if (!numbers.length) return;
  const at = numbers.indexOf(subject().number);
  go({ candidate: numbers[Math.min(numbers.length - 1, Math.max(0, at + by))], tab: selection.tab });
}

part("note")?.elements.text.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  part("note").requestSubmit();
});

addEventListener("hashchange", select);
shortcut("j", "next candidate", () => step(1));
shortcut("k", "previous candidate", () => step(-1));
shortcut("f", "follow the conversation, or stop", () => conversation.setFollowing(!conversation.following));
shortcut("1", "diff", () => go({ ...selection, event: null, span: null, tab: "diff" }));
shortcut("2", "report", () => go({ ...selection, event: null, span: null, tab: "report" }));
shortcut("3", "timeline", () => go({ ...selection, event: null, span: null, tab: "timeline" }));
shortcut("4", "kernels", () => go({ ...selection, event: null, span: null, tab: "kernels" }));

setInterval(() => {
  if (document.hidden || (state.run.state === "finished" && caughtUp)) return;
  header.tick();
  tree.tick();
  conversation.tick();
}, 1000);

if (selection.candidate != null || selection.reference) showView("pane");
if (caughtUp) {
  header.draw(state);
  chart.draw(state, null);
  drawPane();
}
connection.start();
