/** Entry point of `viv`: runs one command line and exits with its code. */
import { keepCompiledCode } from "@vivarium/kit/compiled-code";

keepCompiledCode();
// Only what is imported after that call is read compiled.
const { runMain } = await import("./run-main.ts");
process.exitCode = await runMain();
