// @ts-check
// The live review on a page of a run: marks at commented elements, and a panel for reading and writing threads.
import { h, setText } from "../js/run/dom.js";
import { shortcut } from "../js/lib/keys.js";
import { say } from "../js/lib/say.js";
import { live } from "./live.js";
import { Marks } from "./marks.js";
import { Panel } from "./panel.js";
import { placeOf, placeOfPage, placeOfRange, whereabouts } from "./places.js";
import { Ranges } from "./ranges.js";
import { isHere, reveal } from "./reveal.js";
import { Store } from "./store.js";
import { showVerdicts } from "./verdicts.js";

const config = JSON.parse(document.getElementById("review-config").textContent);
const store = new Store(config);
const wanted = Number(new URLSearchParams(location.search).get("thread")) || null;

const panel = new Panel({
  store,
  config,
  here: (thread) => isHere(thread, marks.stands),
  reveal: (thread) => reveal(thread, marks),
  stands: (id) => marks.stands.get(id) ?? null,
  choices,
});
const openAll = (ids) => (ids.length === 1 ? panel.open(ids[0]) : panel.list());
const compose = (place) => place && panel.compose(place);
const ranges = new Ranges({ store, writes: config.writes, open: (id) => panel.open(id), comment: compose });
const marks = new Marks({ store, writes: config.writes, open: openAll, comment: compose });

// The possible subjects of a new comment, likeliest first: the focused element, the measured range, the selection, the page, the run.
function choices() {
  const focused = document.activeElement?.closest?.("[data-seq], [data-line], tr.cursor");
  const chosen = document.querySelector("tr.cursor") ?? document.querySelector("[data-seq].selected");
  const found = [focused && placeOf(focused), ranges.range && placeOfRange(ranges.range), chosen && placeOf(chosen), placeOfPage(), { anchor: { kind: "run" }, label: "the run", quote: "" }];
  const named = new Map();
  for (const place of found.filter(Boolean)) named.set(JSON.stringify(place.anchor), place);
  return [...named.values()];
}

// The button in the page's header shows the number of open threads, whether there are new comments, and the other viewers.
const count = h("span", { class: "count", hidden: true });
const dot = h("span", { class: "dot", hidden: true }, h("span", { class: "visually-hidden" }, "something new"));
const faces = h("span", { class: "review-faces", hidden: true });
const toggle = h("button", { type: "button", class: "button review-toggle", "aria-expanded": "false", "aria-controls": "review-panel", title: "Review (v)", onclick: () => panel.toggle() }, dot, "Review", count, faces);
const slot = document.querySelector("[data-review-slot]");
if (slot) slot.replaceChildren(toggle);
else {
  toggle.classList.add("floating");
  document.body.append(toggle);
}

function drawToggle() {
  setText(count, String(store.open.length));
  count.hidden = !store.open.length;
  dot.hidden = !store.unread;
}

let known = new Map();
store.addEventListener("change", (/** @type {CustomEvent<{ changed: number[], first?: boolean }>} */ { detail }) => {
  drawToggle();
  if (!detail.first) {
    const fresh = detail.changed.map((id) => store.threads.get(id)).filter((thread) => thread?.unread > (known.get(thread.id) ?? 0));
    if (fresh.length && !(panel.isOpen && panel.view.id === fresh[0].id)) say(`${fresh[0].author}'s thread on ${fresh[0].label} has a new comment.`);
  }
  known = new Map([...store.threads.values()].map((thread) => [thread.id, thread.unread]));
});
store.addEventListener("view", () => toggle.setAttribute("aria-expanded", String(panel.isOpen)));
store.addEventListener("verdicts", (/** @type {CustomEvent<object>} */ { detail }) => showVerdicts(detail));

if (config.writes) shortcut("c", "comment on what is selected", () => compose(choices()[0]), "Review");
shortcut("v", "open or close the review", () => panel.toggle(), "Review");

store.start().then(() => {
  if (!wanted) return;
  const thread = store.threads.get(wanted);
  if (!thread) return say("This thread was deleted.");
  panel.showsResolved ||= Boolean(thread.resolved);
  panel.open(wanted, { focus: false });
  reveal(thread, marks, { stay: true });
});

if (config.live) {
  live.addEventListener("review", (/** @type {CustomEvent<{ run: string, seq: number }>} */ { detail }) => detail.run === config.run && detail.seq !== store.seq && store.sync());
  live.addEventListener("presence", (/** @type {CustomEvent<{ people: { name: string, place: string }[] }>} */ { detail }) => {
    panel.showPeople(detail.people);
    faces.hidden = !detail.people.length;
    faces.replaceChildren(...detail.people.slice(0, 4).map((one) => h("span", { class: "face", title: `${one.name} is viewing ${one.place}` }, h("span", { "aria-hidden": "true" }, one.name.slice(0, 2)), h("span", { class: "visually-hidden" }, `${one.name} is viewing ${one.place}`))));
  });
  live.watch(config.run, whereabouts());
  addEventListener("hashchange", () => live.move(whereabouts()));
}

// A share link opens the current view of the page, which may have changed since the page was loaded.
document.addEventListener("click", (event) => {
  const link = /** @type {HTMLAnchorElement | null} */ (/** @type {Element} */ (event.target).closest("a[data-share]"));
  if (!link) return;
  const address = new URL(link.href);
  const here = new URLSearchParams(location.search);
  here.delete("thread");
  address.searchParams.set("place", `${location.pathname}${here.size ? `?${here}` : ""}${location.hash}`);
  link.href = address.href;
});
