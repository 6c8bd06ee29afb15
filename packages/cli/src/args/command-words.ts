/** Removes a leading `--`: the words after it are the command. */
export function withoutSeparator(words: string[]): string[] {
  return words[0] === "--" ? words.slice(1) : words;
}
