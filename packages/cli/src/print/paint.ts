/** Colours for text on a terminal. */
import { styleText } from "node:util";

type Style = Parameters<typeof styleText>[0];

const STATE_STYLES: Readonly<Record<string, Style>> = {
  creating: "yellow",
  live: "green",
  paused: "cyan",
  lifetime_expired: "red",
  node_lost: "red",
  failed: "red",
  ended: "dim",
};

/** Puts a style around text, or returns the text unchanged where colours are off. */
export type Paint = (style: Style, text: string) => string;

export const noPaint: Paint = (_style, text) => text;
const withEscapes: Paint = (style, text) => styleText(style, text, { validateStream: false });

/** Colours are on only for a terminal, and unless the human has declined them. */
export function paintFor(context: {
  terminal: { readonly isInteractive: boolean };
  config: { readonly wantsColour: boolean };
}): Paint {
  return context.terminal.isInteractive && context.config.wantsColour ? withEscapes : noPaint;
}

/** Text in the colour of a state; `text` is the state itself, perhaps padded. */
export function paintState(paint: Paint, state: string, text = state): string {
  const style = STATE_STYLES[state];
  return style === undefined ? text : paint(style, text);
}
