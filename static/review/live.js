// @ts-check
// One websocket per page, for the number of unread notifications, changes to the review of the run on the page, and its other viewers. Every message
// is a hint or a complete state (webapp/review/consumers.py), so the server simply sends them again after a reconnect.
const BACKOFF_MS = [500, 1000, 2000, 4000, 8000, 15000];
const FINAL = new Set([4400, 4401, 4404]); // bad message, signed out, no access

class Live extends EventTarget {
  constructor() {
    super();
    this.tries = 0;
    this.watched = null; // {run, place}
    this.ended = false;
  }

  start() {
    if (this.socket || this.ended) return;
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/review/`);
    this.socket = socket;
    socket.onopen = () => {
      this.tries = 0;
      if (this.watched) this.say({ type: "watch", ...this.watched, place: this.place });
    };
    socket.onmessage = ({ data }) => {
      const { type, ...detail } = JSON.parse(data);
      this.dispatchEvent(new CustomEvent(type, { detail }));
    };
    socket.onclose = ({ code }) => {
      this.socket = null;
      if (FINAL.has(code)) {
        this.ended = true;
        return;
      }
      const wait = BACKOFF_MS[Math.min(this.tries, BACKOFF_MS.length - 1)] * (0.75 + Math.random() / 2);
      this.tries += 1;
      setTimeout(() => this.start(), wait);
    };
  }

  // A hidden page reports no place.
  get place() {
    return document.hidden ? "" : this.watched.place;
  }

  watch(run, place) {
    this.watched = { run, place };
    this.say({ type: "watch", run, place: this.place });
    document.addEventListener("visibilitychange", () => this.say({ type: "place", place: this.place }));
  }

  move(place) {
    if (!this.watched || this.watched.place === place) return;
    this.watched.place = place;
    this.say({ type: "place", place: this.place });
  }

  say(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }
}

export const live = new Live();
