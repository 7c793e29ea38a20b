// What the modules of static/ find in the page besides the DOM, and the types that they share. A type that a module imported from another one would
// count as an import when the files are hashed (webapp/assets.py), where imports in a circle are refused.

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

type TimelineView = import("../static/js/timeline/view.js").TimelineView;

/** A range of a timeline, in ns on the timeline's own clock. */
interface TimelineRange {
  sha: string;
  start_ns: number;
  end_ns: number;
  rows?: string[];
}

type SourceEditor = ReturnType<typeof import("../static/js/lib/editor.js").attachEditor>;

/** The form of the pages with an editor (static/tasks). */
type SourceForm = HTMLFormElement & {
  elements: HTMLFormControlsCollection & { csrfmiddlewaretoken: HTMLInputElement; title?: HTMLInputElement; task_sha?: HTMLInputElement };
};

/** The response of /submit/check. */
interface CheckedSource {
  ok: boolean;
  problems: object[];
  sha?: string;
  module?: string[];
  arguments?: object;
  written?: boolean;
}
