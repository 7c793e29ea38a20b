// @ts-check
// "Open in Perfetto" sends the trace from this page to a tab of ui.perfetto.dev by postMessage. The trace is sent nowhere else, and only when the
// user clicks. No other feature needs another host. Protocol: PING until PONG, then {perfetto: {buffer, title}}
// (https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui).
const PERFETTO = "https://ui.perfetto.dev";
const PING_EVERY = 100; // ms
const PATIENCE = 20_000; // ms after which the page reports that Perfetto does not respond

// `say(text, bad)` reports progress. Resolves to whether Perfetto has accepted the trace.
export async function openInPerfetto({ url, title, say }) {
  if (!navigator.onLine) {
    say("This browser is offline, and Perfetto is a page of its own at ui.perfetto.dev. Download the Chrome trace instead and open it there later.", true);
    return false;
  }
  const tab = window.open(PERFETTO); // must come before any await, or the browser blocks it as a pop-up
  if (!tab) {
    say("The browser refused to open a tab. Allow pop-ups for this page, or download the Chrome trace and open it at ui.perfetto.dev.", true);
    return false;
  }
  say("Perfetto is opening; the trace is being written …");
  try {
    const [buffer] = await Promise.all([trace(url), answered(tab)]);
    tab.postMessage({ perfetto: { buffer, title, url: location.href, localOnly: true } }, PERFETTO, [buffer]);
  } catch (error) {
    say(error.message, true);
    return false;
  }
  say("Perfetto has the trace. It asks once whether it may trust this page.");
  return true;
}

async function trace(url) {
  const answer = await fetch(url, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(`The Chrome trace could not be written: the server answered ${answer.status}.`);
  return answer.arrayBuffer();
}

function answered(tab) {
  return new Promise((resolve, reject) => {
    const began = Date.now();
    const end = (action) => {
      clearInterval(timer);
      removeEventListener("message", heard);
      action();
    };
    const heard = (event) => {
      if (event.origin === PERFETTO && event.source === tab && event.data === "PONG") end(resolve);
    };
    const timer = setInterval(() => {
      if (tab.closed) end(() => reject(new Error("The tab was closed before Perfetto had loaded. Download the Chrome trace instead, or try again.")));
      else if (Date.now() - began > PATIENCE) end(() => reject(new Error("ui.perfetto.dev does not answer: this network may not reach it. Download the Chrome trace instead.")));
      else tab.postMessage("PING", PERFETTO);
    }, PING_EVERY);
    addEventListener("message", heard);
  });
}
