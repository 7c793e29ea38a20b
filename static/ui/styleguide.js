// The policy allows no style attributes: each swatch takes its token here.
for (const swatch of document.querySelectorAll("[data-token]")) swatch.style.background = `var(--${swatch.dataset.token})`;
