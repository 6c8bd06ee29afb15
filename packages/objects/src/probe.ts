/** Tries what a store must be able to do, with an object of its own, which is removed again. */
import { randomBytes } from "node:crypto";
import { type ObjectStore, readWhole } from "./store.ts";

/** Throws if something does not work. */
export async function probe(store: ObjectStore): Promise<void> {
  const key = `probe/${randomBytes(8).toString("hex")}`;
  const bytes = randomBytes(1_000);
  try {
    await store.put(key, bytes);
    if ((await store.put(key, randomBytes(10), { ifAbsent: true })).isNew)
      throw new Error(
        "the object store replaces an object that it was asked to keep: it lacks conditional writes",
      );
    const fetched = await store.get(key);
    if (!fetched || !(await readWhole(fetched)).equals(bytes))
      throw new Error("the object store did not return the bytes that it has acknowledged");
    const keys = (await Array.fromAsync(store.list("probe/"))).map((info) => info.key);
    if (!keys.includes(key))
      throw new Error("the object store does not list an object that it has acknowledged");
  } finally {
    await store.delete(key);
  }
}
