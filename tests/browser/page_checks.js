// The requirements on every page, checked in the page itself. Each check returns sentences about what is wrong, or none if all is well.
(() => {
  const shifts = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (entry.hadRecentInput) continue;
      const sources = entry.sources.map(({ node }) => (node instanceof Element ? node.tagName.toLowerCase() + (node.id ? `#${node.id}` : "") + [...node.classList].map((name) => `.${name}`).join("") : "text"));
      shifts.push({ value: entry.value, at: Math.round(entry.startTime), sources });
    }
  }).observe({ type: "layout-shift", buffered: true });

  const LEAST_TEXT = 12;
  const HARMFUL = new Set(["serious", "critical"]);
  const where = (element) => {
    const names = [];
    for (let at = element; at && at !== document.body && names.length < 4; at = at.parentElement) {
      names.unshift(at.tagName.toLowerCase() + (at.id ? `#${at.id}` : "") + [...at.classList].slice(0, 2).map((name) => `.${name}`).join(""));
    }
    return names.join(" > ");
  };

  // The factor by which a drawing's matrix scales a line along the text, which may be rotated.
  const scaleOf = (matrix) => (matrix ? Math.hypot(matrix.a, matrix.b) : 1);

  // Text that is visible and not only for screen readers. The size of text in a drawing includes the drawing's scale.
  function smallText() {
    const found = new Map();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (!node.data.trim()) continue;
      const element = node.parentElement;
      if (element.closest("script, style, noscript, template, textarea, select, .visually-hidden, [hidden]") || !element.checkVisibility({ visibilityProperty: true })) continue;
      let size = parseFloat(getComputedStyle(element).fontSize);
      if (element instanceof SVGElement && element.getScreenCTM) size *= scaleOf(element.getScreenCTM());
      if (size && size < LEAST_TEXT - 0.05) found.set(where(element), `text of ${size.toFixed(1)} px at ${where(element)}: "${node.data.trim().slice(0, 30)}"`);
    }
    return [...found.values()].slice(0, 6);
  }

  function frame() {
    const wrong = [];
    if (!document.title.trim() || document.title.trim() === "Stitchwork") wrong.push(`the title is "${document.title}"`);
    const heads = [...document.querySelectorAll("h1")].filter((head) => head.checkVisibility() && head.textContent.trim());
    if (heads.length !== 1) wrong.push(`${heads.length} visible h1`);
    if (!document.querySelector("main")) wrong.push("no main");
    return wrong;
  }

  function overflow() {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= innerWidth) return [];
    const inner = (element) => {
      for (let at = element.parentElement; at && at !== document.documentElement; at = at.parentElement) if (getComputedStyle(at).overflowX !== "visible") return true;
      return false;
    };
    const wide = [...document.body.querySelectorAll("*")].filter((element) => element.getBoundingClientRect().right > width + 1 && !inner(element));
    return [`the document is ${document.documentElement.scrollWidth} px wide in a window of ${innerWidth} px: ${wide.slice(-3).map(where).join("; ")}`];
  }

  const cut = new Set(["hidden", "clip"]);

  // Text that is cut off at the edge of its box without a sign that there is more.
  function clipped() {
    const found = [];
    for (const element of document.querySelectorAll("main *")) {
      const style = getComputedStyle(element);
      if (!cut.has(style.overflowX) || style.textOverflow === "ellipsis" || element.scrollWidth <= element.clientWidth + 1) continue;
      if (element.clientWidth <= 1) continue; // only for screen readers
      if (!element.innerText?.trim() || element.closest(".visually-hidden, svg, .cm-editor, .js-plotly-plot") || !element.checkVisibility({ visibilityProperty: true })) continue;
      found.push(`clipped by ${element.scrollWidth - element.clientWidth} px: ${where(element)}: "${element.innerText.trim().slice(0, 60)}"`);
    }
    return found.slice(0, 6);
  }

  const above = (element) => (element && element !== document.body ? [element, ...above(element.parentElement)] : []);
  // Elements that stay in place while the rest scrolls below them.
  const floats = (element) => above(element).some((one) => ["sticky", "fixed"].includes(getComputedStyle(one).position) || one.tagName === "DIALOG");
  const scrolledOut = (element, x, y) =>
    above(element.parentElement).some((one) => {
      if (getComputedStyle(one).overflowY === "visible") return false;
      const { left, right, top, bottom } = one.getBoundingClientRect();
      return x < left || x > right || y < top || y > bottom;
    });

  // Controls that are covered by something else. Only elements on the screen can be checked.
  function covered() {
    const found = [];
    for (const element of document.querySelectorAll("main :is(button, a, [role=tab], input, select, summary)")) {
      const { left, top, width, height } = element.getClientRects()[0] ?? { width: 0 };
      const [x, y] = [left + width / 2, top + height / 2];
      if (!width || !height || element.disabled || element.closest(".visually-hidden") || !element.checkVisibility({ visibilityProperty: true })) continue;
      const over = document.elementFromPoint(x, y);
      if (!over || element.contains(over) || over.contains(element) || over.closest("label")?.control === element) continue;
      if (floats(over) || scrolledOut(element, x, y)) continue;
      found.push(`${where(element)} lies under ${where(over)}`);
    }
    return found.slice(0, 6);
  }

  // Clipped so that only screen readers perceive it.
  const unseen = (element) => above(element).some((one) => getComputedStyle(one).clipPath !== "none");

  const LEAST_PANE = 180; // px; minimum height of a scrolling pane in a column of the page, if it has that much content
  const LEAST_LINES = 24; // px; height of a line of text
  const column = (element) => {
    const { display, flexDirection } = getComputedStyle(element);
    return display.includes("grid") || (display.includes("flex") && flexDirection.startsWith("column"));
  };

  // Elements that their container has squeezed to less than a line of their own text, and panes that show almost none of their content.
  function squeezed() {
    const found = [];
    for (const element of document.querySelectorAll("main *")) {
      if (element.closest(".visually-hidden, svg, .cm-editor, .js-plotly-plot") || !element.checkVisibility({ visibilityProperty: true })) continue;
      const style = getComputedStyle(element);
      if (style.overflowY === "visible" || element.clientWidth <= 1 || element.scrollHeight <= element.clientHeight + 3) continue;
      if (!element.innerText?.trim() || !column(element.parentElement)) continue;
      const least = element.matches(".pane-scroll") ? LEAST_PANE : LEAST_LINES + parseFloat(style.paddingTop) + parseFloat(style.paddingBottom);
      if (element.clientHeight < Math.min(least, element.scrollHeight)) found.push(`squeezed to ${element.clientHeight} of ${element.scrollHeight} px: ${where(element)}: "${element.innerText.trim().slice(0, 60)}"`);
    }
    return found.slice(0, 6);
  }

  // Text that runs out of its surface, such as a long name in a panel, or a drawing that keeps the width of an earlier window.
  const surface = (element) =>
    above(element).find((one) => {
      const { display, overflowX, borderLeftWidth, backgroundColor } = getComputedStyle(one);
      return overflowX !== "visible" || (!display.startsWith("inline") && display !== "contents" && (borderLeftWidth !== "0px" || backgroundColor !== "rgba(0, 0, 0, 0)"));
    });
  function spilled() {
    const found = new Map();
    const range = document.createRange();
    const walker = document.createTreeWalker(document.querySelector("main") ?? document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const element = node.parentElement;
      if (!node.data.trim() || element.closest("script, style, noscript, template, textarea, select, svg, .visually-hidden, .cm-editor") || !element.checkVisibility({ visibilityProperty: true })) continue;
      const box = surface(element);
      if (!box || getComputedStyle(box).overflowX !== "visible" || unseen(element)) continue;
      range.selectNodeContents(node);
      const edge = box.getBoundingClientRect().right;
      const by = Math.max(...[...range.getClientRects()].map(({ right, width }) => (width > 1 ? right - edge : 0)), 0);
      if (by > 2) found.set(where(element), `runs ${Math.round(by)} px out of ${where(box)}: ${where(element)}: "${node.data.trim().slice(0, 60)}"`);
    }
    return [...found.values()].slice(0, 6);
  }

  // Checks whose result can change with the window's size.
  const layout = () => [...overflow(), ...clipped(), ...covered(), ...squeezed(), ...spilled()];

  async function axeFinds(options) {
    const { violations } = await axe.run(document, { resultTypes: ["violations"], ...options });
    return violations
      .filter(({ impact }) => HARMFUL.has(impact))
      .map(({ id, impact, help, nodes }) => `axe ${id} (${impact}): ${help}: ${nodes.slice(0, 3).map(({ target, any }) => `${target.flat().join(" ")} ${id === "color-contrast" ? (any[0]?.message ?? "") : ""}`).join(" | ")}`);
  }

  window.pageChecks = {
    all: async () => [...frame(), ...layout(), ...smallText(), ...(await axeFinds({}))],
    light: () => [...frame(), ...layout()],
    layout,
    // Checks whose result can change with the colour scheme.
    colours: () => axeFinds({ runOnly: ["color-contrast", "link-in-text-block"] }),
    shifts: () => shifts,
    shift: () => shifts.reduce((sum, { value }) => sum + value, 0),
  };
})();
