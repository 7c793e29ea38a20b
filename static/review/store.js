// @ts-check
// Keeps the threads of one run current. All changes after the cursor are requested whenever something may have changed, and also by a slow poll.
const POLL_MS = 20000;

export class Refused extends Error {}

export class Store extends EventTarget {
  constructor({ base, me, live }) {
    super();
    this.base = `${base}review/`;
    this.me = me;
    this.live = live;
    this.seq = 0;
    this.threads = new Map();
    this.asking = null;
    this.again = false;
    this.loaded = false;
  }

  get open() {
    return [...this.threads.values()].filter((thread) => !thread.resolved);
  }

  get unread() {
    return [...this.threads.values()].filter((thread) => thread.unread).length;
  }

  start() {
    setInterval(() => document.hidden || this.sync(), POLL_MS);
    document.addEventListener("visibilitychange", () => document.hidden || this.sync());
    return this.sync();
  }

  // One request at a time. A hint that arrives in the meantime causes one more.
  sync() {
    if (this.asking) {
      this.again = true;
      return this.asking;
    }
    this.asking = this.ask().finally(() => {
      this.asking = null;
      if (this.again) {
        this.again = false;
        this.sync();
      }
    });
    return this.asking;
  }

  async ask() {
    let answer;
    try {
      answer = await fetch(`${this.base}state?since=${this.seq}`, { credentials: "same-origin", headers: { accept: "application/json" } });
    } catch {
      return; // the network is down; the next request will cover the same changes
    }
    if (!answer.ok) return;
    const { seq, threads, verdicts } = await answer.json();
    const changed = [];
    for (const thread of threads) {
      if (this.threads.get(thread.id)?.seq === thread.seq && !thread.gone) continue;
      if (thread.gone) this.threads.delete(thread.id);
      else this.threads.set(thread.id, thread);
      changed.push(thread.id);
    }
    this.seq = seq;
    const first = !this.loaded;
    this.loaded = true;
    if (changed.length || first) this.dispatchEvent(new CustomEvent("change", { detail: { changed, first } }));
    this.dispatchEvent(new CustomEvent("verdicts", { detail: verdicts }));
  }

  async comments(thread) {
    const answer = await fetch(`${this.base}threads/${thread}`, { credentials: "same-origin" });
    if (!answer.ok) throw new Refused(answer.status === 404 ? "This thread is gone." : `The server answered ${answer.status}.`);
    return new DOMParser().parseFromString(await answer.text(), "text/html").body;
  }

  async placed(candidate, against) {
    const answer = await fetch(`${this.base}placed?candidate=${candidate}&against=${against}`, { credentials: "same-origin" });
    return answer.ok ? (await answer.json()).places : [];
  }

  // Sends an action and applies its changes immediately. Throws `Refused` with the server's explanation.
  async act(path, fields) {
    let answer;
    try {
      answer = await fetch(this.base + path, { method: "POST", credentials: "same-origin", headers: { "X-CSRFToken": token(), accept: "application/json" }, body: new URLSearchParams(fields) });
    } catch {
      throw new Refused("The server isn't responding. Your text is still here.");
    }
    const said = answer.status === 204 ? {} : await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Refused(said.error ?? `The server answered ${answer.status}.`);
    await this.sync();
    return said;
  }

  // Records that the reader has seen the current state of a thread.
  seen(id) {
    const thread = this.threads.get(id);
    if (!thread?.unread) return;
    thread.unread = 0;
    this.dispatchEvent(new CustomEvent("change", { detail: { changed: [] } }));
    fetch(`${this.base}read`, { method: "POST", credentials: "same-origin", keepalive: true, headers: { "X-CSRFToken": token() }, body: new URLSearchParams({ seq: thread.seq, thread: id }) }).catch(() => {});
  }
}

// Every page passes the token to htmx in its frame. The cookie may be different or inaccessible.
const token = () => JSON.parse(document.body.getAttribute("hx-headers") ?? "{}")["X-CSRFToken"] ?? "";
