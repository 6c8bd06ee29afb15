import { spawn } from "node:child_process";

/** An opener that still runs after this long has found a browser, and may be the browser itself. */
const SETTLED_MS = 2000;

/** Whether the program found something that shows the page. */
export async function openInBrowser(program: string, url: string): Promise<boolean> {
  const child = spawn(program, [url], { stdio: "ignore", detached: true });
  return await new Promise<boolean>((resolve) => {
    const timer = setTimeout(() => {
      child.unref();
      resolve(true);
    }, SETTLED_MS);
    const settle = (isOpen: boolean) => {
      clearTimeout(timer);
      resolve(isOpen);
    };
    child.once("error", () => settle(false));
    child.once("exit", (code) => settle(code === 0));
  });
}
