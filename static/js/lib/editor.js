// @ts-check
// <textarea data-editor="python" id="..."> becomes an editor. The textarea remains the form's field and still works without this module.
import {
  bracketMatching,
  closeBrackets,
  closeBracketsKeymap,
  defaultKeymap,
  drawSelection,
  EditorState,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  highlightSelectionMatches,
  highlightSpecialChars,
  HighlightStyle,
  history,
  historyKeymap,
  indentOnInput,
  indentUnit,
  indentWithTab,
  keymap,
  lineNumbers,
  lintGutter,
  lintKeymap,
  python,
  searchKeymap,
  setDiagnostics,
  syntaxHighlighting,
  tags,
} from "../../vendor/codemirror.js";

const editors = new Map();

const highlight = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.bool, tags.null, tags.self], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: tags.number, color: "var(--code-number)" },
  { tag: [tags.function(tags.variableName), tags.function(tags.propertyName), tags.definition(tags.variableName)], color: "var(--code-name)" },
  { tag: [tags.className, tags.definition(tags.className)], color: "var(--code-type)" },
  { tag: [tags.comment, tags.meta], color: "var(--code-comment)" },
]);

const look = EditorView.theme({
  "&": { fontSize: "13px", color: "var(--text)", backgroundColor: "var(--surface)", height: "100%" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "20px", overflow: "auto" },
  ".cm-content": { padding: "8px 0", caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { color: "var(--text-3)", backgroundColor: "var(--surface)", borderRight: "1px solid var(--line)" },
  ".cm-lineNumbers .cm-gutterElement": { minWidth: "32px" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--accent-soft) 45%, transparent)" },
  ".cm-activeLineGutter": { backgroundColor: "var(--accent-soft)", color: "var(--text)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--selection)",
  },
  ".cm-matchingBracket": { backgroundColor: "var(--accent-soft)", outline: "1px solid var(--line-strong)" },
  ".cm-selectionMatch": { backgroundColor: "var(--warn-soft)" },
  ".cm-panels": { color: "var(--text)", backgroundColor: "var(--sunken)", borderColor: "var(--line)" },
  ".cm-textfield": { color: "var(--text)", backgroundColor: "var(--surface)", border: "1px solid var(--control-line)" },
  ".cm-button": { color: "var(--text)", backgroundImage: "none", backgroundColor: "var(--surface)", border: "1px solid var(--control-line)" },
  ".cm-tooltip": { color: "var(--text)", backgroundColor: "var(--raised)", border: "1px solid var(--line-strong)", borderRadius: "4px" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--bad)" },
  ".cm-lintPoint-error:after": { borderBottomColor: "var(--bad)" },
  ".cm-placeholder": { color: "var(--text-3)" },
});

// Text typed over a selection is inserted by a transaction. Chromium's own editing would keep the selection's formatting in a style attribute, which
// the content security policy forbids.
function typeOver(event, view) {
  const { from, to, empty } = view.state.selection.main;
  if (event.inputType !== "insertText" || event.data == null || empty || view.composing || view.state.readOnly) return false;
  const typed = () => view.state.update({ ...view.state.replaceSelection(event.data), userEvent: "input.type", scrollIntoView: true });
  if (!view.state.facet(EditorView.inputHandler).some((handle) => handle(view, from, to, event.data, typed))) view.dispatch(typed());
  event.preventDefault();
  return true;
}

/**
 * Turns `textarea` into an editor.
 * @param {HTMLTextAreaElement} textarea
 * @param {{ label?: string, readOnly?: boolean, onChange?: (text: string) => void }} [options] - `onChange` is called after each change, whether by
 *   the person or by `setText`.
 */
export function attachEditor(textarea, { label, readOnly = false, onChange = () => {} } = {}) {
  const host = document.createElement("div");
  host.className = "editor-host";
  textarea.after(host);
  textarea.hidden = true;
  const view = new EditorView({
    parent: host,
    state: EditorState.create({
      doc: textarea.value,
      extensions: [
        lineNumbers(),
        lintGutter(),
        highlightActiveLineGutter(),
        highlightSpecialChars(),
        history(),
        drawSelection(),
        indentOnInput(),
        indentUnit.of("    "),
        EditorState.tabSize.of(4),
        EditorState.readOnly.of(readOnly),
        bracketMatching(),
        closeBrackets(),
        highlightActiveLine(),
        highlightSelectionMatches(),
        python(),
        syntaxHighlighting(highlight),
        look,
        EditorView.contentAttributes.of({ "aria-label": `${label ?? textarea.getAttribute("aria-label") ?? "Source"}. Escape, then Tab leaves the editor.`, spellcheck: "false", tabindex: "0" }),
        // Escape followed by Tab leaves the editor. Tab alone indents, which would otherwise trap keyboard users.
        keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...lintKeymap, indentWithTab]),
        EditorView.domEventHandlers({ beforeinput: typeOver }),
        EditorView.updateListener.of((update) => {
          if (!update.docChanged) return;
          textarea.value = view.state.doc.toString();
          onChange(textarea.value);
        }),
      ],
    }),
  });
  const editor = {
    view,
    text: () => view.state.doc.toString(),
    setText(text) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text }, selection: { anchor: 0 }, scrollIntoView: true });
    },
    goto(line, column = 1) {
      const at = view.state.doc.line(Math.min(Math.max(1, line), view.state.doc.lines));
      view.dispatch({ selection: { anchor: Math.min(at.from + column - 1, at.to) }, effects: EditorView.scrollIntoView(at.from, { y: "center" }) });
      view.focus();
    },
    // `problems` is [{line, column, message, hint}], as in verifier.source.Problem. A problem without a line concerns the whole source.
    showProblems(problems) {
      const diagnostics = problems
        .filter((p) => p.line)
        .map((p) => {
          const at = view.state.doc.line(Math.min(p.line, view.state.doc.lines));
          const from = Math.min(at.from + (p.column ?? 1) - 1, at.to);
          return { from, to: at.to, severity: "error", message: p.hint ? `${p.message}: ${p.hint}` : p.message };
        })
        .sort((a, b) => a.from - b.from);
      view.dispatch(setDiagnostics(view.state, diagnostics));
    },
  };
  editors.set(textarea.id, editor);
  return editor;
}

export const editorOf = (id) => editors.get(id);

// Locations in an error box link into the editor ({% problems list target="id" %}).
document.addEventListener("click", (event) => {
  const place = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-goto]"));
  if (place) editors.get(place.dataset.goto)?.goto(Number(place.dataset.line), Number(place.dataset.column || 1));
});
