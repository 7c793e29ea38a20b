// @ts-check
// Keeps <time data-ago datetime="..."> current, worded as on the server (webapp/ui/tags.py).
export function ago(date, now = Date.now()) {
  const seconds = Math.max(0, Math.round((now - date.getTime()) / 1000));
  if (seconds < 10) return "just now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds < 30 * 86400) return `${Math.floor(seconds / 86400)} d ago`;
  return date.toISOString().slice(0, 10);
}

// Formats the time elapsed since the start of something that is still running, such as "00:42" or "1:02:03".
export function clock(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  const two = (n) => String(n).padStart(2, "0");
  return s < 3600 ? `${two(Math.floor(s / 60))}:${two(s % 60)}` : `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}

function refresh() {
  const now = Date.now();
  for (const time of /** @type {NodeListOf<HTMLTimeElement>} */ (document.querySelectorAll("time[data-ago]"))) {
    const text = ago(new Date(time.dateTime), now);
    if (time.textContent !== text) time.textContent = text;
  }
  for (const time of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-since]"))) {
    const text = clock((now - Date.parse(time.dataset.since)) / 1000);
    if (time.textContent !== text) time.textContent = text;
  }
}

export function keepTimesCurrent() {
  refresh();
  let timer = null;
  const schedule = () => {
    clearInterval(timer);
    if (!document.hidden) {
      refresh();
      timer = setInterval(refresh, 1000);
    }
  };
  document.addEventListener("visibilitychange", schedule);
  schedule();
}
