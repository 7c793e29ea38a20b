// @ts-check
// The selection is stored in the URL: #candidate=4&tab=report, #event=123, #span=step-1/attempt-2, #reference&tab=timeline. If no candidate is
// selected, the page follows the newest one. The tab is independent of the candidate.

export const TABS = ["diff", "report", "timeline", "kernels"];

export function parse(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const number = (name) => (/^\d{1,9}$/.test(given.get(name) ?? "") ? Number(given.get(name)) : null);
  return {
    candidate: number("candidate"),
    event: number("event"),
    span: given.get("span"),
    reference: given.has("reference"),
    tab: TABS.includes(given.get("tab")) ? given.get("tab") : null,
  };
}

export function write({ candidate = null, event = null, span = null, reference = false, tab = null }) {
  const parts = [];
  if (candidate != null) parts.push(`candidate=${candidate}`);
  if (event != null) parts.push(`event=${event}`);
  if (span) parts.push(`span=${encodeURIComponent(span).replaceAll("%2F", "/")}`);
  if (reference) parts.push("reference");
  if (tab) parts.push(`tab=${tab}`);
  return `#${parts.join("&")}`;
}
