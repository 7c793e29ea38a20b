// What the modules of static/ find in the page besides the DOM.

interface Htmx {
  process(element: Element): void;
}

declare var htmx: Htmx; // static/vendor/htmx.min.js, on every page of the frame
interface Window {
  htmx?: Htmx; // missing on pages without the frame
}

// ES2024, which some supported browsers lack.
interface MapConstructor {
  groupBy?<K, T>(items: Iterable<T>, key: (item: T) => K): Map<K, T[]>;
}
