/** The program that packs or unpacks one saved state. */
import { keepCompiledCode } from "@vivarium/kit/compiled-code";

keepCompiledCode();
// Only what is imported after that call is read compiled.
const { followOrder } = await import("./follow-order.ts");
await followOrder();
