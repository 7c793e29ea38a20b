// @ts-check
// Draws the leaderboard's charts and heat map from the data sent by the server, and redraws them after each change of the filters.
import "./filters.js";
import { showCost } from "./cost.js";
import { showFast } from "./fast.js";
import { showHeat } from "./heat.js";

function start() {
  const data = document.getElementById("board-curves");
  if (!data) return;
  const curves = JSON.parse(data.textContent);
  showFast(document.querySelector("[data-plot=fast]"), curves);
  showCost(document.querySelector("[data-plot=cost]"), curves);
  showHeat(document.querySelector("[data-heat]"));
}

document.addEventListener("board:shown", start);
start();
