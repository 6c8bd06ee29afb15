/** The terminal type that a program in a session is given. */
/** Terminal types that minimal Linux images know; programs refuse to start on others. */
const KNOWN =
  /^(ansi|dumb|linux|vt(100|102|220|52)|(xterm|screen|tmux|rxvt)(-[a-z0-9-]+)?|cygwin|sun|hurd|mach(-\w+)?)$/;
const UNKNOWN_VARIANTS = /^xterm-(kitty|ghostty|termite)$/;
const COLORTERM = /^[A-Za-z0-9._+-]{1,64}$/;

/** `TERM` and `COLORTERM` for a program in a session that draws on this terminal. */
export function guestTerm(config: { term: string | undefined; colorterm: string | undefined }): {
  term: string;
  colorterm: string | undefined;
} {
  const { term = "", colorterm = "" } = config;
  return {
    term: KNOWN.test(term) && !UNKNOWN_VARIANTS.test(term) ? term : "xterm-256color",
    colorterm: COLORTERM.test(colorterm) ? colorterm : undefined,
  };
}
