// @ts-check
// The bell in the bar counts unread notifications and announces new ones.
import { say } from "../js/lib/say.js";
import { counted } from "../js/lib/words.js";
import { live } from "./live.js";

const bell = document.querySelector("[data-bell]");
if (bell) {
  const count = /** @type {HTMLElement} */ (bell.querySelector("[data-unread]"));
  let known = Number(count.textContent) || 0;
  live.addEventListener("unread", (/** @type {CustomEvent<{ count: number }>} */ { detail }) => {
    count.textContent = detail.count > 99 ? "99+" : String(detail.count);
    count.hidden = !detail.count;
    if (detail.count > known) say(counted(detail.count, "unread notification"));
    known = detail.count;
  });
  live.start();
}
