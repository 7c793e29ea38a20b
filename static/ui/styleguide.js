// @ts-check
// The content security policy forbids style attributes, so each swatch gets its token here.
for (const swatch of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-token]"))) swatch.style.background = `var(--${swatch.dataset.token})`;
