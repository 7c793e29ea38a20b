// @ts-check
// Updates heartbeats, queues and states in place every 5 s while the page is visible.
const devices = document.getElementById("devices");

setInterval(() => {
  if (!document.hidden) devices.dispatchEvent(new CustomEvent("tick"));
}, 5000);
