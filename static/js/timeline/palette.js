// @ts-check
// The colours of a timeline, as CSS text for the canvas and as pixels for the strips. A kernel's colour depends only on its name, so it is the same
// in the reference and in the candidate.
const HUES = 16;
const SHADES = 8; // number of fill levels of a pixel column
const DIM = SHADES; // for events that don't match the search
const PER_COLOUR = SHADES + 1;
const MEMORY = HUES;
const RANGE = HUES + 1;
const NAMED = ["surface", "sunken", "line", "line-strong", "text", "text-2", "text-3", "accent", "warn"];

export class Palette {
  // Reads the computed colours of a probe element in `parent`, because a canvas doesn't follow CSS variables automatically.
  constructor(parent) {
    const probe = document.createElement("span");
    probe.hidden = true;
    parent.append(probe);
    const dot = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const resolve = (name) => {
      probe.style.color = `var(--${name})`;
      dot.fillStyle = getComputedStyle(probe).color;
      dot.fillRect(0, 0, 1, 1);
      return [...dot.getImageData(0, 0, 1, 1).data];
    };
    /** @param {number[]} rgb */
    const text = ([r, g, b]) => `rgb(${r} ${g} ${b})`;
    this.text = Object.fromEntries([...NAMED, "timeline-label", "timeline-range-label"].map((name) => [name, text(resolve(name))]));
    const surface = resolve("surface");
    const hues = [...Array.from({ length: HUES }, (_, index) => `timeline-${index}`), "timeline-memory", "timeline-range"].map(resolve);
    this.shades = new Uint32Array(hues.length * PER_COLOUR);
    hues.forEach((hue, colour) => {
      for (let shade = 0; shade < SHADES; shade += 1) this.shades[colour * PER_COLOUR + shade] = mixed(hue, surface, 0.35 + (0.65 * shade) / (SHADES - 1));
      this.shades[colour * PER_COLOUR + DIM] = mixed(hue, surface, 0.2);
    });
    this.surface = mixed(surface, surface, 1);
    this.swatches = hues.map(text);
    probe.remove();
  }

  pixel(colour, cover) {
    return this.shades[colour * PER_COLOUR + Math.min(SHADES - 1, (cover * SHADES) | 0)];
  }

  dim(colour) {
    return this.shades[colour * PER_COLOUR + DIM];
  }

  label(colour) {
    return colour === RANGE ? this.text["timeline-range-label"] : this.text["timeline-label"];
  }
}

function mixed(colour, under, share) {
  const [r, g, b] = colour.slice(0, 3).map((value, i) => Math.round(value * share + under[i] * (1 - share)));
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; // little-endian RGBA, as in ImageData
}

// The colour for each event name, and for the kinds whose events all have the same colour.
export function colours(model) {
  const { kinds, names } = model.header;
  const byKind = kinds.map((kind) => (kind === "memcpy" || kind === "memset" ? MEMORY : kind === "nvtx" || kind === "sync" ? RANGE : -1));
  const byName = names.map((name) => hash(name) % HUES);
  const { kind, name } = model.columns;
  return (event) => (byKind[kind[event]] >= 0 ? byKind[kind[event]] : byName[name[event]]);
}

export const swatchOf = (name) => hash(name) % HUES;

function hash(text) {
  let value = 2166136261;
  for (let i = 0; i < text.length; i += 1) value = Math.imul(value ^ text.charCodeAt(i), 16777619) >>> 0;
  value = Math.imul(value ^ (value >>> 15), 2246822519) >>> 0;
  return (value ^ (value >>> 13)) >>> 0;
}
