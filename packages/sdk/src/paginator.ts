/** Yields every item of a list, and fetches each page when the loop reaches it. */
export async function* paginate<Name extends string, Item>(
  items: Name,
  fetchPage: (cursor: string | undefined) => Promise<Record<Name, Item[]> & { next_cursor?: string }>,
): AsyncGenerator<Item, void, void> {
  let cursor: string | undefined;
  do {
    const page = await fetchPage(cursor);
    yield* page[items];
    cursor = page.next_cursor;
  } while (cursor !== undefined);
}
