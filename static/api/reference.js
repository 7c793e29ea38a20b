// @ts-check
// A link to an operation or object opens its section. All sections open for printing.

function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)))
  if (target instanceof HTMLDetailsElement && !target.open) {
    target.open = true
    target.scrollIntoView()
  }
}

addEventListener("hashchange", openTarget)
addEventListener("beforeprint", () => {
  for (const details of /** @type {NodeListOf<HTMLDetailsElement>} */ (document.querySelectorAll(".api-operation"))) details.open = true
})
openTarget()
