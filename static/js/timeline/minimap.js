// @ts-check
// The whole span at a glance: how busy each device was, which part is on the screen, and where the marks are. In a comparison, the span covers both
// aligned timelines, so the same position in both strips is the same moment.
import { busyWithin } from "./tracks.js";

const MOST_BANDS = 4; // if there are more devices, they share one band

export class Minimap {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
  }

  // `whole` is the range of the strip: {from, to} on the timeline's own clock, in ns. The recording goes from 0 to `span`.
  use(model, devices, span, whole) {
    this.model = model;
    this.span = span;
    this.whole = whole;
    const tracks = devices.map((device) => device.rows.map((row) => model.firstTrack[row.index]));
    this.bands = tracks.length > MOST_BANDS ? [tracks.flat()] : tracks;
  }

  x(time) {
    return ((time - this.whole.from) / (this.whole.to - this.whole.from)) * this.width;
  }

  time(x) {
    return this.whole.from + (x / this.width) * (this.whole.to - this.whole.from);
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    this.width = width;
    this.height = height;
    this.ratio = ratio;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const step = (this.whole.to - this.whole.from) / width;
    this.filled = this.bands.map((tracks) => {
      const columns = new Float32Array(width);
      for (const track of tracks) for (let c = 0; c < width; c += 1) columns[c] += busyWithin(this.model, track, this.time(c), this.time(c + 1)) / step;
      return columns;
    });
    this.picture = null;
  }

  // The picture of the load is drawn once per size and theme. Each frame copies it and draws the window on top.
  draw(view, palette, marks = []) {
    if (!this.filled) return;
    const { context, width, height, ratio } = this;
    if (!this.picture || this.paintedFor !== palette) {
      this.paintedFor = palette;
      this.picture = this.paint(palette);
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.picture, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = palette.text.warn;
    for (const mark of marks) context.fillRect(this.x(mark.start_ns), 0, Math.max(2, this.x(mark.end_ns) - this.x(mark.start_ns)), 3);
    const left = Math.max(0, this.x(view.from));
    const wide = Math.max(2, Math.min(width, this.x(view.to)) - left);
    context.globalAlpha = 0.16;
    context.fillStyle = palette.text.accent;
    context.fillRect(left, 0, wide, height);
    context.globalAlpha = 1;
    context.strokeStyle = palette.text.accent;
    context.strokeRect(left + 0.5, 0.5, Math.max(1, wide - 1), height - 1);
  }

  paint(palette) {
    const { width, height, ratio } = this;
    const picture = document.createElement("canvas");
    picture.width = this.canvas.width;
    picture.height = this.canvas.height;
    const context = picture.getContext("2d");
    context.fillStyle = palette.text.surface; // in every device pixel, or old content would remain in a last column narrower than a CSS pixel
    context.fillRect(0, 0, picture.width, picture.height);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = palette.text.sunken; // the recorded part
    context.fillRect(this.x(0), 0, Math.max(1, this.x(this.span) - this.x(0)), height);
    context.fillStyle = palette.text["line-strong"];
    const tall = (height - 6) / this.filled.length;
    this.filled.forEach((columns, band) => {
      const bottom = 3 + tall * (band + 1);
      for (let c = 0; c < width; c += 1) {
        const high = Math.min(1, columns[c]) * (tall - 2);
        if (high > 0) context.fillRect(c, bottom - Math.max(1, high), 1, Math.max(1, high));
      }
    });
    return picture;
  }
}
