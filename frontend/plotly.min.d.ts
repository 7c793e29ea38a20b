// The part of Plotly's script that static/js/lib/plots.js uses. The script sets a global and exports nothing.
export {};

declare global {
  interface PlotlyScript {
    react(box: HTMLElement, data: object[], layout: object, options: object): Promise<HTMLElement>;
    purge(box: HTMLElement): void;
    Fx: { hover(box: HTMLElement, points: { curveNumber: number; pointNumber: number }[]): void; unhover(box: HTMLElement): void };
    Plots: { resize(box: HTMLElement): Promise<HTMLElement> };
  }
  var Plotly: PlotlyScript;
}
