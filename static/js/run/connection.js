// Brings the events of a run, each exactly once and in order, whatever the network does.
//
// Websocket: {"type":"open","since":N} -> {"type":"events","events":[...],"last":M,"head":H}, answered now and then by {"type":"ack","seq":M}.
// The cursor is the store's own last seq, so a reconnect asks for exactly what is missing. While no socket stands, the same
// events come over HTTP.

const BACKOFF_MS = [250, 500, 1000, 2000, 4000, 8000];
const POLL_MS = 3000; // while there is no socket
const SAFETY_POLL_MS = 20000; // a lost wake-up must not stop the page
const REFUSED = { 4401: "signed out: reload the page to sign in", 4404: "you no longer have access to this run" }; // close codes of webapp/runs/live/consumers.py
const ACK_FRAMES = 8; // taken without a word: the server stops at 32 frames or 131,072 characters (webapp/runs/live/audience.py)
const ACK_CHARACTERS = 65536;
const SILENCE_MS = 45000; // a socket that says nothing for so long is helped by a poll

export class Connection {
  // `take(events, head)` folds them and returns false at a gap; `status(name, words)` hears "live", "polling", "offline", "refused".
  constructor({ socketUrl, eventsUrl, cursor, take, status, random = Math.random }) {
    Object.assign(this, { socketUrl, eventsUrl, cursor, take, status, random });
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

  // A finished run has nothing more to say: the socket is let go.
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
      if (socket !== this.socket) return; // an older socket's last words; the newer one tells them again
      this.heard();
      this.tries = 0;
      this.status("live");
      const frame = JSON.parse(message.data);
      if (frame.type !== "events") return;
      const contiguous = this.take(frame.events, frame.head);
      if (!contiguous) {
        socket.close(); // something is missing before this batch: a new socket opens at the cursor
        return;
      }
      frames += 1;
      characters += message.data.length;
      if (frames < ACK_FRAMES && characters < ACK_CHARACTERS) return;
      [frames, characters] = [0, 0];
      // Of what came over this socket: the cursor may be further, by a poll, and would vouch for frames that are still on their way.
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
      // The network is away: the next poll or socket asks again from the same cursor.
    } finally {
      this.polling = false;
    }
  }
}
