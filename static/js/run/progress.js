// @ts-check
// Estimates how long something will take, based on similar past durations, and corrects the estimate over time.
import { counted } from "../lib/words.js";
import { seconds } from "./format.js";

const OF_THE_PAST = 2; // number of this run's candidates that weigh as much as the durations of finished runs
const LEAST_LEFT = 0.1; // as a fraction of the elapsed time, because something that outlasts its estimate is not about to end
const POLL = 5000; // ms

// Formats progress as "12 s of about 20 s". If it takes longer than usual, the text says so.
export function progressText(spent, expected) {
  if (expected == null) return seconds(spent, 0);
  return spent <= expected ? `${seconds(spent, 0)} of about ${seconds(expected)}` : `${seconds(spent, 0)}, longer than the usual ${seconds(expected)}`;
}

// The seconds until a run ends, or null if unknown. `usual` is the duration of similar finished runs, or null if there are too few. `passed` is the
// time since this run began.
export function secondsLeft({ run, candidates, limits }, usual, passed) {
  if (run.state !== "running") return null;
  const verified = [...candidates.values()].filter((candidate) => candidate.status).length;
  const pace = verified && limits.candidates ? (passed / verified) * Math.max(limits.candidates, verified) : null;
  const total = usual == null ? pace : pace == null ? usual : (usual * OF_THE_PAST + pace * verified) / (OF_THE_PAST + verified);
  const cap = limits.seconds == null ? Infinity : Math.max(0, limits.seconds - passed);
  if (total == null) return null;
  return Math.min(cap, Math.max(total - passed, passed * LEAST_LEFT));
}

// Rounds an estimate as a person would, because an estimate to the second would suggest too much precision.
export function roughly(value) {
  if (value < 60) return `${Math.max(10, Math.ceil(value / 10) * 10)} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1).replace(/\.0$/, "")} h`;
}

export const leftText = (value) => (value == null ? "" : `About ${roughly(value)} left.`);

// Describes the position in the queue, given the server's response (webapp/runs/workers/standing.py).
export function standingText({ what, before, at_work: busy, seconds: wait, online, device, needs_sandbox: needs }) {
  if (!what) return "";
  if (what === "verifier" && needs) return `Needs a sandbox: ${needs}. The run starts by itself once the verifier's host has one.`;
  if (what === "verifier" && !online) return `Waiting for a ${device === "cpu" ? "CPU" : "GPU"} verifier: none is online. The run starts when one connects.`;
  const whom = what === "verifier" ? "verifier" : "orchestrator";
  const place = before ? `${counted(before, "job")} ahead` : busy ? "next in line" : "starting";
  const until = wait == null || wait < 1 ? "" : `, about ${roughly(wait)}`;
  return `Waiting for a free ${whom}: ${place}${until}.`;
}

// Requests the position in the queue from the server while something is waiting.
export class Standing {
  constructor(url) {
    this.url = url;
    this.asked = 0;
    this.text = "";
  }

  // Returns the latest text, and requests a new one if it is old.
  say(fallback) {
    if (this.url && !document.hidden && Date.now() - this.asked > POLL) {
      this.asked = Date.now();
      fetch(this.url, { credentials: "same-origin", headers: { accept: "application/json" } })
        .then((answer) => (answer.ok ? answer.json() : null))
        .then((found) => (this.text = found ? standingText(found) : ""))
        .catch(() => {});
    }
    return this.text || fallback;
  }

  // Call this when nothing is waiting any more.
  rest() {
    this.asked = 0;
    this.text = "";
  }
}
