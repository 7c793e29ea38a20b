// @ts-check
// Keeps the full texts that the reader has opened: messages, exchanges with models, and truncated strings. Rows come and go, but this data stays.
async function ask(url) {
  const answer = await fetch(url, { credentials: "same-origin", headers: { accept: "application/json" } });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `the server answered ${answer.status}`);
  return answer.json();
}

export class Reading {
  // `changed(item)` redraws the item.
  constructor(changed) {
    this.changed = changed;
    this.messages = new Map(); // item id -> {text, next, characters, loading, error}
    this.calls = new Map(); // item id -> {texts, settings, loading, error}
    this.strings = new Map(); // item id -> {fields: {name: text}} for strings that arrived truncated
  }

  of(item) {
    return this.messages.get(item.id) ?? null;
  }

  async open(item) {
    if (this.messages.has(item.id)) return;
    const opened = { text: item.text, next: null, characters: item.characters, loading: !item.whole, error: "" };
    this.messages.set(item.id, opened);
    this.changed(item);
    if (!item.whole) await this.load(item, opened, 0);
  }

  close(item) {
    this.messages.delete(item.id);
    this.changed(item);
  }

  async next(item) {
    const opened = this.of(item);
    if (opened?.next != null && !opened.loading) await this.load(item, opened, opened.next);
  }

  async load(item, opened, from) {
    opened.loading = true;
    opened.error = "";
    try {
      const found = await ask(`messages/${item.seq}?from=${from}`);
      opened.text = from ? opened.text + found.text : found.text;
      Object.assign(opened, { next: found.next, characters: found.characters });
    } catch (error) {
      opened.error = `The rest could not be loaded: ${error.message}.`;
    }
    opened.loading = false;
    this.changed(item);
  }

  // The full text, however long, for copying and searching.
  async whole(item) {
    if (item.whole || !item.done) return item.text;
    let text = "";
    for (let from = 0; from != null; ) {
      const found = await ask(`messages/${item.seq}?from=${from}`);
      text += found.text;
      from = found.next;
    }
    return text;
  }

  async call(item) {
    const opened = { loading: true, texts: [], settings: {}, error: "" };
    this.calls.set(item.id, opened);
    this.changed(item);
    try {
      Object.assign(opened, await ask(`calls/${item.seq}`));
    } catch (error) {
      opened.error = `The exchange could not be loaded: ${error.message}.`;
    }
    opened.loading = false;
    this.changed(item);
  }

  closeCall(item) {
    this.calls.delete(item.id);
    this.changed(item);
  }

  async callNext(item, index) {
    const text = this.calls.get(item.id)?.texts[index];
    if (text?.next == null) return;
    try {
      const found = await ask(`calls/${item.seq}?text=${index}&from=${text.next}`);
      Object.assign(text, { text: text.text + found.text, next: found.next });
    } catch (error) {
      this.calls.get(item.id).error = `The rest could not be loaded: ${error.message}.`;
    }
    this.changed(item);
  }

  // The events as they were written, for copying and for strings that arrived truncated.
  async events(seqs) {
    const found = await Promise.all(seqs.map((seq) => ask(`events?since=${seq - 1}&limit=1`)));
    return found.flatMap(({ events }) => events);
  }

  async openStrings(item) {
    try {
      const [event] = await this.events([item.seq]);
      this.strings.set(item.id, Object.fromEntries(Object.keys(item.cut).map((name) => [name, String(event.payload[name] ?? "")])));
    } catch (error) {
      this.strings.set(item.id, { error: error.message });
    }
    this.changed(item);
  }
}
