// @ts-check
// Keyboard shortcuts. A page adds its own with `shortcut("x", "what it does", action)`, and they appear in the help (?). The two keys of a shortcut
// such as "g r" are pressed one after the other. Shortcuts don't fire while somebody is typing in a field.
/** @type {Map<string, { what: string, action: (event: KeyboardEvent) => void, group: string }>} */
const shortcuts = new Map();
let pending = "";
let pendingTimer = null;

export function shortcut(keys, what, action, group = "This page") {
  shortcuts.set(keys, { what, action, group });
}

// The actions available on this page, in the form that the palette lists.
export const commands = () => [...shortcuts].map(([keys, { what, action }]) => ({ keys, what, action })).filter(({ keys }) => !keys.startsWith("Ctrl+"));

const typing = (target) => target.isContentEditable || target.closest?.("input:not([type=checkbox], [type=radio]), select, textarea, .cm-editor, [data-editor]");

function press(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.composedPath().some((node) => node instanceof Element && typing(node))) return;
  if (document.querySelector("dialog[open]") && event.key !== "?") return;
  const keys = pending ? `${pending} ${event.key}` : event.key;
  clearTimeout(pendingTimer);
  pending = "";
  const found = shortcuts.get(keys);
  if (found) {
    event.preventDefault();
    found.action(event);
  } else if ([...shortcuts.keys()].some((known) => known.startsWith(`${event.key} `))) {
    pending = event.key;
    pendingTimer = setTimeout(() => (pending = ""), 1000);
  }
}

export function showHelp() {
  const dialog = /** @type {HTMLDialogElement | null} */ (document.getElementById("keyboard-help"));
  if (!dialog || dialog.open) return;
  const body = dialog.querySelector("[data-shortcuts]");
  body.replaceChildren();
  const groups = Map.groupBy ? Map.groupBy(shortcuts, ([, s]) => s.group) : new Map([["Keys", [...shortcuts]]]);
  for (const [group, entries] of [...groups].sort(([a], [b]) => (a === "This page" ? -1 : b === "This page" ? 1 : 0))) {
    const title = document.createElement("h3");
    title.textContent = group;
    const list = document.createElement("dl");
    list.className = "keys";
    for (const [keys, { what }] of entries) {
      const term = document.createElement("dt");
      keys.split(" ").forEach((key, i) => {
        if (i) term.append(" then ");
        const kbd = document.createElement("kbd");
        kbd.textContent = key === " " ? "Space" : key;
        term.append(kbd);
      });
      const text = document.createElement("dd");
      text.textContent = what;
      list.append(term, text);
    }
    body.append(title, list);
  }
  dialog.showModal();
}

document.addEventListener("keydown", press);
