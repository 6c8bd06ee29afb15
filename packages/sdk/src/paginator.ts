/** Every item of a list that comes in pages, fetched as the loop asks for them. */
export async function* paginate<Item>(
  fetchPage: (cursor: string | undefined) => Promise<{ items: Item[]; nextCursor?: string }>,
): AsyncGenerator<Item, void, void> {
  let cursor: string | undefined;
  do {
    const page = await fetchPage(cursor);
    yield* page.items;
    cursor = page.nextCursor;
  } while (cursor !== undefined);
}
