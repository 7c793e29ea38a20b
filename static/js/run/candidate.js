// @ts-check
// The candidate's own page: the folds of its diff, its timeline, and keys for stepping to the next candidate.
import { diffKeys, wireDiffs } from "./diff.js";
import { mountTimelines } from "../timeline/mount.js";
import { shortcut } from "../lib/keys.js";

const root = document.getElementById("candidate");
diffKeys(wireDiffs(root), shortcut);
mountTimelines(root);

root.addEventListener("click", (event) => {
  if (/** @type {Element} */ (event.target).closest("[data-open-dialog]")) /** @type {HTMLDialogElement} */ (document.getElementById("run-yourself")).showModal();
});

for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (root.querySelectorAll("[data-step]"))) shortcut(link.dataset.step, link.rel === "next" ? "next candidate" : "previous candidate", () => link.click());
