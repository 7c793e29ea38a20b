// @ts-check
// The timeline's own page: shortcuts that work anywhere, a URL that reflects the view, and Open in Perfetto.
import { keysOnPage } from "./keys.js";
import { readLink, writeLink } from "./link.js";
import { mountTimelines } from "./mount.js";
import { openInPerfetto } from "./perfetto.js";
import { rowKey } from "./rows.js";

const root = document.querySelector(".timeline-page");
const [box] = mountTimelines(root);
let written = "";

function follow() {
  const link = readLink(location.hash);
  if (box.anchors?.[link.anchor] && link.anchor !== box.anchorIndex) box.align(link.anchor);
  if (link.q) {
    box.toolbar.search.value = link.q;
    box.toolbar.toggleExpression(Boolean(link.expression));
  }
  if (link.t) box.set(link.t.from, link.t.to);
  if (link.m) {
    const lane = box.lanes[0];
    const lines = link.rows ? lane.laid.lines.filter((line) => line.rows.some((row) => link.rows.includes(rowKey(row))) && line.tracks.length) : [];
    box.measure(lane, link.m.from + lane.offset, link.m.to + lane.offset, lines);
    if (!link.t) box.show(link.m.from, link.m.to);
  }
  if (link.sel) {
    const lane = box.lanes[link.sel.lane];
    if (lane && link.sel.event < lane.model.count) {
      box.select(lane, link.sel.event, { reveal: !link.t });
      lane.showRow(link.sel.event);
    }
  }
}

// The URL is updated whenever the view comes to rest, so that it can be copied at any time.
function remember() {
  const bounds = box.bounds();
  const whole = box.range.from <= bounds.from && box.range.to >= bounds.to;
  const lane = box.lanes[0];
  const chosen = box.active.selected >= 0 ? { lane: box.active.index, event: box.active.selected } : null;
  const hash = writeLink({
    view: whole ? null : box.range,
    measure: box.measuredRange,
    rows: lane.measure?.rows?.map(rowKey) ?? null,
    selected: chosen,
    search: lane.matches?.text ?? "",
    expression: lane.matches?.asExpression ?? false,
    anchor: box.anchors && box.anchorIndex !== box.usualAnchor ? box.anchorIndex : null,
  });
  if (hash === written) return;
  written = hash;
  history.replaceState(history.state, "", hash || location.pathname + location.search);
}

box.ready.then((drawn) => {
  if (!drawn || !box.lanes[0].painter) return;
  keysOnPage(box);
  if (location.hash) follow();
  box.element.addEventListener("timeline:rest", remember);
  addEventListener("hashchange", () => location.hash !== written && follow());
});

for (const button of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("[data-perfetto]"))) {
  const status = document.getElementById(button.getAttribute("aria-describedby"));
  button.addEventListener("click", () =>
    openInPerfetto({
      url: button.dataset.perfetto,
      title: button.dataset.title,
      say: (text, bad = false) => {
        status.textContent = text;
        status.classList.toggle("bad", bad);
      },
    }),
  );
}
