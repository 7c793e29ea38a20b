// @ts-check
// The right pane shows the selected candidate's diff, report, timeline and kernels. The server renders and escapes the fragments for the diff, report
// and kernels. The timeline is drawn here.
import { chip } from "./format.js";
import { figuresOf, headlineOf } from "./headline.js";
import { h, setText } from "./dom.js";
import { TABS } from "./selection.js";
import { TimelineView } from "../timeline/view.js";
import { wireDiffs } from "./diff.js";

const NAMES = { diff: "Diff", report: "Report", timeline: "Timeline", kernels: "Kernels" };

const figuresOfVerdict = (candidate, report = null) => (candidate?.speedup ? figuresOf(headlineOf(candidate, report), true) : []);

export class Pane {
  constructor({ root, config, reports, onTab }) {
    this.root = root;
    this.config = config;
    this.reports = reports;
    this.onTab = onTab;
    this.part = (name) => root.querySelector(`[data-part="${name}"]`);
    this.body = this.part("pane-body");
    this.shownKey = "";
    this.diffQuery = new Map(); // the reader's choices for the diff: against, view
    this.scrolls = new Map();
    this.buildTabs();
    this.body.addEventListener("click", (event) => this.clicked(event));
    this.body.addEventListener("change", (event) => this.changed(event));
    wireDiffs(this.body);
  }

  buildTabs() {
    this.tabs = new Map(TABS.map((name) => [name, h("button", { type: "button", role: "tab", id: `tab-${name}`, "data-tab": name }, NAMES[name])]));
    const list = this.part("pane-tabs");
    list.replaceChildren(...this.tabs.values());
    // lib/tabs.js moves the selection by click and arrow keys. All tabs share one panel, so no tab has aria-controls.
    list.addEventListener("tabselect", (event) => this.onTab(/** @type {HTMLElement} */ (event.target).dataset.tab));
  }

  // `subject` is a candidate's number or "reference", or null if there is nothing to show yet.
  draw(state, subject, tab, followed) {
    this.state = state;
    const candidate = typeof subject === "number" ? (state.candidates.get(subject) ?? null) : null;
    this.drawHead(subject, candidate, followed);
    for (const [name, button] of this.tabs) {
      const selected = name === tab;
      button.setAttribute("aria-selected", String(selected));
      button.tabIndex = selected ? 0 : -1;
      button.hidden = subject == null || (subject === "reference" && name !== "timeline");
    }
    this.body.setAttribute("aria-labelledby", `tab-${tab}`);
    if (subject == null) {
      if (state.run.state === "finished") return this.say("none", "This run ended before producing a program.");
      return this.say("empty", "Diffs, reports and timelines will appear here as candidates are produced.");
    }
    if (subject === "reference" || tab === "timeline") return this.drawTimeline(subject, candidate);
    if (!candidate?.seq) return this.say("none", `There is no candidate ${subject} in this run${state.run.state === "finished" ? "" : " yet"}.`);
    if (tab !== "diff" && !candidate.resultSeq) return this.say(`wait ${subject} ${tab}`, "Verification in progress: the report will appear here.");
    this.drawFragment(candidate, tab);
  }

  drawHead(subject, candidate, followed) {
    const key = `${subject} ${this.state.run.state} ${candidate?.title} ${candidate?.status} ${candidate?.resultSeq} ${candidate?.running} ${followed}`;
    if (key === this.headKey) return;
    this.headKey = key;
    const title = subject === "reference" ? "The reference" : subject == null ? "Candidates" : `Candidate ${subject}`;
    setText(this.part("pane-title"), title);
    const facts = [];
    if (candidate?.title) facts.push(h("span", { class: "pane-name" }, candidate.title));
    if (candidate?.status) facts.push(chip(candidate.status));
    else if (candidate?.running) facts.push(chip("running", "being verified"));
    this.part("pane-facts").replaceChildren(...facts, ...figuresOfVerdict(candidate));
    if (candidate?.speedup && candidate.tier === "full" && candidate.result?.sha)
      this.reports.get(candidate.result.sha).then((report) => key === this.headKey && this.part("pane-facts").replaceChildren(...facts, ...figuresOfVerdict(candidate, report)));
    const links = this.part("pane-links");
    links.replaceChildren(
      ...(candidate?.seq ? [h("a", { href: `candidates/${subject}/` }, "Open page"), h("a", { href: `candidates/${subject}/program.py`, download: true }, "Download")] : []),
    );
    this.part("pane-follow").hidden = followed || subject == null;
    setText(this.part("pane-follow"), this.state.run.state === "finished" && this.state.run.best != null ? "Best" : "Newest");
  }

  say(key, text) {
    if (this.shownKey === key) return;
    this.leave(key);
    this.body.replaceChildren(h("p", { class: "pane-note muted" }, text));
  }

  // Switches to `key` and remembers the scroll position of the current content.
  leave(key) {
    if (this.shownKey) this.scrolls.set(this.shownKey, this.body.scrollTop);
    this.timeline?.destroy();
    this.timeline = null;
    this.shownKey = key;
  }

  drawFragment(candidate, tab) {
    const query = tab === "diff" ? new URLSearchParams(this.diffQuery.get(candidate.number) ?? this.diffQuery.get("all") ?? "").toString() : "";
    const key = `${candidate.number} ${tab} ${query}`;
    const version = candidate.resultSeq;
    if (key === this.shownKey && version === this.shownVersion) return;
    const refresh = key === this.shownKey;
    if (!refresh) {
      this.leave(key);
      this.body.setAttribute("aria-busy", "true");
    }
    this.shownVersion = version;
    this.load(`candidates/${candidate.number}/${tab}${query ? `?${query}` : ""}`, key, version, refresh);
  }

  async load(url, key, version, refresh) {
    let content;
    try {
      const answer = await fetch(url, { credentials: "same-origin", headers: { "X-Requested-With": "fetch" } });
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      content = new DOMParser().parseFromString(await answer.text(), "text/html").body;
    } catch (error) {
      if (key !== this.shownKey) return;
      this.shownVersion = null;
      content = h("div", null, h("p", { class: "pane-note" }, `This could not be loaded: ${error.message}. `, h("button", { type: "button", class: "button small", onclick: () => this.load(url, key, version, refresh) }, "Try again")));
    }
    if (key !== this.shownKey || (version !== this.shownVersion && this.shownVersion !== null)) return;
    const top = refresh ? this.body.scrollTop : this.scrolls.get(key);
    this.body.replaceChildren(...content.childNodes);
    this.body.removeAttribute("aria-busy");
    this.body.scrollTop = top ?? this.firstKernel();
  }

  // The initial scroll position of a diff, which shows its first kernel near the top.
  firstKernel() {
    const line = this.body.querySelector("[data-opens-at]")?.dataset.opensAt;
    const row = line && this.body.querySelector(`[id="R${line}"]`)?.closest("tr");
    if (!row) return 0;
    const down = row.getBoundingClientRect().top - this.body.getBoundingClientRect().top;
    return down < this.body.clientHeight / 2 ? 0 : Math.max(0, down - this.body.clientHeight / 4);
  }

  drawTimeline(subject, candidate) {
    const found = subject === "reference" ? this.state.timelines.findLast((known) => known.candidate == null)?.timeline : candidate?.timeline;
    if (!found) {
      const text = subject === "reference" ? "The reference hasn't been profiled yet." : "No timeline for this candidate: only the best candidates are profiled.";
      return this.say(`no timeline ${subject}`, text);
    }
    const key = `timeline ${subject} ${found.sha}`;
    if (key === this.shownKey) return;
    this.leave(key);
    const others = this.state.timelines.filter((known) => known.timeline.sha !== found.sha);
    const box = h("div", { class: "timeline-box in-pane" });
    this.body.replaceChildren(
      h(
        "p",
        { class: "facts-line timeline-links" },
        h("a", { href: `timeline/${found.sha}/` }, "Open large"),
        subject !== "reference" && others.some((known) => known.candidate == null) ? h("a", { href: `timeline/${found.sha}/?against=reference` }, "Against the reference") : null,
        others.map((known) => h("a", { href: known.candidate == null ? "#reference&tab=timeline" : `#candidate=${known.candidate}&tab=timeline` }, known.candidate == null ? "The reference" : `Candidate ${known.candidate}`)),
      ),
      box,
    );
    this.body.scrollTop = 0;
    this.timeline = new TimelineView(box, { url: `artefacts/${found.sha}`, worker: this.config.timelineWorker, name: subject === "reference" ? "the reference" : `candidate ${subject}` });
  }

  // Links and selects that lead to another version of a fragment stay in the pane.
  clicked(event) {
    const link = event.target.closest("a[data-diff-query]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    this.choose(new URL(link.href).searchParams);
  }

  changed(event) {
    const form = event.target.closest("form[data-diff-form]");
    if (!form) return;
    this.choose(new URLSearchParams([...new FormData(form)].map(([name, value]) => [name, String(value)])));
  }

  choose(params) {
    const number = Number(this.shownKey.split(" ")[0]);
    params.delete("tab");
    this.diffQuery.set(number, params.toString());
    const layout = params.get("view");
    if (layout) this.diffQuery.set("all", `view=${layout}`);
    const candidate = this.state.candidates.get(number);
    if (candidate) this.drawFragment(candidate, "diff");
  }
}
