// Draws a timeline on a canvas. In each pixel column of a track only the longest event is drawn, so a million events cost no more
// rectangles than the screen has columns.
import { firstReaching } from "./parse.js";
import { ticks } from "./format.js";

export const TRACK = 18; // height of one line of boxes, with its gap
export const AXIS = 24;
const ROW_GAP = 6;
export const MAX_DEPTH = 12; // deeper nesting is left out, and the label says so
const COLOURS = 10;

export class Painter {
  constructor(canvas, minimap) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.minimap = minimap;
    this.mini = minimap.getContext("2d");
    this.readColours();
  }

  // A canvas cannot follow CSS variables by itself; light-dark() is resolved through a probe element.
  readColours() {
    const probe = document.createElement("span");
    probe.hidden = true;
    this.canvas.parentElement.append(probe);
    const resolve = (name) => {
      probe.style.color = `var(${name})`;
      return getComputedStyle(probe).color;
    };
    this.colours = Array.from({ length: COLOURS }, (_, index) => resolve(`--timeline-${index}`));
    this.paint = Object.fromEntries(["surface", "sunken", "line", "line-strong", "text", "text-2", "text-3", "accent", "accent-soft"].map((name) => [name, resolve(`--${name}`)]));
    this.paint.memory = resolve("--timeline-memory");
    this.paint.range = resolve("--timeline-nvtx");
    this.paint.label = resolve("--timeline-label");
    this.paint.match = resolve("--timeline-match");
    probe.remove();
  }

  // `gutter` is the width of the labels; rows that have nothing are left out.
  layout(model, width, gutter, folded) {
    this.model = model;
    this.gutter = gutter;
    this.width = width;
    this.rows = [];
    let y = AXIS;
    let group = null;
    for (const row of model.rows) {
      if (!row.events) continue;
      if (row.group && row.group !== group) {
        group = row.group;
        y += 2;
      }
      const depths = folded.has(row.index) ? 1 : Math.min(row.depths, MAX_DEPTH);
      this.rows.push({ row, y, depths, height: depths * TRACK });
      y += depths * TRACK + ROW_GAP;
    }
    this.height = Math.max(120, y + 4);
    this.nameColour = model.header.names.map((name) => hash(name) % COLOURS);
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    for (const [canvas, width, height] of [
      [this.canvas, this.width, this.height],
      [this.minimap, this.width, this.minimap.clientHeight || 36],
    ]) {
      const w = Math.round(width * ratio);
      const h = Math.round(height * ratio);
      if (canvas.width !== w || canvas.height !== h) {
        canvas.width = w;
        canvas.height = h;
      }
      canvas.style.height = `${height}px`;
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.density = null;
  }

  x(time, view) {
    return this.gutter + ((time - view.from) / (view.to - view.from)) * (this.width - this.gutter);
  }

  time(x, view) {
    return view.from + ((x - this.gutter) / (this.width - this.gutter)) * (view.to - view.from);
  }

  // Row and track under a point of the canvas, or null.
  at(y) {
    const found = this.rows.find((line) => y >= line.y && y < line.y + line.height);
    return found ? { line: found, track: this.model.firstTrack[found.row.index] + Math.floor((y - found.y) / TRACK) } : null;
  }

  placeOf(event) {
    const line = this.rows.find((known) => known.row.index === this.model.columns.row[event]);
    if (!line) return null;
    return line.y + Math.min(this.model.columns.depth[event], line.depths - 1) * TRACK;
  }

  draw(view, { selected = -1, hover = -1, partners = [], measure = null, matches = null } = {}) {
    const { context, width, height, gutter, paint, model } = this;
    context.fillStyle = paint.surface;
    context.fillRect(0, 0, width, height);
    this.drawAxis(view);
    context.save();
    context.beginPath();
    context.rect(gutter, AXIS, width - gutter, height - AXIS);
    context.clip();
    context.font = "11px ui-monospace, Menlo, Consolas, monospace";
    context.textBaseline = "middle";
    for (const line of this.rows) {
      for (let depth = 0; depth < line.depths; depth += 1) this.drawTrack(model.firstTrack[line.row.index] + depth, line.y + depth * TRACK, view, matches);
    }
    if (measure) this.drawMeasure(measure, view);
    for (const event of [hover, ...partners, selected]) if (event >= 0) this.outline(event, view, event === selected ? paint.text : event === hover ? paint["text-2"] : paint.accent);
    if (selected >= 0) for (const partner of partners) this.arrow(selected, partner, view);
    context.restore();
    this.drawLabels();
  }

  drawAxis(view) {
    const { context, width, height, gutter, paint } = this;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "left";
    for (const { at, label } of ticks(view.from, view.to, (width - gutter) / 110)) {
      const x = Math.round(this.x(at, view)) + 0.5;
      if (x < gutter) continue;
      context.strokeStyle = paint.line;
      context.beginPath();
      context.moveTo(x, AXIS - 6);
      context.lineTo(x, height);
      context.stroke();
      context.fillStyle = paint["text-3"];
      if (x + 4 + label.length * 6.5 < width) context.fillText(label, x + 4, AXIS / 2);
    }
  }

  colourOf(event) {
    const kind = this.model.header.kinds[this.model.columns.kind[event]];
    if (kind === "memcpy" || kind === "memset") return this.paint.memory;
    if (kind === "nvtx") return this.paint.range;
    return this.colours[this.nameColour[this.model.columns.name[event]]];
  }

  drawTrack(track, y, view, matches) {
    const { context, model, gutter, width } = this;
    const { start, duration, name } = model.columns;
    const { order, offsets } = model;
    const scale = (width - gutter) / (view.to - view.from);
    const box = TRACK - 2;
    let column = -1;
    let longest = -1;
    const flush = () => {
      if (longest < 0) return;
      context.globalAlpha = matches && !matches.has(name[longest]) ? 0.18 : 1;
      context.fillStyle = this.colourOf(longest);
      context.fillRect(column, y, 1, box);
      longest = -1;
    };
    for (let k = firstReaching(model, track, view.from); k < offsets[track + 1]; k += 1) {
      const i = order[k];
      if (start[i] >= view.to) break;
      const left = gutter + (start[i] - view.from) * scale;
      const wide = duration[i] * scale;
      if (wide < 1.5) {
        const at = left < gutter ? gutter : left | 0;
        if (at !== column) {
          flush();
          column = at;
        }
        if (longest < 0 || duration[i] > duration[longest]) longest = i;
        continue;
      }
      flush();
      column = -1;
      const from = Math.max(left, gutter - 2);
      const to = Math.min(left + wide, width + 2);
      if (to <= from) continue;
      context.globalAlpha = matches && !matches.has(name[i]) ? 0.18 : 1;
      context.fillStyle = this.colourOf(i);
      context.fillRect(from, y, Math.max(1, to - from - (wide > 3 ? 1 : 0)), box);
      if (to - from > 28) this.label(model.header.names[name[i]], from + 4, y + box / 2 + 0.5, to - from - 8);
    }
    flush();
    context.globalAlpha = 1;
  }

  label(text, x, y, room) {
    const letters = Math.floor(room / 6.65);
    if (letters < 3) return;
    this.context.fillStyle = this.paint.label;
    this.context.fillText(text.length > letters ? `${text.slice(0, letters - 1)}…` : text, Math.max(x, this.gutter + 4), y);
  }

  outline(event, view, colour) {
    const y = this.placeOf(event);
    if (y == null) return;
    const left = this.x(this.model.columns.start[event], view);
    const right = this.x(this.model.columns.start[event] + this.model.columns.duration[event], view);
    this.context.strokeStyle = colour;
    this.context.lineWidth = 2;
    this.context.strokeRect(Math.max(left, this.gutter - 4), y, Math.max(2, Math.min(right, this.width + 4) - Math.max(left, this.gutter - 4)), TRACK - 2);
    this.context.lineWidth = 1;
  }

  // From a launch to what it launched (or back), for the selection only.
  arrow(from, to, view) {
    const { start, duration } = this.model.columns;
    const [early, late] = start[from] <= start[to] ? [from, to] : [to, from];
    const y0 = this.placeOf(early);
    const y1 = this.placeOf(late);
    if (y0 == null || y1 == null) return;
    const x0 = this.x(Math.min(start[early] + duration[early], start[late]), view);
    const x1 = this.x(start[late], view);
    const { context } = this;
    const a = y0 + (y1 > y0 ? TRACK - 2 : 0);
    const b = y1 + (y1 > y0 ? 0 : TRACK - 2);
    context.strokeStyle = context.fillStyle = this.paint.accent;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x0, a);
    context.bezierCurveTo(x0, (a + b) / 2, x1, (a + b) / 2, x1, b);
    context.stroke();
    const head = y1 > y0 ? -5 : 5;
    context.beginPath();
    context.moveTo(x1, b);
    context.lineTo(x1 - 4, b + head);
    context.lineTo(x1 + 4, b + head);
    context.fill();
    context.lineWidth = 1;
  }

  drawMeasure({ from, to, top, bottom }, view) {
    const left = this.x(Math.min(from, to), view);
    const right = this.x(Math.max(from, to), view);
    this.context.globalAlpha = 0.25;
    this.context.fillStyle = this.paint.accent;
    this.context.fillRect(left, top, right - left, bottom - top);
    this.context.globalAlpha = 1;
    this.context.strokeStyle = this.paint.accent;
    this.context.strokeRect(left + 0.5, top + 0.5, right - left, bottom - top);
  }

  drawLabels() {
    const { context, gutter, height, paint } = this;
    context.fillStyle = paint.surface;
    context.fillRect(0, 0, gutter, height);
    context.strokeStyle = paint.line;
    context.beginPath();
    context.moveTo(gutter - 0.5, 0);
    context.lineTo(gutter - 0.5, height);
    context.stroke();
    context.textBaseline = "middle";
    context.font = "12px system-ui, sans-serif";
    const letters = Math.floor((gutter - 24) / 6.3);
    for (const { row, y, depths } of this.rows) {
      const more = row.depths > 1 ? (depths === 1 ? "▸ " : "▾ ") : "";
      const text = `${row.name}${row.depths > MAX_DEPTH && depths > 1 ? ` (+${row.depths - MAX_DEPTH})` : ""}`;
      context.fillStyle = paint["text-2"];
      context.fillText(more, 4, y + TRACK / 2 - 1);
      context.fillText(text.length > letters ? `${text.slice(0, letters - 1)}…` : text, 18, y + TRACK / 2 - 1);
      context.strokeStyle = paint.line;
      context.beginPath();
      context.moveTo(0, y - ROW_GAP / 2 + 0.5);
      context.lineTo(this.width, y - ROW_GAP / 2 + 0.5);
      context.stroke();
    }
  }

  // The whole span at a glance: how busy the device was, and which part is on the screen.
  drawMinimap(view, rows) {
    const { mini, width, gutter, paint, model } = this;
    const height = this.minimap.clientHeight || 36;
    const columns = Math.max(1, Math.floor(width - gutter));
    const span = model.header.span_ns || 1;
    this.density ??= density(model, rows, columns, span);
    mini.fillStyle = paint.sunken;
    mini.fillRect(0, 0, width, height);
    mini.fillStyle = paint["text-3"];
    mini.font = "11px system-ui, sans-serif";
    mini.textBaseline = "middle";
    mini.fillText("whole span", 8, height / 2);
    mini.fillStyle = paint["line-strong"];
    for (let c = 0; c < columns; c += 1) {
      const h = Math.min(1, this.density[c]) * (height - 8);
      if (h > 0) mini.fillRect(gutter + c, height - 4 - Math.max(1, h), 1, Math.max(1, h));
    }
    const left = gutter + (view.from / span) * columns;
    const right = gutter + (view.to / span) * columns;
    mini.globalAlpha = 0.18;
    mini.fillStyle = paint.accent;
    mini.fillRect(left, 0, Math.max(2, right - left), height);
    mini.globalAlpha = 1;
    mini.strokeStyle = paint.accent;
    mini.strokeRect(left + 0.5, 0.5, Math.max(2, right - left) - 1, height - 1);
  }
}

function density(model, rows, columns, span) {
  const { start, duration } = model.columns;
  const filled = new Float64Array(columns);
  const scale = columns / span;
  for (const row of rows) {
    if (!row.depths) continue;
    const t = model.firstTrack[row.index];
    for (let k = model.offsets[t]; k < model.offsets[t + 1]; k += 1) {
      const i = model.order[k];
      const from = start[i] * scale;
      const to = Math.min(columns, from + duration[i] * scale);
      let c = Math.min(columns - 1, Math.floor(from));
      for (let at = from; at < to && c < columns; c += 1) {
        const end = Math.min(to, c + 1);
        filled[c] += end - at;
        at = end;
      }
    }
  }
  return filled;
}

function hash(text) {
  let value = 2166136261;
  for (let i = 0; i < text.length; i += 1) value = Math.imul(value ^ text.charCodeAt(i), 16777619) >>> 0;
  return (value ^ (value >>> 15)) >>> 0;
}
