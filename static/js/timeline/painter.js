// @ts-check
// Draws one timeline on a canvas that covers only the visible part. Boxes are written as pixels, one line of pixels per track, which is then
// stretched to the track's height. A frame therefore costs the same for any number of events.
import { ceiling, columns } from "./counters.js";
import { duration, shortName, ticks } from "./format.js";
import { Frame } from "./levels.js";
import { colours, Palette } from "./palette.js";
import { AXIS, lineOf } from "./rows.js";

const LETTER = 7.23; // width of a character in the 12 px monospace font, in CSS pixels
const COUNTER_HUE = 2; // index in the palette
const LEAST_LABEL = 30;
const LEAST_TEXT = 16; // minimum height in px of a track with a line of text
const MOST_LABELS = 700; // per frame; boxes are not sorted by width, so the limit is far higher than the number a person can read

export class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.strip = /** @type {HTMLCanvasElement & { shows?: unknown[] }} */ (document.createElement("canvas"));
    this.stripContext = this.strip.getContext("2d");
    this.frame = new Frame();
    this.names = [];
    this.readColours();
  }

  readColours() {
    this.palette = new Palette(this.canvas.parentElement);
  }

  use(model, laid, track) {
    if (this.model !== model) {
      this.model = model;
      this.colourOf = colours(model);
      this.names = model.header.names.map((name) => [name.replace(/^void /, ""), shortName(name)]);
    }
    this.lines = laid.lines;
    this.track = track;
  }

  resize(width, height) {
    this.ratio = Math.min(3, devicePixelRatio || 1);
    this.width = width;
    this.height = height;
    this.pixels = Math.max(1, Math.round(width * this.ratio));
    this.canvas.width = this.pixels;
    this.canvas.height = Math.round(height * this.ratio);
    this.canvas.style.height = `${height}px`;
    this.frame.resize(this.pixels);
    this.image = null;
  }

  x(time, view) {
    return ((time - view.from) / (view.to - view.from)) * this.width;
  }

  time(x, view) {
    return view.from + (x / this.width) * (view.to - view.from);
  }

  // `scene` is {view, top (scroll position), origin (the axis's 0), selected, hover, partners, measure, matches, marks}.
  draw(scene) {
    const { context, palette, ratio } = this;
    const { view, top } = scene;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = palette.text.surface; // covers every device pixel, including a last column or row that is only part of a CSS pixel
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawGrid(view, scene.origin ?? 0);
    const visible = this.lines.filter((line) => line.y + line.height > top + AXIS && line.y < top + this.height);
    this.drawBoxes(visible, scene);
    this.drawCounters(visible, scene);
    if (scene.measure) this.drawMeasure(scene.measure, view, top);
    for (const event of [...scene.partners, scene.hover, scene.selected]) {
      if (event >= 0) this.outline(event, scene, event === scene.selected ? palette.text.text : event === scene.hover ? palette.text["text-2"] : palette.text.accent);
    }
    if (scene.selected >= 0) for (const partner of scene.partners) this.arrow(scene.selected, partner, scene);
    this.drawAxis(view, scene);
  }

  drawGrid(view, origin) {
    const { context, palette } = this;
    this.marks = ticks(view.from - origin, view.to - origin, this.width / 110).map(({ at, label }) => ({ x: Math.round(this.x(at + origin, view)) + 0.5, label }));
    context.fillStyle = palette.text.line;
    for (const { x } of this.marks) context.fillRect(x - 0.5, AXIS, 1 / this.ratio, this.height);
  }

  drawBoxes(visible, scene) {
    const { context, ratio, pixels } = this;
    const tracks = visible.reduce((sum, line) => sum + line.depths, 0);
    if (!tracks) return;
    if (!this.image || this.image.height < tracks) {
      this.image = new ImageData(pixels, tracks + 8);
      this.pixelRows = new Uint32Array(this.image.data.buffer);
      this.strip.width = pixels;
      this.strip.height = tracks + 8;
    }
    if (!this.filledFor(visible, scene)) {
      this.pixelRows.fill(0, 0, tracks * pixels);
      this.wanted = [];
      let line = 0;
      for (const { kind, tracks: own, top, depths } of visible) {
        if (kind === "group") for (const track of own) this.fillTrack(track, line, top, scene, false);
        else own.forEach((track, depth) => this.fillTrack(track, line + depth, top + depth * this.track, scene, true));
        line += depths;
      }
      this.stripContext.putImageData(this.image, 0, 0, 0, 0, pixels, tracks);
    }
    context.save(); // everything after the boxes is drawn in CSS pixels again
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.imageSmoothingEnabled = false;
    context.beginPath();
    context.rect(0, AXIS * ratio, pixels, this.height * ratio);
    context.clip();
    let at = 0;
    const box = Math.round((this.track - 2) * ratio);
    for (const line of visible) {
      for (let depth = 0; depth < line.depths; depth += 1) {
        const y = Math.round((line.top + depth * this.track - scene.top) * ratio);
        context.drawImage(this.strip, 0, at, pixels, 1, 0, y, pixels, box);
        at += 1;
      }
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawLabels(scene.top);
    context.restore();
  }

  drawCounters(visible, { view, top }) {
    const { context, palette, width, height } = this;
    context.save();
    context.beginPath();
    context.rect(0, AXIS, width, height);
    context.clip();
    for (const { counter, y, height: tall } of visible.filter((line) => line.counter)) {
      const [most, bottom, room] = [ceiling(counter), y + tall - 3 - top, tall - 8];
      context.fillStyle = palette.text.line;
      context.fillRect(0, bottom, width, 1);
      context.fillStyle = palette.swatches[COUNTER_HUE];
      columns(counter, view.from, view.to, Math.max(1, Math.round(width))).forEach((value, x) => {
        const high = Math.min(1, value / most) * room;
        if (high > 0) context.fillRect(x, bottom - high, 1, high);
      });
    }
    context.restore();
  }

  // Returns whether the strip already shows this. A frame that only outlines another event needs no new boxes.
  filledFor(visible, { view, matches }) {
    const wanted = [view.from, view.to, matches, this.image, this.palette, this.lines, visible[0], visible.length];
    const same = this.strip.shows?.every((value, i) => value === wanted[i]);
    this.strip.shows = wanted;
    return Boolean(same);
  }

  // Writes a track into one line of pixels and collects its labels.
  fillTrack(track, line, y, { view, matches }, labelled) {
    const { model, frame, palette, pixels, pixelRows, ratio } = this;
    const { start, duration: took, name } = model.columns;
    frame.sweep(model, track, view.from, view.to);
    const base = line * pixels;
    const { longest, cover, boxes } = frame;
    for (let c = 0; c < pixels; c += 1) {
      const event = longest[c];
      if (event < 0) continue;
      const colour = this.colourOf(event);
      pixelRows[base + c] = matches && !matches.names.has(name[event]) ? palette.dim(colour) : palette.pixel(colour, cover[c]);
    }
    const scale = pixels / (view.to - view.from);
    for (let b = 0; b < frame.count; b += 1) {
      const event = boxes[b];
      const left = Math.max(0, Math.round((start[event] - view.from) * scale));
      const right = Math.min(pixels, Math.round((start[event] + took[event] - view.from) * scale));
      const wide = right - left;
      if (wide <= 0 && left >= pixels) continue;
      const colour = this.colourOf(event);
      const dim = matches && !matches.names.has(name[event]);
      // A gap of one pixel separates neighbours.
      pixelRows.fill(dim ? palette.dim(colour) : palette.pixel(colour, 1), base + left, base + Math.max(left + 1, wide > 3 && right < pixels ? right - 1 : right));
      if (labelled && wide > LEAST_LABEL * ratio && this.wanted.length < MOST_LABELS * 5) this.wanted.push(event, left / ratio, y, wide / ratio, dim ? 1 : 0);
    }
    if (matches) this.fillMatches(track, base, view, matches, scale);
  }

  // A column's longest narrow event represents all of its narrow events, so search hits are drawn over it.
  fillMatches(track, base, view, matches, scale) {
    const { model, palette, pixels, pixelRows } = this;
    const { start, duration: took } = model.columns;
    const found = matches.events;
    let at = lowerBound(found, model.offsets[track]);
    const end = lowerBound(found, model.offsets[track + 1]);
    at = within(found, at, end, start, view.from - 2 / scale);
    while (at < end && start[found[at]] < view.to) {
      const column = Math.floor((start[found[at]] - view.from) * scale);
      if (column >= 0 && column < pixels && took[found[at]] * scale < 2) pixelRows[base + column] = palette.pixel(this.colourOf(found[at]), 1);
      at = within(found, at + 1, end, start, view.from + (column + 1) / scale);
    }
  }

  drawLabels(top) {
    const { context, wanted, palette, track, model } = this;
    if (track < LEAST_TEXT) return;
    context.font = '12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace';
    context.textBaseline = "middle";
    context.textAlign = "left";
    for (let i = 0; i < wanted.length; i += 5) {
      const event = wanted[i];
      const x = wanted[i + 1] + 4;
      const letters = Math.floor((wanted[i + 3] - 8) / LETTER);
      if (letters < 3) continue;
      const [full, short] = this.names[model.columns.name[event]];
      const text = full.length <= letters ? full : short.length <= letters ? short : `${short.slice(0, letters - 1)}…`;
      context.fillStyle = wanted[i + 4] ? palette.text["text-3"] : palette.label(this.colourOf(event));
      context.fillText(text, x, wanted[i + 2] - top + (track - 2) / 2 + 0.5);
    }
  }

  placeOf(event) {
    const line = lineOf(this.lines, this.model, event);
    if (!line) return null;
    const depth = line.kind === "group" ? 0 : Math.min(this.model.columns.depth[event], line.depths - 1);
    return line.top + depth * this.track;
  }

  // The line and track under a point on the canvas, or null.
  at(y) {
    const line = this.lines.find((known) => y >= known.y && y < known.y + known.height);
    if (!line?.tracks.length) return null;
    const depth = line.kind === "group" ? 0 : Math.max(0, Math.min(line.depths - 1, Math.floor((y - line.top) / this.track)));
    return { line, tracks: line.kind === "group" ? line.tracks : [line.tracks[depth]] };
  }

  outline(event, { view, top }, colour) {
    const y = this.placeOf(event);
    if (y == null || y - top < AXIS - this.track) return;
    const { start, duration: took } = this.model.columns;
    const left = Math.max(this.x(start[event], view), -4);
    const right = Math.min(this.x(start[event] + took[event], view), this.width + 4);
    const { context } = this;
    context.strokeStyle = colour;
    context.lineWidth = 2;
    context.strokeRect(left, y - top, Math.max(2, right - left), this.track - 2);
    context.lineWidth = 1;
  }

  // Draws an arrow from a launch to the event that it launched (or back), only for the selection.
  arrow(from, to, { view, top }) {
    const { start, duration: took } = this.model.columns;
    const [early, late] = start[from] <= start[to] ? [from, to] : [to, from];
    const [y0, y1] = [this.placeOf(early), this.placeOf(late)];
    if (y0 == null || y1 == null || y0 === y1) return;
    const down = y1 > y0;
    const x0 = this.x(Math.min(start[early] + took[early], start[late]), view);
    const x1 = this.x(start[late], view);
    const a = y0 - top + (down ? this.track - 2 : 0);
    const b = y1 - top + (down ? 0 : this.track - 2);
    const { context } = this;
    context.strokeStyle = context.fillStyle = this.palette.text.accent;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x0, a);
    context.bezierCurveTo(x0, (a + b) / 2, x1, (a + b) / 2, x1, b);
    context.stroke();
    context.beginPath();
    context.moveTo(x1, b);
    context.lineTo(x1 - 4, b + (down ? -6 : 6));
    context.lineTo(x1 + 4, b + (down ? -6 : 6));
    context.fill();
    context.lineWidth = 1;
  }

  drawMeasure({ from, to, lines }, view, top) {
    const { context, palette } = this;
    const left = this.x(from, view);
    const right = this.x(to, view);
    const y = lines.length ? Math.min(...lines.map((line) => line.y)) - top : AXIS;
    const bottom = lines.length ? Math.max(...lines.map((line) => line.y + line.height)) - top : this.height;
    context.globalAlpha = 0.18;
    context.fillStyle = palette.text.accent;
    context.fillRect(left, y, right - left, bottom - y);
    context.globalAlpha = 1;
    context.fillRect(left - 0.5, AXIS, 1, this.height);
    context.fillRect(right - 0.5, AXIS, 1, this.height);
  }

  // Drawn over the rows, which scroll below it: time ticks, the measured range, and ranges marked by other modules.
  drawAxis(view, { measure, marks }) {
    const { context, palette, width } = this;
    context.fillStyle = palette.text.sunken;
    context.fillRect(0, 0, width, AXIS);
    context.fillStyle = palette.text.line;
    context.fillRect(0, AXIS - 1, width, 1);
    context.font = '12px system-ui, "Liberation Sans", sans-serif';
    context.textBaseline = "middle";
    context.textAlign = "left";
    for (const { x, label } of this.marks) {
      context.fillStyle = palette.text["line-strong"];
      context.fillRect(x - 0.5, AXIS - 6, 1, 5);
      context.fillStyle = palette.text["text-2"];
      if (x + 4 + label.length * 7 < width) context.fillText(label, x + 4, AXIS / 2);
    }
    for (const { start_ns: from, end_ns: to } of marks ?? []) {
      const left = this.x(from, view);
      const wide = Math.max(6, this.x(to, view) - left);
      context.fillStyle = palette.text.warn;
      context.fillRect(left, AXIS - 5, wide, 4);
      context.globalAlpha = 0.7;
      context.fillRect(left, AXIS, 1, this.height);
      context.fillRect(left + wide - 1, AXIS, 1, this.height);
      context.globalAlpha = 1;
    }
    if (measure) this.drawSpan(measure, view);
  }

  drawSpan({ from, to }, view) {
    const { context, palette, width } = this;
    const text = duration(to - from);
    const left = Math.max(0, this.x(from, view));
    const right = Math.min(width, this.x(to, view));
    if (right < 0 || left > width) return;
    context.font = '600 12px system-ui, "Liberation Sans", sans-serif';
    const room = context.measureText(text).width + 12;
    const x = Math.max(0, Math.min(width - room, (left + right - room) / 2));
    context.fillStyle = palette.text.accent;
    context.fillRect(left, AXIS - 4, Math.max(1, right - left), 3);
    context.fillRect(x, 2, room, AXIS - 6);
    context.fillStyle = palette.text.surface;
    context.fillText(text, x + 6, AXIS / 2 - 1);
  }
}

function lowerBound(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] >= value) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The first position from `low` whose event begins at `time` or later.
function within(sorted, low, end, start, time) {
  let high = end;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (start[sorted[middle]] >= time) high = middle;
    else low = middle + 1;
  }
  return low;
}

