/** Everything after the id belongs to the command, a separating `--` does not. */
export function withoutSeparator(words: string[]): string[] {
  return words[0] === "--" ? words.slice(1) : words;
}
