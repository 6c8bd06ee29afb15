import { spawn } from "node:child_process";

/** Milliseconds after which an opener that still runs counts as successful: it may be the browser itself. */
const OPENED_MS = 2000;

/** Opens a page in the browser; returns whether the opener found one. */
export async function openInBrowser(program: string, url: string): Promise<boolean> {
  const child = spawn(program, [url], { stdio: "ignore", detached: true });
  return await new Promise<boolean>((resolve) => {
    const timer = setTimeout(() => {
      child.unref();
      resolve(true);
    }, OPENED_MS);
    const finish = (isOpen: boolean) => {
      clearTimeout(timer);
      resolve(isOpen);
    };
    child.once("error", () => finish(false));
    child.once("exit", (code) => finish(code === 0));
  });
}
