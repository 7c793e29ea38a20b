// @ts-check
// Receives a run's events, each exactly once and in order, even if the network fails.
//
// Websocket: {"type":"open","since":N} -> {"type":"events","events":[...],"last":M,"head":H}, acknowledged from time to time by
// {"type":"ack","seq":M}. The cursor is the last seq in the store, so a reconnect requests exactly the missing events. While no socket is open, the
// same events are fetched over HTTP.

const BACKOFF_MS = [250, 500, 1000, 2000, 4000, 8000];
const POLL_MS = 3000; // interval while no socket is open
const SAFETY_POLL_MS = 20000; // finds events if a wake-up was lost
const REFUSED = { 4401: "signed out: reload the page to sign in", 4404: "you no longer have access to this run" }; // close codes of webapp/runs/live/consumers.py
const ACK_FRAMES = 8; // frames per acknowledgement; the server stops at 32 frames or 131,072 characters (webapp/runs/live/audience.py)
const ACK_CHARACTERS = 65536;
const SILENCE_MS = 45000; // a socket that has been silent for this long is backed up by a poll

export class Connection {
  // `take(events, head)` applies the events and returns false at a gap. `status(name, words)` is called with "live", "polling", "offline" or
  // "refused".
  constructor({ socketUrl, eventsUrl, cursor, take, status, random = Math.random }) {
    this.socketUrl = socketUrl;
    this.eventsUrl = eventsUrl;
    this.cursor = cursor;
    this.take = take;
    this.status = status;
    this.random = random;
    this.tries = 0;
    this.stopped = false;
    this.socket = null;
    this.polling = false;
  }

  start() {
    this.open();
    this.safety = setInterval(() => this.poll(), SAFETY_POLL_MS);
    addEventListener("online", () => this.reopenNow());
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && !this.live) this.reopenNow();
    });
  }

  // Call this when the run has finished, because no more events will arrive.
  stop() {
    this.stopped = true;
    clearInterval(this.safety);
    clearTimeout(this.retry);
    clearTimeout(this.silence);
    clearTimeout(this.nextPoll);
    this.socket?.close();
  }

  get live() {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  reopenNow() {
    if (this.stopped || this.live) return;
    clearTimeout(this.retry);
    this.tries = 0;
    this.open();
  }

  open() {
    if (this.stopped) return;
    const socket = new WebSocket(this.socketUrl);
    this.socket?.close();
    this.socket = socket;
    let [frames, characters] = [0, 0]; // since the last acknowledgement
    socket.onopen = () => {
      this.heard();
      socket.send(JSON.stringify({ type: "open", since: this.cursor() }));
    };
    socket.onmessage = (message) => {
      if (socket !== this.socket) return; // a late message from an older socket; the newer socket receives it again
      this.heard();
      this.tries = 0;
      this.status("live");
      const frame = JSON.parse(message.data);
      if (frame.type !== "events") return;
      const contiguous = this.take(frame.events, frame.head);
      if (!contiguous) {
        socket.close(); // events before this batch are missing, so a new socket starts at the cursor
        return;
      }
      frames += 1;
      characters += message.data.length;
      if (frames < ACK_FRAMES && characters < ACK_CHARACTERS) return;
      [frames, characters] = [0, 0];
      // Acknowledge only what came over this socket. A poll may have moved the cursor further, and acknowledging that position would include frames
      // still in transit.
      socket.send(JSON.stringify({ type: "ack", seq: frame.last }));
    };
    socket.onclose = ({ code }) => {
      if (socket !== this.socket || this.stopped) return;
      if (REFUSED[code]) {
        this.status("refused", REFUSED[code]);
        this.stop();
        return;
      }
      const wait = BACKOFF_MS[Math.min(this.tries, BACKOFF_MS.length - 1)] * (0.75 + this.random() / 2);
      this.tries += 1;
      this.status(navigator.onLine === false ? "offline" : "polling");
      this.retry = setTimeout(() => this.open(), wait);
      if (this.tries > 1) this.pollUntilLive();
    };
  }

  heard() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.poll(), SILENCE_MS);
  }

  pollUntilLive() {
    clearTimeout(this.nextPoll);
    if (this.stopped || this.live) return;
    this.poll().finally(() => {
      this.nextPoll = setTimeout(() => this.pollUntilLive(), POLL_MS);
    });
  }

  async poll() {
    if (this.polling || this.stopped) return;
    this.polling = true;
    try {
      for (;;) {
        const answer = await fetch(`${this.eventsUrl}?since=${this.cursor()}&limit=500`, { headers: { accept: "application/json" }, credentials: "same-origin" });
        if (!answer.ok) return;
        const { events, head } = await answer.json();
        this.take(events, head);
        if (!events.length || this.cursor() >= head) return;
      }
    } catch {
      // The network is down. The next poll or socket starts again from the same cursor.
    } finally {
      this.polling = false;
    }
  }
}
